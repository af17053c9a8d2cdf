"""Quorums of both kinds: the lead moves between ours and Kafka's while topics and settings change.

How often it moves is 2, or what BARNABAS_MOVES says:

    BARNABAS_MOVES=20 .venv/bin/python -m pytest -m slow tests/peers/test_leaders_of_both_kinds.py
"""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.oracles import needs_kafka
from tests.peers.changes import Changes
from tests.peers.logs import assert_same_logs, newest_snapshot, records_of
from tests.peers.nodes import TIMEOUT_S, Kind, PeerCluster
from tests.peers.work import Work

pytestmark = [needs_kafka(), pytest.mark.slow]

MOVES = int(os.environ.get("BARNABAS_MOVES", "2"))
BROKERS = {10: Kind.OURS, 11: Kind.KAFKA}
QUORUMS = {
    "two of ours": {1: Kind.OURS, 2: Kind.KAFKA, 3: Kind.OURS},
    "two of Kafka's": {1: Kind.KAFKA, 2: Kind.OURS, 3: Kind.KAFKA},
}
SNAPSHOT_MS = 3000
#: States are written down often, and nothing is written while nothing changes.
SETTINGS = {"metadata.log.max.snapshot.interval.ms": str(SNAPSHOT_MS), "metadata.max.idle.interval.ms": "0"}


@pytest.mark.parametrize("controllers", QUORUMS.values(), ids=QUORUMS.keys())
@pytest.mark.parametrize("kraft_version", [0, 1])
def test_the_lead_moves_between_the_two_kinds(
    tmp_path: Path, controllers: Mapping[int, Kind], kraft_version: int
) -> None:
    roles = dict.fromkeys(controllers, "controller") | dict.fromkeys(BROKERS, "broker")
    # Each is formatted by the program that runs it.
    by = {**controllers, **BROKERS} if kraft_version else None
    with PeerCluster(tmp_path, roles, SETTINGS, voters_in_log=by) as cluster:
        cluster.start(controllers)
        cluster.start(BROKERS)
        with Changes([cluster[each].address for each in BROKERS]) as changes:
            move_the_lead(cluster, controllers)
        assert Work(cluster.bootstrap).kraft_version() == kraft_version
        check_topics(cluster, changes)
        compare_states(cluster)
    assert_same_logs(cluster.nodes.values())
    assert cluster.complaints() == []


def move_the_lead(cluster: PeerCluster, controllers: Mapping[int, Kind]) -> None:
    """Whoever leads stops or is killed and comes back. Others of its kind miss a change before, so they cannot win."""
    for move in range(MOVES):
        leader = leader_other_than(cluster, None)
        alike = [cluster[each] for each, kind in controllers.items() if kind is controllers[leader] and each != leader]
        for node in alike:
            node.pause()
        time.sleep(1)
        waking = [threading.Timer(0.2, node.go_on) for node in alike]
        for timer in waking:
            timer.start()
        if move % 2:
            cluster[leader].kill()
        else:
            cluster[leader].stop()
        for timer in waking:
            timer.join()
        assert controllers[leader_other_than(cluster, leader)] is not controllers[leader]
        cluster.start({leader: controllers[leader]})
        time.sleep(1)


def leader_other_than(cluster: PeerCluster, former: int | None) -> int:
    """As a broker of ours and one of Kafka's say it."""
    deadline = time.monotonic() + TIMEOUT_S
    while time.monotonic() < deadline:
        told = {Work(cluster[each].address).leader() for each in BROKERS}
        if len(told) == 1 and not told & {former, -1}:
            return told.pop()
        time.sleep(0.1)
    raise AssertionError(f"nobody else leads after {former}")


def check_topics(cluster: PeerCluster, changes: Changes) -> None:
    """What was acknowledged is there, whomever one asks."""
    assert len(changes.retention) > 2
    for each in BROKERS:
        work = Work(cluster[each].address)
        assert work.topics() >= set(changes.retention)
        assert not work.topics() & changes.deleted
        assert work.retention(changes.retention) == changes.retention


def compare_states(cluster: PeerCluster) -> None:
    """A change after some rest makes all nodes write down their state at the same offset: the same, by each record."""
    time.sleep(SNAPSHOT_MS / 1000 + 0.5)
    Work(cluster.bootstrap).create("the-last-one", 1)
    nodes = list(cluster.nodes.values())
    deadline = time.monotonic() + TIMEOUT_S
    while None in (found := {newest_snapshot(each) for each in nodes}) or len(found) > 1:
        assert time.monotonic() < deadline, {each.node_id: newest_snapshot(each) for each in nodes}
        time.sleep(0.2)
    (snapshot_id,) = found
    assert snapshot_id is not None
    states = {each.node_id: records_of(each, snapshot_id) for each in nodes}
    first = states[nodes[0].node_id]
    assert len(first) > 10
    for node_id, state in states.items():
        assert state == first, f"node {node_id}"
