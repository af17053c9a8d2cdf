"""What must never happen to a Raft quorum, checked after every event, on what the event changed.

`RaftChecker` is told what replicas write to their logs, what they commit, apply and say to each other, and looks at
their machines after each of their events. What it knows is global, as nobody's knowledge in a quorum is, so it sees at
once what replicas would find out much later or never.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final, NamedTuple

from barnabas.raft.machine import RaftMachine
from barnabas.raft.states.base import RaftState
from barnabas.raft.transitions import Role
from barnabas.raft.types import OffsetAndEpoch, SnapshotId

__all__ = ["UNKNOWN_EPOCH", "BatchFact", "Invariant", "InvariantBrokenError", "RaftChecker"]


UNKNOWN_EPOCH: Final = -1
"""Of the record before a log whose beginning was deleted."""


class Invariant(Enum):
    """What must hold. The values are its name in reports."""

    ONE_LEADER = "at most one leader in an epoch"
    ONE_VOTE = "a replica votes at most once in an epoch"
    VOTES_FOR_COMPLETE_LOGS = "votes and pre-votes go only to logs that are as complete as the voter's"
    HIGHER_EPOCHS_COUNT = "who hears of a higher epoch is in it"
    VOTERS_OF_THE_LOG = "the voters are those of the newest record in the log"
    LOG_MATCHING = "logs that share a record are the same up to it"
    LEADER_COMPLETENESS = "a new leader has all that was committed before"
    COMMITTED_STAYS = "what was committed is never lost or changed"
    COMMIT_RULE = "a leader commits nothing before a record of its own epoch"
    COMMITTED_IS_SAFE = "what is committed lies synced on a majority of the voters"
    EPOCH_GROWS = "epochs only grow"
    HIGH_WATERMARK_GROWS = "high watermarks only grow, and end with the log"
    SAME_STATE = "state machines are equal at equal offsets"
    SLOW_SYNCS_MOVE_NOBODY = "slow syncs alone move no leader"
    PROGRESS = "once healed, the quorum elects a leader and commits"
    NO_FAILURE = "no replica fails but by a fault of its disk"


class InvariantBrokenError(AssertionError):
    """One of them did not hold."""

    def __init__(self, invariant: Enum, text: str) -> None:
        super().__init__(f"{invariant.value}: {text}")
        self.invariant = invariant
        self.text = text


class BatchFact(NamedTuple):
    """What identifies a batch. The checksum covers its records and their times."""

    base_offset: int
    last_offset: int
    epoch: int
    checksum: int


class Replica:
    """What is known of one replica: its log as it was written, and what it has said."""

    def __init__(self, node_id: int) -> None:
        self.node_id = node_id
        self.start_offset = 0
        self.start_epoch = 0
        self.batches: list[BatchFact] = []
        self.high_watermark = 0
        #: How many of `batches` lie below the high watermark.
        self.committed_count = 0
        #: The highest epoch that it has told anybody.
        self.told_epoch = 0
        #: The highest epoch that its present process was told.
        self.heard_epoch = 0
        self.machine: RaftMachine | None = None
        self.machine_state: RaftState | None = None
        self.machine_epoch = 0
        self.machine_high_watermark = 0

    @property
    def end_offset(self) -> int:
        return self.batches[-1].last_offset + 1 if self.batches else self.start_offset

    @property
    def last_epoch(self) -> int:
        return self.batches[-1].epoch if self.batches else self.start_epoch

    def epoch_at(self, offset: int) -> int | None:
        """The epoch of the record there; None if there is none."""
        if offset == self.start_offset - 1:
            return self.start_epoch
        for batch in reversed(self.batches):
            if batch.base_offset <= offset:
                return batch.epoch if offset <= batch.last_offset else None
        return None


@dataclass(frozen=True, slots=True)
class _Applied:
    node_id: int
    state: int


class RaftChecker:
    """See the module. `count_safe`, if given, says how many voters have a batch safe, and how many must."""

    def __init__(
        self,
        *,
        count_safe: Callable[[int, BatchFact], tuple[int, int]] | None = None,
        on_leader: Callable[[int, int], None] = lambda *_: None,
    ) -> None:
        self.replicas: dict[int, Replica] = {}
        self.leaders: dict[int, int] = {}
        self.committed: dict[int, BatchFact] = {}
        self.committed_end = 0
        self.broken: InvariantBrokenError | None = None
        self._count_safe = count_safe
        self._on_leader = on_leader
        self._batches: dict[tuple[int, int], tuple[BatchFact, int]] = {}
        self._votes: dict[tuple[int, int], int] = {}
        self._states: dict[int, _Applied] = {}
        self._committed_in: dict[int, int] = {}

    def break_(self, invariant: Invariant, text: str) -> None:
        """Take note; the run ends after the event, since drivers catch what is raised inside of one."""
        if self.broken is None:
            self.broken = InvariantBrokenError(invariant, text)

    def replica(self, node_id: int) -> Replica:
        found = self.replicas.get(node_id)
        if found is None:
            found = self.replicas[node_id] = Replica(node_id)
        return found

    # After every event

    def look_at(self, node_id: int, machine: RaftMachine) -> None:
        """Compare a machine with what it was; raise what was found in this event."""
        replica = self.replicas[node_id]
        if replica.machine is not machine:
            self._meet(replica, machine)
        if machine.epoch != replica.machine_epoch or machine.state is not replica.machine_state:
            self._look_at_state(replica, machine)
        high_watermark = machine.high_watermark
        if high_watermark != replica.machine_high_watermark:
            if high_watermark < replica.machine_high_watermark:
                self.break_(
                    Invariant.HIGH_WATERMARK_GROWS,
                    f"that of replica {node_id} fell from {replica.machine_high_watermark} to {high_watermark}",
                )
            replica.machine_high_watermark = high_watermark
        if replica.heard_epoch > machine.epoch:
            self.break_(
                Invariant.HIGHER_EPOCHS_COUNT,
                f"replica {node_id} is in epoch {machine.epoch}, but was told of {replica.heard_epoch}",
            )
        if machine.history.voter_sets.newest_offset >= machine.log.end_offset:
            self.break_(
                Invariant.VOTERS_OF_THE_LOG,
                f"replica {node_id} goes by voters of offset {machine.history.voter_sets.newest_offset}, but its log "
                f"ends at {machine.log.end_offset}",
            )
        if self.broken is not None:
            raise self.broken

    def _meet(self, replica: Replica, machine: RaftMachine) -> None:
        """A process began."""
        replica.machine = machine
        replica.machine_state = None
        replica.heard_epoch = 0
        replica.machine_epoch = machine.epoch
        replica.machine_high_watermark = machine.high_watermark
        if machine.epoch < replica.told_epoch:
            self.break_(
                Invariant.EPOCH_GROWS,
                f"replica {replica.node_id} came back in epoch {machine.epoch}, but had told of {replica.told_epoch}",
            )

    def _look_at_state(self, replica: Replica, machine: RaftMachine) -> None:
        node_id, epoch = replica.node_id, machine.epoch
        if epoch < replica.machine_epoch:
            self.break_(
                Invariant.EPOCH_GROWS, f"that of replica {node_id} fell from {replica.machine_epoch} to {epoch}"
            )
        replica.machine_epoch = epoch
        replica.machine_state = machine.state
        if machine.state.role is not Role.LEADER:
            return
        first = self.leaders.setdefault(epoch, node_id)
        if first != node_id:
            self.break_(Invariant.ONE_LEADER, f"{first} and {node_id} both lead in epoch {epoch}")
        self._on_leader(node_id, epoch)

    # The log

    def log_opened(self, node_id: int, start_offset: int, start_epoch: int, batches: Sequence[BatchFact]) -> None:
        replica = self.replica(node_id)
        replica.start_offset, replica.start_epoch = start_offset, start_epoch
        replica.batches = []
        replica.high_watermark = replica.committed_count = 0
        self.appended(node_id, batches)

    def appended(self, node_id: int, batches: Sequence[BatchFact]) -> None:
        """Each batch must be, and follow upon, what it was and followed upon wherever else it lies. By induction all
        before it is the same too."""
        replica = self.replicas[node_id]
        for batch in batches:
            if batch.base_offset != replica.end_offset:
                self.break_(
                    Invariant.LOG_MATCHING,
                    f"replica {node_id} wrote offset {batch.base_offset} at its end, {replica.end_offset}",
                )
            fact = (batch, replica.last_epoch)
            first = self._batches.setdefault((batch.base_offset, batch.epoch), fact)
            if first != fact and (first[0] != batch or UNKNOWN_EPOCH not in (first[1], fact[1])):
                self.break_(
                    Invariant.LOG_MATCHING,
                    f"replica {node_id} has {_shown(*fact)}, where another had {_shown(*first)}",
                )
            replica.batches.append(batch)

    def leads_from(self, node_id: int, epoch: int) -> None:
        """A replica is about to write the first record of its own epoch."""
        replica = self.replicas[node_id]
        needed = max((end for each, end in self._committed_in.items() if each < epoch), default=0)
        if replica.end_offset < needed:
            self.break_(
                Invariant.LEADER_COMPLETENESS,
                f"replica {node_id} leads in epoch {epoch} with a log up to {replica.end_offset}; "
                f"all before {needed} was committed",
            )
            return
        if needed > replica.start_offset:
            committed = self._committed_at(needed - 1)
            found = replica.epoch_at(needed - 1)
            if committed is not None and found != committed.epoch:
                self.break_(
                    Invariant.LEADER_COMPLETENESS,
                    f"replica {node_id} leads in epoch {epoch} with a record of epoch {found} at {needed - 1}, "
                    f"where one of epoch {committed.epoch} was committed",
                )

    def truncated(self, node_id: int, offset: int) -> None:
        replica = self.replicas[node_id]
        if offset < replica.high_watermark:
            self.break_(
                Invariant.COMMITTED_STAYS,
                f"replica {node_id} cut its log at {offset}, below its high watermark {replica.high_watermark}",
            )
        while replica.batches and replica.batches[-1].last_offset >= offset:
            replica.batches.pop()
        replica.committed_count = min(replica.committed_count, len(replica.batches))

    def started_anew(self, node_id: int, snapshot: SnapshotId) -> None:
        replica = self.replicas[node_id]
        replica.start_offset, replica.start_epoch = snapshot
        replica.batches = []
        replica.committed_count = 0
        self._check_snapshot(node_id, snapshot)
        replica.high_watermark = max(replica.high_watermark, snapshot.end_offset)

    def cleaned(self, node_id: int, start_offset: int) -> None:
        """The log before an offset was deleted."""
        replica = self.replicas[node_id]
        count = 0
        for batch in replica.batches:
            if batch.last_offset >= start_offset:
                break
            replica.start_offset, replica.start_epoch = batch.last_offset + 1, batch.epoch
            count += 1
        if count:
            del replica.batches[:count]
            replica.committed_count = max(replica.committed_count - count, 0)

    def _check_snapshot(self, node_id: int, snapshot: SnapshotId) -> None:
        committed = self._committed_at(snapshot.end_offset - 1)
        if committed is None or committed.epoch != snapshot.epoch or committed.last_offset != snapshot.end_offset - 1:
            self.break_(
                Invariant.COMMITTED_STAYS,
                f"replica {node_id} loaded the snapshot {snapshot.file_name}, but committed there is {committed}",
            )

    def _committed_at(self, offset: int) -> BatchFact | None:
        for base_offset in range(offset, -1, -1):
            found = self.committed.get(base_offset)
            if found is not None:
                return found if found.last_offset >= offset else None
        return None

    # Commits

    def committed_up_to(self, node_id: int, high_watermark: int, epoch: int) -> None:
        """A replica takes all before an offset for committed."""
        replica = self.replicas[node_id]
        if high_watermark < replica.high_watermark:
            return  # of an owner's view, after a restart; the machine's own is looked at elsewhere
        if high_watermark > replica.end_offset:
            self.break_(
                Invariant.HIGH_WATERMARK_GROWS,
                f"that of replica {node_id} is {high_watermark}, but its log ends at {replica.end_offset}",
            )
        replica.high_watermark = high_watermark
        before = self.committed_end
        batches, count = replica.batches, replica.committed_count
        while count < len(batches) and batches[count].last_offset < high_watermark:
            self._commit(node_id, batches[count])
            count += 1
        replica.committed_count = count
        if self.committed_end > before and batches[count - 1].epoch != epoch:
            self.break_(
                Invariant.COMMIT_RULE,
                f"replica {node_id} commits offset {high_watermark - 1} of epoch {batches[count - 1].epoch} first, and "
                f"it is in epoch {epoch}",
            )
        self._committed_in[epoch] = max(self._committed_in.get(epoch, 0), high_watermark)

    def _commit(self, node_id: int, batch: BatchFact) -> None:
        first = self.committed.get(batch.base_offset)
        if first is not None:
            if first != batch:
                self.break_(
                    Invariant.COMMITTED_STAYS, f"replica {node_id} commits {batch}, where {first} was committed"
                )
            return
        if batch.base_offset != self.committed_end:
            self.break_(
                Invariant.COMMITTED_STAYS,
                f"replica {node_id} commits {batch}, where {self.committed_end} is the next offset to be committed",
            )
        self.committed[batch.base_offset] = batch
        self.committed_end = batch.last_offset + 1
        if self._count_safe is not None:
            safe, needed = self._count_safe(node_id, batch)
            if safe < needed:
                self.break_(
                    Invariant.COMMITTED_IS_SAFE,
                    f"replica {node_id} commits {batch}, which is safe on {safe} voters only, of {needed}",
                )

    def applied(self, node_id: int, end_offset: int, state: int) -> None:
        """The state machine of a replica is in this state after all before an offset."""
        first = self._states.get(end_offset)
        if first is None:
            self._states[end_offset] = _Applied(node_id, state)
        elif first.state != state:
            self.break_(
                Invariant.SAME_STATE,
                f"after offset {end_offset - 1} that of replica {node_id} is {state:08x}, that of {first.node_id} was "
                f"{first.state:08x}",
            )

    # Words

    def voted(self, node_id: int, epoch: int, candidate: int) -> None:
        first = self._votes.setdefault((node_id, epoch), candidate)
        if first != candidate:
            self.break_(Invariant.ONE_VOTE, f"replica {node_id} voted for {first} and for {candidate} in epoch {epoch}")

    def granted(self, node_id: int, own: OffsetAndEpoch, candidate: int, last: OffsetAndEpoch) -> None:
        """A vote or a pre-vote was granted by a replica whose log ended there."""
        if (last.epoch, last.offset) < (own.epoch, own.offset):
            self.break_(
                Invariant.VOTES_FOR_COMPLETE_LOGS,
                f"replica {node_id}, whose log ends at {own.offset} with epoch {own.epoch}, would elect "
                f"{candidate}, whose log ends at {last.offset} with epoch {last.epoch}",
            )

    def heard_epoch(self, node_id: int, epoch: int) -> None:
        """A replica is about to be told of an epoch, by somebody who is in it."""
        replica = self.replicas[node_id]
        replica.heard_epoch = max(replica.heard_epoch, epoch)

    def forgot(self, node_id: int) -> None:
        """A replica has another disk, so it is another."""
        self.replica(node_id).told_epoch = 0

    def told_epoch(self, node_id: int, epoch: int) -> None:
        replica = self.replicas[node_id]
        replica.told_epoch = max(replica.told_epoch, epoch)


def _shown(batch: BatchFact, epoch_before: int) -> str:
    return (
        f"offsets {batch.base_offset} to {batch.last_offset} of epoch {batch.epoch} (checksum {batch.checksum:08x}) "
        f"after a record of epoch {epoch_before}"
    )
