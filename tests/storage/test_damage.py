"""What counts as damage of a log and what does not; that a damaged log is refused, and what accepting the loss does."""

from __future__ import annotations

import asyncio
import logging

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.storage import inspection
from barnabas.storage.acceptance import accept_loss
from barnabas.storage.checkpoints import HIGH_WATERMARK_FILE, RECOVERY_POINT_FILE, read_offsets, write_offsets
from barnabas.storage.damage import DamagedLogError, LogFacts, SegmentFacts, verdict
from barnabas.storage.errors import LogError
from barnabas.storage.files import File
from barnabas.storage.manager import LogManager
from barnabas.storage.validation import prepare_from_client
from barnabas.testing.memory_files import MemoryFileSystem
from tests.storage.damaged_logs import (
    CLICKS,
    DIRECTORY,
    Disk,
    contents,
    disk_of,
    filled,
    read_every_offset,
    segment_path,
    start,
    value_of,
)
from tests.storage.logs import NOW_MS, batch
from tests.storage.managers import TOPIC_ID, append, started

KINDS = (".log", ".index", ".timeindex", ".txnindex")


@pytest.fixture(autouse=True)
def large_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones are read whole, which is quicker; here they count as large."""
    monkeypatch.setattr(inspection, "_SMALL_BYTES", 0)


def segment(base_offset: int, end_offset: int | None, **more: object) -> SegmentFacts:
    facts = SegmentFacts(base_offset, f"{base_offset}.log", 1000, end_offset, 900)
    return facts._replace(**more)  # type: ignore[arg-type]


def missing_offsets(*segments: SegmentFacts, **known: object) -> list[tuple[str, int, int]]:
    facts = LogFacts("clicks-0", segments, recovery_point=15)._replace(**known)  # type: ignore[arg-type]
    damage = verdict(facts)
    return [] if damage is None else [(loss.path, loss.start_offset, loss.end_offset) for loss in damage.losses]


WHOLE = (segment(0, 5), segment(5, 10), segment(10, 15))


def test_a_whole_log_is_not_damaged() -> None:
    assert missing_offsets(*WHOLE) == []
    assert missing_offsets(*WHOLE[1:]) == [], "the first segment has expired"
    assert missing_offsets(segment(20, 25)) == [], "all that was there at the last checkpoint has expired"


def test_an_end_below_the_recovery_point_is_damage() -> None:
    assert missing_offsets(*WHOLE, recovery_point=16) == [("10.log", 15, 16)]
    assert missing_offsets(*WHOLE[:2]) == [("5.log", 10, 15)]
    assert missing_offsets(*WHOLE[:2], may_have_gaps=True) == [("5.log", 10, 15)]


def test_a_hole_below_the_recovery_point_is_damage_unless_the_log_is_or_was_compacted() -> None:
    assert missing_offsets(WHOLE[0], WHOLE[2]) == [("0.log", 5, 10)]
    assert missing_offsets(WHOLE[0], WHOLE[2], may_have_gaps=True) == []
    assert missing_offsets(WHOLE[0], segment(5, 5), WHOLE[2], may_have_gaps=True) == []
    assert missing_offsets(WHOLE[0], segment(5, 5), WHOLE[2]) == [("5.log", 5, 10)]
    assert missing_offsets(WHOLE[0], WHOLE[2], recovery_point=5) == [], "recovery cuts there"


def test_a_file_that_is_shorter_than_its_index_says_is_damage_of_any_log() -> None:
    short = segment(5, 7, indexed_offset=9)
    assert missing_offsets(WHOLE[0], short, WHOLE[2], may_have_gaps=True) == [("5.log", 7, 10)]


def test_a_file_that_is_missing_beside_its_index_is_damage_of_any_log() -> None:
    lost = segment(5, None, size_bytes=None)
    assert missing_offsets(WHOLE[0], lost, WHOLE[2], may_have_gaps=True) == [("5.log", 5, 10)]
    assert missing_offsets(*WHOLE[:2], segment(10, None, size_bytes=None)) == [("10.log", 10, 15)]
    assert missing_offsets(*WHOLE[:2], segment(15, None, size_bytes=None), recovery_point=10) == []


def test_a_bad_batch_is_damage_below_the_recovery_point_alone() -> None:
    torn = segment(10, 12, problem="torn")
    assert missing_offsets(*WHOLE[:2], torn) == [("10.log", 12, 15)]
    assert missing_offsets(*WHOLE[:2], torn, recovery_point=12) == []


def test_a_file_in_the_place_of_another_is_damage() -> None:
    assert missing_offsets(segment(0, 10), *WHOLE[1:]) == [("0.log", 0, 5)]


def test_what_was_deleted_by_request_need_not_be_there() -> None:
    assert missing_offsets(WHOLE[0], WHOLE[2], log_start_offset=10) == []
    assert missing_offsets(WHOLE[0], log_start_offset=15) == []


def test_a_missing_directory_is_damage_if_anything_was_in_it() -> None:
    assert missing_offsets(segments=None) == [("clicks-0", 0, 15)]
    assert missing_offsets(segments=None, log_start_offset=15) == [("clicks-0", 15, 15)]
    assert missing_offsets(segments=()) == [("clicks-0", 0, 15)]
    assert missing_offsets(segments=None, recovery_point=0) == []


# On disk


def refusal(logs: LogManager, partition: TopicPartition = CLICKS) -> str:
    with pytest.raises(LogError) as refused:
        logs.create(partition, TOPIC_ID)
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
    return str(refused.value)


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("all_files", [True, False])
def test_a_missing_middle_segment_is_named_with_its_offsets_and_the_remedy(is_clean: bool, all_files: bool) -> None:
    disk = filled(is_clean=is_clean)
    for kind in KINDS if all_files else KINDS[:1]:
        disk.pop(segment_path(5, kind), None)
    told = refusal(started(disk_of(disk)))
    assert segment_path(0 if all_files else 5) in told
    assert "offsets 5 to 9 are not there" in told
    assert "restore the files" in told
    assert "barnabas storage accept-loss --directory /one clicks-0" in told


def test_after_a_restart_only_that_partition_is_refused_and_the_rest_counts_as_clean() -> None:
    disk = filled(is_clean=True)
    del disk[segment_path(10)]
    files = disk_of(disk)
    logs = started(files)
    append(logs.create(TopicPartition("other", 0), TOPIC_ID), b"x")
    asyncio.run(logs.stop())
    again = started(files)
    assert again.directories[0].was_clean
    assert set(again.logs) == {TopicPartition("other", 0)}
    assert "10 to 14" in refusal(again)


def test_a_restored_file_is_all_that_is_needed() -> None:
    disk = filled(is_clean=True)
    files = disk_of({path: data for path, data in disk.items() if path != segment_path(5)})
    assert start(files, is_stopped=True).kind == "refused"
    put(files, segment_path(5), disk[segment_path(5)])
    assert start(files).kind == "right"


def put(files: MemoryFileSystem, path: str, content: bytes) -> None:
    file = files.open(path, create=True)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


def test_without_recovery_points_a_clean_stop_is_judged_by_the_high_watermark_and_that_outlasts_a_kill() -> None:
    disk = filled(is_clean=True)
    del disk[f"/one/{RECOVERY_POINT_FILE}"]
    for kind in KINDS:
        disk.pop(segment_path(10, kind), None)
    files = disk_of(disk)
    assert start(files).kind == "refused"
    # Nobody stopped it.
    assert start(disk_of(contents(files))).kind == "refused"


def test_that_recovery_points_are_missing_after_a_clean_stop_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=True)
    del disk[f"/one/{RECOVERY_POINT_FILE}"]
    started(disk_of(disk))
    assert f"{RECOVERY_POINT_FILE} says nothing of clicks-0" in caplog.text


@pytest.mark.parametrize("content", [b"", b"0\n1\nclicks zero 9\n"])
def test_that_recovery_points_cannot_be_read_is_told(caplog: pytest.LogCaptureFixture, content: bytes) -> None:
    disk = filled(is_clean=False)
    disk[f"/one/{RECOVERY_POINT_FILE}"] = content
    started(disk_of(disk))
    assert "whether records are missing cannot be told by it" in caplog.text


def without_directory(disk: Disk) -> Disk:
    return {path: data for path, data in disk.items() if not path.startswith(DIRECTORY)}


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("checkpoint", [RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE])
def test_a_partition_whose_directory_is_gone_is_not_made_anew(is_clean: bool, checkpoint: str) -> None:
    """One checkpoint that knows of it is enough."""
    disk = without_directory(filled(is_clean=is_clean))
    del disk[f"/one/{({RECOVERY_POINT_FILE, HIGH_WATERMARK_FILE} - {checkpoint}).pop()}"]
    files = disk_of(disk)
    logs = started(files)
    assert "the directory is missing" in refusal(logs)
    logs.settle_missing(lambda partition: True)
    asyncio.run(logs.stop())
    again = started(files)
    assert "the directory is missing" in refusal(again)
    assert not files.exists(DIRECTORY)


def test_what_no_topic_has_any_more_is_forgotten_and_can_be_created_again() -> None:
    files = disk_of(without_directory(filled(is_clean=True)))
    logs = started(files)
    logs.settle_missing(lambda partition: False)
    assert logs.create(CLICKS, TOPIC_ID).log_end_offset == 0
    assert CLICKS not in read_offsets(files, f"/one/{HIGH_WATERMARK_FILE}")


def test_a_directory_that_waits_for_its_removal_explains_that_it_is_missing() -> None:
    disk = without_directory(filled(is_clean=False))
    disk[f"/one/clicks-0.{'0' * 32}-delete/{0:020d}.log"] = b""
    assert started(disk_of(disk)).create(CLICKS, TOPIC_ID).log_end_offset == 0


def test_a_topic_that_is_created_is_not_held_to_checkpoints_of_its_name() -> None:
    files = disk_of({})
    files.make_directory("/one")
    write_offsets(files, f"/one/{RECOVERY_POINT_FILE}", {CLICKS: 500})
    logs = started(files)
    logs.settle_missing(lambda partition: False)
    append(logs.create(CLICKS, TOPIC_ID), b"first")
    # Killed before the next checkpoint.
    assert read_offsets(files, f"/one/{RECOVERY_POINT_FILE}") == {}
    assert started(disk_of(contents(files))).create(CLICKS, TOPIC_ID).log_end_offset == 1


def test_checkpoints_forget_a_partition_before_its_directory_is_moved() -> None:
    """Else a kill between the two would leave a name whose directory seems to be lost."""
    files = disk_of(filled(is_clean=True))
    logs = started(files)
    seen: list[dict[TopicPartition, int]] = []
    rename = files.rename

    def watched(old: str, new: str) -> None:
        if old == DIRECTORY:
            seen.append(read_offsets(files, f"/one/{RECOVERY_POINT_FILE}"))
        rename(old, new)

    files.rename = watched  # type: ignore[method-assign]
    logs.delete(CLICKS)
    assert seen == [{}]


def test_another_topic_of_the_name_is_set_aside_and_made_anew() -> None:
    logs = started(disk_of(filled(is_clean=True)))
    logs.set_aside(CLICKS)
    assert logs.create(CLICKS, Uuid(bytes(range(1, 17)))).log_end_offset == 0


# Not damage


def _with_last_offset(disk: Disk, from_offset: int, to_offset: int) -> Disk:
    """The last batch of the last segment says that it begins elsewhere; no CRC covers that."""
    data = bytearray(disk[segment_path(10)])
    position = data.rindex(from_offset.to_bytes(8, "big"))
    data[position : position + 8] = to_offset.to_bytes(8, "big")
    return {**disk, segment_path(10): bytes(data)}


@pytest.mark.parametrize("policy", ["delete", "compact"])
@pytest.mark.parametrize("to_offset", [15, 22, 12])
def test_a_last_batch_with_another_offset_is_noticed_after_a_clean_stop(policy: str, to_offset: int) -> None:
    disk = filled(is_clean=True, cleanup_policy=(policy,))
    files = disk_of(_with_last_offset(disk, 14, to_offset))
    told = refusal(started(files, cleanup_policy=(policy,)))
    assert segment_path(10) in told
    assert "all below offset 15 was flushed" in told


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_batch_that_reaches_over_the_noted_end_has_another_offset(is_clean: bool, policy: str) -> None:
    files = MemoryFileSystem(lambda: NOW_MS)
    logs = started(files, cleanup_policy=(policy,))
    log = logs.create(CLICKS, TOPIC_ID)
    log.append(prepare_from_client(batch([b"a", b"b", b"c"]), log.settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    asyncio.run(logs.stop())
    disk = contents(files)
    data = bytearray(disk[segment_path(0)])
    data[7] = 1  # offsets 1 to 3 in the place of 0 to 2
    disk[segment_path(0)] = bytes(data)
    if not is_clean:
        del disk["/one/.kafka_cleanshutdown"]
    assert "offsets 1 to 3 are in one batch" in refusal(started(disk_of(disk), cleanup_policy=(policy,)))


@pytest.mark.parametrize("is_clean", [True, False])
def test_retention_and_deleted_records_are_no_damage(is_clean: bool) -> None:
    files = disk_of(filled(is_clean=True))
    logs = started(files)
    log = logs.create(CLICKS, TOPIC_ID)
    log.advance_log_start(12)
    assert log.delete_old_segments(NOW_MS) == 2
    if is_clean:
        asyncio.run(logs.stop())
    else:
        asyncio.run(logs.save_log_starts())
    again = started(disk_of(contents(files))).create(CLICKS, TOPIC_ID)
    assert [offset for offset, _ in read_every_offset(again)] == [12, 13, 14]


@pytest.mark.parametrize("renamed", [1, 2, 3])
def test_a_deletion_that_was_interrupted_is_no_damage(renamed: int) -> None:
    disk = filled(is_clean=False)
    for kind in KINDS[:renamed]:
        disk[segment_path(0, f"{kind}.deleted")] = disk.pop(segment_path(0, kind))
    log = started(disk_of(disk)).create(CLICKS, TOPIC_ID)
    assert (log.log_start_offset, log.log_end_offset) == (5, 15)


@pytest.mark.parametrize("base_offset", [0, 5])
@pytest.mark.parametrize("is_clean", [True, False])
def test_what_an_earlier_cleaning_deleted_does_not_explain_that_a_file_is_missing(
    is_clean: bool, base_offset: int
) -> None:
    disk = filled(is_clean=is_clean, cleanup_policy=("compact",))
    for kind in KINDS[:3]:
        disk[segment_path(base_offset, f"{kind}.deleted")] = disk[segment_path(base_offset, kind)]
    assert start(disk_of(disk), cleanup_policy=("compact",)).kind == "right"
    del disk[segment_path(base_offset, ".log")]
    assert f"{base_offset}.log" in refusal(started(disk_of(disk), cleanup_policy=("compact",)))


def test_a_segment_that_is_deleted_after_one_of_its_name_leaves_no_index_under_two_names() -> None:
    files = disk_of(filled(is_clean=True))
    log = started(files).create(CLICKS, TOPIC_ID)
    stale = [segment_path(0, f"{kind}.deleted") for kind in KINDS[:3]]
    for path in stale:
        files.open(path, create=True).close()
    names_then: list[set[str]] = []
    log.segments[0].rename_suffix(".deleted", after_data=lambda: names_then.append(set(files.names(log.directory))))
    assert not {path.rpartition("/")[2] for path in stale[1:]} & names_then[0]


@pytest.mark.parametrize("is_clean", [True, False])
def test_a_log_that_never_had_a_recovery_point_is_taken_as_it_is(is_clean: bool) -> None:
    disk = {path: data for path, data in filled(is_clean=is_clean).items() if not path.endswith("-checkpoint")}
    assert started(disk_of(disk)).create(CLICKS, TOPIC_ID).log_end_offset == 15


def test_a_swap_that_is_cut_short_is_damage_and_keeps_what_it_was_made_from() -> None:
    disk = filled(is_clean=False, cleanup_policy=("compact",))
    for kind in KINDS[:3]:
        disk[segment_path(5, f"{kind}.swap")] = disk[segment_path(5, kind)]
        disk[segment_path(5, f"{kind}.deleted")] = disk.pop(segment_path(5, kind))
    assert start(disk_of(disk), cleanup_policy=("compact",)).kind == "right"
    disk[segment_path(5, ".log.swap")] = disk[segment_path(5, ".log.swap")][:446]
    files = disk_of(disk)
    logs = started(files, cleanup_policy=("compact",))
    assert "5.log.swap" in refusal(logs)
    assert files.exists(segment_path(5, ".log.deleted"))
    accept_all(logs)
    asyncio.run(logs.stop())
    assert start(files, cleanup_policy=("compact",)).kind == "right"


def _with_two_segments_in_each_others_place(recovery_point: int) -> MemoryFileSystem:
    """Of a compacted log, in which offsets may be missing before those that come next; after a kill."""
    disk = filled(is_clean=False, cleanup_policy=("compact",))
    disk[segment_path(5)], disk[segment_path(10)] = disk[segment_path(10)], disk[segment_path(5)]
    disk[f"/one/{RECOVERY_POINT_FILE}"] = f"0\n1\nclicks 0 {recovery_point}\n".encode()
    return disk_of(disk)


def test_offsets_of_the_next_segment_are_no_gap_below_the_recovery_point() -> None:
    logs = started(_with_two_segments_in_each_others_place(7), cleanup_policy=("compact",))
    assert "5.log, byte 0: offsets 5 to 9 are not there: it holds offset 10, but the next segment begins at 10" in (
        refusal(logs)
    )


def test_offsets_of_the_next_segment_are_cut_from_the_recovery_point_on(caplog: pytest.LogCaptureFixture) -> None:
    logs = started(_with_two_segments_in_each_others_place(5), cleanup_policy=("compact",))
    assert logs.create(CLICKS, TOPIC_ID).log_end_offset == 5
    (cut,) = [each for each in caplog.messages if "5.log: cut at byte 0" in each]
    assert "offsets 5 to at least 14" in cut
    assert "it holds offset 10, but the next segment begins at 10" in cut


@pytest.mark.parametrize(("recovery_point", "left_batches"), [(7, 0), (9, 2)])
def test_a_compacted_segment_that_is_shorter_than_its_index_says_is_damage_after_a_kill(
    recovery_point: int, left_batches: int
) -> None:
    disk = filled(is_clean=False, cleanup_policy=("compact",), index_interval_bytes=1)
    disk[segment_path(5)] = disk[segment_path(5)][: left_batches * len(disk[segment_path(5)]) // 5]
    disk[f"/one/{RECOVERY_POINT_FILE}"] = f"0\n1\nclicks 0 {recovery_point}\n".encode()
    told = refusal(started(disk_of(disk), cleanup_policy=("compact",)))
    assert f"5.log, byte {len(disk[segment_path(5)])}: offsets {5 + left_batches} to 9 are not there" in told
    assert "the file is shorter than its index says" in told


def test_what_a_compacted_segment_lost_from_the_recovery_point_on_is_a_hole(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=False, cleanup_policy=("compact",), index_interval_bytes=1)
    disk[segment_path(5)] = disk[segment_path(5)][: 2 * len(disk[segment_path(5)]) // 5]
    disk[f"/one/{RECOVERY_POINT_FILE}"] = b"0\n1\nclicks 0 7\n"
    assert started(disk_of(disk), cleanup_policy=("compact",)).create(CLICKS, TOPIC_ID).log_end_offset == 7
    assert "1 segments behind offset 7, where records are missing, are dropped" in caplog.text


def test_no_whole_segment_is_read_after_a_clean_stop(monkeypatch: pytest.MonkeyPatch) -> None:
    files = disk_of(filled(is_clean=True))
    read: dict[str, int] = {}
    file = type(files.open(segment_path(5)))
    read_at = file.read_at

    def counted(self: File, position: int, size_bytes: int) -> bytes:
        data = read_at(self, position, size_bytes)  # type: ignore[arg-type]
        read[self.path] = read.get(self.path, 0) + len(data)
        return data

    monkeypatch.setattr(file, "read_at", counted)
    assert started(files).create(CLICKS, TOPIC_ID).log_end_offset == 15
    assert 0 < read[segment_path(5)] < files.size(segment_path(5)) / 2


# Above the recovery point


def test_what_is_cut_is_told_with_offsets_and_bytes(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=False)
    path = segment_path(10)
    size = len(disk[path]) // 5
    data = bytearray(disk[path])
    data[3 * size + 100] ^= 1
    disk[path] = bytes(data)
    assert started(disk_of(disk)).create(CLICKS, TOPIC_ID).log_end_offset == 13
    assert f"{path}: cut at byte {3 * size}: offsets 13 to at least 14, {2 * size} bytes, are lost" in caplog.text


def test_an_end_that_was_there_and_is_gone_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=False)
    disk[segment_path(10)] = disk[segment_path(10)][: len(disk[segment_path(10)]) * 2 // 5]
    assert started(disk_of(disk)).create(CLICKS, TOPIC_ID).log_end_offset == 12
    assert "clicks-0 ends at offset 12, but its high watermark was 15" in caplog.text


# Accepting


def accept_all(logs: LogManager) -> None:
    (directory,) = logs.directories
    for partition, reason in directory.offline.items():
        assert isinstance(reason, DamagedLogError)
        accept_loss(logs._files, reason.damage, directory.highest_known_offset(partition))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(
    ("lost", "left"),
    [
        ([(0, ".log")], range(5, 15)),
        ([(5, ".log")], [*range(5), *range(10, 15)]),
        ([(5, kind) for kind in KINDS[:3]], [*range(5), *range(10, 15)]),
        ([(10, ".log")], range(10)),
        ([(10, kind) for kind in KINDS[:3]], range(10)),
        ([(offset, ".log") for offset in (0, 5, 10)], []),
        ([(offset, kind) for offset in (0, 5, 10) for kind in KINDS[:3]], []),
    ],
)
def test_the_rest_is_served_and_lost_offsets_are_not_given_again(
    is_clean: bool, lost: list[tuple[int, str]], left: list[int]
) -> None:
    disk = filled(is_clean=is_clean)
    for offset, kind in lost:
        del disk[segment_path(offset, kind)]
    check_accepted(disk, list(left))


@pytest.mark.parametrize("is_clean", [True, False])
@pytest.mark.parametrize(("offset", "left"), [(5, [*range(7), *range(10, 15)]), (10, range(11))])
def test_a_file_is_used_up_to_where_it_is_damaged(is_clean: bool, offset: int, left: list[int]) -> None:
    disk = filled(is_clean=is_clean)
    size = len(disk[segment_path(offset)]) // 5
    disk[segment_path(offset)] = disk[segment_path(offset)][: size * (2 if offset == 5 else 1) + 100]
    check_accepted(disk, list(left))


def test_a_directory_that_is_gone_goes_on_where_it_was() -> None:
    check_accepted(without_directory(filled(is_clean=True)), [])


def check_accepted(disk: Disk, left: list[int]) -> None:
    files = disk_of(disk)
    logs = started(files)
    refusal(logs)
    accept_all(logs)
    asyncio.run(logs.stop())
    for _ in range(2):
        logs = started(files)
        log = logs.create(CLICKS, TOPIC_ID)
        assert [offset for offset, _ in read_every_offset(log) if offset < 15] == left
        assert log.log_end_offset >= 15
        append(log, b"on")
        if left:
            assert (left[-1], value_of(left[-1])) in read_every_offset(log)
        asyncio.run(logs.stop())


# Other files


@pytest.mark.parametrize("content", [b"", b"0\n0\n", b"0\n1\n1 7\n", b"0\n2\n0 0\n5 7\n"])
def test_leader_epochs_that_contradict_the_batches_are_made_anew(
    caplog: pytest.LogCaptureFixture, content: bytes
) -> None:
    disk = filled(is_clean=True)
    right = disk[f"{DIRECTORY}/leader-epoch-checkpoint"]
    disk[f"{DIRECTORY}/leader-epoch-checkpoint"] = content
    files = disk_of(disk)
    started(files)
    assert "leader epochs contradicts the batches" in caplog.text
    assert contents(files)[f"{DIRECTORY}/leader-epoch-checkpoint"] == right


def test_that_the_last_producer_snapshot_is_missing_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = filled(is_clean=True)
    known = started(disk_of(disk)).create(CLICKS, TOPIC_ID).producers.entries()
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]
    del disk[segment_path(15, ".snapshot")]
    log = started(disk_of(disk)).create(CLICKS, TOPIC_ID)
    assert "no producer state was saved at the end, 15" in caplog.text
    assert log.producers.entries() == known
