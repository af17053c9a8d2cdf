"""How a partition gets its position, and how it is found out that the log no longer holds what was read."""

from __future__ import annotations

from collections.abc import Mapping

from barnabas.base.ids import TopicPartition
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.consuming.offset_requests import NO_OFFSET, EpochQuestion, LeaderEpochEnd, ListOffsetData
from barnabas.client.core.consuming.offsets import LATEST, NO_EPOCH, OffsetAndMetadata, ResetKind, ResetStrategy
from barnabas.client.core.consuming.partition_state import FetchState, PartitionState, Position
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.errors import LogTruncatedError, NoOffsetError


def take_committed(
    subscription: Subscription,
    states: Mapping[TopicPartition, PartitionState],
    committed: Mapping[TopicPartition, OffsetAndMetadata | None],
) -> None:
    """Start where the group has come to; where it has not begun, as auto.offset.reset says.

    `states` are those for which the offsets were looked up: what has changed since then is left alone.
    """
    for partition, state in states.items():
        if subscription.get(partition) is not state or state.fetch_state is not FetchState.INITIALIZING:
            continue
        found = committed.get(partition)
        if found is not None:
            subscription.seek(partition, found)
        elif subscription.default_reset.kind is not ResetKind.NONE:
            subscription.request_reset(partition)
        else:
            state.failure = NoOffsetError((partition,))


def follow_leaders(subscription: Subscription, view: ClusterView) -> None:
    """A new leader may have less than the old one had: with a new epoch a position is validated before it is used.

    A position without an epoch (of old messages, or chosen by the program) cannot be validated, and is trusted.
    """
    for partition, state in subscription.states().items():
        if not state.has_position:
            continue
        info = view.partition(partition)
        if info is None or info.leader_id < 0 or info.leader_epoch == state.leader_epoch == NO_EPOCH:
            continue
        if (info.leader_id, info.leader_epoch) == (state.leader_id, state.leader_epoch):
            continue
        is_newer = info.leader_epoch != state.leader_epoch
        state.leader_id, state.leader_epoch = info.leader_id, info.leader_epoch
        if is_newer and state.fetch.epoch != NO_EPOCH:
            state.fetch_state = FetchState.AWAIT_VALIDATION
            state.retry_at_ms = state.retry_count = 0
        elif state.fetch_state is FetchState.AWAIT_VALIDATION and state.fetch.epoch == NO_EPOCH:
            state.fetch_state = FetchState.FETCHING


def question_for(state: PartitionState) -> EpochQuestion:
    return EpochQuestion(state.fetch.epoch, state.leader_epoch)


def trust(state: PartitionState) -> None:
    """The broker is too old to be asked."""
    if state.fetch_state is FetchState.AWAIT_VALIDATION:
        state.fetch_state = FetchState.FETCHING


def take_epoch_end(
    subscription: Subscription,
    partition: TopicPartition,
    state: PartitionState,
    asked: Position,
    question: EpochQuestion,
    end: LeaderEpochEnd,
) -> None:
    """Compare where the leader's log of the epoch ends with what was read of it."""
    if (
        subscription.get(partition) is not state
        or state.fetch_state is not FetchState.AWAIT_VALIDATION
        or state.fetch != asked
        or question_for(state) != question
    ):
        return  # it was sought elsewhere, or the leader has changed again
    is_known = end.end_offset >= 0 and end.leader_epoch >= 0
    if is_known and end.end_offset >= asked.offset:
        state.fetch_state = FetchState.FETCHING
        return
    position = state.position
    if position is not None and position != asked:
        # What was cut may be among what the program has not got yet. That is fetched again, if the rest still stands.
        state.drop_fetched()
        if state.fetch.epoch == NO_EPOCH:
            state.fetch_state = FetchState.FETCHING
        return
    if subscription.default_reset.kind is ResetKind.NONE:
        state.fetch_state = FetchState.FETCHING
        state.failure = LogTruncatedError({partition: end.end_offset})
    elif is_known:
        state.move_to(Position(end.end_offset, end.leader_epoch))
    else:
        subscription.request_reset(partition)


def take_listed(
    subscription: Subscription,
    partition: TopicPartition,
    state: PartitionState,
    strategy: ResetStrategy,
    listed: ListOffsetData,
    view: ClusterView,
) -> None:
    """The offset that a reset asked for is known."""
    if (
        subscription.get(partition) is not state
        or state.fetch_state is not FetchState.AWAIT_RESET
        or state.reset_strategy is not strategy
    ):
        return  # the program has sought elsewhere meanwhile
    if listed.offset == NO_OFFSET:
        # Nothing is as young as the duration asks for: what comes next is.
        subscription.request_reset(partition, LATEST)
        return
    state.move_to(Position(listed.offset, listed.leader_epoch))
    info = view.partition(partition)
    if info is not None:
        # It comes from the leader itself, so there is nothing to validate.
        state.leader_id, state.leader_epoch = info.leader_id, info.leader_epoch
