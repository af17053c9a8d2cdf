"""A log while it is open: rolling, retention, deletion, reading, and disks that fail."""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.records import iter_batches
from barnabas.storage.errors import CorruptLogError, LogDirectoryError, LogError
from barnabas.storage.files import join, read_file
from barnabas.storage.leader_epochs import EpochEnd, EpochEntry, load_leader_epochs
from barnabas.storage.log import PartitionLog
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator, prepare_from_leader
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    batch,
    end_transaction,
    follow,
    lead,
    marker,
    new_disk,
    open_log,
    read_all,
    segment_starts,
    topic_settings,
)

VALUE = b"v" * 300
FIRST_LOG = join(DIRECTORY, "00000000000000000000.log")
IN_FIRST_LOG = r"00000000000000000000\.log, byte"


def filled(disk: SimulatedDisk, count: int = 12, **settings: object) -> PartitionLog:
    """A log of three segments of five batches, or fewer, with one record each."""
    log = open_log(disk, topic_settings(**settings))
    for number in range(count):
        lead(log, batch([VALUE], timestamp_ms=NOW_MS - 100 + number))
    return log


def in_transaction(sequence: int, producer_id: int = 7) -> bytearray:
    return batch([VALUE], producer_id=producer_id, producer_epoch=0, base_sequence=sequence, transactional=True)


# Rolling


def test_a_segment_is_closed_before_it_grows_too_large() -> None:
    disk = new_disk()
    log = filled(disk)
    assert segment_starts(log) == [0, 5, 10]
    assert all(segment.size_bytes <= 2000 for segment in log.segments)
    assert log.segments[0].size_bytes + log.segments[1].size_bytes // 5 > 2000, "there was no room for one more"


def test_files_are_named_after_their_first_offset_with_twenty_digits() -> None:
    disk = new_disk()
    log = filled(disk)
    log.flush()
    stems = ["00000000000000000000", "00000000000000000005", "00000000000000000010"]
    expected = {stem + kind for stem in stems for kind in (".log", ".index", ".timeindex")}
    expected |= {f"{stem}.snapshot" for stem in stems[1:]} | {"leader-epoch-checkpoint"}
    assert set(disk.names(DIRECTORY)) == expected


def test_a_segment_is_closed_by_the_time_of_the_records_and_not_of_the_clock() -> None:
    log = open_log(new_disk(), topic_settings(segment_ms=1000))
    lead(log, batch([b"v"], timestamp_ms=5000), now_ms=NOW_MS)
    lead(log, batch([b"v"], timestamp_ms=6000), now_ms=NOW_MS + 10**6)
    assert segment_starts(log) == [0]
    lead(log, batch([b"v"], timestamp_ms=6001), now_ms=NOW_MS + 10**6)
    assert segment_starts(log) == [0, 2]


def test_without_timestamps_a_segment_is_closed_by_the_clock() -> None:
    log = open_log(new_disk(), topic_settings(segment_ms=1000))
    lead(log, batch([b"v"], timestamp_ms=-1), now_ms=NOW_MS)
    lead(log, batch([b"v"], timestamp_ms=-1), now_ms=NOW_MS + 1000)
    assert segment_starts(log) == [0]
    lead(log, batch([b"v"], timestamp_ms=-1), now_ms=NOW_MS + 1001)
    assert segment_starts(log) == [0, 2]


def test_jitter_closes_segments_earlier_and_anew_each_time() -> None:
    settings = topic_settings(segment_ms=1000, segment_jitter_ms=400, internal_segment_bytes=100_000)
    log = open_log(new_disk(), settings, randomness=Random(3))
    rolled_after_ms = []
    first_ms = 0
    lead(log, batch([b"v"], timestamp_ms=0))
    for timestamp_ms in range(5, 20_000, 5):
        before = len(log.segments)
        lead(log, batch([b"v"], timestamp_ms=timestamp_ms))
        if len(log.segments) > before:
            rolled_after_ms.append(timestamp_ms - first_ms)
            first_ms = timestamp_ms
    assert len(set(rolled_after_ms)) > 5
    assert min(rolled_after_ms) > 600
    assert max(rolled_after_ms) <= 1005


