"""A broker of ours and one of Apache Kafka's side by side, under a controller of ours."""

from __future__ import annotations

from pathlib import Path

from tests.oracles import needs_kafka
from tests.peers.nodes import Kind, PeerCluster
from tests.peers.work import Work

pytestmark = needs_kafka()


def test_brokers_of_both_kinds_share_a_topic(tmp_path: Path) -> None:
    with PeerCluster(tmp_path, {1: "controller", 10: "broker", 11: "broker"}) as cluster:
        cluster.start({1: Kind.OURS, 10: Kind.OURS, 11: Kind.KAFKA})
        ours, kafkas = Work(cluster[10].address), Work(cluster[11].address)
        assert ours.brokers() == kafkas.brokers() == {10, 11}
        kafkas.create("through-kafka", 4)
        ours.create("through-ours", 4)
        values = [f"value {number}" for number in range(40)]
        for work, topic in ((ours, "through-kafka"), (kafkas, "through-ours")):
            work.set_option(topic, "retention.ms", "123456")
            work.produce(topic, values)
        for work, topic in ((kafkas, "through-kafka"), (ours, "through-ours")):
            assert work.retention([topic]) == {topic: "123456"}
            assert work.leaders_of(topic) == {10, 11}
            assert work.read(topic, 40, group=f"readers-of-{topic}") == sorted(values)
    assert cluster.complaints() == []
