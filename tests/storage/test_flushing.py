"""Flushes whose work waits for a thread: what happens to the log meanwhile, and work that is dropped before it ran."""

from __future__ import annotations

from random import Random

from barnabas.storage.leader_epochs import EpochEntry, load_leader_epochs
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.logs import (
    DIRECTORY,
    NOW_MS,
    batch,
    check_consistency,
    end_transaction,
    lead,
    new_disk,
    open_log,
    topic_settings,
)

SEEDS = range(30)


def empty_disk(seed: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed), sector_bytes=1)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def test_epochs_whose_saving_was_dropped_are_saved_by_the_stop() -> None:
    disk = new_disk()
    log = open_log(disk)
    lead(log, batch([b"a"]), epoch=3)
    assert log.begin_saving_epochs() is not None
    log.flush()
    log.close()
    assert load_leader_epochs(disk, DIRECTORY).entries == [EpochEntry(3, 0)]


def test_epochs_that_change_while_they_are_saved_are_saved_again() -> None:
    disk = new_disk()
    log = open_log(disk)
    lead(log, batch([b"a"]), epoch=3)
    save = log.begin_saving_epochs()
    assert save is not None
    lead(log, batch([b"b"]), epoch=4)
    save()
    assert log.epochs.dirty
    log.close()
    assert load_leader_epochs(disk, DIRECTORY).entries == [EpochEntry(3, 0), EpochEntry(4, 1)]


def test_what_a_dropped_flush_should_have_made_safe_the_next_one_does() -> None:
    for seed in SEEDS:
        disk = empty_disk(seed)
        log = open_log(disk)
        for number in range(30):
            lead(log, batch([b"%d" % number * 100], timestamp_ms=NOW_MS + number))
        for sequence in range(3):
            lead(
                log,
                batch([b"x"], producer_id=7, producer_epoch=0, base_sequence=sequence, transactional=True),
            )
            end_transaction(log, 7, committed=False)
        assert log.begin_flush() is not None
        lead(log, batch([b"last"]))
        log.flush()
        disk.crash()
        log = open_log(disk, was_clean=False, recovery_point=log.recovery_point)
        assert log.log_end_offset == 37
        check_consistency(log)


def test_a_roll_does_not_rely_on_a_flush_that_still_waits() -> None:
    for seed in SEEDS:
        disk = empty_disk(seed)
        log = open_log(disk)
        lead(log, batch([b"a"]))
        log.roll(NOW_MS)
        lead(log, batch([b"b"]))
        assert log.begin_flush() is not None
        log.roll(NOW_MS)
        disk.crash()
        bases = [int(name.removesuffix(".log")) for name in disk.names(DIRECTORY) if name.endswith(".log")]
        assert bases in ([0, 1], [0, 1, 2]), "a machine that crashes may lose the last name, and no other"


def test_a_segment_that_is_removed_while_its_flush_waits_says_nothing_of_the_disk() -> None:
    log = open_log(new_disk(), topic_settings(retention_ms=1000, file_delete_delay_ms=0))
    for number in range(30):
        lead(log, batch([b"%d" % number * 100]))
    job = log.begin_flush()
    assert job is not None
    assert log.delete_old_segments(NOW_MS + 5000) > 2
    log.remove_deleted(NOW_MS + 5000)
    job.run()
    log.finish_flush(job)
    assert log.recovery_point == 30


def test_names_are_synced_once() -> None:
    disk = new_disk()
    log = open_log(disk)
    counts = []
    for value in (b"a", b"b"):
        lead(log, batch([value]))
        before = disk.operations
        log.flush()
        counts.append(disk.operations - before)
    assert counts[1] < counts[0]
