"""Quorums whose log names the voters (kraft.version 1), begun with one controller and grown by Kafka's own tool."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.oracles import needs_kafka
from tests.oracles.kafka_controller import run_kafka
from tests.peers.nodes import Kind, PeerCluster, PeerNode
from tests.peers.work import Work

pytestmark = [needs_kafka(), pytest.mark.slow]

FIRST, OTHERS, BROKER = 1, (2, 3), 10


def cluster_of_one(folder: Path, first: Kind) -> PeerCluster:
    """The first controller is formatted as the only voter, the others as those who hear of the voters later."""
    roles = dict.fromkeys((FIRST, *OTHERS), "controller") | {BROKER: "broker"}
    by = dict.fromkeys(roles, Kind.OURS) | {FIRST: first}
    return PeerCluster(folder, roles, voters_in_log=by, first_voters=(FIRST,))


def add_voter(cluster: PeerCluster, node: PeerNode) -> None:
    command = ["--bootstrap-controller", cluster[FIRST].controller, "--command-config", str(node.properties)]
    run_kafka("org.apache.kafka.tools.MetadataQuorumCommand", *command, "add-controller")


def test_controllers_of_ours_join_the_voters_of_kafka(tmp_path: Path) -> None:
    with cluster_of_one(tmp_path, Kind.KAFKA) as cluster:
        cluster.start({FIRST: Kind.KAFKA, BROKER: Kind.OURS})
        work = Work(cluster[BROKER].address)
        assert (work.kraft_version(), work.voters()) == (1, {FIRST})
        work.create("of-one", 2)
        for each in OTHERS:
            cluster.start({each: Kind.OURS})
            cluster[each].until(lambda each=each: each in work.observers(), "it observes")  # type: ignore[misc]
            add_voter(cluster, cluster[each])
            cluster[each].until(lambda each=each: each in work.voters(), "it votes")  # type: ignore[misc]
        assert work.voters() == {FIRST, *OTHERS}
        cluster[FIRST].stop()
        work.create("without-the-first", 2)
        assert work.leader() in OTHERS
        cluster.start({FIRST: Kind.KAFKA})
        work.create("with-it-again", 2)
        assert work.topics() >= {"of-one", "without-the-first", "with-it-again"}
    assert cluster.complaints() == []


@pytest.mark.parametrize("first", list(Kind))
def test_controllers_that_do_not_vote_follow(tmp_path: Path, first: Kind) -> None:
    other = Kind.KAFKA if first is Kind.OURS else Kind.OURS
    with cluster_of_one(tmp_path, first) as cluster:
        cluster.start({FIRST: first, BROKER: other})
        work = Work(cluster[BROKER].address)
        work.create("one", 2)
        cluster.start(dict.fromkeys(OTHERS, other))
        for each in OTHERS:
            cluster[each].until(lambda each=each: each in work.observers(), "it observes")  # type: ignore[misc]
        work.create("two", 2)
        assert (work.kraft_version(), work.voters()) == (1, {FIRST})
    assert cluster.complaints() == []
