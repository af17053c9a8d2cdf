"""What `barnabas why` decides, state by state: the verdict, what it says, and what it advises."""

from __future__ import annotations

from typing import Any, NamedTuple

import pytest

from barnabas.cli.diagnosis import (
    BrokerFacts,
    ClusterFacts,
    Diagnosis,
    PartitionFacts,
    Verdict,
    diagnose,
)

DEAD = {"is_fenced": True, "answers": False, "address": "h:1"}
STARTING = {"is_fenced": True, "answers": True, "address": "h:1"}
HANGS = {"answers": False, "address": "h:1"}
FAILED_DISK = {"answers": True, "failed_directories": ("/d2",)}
GONE = {"is_registered": False}

UNCLEAN = "barnabas leader-election --bootstrap-server b:1 --election-type unclean --topic t --partition 0"
QUORUM = "barnabas metadata-quorum --bootstrap-server b:1 describe --status"
START = "barnabas server start config/kraft/server.properties"


class State(NamedTuple):
    """A partition on brokers 1, 2, 3, all of which run unless `brokers` says otherwise; and what must be found."""

    name: str
    partition: dict[str, Any]
    brokers: dict[int, dict[str, Any]]
    verdict: Verdict
    says: tuple[str, ...]
    #: The commands in order.
    advises: tuple[str, ...] = ()
    has_active_controller: bool = True


