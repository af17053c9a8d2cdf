"""Followers: what they ask, what an answer means, and the stories of KIP-101 and KIP-279 with logs that went apart."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.records.batch import iter_batches
from barnabas.replication.follower_state import Cut, FollowerPhase, FollowerState
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.leader_epochs import EpochEntry
from barnabas.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from tests.replication.partitions import NOW_MS, batch
from tests.replication.replicas import BACKOFF_MS, Replica, elect


def pair(**settings: Any) -> tuple[Replica, Replica]:
    """Node 1 leads in epoch 0, node 2 follows."""
    a, b = Replica(1, **settings), Replica(2, **settings)
    elect(a, 0, b)
    return a, b


def answer(records: bytes = b"", high_watermark: int = 0, log_start_offset: int = 0, **how: Any) -> PartitionData:
    return PartitionData(
        partition_index=0, high_watermark=high_watermark, log_start_offset=log_start_offset, records=records, **how
    )


def take(role: FollowerState, data: PartitionData, asked: FetchPartition | None = None) -> Cut | None:
    return role.take(asked or role.next_fetch(1000), data, NOW_MS, BACKOFF_MS)


def sent(*batches: tuple[int, int]) -> bytes:
    """Batches of one record each: their offsets and epochs."""
    stamped = b""
    for offset, epoch in batches:
        data = batch([b"x"])
        next(iter_batches(memoryview(data))).stamp(base_offset=offset, leader_epoch=epoch)
        stamped += data
    return stamped


def sequences(replica: Replica) -> dict[int, int]:
    return {each.producer_id: each.last_sequence for each in replica.log.producers.entries()}


def phase(replica: Replica) -> FollowerPhase:
    return replica.following.phase


# The ordinary course


def test_what_the_leader_wrote_is_appended_as_it_is() -> None:
    a, b = pair()
    a.append(b"a", b"b", producer_id=7, producer_epoch=0, base_sequence=0)
    a.append(b"c")
    assert b.catch_up(a) == []
    assert b.written == a.written
    assert b.log.epochs.entries == a.log.epochs.entries == [EpochEntry(0, 0)]
    assert sequences(b) == sequences(a) == {7: 1}


def test_a_follower_says_where_it_is() -> None:
    a, b = pair()
    assert b.following.next_fetch(77) == FetchPartition(
        partition=0,
        current_leader_epoch=0,
        fetch_offset=0,
        last_fetched_epoch=-1,
        log_start_offset=0,
        partition_max_bytes=77,
    )
    a.append(b"a", b"b")
    b.fetch_from(a)
    asked = b.following.next_fetch(77)
    assert (asked.fetch_offset, asked.last_fetched_epoch) == (2, 0)
    assert not b.following.is_news(asked)


def test_the_high_watermark_is_the_leaders_but_never_beyond_the_own_end_and_never_falls() -> None:
    a, b = pair()
    a.append(b"a", b"b", b"c")
    b.fetch_from(a)
    take(b.following, answer(high_watermark=2))
    assert b.log.high_watermark == 2
    take(b.following, answer(high_watermark=9))
    assert b.log.high_watermark == 3
    take(b.following, answer(high_watermark=1))
    assert b.log.high_watermark == 3


def test_what_a_follower_lacks_is_what_the_leader_says_is_committed() -> None:
    _, b = pair()
    assert b.following.lag == 0, "nobody has said anything yet"
    take(b.following, answer(sent((0, 0)), high_watermark=3))
    assert b.following.lag == 2
    take(b.following, answer(sent((1, 0), (2, 0), (3, 0)), high_watermark=3))
    assert b.following.lag == 0


def test_the_log_starts_where_the_leaders_does_as_far_as_that_is_committed() -> None:
    a, b = pair()
    a.append(b"a", b"b", b"c")
    b.fetch_from(a)
    take(b.following, answer(high_watermark=2, log_start_offset=1))
    assert b.log.log_start_offset == 1
    take(b.following, answer(high_watermark=2, log_start_offset=3))
    assert b.log.log_start_offset == 2
    assert b.following.next_fetch(1).log_start_offset == 2


def test_an_answer_to_another_question_changes_nothing() -> None:
    a, b = pair()
    early = b.following.next_fetch(1000)
    a.append(b"a")
    data = a.answer(early)
    b.fetch_from(a)
    assert take(b.following, data, early) is None
    assert b.log.log_end_offset == 1
    elect(a, 1, b)
    of_the_old_epoch = FetchPartition(
        partition=0, current_leader_epoch=0, fetch_offset=1, last_fetched_epoch=0, partition_max_bytes=1
    )
    assert take(b.following, answer(sent((1, 0))), of_the_old_epoch) is None
    assert b.log.log_end_offset == 1


# What is wrong with what came


def test_a_batch_that_overlaps_is_refused_and_nothing_of_it_written() -> None:
    a, b = pair()
    a.append(b"a", b"b")
    b.fetch_from(a)
    with pytest.raises(AppendRefusedError, match=r"t-0: node 1 sent a batch with offsets 1 to 1, .* ends at 2"):
        take(b.following, answer(sent((1, 0))))
    assert b.log.log_end_offset == 2


def test_a_damaged_batch_is_refused() -> None:
    _, b = pair()
    damaged = bytearray(sent((0, 0)))
    damaged[-1] ^= 1
    with pytest.raises(AppendRefusedError) as refused:
        take(b.following, answer(bytes(damaged)))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert b.log.log_end_offset == 0


def test_offsets_that_compaction_took_away_stay_away() -> None:
    _, b = pair()
    take(b.following, answer(sent((3, 0), (7, 0))))
    assert b.log.log_end_offset == 8


def test_what_a_later_leader_wrote_is_left_out() -> None:
    """The leader lost its role while its answer was under way, and appended what another leader sent it."""
    _, b = pair()
    take(b.following, answer(sent((0, 0), (1, 1), (2, 1)), high_watermark=3))
    assert b.log.log_end_offset == 1
    assert b.log.epochs.latest_epoch == 0
    assert b.log.high_watermark == 1


# Errors


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ],
)
def test_waits_for_metadata_begin_short_and_grow(code: ErrorCode) -> None:
    _, b = pair()
    waits = []
    for _ in range(8):
        take(b.following, answer(error_code=code))
        assert phase(b) is FollowerPhase.WAITING
        waits.append(b.following.wait_ms)
        b.following.go_on()
    assert waits == [20, 40, 80, 160, 320, 640, 1000, 1000]
    take(b.following, answer())
    assert (phase(b), b.following.wait_ms, b.following.failures) == (FollowerPhase.FETCHING, 0, 0)


@pytest.mark.parametrize(
    "code", [ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR]
)
def test_other_errors_are_waited_for_as_the_setting_says(code: ErrorCode) -> None:
    _, b = pair()
    take(b.following, answer(error_code=code))
    assert (phase(b), b.following.wait_ms) == (FollowerPhase.WAITING, BACKOFF_MS)


def test_who_is_fenced_waits_for_the_metadata_log() -> None:
    a, b = pair()
    a.partition.update(b.partition._image)
    elect(a, 1)
    b.fetch_from(a)
    assert phase(b) is FollowerPhase.FENCED
    b.following.go_on()
    assert phase(b) is FollowerPhase.FENCED
    elect(a, 1, b)
    assert phase(b) is FollowerPhase.FETCHING


# Where the leader does not have our offset


def test_who_is_far_behind_starts_anew_where_the_leader_starts() -> None:
    a, b = pair(internal_segment_bytes=200)
    for _ in range(10):
        a.append(b"x" * 100)
    b.fetch_from(a, 150)
    a.log.set_high_watermark(10)
    a.log.advance_log_start(8)
    a.log.delete_old_segments(NOW_MS)
    assert b.log.log_end_offset < 8
    assert b.fetch_from(a) == Cut(8, is_anew=True)
    assert b.log.log_start_offset == b.log.log_end_offset == b.log.high_watermark == 8
    assert b.log.epochs.entries == []
    b.catch_up(a)
    assert b.values == a.values


def test_a_leader_that_was_behind_us_and_knows_nothing_of_our_epoch() -> None:
    """An unclean election, and a leader whose epochs do not tell: its end is ours from now on."""
    a, b = pair()
    a.append(b"a", b"b", b"c")
    b.catch_up(a)
    take(b.following, answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert phase(b) is FollowerPhase.LOOKING_UP
    assert b.following.take_leader_end(1) == Cut(1)
    assert phase(b) is FollowerPhase.FETCHING


def test_a_leader_that_has_our_offset_after_all_is_asked_again() -> None:
    a, b = pair()
    a.append(b"a", b"b", b"c")
    b.catch_up(a)
    take(b.following, answer(error_code=ErrorCode.OFFSET_OUT_OF_RANGE))
    assert b.following.take_leader_end(5) is None
    assert phase(b) is FollowerPhase.LOOKING_UP
    assert b.following.take_leader_start(2) is None
    assert phase(b) is FollowerPhase.FETCHING
    assert b.log.log_end_offset == 3


def test_the_first_batch_of_an_empty_log_may_begin_before_the_leaders_log_does() -> None:
    """Records were deleted up to the middle of a batch; a new follower gets the batch as a whole."""
    a, b = pair()
    a.append(b"a", b"b", b"c", b"d")
    a.log.set_high_watermark(4)
    a.log.advance_log_start(2)
    b.log.start_anew_at(2, NOW_MS)
    assert b.fetch_from(a) == Cut(0, is_anew=True, then_append=True)
    assert b.catch_up(a) == []
    assert b.written == a.written
    assert (b.log.log_start_offset, b.log.log_end_offset) == (2, 4)


# Logs that went apart


def test_kip_101_the_high_watermark_is_no_place_to_cut() -> None:
    """A has m1 and m2, B too, but B has not heard that m2 is committed. B restarts; had it cut at its high watermark,
    and A died then, m2 would be lost."""
    a, b = pair()
    a.append(b"m1")
    b.catch_up(a)
    a.append(b"m2")
    b.catch_up(a)
    assert b.log.high_watermark == 0
    elect(a, 1, b)
    assert b.catch_up(a) == []
    assert b.log.log_end_offset == 2
    elect(b, 2, a)
    assert a.catch_up(b) == [Cut(2)]  # its epoch 1, in which nothing was written
    assert a.values == b.values == [(0, 0, b"m1"), (1, 0, b"m2")]


def test_kip_101_two_logs_of_equal_length_with_other_records() -> None:
    """Both lost power; B, which has m1 alone, leads and writes m3 where A has m2. A cuts m2 although it is as long."""
    a, b = pair()
    a.append(b"m1")
    b.catch_up(a)
    a.append(b"m2")
    elect(b, 1, a)
    b.append(b"m3")
    assert a.catch_up(b) == [Cut(1)]
    assert a.written == b.written
    assert a.values == [(0, 0, b"m1"), (1, 1, b"m3")]
    assert a.log.epochs.entries == [EpochEntry(0, 0), EpochEntry(1, 1)]


def test_kip_279_who_missed_epochs_goes_back_more_than_once() -> None:
    """Each of them led without the other: A in epochs 0 and 2, B in 1 and 3. The end of an epoch that only one of them
    has says nothing, so it takes more than one answer."""
    a, b = pair()
    a.append(b"0")
    b.catch_up(a)
    elect(b, 1)
    b.append(b"1")
    b.append(b"1")
    elect(a, 2)
    a.append(b"2")
    a.append(b"2")
    a.append(b"2")
    elect(b, 3, a)
    b.append(b"3")
    cuts = a.catch_up(b)
    assert cuts
    assert a.values == b.values
    assert a.log.epochs.entries == b.log.epochs.entries


def test_a_follower_cuts_to_the_end_of_the_last_epoch_that_both_have() -> None:
    """The leader's answer names an epoch that the follower does not have: its own last epoch before that counts."""
    a, b = pair()
    a.append(b"0")
    b.catch_up(a)
    elect(a, 5)
    a.append(b"5")
    a.append(b"5")
    elect(b, 7, a)
    cut = take(a.following, answer(diverging_epoch=EpochEndOffset(epoch=3, end_offset=9)))
    assert cut == Cut(1)


