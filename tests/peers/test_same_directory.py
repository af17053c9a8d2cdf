"""A directory that one program left is taken over by the other: of a controller, of a broker, of both in one node."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles import needs_kafka
from tests.peers.logs import newest_snapshot
from tests.peers.nodes import Kind, PeerCluster
from tests.peers.test_brokers_and_controllers import come_back, use

pytestmark = [needs_kafka(), pytest.mark.slow]

CONTROLLER, BROKER = 1, 10
#: States are written down often, so that each program starts from one of the other's.
SETTINGS = {"broker.session.timeout.ms": "5000", "metadata.log.max.snapshot.interval.ms": "1000"}


@pytest.mark.parametrize("first", list(Kind))
def test_controller_and_broker_change_hands_one_after_the_other(tmp_path: Path, first: Kind) -> None:
    other = Kind.KAFKA if first is Kind.OURS else Kind.OURS
    records = 20
    with PeerCluster(tmp_path, {CONTROLLER: "controller", BROKER: "broker"}, SETTINGS) as cluster:
        cluster.start({CONTROLLER: first, BROKER: first})
        use(cluster, BROKER)
        for controller, broker in ((first, other), (other, other), (other, first), (first, first)):
            snapshot_id = newest_snapshot(cluster[CONTROLLER])
            cluster.stop()
            cluster.start({CONTROLLER: controller})
            come_back(cluster, BROKER, broker, records)
            records += 1
            assert newest_snapshot(cluster[CONTROLLER]) != snapshot_id
    assert cluster.complaints() == []


def test_a_node_that_is_both(tmp_path: Path) -> None:
    with PeerCluster(tmp_path, {1: "broker,controller"}, SETTINGS) as cluster:
        cluster.start({1: Kind.KAFKA})
        use(cluster, 1)
        for count, kind in enumerate((Kind.OURS, Kind.KAFKA, Kind.OURS)):
            cluster.stop()
            come_back(cluster, 1, kind, 20 + count)
    assert cluster.complaints() == []