STATES = [
    State(
        "all is well",
        {"min_insync_replicas": 2},
        {},
        Verdict.WELL,
        ("t-0 is well: broker 1 leads it (epoch 4), all 3 replicas are in sync, and acks=all needs 2 of them.",),
    ),
    State(
        "one replica",
        {"replicas": (1,), "isr": (1,)},
        {},
        Verdict.WELL,
        ("has the only replica: what that broker loses is lost",),
    ),
    State(
        "more are asked for than there are",
        {"replicas": (1, 2), "isr": (1, 2), "min_insync_replicas": 3},
        {},
        Verdict.WELL,
        ("all 2 replicas are in sync, and acks=all needs 2 of them",),
    ),
    State(
        "another than the preferred one leads",
        {"leader": 2, "isr": (2, 1, 3)},
        {},
        Verdict.WELL,
        ("Broker 1 is preferred as its leader",),
        ("barnabas leader-election --bootstrap-server b:1 --election-type preferred --topic t --partition 0",),
    ),
    State(
        "the leader hangs, and its session is not over",
        {},
        {1: HANGS},
        Verdict.WELL,
        ("its leader has trouble: broker 1 counts as alive, and does not answer at h:1", "broker.session.timeout.ms"),
    ),
    State(
        "the leader hangs, and so do the controllers",
        {},
        {1: HANGS},
        Verdict.WELL,
        ("its leader has trouble", "No controller is active: nobody can be elected"),
        (QUORUM,),
        has_active_controller=False,
    ),
    State(
        "a follower is dead, and too many controllers",
        {"isr": (1,), "min_insync_replicas": 2},
        {2: DEAD, 3: DEAD, 1: HANGS},
        Verdict.WRITES_REFUSED,
        ("its leader has trouble", "who is in sync cannot change"),
        (QUORUM, START, "barnabas configs --bootstrap-server b:1 --alter --topic t --add-config min.insync.replicas=1"),
        has_active_controller=False,
    ),
    State(
        "a follower is dead",
        {"isr": (1, 2), "min_insync_replicas": 1},
        {3: DEAD},
        Verdict.UNDER_REPLICATED,
        ("2 of 3 replicas are in sync (brokers 1 and 2)", "- broker 3 is fenced, and does not answer at h:1"),
        (START,),
    ),
    State(
        "a follower is dead, and no other may be",
        {"isr": (1, 2), "min_insync_replicas": 2},
        {3: DEAD},
        Verdict.UNDER_REPLICATED,
        ("If one more is lost, acks=all is refused.",),
        (START,),
    ),
    State(
        "the leader is alone, and that is allowed",
        {"isr": (1,), "min_insync_replicas": 1},
        {2: DEAD, 3: DEAD},
        Verdict.UNDER_REPLICATED,
        ("1 of 3 replicas is in sync (broker 1)", "Its leader is alone"),
        (START,),
    ),
    State(
        "a follower is behind",
        {"isr": (1, 2)},
        {},
        Verdict.UNDER_REPLICATED,
        ("- broker 3 runs: it catches up, or is shutting down",),
        ("barnabas log-dirs --bootstrap-server b:1 --describe --topic-list t --broker-list 1,3",),
    ),
    State(
        "a follower's disk has failed",
        {"isr": (1, 2), "offline": frozenset({3})},
        {3: FAILED_DISK},
        Verdict.UNDER_REPLICATED,
        ("- broker 3 runs, but /d2 with this replica has failed",),
        ("",),
    ),
    State(
        "a follower starts",
        {"isr": (1, 2)},
        {3: STARTING},
        Verdict.UNDER_REPLICATED,
        ("- broker 3 is fenced, though it answers at h:1: it starts, or cannot reach the controllers",),
        ("",),
    ),
    State(
        "a follower was forgotten",
        {"isr": (1, 2)},
        {3: GONE},
        Verdict.UNDER_REPLICATED,
        ("- broker 3 is not registered",),
        (START,),
    ),
    State(
        "too few for acks=all",
        {"isr": (1,), "min_insync_replicas": 2},
        {2: DEAD, 3: DEAD},
        Verdict.WRITES_REFUSED,
        (
            "Writes to t-0 with acks=all are refused with NOT_ENOUGH_REPLICAS: 1 of 3 replicas is in sync (broker 1), "
            "and min.insync.replicas=2 asks for 2.",
            "acks=1 are taken",
        ),
        (START, "barnabas configs --bootstrap-server b:1 --alter --topic t --add-config min.insync.replicas=1"),
    ),
    State(
        "too few for acks=all, and another is on its way",
        {"isr": (1,), "min_insync_replicas": 2},
        {2: DEAD},
        Verdict.WRITES_REFUSED,
        ("- broker 2 is fenced", "- broker 3 runs: it catches up"),
        (
            START,
            "barnabas log-dirs --bootstrap-server b:1 --describe --topic-list t --broker-list 1,3",
            "barnabas configs --bootstrap-server b:1 --alter --topic t --add-config min.insync.replicas=1",
        ),
    ),
    State(
        "two of two are needed, one is dead",
        {"replicas": (1, 2), "isr": (2,), "leader": 2, "min_insync_replicas": 2},
        {1: DEAD},
        Verdict.WRITES_REFUSED,
        ("1 of 2 replicas is in sync (broker 2)",),
        (START, "barnabas configs --bootstrap-server b:1 --alter --topic t --add-config min.insync.replicas=1"),
    ),
    State(
        "the only replica is dead",
        {"leader": None, "replicas": (1,), "isr": (1,), "offline": frozenset({1})},
        {1: DEAD},
        Verdict.NO_LEADER,
        (
            "Nobody leads t-0",
            "Only broker 1 has all that was acknowledged, and it is not there:",
            "- broker 1 is fenced",
        ),
        (START,),
    ),
    State(
        "the last in sync is dead, others run",
        {"leader": None, "isr": (1,), "offline": frozenset({1})},
        {1: DEAD},
        Verdict.NO_LEADER,
        ("Only broker 1 has all", "The other replicas may lack records", "- broker 2 runs"),
        (START, UNCLEAN),
    ),
    State(
        "the eligible ones are dead",
        {"leader": None, "isr": (), "elr": (1, 2), "offline": frozenset({1, 2})},
        {1: DEAD, 2: DEAD},
        Verdict.NO_LEADER,
        ("Only brokers 1 or 2 have all that was acknowledged, and none of them is there:",),
        (START, UNCLEAN),
    ),
    State(
        "one eligible replica runs",
        {"leader": None, "isr": (), "elr": (1, 2), "offline": frozenset({1})},
        {1: DEAD},
        Verdict.NO_LEADER,
        ("Broker 2 may lead and is there: one is about to be elected.",),
        ("barnabas why t:0 --bootstrap-server b:1",),
    ),
    State(
        "the eligible one starts",
        {"leader": None, "isr": (), "elr": (2,), "offline": frozenset({1, 2, 3})},
        {1: DEAD, 2: STARTING, 3: DEAD},
        Verdict.NO_LEADER,
        ("- broker 2 is fenced, though it answers",),
        ("",),
    ),
    State(
        "a follower hangs",
        {"isr": (1, 2)},
        {3: HANGS},
        Verdict.UNDER_REPLICATED,
        ("- broker 3 counts as alive, and does not answer at h:1: it hangs or is cut off",),
        ("",),
    ),
    State(
        "one that may lead hangs, another is dead",
        {"leader": None, "isr": (1, 2), "offline": frozenset({1})},
        {1: DEAD, 2: HANGS, 3: DEAD},
        Verdict.NO_LEADER,
        ("- broker 2 counts as alive, and does not answer at h:1",),
        ("", START),
    ),
    State(
        "the disk of the last in sync has failed",
        {"leader": None, "isr": (1,), "offline": frozenset({1})},
        {1: FAILED_DISK},
        Verdict.NO_LEADER,
        ("- broker 1 runs, but /d2 with this replica has failed",),
        ("", UNCLEAN),
    ),
    State(
        "all stopped uncleanly; the last leader is known, and away",
        {"leader": None, "isr": (), "elr": (), "last_known_elr": (3,), "offline": frozenset({3})},
        {3: DEAD},
        Verdict.NO_LEADER,
        ("Broker 3 led last, and is elected when it is back:", "- broker 3 is fenced"),
        (START, UNCLEAN),
    ),
    State(
        "all stopped uncleanly; the last leader is back",
        {"leader": None, "isr": (), "elr": (), "last_known_elr": (3,)},
        {},
        Verdict.NO_LEADER,
        ("Broker 3 may lead and is there",),
        ("barnabas why t:0 --bootstrap-server b:1",),
    ),
    State(
        "nobody is known to have anything",
        {"leader": None, "isr": (), "elr": (), "last_known_elr": ()},
        {1: DEAD},
        Verdict.NO_LEADER,
        ("nobody knows who led last: only an unclean election can make one lead",),
        (UNCLEAN,),
    ),
    State(
        "nobody is known to have anything, and nobody runs",
        {"leader": None, "isr": (), "elr": (), "last_known_elr": (), "offline": frozenset({1, 2, 3})},
        {1: DEAD, 2: DEAD, 3: GONE},
        Verdict.NO_LEADER,
        ("- broker 3 is not registered",),
        (),
    ),
    State(
        "a cluster that does not tell of eligible leaders",
        {"leader": None, "isr": (2,), "elr": None, "last_known_elr": None, "offline": frozenset({2})},
        {2: DEAD},
        Verdict.NO_LEADER,
        ("Only broker 2 has all",),
        (START, UNCLEAN),
    ),
    State(
        "no controller",
        {"leader": None, "isr": (1,)},
        {},
        Verdict.NO_LEADER,
        ("No controller is active: nobody can be elected",),
        (QUORUM,),
        has_active_controller=False,
    ),
]


