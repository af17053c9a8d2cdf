"""A full disk is told of: when it begins, while it lasts, and when it is over; however much is refused."""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.base.runtime import ManualClock
from barnabas.storage.errors import LogError, PassingError
from barnabas.storage.passing_trouble import TELL_AGAIN_MS, PassingTrouble
from barnabas.testing.sim.disk import SimulatedDisk
from tests.storage.managers import TOPIC_ID, A, B, append, started

FULL = "log directory /one: the disk is full; refused until that has passed: "


def lines(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    return [(each.levelname, each.getMessage()) for each in caplog.records]


def test_refused_appends_are_told_once_for_all_partitions_and_so_is_their_end(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    one, other = logs.create(A, TOPIC_ID), logs.create(B, TOPIC_ID)
    append(one, b"fits")
    disk.capacity_bytes = disk.used_bytes
    for log in (one, one, other):
        with pytest.raises(PassingError, match="the disk is full"):
            append(log, b"does not")
    assert lines(caplog) == [("ERROR", f"{FULL}what was asked of {A}")]
    disk.capacity_bytes = None
    append(other, b"fits again")
    append(one, b"fits again")
    assert lines(caplog)[1:] == [("WARNING", "log directory /one works again; 3 times something was refused")]


def test_refused_checkpoints_are_told_and_so_is_their_end(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    append(logs.create(A, TOPIC_ID), b"record")
    disk.capacity_bytes = disk.used_bytes
    for _ in range(5):
        asyncio.run(logs.save_high_watermarks())
    assert lines(caplog) == [("ERROR", f"{FULL}replication-offset-checkpoint")]
    disk.capacity_bytes = None
    asyncio.run(logs.save_high_watermarks())
    assert lines(caplog)[1:] == [("WARNING", "log directory /one works again; 5 times something was refused")]


def test_a_partition_that_cannot_be_made_is_told(caplog: pytest.LogCaptureFixture) -> None:
    disk = SimulatedDisk(Random(1))
    logs = started(disk)
    disk.capacity_bytes = disk.used_bytes
    with pytest.raises(LogError, match="the disk is full"):
        logs.create(A, TOPIC_ID)
    assert lines(caplog) == [("ERROR", f"{FULL}a log for {A}")]


def test_while_it_lasts_it_is_told_once_in_a_minute(caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    trouble = PassingTrouble("/one", clock.monotonic_ms)
    for _ in range(10 * TELL_AGAIN_MS // 100):
        trouble.refused("the disk is full", "t-0")
        clock.advance(100)
    assert len(caplog.records) == 10
    assert lines(caplog)[-1] == ("ERROR", f"{FULL}t-0, and 5,400 times before")


def test_a_disk_with_hardly_any_room_does_not_fill_the_log_either(caplog: pytest.LogCaptureFixture) -> None:
    """Small writes succeed between large ones that do not."""
    clock = ManualClock()
    trouble = PassingTrouble("/one", clock.monotonic_ms)
    for _ in range(1000):
        trouble.refused("the disk is full", "t-0")
        trouble.passed()
        clock.advance(100)
    assert len(caplog.records) == 4
