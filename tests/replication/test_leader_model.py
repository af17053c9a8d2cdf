"""The leader against the plain model of `leader_model.py`, and bugs in it that the model must catch."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import HealthCheck, settings
from hypothesis.stateful import run_state_machine_as_test

from barnabas.replication import isr
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.remote_replica import RemoteReplica
from tests.replication.leader_model import LeaderMachine, walk

_FIXED: dict[str, Any] = {"derandomize": True, "database": None, "deadline": None}
_QUIET = [HealthCheck.too_slow, HealthCheck.filter_too_much]


def test_whoever_is_in_sync_has_what_is_committed() -> None:
    run_state_machine_as_test(
        LeaderMachine,
        settings=settings(max_examples=150, stateful_step_count=40, suppress_health_check=_QUIET, **_FIXED),
    )


def walk_all(seeds: int) -> None:
    for seed in range(seeds):
        walk(seed, steps=80)


def test_the_same_on_longer_ways() -> None:
    walk_all(1000)


def expand_without_waiting(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(isr.PendingExpandIsr, "maximal_isr", property(lambda self: self.last_committed.isr))


def shrink_before_it_is_decided(patch: pytest.MonkeyPatch) -> None:
    def left(self: isr.PendingShrinkIsr) -> tuple[int, ...]:
        return tuple(each for each, _ in self.proposal.isr)

    patch.setattr(isr.PendingShrinkIsr, "maximal_isr", property(left))


def propose_without_broker_epochs(patch: pytest.MonkeyPatch) -> None:
    """One that has started again, with less than it had, joins by a fetch from before."""

    def proposal(self: LeaderState, members: tuple[int, ...]) -> isr.AlterPartition:
        return isr.AlterPartition(tuple((each, -1) for each in members), 0, self.leader_epoch, self.partition_epoch)

    patch.setattr(LeaderState, "_proposal", proposal)


def join_without_what_is_committed(patch: pytest.MonkeyPatch) -> None:
    def expand(self: LeaderState, follower: RemoteReplica) -> None:
        if isinstance(self.isr_state, isr.CommittedPartitionState) and self._is_isr_eligible(follower):
            proposal = self._proposal((*self.isr, follower.broker_id))
            self._propose(isr.PendingExpandIsr(follower.broker_id, proposal, self.isr_state))

    patch.setattr(LeaderState, "_maybe_expand_isr", expand)


def forget_a_refused_proposal(patch: pytest.MonkeyPatch) -> None:
    patch.setattr("barnabas.replication.leader_state._NOT_APPLIED", frozenset({*range(200)}))


def wait_for_whoever_may_not_join(patch: pytest.MonkeyPatch) -> None:
    def joins(self: LeaderState, follower: RemoteReplica, end: int) -> bool:
        ports = self.partition.ports
        return follower.is_caught_up(end, ports.monotonic_ms(), ports.replica_lag_time_max_ms)

    patch.setattr(LeaderState, "_is_about_to_join", joins)


def commit_with_too_few_in_sync(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "effective_min_isr", property(lambda self: 1))


def commit_what_followers_lack(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(LeaderState, "_counted_log_end_offsets", lambda self, end: [])


def take_the_time_of_this_fetch_for_the_last(patch: pytest.MonkeyPatch) -> None:
    def fetched(self: RemoteReplica, end: int, start: int, leader_end: int, epoch: int, now_ms: int) -> None:
        self.last_caught_up_ms = now_ms
        self.log_end_offset, self.log_start_offset, self.broker_epoch = end, start, epoch

    patch.setattr(RemoteReplica, "fetched", fetched)


def drop_a_proposal_at_the_same_metadata(patch: pytest.MonkeyPatch) -> None:
    def update(self: LeaderState, image: Any) -> None:
        if image.partition_epoch >= self.partition_epoch:
            self._take_over(image)
            self.advance_high_watermark()

    patch.setattr(LeaderState, "update", update)


def believe_an_old_answer(patch: pytest.MonkeyPatch) -> None:
    def altered(self: LeaderState, change: Any, outcome: isr.AlteredPartition) -> bool:
        self.partition_epoch = outcome.partition_epoch
        self._set_isr(isr.CommittedPartitionState(outcome.isr))
        return self.advance_high_watermark()

    patch.setattr(LeaderState, "altered", altered)


PLANTED = [
    expand_without_waiting,
    shrink_before_it_is_decided,
    propose_without_broker_epochs,
    join_without_what_is_committed,
    forget_a_refused_proposal,
    wait_for_whoever_may_not_join,
    commit_with_too_few_in_sync,
    commit_what_followers_lack,
    take_the_time_of_this_fetch_for_the_last,
    drop_a_proposal_at_the_same_metadata,
    believe_an_old_answer,
]


@pytest.mark.parametrize("plant", PLANTED, ids=lambda plant: plant.__name__)
def test_planted_bugs_are_caught(plant: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    plant(monkeypatch)
    with pytest.raises(AssertionError):
        walk_all(2000)
