"""Our broker under Apache Kafka's controllers, and Kafka's broker under ours."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles import needs_kafka
from tests.peers.nodes import Kind, PeerCluster
from tests.peers.work import Work

pytestmark = needs_kafka()


def use(cluster: PeerCluster, broker_id: int) -> None:
    """Everything that a broker needs its controller for."""
    broker = cluster[broker_id]
    work = Work(broker.address)
    assert work.brokers() == {broker_id}
    work.create("first", 2)
    values = [f"value {number}" for number in range(20)]
    work.produce("first", values)
    assert work.read("first", 20) == sorted(values)
    assert len(work.read("first", 20, group="readers")) == 20
    work.set_option("first", "retention.ms", "123456")
    work.add_partitions("first", 4)
    work.create("second")
    work.delete("second")


def come_back(cluster: PeerCluster, broker_id: int, kind: Kind, records: int = 20) -> None:
    """Started again, a broker knows what it knew, and its group stands where it stood."""
    broker = cluster[broker_id]
    broker.start(kind)
    broker.wait_until_it_answers()
    work = Work(broker.address)
    assert work.topics() >= {"first"}
    assert len(work.read("first", records)) == records
    work.produce("first", ["one more"])
    assert work.read("first", 1, group="readers") == ["one more"]


@pytest.mark.slow
@pytest.mark.parametrize("controllers", [1, 3])
@pytest.mark.parametrize("kind", list(Kind))
def test_a_broker_under_controllers_of_the_other_kind(tmp_path: Path, kind: Kind, controllers: int) -> None:
    other = Kind.KAFKA if kind is Kind.OURS else Kind.OURS
    roles = dict.fromkeys(range(1, controllers + 1), "controller") | {10: "broker"}
    with PeerCluster(tmp_path, roles) as cluster:
        cluster.start(dict.fromkeys(range(1, controllers + 1), other) | {10: kind})
        use(cluster, 10)
        assert cluster[10].stop() < 10
        come_back(cluster, 10, kind)
        cluster[10].kill()
        come_back(cluster, 10, kind, records=21)
    assert cluster.complaints() == []
