"""Where reading starts, and what a new leader means for it."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import Chunk
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.consuming.fetch_buffer import FetchBuffer
from barnabas.client.core.consuming.offset_requests import (
    LeaderEpochEnd,
    ListOffsetData,
    bundle,
    epoch_request,
    list_offsets_request,
    read_epochs,
    read_list_offsets,
)
from barnabas.client.core.consuming.offsets import EARLIEST, LATEST, NO_RESET, OffsetAndMetadata, ResetStrategy
from barnabas.client.core.consuming.partition_state import FetchState, PartitionState, Position
from barnabas.client.core.consuming.positions import (
    follow_leaders,
    question_for,
    take_committed,
    take_epoch_end,
    take_listed,
    trust,
)
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.errors import LogTruncatedError, NoOffsetError
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    EpochEndOffset,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderTopicResult,
)
from tests.client.core.consuming.logs import T0, T1, batch, fetch_state_of, fetched


def view_of(epoch: int = 1, leader: int = 1) -> ClusterView:
    partitions = (PartitionInfo("clicks", 0, leader, epoch), PartitionInfo("clicks", 1, -1, epoch))
    nodes = {number: Node(number, "host", number, None) for number in (1, 2)}
    return ClusterView(1, nodes=nodes, topics=[TopicView("clicks", partitions=partitions)])


def assigned(reset: ResetStrategy = EARLIEST) -> tuple[Subscription, PartitionState]:
    subscription = Subscription(reset)
    subscription.assign([T0])
    return subscription, subscription.state(T0)


def validate(subscription: Subscription, end: LeaderEpochEnd) -> None:
    state = subscription.state(T0)
    take_epoch_end(subscription, T0, state, state.fetch, question_for(state), end)


# Committed offsets


def test_reading_starts_at_what_is_committed() -> None:
    subscription, state = assigned()
    take_committed(subscription, {T0: state}, {T0: OffsetAndMetadata(7, "note", 3)})
    assert subscription.position(T0) == Position(7, 3)


def test_without_a_committed_offset_the_setting_decides() -> None:
    subscription, state = assigned()
    take_committed(subscription, {T0: state}, {T0: None})
    assert fetch_state_of(state) is FetchState.AWAIT_RESET
    assert state.reset_strategy == EARLIEST
    strict, state = assigned(NO_RESET)
    take_committed(strict, {T0: state}, {})
    assert isinstance(state.failure, NoOffsetError)
    assert state.failure.partitions == (T0,)
    strict.seek(T0, 0)
    assert state.failure is None


def test_committed_offsets_come_too_late_for_who_has_sought_or_lost_the_partition() -> None:
    subscription, state = assigned()
    subscription.seek(T0, 3)
    take_committed(subscription, {T0: state}, {T0: OffsetAndMetadata(7)})
    assert subscription.position(T0) == Position(3)
    subscription, state = assigned()
    subscription.assign([T1])
    take_committed(subscription, {T0: state}, {T0: OffsetAndMetadata(7)})
    assert fetch_state_of(state) is FetchState.INITIALIZING


# Resets


def test_a_reset_goes_to_what_the_leader_says_and_trusts_it() -> None:
    subscription, state = assigned()
    subscription.request_reset(T0)
    take_listed(subscription, T0, state, state.reset_strategy or LATEST, ListOffsetData(12, -1, 5), view_of(epoch=5))
    assert subscription.position(T0) == Position(12, 5)
    follow_leaders(subscription, view_of(epoch=5))
    assert fetch_state_of(state) is FetchState.FETCHING


def test_a_duration_that_nothing_is_as_young_as_ends_at_the_end() -> None:
    subscription, state = assigned()
    strategy = ResetStrategy.parse("by_duration:PT1H")
    subscription.request_reset(T0, strategy)
    take_listed(subscription, T0, state, strategy, ListOffsetData(-1, -1, -1), view_of())
    assert fetch_state_of(state) is FetchState.AWAIT_RESET
    assert state.reset_strategy == LATEST


def test_an_answer_to_an_earlier_reset_is_dropped() -> None:
    subscription, state = assigned()
    first = ResetStrategy.parse("earliest")
    subscription.request_reset(T0, first)
    subscription.request_reset(T0, LATEST)
    take_listed(subscription, T0, state, first, ListOffsetData(0, -1, -1), view_of())
    assert fetch_state_of(state) is FetchState.AWAIT_RESET
    subscription.seek(T0, 4)
    take_listed(subscription, T0, state, LATEST, ListOffsetData(9, -1, -1), view_of())
    assert subscription.position(T0) == Position(4)


# Validation


def test_a_position_with_an_epoch_is_validated_at_each_new_leader() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=3))
    assert fetch_state_of(state) is FetchState.AWAIT_VALIDATION
    assert question_for(state) == (3, 3)
    assert subscription.position(T0) == Position(10, 3)  # it can be committed meanwhile
    assert not state.is_fetchable
    validate(subscription, LeaderEpochEnd(3, 10))
    assert fetch_state_of(state) is FetchState.FETCHING
    follow_leaders(subscription, view_of(epoch=3))
    assert fetch_state_of(state) is FetchState.FETCHING
    follow_leaders(subscription, view_of(epoch=4, leader=2))
    assert fetch_state_of(state) is FetchState.AWAIT_VALIDATION
    assert question_for(state) == (3, 4)


def test_a_position_without_an_epoch_cannot_be_validated() -> None:
    subscription, state = assigned()
    subscription.seek(T0, 10)
    follow_leaders(subscription, view_of(epoch=3))
    assert fetch_state_of(state) is FetchState.FETCHING
    assert state.leader_epoch == 3


def test_an_old_broker_is_trusted() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=3))
    trust(state)
    assert fetch_state_of(state) is FetchState.FETCHING


def test_a_log_that_was_cut_is_read_on_from_where_it_was_cut() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=4))
    validate(subscription, LeaderEpochEnd(2, 6))
    assert subscription.position(T0) == Position(6, 2)
    assert fetch_state_of(state) is FetchState.FETCHING


def test_a_log_that_was_cut_is_an_error_where_nothing_may_be_reset() -> None:
    subscription, state = assigned(NO_RESET)
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=4))
    validate(subscription, LeaderEpochEnd(2, 6))
    assert isinstance(state.failure, LogTruncatedError)
    assert state.failure.offsets == {T0: 6}
    assert subscription.position(T0) == Position(10, 3)


def test_an_epoch_that_the_leader_never_heard_of_is_reset() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=4))
    validate(subscription, LeaderEpochEnd(-1, -1))
    assert fetch_state_of(state) is FetchState.AWAIT_RESET


def test_what_was_fetched_ahead_is_dropped_when_the_log_was_cut_within_it() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(0, "", 1))
    follow_leaders(subscription, view_of(epoch=1))
    validate(subscription, LeaderEpochEnd(1, 0))
    buffer = FetchBuffer(subscription)
    data = bytes(batch(0, [b"%d" % i for i in range(10)], epoch=1))
    buffer.add(T0, state, Chunk(*T0, fetched(data), len(data)))
    state.fetch = Position(10, 1)
    chunk = buffer.next_chunk()
    assert chunk is not None
    assert [record.offset for record in chunk.take(4)] == [0, 1, 2, 3]
    follow_leaders(subscription, view_of(epoch=2))
    validate(subscription, LeaderEpochEnd(1, 6))
    # The program is at 4, the log was cut at 6: nothing it got is wrong, but the rest must be fetched again.
    assert fetch_state_of(state) is FetchState.AWAIT_VALIDATION
    assert state.fetch == Position(4, 1)
    assert chunk.take(10) == []
    assert buffer.next_chunk() is None
    validate(subscription, LeaderEpochEnd(1, 6))
    assert fetch_state_of(state) is FetchState.FETCHING
    assert subscription.position(T0) == Position(4, 1)


def test_an_answer_about_another_position_or_leader_is_dropped() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=4))
    asked, question = state.fetch, question_for(state)
    follow_leaders(subscription, view_of(epoch=5))
    take_epoch_end(subscription, T0, state, asked, question, LeaderEpochEnd(3, 4))
    assert fetch_state_of(state) is FetchState.AWAIT_VALIDATION
    assert subscription.position(T0) == Position(10, 3)


# Requests


def test_questions_are_bundled_by_leader() -> None:
    bundled = bundle(view_of(), [T0, T1])
    assert bundled.by_node == {1: [T0]}
    assert bundled.without_leader == [T1]
    request = list_offsets_request(view_of(epoch=5), {T0: -2}, read_committed=True, timeout_ms=9)
    (topic,) = request.topics
    assert (request.isolation_level, request.timeout_ms, topic.name) == (1, 9, "clicks")
    assert (topic.partitions[0].timestamp, topic.partitions[0].current_leader_epoch) == (-2, 5)


def listed(*answers: tuple[int, int]) -> ListOffsetsResponse:
    partitions = [
        ListOffsetsPartitionResponse(partition_index=number, error_code=code, offset=5, timestamp=6, leader_epoch=7)
        for number, code in answers
    ]
    return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="clicks", partitions=partitions)])


def test_answers_are_found_tried_again_or_failed() -> None:
    names = [TopicPartition("clicks", number) for number in range(5)]
    outcome = read_list_offsets(
        names,
        listed(
            (0, 0),
            (1, ErrorCode.NOT_LEADER_OR_FOLLOWER),
            (2, ErrorCode.TOPIC_AUTHORIZATION_FAILED),
            (3, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT),
        ),
    )
    assert outcome.found == {names[0]: ListOffsetData(5, 6, 7), names[3]: ListOffsetData(-1, -1, -1)}
    assert outcome.retry == {
        names[1]: ErrorCode.NOT_LEADER_OR_FOLLOWER,
        names[4]: ErrorCode.UNKNOWN_SERVER_ERROR,  # not answered at all
    }
    assert outcome.failed[names[2]].code is ErrorCode.TOPIC_AUTHORIZATION_FAILED


def test_ends_of_epochs_are_asked_for_and_read() -> None:
    subscription, state = assigned()
    subscription.seek(T0, OffsetAndMetadata(10, "", 3))
    follow_leaders(subscription, view_of(epoch=4))
    request = epoch_request({T0: question_for(state)})
    assert request.replica_id == -1
    assert (request.topics[0].partitions[0].leader_epoch, request.topics[0].partitions[0].current_leader_epoch) == (
        3,
        4,
    )
    answers = [
        EpochEndOffset(partition=0, leader_epoch=3, end_offset=11),
        EpochEndOffset(partition=1, error_code=ErrorCode.FENCED_LEADER_EPOCH),
    ]
    response = OffsetForLeaderEpochResponse(topics=[OffsetForLeaderTopicResult(topic="clicks", partitions=answers)])
    outcome = read_epochs([T0, T1], response)
    assert outcome.found == {T0: LeaderEpochEnd(3, 11)}
    assert outcome.retry == {T1: ErrorCode.FENCED_LEADER_EPOCH}