@pytest.mark.parametrize("index_bytes", [24, 36])
def test_a_segment_is_closed_when_an_index_is_full(index_bytes: int) -> None:
    settings = topic_settings(segment_index_bytes=index_bytes, index_interval_bytes=0, internal_segment_bytes=50_000)
    log = open_log(new_disk(), settings)
    for number in range(20):
        lead(log, batch([b"v"], timestamp_ms=NOW_MS + number))
    assert len(log.segments) > 2
    for segment in log.segments:
        assert segment.offset_index.size_bytes <= index_bytes
        assert segment.time_index.size_bytes <= index_bytes
    assert len(read_all(log)) == 20


def test_a_segment_is_closed_when_offsets_get_too_far_away() -> None:
    log = open_log(new_disk(), topic_settings(index_interval_bytes=0))
    follow(log, batch([b"a"], base_offset=0, leader_epoch=0))
    follow(log, batch([b"b"], base_offset=2**31 - 1, leader_epoch=0))
    assert segment_starts(log) == [0]
    follow(log, batch([b"c"], base_offset=2**31, leader_epoch=0), batch([b"d"], base_offset=2**31 + 3, leader_epoch=0))
    assert segment_starts(log) == [0, 2**31]
    assert len(read_all(log)) == 4


@pytest.mark.parametrize("count_before", [0, 2])
def test_a_follower_may_step_over_more_offsets_than_a_segment_holds(count_before: int) -> None:
    disk = new_disk()
    settings = topic_settings(index_interval_bytes=0, cleanup_policy=("compact",))
    log = open_log(disk, settings)
    for offset in range(count_before):
        follow(log, batch([b"a"], base_offset=offset, leader_epoch=0))
    far = 3 * 2**31
    for offset in (far, far + 1, far + 2):
        follow(log, batch([b"far"], base_offset=offset, leader_epoch=0))
    assert log.active_segment.base_offset == far
    batches = read_all(log)
    assert len(batches) == count_before + 3
    for was_clean in (False, True):
        disk.crash(power=False)
        log = open_log(disk, settings, was_clean=was_clean)
        assert read_all(log) == batches
        log.close()


def test_rolling_an_empty_segment_changes_nothing() -> None:
    log = filled(new_disk())
    first = log.roll(NOW_MS)
    assert log.roll(NOW_MS) is first
    assert segment_starts(log) == [0, 5, 10, 12]


# Reading


def test_the_first_batch_is_whole_however_small_the_limit() -> None:
    log = filled(new_disk())
    for offset in range(12):
        for max_bytes in (0, 1, 61, 200):
            read = log.read(offset, max_bytes, end_offset=log.log_end_offset)
            assert read.range is not None
            (only,) = iter_batches(read.range.read())
            assert only.base_offset == offset


def test_without_that_promise_the_limit_is_kept() -> None:
    log = filled(new_disk())
    whole = log.read(3, 1, end_offset=log.log_end_offset).range
    assert whole is not None
    # A part of the first batch would be of no use to anybody.
    assert log.read(3, whole.size_bytes - 1, end_offset=log.log_end_offset, at_least_one=False).range is None
    assert log.read(3, whole.size_bytes + 9, end_offset=log.log_end_offset, at_least_one=False).range == whole._replace(
        size_bytes=whole.size_bytes + 9
    )


def test_a_batch_that_reaches_over_the_bound_is_not_shown() -> None:
    log = open_log(new_disk())
    lead(log, batch([b"a", b"b", b"c"]))
    lead(log, batch([b"d", b"e", b"f"]))
    read = log.read(0, 10_000, end_offset=5)
    assert read.range is not None
    assert [each.last_offset for each in iter_batches(read.range.read())] == [2]
    assert log.read(3, 10_000, end_offset=5).range is None
    assert log.read(6, 10_000, end_offset=6).range is None


