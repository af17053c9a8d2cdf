"""The machine may die in any operation on the disk: what was committed is there afterwards, and no change by halves.

Runs one life of a quorum again and again, and lets it die in the first, second, third … operation.
`BARNABAS_SWEEP=full` does so for many more seeds.
"""

from __future__ import annotations

import asyncio
import logging
from random import Random

import pytest

from barnabas.broker.quorum.formatting import format_directories, is_formatted
from barnabas.raft.snapshots import find_snapshots
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.broker.metadata_files import CLUSTER_ID, LOG_DIRECTORY, RunningQuorum, config, node_settings
from tests.sweeps import IS_FULL

SEEDS = range(60) if IS_FULL else range(3)
#: The seeds of the short form die in different operations.
STRIDE = 1 if IS_FULL else 3 * len(SEEDS)
SETTINGS = node_settings(
    metadata_log_max_record_bytes_between_snapshots=900,
    metadata_max_retention_bytes=2500,
    internal_metadata_log_segment_bytes=700,
    internal_metadata_max_batch_size_in_bytes=400,
    internal_metadata_delete_delay_millis=0,
)


class Life:
    """Changes of all sizes, with snapshots and restarts between, and a memory of what must be found again.

    Every change sets the same number of settings to its own number, so half a change shows.
    """

    def __init__(self, disk: SimulatedDisk, seed: int) -> None:
        self.disk = disk
        self.random = Random(seed)
        #: Which change was asked for last, and which is known to be committed.
        self.asked = 0
        self.committed = 0
        #: The highest epoch under which anything was written.
        self.epoch = 0
        self.last_offset = -1
        self.running: RunningQuorum | None = None
        disk.hook = self.note_epoch

    def note_epoch(self, number: int, name: str, path: str) -> None:
        if name == "write_at" and path.endswith(".log") and self.running is not None:
            self.epoch = self.running.quorum.epoch

    async def run(self, steps: int = 24) -> None:
        running = await self.start()
        for _ in range(steps):
            if self.random.random() < 0.08:
                await running.stop()
                running = await self.start()
            self.change(running)
            if self.random.random() < 0.7:
                await self.settle(running)
        await self.settle(running)
        await running.stop()

    async def start(self) -> RunningQuorum:
        if not is_formatted(self.disk, SETTINGS):
            format_directories(self.disk, SETTINGS, CLUSTER_ID, Random(5), elr_version=0, transaction_version=0)
        written, self.running = self.epoch, RunningQuorum(self.disk, SETTINGS)
        await self.running.start(takes_snapshots=True)
        assert self.running.quorum.epoch > written, "two leaders have one epoch"
        return self.running

    def change(self, running: RunningQuorum) -> None:
        self.asked += 1
        # The larger ones do not fit into a batch: they are transactions.
        padding = "x" * self.random.choice([1, 20, 200])
        running.append(*[config(f"setting {number}", f"{self.asked} {padding}") for number in range(4)])

    async def settle(self, running: RunningQuorum) -> None:
        await running.settled()
        self.committed = self.asked
        self.last_offset = running.quorum.high_watermark - 1

    async def check(self) -> None:
        self.asked = await self.check_once()
        # Life goes on, and another start finds that too.
        running = await self.start()
        self.change(running)
        await self.settle(running)
        await running.stop()
        assert await self.check_once() == self.asked

    async def check_once(self) -> int:
        """The number of the last change that is there."""
        running = await self.start()
        found = {value.split()[0] for value in running.owner.configs.values()}
        assert len(found) <= 1, f"half a change is there: {running.owner.configs}"
        number = int(found.pop()) if found else 0
        assert len(running.owner.configs) == (4 if number else 0)
        assert self.committed <= number <= self.asked, "a committed change is gone"
        assert running.owner.features == {"metadata.version": 25}
        assert running.quorum.high_watermark > self.last_offset
        await running.stop()
        return number


async def until_crash(life: Life) -> bool:
    """Whether the machine died, wherever that was noticed."""
    try:
        await life.run()
    except SimulatedCrash:
        return True
    return False


def new_disk(seed: int, operation: int) -> SimulatedDisk:
    disk = SimulatedDisk(Random(seed * 1000 + operation), sector_bytes=1 if operation % 2 else 512)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power", [True, False], ids=["power loss", "killed process"])
def test_every_crash_point(seed: int, power: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    disk = new_disk(seed, 0)
    asyncio.run(Life(disk, seed).run())
    operations = disk.operations
    assert operations > 150
    assert len(find_snapshots(disk, LOG_DIRECTORY)) >= 1
    for operation in range(3 + seed * 3 % STRIDE, operations + 1, STRIDE):
        disk = new_disk(seed, operation)
        life = Life(disk, seed)
        disk.crash_at(operation)
        try:
            died = asyncio.run(until_crash(life))
            assert died or disk.operations < operation
            disk.crash(power=power)
            asyncio.run(life.check())
        except Exception as problem:
            problem.add_note(f"seed {seed}, crash in operation {operation}")
            raise
