"""States of transactional ids and their markers: what fits together, and what does not."""

from __future__ import annotations

from enum import Enum
from typing import NoReturn

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.transaction_checker import TransactionInvariant
from barnabas.testing.sim.transaction_history import read_history
from barnabas.testing.sim.transaction_log_checker import (
    BEFORE,
    LoggedState,
    Status,
    TransactionLogChecker,
    states_of,
)
from barnabas.wire.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tests.testing.transaction_logs import TransactionalLog

LEFT = TopicPartition("totals", 0)
RIGHT = TopicPartition("totals", 1)
ID = "worker-1"


def break_(invariant: Enum, text: str) -> NoReturn:
    raise InvariantBrokenError(invariant, text)


def state(status: Status | None, *partitions: TopicPartition, producer_id: int = 7, epoch: int = 0) -> LoggedState:
    return LoggedState(0, ID, status, producer_id, epoch, frozenset(partitions))


def checked(*states: LoggedState) -> TransactionLogChecker:
    checker = TransactionLogChecker(break_)
    for each in states:
        checker.state(each)
    return checker


BEGUN = (state(Status.EMPTY), state(Status.ONGOING, LEFT), state(Status.ONGOING, LEFT, RIGHT))
COMMITTED = (*BEGUN, state(Status.PREPARE_COMMIT, LEFT, RIGHT), state(Status.COMPLETE_COMMIT))


def test_records_are_read_as_they_are_stored() -> None:
    log = TransactionalLog()
    key = TransactionLogKey(transactional_id=ID).encode_key()
    value = TransactionLogValue(
        producer_id=7,
        producer_epoch=3,
        transaction_timeout_ms=1,
        transaction_status=1,
        transaction_partitions=[PartitionsSchema(topic="totals", partition_ids=[0, 1])],
        transaction_last_update_timestamp_ms=0,
        transaction_start_timestamp_ms=0,
    )
    pairs = [(key, value.encode_value(0)), (key, value.encode_value(1)), (key, None)]
    log.records(pairs, producer_id=-1, epoch=-1, is_transactional=False)
    assert states_of(read_history(log.data).records) == [
        LoggedState(0, ID, Status.ONGOING, 7, 3, frozenset({LEFT, RIGHT})),
        LoggedState(1, ID, Status.ONGOING, 7, 3, frozenset({LEFT, RIGHT})),
        LoggedState(2, ID, None, -1, -1, frozenset()),
    ]


def test_a_life_of_an_id() -> None:
    checker = checked(
        *COMMITTED,
        state(Status.ONGOING, LEFT),
        state(Status.PREPARE_ABORT, LEFT, epoch=1),
        state(Status.COMPLETE_ABORT, epoch=1),
        state(Status.PREPARE_ABORT, epoch=2),
        state(Status.COMPLETE_ABORT, producer_id=8),
        state(Status.EMPTY, producer_id=8, epoch=1),
        state(None),
        state(Status.EMPTY, producer_id=9),
    )
    assert checker.open() == ""
    assert checker.state_count == 13


@pytest.mark.parametrize("before", list(Status))
@pytest.mark.parametrize("after", list(Status))
def test_only_what_the_table_says(before: Status, after: Status) -> None:
    ways: dict[Status, tuple[LoggedState, ...]] = {
        Status.EMPTY: BEGUN[:1],
        Status.ONGOING: BEGUN[:2],
        Status.PREPARE_COMMIT: (*BEGUN[:2], state(Status.PREPARE_COMMIT, LEFT)),
        Status.PREPARE_ABORT: (*BEGUN[:2], state(Status.PREPARE_ABORT, LEFT)),
        Status.COMPLETE_COMMIT: COMMITTED,
        Status.COMPLETE_ABORT: (*BEGUN[:2], state(Status.PREPARE_ABORT, LEFT), state(Status.COMPLETE_ABORT)),
        Status.DEAD: (*BEGUN[:1], state(Status.DEAD)),
    }
    checker = checked(*ways[before])
    if before in BEFORE[after]:
        checker.state(state(after, LEFT))
        return
    with pytest.raises(InvariantBrokenError) as caught:
        checker.state(state(after, LEFT))
    assert caught.value.invariant is TransactionInvariant.STATES


@pytest.mark.parametrize(
    ("after", "text"),
    [
        (state(Status.ONGOING, LEFT), "without totals-1"),
        (state(Status.PREPARE_COMMIT, LEFT), "without totals-1"),
        (state(Status.PREPARE_COMMIT, LEFT, RIGHT, TopicPartition("x", 0)), "with other partitions"),
        (state(Status.PREPARE_ABORT, LEFT, RIGHT, epoch=-1), "the epoch was 0"),
    ],
)
def test_partitions_and_epochs_only_grow(after: LoggedState, text: str) -> None:
    with pytest.raises(InvariantBrokenError, match=text) as caught:
        checked(*BEGUN, after)
    assert caught.value.invariant is TransactionInvariant.STATES


@pytest.mark.parametrize("count", [2, 4])
def test_what_is_not_over_is_told(count: int) -> None:
    assert ID in checked(*COMMITTED[:count]).open()


def logs(*, left: bool | None, right: bool | None) -> dict[TopicPartition, TransactionalLog]:
    """Both with records, and with these markers."""
    made = {LEFT: TransactionalLog(), RIGHT: TransactionalLog()}
    for name, is_commit in ((LEFT, left), (RIGHT, right)):
        made[name].values(b"x")
        if is_commit is not None:
            made[name].marker(is_commit=is_commit)
    return made


def check_markers(made: dict[TopicPartition, TransactionalLog], *states: LoggedState) -> None:
    checked(*states).markers({name: read_history(log.data) for name, log in made.items()})


def test_markers_as_decided() -> None:
    made = logs(left=True, right=True)
    made[LEFT].marker(is_commit=True)  # once more
    made[RIGHT].marker(is_commit=False, producer_id=9)  # it has ended nothing
    check_markers(made, *COMMITTED)


def test_a_marker_that_is_missing() -> None:
    with pytest.raises(InvariantBrokenError, match="no marker for the commit") as caught:
        check_markers(logs(left=True, right=None), *COMMITTED)
    assert caught.value.invariant is TransactionInvariant.COMPLETE_LAST


@pytest.mark.parametrize("states", [BEGUN, (*BEGUN, state(Status.PREPARE_ABORT, LEFT))])
def test_a_marker_that_nobody_has_decided(states: tuple[LoggedState, ...]) -> None:
    decided = [each for each in states if each.partitions >= {LEFT}][:1]
    with pytest.raises(InvariantBrokenError, match="nobody has decided the commit") as caught:
        check_markers(logs(left=True, right=None), state(Status.EMPTY), *decided)
    assert caught.value.invariant is TransactionInvariant.DECIDED_FIRST
