"""What a node knows of a partition that it leads: who is in sync, how far followers are, and so what is committed."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import BrokerImage, PartitionImage
from barnabas.metadata.topic_names import is_internal
from barnabas.records.batch import BatchView
from barnabas.replication.high_watermark import advanced_high_watermark
from barnabas.replication.isr import (
    RECOVERED,
    AlteredPartition,
    AlterPartition,
    CommittedPartitionState,
    IsrState,
    PendingExpandIsr,
    PendingPartitionChange,
    PendingShrinkIsr,
)
from barnabas.replication.refused_batches import KEPT_MS, RefusedBatches
from barnabas.replication.remote_replica import RemoteReplica
from barnabas.replication.roles import (
    NO_EPOCH,
    NO_OFFSET,
    NO_REPLICA,
    Isolation,
    PartitionError,
    PartitionRead,
    PartitionRole,
)
from barnabas.replication.verification import VerificationGuard, VerificationStates
from barnabas.storage.aborted import AbortedTransaction
from barnabas.storage.errors import LogError
from barnabas.storage.leader_epochs import NO_EPOCH_END, EpochEnd
from barnabas.storage.log import Appended, PartitionLog
from barnabas.storage.validation import PreparedAppend

if TYPE_CHECKING:
    from barnabas.replication.partition import Partition

#: Refusals that say that the proposal was made on top of what the controller knows, and was not applied.
_NOT_APPLIED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
#: Refusals after which the metadata log will say how things stand: they are otherwise than this leader thinks.
_METADATA_WILL_TELL: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def is_older_broker(registered: BrokerImage | None, broker_epoch: int) -> bool:
    """Whether who says this epoch has been started again, as the metadata log knows."""
    return registered is not None and NO_EPOCH < broker_epoch < registered.epoch


class LeaderState(PartitionRole):
    """This node leads. It knows who is in sync and how far each follower is, and so what is committed.

    Guarantees:
    - Nothing is committed that a replica lacks which is in sync, or which a proposal under way may put in sync.
    - One proposal is under way at a time. What the metadata log says in a newer partition epoch ends it.
    - A follower joins only with all that may be committed: up to the high watermark, and up to where this epoch began.
    - What a producer has in flight behind a batch that was refused for a reason that passes does not overtake it.
    """

    __slots__ = (
        "_is_internal",
        "_refused",
        "_verification",
        "followers",
        "is_alone",
        "isr",
        "isr_state",
        "leader_epoch_start_offset",
        "maximal_isr",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self, partition: Partition, log: PartitionLog, image: PartitionImage, previous: LeaderState | None = None
    ) -> None:
        """`previous`: what this node was in the epoch just before, if it led."""
        super().__init__(partition, log, image.leader_epoch)
        self._is_internal = is_internal(partition.name.topic)
        #: Where the log ended when this node began to lead in this epoch.
        self.leader_epoch_start_offset = log.log_end_offset
        # Until they fetch, nothing is known of the followers: what they had may not be what we have. Unless nobody else
        # has led since they told.
        self.followers: dict[int, RemoteReplica] = {} if previous is None else previous.followers
        self.partition_epoch = NO_EPOCH
        self._refused: RefusedBatches = self._missing_batches(image) if previous is None else previous._refused
        # Where nobody else has led, nobody else has written a marker.
        self._verification: VerificationStates = VerificationStates() if previous is None else previous._verification
        # Followers that lag behind an older epoch must find this one, also while it has no records.
        log.epochs.assign(image.leader_epoch, log.log_end_offset)
        self._take_over(image)
        now_ms = partition.ports.monotonic_ms()
        for follower in self.followers.values():
            is_in_sync = follower.broker_id in image.isr
            follower.begin_epoch(self.leader_epoch_start_offset, now_ms, is_in_sync=is_in_sync)
        self.advance_high_watermark()

    def _missing_batches(self, image: PartitionImage) -> RefusedBatches:
        is_first = not image.leader_epoch or len(image.replicas) == 1
        return RefusedBatches(None if is_first else self.partition.ports.monotonic_ms() + KEPT_MS)

    def update(self, image: PartitionImage) -> None:
        """Take over what the metadata log says within the epoch: replicas, and those of them that are in sync.

        The controller's answer to a proposal may have come before the record that it speaks of; what is older than
        that answer is no news. A record of the same partition epoch says nothing of a proposal made on top of it.
        """
        is_committed = isinstance(self.isr_state, CommittedPartitionState)
        if image.partition_epoch < self.partition_epoch + (not is_committed):
            return
        self._take_over(image)
        if not self.advance_high_watermark():
            self._check_delayed()  # nobody waits for a replica that is none any more

    def _take_over(self, image: PartitionImage) -> None:
        node_id = self.partition.node_id
        self.partition_epoch = image.partition_epoch
        self.replicas = image.replicas
        known = self.followers
        self.followers = {each: known.get(each) or RemoteReplica(each) for each in image.replicas if each != node_id}
        self._set_isr(CommittedPartitionState(image.isr))

    def _set_isr(self, state: IsrState) -> None:
        #: What is committed, or proposed on top of it.
        self.isr_state = state
        self.isr, self.maximal_isr = state.isr, state.maximal_isr
        #: Whether this node is the only replica, so that what is written is committed.
        self.is_alone = self.replicas == self.isr == (self.partition.node_id,)

    @property
    def effective_min_isr(self) -> int:
        """How many replicas must be in sync; never more than there are replicas."""
        return min(self.log.settings.min_insync_replicas, len(self.replicas))

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.effective_min_isr

    # What followers have

    def follower(self, replica: int, broker_epoch: int = NO_EPOCH, leader_epoch: int = NO_EPOCH) -> RemoteReplica:
        """Whoever fetches as a follower, if it may: it is a replica, and no older broker of that number."""
        found = self.followers.get(replica)
        if found is None:
            # It knows our epoch, so it may also know better: a follower that is told so asks again.
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if leader_epoch < 0 else ErrorCode.UNKNOWN_LEADER_EPOCH
            raise PartitionError(code, f"{self.partition.name}: node {replica} is none of the replicas {self.replicas}")
        is_older = is_older_broker(self.partition.ports.broker(replica), broker_epoch)
        if is_older or found.is_of_older_broker(broker_epoch):
            raise PartitionError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self.partition.name}: node {replica} has started again since it fetched with epoch {broker_epoch}",
            )
        return found

    def update_follower_fetch_state(
        self, replica: int, log_end_offset: int, log_start_offset: int = NO_OFFSET, broker_epoch: int = NO_EPOCH
    ) -> None:
        """A follower asks for `log_end_offset`: it has everything before. It may join those in sync by that."""
        follower = self.follower(replica, broker_epoch)
        old_end, old_start = follower.log_end_offset, follower.log_start_offset
        now_ms = self.partition.ports.monotonic_ms()
        follower.fetched(log_end_offset, log_start_offset, self.log.log_end_offset, broker_epoch, now_ms)
        if replica not in self.maximal_isr:
            self._maybe_expand_isr(follower)
        has_moved = log_end_offset != old_end and self.advance_high_watermark()
        if not has_moved and log_start_offset != old_start and self.delayed:
            self._check_delayed()  # records that are to be deleted may be gone everywhere

    @property
    def low_watermark(self) -> int:
        """Where the logs of all live replicas begin at the earliest."""
        starts = [each.log_start_offset for each in self.followers.values() if self._is_live(each.broker_id)]
        return min(self.log.log_start_offset, *starts) if starts else self.log.log_start_offset

    def _is_live(self, broker_id: int) -> bool:
        broker = self.partition.ports.broker(broker_id)
        return broker is not None and not broker.is_fenced

    def has_all(self, offset: int, last_fetched_epoch: int) -> bool:
        """Whether a follower that fetches there has all we have: the usual case of most partitions in most fetches."""
        log = self.log
        if offset != log.log_end_offset:
            return False
        is_same = last_fetched_epoch < 0 or last_fetched_epoch == log.epochs.latest_epoch
        return is_same or log.epochs.end_offset_for(last_fetched_epoch, offset) == (last_fetched_epoch, offset)

    def log_start_advanced(self) -> None:
        """Records were deleted: followers are to hear of it, and somebody may wait until they have."""
        self._check_delayed()

    # Who is in sync

    def _maybe_expand_isr(self, follower: RemoteReplica) -> None:
        if not isinstance(self.isr_state, CommittedPartitionState) or follower.broker_id in self.isr:
            return
        end = follower.log_end_offset
        if end < self.log.high_watermark or end < self.leader_epoch_start_offset or not self._is_isr_eligible(follower):
            return
        committed = self.isr_state
        proposal = self._proposal((*committed.isr, follower.broker_id))
        self._propose(PendingExpandIsr(follower.broker_id, proposal, committed))

    def _is_isr_eligible(self, follower: RemoteReplica) -> bool:
        """Whether the controller would take a follower among those in sync: not fenced, not stopping, and the broker
        that fetched is the one that is registered."""
        broker = self.partition.ports.broker(follower.broker_id)
        if broker is None or broker.is_fenced or broker.in_controlled_shutdown or follower.broker_epoch is None:
            return False
        return follower.broker_epoch in (NO_EPOCH, broker.epoch)

    def maybe_shrink_isr(self) -> None:
        """Propose to go on without those who have not caught up for too long."""
        if isinstance(self.isr_state, CommittedPartitionState) and not self.is_alone:
            committed, behind = self.isr_state, self.out_of_sync_replicas()
            if behind:
                proposal = self._proposal(tuple(each for each in committed.isr if each not in behind))
                self._propose(PendingShrinkIsr(behind, proposal, committed))
        self.advance_high_watermark()  # one that was about to join may have taken too long

    def out_of_sync_replicas(self) -> tuple[int, ...]:
        """Members of the ISR that have not caught up with the end of the log within `replica.lag.time.max.ms`."""
        ports, end = self.partition.ports, self.log.log_end_offset
        now_ms, max_lag_ms = ports.monotonic_ms(), ports.replica_lag_time_max_ms
        return tuple(
            each
            for each in self.isr
            if each != self.partition.node_id
            and ((known := self.followers.get(each)) is None or not known.is_caught_up(end, now_ms, max_lag_ms))
        )

    def _proposal(self, isr: tuple[int, ...]) -> AlterPartition:
        node_id, own_epoch = self.partition.node_id, self.partition.ports.broker_epoch

        def epoch_of(broker_id: int) -> int:
            if broker_id == node_id:
                return own_epoch
            # Of one that was in sync when we began to lead, and has not fetched yet, nobody has to know it: if it has
            # started again, the controller has made another partition epoch of that.
            known = self.followers.get(broker_id)
            return NO_EPOCH if known is None or known.broker_epoch is None else known.broker_epoch

        members = tuple((each, epoch_of(each)) for each in isr)
        return AlterPartition(members, RECOVERED, self.leader_epoch, self.partition_epoch)

    def _propose(self, change: PendingPartitionChange) -> None:
        self._set_isr(change)
        self.partition.ports.submit(self, change)

    def altered(self, change: PendingPartitionChange, outcome: AlteredPartition) -> bool:
        """The controller has accepted a proposal; false if that is no news, since newer metadata came before."""
        if self.is_over or self.isr_state is not change:
            return False
        if outcome.leader_epoch != self.leader_epoch or outcome.partition_epoch < self.partition_epoch:
            return False  # stays as proposed until the metadata log says what has become of it
        self.partition_epoch = outcome.partition_epoch
        self._set_isr(CommittedPartitionState(outcome.isr, outcome.leader_recovery_state))
        if not self.advance_high_watermark():
            self._check_delayed()
        return True

    def refused(self, change: PendingPartitionChange, code: ErrorCode) -> bool:
        """The controller has refused a proposal; true if it should be sent again.

        Only where the controller says that it would have taken it from a fresher leader is it clear that nothing has
        happened: then the proposal is dropped. Otherwise an earlier sending of it may have been accepted, so it counts
        until the metadata log tells.
        """
        if self.is_over or self.isr_state is not change:
            return False
        if code in _NOT_APPLIED:
            self._set_isr(change.last_committed)
            self.advance_high_watermark()
            return False
        return code not in _METADATA_WILL_TELL

    # What is committed

    def advance_high_watermark(self) -> bool:
        """Move the high watermark as far as it may go; whether it moved."""
        log = self.log
        end = log.log_end_offset
        if log.high_watermark == end:
            return False
        reached = advanced_high_watermark(
            log.high_watermark, end, self._counted_log_end_offsets(end), len(self.isr), self.effective_min_isr
        )
        if reached <= log.high_watermark:
            return False
        log.set_high_watermark(reached)
        if self.delayed:
            self._check_delayed()
        return True

    def _counted_log_end_offsets(self, log_end_offset: int) -> list[int]:
        """Where the logs end of those that must have a record for it to be committed: the maximal ISR, and whoever is
        caught up and about to join. If nobody waited for those, they might never reach the high watermark."""
        maximal_isr = self.maximal_isr
        return [
            each.log_end_offset
            for each in self.followers.values()
            if each.broker_id in maximal_isr or self._is_about_to_join(each, log_end_offset)
        ]

    def _is_about_to_join(self, follower: RemoteReplica, log_end_offset: int) -> bool:
        ports = self.partition.ports
        is_caught_up = follower.is_caught_up(log_end_offset, ports.monotonic_ms(), ports.replica_lag_time_max_ms)
        return is_caught_up and self._is_isr_eligible(follower)

    def brokers_changed(self) -> None:
        """Other brokers may be live, or eligible, than before."""
        if not self.advance_high_watermark():
            self._check_delayed()

    def check_enough_replicas_reach_offset(self, offset: int) -> ErrorCode | None:
        """What to tell a writer who waits until everything below `offset` is committed; None while that is open.

        Once the role is over that is an error, also if this node leads again: nobody can say then whether the records
        are still there.
        """
        if self.is_over:
            return self.partition.unusable().code
        if self.log.high_watermark < offset:
            return None
        is_enough = len(self.maximal_isr) >= self.effective_min_isr
        return ErrorCode.NONE if is_enough else ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND

    # Writing

    def append(
        self,
        prepared: PreparedAppend,
        *,
        acks_all: bool,
        now_ms: int,
        may_append: Callable[[], None] | None = None,
    ) -> Appended:
        """With `acks_all` only if enough replicas are in sync to commit it. `may_append` raises if it must not be."""
        log = self.log
        if self._refused.must_check:
            self._refused.check(prepared.batches[0], log.producers, self.partition.ports.monotonic_ms())
        try:
            if acks_all and not self.is_alone and len(self.isr) < self.effective_min_isr:
                raise PartitionError(
                    ErrorCode.NOT_ENOUGH_REPLICAS,
                    f"{self.partition.name}: {len(self.isr)} replicas are in sync, {self.effective_min_isr} are "
                    "needed; nothing was written",
                )
            if may_append is not None:
                may_append()
            appended = log.append(prepared, leader_epoch=self.leader_epoch, now_ms=now_ms)
        except LogError as refusal:
            self._refused.note(prepared.batches[0], refusal, log.producers, self.partition.ports.monotonic_ms())
            raise
        self.appended(len(prepared.data))
        meter = self.meter
        meter.produce_requests += 1
        meter.bytes_in += len(prepared.data)
        if not appended.is_duplicate:
            meter.messages_in += appended.last_offset - appended.first_offset + 1
        return appended

    def takes_ordinary(self, acks_all: bool) -> bool:
        """Whether nothing about this leader asks for a decision before an append. Who may write to a topic of the
        cluster's own does."""
        has_enough = not acks_all or self.is_alone or len(self.isr) >= self.effective_min_isr
        return has_enough and not self._refused.must_check and not self._is_internal

    def append_failed(self, records: bytes | bytearray | memoryview, failure: OSError) -> LogError:
        """The disk has refused an ordinary batch: what that means, also for what its producer sends behind it."""
        refusal = self.log.failed(failure)
        self._refused.note(BatchView(records), refusal, self.log.producers, self.partition.ports.monotonic_ms())
        return refusal

    def appended(self, size_bytes: int) -> None:
        """So much was appended to the log: more may be committed, and those who wait for it may go on."""
        self.appended_bytes += size_bytes
        if self.is_alone:
            self.log.commit_all()
            if self.delayed:
                self._check_delayed()
        elif not self.advance_high_watermark() and self.delayed:
            self._check_delayed()  # for followers, who see the log to its end

    def maybe_start_verification(
        self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool
    ) -> VerificationGuard | None:
        """What the first batch of a transaction is appended with, once the coordinator was asked; None if the
        transaction is open here, so that nobody need be asked."""
        if self.log.producers.has_open_transaction(producer_id, epoch):
            return None
        return self._verification.start(producer_id, epoch, sequence, supports_epoch_bump=supports_epoch_bump)

    def refuse_unverified(self, prepared: PreparedAppend, refusal: PartitionError) -> None:
        """The coordinator has not said yet whether a batch may be appended; what is in flight behind it waits, too."""
        self._refused.note(prepared.batches[0], refusal, self.log.producers, self.partition.ports.monotonic_ms())

    def append_in_transaction(
        self,
        prepared: PreparedAppend,
        guard: VerificationGuard | None,
        *,
        acks_all: bool,
        now_ms: int,
        must_be_verified: bool,
    ) -> Appended:
        """Append a batch of a transaction, or the marker that ends it."""
        [batch] = prepared.batches

        def may_append() -> None:
            self._verification.check(
                self.partition.name,
                batch,
                guard,
                self.log.producers,
                is_from_client=not prepared.is_from_coordinator,
                is_required=must_be_verified,
            )

        appended = self.append(
            prepared, acks_all=acks_all, now_ms=now_ms, may_append=None if batch.is_control else may_append
        )
        if batch.is_control:
            self._verification.transaction_ended(batch.producer_id, batch.producer_epoch, prepared.transaction_version)
        elif not appended.is_duplicate:
            self._verification.clear(batch.producer_id)
        return appended

    # Reading

    def read(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation,
        *,
        last_fetched_epoch: int = NO_EPOCH,
        at_least_one: bool = True,
        replica: int = NO_REPLICA,
        replica_log_start_offset: int = NO_OFFSET,
        broker_epoch: int = NO_EPOCH,
    ) -> PartitionRead:
        """What a reader at `offset` may see. The bytes stay in the file.

        A `replica` that asks for an offset has all before it, so more may be committed by that; but only if its log is
        ours up to there.
        """
        log = self.log
        high_watermark, stable = log.high_watermark, log.last_stable_offset
        if last_fetched_epoch >= 0:
            diverging = self._divergence(last_fetched_epoch, offset)
            if diverging is not None:
                return PartitionRead(None, high_watermark, stable, log.log_start_offset, None, diverging)
        bound = high_watermark
        if isolation is not Isolation.READ_UNCOMMITTED:
            bound = stable if isolation is Isolation.READ_COMMITTED else log.log_end_offset
        found = log.read(offset, max_bytes, end_offset=bound, at_least_one=at_least_one).range
        if replica >= 0:
            self.update_follower_fetch_state(replica, offset, replica_log_start_offset, broker_epoch)
            high_watermark, stable = log.high_watermark, log.last_stable_offset
        aborted: list[AbortedTransaction] | None = None
        if isolation is Isolation.READ_COMMITTED:
            aborted = [] if found is None else log.aborted_transactions(offset, found)
        return PartitionRead(found, high_watermark, stable, log.log_start_offset, aborted)

    def _divergence(self, last_fetched_epoch: int, offset: int) -> EpochEnd | None:
        """Where the log of a reader that has records of `last_fetched_epoch` up to `offset` left ours, if it did."""
        end = self.log.epochs.end_offset_for(last_fetched_epoch, self.log.log_end_offset)
        if end == NO_EPOCH_END:
            raise PartitionError(
                ErrorCode.OFFSET_OUT_OF_RANGE,
                f"{self.partition.name}: nothing is known of the epoch {last_fetched_epoch} at offset {offset}",
            )
        return end if end.epoch < last_fetched_epoch or end.end_offset < offset else None
