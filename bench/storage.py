"""The partition log against the bare system calls that it cannot do without."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from random import Random

from crc32c import crc32c

from barnabas.base.ids import TopicPartition
from barnabas.records import BatchBuilder
from barnabas.storage.log import PartitionLog
from barnabas.storage.real_files import RealFileSystem
from barnabas.storage.recovery import load_log
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client
from bench.measure import Result, best_seconds

NOW_MS = 1_700_000_000_000
BATCH_BYTES = 16 * 1024
BATCHES = 4000
READ_BYTES = 1024 * 1024
PARTITIONS = 2000
PARTITION = TopicPartition("bench", 0)


def make_batches() -> list[bytearray]:
    """16 KiB batches of 100-byte records from one idempotent producer."""
    batches = []
    sequence = 0
    for _ in range(BATCHES):
        builder = BatchBuilder(BATCH_BYTES, producer_id=1, producer_epoch=0, base_sequence=sequence)
        while builder.append(b"v" * 100, None, NOW_MS) is not None:
            sequence += 1
        batches.append(builder.build())
    return batches


def open_log(folder: str, *, was_clean: bool = True) -> PartitionLog:
    return load_log(
        RealFileSystem(),
        f"{folder}/bench-0",
        PARTITION,
        TopicSettings(),
        was_clean=was_clean,
        now_ms=NOW_MS,
        randomness=Random(1),
    )


def append_rate(folder: Path, batches: list[bytearray]) -> Result:
    numbers = iter(range(1000))

    def bare() -> None:
        descriptor = os.open(folder / f"bare-{next(numbers)}", os.O_CREAT | os.O_WRONLY)
        for batch in batches:
            os.write(descriptor, batch)
        os.close(descriptor)

    def ours() -> None:
        log = open_log(str(folder / f"ours-{next(numbers)}"))
        settings = log.settings
        for batch in batches:
            # The offset that the last round stamped into it.
            batch[:8] = bytes(8)
            log.append(prepare_from_client(batch, settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
        log.abandon()

    our_seconds, bare_seconds = best_seconds(ours, bare, rounds=15)
    rate = BATCHES * BATCH_BYTES / our_seconds / 1e6
    return Result("append 16 KiB batches / bare os.write", bare_seconds / our_seconds, 0.5, f"{rate:,.0f} MB/s")


def filled_log(folder: Path, batches: list[bytearray]) -> PartitionLog:
    log = open_log(str(folder))
    for batch in batches:
        batch[:8] = bytes(8)
        log.append(prepare_from_client(batch, log.settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)
    return log


def read_rate(log: PartitionLog) -> Result:
    per_batch = log.log_end_offset // BATCHES
    # A consumer asks for the offset after the last whole batch that it got.
    offsets = [
        number * (READ_BYTES // BATCH_BYTES) * per_batch for number in range(BATCHES * BATCH_BYTES // READ_BYTES)
    ]
    path = log.segments[0].file.path
    # Both read the same bytes: how they lie on pages matters too.
    ranges = [log.read(offset, READ_BYTES, end_offset=log.high_watermark).range for offset in offsets]
    positions = [each.position for each in ranges if each is not None]

    def bare() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        for position in positions:
            os.pread(descriptor, READ_BYTES, position)
        os.close(descriptor)

    def ours() -> None:
        for offset in offsets:
            found = log.read(offset, READ_BYTES, end_offset=log.high_watermark).range
            assert found is not None
            found.read()

    our_seconds, bare_seconds = best_seconds(ours, bare, rounds=40)
    rate = len(offsets) * READ_BYTES / our_seconds / 1e6
    return Result("sequential reads of 1 MiB / bare os.pread", bare_seconds / our_seconds, 0.9, f"{rate:,.0f} MB/s")


def recovery_rate(folder: Path, path: str) -> Result:
    def bare() -> None:
        descriptor = os.open(path, os.O_RDONLY)
        while data := os.read(descriptor, READ_BYTES):
            crc32c(data)
        os.close(descriptor)

    def ours() -> None:
        open_log(str(folder), was_clean=False).abandon()

    our_seconds, bare_seconds = best_seconds(ours, bare, rounds=5)
    rate = os.path.getsize(path) / our_seconds / 1e6
    return Result("unclean recovery / bare read + CRC-32C", bare_seconds / our_seconds, 1 / 3, f"{rate:,.0f} MB/s")


def opening_time(folder: Path, batches: list[bytearray]) -> Result:
    """2,000 partitions with a little data each, after a clean stop. The ratio is the budget over what it took."""
    files = RealFileSystem()

    def each(action: Callable[[PartitionLog], None]) -> float:
        start = time.perf_counter()
        for number in range(PARTITIONS):
            log = load_log(
                files,
                f"{folder}/many-{number}",
                TopicPartition("many", number),
                TopicSettings(),
                was_clean=True,
                now_ms=NOW_MS,
                randomness=Random(1),
            )
            action(log)
        return time.perf_counter() - start

    def fill(log: PartitionLog) -> None:
        for batch in batches[:4]:
            batch[:8] = bytes(8)
            log.append(prepare_from_client(batch, log.settings, NOW_MS), leader_epoch=0, now_ms=NOW_MS)
        log.close()

    each(fill)
    seconds = each(PartitionLog.abandon)
    budget_seconds = 0.002 * PARTITIONS
    return Result(
        "open 2,000 clean partitions: budget of 2 ms each", budget_seconds / seconds, 1.0, f"{seconds / 2:.3f} ms each"
    )


def run() -> list[Result]:
    folder = Path(tempfile.mkdtemp(prefix="barnabas-bench-"))
    try:
        batches = make_batches()
        results = [append_rate(folder, batches)]
        log = filled_log(folder / "filled", batches)
        results.append(read_rate(log))
        path = log.segments[0].file.path
        log.abandon()
        return [*results, recovery_rate(folder / "filled", path), opening_time(folder, batches)]
    finally:
        shutil.rmtree(folder)
