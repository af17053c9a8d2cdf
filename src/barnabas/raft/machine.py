"""The machine: one replica of a quorum, without clock, files or sockets.

It is told what happened and when (`receive`, `receive_result`, `synced`, `tick` …), and `take_effects` says what should
be done about it. Its states are in `states`, the table of their transitions in `transitions`; what is here holds
through all of them: the epoch, the vote, the log, the high watermark.

What must hold, whatever happens:
- In an epoch a replica votes at most once, and says so only when it cannot forget it.
- In an epoch at most one replica leads, and only it appends.
- Two logs that have a record of one epoch at one offset are the same up to there.
- What is committed is in the log of every later leader.
- Epoch and high watermark never fall.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from random import Random
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, InvariantError, check
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.raft.batches import ControlRecord, read_batch
from barnabas.raft.effects import (
    Answer,
    AnswerFetchSnapshot,
    Commit,
    Effect,
    ReplyTo,
    SaveElection,
    Send,
    StartAnew,
    TellLeader,
)
from barnabas.raft.log_view import LogView
from barnabas.raft.messages import (
    BeginQuorumEpoch,
    EndQuorumEpoch,
    EpochResult,
    FetchLog,
    FetchResult,
    FetchSnapshot,
    FetchSnapshotResult,
    RaftRequest,
    RaftResult,
    UpdateVoter,
    Vote,
    VoteResult,
)
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import FoundReplica
from barnabas.raft.states.base import RaftState
from barnabas.raft.states.candidate import Candidate
from barnabas.raft.states.follower import Follower
from barnabas.raft.states.leader import Leader
from barnabas.raft.states.prospective import Prospective
from barnabas.raft.states.resigned import Resigned
from barnabas.raft.states.unattached import Unattached
from barnabas.raft.transitions import check_transition
from barnabas.raft.types import (
    NO_LEADER_ID,
    Address,
    ElectionState,
    LeaderAndEpoch,
    LeaderLoss,
    LossCause,
    OffsetAndEpoch,
    ReplicaKey,
    SnapshotId,
)
from barnabas.raft.voter_changes import update_voter
from barnabas.raft.voters import STATIC_VOTERS, QuorumHistory, Voter, VoterSet
from barnabas.records.batch import BatchView

_log = logger("barnabas.raft")

#: How long those who saw the leader's process go wait, at most, before they ask for votes: a share of the timeout.
_MOMENT: Final = 0.05


class RaftMachine:
    """See the module. `now_ms` is a clock that never goes back."""

    def __init__(
        self,
        key: ReplicaKey,
        found: FoundReplica,
        *,
        cluster_id: str | None,
        static_voters: VoterSet | None,
        bootstrap: Sequence[Address] = (),
        listeners: Mapping[str, Address],
        options: QuorumOptions,
        randomness: Random,
        is_never_voter: bool = False,
        listener_name: str | None = None,
    ) -> None:
        """`static_voters` are those of the settings, where the log names none; `bootstrap` are addresses at which a
        leader may be asked for; `listeners` are this replica's own. Of several of a peer, it uses that which is called
        `listener_name`, or like the first of its own. `is_never_voter` spares an observer its syncs."""
        self.key = key
        self.cluster_id = cluster_id
        self.listeners = listeners
        self.listener_name = listener_name or next(iter(listeners), None)
        self.options = options
        self._is_never_voter = is_never_voter
        #: Effects are done in their order: whatever is said after an append is said when that was written.
        self.is_safe_when_written = found.is_safe_when_written
        self._bootstrap = tuple(bootstrap)
        self._randomness = randomness
        self._effects: list[Effect] = []
        self._searches = 0
        self.log = LogView(found.start_offset, found.end_offset, found.epochs, found.snapshots)
        self.history = QuorumHistory(static_voters)
        for offset, record in found.controls:
            self.history.replay(offset, record)
        #: All before it is committed, as far as this replica knows.
        self.high_watermark = self._committed_when(found)
        election = found.election or ElectionState(0)
        self.epoch = max(election.epoch, self.log.last_epoch)
        #: Whom this replica voted for in this epoch.
        self.voted = election.voted if election.epoch == self.epoch else None
        if election.epoch == self.epoch and election.leader_id == key.node_id:
            self.voted = key
        self._saved = found.election
        self._told = LeaderAndEpoch(NO_LEADER_ID, self.epoch)
        self._leader_before = election.leader_id if election.epoch == self.epoch else NO_LEADER_ID
        # Whoever led in this epoch does not any more, by its own word; others may still tell of it.
        self._ended_epoch = -1
        self.is_stopping = False
        #: Whose process was seen to end while it led; None once another leads, or that one is heard of again.
        self.gone_leader_id: int | None = None
        #: How the leader was lost that this replica heard of last; None while it hears of one, or leads itself. Nothing
        #: is decided by it: it is there to be told.
        self.loss: LeaderLoss | None = None
        self.state: RaftState = Unattached(self, 0)

    def _committed_when(self, found: FoundReplica) -> int:
        """What is committed of a log that was found: all of it, where nobody else has a say."""
        if self.is_voter and len(self.voters) == 1:
            return found.end_offset
        latest = self.log.latest_snapshot
        return max(found.committed_offset, latest.end_offset if latest is not None else 0)

    # What is known

    @property
    def voters(self) -> VoterSet:
        """The newest set in the log, committed or not."""
        return self.history.voter_sets.newest

    @property
    def kraft_version(self) -> int:
        return self.history.kraft_versions.newest

    @property
    def is_voter(self) -> bool:
        return self.voters.is_voter(self.key)

    @property
    def may_lead(self) -> bool:
        """Whether to ask for votes: as a voter, or as one whose removal is not committed. Perhaps nobody else has the
        record of that, and we do not vote for a shorter log; so we lead once more, and resign when it is committed."""
        return self.is_voter or self.history.voter_sets.before(self.high_watermark).is_voter(self.key)

    @property
    def leader(self) -> LeaderAndEpoch:
        return LeaderAndEpoch(self.state.leader_id, self.epoch)

    @property
    def deadline_ms(self) -> float:
        """When `tick` has something to do."""
        return self.state.deadline_ms

    def take_effects(self) -> list[Effect]:
        """What should be done, in this order, since the last call."""
        effects, self._effects = self._effects, []
        return effects

    # What happens to it

    def start(self, now_ms: int) -> None:
        """Begin where the last run ended. A sole voter leads at once."""
        if self.is_voter and len(self.voters) == 1:
            self.state = Unattached(self, now_ms, election_in_ms=0)
            self.become_prospective(now_ms)
            return
        leader = self.voters.get(self._leader_before)
        if leader is not None and leader.key.node_id != self.key.node_id:
            self.state = Follower(self, now_ms, leader.key.node_id, self.address_of(leader))
        else:
            # Whoever led when it stopped does not go on: it cannot know what happened since.
            self.state = Unattached(self, now_ms)
        self._save()
        self.tell_leader()
        self.state.enter(now_ms)

    def tick(self, now_ms: int) -> None:
        if now_ms >= self.state.deadline_ms:
            self.state.tick(now_ms)

    def receive(self, request: RaftRequest, reply_to: ReplyTo, now_ms: int) -> None:
        """A request of a peer; it is answered now or later."""
        if isinstance(request, FetchLog):
            self._on_fetch(request, reply_to, now_ms)
        elif isinstance(request, Vote):
            self.emit(Answer(reply_to, self._on_vote(request, now_ms)))
        elif isinstance(request, BeginQuorumEpoch):
            self.emit(Answer(reply_to, self._on_begin_epoch(request, now_ms)))
        elif isinstance(request, EndQuorumEpoch):
            self.emit(Answer(reply_to, self._on_end_epoch(request, now_ms)))
        elif isinstance(request, UpdateVoter):
            self._on_update_voter(request, reply_to, now_ms)
        else:
            self._on_fetch_snapshot(request, reply_to, now_ms)

    def receive_result(self, request: RaftRequest, result: RaftResult | None, now_ms: int) -> None:
        """The answer to a request of ours, or the news that there will be none."""
        if result is None:
            self.state.on_no_result(request, now_ms)
            return
        if isinstance(result, FetchResult) and isinstance(request, FetchLog):
            is_from_leader = result.error is ErrorCode.NONE
            self.hear_of(result.leader, result.leader_address, now_ms, is_first_hand=is_from_leader)
            self.state.on_fetch_result(request, result, now_ms)
            return
        is_from_leader = isinstance(result, FetchSnapshotResult) and result.error is ErrorCode.NONE
        self.hear_of(result.leader, result.leader_address, now_ms, is_first_hand=is_from_leader)
        if isinstance(result, VoteResult) and isinstance(request, Vote):
            self.state.on_vote_result(request, result, now_ms)
        elif isinstance(result, EpochResult) and isinstance(request, BeginQuorumEpoch | EndQuorumEpoch):
            self.state.on_epoch_result(request, result, now_ms)
        elif isinstance(result, EpochResult) and isinstance(request, UpdateVoter):
            self.state.on_update_result(request, result, now_ms)
        elif isinstance(result, FetchSnapshotResult) and isinstance(request, FetchSnapshot):
            self.state.on_fetch_snapshot_result(request, result, now_ms)

    def synced(self, offset: int, now_ms: int) -> None:
        """All before `offset` is safe from a crash of the machine."""
        self.log.synced_offset = min(offset, self.log.end_offset)
        self.state.on_synced(now_ms)

    def was_held_up(self, for_ms: int) -> None:
        """For so long nothing was done that the machine asked for: what it waited for could not come meanwhile."""
        self.state.prolong(for_ms)

    def refused(self, address: Address, now_ms: int) -> None:
        """A peer closed its connection and refuses another: its process is gone."""
        self.state.on_refused(address, now_ms)

    # What its owner asks for

    def append(self, values: Sequence[bytes], epoch: int) -> int:
        """Append records, and the offset of the last. Raises unless this replica leads in `epoch`, and is ready to."""
        state = self.state
        if not isinstance(state, Leader) or epoch != self.epoch or not state.is_ready:
            why = f"replica {self.key.node_id} does not lead in epoch {epoch}; {_leader_text(self.leader)}"
            if isinstance(state, Leader) and epoch == self.epoch:
                why = f"replica {self.key.node_id} leads in epoch {epoch}, but has not committed anything in it yet"
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, why)
        return state.append(values)

    def resign(self, epoch: int, now_ms: int) -> None:
        """Stop leading in `epoch`, if it is still that. A sole voter leads again, in the next one."""
        if isinstance(self.state, Leader) and epoch == self.epoch:
            self.become_resigned(now_ms)

    def stop(self, now_ms: int) -> None:
        """Leave in good order: a leader resigns and names who should follow it."""
        self.is_stopping = True
        if isinstance(self.state, Leader) and len(self.voters) > 1:
            self.become_resigned(now_ms)

    @property
    def is_stopped(self) -> bool:
        """Whether nobody need be told any more that this replica stops."""
        return not isinstance(self.state, Resigned) or self.state.is_told

    def take_back(self, base_offset: int, end_offset: int) -> bool:
        """What this leader appended last was not written: forget it; False if more was appended since."""
        if not isinstance(self.state, Leader) or self.log.end_offset != end_offset:
            return False
        self.log.truncate(base_offset)
        return True

    def snapshot_taken(self, snapshot_id: SnapshotId) -> None:
        """The owner's state up to there is on disk."""
        self.log.add_snapshot(snapshot_id)

    def snapshots_in_use(self, now_ms: int) -> frozenset[SnapshotId]:
        """Snapshots that others are loading from here."""
        return self.state.snapshots_in_use(now_ms) if isinstance(self.state, Leader) else frozenset()

    def log_cleaned(self, start_offset: int) -> None:
        """The log now begins at `start_offset`; a snapshot has what came before."""
        if start_offset > self.log.start_offset:
            self.log.advance_start(start_offset)
            self.history.forget_before(start_offset)

    def snapshot_received(self, snapshot_id: SnapshotId, voters: Sequence[ControlRecord] | None, now_ms: int) -> None:
        """The snapshot that was asked for is in place, with what its header says of the voters; None if it is no
        good."""
        state = self.state
        if not isinstance(state, Follower) or state.download is None or state.download.snapshot_id != snapshot_id:
            return
        if voters is not None:
            self.log.start_anew(snapshot_id)
            self.history.restart(snapshot_id.end_offset - 1, voters)
            self.high_watermark = snapshot_id.end_offset
            self.emit(StartAnew(snapshot_id))
        state.download_ended(now_ms)

    # Requests of peers

    def _error_of(self, cluster_id: str | None, epoch: int, node_id: int) -> ErrorCode:
        """What is wrong with a request that only voters make."""
        if not self._is_our_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch < self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        return ErrorCode.INVALID_REQUEST if node_id < 0 else ErrorCode.NONE

    def _is_our_cluster(self, cluster_id: str | None) -> bool:
        return cluster_id is None or self.cluster_id is None or cluster_id == self.cluster_id

    def _is_meant(self, voter: ReplicaKey | None) -> bool:
        """Requests for voters name their recipient: another node or disk may have its address by now."""
        if voter is None or voter.node_id < 0:
            return True
        return voter.node_id == self.key.node_id and voter.directory_id in (bytes(16), self.key.directory_id)

    def _on_vote(self, vote: Vote, now_ms: int) -> VoteResult:
        error = self._error_of(vote.cluster_id, vote.epoch, vote.candidate.node_id)
        if error is ErrorCode.NONE and vote.last.epoch > (vote.epoch if vote.pre_vote else vote.epoch - 1):
            error = ErrorCode.INVALID_REQUEST
        granted = False
        if error is ErrorCode.NONE:
            if vote.epoch > self.epoch:
                self.lost_leader(LossCause.OUTVOTED, other_id=vote.candidate.node_id)
                self.become_unattached(vote.epoch, now_ms)
            if self._is_meant(vote.voter):
                granted = self.state.grants(vote, is_up_to_date=_is_up_to_date(vote.last, self.log.end))
            else:
                error = ErrorCode.INVALID_VOTER_KEY
        if granted and not vote.pre_vote:
            self._vote_for(vote.candidate, now_ms)
        return VoteResult(error, self.leader, self.state.leader_address, granted)

    def _vote_for(self, candidate: ReplicaKey, now_ms: int) -> None:
        if self.voted is None:
            self.voted = candidate
            self.become_unattached(self.epoch, now_ms)
        check(self.voted == candidate, f"replica {self.key} voted twice in epoch {self.epoch}")

    def _on_begin_epoch(self, request: BeginQuorumEpoch, now_ms: int) -> EpochResult:
        error = self._error_of(request.cluster_id, request.epoch, request.leader_id)
        if error is ErrorCode.NONE:
            address = request.listeners.get(self.listener_name or "")
            if not self._is_meant(request.voter):
                error = ErrorCode.INVALID_VOTER_KEY
            elif self.leader == (request.leader_id, request.epoch) and isinstance(self.state, Prospective):
                # It lives, by its own word.
                address = address or self.state.leader_address
                if address is not None:
                    self.become_follower(request.leader_id, request.epoch, address, now_ms)
            else:
                leader = LeaderAndEpoch(request.leader_id, request.epoch)
                self.hear_of(leader, address, now_ms, is_first_hand=True)
        return EpochResult(error, self.leader, self.state.leader_address)

    def _on_end_epoch(self, request: EndQuorumEpoch, now_ms: int) -> EpochResult:
        error = self._error_of(request.cluster_id, request.epoch, request.leader_id)
        if error is ErrorCode.NONE:
            is_newer = request.epoch > self.epoch
            if not is_newer and self.state.leader_id >= 0:
                self._check_same_leader(LeaderAndEpoch(request.leader_id, request.epoch))
            is_ours = self.state.leader_id in (request.leader_id, NO_LEADER_ID)
            if is_newer or (is_ours and not isinstance(self.state, Leader | Resigned)):
                self.leader_ended(request.epoch, now_ms, election_in_ms=self._turn_of(request.successors))
        return EpochResult(error, self.leader, self.state.leader_address)

    def _turn_of(self, successors: Sequence[ReplicaKey]) -> float:
        """When to ask for votes after a leader resigned: the one that it names first at once, the others later."""
        for place, key in enumerate(successors):
            if key.node_id == self.key.node_id:
                return 0 if place == 0 else place * self._randomness.uniform(0.5, 1) * self.options.retry_backoff_ms * 5
        return self.random_election_timeout_ms()

    def _leader_only_error(self, cluster_id: str | None, epoch: int) -> ErrorCode:
        if not self._is_our_cluster(cluster_id):
            return ErrorCode.INCONSISTENT_CLUSTER_ID
        if epoch != self.epoch:
            return ErrorCode.FENCED_LEADER_EPOCH if epoch < self.epoch else ErrorCode.UNKNOWN_LEADER_EPOCH
        return ErrorCode.NONE if isinstance(self.state, Leader) else ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _on_fetch(self, fetch: FetchLog, reply_to: ReplyTo, now_ms: int) -> None:
        state, error = self.state, self._leader_only_error(fetch.cluster_id, fetch.epoch)
        if error is ErrorCode.NONE and (fetch.offset < 0 or fetch.last_fetched_epoch < 0):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE and isinstance(state, Leader):
            state.on_fetch(fetch, reply_to, now_ms)
        else:
            self.emit(Answer(reply_to, FetchResult(error, self.leader, self.state.leader_address)))

    def not_leader(self) -> FetchResult:
        return FetchResult(ErrorCode.NOT_LEADER_OR_FOLLOWER, self.leader, self.state.leader_address)

    def _on_fetch_snapshot(self, fetch: FetchSnapshot, reply_to: ReplyTo, now_ms: int) -> None:
        state, error = self.state, self._leader_only_error(fetch.cluster_id, fetch.epoch)
        if error is ErrorCode.NONE and fetch.snapshot_id not in self.log.snapshots:
            error = ErrorCode.SNAPSHOT_NOT_FOUND
        if error is ErrorCode.NONE and fetch.position < 0:
            error = ErrorCode.POSITION_OUT_OF_RANGE
        if isinstance(state, Leader) and fetch.epoch == self.epoch:
            state.heard_of(fetch.replica, now_ms)
        result = FetchSnapshotResult(
            error, self.leader, self.state.leader_address, fetch.snapshot_id, position=fetch.position
        )
        if error is ErrorCode.NONE and isinstance(state, Leader):
            state.on_fetch_snapshot(fetch, now_ms)
            self.emit(AnswerFetchSnapshot(reply_to, result, fetch.max_bytes))
        else:
            self.emit(Answer(reply_to, result))

    def _on_update_voter(self, request: UpdateVoter, reply_to: ReplyTo, now_ms: int) -> None:
        """Voters tell each new leader where they listen and what they know, so that it can be in the log."""
        error = self._leader_only_error(request.cluster_id, request.epoch)
        if error is ErrorCode.NONE and (request.voter.directory_id == Uuid.ZERO or not request.listeners):
            error = ErrorCode.INVALID_REQUEST
        if error is ErrorCode.NONE:
            voter = Voter(request.voter, request.listeners, request.min_kraft_version, request.max_kraft_version)
            update_voter(self, reply_to, voter, now_ms)
        else:
            self.emit(Answer(reply_to, EpochResult(error, self.leader, self.state.leader_address)))

    # What states ask for

    def emit(self, effect: Effect) -> None:
        self._effects.append(effect)

    def send(self, to: Address, request: RaftRequest) -> None:
        self._effects.append(Send(to, request))

    def address_of(self, voter: Voter) -> Address:
        """Where this replica reaches a voter."""
        return voter.address_at(self.listener_name)

    @property
    def own_address(self) -> Address | None:
        """Where others reach this replica that use the same listener as it does."""
        own = self.listeners
        return own.get(self.listener_name or "") or next(iter(own.values()), None)

    def leader_address_at(self, listener: str, leader: LeaderAndEpoch) -> Address | None:
        """Where a leader is reached by those who use another listener than this replica; None if it does not know."""
        if leader.leader_id == self.key.node_id:
            return self.listeners.get(listener)
        voter = self.voters.get(leader.leader_id)
        return None if voter is None else voter.listeners.get(listener)

    @property
    def may_claim_all(self) -> bool:
        """Whether a fetch may go out at the end of the log. A voter claims with it that all before its offset is safe.
        What an observer claims counts nowhere, unless it becomes a voter: the leader counts it from then on, before the
        observer knows."""
        log = self.log
        return log.synced_offset >= log.end_offset or (self._is_never_voter and not self.is_voter)

    def fetch_request(self) -> FetchLog:
        """Asks for what comes after the log."""
        return FetchLog(
            self.cluster_id,
            self.epoch,
            self.key,
            self.log.end_offset,
            self.log.last_epoch,
            self.high_watermark,
            self.options.fetch_max_wait_ms,
            self.options.fetch_max_bytes,
        )

    def sign_of_life(self) -> FetchLog:
        """Asks for nothing but an answer, and claims no more than what is safe."""
        end = self.log.synced_end
        return FetchLog(self.cluster_id, self.epoch, self.key, end.offset, end.epoch, self.high_watermark, 0, 0)

    @property
    def must_be_updated(self) -> bool:
        """Whether the leader has to be told where this voter listens: the log says something else."""
        if self.kraft_version == STATIC_VOTERS or not self.is_voter:
            return False
        return self.voters.get(self.key.node_id) != Voter(self.key, self.listeners)

    def update_request(self) -> UpdateVoter:
        own = Voter(self.key, self.listeners)
        return UpdateVoter(
            self.cluster_id, self.epoch, self.key, self.listeners, own.min_kraft_version, own.max_kraft_version
        )

    def next_search_address(self) -> Address | None:
        """Where to ask for a leader: voters and bootstrap addresses in turn."""
        own = set(self.listeners.values())
        known = [self.address_of(each) for each in self.voters if each.key.node_id != self.key.node_id]
        addresses = [each for each in dict.fromkeys([*known, *self._bootstrap]) if each not in own]
        if not addresses:
            return None
        if self._searches == 0:
            self._searches = self._randomness.randrange(len(addresses))
        self._searches += 1
        return addresses[self._searches % len(addresses)]

    def replay_controls(self, batch: BatchView) -> None:
        """Take in what a control batch of the leader's says of the voters."""
        for place, record in enumerate(read_batch(batch).controls):
            self.history.replay(batch.base_offset + place, record)

    def advance_high_watermark(self, offset: int) -> None:
        if self.raise_high_watermark(offset):
            self.tell_committed()

    def raise_high_watermark(self, offset: int) -> bool:
        """Whether it is news that all before `offset` is committed; then `tell_committed` is due."""
        if offset <= self.high_watermark:
            return False
        if offset > self.log.end_offset:
            raise InvariantError(f"the high watermark {offset} is beyond the log")
        self.high_watermark = offset
        return True

    def tell_committed(self) -> None:
        self.emit(Commit(self.high_watermark))

    def complain(self, request: RaftRequest, problem: object) -> None:
        """A peer refused what we asked, or answered nonsense."""
        text = problem.name if isinstance(problem, ErrorCode) else problem
        _log.debug("replica %s: %s was answered with %s", self.key, type(request).__name__, text)

    def random_election_timeout_ms(self) -> float:
        timeout_ms = self.options.election_timeout_ms
        return timeout_ms + self._randomness.random() * timeout_ms

    def random_fetch_timeout_ms(self) -> float:
        return self.options.fetch_timeout_ms * self._randomness.uniform(1.0, 1.25)

    def random_election_backoff_ms(self) -> float:
        return self._randomness.uniform(0.05, 1.0) * self.options.election_backoff_max_ms

    def random_moment_ms(self) -> float:
        return self._randomness.random() * self.options.fetch_timeout_ms * _MOMENT

    # Transitions

    def lost_leader(self, cause: LossCause, silent_ms: int = 0, *, other_id: int = NO_LEADER_ID) -> None:
        """Note why there will be no leader now. What came first is the reason for all that follows from it; a leader
        that was not heard of yet, as at a start, cannot be lost."""
        state = self.state
        if self.loss is None and (isinstance(state, Leader) or (isinstance(state, Follower) and state.has_heard)):
            self.loss = LeaderLoss(cause, self.state.leader_id, self.epoch, silent_ms, other_id)

    def hear_of(
        self, leader: LeaderAndEpoch, address: Address | None, now_ms: int, *, is_first_hand: bool = False
    ) -> None:
        """Somebody says who leads, or that an epoch has begun. What is older than what is known is passed over, and so
        is what others say of a leader that has resigned."""
        if leader.epoch < self.epoch:
            return
        is_newer = leader.epoch > self.epoch
        if not is_newer and leader.leader_id == self.state.leader_id >= 0:
            return  # as nearly always
        if leader.leader_id < 0 or leader.leader_id == self.key.node_id:
            # Of an epoch in which we led before a restart nothing is left but its number.
            if is_newer:
                self.lost_leader(LossCause.OUTVOTED)
                self.become_unattached(leader.epoch, now_ms)
            return
        if not is_newer and self.state.leader_id >= 0:
            self._check_same_leader(leader)
            return
        is_over = isinstance(self.state, Resigned) or (leader.epoch == self._ended_epoch and not is_first_hand)
        if not is_newer and is_over:
            return
        voter = self.voters.get(leader.leader_id)
        where = address or (self.address_of(voter) if voter is not None else None)
        if where is not None:
            self.become_follower(leader.leader_id, leader.epoch, where, now_ms)
        elif is_newer:
            self.lost_leader(LossCause.OUTVOTED, other_id=leader.leader_id)
            self.become_unattached(leader.epoch, now_ms)

    def _check_same_leader(self, leader: LeaderAndEpoch) -> None:
        if leader.leader_id != self.state.leader_id:
            _log.error(
                "replica %s: epoch %d is led by %d, but a peer says by %d; are there two nodes with one id, or two "
                "quorums with one cluster id?",
                self.key,
                leader.epoch,
                self.state.leader_id,
                leader.leader_id,
            )

    def become_unattached(self, epoch: int, now_ms: int, *, election_in_ms: float | None = None) -> None:
        self._begin_epoch(epoch)
        self._change(Unattached(self, now_ms, election_in_ms=election_in_ms), now_ms)

    def leader_ended(self, epoch: int, now_ms: int, *, election_in_ms: float | None = None) -> None:
        """The leader of an epoch says that it is that no more."""
        self.lost_leader(LossCause.RESIGNED)
        self.become_unattached(epoch, now_ms, election_in_ms=election_in_ms)
        self._ended_epoch = epoch

    def become_prospective(self, now_ms: int) -> None:
        old = self.state
        self._change(Prospective(self, now_ms, old.leader_id, old.leader_address), now_ms)

    def become_candidate(self, now_ms: int) -> None:
        self._begin_epoch(self.epoch + 1)
        self.voted = self.key
        self._change(Candidate(self, now_ms), now_ms)

    def become_leader(self, now_ms: int, granting: Sequence[ReplicaKey]) -> None:
        self._change(Leader(self, now_ms, granting), now_ms)

    def become_follower(self, leader_id: int, epoch: int, address: Address, now_ms: int) -> None:
        self._begin_epoch(epoch)
        self.gone_leader_id = None
        self._change(Follower(self, now_ms, leader_id, address), now_ms)

    def become_resigned(self, now_ms: int) -> None:
        self.lost_leader(LossCause.RESIGNED)
        successors = self.state.successors() if isinstance(self.state, Leader) else ()
        self._change(Resigned(self, now_ms, successors), now_ms)

    def _begin_epoch(self, epoch: int) -> None:
        check(epoch >= self.epoch, f"epoch {epoch} comes after epoch {self.epoch}")
        if epoch > self.epoch:
            self.epoch = epoch
            self.voted = None

    def _change(self, new: RaftState, now_ms: int) -> None:
        old = self.state
        check_transition(old.role, new.role)
        self.state = new
        self._save()
        old.leave()
        self.tell_leader()
        _log.debug("replica %s: %s -> %s in epoch %d", self.key, old.role.value, new.role.value, self.epoch)
        new.enter(now_ms)

    def _save(self) -> None:
        # As Kafka's file: that of a leader does not say whom it voted for, since that was itself.
        voted = None if isinstance(self.state, Leader) else self.voted
        state = ElectionState(self.epoch, self.state.leader_id, voted)
        if state != self._saved:
            self._saved = state
            self.emit(SaveElection(state, self.kraft_version, self.voters.ids))

    def tell_leader(self) -> None:
        """Tell the owner who leads. It hears of itself when all before its epoch is committed, and told."""
        is_not_ready = isinstance(self.state, Leader) and not self.state.is_ready
        leader = LeaderAndEpoch(NO_LEADER_ID if is_not_ready else self.state.leader_id, self.epoch)
        if leader != self._told:
            self._told = leader
            self.emit(TellLeader(leader))


def _is_up_to_date(candidate: OffsetAndEpoch, own: OffsetAndEpoch) -> bool:
    """Whether a log holds all that ours may have committed."""
    return (candidate.epoch, candidate.offset) >= (own.epoch, own.offset)


def _leader_text(leader: LeaderAndEpoch) -> str:
    return f"the leader of epoch {leader.epoch} is {leader.leader_id}" if leader.leader_id >= 0 else "nobody does"
