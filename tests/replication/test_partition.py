"""One partition by itself: leading, committing, epochs, lookups by time, deleting records, and who is told of what."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.replication.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Isolation,
    Partition,
    PartitionError,
)
from barnabas.replication.waiting import CommitWait, FetchWait
from barnabas.storage.errors import CorruptLogError, LogError
from barnabas.storage.leader_epochs import EpochEnd
from tests.replication.partitions import (
    NOW_MS,
    append,
    append_in_transaction,
    end_transaction,
    partition,
    state,
)


def refusal(ask: Any, *arguments: Any, **how: Any) -> ErrorCode:
    with pytest.raises(LogError) as refused:
        ask(*arguments, **how)
    return refused.value.code


# Leading


def test_what_the_only_replica_has_is_committed() -> None:
    alone = partition()
    append(alone, b"a", b"b")
    assert alone.end_offset(Isolation.READ_UNCOMMITTED) == 2
    assert alone.commit_outcome(2) is ErrorCode.NONE


def test_a_new_leader_commits_what_it_has_when_it_is_alone_in_sync() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a")
    assert leading.end_offset(Isolation.READ_UNCOMMITTED) == 0
    leading.update(state((1, 2), isr=(1,), epoch=1))
    assert leading.end_offset(Isolation.READ_UNCOMMITTED) == 1
    assert leading.epoch_start_offset == 1


def test_in_a_new_epoch_nothing_is_known_of_followers() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a")
    leading.follower_fetched(2, 1)
    leading.update(state((1, 2), epoch=1))
    append(leading, b"b")
    assert leading.end_offset(Isolation.READ_UNCOMMITTED) == 1
    leading.follower_fetched(2, 2)
    assert leading.end_offset(Isolation.READ_UNCOMMITTED) == 2


def test_who_does_not_lead_does_nothing() -> None:
    following = partition(state((1, 2), leader=2, epoch=3))
    assert refusal(append, following) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(following.read, 0, 100, Isolation.READ_UNCOMMITTED) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(following.delete_records, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(PartitionError, match="t-0 is led by node 2 in epoch 3, not by node 1"):
        following.led_log()


def test_offline_and_deleted_partitions_say_so() -> None:
    offline, deleted = partition(), partition()
    offline.take_offline(CorruptLogError("/data/t-0/x.log", 7, "bad"))
    deleted.delete()
    for ask in (append, Partition.led_log):
        assert refusal(ask, offline) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal(ask, deleted) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert offline.commit_outcome(0) is ErrorCode.KAFKA_STORAGE_ERROR


def test_committed_by_too_few_is_told_as_such() -> None:
    leading = partition(state((1, 2)), min_insync_replicas=2)
    append(leading, b"a", acks_all=True)
    leading.follower_fetched(2, 1)
    assert leading.commit_outcome(1) is ErrorCode.NONE
    leading.update(state((1, 2), isr=(1,)))
    assert leading.commit_outcome(1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert refusal(append, leading, b"b", acks_all=True) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_lowering_min_isr_commits_what_waited_for_it() -> None:
    leading = partition(state((1, 2), isr=(1,)), min_insync_replicas=2)
    append(leading, b"a")
    assert leading.end_offset(Isolation.READ_UNCOMMITTED) == 0
    log = leading.led_log()
    log.settings = type(log.settings)(min_insync_replicas=1)
    leading.settings_changed()
    assert leading.end_offset(Isolation.READ_UNCOMMITTED) == 1


# Epochs


def test_the_end_of_an_epoch_is_where_the_next_one_begins() -> None:
    leading = partition(state(epoch=2))
    append(leading, b"a", b"b")
    leading.update(state(epoch=5))
    append(leading, b"c")
    leading.update(state(epoch=6))
    ends = {epoch: leading.end_of_epoch(epoch) for epoch in (1, 2, 3, 5, 6, 7)}
    assert ends == {
        1: EpochEnd(1, 0),
        2: EpochEnd(2, 2),
        3: EpochEnd(2, 2),
        5: EpochEnd(5, 3),
        6: EpochEnd(6, 3),  # leads already, although it has written nothing
        7: EpochEnd(-1, -1),
    }
    assert refusal(leading.end_of_epoch, 5, 5) is ErrorCode.FENCED_LEADER_EPOCH
    assert refusal(leading.end_of_epoch, 5, 7) is ErrorCode.UNKNOWN_LEADER_EPOCH


# Lookups by time


def look_up(leading: Partition, timestamp_ms: int, isolation: Isolation = Isolation.READ_UNCOMMITTED) -> Any:
    return tuple(leading.offset_for_timestamp(timestamp_ms, isolation))


def test_lookups_by_time() -> None:
    leading = partition(state(epoch=3))
    assert look_up(leading, LATEST) == (-1, 0, 3)
    assert look_up(leading, MAX_TIMESTAMP) == (-1, -1, -1)
    for offset, age_ms in enumerate((50, 10, 30)):
        append(leading, b"%d" % offset, timestamp_ms=NOW_MS - age_ms)
    leading.update(state(epoch=4))
    assert look_up(leading, EARLIEST) == look_up(leading, EARLIEST_LOCAL) == (-1, 0, 3)
    assert look_up(leading, LATEST) == (-1, 3, 4)
    assert look_up(leading, MAX_TIMESTAMP) == (NOW_MS - 10, 1, 3)
    assert look_up(leading, NOW_MS - 40) == (NOW_MS - 10, 1, 3)
    assert look_up(leading, 0) == (NOW_MS - 50, 0, 3)
    assert look_up(leading, NOW_MS) == (-1, -1, -1)
    assert look_up(leading, LATEST_TIERED) == look_up(leading, EARLIEST_PENDING_UPLOAD) == (-1, -1, -1)
    leading.delete_records(2)
    assert look_up(leading, EARLIEST) == (-1, 2, 3)
    assert look_up(leading, 0) == (NOW_MS - 30, 2, 3)


def test_lookups_end_where_the_reader_may_look() -> None:
    leading = partition()
    append(leading, b"a", timestamp_ms=NOW_MS - 10)
    append_in_transaction(leading, 7, b"b")
    assert look_up(leading, LATEST, Isolation.READ_COMMITTED) == (-1, 1, 0)
    assert look_up(leading, LATEST) == (-1, 2, 0)
    assert look_up(leading, NOW_MS, Isolation.READ_COMMITTED) == (-1, -1, -1)
    assert look_up(leading, NOW_MS) == (NOW_MS, 1, 0)
    end_transaction(leading, 7, committed=True)
    assert look_up(leading, NOW_MS, Isolation.READ_COMMITTED) == (NOW_MS, 1, 0)


def test_a_new_leader_that_does_not_know_what_is_committed_says_so() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a", timestamp_ms=NOW_MS - 10)
    leading.follower_fetched(2, 1)
    append(leading, b"b")
    leading.update(state((1, 2), epoch=1))
    assert refusal(look_up, leading, LATEST) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert refusal(look_up, leading, NOW_MS) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert look_up(leading, NOW_MS - 10) == (NOW_MS - 10, 0, 0)
    assert look_up(leading, EARLIEST) == (-1, 0, 0)
    assert look_up(leading, LATEST, Isolation.LOG_END) == (-1, 2, 1)
    leading.follower_fetched(2, 2)
    assert look_up(leading, LATEST) == (-1, 2, 1)


# Deleting records


def test_deleting_records() -> None:
    leading = partition()
    append(leading, b"a", b"b", b"c")
    assert leading.delete_records(1) == 1  # within a batch
    assert leading.delete_records(0) == 1  # gone already
    assert refusal(leading.delete_records, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(leading.delete_records, -2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(leading.read, 0, 100, Isolation.READ_UNCOMMITTED) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leading.delete_records(-1) == 3
    assert refusal(partition(cleanup_policy=("compact",)).delete_records, 0) is ErrorCode.POLICY_VIOLATION


# Who waits


def test_a_writer_waits_for_all_its_partitions() -> None:
    ready: list[str] = []
    first, second, alone = partition(state((1, 2))), partition(state((1, 2))), partition()
    wait = CommitWait(lambda: ready.append("ready"))
    for each in (first, second, alone):
        append(each, b"a")
        wait.add(each, 1)
    assert wait.outcomes == {alone: ErrorCode.NONE}
    first.follower_fetched(2, 1)
    assert (ready, wait.is_over) == ([], False)
    second.follower_fetched(2, 1)
    assert (ready, wait.is_over) == (["ready"], True)
    assert set(wait.outcomes.values()) == {ErrorCode.NONE}
    assert first.watcher_count == second.watcher_count == 0


def test_a_writer_that_waits_for_two_batches_of_a_partition_waits_for_the_later() -> None:
    leading = partition(state((1, 2)))
    wait = CommitWait(lambda: None)
    for offset in (1, 2):
        append(leading, b"a")
        wait.add(leading, offset)
    leading.follower_fetched(2, 1)
    assert not wait.is_over
    leading.follower_fetched(2, 2)
    assert wait.outcomes == {leading: ErrorCode.NONE}


def test_a_writer_is_not_told_of_success_under_another_epoch() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a")
    wait = CommitWait(lambda: None)
    wait.add(leading, 1)
    leading.update(state((1, 2), epoch=1))
    assert wait.outcomes == {leading: ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_a_reader_is_woken_once_and_only_when_there_may_be_enough() -> None:
    woken: list[int] = []
    one, other = partition(), partition()
    wait = FetchWait(Isolation.READ_UNCOMMITTED, lambda: woken.append(1))
    size_bytes = append(one, b"x" * 50) and one.appended_bytes
    wait.start({one: 1, other: 0}, 2 * size_bytes)
    append(one, b"x" * 50)
    assert woken == []
    append(other, b"x" * 50)
    assert woken == [1]
    append(other, b"x" * 50)
    assert woken == [1]
    assert (wait.is_waiting, one.watcher_count, other.watcher_count) == (False, 0, 0)


def test_a_reader_beyond_what_is_shown_is_not_woken_by_what_it_has_seen() -> None:
    woken: list[int] = []
    leading = partition(state((1, 2)))
    append(leading, b"a")
    append(leading, b"b")
    wait = FetchWait(Isolation.READ_UNCOMMITTED, lambda: woken.append(1))
    wait.start({leading: 1}, 1000)
    leading.follower_fetched(2, 1)
    assert woken == []
    # How much more it may see cannot be told from what was appended, so it looks.
    leading.follower_fetched(2, 2)
    assert woken == [1]


def test_a_reader_of_committed_data_is_woken_by_the_end_of_a_transaction() -> None:
    woken: list[int] = []
    leading = partition()
    append_in_transaction(leading, 7, b"a")
    wait = FetchWait(Isolation.READ_COMMITTED, lambda: woken.append(1))
    wait.start({leading: 0}, 1)
    append(leading, b"b")
    assert woken == []
    end_transaction(leading, 7, committed=False)
    assert woken == [1]
