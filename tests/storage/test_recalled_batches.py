"""A snapshot keeps the newest batch of a producer. The others that it may send again are found in the log."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.storage.errors import LogError
from barnabas.storage.log import PartitionLog
from tests.storage.logs import NOW_MS, batch, lead, new_disk, open_log, topic_settings

VALUE = b"v" * 300


def send(log: PartitionLog, sequence: int, *, pid: int = 7, epoch: int = 0, values: int = 1) -> str:
    """What a producer is told of a batch."""
    header: dict[str, Any] = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
    try:
        appended = lead(log, batch([VALUE] * values, **header))
    except LogError as refusal:
        return refusal.code.name
    return f"{'duplicate of' if appended.is_duplicate else 'at'} {appended.first_offset}"


def restarted(log: PartitionLog, disk: Any, **how: Any) -> PartitionLog:
    log.close()
    return open_log(disk, **how)


OUT_OF_ORDER = "OUT_OF_ORDER_SEQUENCE_NUMBER"


@pytest.mark.parametrize("segment_bytes", [2000, 100_000])
def test_after_a_clean_stop_the_last_five_are_known(segment_bytes: int) -> None:
    """Whatever segments they are in, and whoever wrote between them."""
    disk = new_disk()
    settings = topic_settings(internal_segment_bytes=segment_bytes)
    log = open_log(disk, settings)
    for each in range(10):
        assert send(log, each) == f"at {3 * each}"
        send(log, each, pid=8)
        lead(log, batch([VALUE]))
    log = restarted(log, disk, settings=settings)
    assert [send(log, each) for each in (5, 6, 7, 8, 9)] == [f"duplicate of {3 * each}" for each in (5, 6, 7, 8, 9)]
    assert send(log, 6, pid=8) == "duplicate of 19"
    assert send(log, 4) == OUT_OF_ORDER, "a leader remembers five"
    assert send(log, 10) == "at 30"


def test_what_came_since_counts_among_the_five() -> None:
    disk = new_disk()
    log = open_log(disk)
    for each in range(5):
        send(log, each)
    log = restarted(log, disk)
    assert [send(log, each) for each in (5, 6)] == ["at 5", "at 6"]
    assert [send(log, each) for each in (2, 3, 4, 5, 6)] == [f"duplicate of {each}" for each in (2, 3, 4, 5, 6)]
    assert send(log, 1) == OUT_OF_ORDER


def test_only_batches_of_the_epoch_and_as_they_were_sent() -> None:
    disk = new_disk()
    log = open_log(disk)
    assert [send(log, 0, epoch=0), send(log, 0, epoch=1, values=2), send(log, 2, epoch=1)] == ["at 0", "at 1", "at 3"]
    log = restarted(log, disk)
    assert send(log, 0, epoch=1) == OUT_OF_ORDER
    assert send(log, 0, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert send(log, 0, epoch=1, values=2) == "duplicate of 1"


def test_the_log_is_read_once_and_only_for_what_may_be_older() -> None:
    disk = new_disk()
    log = open_log(disk)
    for each in range(3):
        send(log, each)
    log = restarted(log, disk)
    assert send(log, 9) == OUT_OF_ORDER
    assert log.producers.restored_at == 3
    assert send(log, 1) == "duplicate of 1"
    assert log.producers.restored_at is None


def test_what_is_read_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("barnabas.storage.recalling.RECALLED_BYTES", 1000)
    disk = new_disk()
    settings = topic_settings(internal_segment_bytes=100_000)
    log = open_log(disk, settings)
    send(log, 0, pid=8)
    for each in range(10):
        send(log, each)
    send(log, 1, pid=8)
    log = restarted(log, disk, settings=settings)
    assert send(log, 9) == "duplicate of 10"
    assert send(log, 8) == "duplicate of 9"
    assert send(log, 0, pid=8) == OUT_OF_ORDER


def test_after_truncation_too() -> None:
    disk = new_disk()
    log = open_log(disk)
    for each in range(8):
        if each == 4:
            log.roll(NOW_MS)
        send(log, each)
    log.truncate_to(5, NOW_MS)
    assert [send(log, each) for each in (0, 1, 2, 3, 4)] == [f"duplicate of {each}" for each in range(5)]
    assert send(log, 5) == "at 5"


def test_when_the_records_are_gone_there_is_nothing_to_find() -> None:
    disk = new_disk()
    log = open_log(disk)
    for each in range(5):
        send(log, each)
    log.roll(NOW_MS)
    log.commit_all()
    log.advance_log_start(5)
    log.delete_old_segments(NOW_MS)
    lead(log, batch([VALUE]))
    log = restarted(log, disk, log_start_offset=5)
    assert send(log, 4) == "duplicate of 4"
    assert send(log, 3) == OUT_OF_ORDER
    assert send(log, 5) == "at 6"