@pytest.mark.parametrize("offset", [-1, 4, 13])
def test_offsets_outside_of_the_log_are_refused(offset: int) -> None:
    log = filled(new_disk())
    log.advance_log_start(5)
    with pytest.raises(LogError) as refused:
        log.read(offset, 100, end_offset=12)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_follower_refuses_offsets_that_it_has() -> None:
    log = filled(new_disk(), 3)
    with pytest.raises(LogError) as refused:
        follow(log, batch([b"again"], base_offset=2, leader_epoch=0))
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
    assert log.append_as_follower(prepare_from_leader(b""), now_ms=NOW_MS) is None
    assert log.log_end_offset == 3


def test_the_highest_timestamp_is_that_of_a_record_that_is_not_deleted() -> None:
    log = open_log(new_disk())
    for timestamp_ms in (90, 70, 80, 80):
        lead(log, batch([b"v"], timestamp_ms=timestamp_ms))
    for log_start, expected in ((0, (90, 0)), (1, (80, 2)), (3, (80, 3))):
        log.advance_log_start(log_start)
        found = log.offset_of_max_timestamp()
        assert found is not None
        assert found[:2] == expected
    log.advance_log_start(4)
    assert log.offset_of_max_timestamp() is None


# Retention


def test_retention_by_size_keeps_at_least_what_the_setting_says() -> None:
    log = filled(new_disk())
    sizes = [segment.size_bytes for segment in log.segments]
    for keeps_bytes, expected in ((sum(sizes), 0), (sum(sizes[1:]) + 1, 0), (sum(sizes[1:]), 1)):
        log.settings = topic_settings(retention_bytes=keeps_bytes, retention_ms=-1)
        assert log.delete_old_segments(NOW_MS) == expected
    assert (segment_starts(log), log.log_start_offset) == ([5, 10], 5)


def test_retention_by_time_looks_at_the_youngest_record() -> None:
    log = filled(new_disk(), retention_ms=1000)  # the youngest of the first segment is of NOW_MS - 96
    assert log.delete_old_segments(NOW_MS + 904) == 0
    assert log.delete_old_segments(NOW_MS + 905) == 1
    assert log.log_start_offset == 5


def test_a_record_from_the_future_pins_its_segment_and_all_after_it() -> None:
    log = open_log(new_disk(), topic_settings(retention_ms=1000, message_timestamp_after_max_ms=10**12))
    for number in range(12):
        lead(log, batch([VALUE], timestamp_ms=NOW_MS + (10**8 if number == 6 else 0)))
    assert log.delete_old_segments(NOW_MS + 10**6) == 1
    assert log.delete_old_segments(NOW_MS + 10**6) == 0
    assert segment_starts(log) == [5, 10]


def test_segments_without_timestamps_go_by_the_time_of_their_files() -> None:
    now_ms = NOW_MS
    log = open_log(new_disk(now_ms=lambda: now_ms), topic_settings(retention_ms=1000))
    for _ in range(7):
        lead(log, batch([VALUE], timestamp_ms=-1))
    assert log.delete_old_segments(NOW_MS + 1000) == 0
    assert log.delete_old_segments(NOW_MS + 1001) == 2


def test_the_last_segment_is_rolled_and_deleted_too() -> None:
    disk = new_disk()
    log = filled(disk, retention_ms=1000)
    assert log.delete_old_segments(NOW_MS + 10**6) == 3
    assert (segment_starts(log), log.log_start_offset, log.log_end_offset) == ([12], 12, 12)
    assert log.delete_old_segments(NOW_MS + 10**6) == 0
    assert lead(log, batch([b"on"])).first_offset == 12
    log.close()
    assert open_log(disk, log.settings, log_start_offset=12).log_end_offset == 13


@pytest.mark.parametrize(("high_watermark", "deleted"), [(4, 0), (5, 1), (9, 1), (10, 2), (11, 2), (12, 3)])
def test_only_what_is_committed_is_deleted(high_watermark: int, deleted: int) -> None:
    log = filled(new_disk(), retention_bytes=0, retention_ms=0)
    log.high_watermark = high_watermark
    assert log.delete_old_segments(NOW_MS + 10**6) == deleted


