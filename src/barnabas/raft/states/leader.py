"""Leader: appends, answers fetches, and counts how far a majority has followed."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import inf
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord
from barnabas.raft.effects import Answer, AnswerFetch, Append, AppendControl, ReplyTo, SyncLog, VotersChanged
from barnabas.raft.log_view import Divergence, SnapshotNeeded
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResult,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    RaftRequest,
    Vote,
)
from barnabas.raft.states.base import RaftState
from barnabas.raft.transitions import Role
from barnabas.raft.types import LeaderAndEpoch, LossCause, ReplicaKey, SnapshotId
from barnabas.raft.voters import STATIC_VOTERS, VoterSet
from barnabas.records.control import ControlType
from barnabas.wire.stored.control_records import LeaderChangeMessage
from barnabas.wire.stored.control_records import Voter as VoterInRecord

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine

#: How long, at most, a snapshot and the log behind it are kept for somebody who loads them.
MAX_LOADING_MS: Final = 600_000
#: An observer that has not fetched for so long is forgotten.
OBSERVER_SESSION_MS: Final = 300_000


@dataclass(slots=True)
class ReplicaProgress:
    """How far a replica has followed, by its own word: all before `end_offset` is synced there."""

    end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int = -1


@dataclass(slots=True)
class ParkedFetch:
    """A fetch of somebody who has everything, kept until there is more."""

    reply_to: ReplyTo
    fetch: FetchLog
    deadline_ms: int


@dataclass(slots=True)
class SnapshotLoad:
    """A snapshot that a replica is fetching, or has fetched, and the log behind it not yet."""

    snapshot_id: SnapshotId
    began_ms: int


@dataclass(slots=True)
class PendingVoterChange:
    """A voter set that is in the log and not committed yet."""

    token: object
    offset: int


class Leader(RaftState):
    """`epoch_start_offset` is where the records of this epoch begin: only once one of them is on a majority is
    anything committed, also of what earlier leaders wrote."""

    role = Role.LEADER

    def __init__(self, machine: RaftMachine, now_ms: int, granting: Sequence[ReplicaKey]) -> None:
        super().__init__(machine)
        self.leader_id = machine.key.node_id
        self.leader_address = machine.own_address
        self.epoch_start_offset = machine.log.end_offset
        self._granting = granting
        self._started_ms = now_ms
        self.progress: dict[ReplicaKey, ReplicaProgress] = {}
        # By node: the replica of it that was heard of last.
        self._newest: dict[int, ReplicaProgress] = {}
        self._parked: dict[ReplicaKey, ParkedFetch] = {}
        self._loads: dict[ReplicaKey, SnapshotLoad] = {}
        self.pending_change: PendingVoterChange | None = None
        self._begin_at_ms: float = now_ms
        # When to look whether a majority is silent. Each fetch moves that on, so it may be too early, never too late.
        self._check_at_ms: float = inf
        self._being_told: set[int] = set()
        #: Told that it leads, once all before its epoch is committed here.
        self.is_ready = False
        self._as_leader = LeaderAndEpoch(machine.key.node_id, machine.epoch)
        self._usual_result = self._result()

    def enter(self, now_ms: int) -> None:
        machine = self.machine
        # Version 1 would name directories too, but an Apache Kafka 4 reads every such record as version 0, and dies.
        message = LeaderChangeMessage(
            version=0,
            leader_id=machine.key.node_id,
            voters=[VoterInRecord(voter_id=each) for each in machine.voters.ids],
            granting_voters=[VoterInRecord(voter_id=each.node_id) for each in self._granting],
        )
        records = [ControlRecord(ControlType.LEADER_CHANGE, message)]
        if machine.kraft_version != STATIC_VOTERS and machine.log.end_offset == 0:
            # They are known from the snapshot that the quorum was formatted with; others learn of them by the log.
            records += machine.history.records_before(machine.log.end_offset)
        self.append_control(records)
        self._begin_epoch(now_ms)

    def leave(self) -> None:
        leader = LeaderAndEpoch(self.machine.state.leader_id, self.machine.epoch)
        for parked in self._parked.values():
            self.machine.emit(Answer(parked.reply_to, FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, leader)))
        self._parked.clear()
        if self.pending_change is not None:
            # It may still be committed by the next leader: its fate is unknown.
            self._end_change(ErrorCode.NOT_LEADER_OR_FOLLOWER, "leadership was lost before the change was committed")

    def grants(self, vote: Vote, *, is_up_to_date: bool) -> bool:
        """It lives, and knows it: a follower that missed it for a while must not end its epoch."""
        return False

    @property
    def deadline_ms(self) -> float:
        deadline_ms = self._begin_at_ms
        if self._check_at_ms < deadline_ms:
            deadline_ms = self._check_at_ms
        for parked in self._parked.values():
            if parked.deadline_ms < deadline_ms:
                deadline_ms = parked.deadline_ms
        return deadline_ms

    def tick(self, now_ms: int) -> None:
        if now_ms >= self._check_at_ms:
            self._check_at_ms = self._quorum_deadline_ms()
            if now_ms >= self._check_at_ms:
                self.machine.lost_leader(LossCause.UNHEARD, self.machine.options.check_quorum_ms)
                self.machine.become_resigned(now_ms)
                return
        for key, parked in list(self._parked.items()):
            if now_ms >= parked.deadline_ms:
                del self._parked[key]
                self._answer(parked.reply_to, parked.fetch)
        if now_ms >= self._begin_at_ms:
            self._begin_epoch(now_ms)

    # Who hears us, whom we hear

    def _quorum_deadline_ms(self) -> float:
        """When a majority will have been silent for too long; never where there is nobody to hear from."""
        machine = self.machine
        heard = sorted(
            (self._last_fetch_ms(each.key) for each in machine.voters if each.key.node_id != machine.key.node_id),
            reverse=True,
        )
        needed = machine.voters.majority - (1 if machine.is_voter else 0)
        if needed <= 0 or not heard:
            return inf
        return heard[needed - 1] + machine.options.check_quorum_ms

    def _last_fetch_ms(self, voter: ReplicaKey) -> int:
        progress = self.progress_of(voter)
        return self._started_ms if progress is None else progress.last_fetch_ms

    def _begin_epoch(self, now_ms: int) -> None:
        """Tell those voters of this epoch that do not fetch."""
        machine = self.machine
        interval_ms = max(1, machine.options.fetch_timeout_ms // 2)
        self._begin_at_ms = now_ms + interval_ms
        for voter in machine.voters:
            node_id = voter.key.node_id
            progress = self.progress_of(voter.key)
            is_silent = progress is None or now_ms - progress.last_fetch_ms >= interval_ms
            if node_id != machine.key.node_id and is_silent and node_id not in self._being_told:
                self._being_told.add(node_id)
                request = BeginQuorumEpoch(
                    machine.cluster_id, machine.epoch, machine.key.node_id, voter.key, machine.listeners
                )
                machine.send(machine.address_of(voter), request)
        self._forget_observers(now_ms)

    def _forget_observers(self, now_ms: int) -> None:
        for key, progress in list(self.progress.items()):
            if now_ms - progress.last_fetch_ms > OBSERVER_SESSION_MS and not self.machine.voters.is_voter(key):
                del self.progress[key]
                if self._newest.get(key.node_id) is progress:
                    del self._newest[key.node_id]

    def on_epoch_result(self, request: BeginQuorumEpoch | EndQuorumEpoch, result: EpochResult, now_ms: int) -> None:
        if request.voter is not None:
            self._being_told.discard(request.voter.node_id)

    def on_no_result(self, request: RaftRequest, now_ms: int) -> None:
        if isinstance(request, BeginQuorumEpoch) and request.voter is not None:
            self._being_told.discard(request.voter.node_id)

    # Appending

    def append(self, values: Sequence[bytes]) -> int:
        machine = self.machine
        log, epoch = machine.log, machine.epoch
        base_offset = log.end_offset
        last_offset = base_offset + len(values) - 1
        log.append(base_offset, last_offset, epoch)
        machine.emit(Append(base_offset, values, epoch))
        if machine.is_safe_when_written and machine.voters.majority > 1:
            # Nothing can be committed by that alone: somebody else must have fetched it, and so it must be written.
            log.synced_offset = log.end_offset
        else:
            machine.emit(SyncLog())
        self._answer_parked()
        return last_offset

    def append_control(self, records: Sequence[ControlRecord]) -> int:
        machine = self.machine
        base_offset = machine.log.end_offset
        last_offset = base_offset + len(records) - 1
        machine.log.append(base_offset, last_offset, machine.epoch)
        for place, record in enumerate(records):
            machine.history.replay(base_offset + place, record)
        self._check_at_ms = self._quorum_deadline_ms()
        machine.emit(AppendControl(base_offset, records, machine.epoch))
        machine.emit(SyncLog())
        self._answer_parked()
        return last_offset

    def _answer_parked(self) -> None:
        if self._parked:
            parked, self._parked = self._parked, {}
            for each in parked.values():
                self._answer(each.reply_to, each.fetch)

    # Fetches

    def on_fetch(self, fetch: FetchLog, reply_to: ReplyTo, now_ms: int) -> None:
        machine = self.machine
        progress = self.heard_of(fetch.replica, now_ms)
        superseded = self._parked.pop(fetch.replica, None)
        if superseded is not None:
            self._answer(superseded.reply_to, superseded.fetch)
        verdict = machine.log.validate(fetch.offset, fetch.last_fetched_epoch)
        if isinstance(verdict, Divergence):
            machine.emit(Answer(reply_to, self._result(diverging=verdict)))
            return
        if isinstance(verdict, SnapshotNeeded):
            self._loads.pop(fetch.replica, None)
            machine.emit(Answer(reply_to, self._result(snapshot=verdict)))
            return
        progress.end_offset = fetch.offset
        if fetch.offset == machine.log.end_offset:
            progress.last_caught_up_ms = now_ms
        if self._loads and (latest := machine.log.latest_snapshot) and fetch.offset >= latest.end_offset:
            self._loads.pop(fetch.replica, None)
        if fetch.offset > machine.high_watermark:
            self.advance(now_ms)
            if machine.state is not self:
                machine.emit(Answer(reply_to, machine.not_leader()))
                return
        has_news = fetch.offset < machine.log.end_offset or fetch.high_watermark < machine.high_watermark
        if has_news or fetch.max_wait_ms <= 0:
            self._answer(reply_to, fetch)
        else:
            self._parked[fetch.replica] = ParkedFetch(reply_to, fetch, now_ms + fetch.max_wait_ms)

    def heard_of(self, replica: ReplicaKey, now_ms: int) -> ReplicaProgress:
        """It fetches, the log or a snapshot, so it lives."""
        progress = self.progress.get(replica)
        if progress is None:
            progress = self.progress[replica] = ReplicaProgress(-1, now_ms)
        progress.last_fetch_ms = now_ms
        self._newest[replica.node_id] = progress
        return progress

    def on_fetch_snapshot(self, fetch: FetchSnapshot, now_ms: int) -> None:
        """Somebody loads a snapshot that is here."""
        load = self._loads.get(fetch.replica)
        if load is None or load.snapshot_id != fetch.snapshot_id:
            self._loads[fetch.replica] = SnapshotLoad(fetch.snapshot_id, now_ms)

    def snapshots_in_use(self, now_ms: int) -> frozenset[SnapshotId]:
        """Those that must stay, with the log behind them: if newer ones came faster than one can be loaded, whoever has
        to load one would never end. Who falls silent, or takes all too long, is not waited for."""
        silence_ms = self.machine.options.fetch_timeout_ms
        for key, load in list(self._loads.items()):
            progress = self.progress.get(key)
            is_silent = progress is None or now_ms - progress.last_fetch_ms > silence_ms
            if is_silent or now_ms - load.began_ms > MAX_LOADING_MS:
                del self._loads[key]
        return frozenset(each.snapshot_id for each in self._loads.values())

    def _answer(self, reply_to: ReplyTo, fetch: FetchLog) -> None:
        machine, result, max_bytes = self.machine, self._usual_result, fetch.max_bytes
        if result.high_watermark != machine.high_watermark or result.log_start_offset != machine.log.start_offset:
            # Followers who keep up are all told the same.
            result = self._usual_result = self._result()
        if max_bytes <= 0:
            machine.emit(Answer(reply_to, result))
        else:
            machine.emit(AnswerFetch(reply_to, result, fetch.offset, max_bytes))

    def _result(self, diverging: Divergence | None = None, snapshot: SnapshotNeeded | None = None) -> FetchResult:
        machine = self.machine
        return FetchResult(
            ErrorCode.NONE,
            self._as_leader,
            self.leader_address,
            machine.high_watermark,
            machine.log.start_offset,
            None if diverging is None else diverging.end,
            None if snapshot is None else snapshot.snapshot_id,
        )

    # Committing

    def on_synced(self, now_ms: int) -> None:
        self.advance(now_ms)

    def advance(self, now_ms: int) -> None:
        """Commit what a majority of the newest voter set has synced, as soon as a record of this epoch is in it."""
        machine = self.machine
        voters = machine.voters
        offset = self._majority_offset(voters)
        if offset <= self.epoch_start_offset or offset <= machine.high_watermark:
            return
        machine.advance_high_watermark(offset)
        if not self.is_ready:
            self.is_ready = True
            self.machine.loss = None
            machine.tell_leader()
        if self._parked:
            self._answer_who_knows_less(offset)
        if self.pending_change is not None or not voters.is_voter(machine.key):
            self._finish_change(now_ms)

    def _majority_offset(self, voters: VoterSet) -> int:
        own = self.machine.key
        own_id = own.node_id if voters.is_voter(own) else -1
        ends = []
        for voter in voters:
            key = voter.key
            if key.node_id == own_id:
                ends.append(self.machine.log.synced_offset)
            else:
                progress = self.progress_of(key)
                ends.append(-1 if progress is None else progress.end_offset)
        ends.sort(reverse=True)
        return ends[voters.majority - 1] if ends else -1

    def progress_of(self, voter: ReplicaKey) -> ReplicaProgress | None:
        """How far a voter is. Replicas tell their directory; a voter set without directories knows them by id alone."""
        progress = self.progress.get(voter)
        if progress is not None or voter.directory_id != Uuid.ZERO:
            return progress
        return self._newest.get(voter.node_id)

    def _answer_who_knows_less(self, high_watermark: int) -> None:
        """A follower hears of a new high watermark at once (KIP-1166)."""
        for key, parked in list(self._parked.items()):
            if parked.fetch.high_watermark < high_watermark:
                del self._parked[key]
                self._answer(parked.reply_to, parked.fetch)

    # Changes of the voters

    def _finish_change(self, now_ms: int) -> None:
        change = self.pending_change
        if change is not None and change.offset < self.machine.high_watermark:
            self._end_change(ErrorCode.NONE)
        if not self.machine.is_voter and self.machine.history.voter_sets.newest_offset < self.machine.high_watermark:
            # Its own removal is committed, which was its last duty.
            self.machine.become_resigned(now_ms)

    def _end_change(self, error: ErrorCode, reason: str = "") -> None:
        change, self.pending_change = self.pending_change, None
        if change is not None:
            self.machine.emit(VotersChanged(change.token, error, reason))

    def successors(self) -> tuple[ReplicaKey, ...]:
        """The other voters, the one that is furthest first."""
        keys = [each.key for each in self.machine.voters if each.key.node_id != self.machine.key.node_id]

        def behind(key: ReplicaKey) -> tuple[int, int]:
            progress = self.progress_of(key)
            return (-progress.end_offset if progress is not None else 1, key.node_id)

        return tuple(sorted(keys, key=behind))
