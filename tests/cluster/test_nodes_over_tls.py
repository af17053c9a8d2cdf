"""Three nodes that talk TLS to each other and to their clients, and know each other by certificates; one of them may be
Apache Kafka's. And the way there from nodes without TLS, one node at a time, while records are written."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import barnabas
from tests.cluster.nodes import Cluster, Node
from tests.cluster.secured import Certificates, TlsKafkaNode
from tests.oracles import needs_kafka
from tests.ports import free_ports

#: The listeners keep their names, which say nothing of what is spoken there.
PROTOCOLS = {
    "listener.security.protocol.map": "PLAINTEXT:SSL,CONTROLLER:SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "ssl.client.auth": "required",
}
REPLICATED = {"default.replication.factor": "3", "min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}


class TlsCluster(Cluster):
    """Each node has a certificate of its own."""

    def __init__(self, folder: Path, settings: Mapping[str, str] | None = None) -> None:
        self.certificates = Certificates(folder / "certificates")
        super().__init__(folder, settings={**REPLICATED, **(settings or PROTOCOLS)})

    def properties(self, node: Node, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        own = self.certificates.settings(f"node-{node.node_id}", "127.0.0.1", "localhost")
        return super().properties(node, {**own, **(changes or {})})


def write_and_read(bootstrap: str, settings: Mapping[str, str], topic: str, first: int, count: int) -> None:
    """Records from `first` on, acknowledged by all replicas; then all that were ever written are there."""
    with barnabas.Producer({"bootstrap.servers": bootstrap, **settings}) as producer:
        for number in range(first, first + count):
            producer.send(topic, key=b"%d" % number, value=b"x" * 1000)
        producer.flush()
    seen = set[int]()
    own = {"bootstrap.servers": bootstrap, "auto.offset.reset": "earliest", **settings}
    with barnabas.Consumer(own) as consumer:
        consumer.assign([barnabas.TopicPartition(topic, each) for each in range(3)])
        deadline_s = time.monotonic() + 30
        while len(seen) < first + count and time.monotonic() < deadline_s:
            seen.update(int(each.key) for each in consumer.poll(1))
    assert seen == set(range(first + count))


def create(bootstrap: str, settings: Mapping[str, str], topic: str) -> None:
    with barnabas.Admin({"bootstrap.servers": bootstrap, **settings}) as admin:
        admin.create_topics([barnabas.NewTopic(topic, num_partitions=3, replication_factor=3)])


def test_three_nodes_with_certificates(tmp_path: Path) -> None:
    cluster = TlsCluster(tmp_path)
    with cluster:
        client = cluster.certificates.client()
        create(cluster.bootstrap, client, "secured")
        write_and_read(cluster.bootstrap, client, "secured", 0, 300)
        cluster[1].kill()
        write_and_read(cluster.bootstrap, client, "secured", 300, 300)
        cluster.start(1)
        # Who speaks no TLS, and who has no certificate, learns nothing.
        for settings, words in (
            ({}, "none of the bootstrap servers answered"),
            ({"security.protocol": "SSL", "ssl.cafile": str(cluster.certificates.ca)}, "certificate"),
            ({"security.protocol": "SSL"}, "not accepted"),
        ):
            started_s = time.monotonic()
            with (
                pytest.raises(barnabas.BarnabasError, match=words),
                barnabas.Admin(
                    {"bootstrap.servers": cluster[2].bootstrap, "default.api.timeout.ms": "3000", **settings}
                ) as admin,
            ):
                admin.list_topics()
            assert time.monotonic() - started_s < 10


@needs_kafka()
@pytest.mark.slow
def test_two_of_ours_and_one_of_kafkas(tmp_path: Path) -> None:
    cluster = TlsCluster(tmp_path)
    ours = cluster.nodes[3]
    kafka = TlsKafkaNode(
        3, ours.roles, tmp_path, *(int(each.split(":")[1]) for each in (ours.bootstrap, ours.controller))
    )
    kafka.certificates = cluster.certificates
    cluster.nodes[3] = kafka
    with cluster:
        client = cluster.certificates.client()
        create(cluster.bootstrap, client, "mixed")
        write_and_read(cluster.bootstrap, client, "mixed", 0, 300)
        cluster[1].kill()
        write_and_read(cluster.bootstrap, client, "mixed", 300, 300)


@pytest.mark.slow
def test_from_plaintext_to_tls_one_node_at_a_time(tmp_path: Path) -> None:
    """First every node listens with TLS as well; then nodes talk to each other there; then nobody listens without."""
    ports = free_ports(3)
    cluster = TlsCluster(tmp_path, settings={"unused": "1"})
    with cluster:
        create(cluster.bootstrap, {}, "moving")
        tls = cluster.certificates.client()
        secured = ",".join(f"127.0.0.1:{port}" for port in ports)
        written = 0

        def roll(changes: Mapping[str, str], bootstrap: str, client: Mapping[str, str]) -> None:
            nonlocal written
            for node, port in zip(cluster.nodes.values(), ports, strict=True):
                listeners = changes["listeners"].format(
                    plain=node.bootstrap, tls=f"127.0.0.1:{port}", controller=node.controller
                )
                assert node.stop() == 0
                cluster.write(node, {**changes, "listeners": listeners})
                cluster.start(node.node_id)
                write_and_read(bootstrap, client, "moving", written, 50)
                written += 50

        protocols = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SSL:SSL,CONTROLLER:PLAINTEXT"}
        both = "PLAINTEXT://{plain},SSL://{tls},CONTROLLER://{controller}"
        roll({**protocols, "listeners": both}, cluster.bootstrap, {})
        write_and_read(secured, tls, "moving", written, 50)
        written += 50
        roll({**protocols, "listeners": both, "inter.broker.listener.name": "SSL"}, secured, tls)
        only = {**protocols, "listeners": "SSL://{tls},CONTROLLER://{controller}", "inter.broker.listener.name": "SSL"}
        roll({**only, "ssl.client.auth": "required"}, secured, tls)
        assert written == 500