def test_unlimited_retention_and_other_policies_delete_nothing() -> None:
    log = filled(new_disk(), retention_ms=-1, retention_bytes=-1)
    assert log.delete_old_segments(NOW_MS + 10**12) == 0
    log.settings = topic_settings(retention_ms=0, retention_bytes=0, cleanup_policy=("compact",))
    assert log.delete_old_segments(NOW_MS + 10**12) == 0
    log.settings = topic_settings(retention_ms=0, cleanup_policy=("compact", "delete"))
    assert log.delete_old_segments(NOW_MS + 10**12) == 3


def test_segments_below_the_log_start_go_whatever_the_policy() -> None:
    log = filled(new_disk(), retention_ms=-1, cleanup_policy=("compact",))
    log.advance_log_start(9)
    assert log.delete_old_segments(NOW_MS) == 1
    log.advance_log_start(12)
    assert log.delete_old_segments(NOW_MS) == 1
    assert (segment_starts(log), log.log_start_offset) == ([10], 12)


def test_deleted_records_cannot_be_read_at_once() -> None:
    log = filled(new_disk())
    assert log.advance_log_start(7)
    assert not log.advance_log_start(7)
    assert not log.advance_log_start(3)
    with pytest.raises(LogError, match="not between 7 and 12"):
        log.read(6, 100, end_offset=12)
    found = log.offset_for_timestamp(0)
    assert found is not None
    assert found.offset == 7
    assert log.epochs.end_offset_for(0, log.log_end_offset) == EpochEnd(0, 12)
    with pytest.raises(LogError) as refused:
        log.advance_log_start(13)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_who_reads_a_deleted_segment_can_finish() -> None:
    disk = new_disk()
    log = filled(disk, retention_bytes=0, file_delete_delay_ms=1000)
    read = log.read(0, 10_000, end_offset=12)
    assert read.range is not None
    expected = read.range.read()
    assert log.delete_old_segments(NOW_MS) == 3
    assert "00000000000000000000.log.deleted" in disk.names(DIRECTORY)
    assert not disk.exists(FIRST_LOG)
    log.remove_deleted(NOW_MS + 999)
    assert read.range.read() == expected
    log.remove_deleted(NOW_MS + 1000)
    assert not [name for name in disk.names(DIRECTORY) if name.endswith(".deleted")]
    with pytest.raises(OSError, match="descriptor"):
        read.range.read()


# Truncation


def test_truncation_cuts_whole_batches_and_the_log_goes_on_where_they_began() -> None:
    disk = new_disk()
    log = open_log(disk)
    lead(log, batch([b"a", b"b", b"c"]), epoch=1)
    lead(log, batch([b"d", b"e", b"f"]), epoch=2)
    log.truncate_to(4, NOW_MS)
    assert (log.log_end_offset, log.high_watermark) == (3, 3)
    assert log.epochs.end_offset_for(2, 3) == EpochEnd(-1, -1)
    log.roll(NOW_MS)
    lead(log, batch([b"D"]), epoch=3)
    disk.crash(power=False)
    log = open_log(disk, was_clean=False)
    assert log.log_end_offset == 4, "there is no hole that recovery could see"


def test_truncation_below_the_log_start_takes_it_along() -> None:
    log = filled(new_disk())
    log.advance_log_start(8)
    log.truncate_to(6, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (6, 6, 6)
    assert lead(log, batch([b"v"])).first_offset == 6


def test_truncation_to_the_end_or_beyond_does_nothing() -> None:
    log = filled(new_disk())
    log.truncate_to(12, NOW_MS)
    log.truncate_to(99, NOW_MS)
    assert log.log_end_offset == 12


def test_truncation_takes_aborted_transactions_and_timestamps_back() -> None:
    log = open_log(new_disk())
    lead(log, batch([b"v"], timestamp_ms=10))
    lead(log, in_transaction(0))
    end_transaction(log, 7, committed=False)
    log.truncate_to(2, NOW_MS)
    assert (log.log_end_offset, log.last_stable_offset) == (2, 1)
    assert log.active_segment.aborted.entries == []
    log.truncate_to(1, NOW_MS)
    found = log.offset_of_max_timestamp()
    assert found is not None
    assert found[:2] == (10, 0)


def test_a_log_that_starts_anew_forgets_epochs_and_producers() -> None:
    disk = new_disk()
    log = open_log(disk)
    lead(log, in_transaction(0), epoch=4)
    log.start_anew_at(1000, NOW_MS)
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset, log.recovery_point) == (1000, 1000, 1000, 0)
    assert log.epochs.entries == []
    assert len(log.producers) == 0
    assert log.last_stable_offset == 1000
    log.close()
    assert open_log(disk, log_start_offset=1000).epochs.entries == []


