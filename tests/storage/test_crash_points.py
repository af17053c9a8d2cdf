"""The machine may die in any operation: what was flushed is there afterwards, and nothing torn is ever seen.

Runs the same workload again and again, and lets it die in the first, second, third … operation on the disk.
`BARNABAS_SWEEP=full` does so for many more seeds.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.storage.log import FlushJob, PartitionLog
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.storage.logs import NOW_MS, batch, check_consistency, marker, open_log, read_all, topic_settings
from tests.sweeps import IS_FULL

SEEDS = range(100) if IS_FULL else range(4)


class Workload:
    """Appends of all kinds, with flushes, truncations and deletions between, and a memory of what the log must hold."""

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.random = Random(seed)
        self.settings = topic_settings(file_delete_delay_ms=0)
        #: The batches that the log holds, by first offset; during a truncation those of before.
        self.history: dict[int, bytes] = {}
        #: Everything below was flushed, and must survive.
        self.safe_offset = 0
        #: Everything below was answered, and must survive unless the machine died.
        self.answered_offset = 0
        #: What the checkpoint says.
        self.recovery_point = 0
        self.start_offset = 0
        self.epoch = 0
        self.sequences: dict[int, int] = {}
        self.open_transactions: set[int] = set()
        self.log: PartitionLog | None = None
        #: A flush that waits for a thread.
        self.waiting: FlushJob | None = None

    def run(self, steps: int = 60) -> None:
        self.log = open_log(self.disk, self.settings)
        for _ in range(steps):
            step = self.random.choices(
                [
                    self.append,
                    self.transaction_step,
                    self.flush,
                    self.checkpoint,
                    self.truncate,
                    self.delete,
                    self.restart,
                    self.flush_slowly,
                ],
                weights=[40, 20, 8, 5, 3, 4, 2, 12],
            )[0]
            step(self.log)

    def append(self, log: PartitionLog) -> None:
        if self.random.random() < 0.1:
            self.epoch += 1
        values = [self.random.randbytes(self.random.choice([5, 50, 200])) for _ in range(self.random.randint(1, 4))]
        producer = self.random.choice([-1, 1, 2])
        header: dict[str, Any] = {}
        if producer > 0:
            header = {"producer_id": producer, "producer_epoch": 0, "base_sequence": self.sequences.get(producer, 0)}
            self.sequences[producer] = header["base_sequence"] + len(values)
        self._append(log, batch(values, **header))

    def _append(self, log: PartitionLog, data: bytearray) -> None:
        prepared = prepare_from_client(data, self.settings, NOW_MS)
        # Noted before, since the machine may die after the write but before the answer.
        self._expect(log, prepared.batches[0].data)
        log.append(prepared, leader_epoch=self.epoch, now_ms=NOW_MS)
        self._answered(log)

    def _answered(self, log: PartitionLog) -> None:
        log.set_high_watermark(log.log_end_offset)
        self.answered_offset = log.log_end_offset

    def _expect(self, log: PartitionLog, data: memoryview) -> None:
        stamped = bytearray(data)
        stamped[:8] = log.log_end_offset.to_bytes(8, "big")
        stamped[12:16] = self.epoch.to_bytes(4, "big")
        self.history[log.log_end_offset] = bytes(stamped)

    def transaction_step(self, log: PartitionLog) -> None:
        producer = self.random.choice([7, 8, 9])
        if producer in self.open_transactions and self.random.random() < 0.5:
            data = marker(producer, 0, committed=self.random.random() < 0.5)
            prepared = prepare_from_coordinator(data, self.settings)
            self._expect(log, prepared.data)
            log.append(prepared, leader_epoch=self.epoch, now_ms=NOW_MS)
            self._answered(log)
            self.open_transactions.discard(producer)
            return
        sequence = self.sequences.get(producer, 0)
        self.sequences[producer] = sequence + 1
        self.open_transactions.add(producer)
        data = batch(
            [b"in a transaction"], transactional=True, producer_id=producer, producer_epoch=0, base_sequence=sequence
        )
        self._append(log, data)

    def flush(self, log: PartitionLog) -> None:
        log.flush()
        self.safe_offset = log.log_end_offset

    def flush_slowly(self, log: PartitionLog) -> None:
        """Begin a flush, or let one that was begun run; or drop it, as a task that is cancelled does."""
        job, self.waiting = self.waiting, None
        if job is None:
            self.waiting = log.begin_flush()
        elif self.random.random() < 0.7:
            job.run()
            log.finish_flush(job)
            self.safe_offset = max(self.safe_offset, log.recovery_point)

    def checkpoint(self, log: PartitionLog) -> None:
        self.recovery_point = log.recovery_point

    def truncate(self, log: PartitionLog) -> None:
        offsets = sorted(offset for offset in self.history if offset >= log.log_start_offset)[-6:]
        if not offsets:
            return
        target = self.random.choice(offsets)
        self.safe_offset = min(self.safe_offset, target)
        self.answered_offset = min(self.answered_offset, target)
        # As `LogManager.truncate` does before it cuts.
        self.recovery_point = min(self.recovery_point, target)
        log.truncate_to(target, NOW_MS)
        self.history = {offset: data for offset, data in self.history.items() if offset < target}
        self._forget_producers(log)

    def _forget_producers(self, log: PartitionLog) -> None:
        """Producers whose batches were cut off go on with what the log knows of them."""
        entries = {entry.producer_id: entry for entry in log.producers.entries()}
        self.sequences = {
            producer: entry.last_sequence + 1 if entry.last_offset >= 0 else 0 for producer, entry in entries.items()
        }
        self.open_transactions = {
            producer for producer, entry in entries.items() if entry.current_txn_first_offset >= 0
        }

    def delete(self, log: PartitionLog) -> None:
        target = self.random.randint(log.log_start_offset, log.high_watermark)
        self.start_offset = max(self.start_offset, target)
        log.advance_log_start(target)
        log.delete_old_segments(NOW_MS)
        log.remove_deleted(NOW_MS)

    def restart(self, log: PartitionLog) -> None:
        start = log.log_start_offset
        log.close()
        self.waiting = None
        self.safe_offset = log.log_end_offset
        self.log = open_log(self.disk, self.settings, log_start_offset=start)
        self.log.set_high_watermark(self.log.log_end_offset)

    def recover_and_check(self) -> PartitionLog:
        log = open_log(
            self.disk,
            self.settings,
            was_clean=False,
            recovery_point=self.recovery_point,
            log_start_offset=0,
        )
        found = {int.from_bytes(data[:8], "big"): data for data in read_all(log)}
        for offset, data in found.items():
            assert data == self.history[offset], f"offset {offset} holds something else"
        end_offset = max((_end(data) for data in found.values()), default=log.log_end_offset)
        assert end_offset >= self.safe_offset, "something that was flushed is gone"
        expected = [offset for offset in sorted(self.history) if log.log_start_offset <= offset < end_offset]
        assert sorted(found) == expected, "there is a hole"
        assert log.log_start_offset <= self.start_offset or not found
        check_consistency(log, deleted_below=self.start_offset)
        return log


def _end(data: bytes) -> int:
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1


def run_until_crash(seed: int, operation: int | None, *, sector_bytes: int = 512) -> tuple[Workload, SimulatedDisk]:
    disk = SimulatedDisk(Random(seed * 1000 + (operation or 0)), sector_bytes=sector_bytes)
    disk.make_directory("/data")
    disk.sync_directory("/")
    disk.crash_at(operation)
    workload = Workload(disk, seed)
    if operation is None:
        workload.run()
    else:
        with pytest.raises(SimulatedCrash):
            workload.run()
    return workload, disk


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power", [True, False], ids=["power loss", "killed process"])
def test_every_crash_point(seed: int, power: bool) -> None:
    _, disk = run_until_crash(seed, None)
    assert disk.operations > 120
    for operation in range(3, disk.operations + 1):
        workload, crashed = run_until_crash(seed, operation, sector_bytes=1 if operation % 2 else 512)
        crashed.crash(power=power)
        if not power:
            workload.safe_offset = workload.answered_offset
        try:
            log = workload.recover_and_check()
        except Exception as problem:
            problem.add_note(f"seed {seed}, crash in operation {operation}")
            raise
        prepared = prepare_from_client(batch([b"life goes on"]), workload.settings, NOW_MS)
        log.append(prepared, leader_epoch=workload.epoch, now_ms=NOW_MS)
        check_consistency(log, deleted_below=workload.start_offset)
