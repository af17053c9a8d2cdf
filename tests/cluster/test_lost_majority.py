"""Two of three nodes, controllers and brokers at once, lose their disks: with the steps of docs/operating.md the one
that is left gives back the metadata, and loses no record."""

from __future__ import annotations

import shutil
from pathlib import Path

from barnabas import Admin, NewTopic, Producer
from barnabas.client.admin import ElectionType
from tests.cluster.asking import fenced, leaders, replicas_in_sync, until
from tests.cluster.nodes import COMBINED, Cluster, Node

TOPIC = "kept"


def logs_of(node: Node) -> list[bytes]:
    return [each.read_bytes() for each in sorted(node.data.glob(f"{TOPIC}-*/*.log"))]


def test_what_one_node_has_left_is_whole(tmp_path: Path) -> None:
    with Cluster(tmp_path / "cluster", settings={"min.insync.replicas": "2"}) as cluster:
        left, *lost = cluster.nodes.values()
        with Admin(bootstrap_servers=cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(TOPIC, num_partitions=3, replication_factor=3)])
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for sent in [producer.send(TOPIC, b"%d" % number, partition=number % 3) for number in range(300)]:
                sent.result(60)
        for each in lost:
            each.kill()
            shutil.rmtree(each.data)
        left.stop()
        written = logs_of(left)
        for each in lost:
            cluster.format(each)
            shutil.copytree(
                left.data / "__cluster_metadata-0",
                each.data / "__cluster_metadata-0",
                ignore=shutil.ignore_patterns("quorum-state"),
                dirs_exist_ok=True,
            )
            each.roles = "controller"
            cluster.write(each)
        cluster.start()
        until("the lost brokers are fenced", lambda: fenced(left) >= {each.node_id for each in lost} or None)
        with Admin(bootstrap_servers=left.bootstrap) as admin:
            admin.elect_leaders(election=ElectionType.UNCLEAN)
        until("who has records leads", lambda: set(leaders(left, TOPIC) or ()) == {left.node_id} or None)
        for each in lost:
            each.stop()
            each.roles = COMBINED
            cluster.write(each)
            cluster.start(each.node_id)
        until("all are in sync", lambda: all(isr == [1, 2, 3] for isr in replicas_in_sync(left, TOPIC)) or None)
        assert [logs_of(each) for each in cluster.nodes.values()] == [written] * 3