# Disks that fail


def test_a_full_disk_fails_the_append_and_nothing_else() -> None:
    disk = new_disk()
    log = filled(disk, 3)
    before = read_all(log)
    for missing_bytes in (400, 300, 100, 1):
        data = batch([VALUE], timestamp_ms=NOW_MS)
        disk.capacity_bytes = disk.used_bytes + max(len(data) - missing_bytes, 0)
        with pytest.raises(LogError, match="disk is full") as failure:
            lead(log, data)
        assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        assert not isinstance(failure.value, LogDirectoryError)
        assert (log.log_end_offset, read_all(log)) == (3, before)
    disk.capacity_bytes = None
    assert lead(log, batch([b"on"])).first_offset == 3
    disk.crash(power=False)
    assert open_log(disk, was_clean=False).log_end_offset == 4


def test_a_batch_that_no_index_could_be_told_of_is_not_there() -> None:
    """The index of a log that was opened again is read when it is needed, and there may be no descriptor for that."""
    disk = new_disk()
    filled(disk, 3).close()
    log = open_log(disk)
    before = read_all(log)
    log.active_segment.unload_indexes()
    disk.fail_next(errno.EMFILE, path=".timeindex")
    with pytest.raises(LogError, match="as many files open as it may"):
        lead(log, batch([VALUE], producer_id=7, producer_epoch=0, base_sequence=0))
    assert (log.log_end_offset, read_all(log)) == (3, before)
    assert lead(log, batch([b"on"], producer_id=7, producer_epoch=0, base_sequence=0)).first_offset == 3
    disk.crash(power=False)
    assert len(read_all(open_log(disk, was_clean=False))) == 4


@pytest.mark.parametrize("path", ["00000000000000000005.log", ".index", ".timeindex", ".snapshot"])
def test_a_full_disk_while_rolling(path: str) -> None:
    disk = new_disk()
    log = filled(disk, 5)
    disk.fail_next(errno.ENOSPC, path=path)
    with pytest.raises(LogError, match="disk is full"):
        lead(log, batch([VALUE]), epoch=1)
    assert log.log_end_offset == 5
    assert len(read_all(log)) == 5
    assert lead(log, batch([VALUE]), epoch=1).first_offset == 5
    assert log.epochs.end_offset_for(0, log.log_end_offset) == EpochEnd(0, 5)
    batches = read_all(log)
    disk.crash(power=False)
    log = open_log(disk, was_clean=False)
    assert read_all(log) == batches


def test_epochs_are_saved_by_the_flush_that_passes_their_first_records() -> None:
    disk = new_disk()
    log = filled(disk, 2)
    log.flush()
    lead(log, batch([b"v"]), epoch=5)
    assert load_leader_epochs(disk, DIRECTORY).entries == [EpochEntry(0, 0)]
    log.flush()
    assert load_leader_epochs(disk, DIRECTORY).entries == [EpochEntry(0, 0), EpochEntry(5, 2)]


def test_an_epoch_that_could_not_be_saved_is_saved_with_the_next_flush() -> None:
    disk = new_disk()
    log = filled(disk, 2)
    disk.fail_next(errno.ENOSPC, path="leader-epoch-checkpoint")
    lead(log, batch([b"v"]), epoch=5)
    with pytest.raises(LogError, match="disk is full"):
        log.flush()
    assert log.recovery_point == 0
    log.flush()
    log.roll(NOW_MS)
    log.flush()
    disk.crash()
    log = open_log(disk, was_clean=False, recovery_point=3)
    assert log.epochs.end_offset_for(0, log.log_end_offset) == EpochEnd(0, 2)