def test_empty_epochs_are_forgotten_when_the_leader_does_not_know_them() -> None:
    """KAFKA-10706: several elections without data. The entry at the end of the log must go, or the fetches diverge for
    ever."""
    a, b = pair()
    a.append(b"0")
    b.catch_up(a)
    for epoch in (1, 2, 3):
        elect(a, epoch)
    assert a.log.epochs.latest_epoch == 3
    elect(b, 4, a)
    assert a.catch_up(b) == [Cut(1)]
    assert a.log.epochs.entries == [EpochEntry(0, 0)]
    b.append(b"4")
    assert a.catch_up(b) == []
    assert a.log.epochs.entries == b.log.epochs.entries == [EpochEntry(0, 0), EpochEntry(4, 1)]


def test_an_unclean_leader_takes_back_what_was_committed() -> None:
    a, b = pair()
    a.append(b"a")
    b.catch_up(a)
    a.append(b"b")
    a.append(b"c")
    a.log.set_high_watermark(3)
    elect(b, 1, a)
    b.append(b"d")
    assert a.catch_up(b) == [Cut(1)]
    assert a.log.high_watermark == 1
    assert a.written == b.written


def test_sequences_go_back_with_the_log() -> None:
    """B47, B49: after a cut the producer may send again what was cut, and nothing else."""
    a, b = pair()
    a.append(b"0", producer_id=7, producer_epoch=0, base_sequence=0)
    b.catch_up(a)
    a.append(b"1", producer_id=7, producer_epoch=0, base_sequence=1)
    elect(b, 1, a)
    b.append(b"other")
    a.catch_up(b)
    assert a.log.producers.entries() == b.log.producers.entries()
    assert sequences(a) == {7: 0}
    elect(a, 2, b)
    a.append(b"1", producer_id=7, producer_epoch=0, base_sequence=1)
    assert sequences(a) == {7: 1}
