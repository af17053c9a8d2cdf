"""A replica that lost a part of its files after a clean stop, in a real cluster: others lead, and it is fetched anew.

The groups of the cluster go on as well, whoever coordinates them.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Admin, Consumer, NewTopic, Producer, TopicPartition
from tests.cluster.asking import leaders, replicas_in_sync, until
from tests.cluster.nodes import Cluster, Node

TOPIC = "kept"
RECORDS = 300


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    with Cluster(
        tmp_path / "cluster", settings={"offsets.topic.replication.factor": "3", "min.insync.replicas": "2"}
    ) as cluster:
        yield cluster


def files_of(node: Node) -> list[bytes]:
    return [each.read_bytes() for each in sorted((node.data / f"{TOPIC}-0").glob("*.log"))]


def in_sync(node: Node, *topics: str) -> None:
    for topic in topics:
        until(
            f"all replicas of {topic} are in sync",
            lambda topic=topic: all(each == [1, 2, 3] for each in replicas_in_sync(node, topic)) or None,  # type: ignore[misc]
        )


def committed(node: Node) -> int:
    with Admin(bootstrap_servers=node.bootstrap) as admin:
        return sum(each.offset for each in admin.list_group_offsets("readers").values())


def test_a_damaged_replica_is_fetched_anew_and_never_leads_before(cluster: Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0) as producer:
        for each in [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(RECORDS)]:
            each.result(60)
    with Consumer(
        TOPIC, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest", group_id="readers"
    ) as consumer:
        count = 0
        while count < RECORDS:
            count += len(consumer.poll(30))
        consumer.commit()
    in_sync(cluster[1], TOPIC, "__consumer_offsets")
    (leader,) = leaders(cluster[1], TOPIC) or []
    other = cluster[leader % 3 + 1]
    victim = cluster[leader]
    whole = files_of(victim)
    assert victim.stop() == 0
    (file,) = (victim.data / f"{TOPIC}-0").glob("*.log")
    file.write_bytes(whole[0][: len(whole[0]) // 2])
    assert committed(other) == RECORDS
    cluster.start(victim.node_id)
    in_sync(other, TOPIC, "__consumer_offsets")
    assert files_of(victim) == files_of(other) == whole
    assert "is damaged here" in victim.told()
    # Now it may lead: the others are lost one after the other, and come back.
    for node in (other, cluster[other.node_id % 3 + 1]):
        node.kill()
        until("the groups are served", lambda: committed(victim) == RECORDS or None)
        cluster.start(node.node_id)
        in_sync(victim, TOPIC, "__consumer_offsets")
    assert {tuple(files_of(each)) for each in cluster.brokers} == {tuple(whole)}


def test_a_leader_whose_log_is_damaged_while_it_runs_lets_others_lead_and_fetches_anew(cluster: Cluster) -> None:
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.create_topics([NewTopic(TOPIC, num_partitions=1, replication_factor=3)])
    send(cluster, 0, RECORDS)
    in_sync(cluster[1], TOPIC)
    (leader,) = leaders(cluster[1], TOPIC) or []
    victim, other = cluster[leader], cluster[leader % 3 + 1]
    # What was just written would be read from memory.
    assert victim.stop() == 0
    cluster.start(victim.node_id)
    in_sync(other, TOPIC)
    with Admin(bootstrap_servers=cluster.bootstrap) as admin:
        admin.elect_leaders()
    until("it leads again", lambda: leaders(other, TOPIC) == [leader] or None)
    (file,) = (victim.data / f"{TOPIC}-0").glob("*.log")
    with file.open("r+b") as log:
        log.truncate(file.stat().st_size // 2)
    assert len(read_all(cluster)) == RECORDS
    until("another node leads", lambda: leaders(other, TOPIC) != [leader] or None)
    send(cluster, RECORDS, 2 * RECORDS)
    in_sync(other, TOPIC)
    assert files_of(victim) == files_of(other)
    assert read_all(cluster) == [b"%d" % number for number in range(2 * RECORDS)]
    told = victim.told()
    assert "the file is shorter than it was" in told
    assert f"{TOPIC}-0 is damaged here, node " in told


def send(cluster: Cluster, first: int, end: int) -> None:
    with Producer(bootstrap_servers=cluster.bootstrap, acks="all", linger_ms=0) as producer:
        for each in [producer.send(TOPIC, b"%d" % number, partition=0) for number in range(first, end)]:
            each.result(60)


def read_all(cluster: Cluster) -> list[bytes | None]:
    with Consumer(TOPIC, bootstrap_servers=cluster.bootstrap, auto_offset_reset="earliest") as consumer:
        (end,) = consumer.end_offsets([TopicPartition(TOPIC, 0)]).values()
        found: list[bytes | None] = []
        while len(found) < end:
            found += [each.value for each in consumer.poll(30)]
    return found