@pytest.mark.parametrize("path", [".txnindex", ".log"])
def test_a_marker_that_cannot_be_written_leaves_the_transaction_open(path: str) -> None:
    log = open_log(disk := new_disk())
    lead(log, in_transaction(0))
    disk.fail_next(errno.ENOSPC, path=path, name="write_at")
    with pytest.raises(LogError, match="disk is full"):
        end_transaction(log, 7, committed=False)
    assert (log.log_end_offset, log.last_stable_offset) == (1, 0)
    end_transaction(log, 7, committed=False)
    assert [entry.last_offset for entry in log.active_segment.aborted.entries] == [1]
    assert log.last_stable_offset == 2


def fill_a_segment(log: PartitionLog) -> None:
    for _ in range(5):
        lead(log, batch([VALUE]))


NEEDING: dict[str, Callable[[PartitionLog], object]] = {
    "write_at": fill_a_segment,
    "open": fill_a_segment,
    "truncate": lambda log: log.truncate_to(11, NOW_MS),
    "sync": lambda log: log.flush(),
    "rename": lambda log: log.delete_old_segments(NOW_MS),
    "sync_directory": lambda log: log.delete_old_segments(NOW_MS),
    "read_at": lambda log: log.read(3, 100, end_offset=12),
}


@pytest.mark.parametrize("name", NEEDING)
def test_a_broken_disk_takes_its_directory_offline(name: str) -> None:
    log = filled(disk := new_disk(), retention_bytes=0)
    log.active_segment.recent.clear()  # where a batch lies that was just written needs no disk
    disk.fail_next(errno.EIO, name=name, path=DIRECTORY, count=1000)
    with pytest.raises(LogDirectoryError, match="clicks-3") as failure:
        NEEDING[name](log)
    assert failure.value.directory == "/data"
    assert failure.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_a_disk_that_breaks_while_the_last_segment_is_deleted() -> None:
    log = filled(disk := new_disk(), retention_bytes=0)
    disk.fail_next(errno.EIO, name="open", path="00000000000000000012.log")
    with pytest.raises(LogDirectoryError):
        log.delete_old_segments(NOW_MS)


def test_a_failed_sync_is_told_and_moves_no_recovery_point() -> None:
    log = filled(disk := new_disk())
    disk.fail_next(errno.EIO, name="sync")
    with pytest.raises(LogDirectoryError):
        log.flush()
    assert log.recovery_point == 0


# Corrupt files


def damage(disk: SimulatedDisk, path: str, position: int, content: bytes) -> None:
    file = disk.open(path)
    file.write_at(position, content)
    file.close()


def batch_positions(log: PartitionLog) -> list[int]:
    return [position for position, _ in log.segments[0].positioned_entries()]


def test_a_corrupt_length_is_named_with_file_and_position() -> None:
    log = filled(disk := new_disk(), 5, index_interval_bytes=100_000)
    log.active_segment.recent.clear()
    third = batch_positions(log)[2]
    damage(disk, FIRST_LOG, third + 8, b"\0\0\0\1")
    with pytest.raises(CorruptLogError, match=IN_FIRST_LOG) as found:
        list(log.batches(0))
    assert (found.value.path, found.value.position) == (FIRST_LOG, third)
    assert found.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    for ask in (
        lambda: log.read(4, 100, end_offset=5),
        lambda: log.offset_for_timestamp(NOW_MS - 96),
        log.offset_of_max_timestamp,
        lambda: log.truncate_to(4, NOW_MS),
    ):
        with pytest.raises(CorruptLogError, match=IN_FIRST_LOG):
            ask()
    assert len(list(iter_batches(log.read(0, 600, end_offset=5).range.read()))) == 1  # type: ignore[union-attr]