def found(state: State) -> Diagnosis:
    facts: dict[str, Any] = {"leader": 1, "leader_epoch": 4, "replicas": (1, 2, 3), "isr": (1, 2, 3)}
    facts |= {"elr": (), "last_known_elr": ()} | state.partition
    brokers = {each: BrokerFacts(each, **({"answers": True} | state.brokers.get(each, {}))) for each in (1, 2, 3)}
    return diagnose(PartitionFacts("t", 0, **facts), ClusterFacts("b:1", brokers, state.has_active_controller))


@pytest.mark.parametrize("state", STATES, ids=[state.name for state in STATES])
def test_each_state(state: State) -> None:
    diagnosis = found(state)
    text = "\n".join(diagnosis.sentences)
    assert diagnosis.verdict is state.verdict, text
    for each in state.says:
        assert each in text
    assert tuple(each.command for each in diagnosis.advice) == state.advises


def test_what_loses_records_is_marked_and_comes_last() -> None:
    for state in STATES:
        marks = [each.loses_records for each in found(state).advice]
        assert marks == sorted(marks)
        assert all("Only if" in each.text for each in found(state).advice if each.loses_records)
        assert [each for each in found(state).advice if "unclean" in each.command and not each.loses_records] == []


def test_every_word_is_a_sentence() -> None:
    for state in STATES:
        for sentence in found(state).sentences:
            begins_well = sentence[0].isupper() or sentence.startswith("t-0 ")
            assert sentence.startswith("- ") or (begins_well and sentence[-1] in ".:"), sentence


def test_a_broker_that_nobody_told_of_is_not_registered() -> None:
    partition = PartitionFacts("t", 0, None, 4, (7,), (7,))
    assert "- broker 7 is not registered" in "\n".join(diagnose(partition, ClusterFacts("b:1")).sentences)
