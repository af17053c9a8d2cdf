"""The machine may die in any operation on the disk: what was synced is there afterwards, of the rest a prefix, and what
was cut off or replaced does not come back.

Runs one life of a replica again and again, as leader and as follower, and lets it die in the first, second, third …
operation. `BARNABAS_SWEEP=full` does so for many more seeds.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from random import Random

import pytest

from barnabas.raft.committed_offset import CommittedOffsetNote
from barnabas.raft.ports import FoundReplica
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.types import ElectionState, ReplicaKey, SnapshotId
from barnabas.testing.sim.disk import SimulatedCrash, SimulatedDisk
from tests.raft.stores import (
    DIRECTORY,
    NOTE,
    commit,
    fetched,
    new_disk,
    receive,
    small_options,
    snapshot_bytes,
    snapshot_of,
    sync,
    take_snapshot,
)
from tests.storage.runtime import InlineRuntime
from tests.sweeps import IS_FULL

SEEDS = range(60) if IS_FULL else range(4)
STRIDE = 1 if len(SEEDS) > 4 else 5
OPTIONS = small_options()

#: What a batch is known by: where it begins, its epoch, and its records.
Batch = tuple[int, int, tuple[bytes, ...]]


@dataclass(frozen=True)
class State:
    """What the files may hold: the batches of the log, of which those before `written` must be there after a kill, and
    those before `synced` also after a power loss. `base` is where the log begins if it is empty.
    """

    base: int = 0
    batches: tuple[Batch, ...] = ()
    written: int = 0
    synced: int = 0
    snapshot: SnapshotId | None = None
    election: ElectionState | None = None

    @property
    def end_offset(self) -> int:
        return self.batches[-1][0] + len(self.batches[-1][2]) if self.batches else self.base

    @property
    def last_epoch(self) -> int:
        return max(self.batches[-1][1] if self.batches else 0, self.snapshot.epoch if self.snapshot else 0)

    def with_batches(self, *batches: Batch) -> State:
        return replace(self, batches=(*self.batches, *batches))

    def sure_up_to(self, offset: int) -> State:
        """Nobody promises what follows any more."""
        return replace(self, written=min(self.written, offset), synced=min(self.synced, offset))


@dataclass
class Life:
    disk: SimulatedDisk
    random: Random
    #: What is there, and what may be there instead while an operation is under way.
    state: State = field(default_factory=State)
    others: tuple[State, ...] = ()
    high_watermark: int = 0
    epoch: int = 0
    number: int = 0
    store: RaftLog | None = None
    has_lost_power: bool = False

    @contextmanager
    def becoming(self, *others: State) -> Iterator[None]:
        """While this lasts, a crash may leave any of them; afterwards the last is there."""
        self.others = others
        yield
        self.state, self.others = replace(others[-1], written=others[-1].end_offset), ()

    # What a replica does

    def start(self) -> RaftLog:
        self.store = RaftLog(self.disk, DIRECTORY, OPTIONS, InlineRuntime(self.number))
        found = self.store.open()
        self.check(found)
        return self.store

    def run(self, steps: int = 40) -> None:
        store = self.start()
        for _ in range(steps):
            does = self.random.choices(
                [self.lead, self.follow, self.sync, self.commit, self.diverge, self.fall_behind, self.snapshot],
                [6, 6, 4, 4, 2, 0.7, 2],
            )[0]
            does(store)
            if self.random.random() < 0.08:
                store = self.start_again(store)
        store.close()

    def start_again(self, store: RaftLog) -> RaftLog:
        if self.random.random() < 0.5:
            store.close()
        else:
            store.abandon()
        return self.start()

    def values(self) -> tuple[bytes, ...]:
        self.number += 1
        padding = b"x" * self.random.choice([1, 20, 100])
        return tuple(b"%d %s" % (self.number, padding) for _ in range(self.random.randint(1, 3)))

    def lead(self, store: RaftLog) -> None:
        self.elect(store)
        values = self.values()
        with self.becoming(self.state.with_batches((self.state.end_offset, self.epoch, values))):
            store.append(values, self.epoch)

    def elect(self, store: RaftLog) -> None:
        if self.random.random() < 0.3:
            self.epoch = max(self.epoch, self.state.last_epoch) + 1
            election = ElectionState(self.epoch, -1, ReplicaKey(self.random.randint(1, 3)))
            with self.becoming(replace(self.state, election=election)):
                store.save_election(election, kraft_version=0, voter_ids=[1, 2, 3])
        self.epoch = max(self.epoch, self.state.last_epoch, 1)

    def follow(self, store: RaftLog) -> None:
        """Several batches come at once, of one leader or of two."""
        data, state, offset = b"", self.state, self.state.end_offset
        self.epoch = max(self.epoch, self.state.last_epoch, 1)
        for _ in range(self.random.randint(1, 4)):
            self.epoch += self.random.random() < 0.2
            values = self.values()
            data += fetched(offset, self.epoch, *values)
            state = state.with_batches((offset, self.epoch, values))
            offset += len(values)
        with self.becoming(state):
            store.append_fetched(data)

    def sync(self, store: RaftLog) -> None:
        sync(store)
        self.state = replace(self.state, synced=self.state.end_offset)

    def commit(self, store: RaftLog) -> None:
        """The quorum may be ahead of our syncs."""
        if self.random.random() < 0.5:
            self.sync(store)
        ends = [each[0] for each in self.state.batches] + [self.state.end_offset]
        self.high_watermark = max(self.high_watermark, self.random.choice(ends))
        store.set_high_watermark(self.high_watermark)

    def diverge(self, store: RaftLog) -> None:
        """Another leader has other records from somewhere on."""
        ends = [each[0] for each in self.state.batches if each[0] >= self.high_watermark]
        if ends:
            offset = self.random.choice(ends)
            self.epoch = max(self.epoch, self.state.last_epoch) + 1
            longer = self.state.sure_up_to(offset)
            kept = tuple(each for each in self.state.batches if each[0] < offset)
            with self.becoming(longer, replace(longer, batches=kept)):
                store.truncate(offset)

    def fall_behind(self, store: RaftLog) -> None:
        """A snapshot comes, of what lies ahead, or of what went another way."""
        self.epoch = max(self.epoch, self.state.last_epoch) + 1
        ahead = self.random.choice([-3, 0, 5, 50])
        self.high_watermark = end_offset = max(self.state.end_offset + ahead, self.high_watermark + 1)
        snapshot_id = SnapshotId(end_offset, self.epoch)
        anew = State(end_offset, (), end_offset, end_offset, snapshot_id, self.state.election)
        with self.becoming(self.state, anew):
            receive(store, snapshot_id, snapshot_bytes(self.epoch, [b"up to %d" % end_offset]))
            store.start_anew(snapshot_id)

    def snapshot(self, store: RaftLog) -> None:
        ends = [each for each in self.state.batches if each[0] + len(each[2]) <= self.high_watermark]
        if not ends:
            return
        base_offset, epoch, values = self.random.choice(ends)
        snapshot_id = SnapshotId(base_offset + len(values), epoch)
        if self.state.snapshot is None or snapshot_id > self.state.snapshot:
            with self.becoming(replace(self.state, snapshot=snapshot_id)):
                take_snapshot(store, snapshot_of(*snapshot_id, b"up to %d" % snapshot_id.end_offset))
            self.state = replace(self.state, synced=max(self.state.synced, snapshot_id.end_offset))
        store.clean()

    # What must be found

    def check(self, found: FoundReplica) -> None:
        candidates = (self.state, *self.others)
        problems = [self.problem(found, candidate) for candidate in candidates]
        assert None in problems, problems
        self.state = replace(
            candidates[problems.index(None)],
            batches=tuple(self.batches(found)),
            base=found.start_offset,
            written=found.end_offset,
            synced=found.end_offset,
            snapshot=found.snapshots[-1] if found.snapshots else None,
            election=found.election,
        )
        self.others = ()
        self.check_note()

    def batches(self, found: FoundReplica) -> list[Batch]:
        assert self.store is not None
        held = self.store.batches(found.start_offset, found.end_offset)
        return [(each.base_offset, each.epoch, each.values) for each in held]

    def problem(self, found: FoundReplica, candidate: State) -> str | None:
        """Why what was found is not what may be there."""
        assert self.store is not None
        floor = candidate.synced if self.has_lost_power else candidate.written
        batches = self.batches(found)
        expected = [each for each in candidate.batches if each[0] >= found.start_offset]
        if batches != expected[: len(batches)]:
            return f"{batches} is not the beginning of {expected}"
        if not floor <= found.end_offset <= candidate.end_offset:
            return f"the log ends at {found.end_offset}, not between {floor} and {candidate.end_offset}"
        if found.election != candidate.election:
            return f"{found.election} is not {candidate.election}"
        latest = found.snapshots[-1] if found.snapshots else None
        if latest != candidate.snapshot:
            return f"snapshot {latest} is not {candidate.snapshot}"
        if latest is not None:
            (value,) = self.store.read_snapshot(latest)[0].values
            assert value == b"up to %d" % latest.end_offset
        assert found.start_offset <= (latest.end_offset if latest else 0)
        firsts = {epoch: base for base, epoch, _ in reversed(batches)}
        assert dict(found.epochs) == firsts, "epochs"
        assert self.store.synced_offset == found.end_offset
        return None

    def check_note(self) -> None:
        note = CommittedOffsetNote(self.disk, NOTE, OPTIONS.directory_id)
        assert (note.offset or 0) <= self.high_watermark, "what is not committed is noted"

    def check_after_crash(self, *, power: bool) -> None:
        """Life goes on with what is left, and another start finds that."""
        self.disk.crash(power=power)
        self.has_lost_power = power
        store = self.start()
        self.follow(store)
        commit(store)
        self.high_watermark = store.end_offset
        self.state = replace(self.state, synced=self.state.end_offset)
        self.disk.crash(power=power)
        self.start().close()


def until_crash(does: Callable[[], None]) -> bool:
    try:
        does()
    except SimulatedCrash:
        return True
    return False


def new_life(seed: int, operation: int) -> Life:
    disk = new_disk(seed * 1000 + operation, sector_bytes=1 if operation % 2 else 512)
    return Life(disk, Random(seed))


@pytest.mark.parametrize("seed", SEEDS)
@pytest.mark.parametrize("power", [True, False], ids=["power loss", "killed process"])
def test_every_crash_point(seed: int, power: bool, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)
    life = new_life(seed, 0)
    life.run()
    operations = life.disk.operations
    assert operations > 150
    for operation in range(3 + seed % STRIDE, operations + 1, STRIDE):
        life = new_life(seed, operation)
        life.disk.crash_at(operation)
        try:
            died = until_crash(life.run)
            assert died or life.disk.operations < operation
            life.check_after_crash(power=power)
        except Exception as problem:
            problem.add_note(f"seed {seed}, crash in operation {operation}")
            raise


@pytest.mark.parametrize("end_offset", [20, 35, 1000], ids=["before what follows", "amid it", "beyond it"])
@pytest.mark.parametrize("power", [True, False], ids=["power loss", "killed process"])
def test_a_crash_amid_a_new_beginning(end_offset: int, power: bool, caplog: pytest.LogCaptureFixture) -> None:
    """The log is longer than the snapshot, or shorter, and the quorum left it behind."""
    caplog.set_level(logging.CRITICAL + 1)
    snapshot_id = SnapshotId(end_offset, 3)
    for operation in range(1, 400):
        disk = new_disk(operation, sector_bytes=512)
        store = RaftLog(disk, DIRECTORY, OPTIONS, InlineRuntime())
        store.open()
        store.append([b"committed"] * 5, 1)
        commit(store)
        for number in range(60):
            store.append_fetched(fetched(5 + number, 2, b"left behind" * 10))
        sync(store)
        receive(store, snapshot_id, snapshot_bytes(3, [b"state"]))
        disk.crash_at(disk.operations + operation)
        died = until_crash(partial(store.start_anew, snapshot_id))
        disk.crash(power=power)
        store = RaftLog(disk, DIRECTORY, OPTIONS, InlineRuntime())
        found = store.open()
        assert (found.start_offset, found.end_offset, found.epochs) == (end_offset, end_offset, ()), operation
        assert found.snapshots == (snapshot_id,)
        store.close()
        if not died:
            return
    raise AssertionError("it never ends")