def test_a_header_that_the_file_ends_in_is_found() -> None:
    log = filled(new_disk(), 5, index_interval_bytes=100_000)
    segment = log.segments[0]
    segment.size_bytes = batch_positions(log)[4] + 30
    for ask in (
        lambda: log.read(4, 100, end_offset=5),
        lambda: log.offset_for_timestamp(NOW_MS - 96),
        lambda: list(log.batches(0)),
    ):
        with pytest.raises(CorruptLogError, match=IN_FIRST_LOG):
            ask()


def test_corrupt_records_are_named_when_a_timestamp_is_looked_up() -> None:
    log = filled(disk := new_disk(), 5)
    last = batch_positions(log)[4]
    damage(disk, FIRST_LOG, last + 61, b"\x7f\x7f\x7f")
    asks: list[Callable[[], object]] = [lambda: log.offset_for_timestamp(NOW_MS - 96), log.offset_of_max_timestamp]
    for ask in asks:
        with pytest.raises(CorruptLogError, match=rf"00000000000000000000\.log, byte {last}"):
            ask()


def test_a_file_that_became_shorter_is_found_when_it_is_sent() -> None:
    log = filled(disk := new_disk(), 5)
    read = log.read(0, 10_000, end_offset=5)
    assert read.range is not None
    file = disk.open(FIRST_LOG)
    file.truncate(1000)
    file.close()
    with pytest.raises(CorruptLogError, match=r"00000000000000000000\.log, byte 1000"):
        read.range.read()


# Transactions


def test_aborted_transactions_of_all_later_segments_are_told() -> None:
    log = open_log(new_disk())
    lead(log, in_transaction(0, 7))
    lead(log, in_transaction(0, 8))
    for _ in range(12):
        lead(log, batch([VALUE]))
    end_transaction(log, 8, committed=True)
    end_transaction(log, 7, committed=False)
    assert len(log.segments) > 2
    assert log.last_stable_offset == log.log_end_offset
    read = log.read(0, 10, end_offset=log.last_stable_offset)
    assert read.range is not None
    assert [entry[:3] for entry in log.aborted_transactions(0, read.range)] == [(7, 0, 15)]


def test_the_last_stable_offset_waits_for_the_marker_to_be_replicated() -> None:
    log = open_log(new_disk())
    lead(log, batch([b"v"]))
    lead(log, in_transaction(0))
    assert log.last_stable_offset == 1
    prepared = prepare_from_coordinator(marker(7, 0, committed=True), log.settings)
    log.append(prepared, leader_epoch=0, now_ms=NOW_MS)
    assert log.last_stable_offset == 1
    log.set_high_watermark(3)
    assert log.last_stable_offset == 3


# Flushing


def test_flushes_come_when_the_settings_ask_for_them() -> None:
    log = open_log(new_disk(), topic_settings(flush_messages=3, flush_ms=1000))
    assert not log.is_flush_due(NOW_MS + 5000), "there is nothing to flush"
    lead(log, batch([b"a", b"b"]))
    assert (log.is_flush_due(NOW_MS), log.recovery_point) == (False, 0)
    lead(log, batch([b"c"]))
    assert log.recovery_point == 3, "so many records are not left unsynced"
    lead(log, batch([b"d"]))
    assert not log.is_flush_due(NOW_MS + 999)
    assert log.is_flush_due(NOW_MS + 1000)


def test_a_flush_that_a_truncation_overtook_counts_for_nothing() -> None:
    log = open_log(new_disk())
    lead(log, batch([b"a", b"b"]))
    lead(log, batch([b"c"]))
    job = log.begin_flush()
    assert job is not None
    job.run()
    log.truncate_to(2, NOW_MS)
    lead(log, batch([b"other"]))
    log.finish_flush(job)
    assert log.recovery_point == 0
    lead(log, batch([b"more"]))
    log.flush()
    assert log.recovery_point == log.log_end_offset


def test_a_failed_sync_is_never_taken_for_a_full_disk() -> None:
    disk = new_disk()
    log = open_log(disk)
    lead(log, batch([b"a"]))
    disk.fail_next(errno.ENOSPC, name="sync", path=".log")
    with pytest.raises(LogDirectoryError, match="a sync failed"):
        log.flush()
    assert log.recovery_point == 0


