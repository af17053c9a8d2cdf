"""What must hold of transactions: a good history is accepted, and each thing that can go wrong is found by its name."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import NoReturn

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.transaction_checker import (
    Effect,
    Readers,
    TransactionBook,
    TransactionInvariant,
    offset_commits,
)
from barnabas.testing.sim.transaction_history import read_history
from barnabas.wire.stored.consumer_offsets import OffsetCommitKey, OffsetCommitValue
from tests.testing.transaction_logs import TransactionalLog

ORDERS = TopicPartition("orders", 0)
LEFT = TopicPartition("totals", 0)
RIGHT = TopicPartition("totals", 1)
GROUP = "clerks"


def break_(invariant: Enum, text: str) -> NoReturn:
    raise InvariantBrokenError(invariant, text)


def expected(source: TopicPartition, offset: int) -> list[TopicPartition]:
    """Both, of even offsets."""
    return [LEFT, RIGHT] if offset % 2 == 0 else [LEFT]


class Loop:
    """Four orders, and a worker whose transactions a test ends as it likes."""

    def __init__(self) -> None:
        self.book = TransactionBook(break_, expected)
        self.orders = TransactionalLog()
        self.orders.values(*(b"%d" % number for number in range(4)), producer_id=-1, is_transactional=False)
        self.logs = {LEFT: TransactionalLog(), RIGHT: TransactionalLog()}
        self.offsets = TransactionalLog()

    def work(self, tag: str, offsets: Sequence[int], commit: int | None, *, producer_id: int = 7) -> None:
        """The records and offsets of a transaction, without an end."""
        self.book.begun(tag)
        for offset in offsets:
            for copy, partition in enumerate(expected(ORDERS, offset)):
                effect = Effect(tag, ORDERS, offset, copy)
                self.book.wrote(partition, effect)
                self.logs[partition].records([(b"k", effect.encode())], producer_id=producer_id)
        if commit is not None:
            self.book.sent_offsets(tag, {ORDERS: commit})
            self.commit_offset(tag, commit, producer_id=producer_id)

    def commit_offset(self, tag: str, offset: int, *, producer_id: int = 7, group: str = GROUP) -> None:
        key = OffsetCommitKey(group=group, topic=ORDERS.topic, partition=ORDERS.partition)
        value = OffsetCommitValue(offset=offset, metadata=tag, commit_timestamp=0)
        self.offsets.records([(key.encode_key(), value.encode_value(3))], producer_id=producer_id)

    def end(self, *, is_commit: bool, but: TransactionalLog | None = None, producer_id: int = 7) -> None:
        for log in (*self.logs.values(), self.offsets):
            log.marker(is_commit=is_commit is not (log is but), producer_id=producer_id)

    def check(self) -> None:
        outputs = {name: read_history(log.data) for name, log in self.logs.items()}
        commits = offset_commits(read_history(self.offsets.data), GROUP)
        self.book.check({ORDERS: read_history(self.orders.data)}, outputs, commits)


@pytest.fixture
def loop() -> Loop:
    """Half of the orders are done."""
    made = Loop()
    made.work("a/1", [0, 1], 2)
    made.end(is_commit=True)
    made.book.told("a/1", is_committed=True)
    return made


def broken(loop: Loop) -> TransactionInvariant:
    with pytest.raises(InvariantBrokenError) as caught:
        loop.check()
    invariant = caught.value.invariant
    assert isinstance(invariant, TransactionInvariant)
    return invariant


def finish(loop: Loop, tag: str = "a/9") -> None:
    """The other half."""
    loop.work(tag, [2, 3], 4)
    loop.end(is_commit=True)
    loop.book.told(tag, is_committed=True)


def test_a_good_history_is_accepted(loop: Loop) -> None:
    loop.work("a/2", [2], None)
    loop.end(is_commit=False)
    loop.book.told("a/2", is_committed=False)
    loop.work("b/1", [2, 3], 4, producer_id=8)
    loop.end(is_commit=False, producer_id=8)  # nobody was told
    loop.book.begun("a/3")
    loop.book.told("a/3", is_committed=True)  # an empty one
    loop.commit_offset("elsewhere", 4711, group="others")
    finish(loop)
    loop.check()
    assert loop.book.told_count(is_committed=True) == 3
    assert loop.book.told_count(is_committed=False) == 1


def test_a_transaction_that_is_torn_between_partitions(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 4)
    loop.end(is_commit=True, but=loop.logs[RIGHT])
    assert broken(loop) is TransactionInvariant.WHOLE


def test_offsets_that_come_to_another_end_than_the_output(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 4)
    loop.end(is_commit=True, but=loop.offsets)
    assert broken(loop) is TransactionInvariant.WHOLE


def test_a_committed_transaction_that_lacks_a_record(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 4)
    loop.book.wrote(LEFT, Effect("a/2", ORDERS, 3, 7))
    loop.end(is_commit=True)
    assert broken(loop) is TransactionInvariant.WHOLE


def test_a_record_that_is_twice_in_its_transaction(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 4)
    loop.logs[LEFT].records([(b"k", Effect("a/2", ORDERS, 3, 0).encode())])
    loop.end(is_commit=True)
    assert broken(loop) is TransactionInvariant.WHOLE


def test_offsets_may_be_written_again_in_their_transaction(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 4)
    loop.work("b/1", [], 2, producer_id=8)
    loop.commit_offset("a/2", 4)
    loop.end(is_commit=True)
    loop.end(is_commit=False, producer_id=8)
    loop.check()


def test_a_transaction_that_hangs(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 4)
    assert broken(loop) is TransactionInvariant.NOTHING_HANGS


@pytest.mark.parametrize("is_commit", [True, False])
def test_another_end_than_was_told(loop: Loop, is_commit: bool) -> None:
    loop.work("a/2", [2, 3], 4)
    loop.end(is_commit=is_commit)
    loop.book.told("a/2", is_committed=not is_commit)
    assert broken(loop) is TransactionInvariant.AS_TOLD


def test_a_commit_that_was_told_and_left_no_trace(loop: Loop) -> None:
    loop.book.begun("a/2")
    loop.book.wrote(LEFT, Effect("a/2", ORDERS, 3, 0))
    loop.book.told("a/2", is_committed=True)
    assert broken(loop) is TransactionInvariant.AS_TOLD


def test_an_effect_without_its_offset(loop: Loop) -> None:
    loop.work("a/2", [2, 3], 3)
    loop.end(is_commit=True)
    assert broken(loop) is TransactionInvariant.AGREES


def test_an_offset_without_its_effect(loop: Loop) -> None:
    loop.work("a/2", [3], 4)
    loop.end(is_commit=True)
    assert broken(loop) is TransactionInvariant.AGREES


def test_the_same_input_again(loop: Loop) -> None:
    loop.work("b/1", [0, 1], 2, producer_id=8)
    loop.end(is_commit=True, producer_id=8)
    assert broken(loop) is TransactionInvariant.AGREES


def test_an_effect_twice_without_offsets(loop: Loop) -> None:
    finish(loop)
    loop.work("b/1", [1], None, producer_id=8)
    loop.end(is_commit=True, producer_id=8)
    assert broken(loop) is TransactionInvariant.EXACTLY_ONCE


def test_an_input_without_effect(loop: Loop) -> None:
    assert broken(loop) is TransactionInvariant.EXACTLY_ONCE


def test_what_is_aborted_in_the_input_has_no_effect(loop: Loop) -> None:
    finish(loop)
    loop.orders.values(b"x", producer_id=3)
    loop.orders.marker(is_commit=False, producer_id=3)
    loop.check()
    loop.orders.values(b"y", producer_id=3)
    loop.orders.marker(is_commit=True, producer_id=3)
    assert broken(loop) is TransactionInvariant.EXACTLY_ONCE


def test_a_key_out_of_order() -> None:
    loop = Loop()
    loop.work("a/1", [3, 2, 1, 0], 4)
    loop.end(is_commit=True)
    assert broken(loop) is TransactionInvariant.ORDER


def test_offsets_come_into_force_in_the_order_of_markers() -> None:
    loop = Loop()
    loop.commit_offset("late", 1, producer_id=1)
    loop.commit_offset("early", 2, producer_id=2)
    loop.commit_offset("open", 3, producer_id=3)
    loop.offsets.marker(is_commit=True, producer_id=2)
    loop.offsets.marker(is_commit=True, producer_id=1)
    found = [commit.tag for _, commit in offset_commits(read_history(loop.offsets.data), GROUP)]
    assert found == ["early", "late", "open"]


# Readers


def read(seen: Sequence[tuple[int, bytes]], *, is_read_committed: bool) -> None:
    """A reader was given these of a log with an aborted record, a committed one and an open one."""
    log = TransactionalLog()
    log.values(b"aborted", producer_id=1)
    log.values(b"committed", producer_id=2)
    log.marker(is_commit=False, producer_id=1)
    log.marker(is_commit=True, producer_id=2)
    log.values(b"open", producer_id=1)
    readers = Readers(break_)
    assert readers.last_offset("r", LEFT) == -1
    for offset, value in seen:
        readers.read("r", LEFT, offset, value, is_read_committed=is_read_committed)
    assert readers.record_count == len(seen)
    assert readers.last_offset("r", LEFT) == seen[-1][0]
    readers.check({LEFT: read_history(log.data)})


def test_readers_who_saw_what_they_should() -> None:
    read([(1, b"committed")], is_read_committed=True)
    read([(0, b"aborted")], is_read_committed=False)
    read([(0, b"aborted"), (1, b"committed"), (4, b"open")], is_read_committed=False)


@pytest.mark.parametrize(
    ("seen", "text"),
    [
        ([(0, b"aborted")], "which is aborted"),
        ([(1, b"committed"), (4, b"open")], "which is open"),
        ([(1, b"committed"), (1, b"committed")], "which is committed"),
        ([(1, b"other")], "which is committed"),
        ([(9, b"new")], "which is not there"),
    ],
)
def test_who_reads_committed_data_and_was_given_more(seen: list[tuple[int, bytes]], text: str) -> None:
    with pytest.raises(InvariantBrokenError, match=text) as caught:
        read(seen, is_read_committed=True)
    assert caught.value.invariant is TransactionInvariant.ONLY_COMMITTED


@pytest.mark.parametrize("seen", [[(1, b"committed")], [(0, b"aborted"), (4, b"open")]])
def test_who_reads_everything_and_was_given_less(seen: list[tuple[int, bytes]]) -> None:
    with pytest.raises(InvariantBrokenError) as caught:
        read(seen, is_read_committed=False)
    assert caught.value.invariant is TransactionInvariant.EVERYTHING
