"""Leaders of ours with followers of Kafka's and the reverse, under controllers of either kind.

How often leaders move is 2, or what BARNABAS_MOVES says:

    BARNABAS_MOVES=20 .venv/bin/python -m pytest -m slow tests/peers/test_replicas_of_both_kinds.py
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.cluster.records import LibrdkafkaSender, OurSender, check, read_all
from tests.oracles import needs_kafka
from tests.peers.nodes import Kind, PeerCluster
from tests.peers.replicas import SETTINGS, TOPIC, Replicas, assert_same_segments
from tests.peers.work import Work

pytestmark = needs_kafka()

MOVES = int(os.environ.get("BARNABAS_MOVES", "2"))
OURS, KAFKAS, THIRD = 10, 11, 12
PAIR = {0: [OURS, KAFKAS], 1: [KAFKAS, OURS]}
THREE = {0: [10, 11, 12], 1: [11, 12, 10], 2: [12, 10, 11]}


def test_each_follows_the_other(tmp_path: Path) -> None:
    """One partition is led by ours, one by Kafka's; then all by one, and all by the other."""
    settings = SETTINGS | {"offsets.topic.replication.factor": "1"}
    with PeerCluster(tmp_path, {1: "controller", OURS: "broker", KAFKAS: "broker"}, settings) as cluster:
        cluster.start({1: Kind.OURS, OURS: Kind.OURS, KAFKAS: Kind.KAFKA})
        replicas = Replicas(cluster)
        replicas.create(PAIR)
        with contextlib.ExitStack() as sending:
            senders = [
                sending.enter_context(kind(cluster.bootstrap, TOPIC, len(PAIR)))
                for kind in (LibrdkafkaSender, OurSender)
            ]
            for stopped, other, kind in ((KAFKAS, OURS, Kind.KAFKA), (OURS, KAFKAS, Kind.OURS)):
                cluster[stopped].stop()
                replicas.until_led_by({other})
                cluster.start({stopped: kind})
                replicas.until_in_sync({key: {OURS, KAFKAS} for key in PAIR})
            replicas.elect_preferred()
        assert all(not each.failures for each in senders), [each.failures[:2] for each in senders]
        assert check(read_all(cluster.bootstrap, TOPIC, len(PAIR)), senders) > 500
        assert Work(cluster.bootstrap).read(TOPIC, 1, group="readers")
    assert assert_same_segments(cluster, TOPIC, PAIR, (OURS, KAFKAS)) > 0
    assert cluster.complaints() == []


@pytest.mark.slow
@pytest.mark.parametrize("controller", list(Kind), ids=lambda kind: f"under-{kind.value}")
@pytest.mark.parametrize(
    "brokers",
    [
        {10: Kind.OURS, 11: Kind.KAFKA, 12: Kind.OURS},
        {10: Kind.KAFKA, 11: Kind.OURS, 12: Kind.KAFKA},
    ],
    ids=["two-of-ours", "two-of-kafkas"],
)
def test_leaders_move_both_ways_under_load(tmp_path: Path, controller: Kind, brokers: Mapping[int, Kind]) -> None:
    roles = {1: "controller"} | dict.fromkeys(brokers, "broker")
    with PeerCluster(tmp_path, roles, SETTINGS) as cluster:
        cluster.start({1: controller, **brokers})
        replicas = Replicas(cluster)
        replicas.create(THREE, min_in_sync=2)
        everybody = {key: set(brokers) for key in THREE}
        with contextlib.ExitStack() as sending:
            senders = [
                sending.enter_context(kind(cluster.bootstrap, TOPIC, len(THREE)))
                for kind in (LibrdkafkaSender, OurSender)
            ]
            for move in range(MOVES):
                victim = list(brokers)[move % 3]
                if move % 2:
                    cluster[victim].kill()
                else:
                    cluster[victim].stop()
                replicas.until_led_by(set(brokers) - {victim})
                cluster.start({victim: brokers[victim]})
                replicas.until_in_sync(everybody)
                replicas.elect_preferred()
        assert all(not each.failures for each in senders), [each.failures[:2] for each in senders]
        assert check(read_all(cluster.bootstrap, TOPIC, len(THREE)), senders) > 100 * MOVES
        replicas.until_in_sync(everybody)
    assert assert_same_segments(cluster, TOPIC, THREE, brokers) > 0
    assert cluster.complaints() == []
