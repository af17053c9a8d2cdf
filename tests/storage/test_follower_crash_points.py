"""A follower may die in any operation of its appends and truncations: what it finds is a part of what it was sent, and
whoever leads next brings it to the leader's log.

The truncations go through `LogManager`, so the checkpoints are part of it. `BARNABAS_SWEEP=full` does many more seeds.
"""

from __future__ import annotations

import asyncio
from random import Random

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.records.batch import iter_batches
from barnabas.storage.log import PartitionLog
from barnabas.storage.validation import prepare_from_leader
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.storage.logs import NOW_MS, batch, check_consistency, read_all
from tests.storage.managers import manager, started
from tests.sweeps import IS_FULL

SEEDS = range(60) if IS_FULL else range(2)
T0 = TopicPartition("t", 0)


class Leaders:
    """The logs of leaders that followed each other: each went on from a part of what the last one had."""

    def __init__(self, random: Random) -> None:
        self.random = random
        self.epoch = 0
        self.batches: list[bytes] = []

    @property
    def end_offset(self) -> int:
        return _end(self.batches[-1]) if self.batches else 0

    def append(self) -> None:
        data = batch([self.random.randbytes(self.random.choice([5, 80]))] * self.random.randint(1, 3))
        next(iter_batches(memoryview(data))).stamp(base_offset=self.end_offset, leader_epoch=self.epoch)
        self.batches.append(bytes(data))

    def replace(self) -> None:
        """Another leads, who has not got all."""
        del self.batches[self.random.randint(max(0, len(self.batches) - 4), len(self.batches)) :]
        self.epoch += 1


def _end(data: bytes) -> int:
    return int.from_bytes(data[:8], "big") + int.from_bytes(data[23:27], "big") + 1


def diverges_at(log: PartitionLog, leaders: Leaders) -> int:
    """Where the follower's log left the leader's, batch by batch."""
    offset = log.log_start_offset
    theirs = {int.from_bytes(each[:8], "big"): each for each in leaders.batches}
    for data in read_all(log):
        if theirs.get(offset) != data:
            break
        offset = _end(data)
    return offset


class Follower:
    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.random = Random(seed)
        self.leaders = Leaders(Random(seed + 1))
        #: All that the follower was ever sent.
        self.sent: set[bytes] = set()
        self.logs = manager(disk)

    def run(self, steps: int = 120) -> None:
        asyncio.run(self.logs.start())
        self.logs.create(T0)
        for _ in range(steps):
            step = self.random.choices(
                [self.leaders.append, self.fetch, self.flush, self.checkpoint, self.leaders.replace, self.start_anew],
                weights=[40, 40, 10, 8, 8, 4],
            )[0]
            step()

    @property
    def log(self) -> PartitionLog:
        log = self.logs.get(T0)
        assert log is not None
        return log

    def fetch(self) -> None:
        log = self.log
        cut = diverges_at(log, self.leaders)
        if cut < log.log_end_offset:
            self.logs.truncate(T0, cut)
            assert log.log_end_offset == cut
        following = [each for each in self.leaders.batches if int.from_bytes(each[:8], "big") >= log.log_end_offset]
        taken = following[: self.random.randint(1, 3)]
        self.sent.update(taken)
        log.append_as_follower(prepare_from_leader(b"".join(taken)), now_ms=NOW_MS)

    def flush(self) -> None:
        self.log.flush()

    def checkpoint(self) -> None:
        asyncio.run(self.logs.save_recovery_points())
        asyncio.run(self.logs.save_high_watermarks())

    def start_anew(self) -> None:
        """The leader has deleted what comes after our end."""
        if not self.leaders.batches:
            return
        start = self.random.choice([int.from_bytes(each[:8], "big") for each in self.leaders.batches])
        if start > self.log.log_end_offset:
            self.logs.start_anew(T0, start)

    def recover(self) -> PartitionLog:
        """It must be usable: a follower that dies has lost nothing that it promised."""
        self.logs = started(self.disk)
        return self.logs.create(T0)

    def catch_up(self) -> None:
        for _ in range(200):
            if self.log.log_end_offset == self.leaders.end_offset and diverges_at(self.log, self.leaders) == (
                self.log.log_end_offset
            ):
                return
            if diverges_at(self.log, self.leaders) == self.log.log_start_offset > 0:
                self.logs.start_anew(T0, 0)
            self.fetch()
        raise AssertionError("it never has all")


def run_until_crash(seed: int, operation: int | None) -> tuple[Follower, SimulatedDisk]:
    disk = SimulatedDisk(Random(seed * 1000 + (operation or 0)), sector_bytes=1 if (operation or 0) % 2 else 512)
    follower = Follower(disk, seed)
    disk.crash_at(operation)
    if operation is None:
        follower.run()
    else:
        with pytest.raises(SimulatedCrash):
            follower.run()
    return follower, disk


@pytest.mark.parametrize(
    ("seed", "power"),
    [
        # A minute each: every day one story loses its power, another is killed.
        pytest.param(seed, power, id=f"{fate}-{seed}", marks=() if seed % 2 != power else pytest.mark.slow)
        for seed in SEEDS
        for fate, power in (("power loss", True), ("killed process", False))
    ],
)
def test_every_crash_point_of_a_follower(seed: int, power: bool) -> None:
    _, disk = run_until_crash(seed, None)
    assert disk.operations > 60
    for operation in range(1, disk.operations + 1):
        follower, crashed = run_until_crash(seed, operation)
        crashed.crash(power=power)
        try:
            log = follower.recover()
            assert set(read_all(log)) <= follower.sent, "it holds what nobody sent"
            check_consistency(log)
            follower.catch_up()
            assert b"".join(read_all(follower.log)) == b"".join(
                each for each in follower.leaders.batches if _end(each) > follower.log.log_start_offset
            )
            check_consistency(follower.log)
        except Exception as problem:
            problem.add_note(f"seed {seed}, crash in operation {operation}")
            raise
