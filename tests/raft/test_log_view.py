"""What the machine knows of its log, against a list of the epochs of all records that there ever were."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from barnabas.base.errors import InvariantError
from barnabas.raft.log_view import Divergence, LogView, SnapshotNeeded
from barnabas.raft.types import OffsetAndEpoch, SnapshotId


class NaiveLog:
    """The epoch of each record from offset 0 on, also of those that are forgotten."""

    def __init__(self, epochs: list[int]) -> None:
        self.epochs = epochs
        self.start = 0

    def last_epoch_before(self, offset: int) -> int:
        return self.epochs[offset - 1] if offset else 0

    def end_offset_for_epoch(self, epoch: int) -> OffsetAndEpoch:
        """Count back from the end, record by record."""
        for offset in range(len(self.epochs), self.start, -1):
            if self.epochs[offset - 1] <= epoch:
                return OffsetAndEpoch(offset, self.epochs[offset - 1])
        return OffsetAndEpoch(self.start, self.last_epoch_before(self.start))


class LogViewComparison(RuleBasedStateMachine):
    """Whatever is done to a log, both say the same of it."""

    def __init__(self) -> None:
        super().__init__()
        self.view = LogView(0, 0, [], [])
        self.naive = NaiveLog([])
        self.snapshots: list[SnapshotId] = []

    @rule(count=st.integers(1, 4), epoch_step=st.sampled_from([0, 0, 1, 3]))
    def append(self, count: int, epoch_step: int) -> None:
        epoch = max(1, self.naive.last_epoch_before(len(self.naive.epochs)) + epoch_step)
        end = len(self.naive.epochs)
        self.view.append(end, end + count - 1, epoch)
        self.naive.epochs += [epoch] * count

    @rule(data=st.data())
    def truncate(self, data: st.DataObject) -> None:
        # What is committed is not cut off, and only what is committed goes into a snapshot.
        lowest = max([0, *(each.end_offset for each in self.snapshots)])
        offset = data.draw(st.integers(lowest, len(self.naive.epochs)))
        self.view.truncate(offset)
        del self.naive.epochs[offset:]

    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        self.view.synced_offset = data.draw(st.integers(0, len(self.naive.epochs)))

    @precondition(lambda self: self.naive.epochs)
    @rule(data=st.data())
    def add_snapshot(self, data: st.DataObject) -> None:
        lowest = max([1, *(each.end_offset for each in self.snapshots)])
        end_offset = data.draw(st.integers(lowest, len(self.naive.epochs)))
        snapshot = SnapshotId(end_offset, self.naive.last_epoch_before(end_offset))
        self.view.add_snapshot(snapshot)
        if snapshot not in self.snapshots:
            self.snapshots.append(snapshot)

    @precondition(lambda self: self.snapshots)
    @rule(data=st.data())
    def advance_start(self, data: st.DataObject) -> None:
        snapshot = data.draw(st.sampled_from(self.snapshots))
        self.view.advance_start(snapshot.end_offset)
        self.naive.start = max(self.naive.start, snapshot.end_offset)
        self.snapshots = [each for each in self.snapshots if each.end_offset >= self.naive.start]

    @rule(ahead=st.integers(0, 5), epoch_step=st.integers(0, 2))
    def start_anew(self, ahead: int, epoch_step: int) -> None:
        end = len(self.naive.epochs)
        epoch = max(1, self.naive.last_epoch_before(end) + epoch_step)
        snapshot = SnapshotId(end + ahead + 1, epoch)
        self.view.start_anew(snapshot)
        self.naive.epochs += [epoch] * (ahead + 1)
        self.naive.start = snapshot.end_offset
        self.snapshots = [snapshot]

    @invariant()
    def both_say_the_same(self) -> None:
        view, naive = self.view, self.naive
        end = len(naive.epochs)
        assert (view.start_offset, view.end_offset) == (naive.start, end)
        assert view.end == OffsetAndEpoch(end, naive.last_epoch_before(end))
        assert view.synced_offset <= view.end_offset
        assert view.snapshots == self.snapshots
        for offset in range(naive.start, end):
            assert view.epoch_of(offset) == naive.epochs[offset]
        for epoch in range(naive.last_epoch_before(end) + 2):
            assert view.end_offset_for_epoch(epoch) == naive.end_offset_for_epoch(epoch)
        for offset in range(naive.start, end + 1):
            epoch = naive.last_epoch_before(offset)
            # As Kafka: who is not even in the epoch of the oldest snapshot loads the newest, though the log goes back.
            is_old = bool(self.snapshots) and offset > 0 and epoch < self.snapshots[0].epoch
            assert view.validate(offset, epoch) == (SnapshotNeeded(self.snapshots[-1]) if is_old else None)


TestLogView = LogViewComparison.TestCase
TestLogView.settings = settings(max_examples=80, stateful_step_count=30, deadline=None)


# Repair


def view_of(epochs: list[int], start: int = 0) -> LogView:
    entries: list[tuple[int, int]] = []
    for offset, epoch in enumerate(epochs):
        if offset >= start and (not entries or entries[-1][0] != epoch):
            entries.append((epoch, offset))
    snapshots = [SnapshotId(start, epochs[start - 1])] if start else []
    return LogView(start, len(epochs), entries, snapshots)


@dataclass
class TwoLogs:
    """A leader's and a follower's, as Raft can leave them: the same up to `common`, and with no epoch that began in
    both of them after it."""

    leader: list[int]
    leader_start: int
    follower: list[int]
    common: int


@st.composite
def two_logs(draw: st.DrawFn) -> TwoLogs:
    epochs = draw(st.lists(st.integers(1, 20), unique=True, max_size=6).map(sorted))
    leader = [epoch for epoch in epochs for _ in range(draw(st.integers(1, 4)))]
    common = draw(st.integers(0, len(leader)))
    follower = leader[:common]
    at_a_boundary = common == len(leader) or (common > 0 and leader[common] != leader[common - 1])
    if common and at_a_boundary:
        # The leader of that epoch wrote more, which got nowhere else.
        follower += [leader[common - 1]] * draw(st.integers(0, 3))
    last = follower[-1] if follower else 0
    others = [epoch for epoch in range(last + 1, 25) if epoch not in epochs]
    for epoch in sorted(draw(st.lists(st.sampled_from(others), unique=True, max_size=3))):
        follower += [epoch] * draw(st.integers(1, 4))
    if len(follower) > common and common < len(leader) and follower[common] == leader[common]:
        common += 1
    start = draw(st.integers(0, len(leader)))
    return TwoLogs(leader, start, follower, common)


@settings(max_examples=500, deadline=None)
@given(two_logs())
def test_a_log_that_diverged_is_repaired_and_loses_nothing_that_both_have(logs: TwoLogs) -> None:
    leader, follower, naive = view_of(logs.leader, logs.leader_start), view_of(logs.follower), list(logs.follower)
    for _ in range(len(logs.follower) + 1):
        verdict = leader.validate(follower.end_offset, follower.last_epoch)
        if not isinstance(verdict, Divergence):
            break
        offset = follower.truncation_offset(verdict.end)
        assert min(logs.common, logs.leader_start) <= offset < follower.end_offset
        if logs.common >= logs.leader_start:
            assert offset >= logs.common
        follower.truncate(offset)
        del naive[offset:]
    if isinstance(verdict, SnapshotNeeded):
        # Only who has not all that the leader has forgotten.
        assert logs.common < logs.leader_start
        assert verdict.snapshot_id == SnapshotId(logs.leader_start, logs.leader[logs.leader_start - 1])
    else:
        assert verdict is None
        assert naive == logs.leader[: len(naive)]
        assert len(naive) >= logs.leader_start


def test_what_does_not_follow_is_refused() -> None:
    view = view_of([1, 1, 3])
    with pytest.raises(InvariantError, match="does not follow the end 3"):
        view.append(4, 4, 3)
    with pytest.raises(InvariantError, match="epoch 2 comes after one of epoch 3"):
        view.append(3, 3, 2)


def test_snapshots_from_before_the_log_count_for_nothing() -> None:
    """A stop between forgetting the log and its older snapshot leaves the latter behind; whoever has loaded the newer
    one follows on from there, and need not load it again for ever."""
    view = LogView(15, 16, [(8, 15)], [SnapshotId(12, 2), SnapshotId(15, 6)])
    assert view.validate(15, 6) is None
    view.add_snapshot(SnapshotId(13, 2))
    assert view.snapshots == [SnapshotId(15, 6)]
