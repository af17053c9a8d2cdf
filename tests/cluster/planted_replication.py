"""Bugs planted on purpose in leaders, followers and elections, which the scenario "cluster" must find.

python -m tests.cluster.planted_replication                        # a table of all, with the seeds that each took
python -m tests.cluster.planted_replication forgets_maximal_isr    # one of them, with the story of the seed
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Any, Final
from unittest.mock import patch

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.data.replica_fetcher import ReplicaFetcher
from barnabas.broker.data.replica_manager import ReplicaManager
from barnabas.metadata import alter_partition, brokers
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.partition_changes import PartitionChangeBuilder
from barnabas.replication.follower_state import FollowerState
from barnabas.replication.isr import (
    AlteredPartition,
    CommittedPartitionState,
    PendingExpandIsr,
    PendingPartitionChange,
    PendingShrinkIsr,
)
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.remote_replica import RemoteReplica
from barnabas.replication.roles import Isolation
from barnabas.storage.log import PartitionLog
from barnabas.testing.sim.cluster_promises import FaultBudget
from barnabas.wire.messages.alter_partition import BrokerState
from barnabas.wire.messages.fetch import FetchPartition
from tests.cluster.planting import PlantedBugs

PLANTED: Final = PlantedBugs("cluster", max_seeds=120)
planted = PLANTED.planted


# Leaders


@planted("a leader acknowledges as soon as it has a record itself")
@contextmanager
def acknowledges_before_replication() -> Iterator[None]:
    check = LeaderState.check_enough_replicas_reach_offset

    def at_once(self: LeaderState, offset: int) -> ErrorCode | None:
        return check(self, min(offset, self.log.high_watermark))

    with patch.object(LeaderState, "check_enough_replicas_reach_offset", at_once):
        yield


@planted("the high watermark counts what a follower was sent, not what it has")
@contextmanager
def counts_what_was_sent() -> Iterator[None]:
    update = LeaderState.update_follower_fetch_state

    def believe(self: LeaderState, replica: int, log_end_offset: int, *rest: Any) -> None:
        update(self, replica, log_end_offset, *rest)
        self.followers[replica].log_end_offset = self.log.log_end_offset
        self.advance_high_watermark()

    with patch.object(LeaderState, "update_follower_fetch_state", believe):
        yield


@planted("a follower is taken into the ISR before it has what is committed")
@contextmanager
def expands_too_early() -> Iterator[None]:
    def expand(self: LeaderState, follower: RemoteReplica) -> None:
        committed = self.isr_state
        if isinstance(committed, CommittedPartitionState) and follower.broker_id not in self.isr:
            proposal = self._proposal((*committed.isr, follower.broker_id))
            self._propose(PendingExpandIsr(follower.broker_id, proposal, committed))

    with patch.object(LeaderState, "_maybe_expand_isr", expand):
        yield


@planted("fetches and proposals count whichever life of a follower they are of")
@contextmanager
def believes_former_lives() -> Iterator[None]:
    follower = LeaderState.follower

    def of_any_life(self: LeaderState, replica: int, broker_epoch: int = -1, leader_epoch: int = -1) -> RemoteReplica:
        return follower(self, replica, -1, leader_epoch)

    def lives(self: LeaderState, follower: RemoteReplica) -> bool:
        broker = self.partition.ports.broker(follower.broker_id)
        return broker is not None and not broker.is_fenced and not broker.in_controlled_shutdown

    with (
        patch.object(LeaderState, "follower", of_any_life),
        patch.object(LeaderState, "_is_isr_eligible", lives),
        patch.object(alter_partition, "_ineligible", _ineligible_whatever_the_epoch),
    ):
        yield


def _ineligible_whatever_the_epoch(image: ClusterImage, isr: Sequence[BrokerState]) -> list[str]:
    members = (image.brokers.get(each.broker_id) for each in isr)
    return ["fenced" for each in members if each is None or each.is_fenced or each.in_controlled_shutdown]


@planted("while a change of the ISR is proposed, only those count who are in both")
@contextmanager
def forgets_maximal_isr() -> Iterator[None]:
    def without_new(self: PendingExpandIsr) -> tuple[int, ...]:
        return self.last_committed.isr

    def without_old(self: PendingShrinkIsr) -> tuple[int, ...]:
        return tuple(each for each in self.last_committed.isr if each not in self.out_of_sync_replicas)

    with ExitStack() as stack:
        stack.enter_context(patch.object(PendingExpandIsr, "maximal_isr", property(without_new)))
        stack.enter_context(patch.object(PendingShrinkIsr, "maximal_isr", property(without_old)))
        stack.enter_context(patch.object(LeaderState, "_is_about_to_join", lambda *_: False))
        yield


@planted("a leader drops followers from the ISR by itself, without the controller")
@contextmanager
def shrinks_alone() -> Iterator[None]:
    def shrink(self: LeaderState) -> None:
        behind = self.out_of_sync_replicas()
        if behind:
            self._set_isr(CommittedPartitionState(tuple(each for each in self.isr if each not in behind)))
        self.advance_high_watermark()

    with (
        patch.object(LeaderState, "maybe_shrink_isr", shrink),
        patch.object(LeaderState, "effective_min_isr", property(lambda self: 1)),
    ):
        yield


@planted("an answer to AlterPartition is applied, whatever has happened since the question")
@contextmanager
def applies_stale_answers() -> Iterator[None]:
    def apply(self: LeaderState, change: PendingPartitionChange, outcome: AlteredPartition) -> bool:
        self.partition_epoch = outcome.partition_epoch
        self._set_isr(CommittedPartitionState(tuple(each for each, _ in change.proposal.isr)))
        self.advance_high_watermark()
        return True

    def proposals_count_at_once(self: LeaderState, change: PendingPartitionChange, code: ErrorCode) -> bool:
        return apply(self, change, AlteredPartition((), 0, self.leader_epoch, self.partition_epoch)) and False

    with (
        patch.object(LeaderState, "altered", apply),
        patch.object(LeaderState, "refused", proposals_count_at_once),
    ):
        yield


@planted("who waits at a leader whose epoch has ended is told that it was done")
@contextmanager
def acknowledges_after_the_epoch() -> Iterator[None]:
    check = LeaderState.check_enough_replicas_reach_offset

    def success(self: LeaderState, offset: int) -> ErrorCode | None:
        return ErrorCode.NONE if self.is_over else check(self, offset)

    with patch.object(LeaderState, "check_enough_replicas_reach_offset", success):
        yield


@planted("too few in sync are enough to commit")
@contextmanager
def commits_below_min_isr() -> Iterator[None]:
    with patch.object(LeaderState, "effective_min_isr", property(lambda self: 1)):
        yield


@planted("readers see what is not committed")
@contextmanager
def shows_what_is_not_committed() -> Iterator[None]:
    read = LeaderState.read

    def to_the_end(self: LeaderState, offset: int, max_bytes: int, isolation: Isolation, **rest: Any) -> Any:
        return read(self, offset, max_bytes, Isolation.LOG_END, **rest)

    with patch.object(LeaderState, "read", to_the_end):
        yield


# Followers


@planted("whoever begins to follow cuts its log at its high watermark")
@contextmanager
def truncates_to_the_high_watermark() -> Iterator[None]:
    add = ReplicaFetcher.add

    def cut(self: ReplicaFetcher, role: FollowerState) -> None:
        self._parts.logs.truncate(role.partition.name, role.log.high_watermark)
        add(self, role)

    with patch.object(ReplicaFetcher, "add", cut):
        yield


@planted("a follower does not say which epoch its last record is of, so nobody notices that it went another way")
@contextmanager
def skips_the_diverging_epoch() -> Iterator[None]:
    ask = FollowerState.next_fetch

    def without_epoch(self: FollowerState, max_bytes: int) -> FetchPartition:
        asked = ask(self, max_bytes)
        asked.last_fetched_epoch = -1
        return asked

    with patch.object(FollowerState, "next_fetch", without_epoch):
        yield


@planted("after a start, everything that is in a log is taken to be committed")
@contextmanager
def trusts_the_log_after_a_start() -> Iterator[None]:
    set_high_watermark = PartitionLog.set_high_watermark

    def to_the_end(self: PartitionLog, offset: int) -> None:
        is_first = self.high_watermark == self.log_start_offset
        set_high_watermark(self, self.log_end_offset if is_first else offset)

    with patch.object(PartitionLog, "set_high_watermark", to_the_end):
        yield


@planted("followers do not remember what producers have sent")
@contextmanager
def followers_forget_producers() -> Iterator[None]:
    append = PartitionLog.append_as_follower

    def forget(self: PartitionLog, prepared: Any, **rest: Any) -> Any:
        appended = append(self, prepared, **rest)
        self.producers.clear()
        return appended

    with patch.object(PartitionLog, "append_as_follower", forget):
        yield


@planted("who cuts its log forgets all producers")
@contextmanager
def forgets_producers_when_cut() -> Iterator[None]:
    def forget(self: PartitionLog, now_ms: int) -> None:
        self.producers.clear()

    def cut(self: PartitionLog, offset: int, now_ms: int) -> None:
        with patch.object(PartitionLog, "reload_producers", forget):
            truncate(self, offset, now_ms)

    truncate = PartitionLog.truncate_to
    with patch.object(PartitionLog, "truncate_to", cut):
        yield


@planted("who cuts its log still remembers what it has cut off")
@contextmanager
def remembers_what_was_cut_off() -> Iterator[None]:
    def cut(self: PartitionLog, offset: int, now_ms: int) -> None:
        with patch.object(PartitionLog, "reload_producers", lambda self, now_ms: None):
            truncate(self, offset, now_ms)

    truncate = PartitionLog.truncate_to
    with patch.object(PartitionLog, "truncate_to", cut):
        yield


# Controllers


@planted("a replica that comes back after an unclean stop keeps its place, and may lead")
@contextmanager
def trusts_after_an_unclean_stop() -> Iterator[None]:
    with patch.object(brokers, "changes_when_restarted", lambda *_, was_clean: []):
        yield


@planted("any replica that lives may be elected, whether it was in sync or not")
@contextmanager
def elects_anybody() -> Iterator[None]:
    def lives(self: PartitionChangeBuilder, broker_id: int) -> bool:
        if not self._may_lead(broker_id):
            return False
        if broker_id not in self.isr:
            self.isr = [*self.isr, broker_id]
        return True

    with patch.object(PartitionChangeBuilder, "_is_valid_leader", lives):
        yield


# The world


@planted("no bug: more machines lose power than is promised to be survived")
@contextmanager
def more_power_losses_than_promised() -> Iterator[None]:
    with patch.object(FaultBudget, "may_strike", lambda self, fault, targets: ""):
        yield


# Coordinators


@planted("a commit is answered before the followers have it")
@contextmanager
def answers_commits_at_once() -> Iterator[None]:
    wait = ReplicaManager.wait_for_high_watermark

    def at_once(self: ReplicaManager, name: TopicPartition, offset: int, timeout_ms: int) -> Awaitable[ErrorCode]:
        return wait(self, name, 0, timeout_ms)

    with patch.object(ReplicaManager, "wait_for_high_watermark", at_once):
        yield


if __name__ == "__main__":
    sys.exit(PLANTED.main(sys.argv[1:]))
