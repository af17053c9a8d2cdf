"""One partition by itself: leading, committing, epochs, lookups by time, deleting records, and who is told of what."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.replication.follower_state import FollowerState
from barnabas.replication.partition import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    Partition,
)
from barnabas.replication.purgatory import DelayedFetch, DelayedProduce
from barnabas.replication.roles import Isolation, PartitionError, PartitionRead
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


def read(leading: Partition, offset: int, **how: Any) -> PartitionRead:
    return leading.leading().read(offset, 100, Isolation.READ_UNCOMMITTED, **how)


# Leading


def test_what_the_only_replica_has_is_committed() -> None:
    alone = partition()
    append(alone, b"a", b"b")
    assert alone.leading().end_offset(Isolation.READ_UNCOMMITTED) == 2
    assert alone.leading().check_enough_replicas_reach_offset(2) is ErrorCode.NONE


def test_a_new_leader_commits_what_it_has_when_it_is_alone_in_sync() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a")
    assert leading.leading().end_offset(Isolation.READ_UNCOMMITTED) == 0
    leading.update(state((1, 2), isr=(1,), epoch=1))
    assert leading.leading().end_offset(Isolation.READ_UNCOMMITTED) == 1
    assert leading.leading().leader_epoch_start_offset == 1


def test_in_a_new_epoch_nothing_is_known_of_followers() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a")
    leading.leading().update_follower_fetch_state(2, 1)
    leading.update(state((1, 2), epoch=1))
    append(leading, b"b")
    assert leading.leading().end_offset(Isolation.READ_UNCOMMITTED) == 1
    leading.leading().update_follower_fetch_state(2, 2)
    assert leading.leading().end_offset(Isolation.READ_UNCOMMITTED) == 2


def test_who_does_not_lead_does_nothing() -> None:
    following = partition(state((1, 2), leader=2, epoch=3))
    assert refusal(append, following) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(read, following, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert refusal(following.delete_records, 0) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    with pytest.raises(PartitionError, match="t-0 is led by node 2 in epoch 3, not by node 1"):
        following.led_log()


def test_offline_and_deleted_partitions_say_so() -> None:
    offline, deleted = partition(), partition()
    was_leading = offline.leading()
    offline.take_offline(CorruptLogError("/data/t-0/x.log", 7, "bad"))
    deleted.delete()
    for ask in (append, Partition.led_log):
        assert refusal(ask, offline) is ErrorCode.KAFKA_STORAGE_ERROR
        assert refusal(ask, deleted) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert was_leading.check_enough_replicas_reach_offset(0) is ErrorCode.KAFKA_STORAGE_ERROR


# Roles


def test_another_leader_or_epoch_is_another_role_and_the_high_watermark_outlives_it() -> None:
    made = partition(state((1, 2)))
    first = made.leading()
    append(made, b"a", b"b")
    first.update_follower_fetch_state(2, 1)
    made.update(state((1, 2), leader=2, epoch=1))
    following = made.role
    assert isinstance(following, FollowerState)
    assert (following.leader_id, following.leader_epoch, first.is_over, following.is_over) == (2, 1, True, False)
    assert made.log is not None
    assert made.log.high_watermark == 1
    made.update(state((1, 2), leader=1, epoch=2))
    again = made.leading()
    assert following.is_over
    assert (again.leader_epoch_start_offset, again.log.high_watermark, again.appended_bytes) == (2, 1, 0)


def test_within_an_epoch_the_role_stays_and_knows_what_followers_have() -> None:
    leading = partition(state((1, 2)))
    role = leading.leading()
    append(leading, b"a", b"b")
    role.update_follower_fetch_state(2, 1)
    leading.update(state((1, 2, 3), isr=(1, 2)))
    assert leading.leading() is role
    assert role.log.high_watermark == 1
    role.update_follower_fetch_state(3, 2)  # is being added
    role.update_follower_fetch_state(2, 2)
    assert role.log.high_watermark == 2
    leading.update(state((1, 3), isr=(1, 3)))
    assert refusal(role.update_follower_fetch_state, 2, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_without_a_log_or_a_leader_there_is_no_role() -> None:
    leading = partition()
    role, log = leading.leading(), leading.led_log()
    leading.update(state(leader=-1, epoch=1))
    assert role.is_over
    assert refusal(leading.leading) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    leading.update(state(epoch=2))
    assert leading.leading().leader_epoch == 2
    leading.take_offline(CorruptLogError("/data/t-0/x.log", 7, "bad"))
    leading.update(state(epoch=3))
    assert leading.role is None
    leading.attach(log)
    assert leading.leading().leader_epoch == 3


def test_a_follower_whose_log_left_ours_has_nothing() -> None:
    """Else what others wait for would count as committed that it does not have."""
    leading = partition(state((1, 2), epoch=1))
    append(leading, b"a")
    leading.update(state((1, 2), epoch=4))
    append(leading, b"b")
    found = read(leading, 2, last_fetched_epoch=3, replica=2)
    assert (found.diverging, found.high_watermark) == (EpochEnd(1, 1), 0)
    assert refusal(read, leading, 7, replica=2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leading.led_log().high_watermark == 0
    assert read(leading, 1, last_fetched_epoch=1, replica=2).high_watermark == 1


# What is committed


def test_committed_by_too_few_is_told_as_such() -> None:
    leading = partition(state((1, 2)), min_insync_replicas=2)
    append(leading, b"a", acks_all=True)
    leading.leading().update_follower_fetch_state(2, 1)
    assert leading.leading().check_enough_replicas_reach_offset(1) is ErrorCode.NONE
    leading.update(state((1, 2), isr=(1,)))
    assert leading.leading().check_enough_replicas_reach_offset(1) is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND
    assert refusal(append, leading, b"b", acks_all=True) is ErrorCode.NOT_ENOUGH_REPLICAS


def test_lowering_min_isr_commits_what_waited_for_it() -> None:
    leading = partition(state((1, 2), isr=(1,)), min_insync_replicas=2)
    append(leading, b"a")
    assert leading.leading().end_offset(Isolation.READ_UNCOMMITTED) == 0
    log = leading.led_log()
    log.settings = type(log.settings)(min_insync_replicas=1)
    leading.settings_changed()
    assert leading.leading().end_offset(Isolation.READ_UNCOMMITTED) == 1


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
    leading.leading().update_follower_fetch_state(2, 1)
    append(leading, b"b")
    leading.update(state((1, 2), epoch=1))
    assert refusal(look_up, leading, LATEST) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert refusal(look_up, leading, NOW_MS) is ErrorCode.OFFSET_NOT_AVAILABLE
    assert look_up(leading, NOW_MS - 10) == (NOW_MS - 10, 0, 0)
    assert look_up(leading, EARLIEST) == (-1, 0, 0)
    assert look_up(leading, LATEST, Isolation.LOG_END) == (-1, 2, 1)
    leading.leading().update_follower_fetch_state(2, 2)
    assert look_up(leading, LATEST) == (-1, 2, 1)


# Deleting records


def test_deleting_records() -> None:
    leading = partition()
    append(leading, b"a", b"b", b"c")
    assert leading.delete_records(1) == 1  # within a batch
    assert leading.delete_records(0) == 1  # gone already
    assert refusal(leading.delete_records, 4) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(leading.delete_records, -2) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert refusal(read, leading, 0) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert leading.delete_records(-1) == 3
    assert refusal(partition(cleanup_policy=("compact",)).delete_records, 0) is ErrorCode.POLICY_VIOLATION


# Who waits


def test_a_writer_waits_for_all_its_partitions() -> None:
    ready: list[str] = []
    first, second, alone = partition(state((1, 2))), partition(state((1, 2))), partition()
    wait = DelayedProduce(lambda: ready.append("ready"))
    for each in (first, second, alone):
        append(each, b"a")
        wait.add(each.leading(), 1)
    assert wait.outcomes == {alone.leading(): ErrorCode.NONE}
    first.leading().update_follower_fetch_state(2, 1)
    assert (ready, wait.is_over) == ([], False)
    second.leading().update_follower_fetch_state(2, 1)
    assert (ready, wait.is_over) == (["ready"], True)
    assert set(wait.outcomes.values()) == {ErrorCode.NONE}
    assert first.leading().delayed_count == second.leading().delayed_count == 0


def test_a_writer_that_waits_for_two_batches_of_a_partition_waits_for_the_later() -> None:
    leading = partition(state((1, 2)))
    wait = DelayedProduce(lambda: None)
    for offset in (1, 2):
        append(leading, b"a")
        wait.add(leading.leading(), offset)
    leading.leading().update_follower_fetch_state(2, 1)
    assert not wait.is_over
    leading.leading().update_follower_fetch_state(2, 2)
    assert wait.outcomes == {leading.leading(): ErrorCode.NONE}


def test_a_writer_is_not_told_of_success_under_another_epoch() -> None:
    leading = partition(state((1, 2)))
    append(leading, b"a")
    wait = DelayedProduce(lambda: None)
    old = leading.leading()
    wait.add(old, 1)
    leading.update(state((1, 2), epoch=1))
    assert wait.outcomes == {old: ErrorCode.NOT_LEADER_OR_FOLLOWER}


@pytest.mark.parametrize("change", ["offline", "deleted", "followed", "led again"])
def test_whoever_waits_at_a_role_is_told_once_when_it_ends(change: str) -> None:
    leading = partition(state((1, 2)))
    role = leading.leading()
    append(leading, b"a")
    writer, told = DelayedProduce(lambda: told.append("writer")), list[str]()
    writer.add(role, 1)
    reader = DelayedFetch(Isolation.READ_UNCOMMITTED, lambda: told.append("reader"))
    reader.start({role: 0}, 1)
    if change == "offline":
        leading.take_offline(CorruptLogError("/data/t-0/x.log", 7, "bad"))
    elif change == "deleted":
        leading.delete()
    else:
        leading.update(state((1, 2), leader=2 if change == "followed" else 1, epoch=1))
    assert told == ["writer", "reader"]
    code = {"offline": ErrorCode.KAFKA_STORAGE_ERROR, "deleted": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}.get(change)
    assert writer.outcomes == {role: code or ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert (role.delayed_count, reader.is_waiting) == (0, False)


def test_who_comes_late_to_a_role_that_is_over_does_not_wait() -> None:
    leading = partition(state((1, 2)))
    role = leading.leading()
    append(leading, b"a")
    leading.update(state((1, 2), isr=(1,), epoch=1))
    assert leading.led_log().high_watermark == 1, "it is committed now, but nobody can say that it is the same record"
    writer, told = DelayedProduce(lambda: None), list[str]()
    writer.add(role, 1)
    assert writer.outcomes == {role: ErrorCode.NOT_LEADER_OR_FOLLOWER}
    reader = DelayedFetch(Isolation.READ_UNCOMMITTED, lambda: told.append("reader"))
    reader.start({role: 1, leading.leading(): 1}, 1, {role: role.appended_bytes, leading.leading(): 0})
    assert (told, reader.is_waiting, leading.leading().delayed_count) == (["reader"], False, 0)


def test_a_reader_is_woken_once_and_only_when_there_may_be_enough() -> None:
    woken: list[int] = []
    one, other = partition(), partition()
    wait = DelayedFetch(Isolation.READ_UNCOMMITTED, lambda: woken.append(1))
    size_bytes = append(one, b"x" * 50) and one.leading().appended_bytes
    wait.start({one.leading(): 1, other.leading(): 0}, 2 * size_bytes)
    append(one, b"x" * 50)
    assert woken == []
    append(other, b"x" * 50)
    assert woken == [1]
    append(other, b"x" * 50)
    assert woken == [1]
    assert (wait.is_waiting, one.leading().delayed_count, other.leading().delayed_count) == (False, 0, 0)


def test_a_reader_beyond_what_is_shown_is_not_woken_by_what_it_has_seen() -> None:
    woken: list[int] = []
    leading = partition(state((1, 2)))
    append(leading, b"a")
    append(leading, b"b")
    wait = DelayedFetch(Isolation.READ_UNCOMMITTED, lambda: woken.append(1))
    wait.start({leading.leading(): 1}, 1000)
    leading.leading().update_follower_fetch_state(2, 1)
    assert woken == []
    # How much more it may see cannot be told from what was appended, so it looks.
    leading.leading().update_follower_fetch_state(2, 2)
    assert woken == [1]


def test_a_reader_of_committed_data_is_woken_by_the_end_of_a_transaction() -> None:
    woken: list[int] = []
    leading = partition()
    append_in_transaction(leading, 7, b"a")
    wait = DelayedFetch(Isolation.READ_COMMITTED, lambda: woken.append(1))
    wait.start({leading.leading(): 0}, 1)
    append(leading, b"b")
    assert woken == []
    end_transaction(leading, 7, committed=False)
    assert woken == [1]
