"""Two nodes of ours and one of Apache Kafka in one quorum, over SASL_SSL with ACLs, while clients write and read.

python -m pytest -m slow tests/cluster/test_mixed_sasl_ssl.py
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import Path

import pytest

import barnabas
from barnabas.cli.main import main
from tests.cluster.nodes import Cluster, Node
from tests.cluster.secured import Certificates, RunningClients, TlsKafkaNode, jaas
from tests.oracles import needs_kafka

TOPIC = "mixed"
KAFKA = 3
USERS = {"node": "node-pw-7Qx~", "admin": "admin-pw-7Qx~", "ann": "ann-pw-7Qx~"}
SETTINGS = {
    "listener.security.protocol.map": "PLAINTEXT:SASL_SSL,CONTROLLER:SASL_SSL",
    "inter.broker.listener.name": "PLAINTEXT",
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:node;User:admin",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "offsets.topic.replication.factor": "3",
}
_PATIENCE_S = 60.0


class MixedCluster(Cluster):
    """Node 3 is Kafka's. Users are in the metadata log, and for PLAIN in the settings."""

    def __init__(self, folder: Path, brokers: str, controllers: str) -> None:
        self.certificates = Certificates(folder / "certificates")
        self.mechanism = brokers
        self._controllers = controllers
        super().__init__(folder, settings=SETTINGS)
        ours = self.nodes[KAFKA]
        ports = (int(each.split(":")[1]) for each in (ours.bootstrap, ours.controller))
        kafka = self.nodes[KAFKA] = TlsKafkaNode(KAFKA, ours.roles, folder, *ports)
        kafka.certificates = self.certificates

    def properties(self, node: Node, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        found = self.certificates.settings(f"node-{node.node_id}", "127.0.0.1", "localhost")
        for listener, mechanism in (("plaintext", self.mechanism), ("controller", self._controllers)):
            users = USERS if mechanism == "PLAIN" else {}
            prefix = f"listener.name.{listener}"
            found[f"{prefix}.sasl.enabled.mechanisms"] = mechanism
            login = jaas(mechanism, "node", USERS["node"], users)
            found[f"{prefix}.{mechanism.lower()}.sasl.jaas.config"] = login
        found["sasl.enabled.mechanisms"] = ",".join(dict.fromkeys((self.mechanism, self._controllers)))
        found["sasl.mechanism.inter.broker.protocol"] = self.mechanism
        found["sasl.mechanism.controller.protocol"] = self._controllers
        return super().properties(node, {**found, **(changes or {})})

    def format(self, node: Node, cluster_id: str | None = None) -> None:
        users = [
            word
            for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
            for name, password in USERS.items()
            for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
        ]
        assert main(["storage", "format", "-t", self.cluster_id, "-c", str(node.file), *users]) == 0

    def client(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(self.certificates.ca),
            "sasl.mechanism": self.mechanism,
            "sasl.jaas.config": jaas(self.mechanism, user, USERS[user]),
        }

    def librdkafka(self, user: str) -> dict[str, str]:
        return {
            "bootstrap.servers": self.bootstrap,
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(self.certificates.ca),
            "sasl.mechanism": self.mechanism,
            "sasl.username": user,
            "sasl.password": USERS[user],
        }


def until_all_in_sync(admin: barnabas.Admin) -> int:
    """Wait until all three have everything; who is the active controller."""
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        try:
            isrs = [len(each.isr) for each in admin.describe_topics([TOPIC])[TOPIC].partitions]
            if isrs == [3, 3, 3]:
                return admin.describe_metadata_quorum().leader_id
        except barnabas.BarnabasError:
            pass
        assert time.monotonic() < deadline_s, "the replicas do not come together"
        time.sleep(0.2)


def until_known(cluster: MixedCluster) -> None:
    """Rules are in force at one node before others have heard of them."""
    for node in cluster.nodes.values():
        deadline_s = time.monotonic() + _PATIENCE_S
        with barnabas.Admin(cluster.client("ann") | {"bootstrap.servers": node.bootstrap}) as admin:
            while TOPIC not in admin.list_topics():
                assert time.monotonic() < deadline_s, f"node {node.node_id} does not know the rules"
                time.sleep(0.05)


def led_by_all(admin: barnabas.Admin) -> None:
    """Each node leads a partition: what was moved away goes back to those who are first in the list."""
    partitions = [barnabas.TopicPartition(TOPIC, each) for each in range(3)]
    deadline_s = time.monotonic() + _PATIENCE_S
    while True:
        found = admin.describe_topics([TOPIC])[TOPIC].partitions
        if sorted(each.leader.node_id for each in found if each.leader) == [1, 2, KAFKA]:
            return
        assert time.monotonic() < deadline_s, found
        try:
            admin.elect_leaders(partitions)
        except barnabas.BarnabasError:
            time.sleep(0.2)


@needs_kafka()
@pytest.mark.slow
@pytest.mark.parametrize(("brokers", "controllers"), [("SCRAM-SHA-512", "PLAIN"), ("PLAIN", "SCRAM-SHA-256")])
def test_leaders_move_between_kafka_and_us_and_nobody_notices(tmp_path: Path, brokers: str, controllers: str) -> None:
    cluster = MixedCluster(tmp_path, brokers, controllers)
    with cluster, barnabas.Admin(cluster.client("admin")) as admin:
        admin.create_topics([barnabas.NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
        config = tmp_path / "admin.properties"
        config.write_text("".join(f"{name}={value}\n" for name, value in cluster.client("admin").items()))
        words = ("--add", "--allow-principal", "User:ann", "--producer", "--consumer", "--topic", TOPIC)
        shared = ("--bootstrap-server", cluster.bootstrap, "--command-config", str(config))
        assert main(["acls", *shared, *words, "--group", "readers"]) == 0
        until_known(cluster)
        with RunningClients(TOPIC, cluster.client("ann"), cluster.librdkafka("ann")) as clients:
            clients.until_more()
            led: set[bool] = set()
            for _ in range(8):
                leader = until_all_in_sync(admin)
                led_by_all(admin)
                led.add(leader == KAFKA)
                clients.until_more()
                if led == {True, False}:
                    break
                # Whoever leads dies; of both kinds somebody has to lead once.
                cluster[leader].kill()
                clients.until_more()
                cluster.start(leader)
            assert led == {True, False}
            clients.stop()
            assert clients.problems == []
            assert clients.acknowledged <= set(clients.read)
        _may_do_no_more(cluster)


def _may_do_no_more(cluster: MixedCluster) -> None:
    """Asked at any node, ann may not create topics, and who has a wrong password learns nothing."""
    for node in cluster.nodes.values():
        at_one = {"bootstrap.servers": node.bootstrap}
        with barnabas.Admin(cluster.client("ann") | at_one) as admin:
            with pytest.raises(barnabas.BarnabasError, match="AUTHORIZATION"):
                admin.create_topics([barnabas.NewTopic("hers")])
            assert set(admin.list_topics()) == {TOPIC}
        wrong = cluster.client("ann") | at_one | {"sasl.jaas.config": jaas(cluster.mechanism, "ann", "wrong-7Qx~")}
        with pytest.raises(barnabas.BarnabasError, match="SASL_AUTHENTICATION_FAILED"), barnabas.Admin(wrong) as admin:
            admin.list_topics()
    told = "".join(each.told() for each in cluster.nodes.values() if each.node_id != KAFKA)
    assert "7Qx~" not in told