def test_what_is_flushed_survives_a_power_loss_and_indexes_too() -> None:
    for seed in range(30):
        disk = SimulatedDisk(Random(seed), sector_bytes=1)
        disk.make_directory("/data")
        disk.sync_directory("/")
        log = filled(disk, 5, index_interval_bytes=10_000)
        log.flush()
        log.roll(NOW_MS)  # the indexes get their last entries after the flush
        lead(log, batch([b"v"], timestamp_ms=NOW_MS - 500))
        if seed % 2:
            log.flush()
        recovery_point = log.recovery_point
        disk.crash()
        log = open_log(disk, was_clean=False, recovery_point=recovery_point)
        assert len(read_all(log)) >= 5
        found = log.offset_of_max_timestamp()
        assert found is not None
        assert found[:2] == (NOW_MS - 96, 4)


def test_a_batch_is_written_with_one_write_and_as_it_was_stamped() -> None:
    writes: list[str] = []
    disk = new_disk()
    log = filled(disk, 1)
    disk.hook = lambda _, name, path: writes.append(path) if name == "write_at" else None
    prepared = prepare_from_client(batch([b"a", b"b"]), log.settings, NOW_MS)
    log.append(prepared, leader_epoch=0, now_ms=NOW_MS)
    assert writes == [FIRST_LOG]
    assert read_file(disk, FIRST_LOG).endswith(bytes(prepared.data))


def test_where_batches_lay_before_a_truncation_is_forgotten() -> None:
    log = open_log(new_disk())
    for number in range(8):
        lead(log, batch([b"%d" % number]))
    log.truncate_to(5, NOW_MS)
    lead(log, batch([b"a", b"b", b"c"]))
    found = log.read(7, 10_000, end_offset=8).range
    assert found is not None
    assert [(each.base_offset, each.last_offset) for each in iter_batches(found.read())] == [(5, 7)]


def test_looking_through_many_records_can_be_done_elsewhere() -> None:
    log = open_log(new_disk(), topic_settings(internal_segment_bytes=1_000_000, max_message_bytes=1_000_000))
    lead(log, batch([b"v"] * 10, timestamp_ms=NOW_MS))
    lead(log, batch([b"v"] * 5000, timestamp_ms=NOW_MS + 1))
    for search in (log.search_timestamp(NOW_MS + 1), log.search_max_timestamp()):
        work = next(search)
        with pytest.raises(StopIteration) as end:
            search.send(work())
        assert end.value.value == log.offset_for_timestamp(NOW_MS + 1) == log.offset_of_max_timestamp()
        assert end.value.value[1] == 10
    with pytest.raises(StopIteration) as end:
        next(log.search_timestamp(NOW_MS))
    assert end.value.value[1] == 0, "few records are looked through at once"


def test_a_segment_that_goes_while_somebody_looks_into_it_takes_no_other_along() -> None:
    log = open_log(new_disk(), topic_settings(internal_segment_bytes=30_000, max_message_bytes=1_000_000))
    for number in range(3):
        lead(log, batch([b"v"] * 2000, timestamp_ms=NOW_MS + number))
    assert segment_starts(log) == [0, 2000, 4000]
    search = log.search_timestamp(NOW_MS)
    work = next(search)
    log.advance_log_start(2000)
    log.delete_old_segments(NOW_MS)
    work = search.send(work())
    with pytest.raises(StopIteration) as end:
        search.send(work())
    assert end.value.value[:2] == (NOW_MS + 1, 2000)


def test_a_segment_that_is_cut_while_somebody_looks_into_it_is_not_called_corrupt() -> None:
    log = open_log(new_disk(), topic_settings(internal_segment_bytes=1_000_000, max_message_bytes=1_000_000))
    for number in range(2):
        lead(log, batch([b"v"] * 2000, timestamp_ms=NOW_MS + number))
    search = log.search_timestamp(NOW_MS + 1)
    work = next(search)
    found = work()
    log.truncate_to(2000, NOW_MS)
    with pytest.raises(StopIteration) as end:
        search.send(found)
    assert end.value.value is None
