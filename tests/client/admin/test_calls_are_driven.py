"""How calls find their way: controllers, leaders and coordinators that move, errors that pass and errors that do not,
old brokers, time that runs out.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.admin import (
    Admin,
    AlterConfig,
    ConfigResource,
    ConfigResourceType,
    GroupState,
    GroupType,
    ListedOffset,
    NewTopic,
    OffsetAndMetadata,
    OffsetSpec,
)
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, KeyedError, WrongUseError
from barnabas.net.errors import ConnectError, DisconnectedError, UnsupportedRequestError
from barnabas.wire.messages.consumer_group_describe import ConsumerGroupDescribeRequest
from barnabas.wire.messages.create_topics import CreatableTopicResult, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.delete_groups import DeletableGroupResult, DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribeGroupsRequest, DescribeGroupsResponse
from barnabas.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
)
from barnabas.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from barnabas.wire.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.list_transactions import ListTransactionsRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from barnabas.wire.messages.share_group_describe import ShareGroupDescribeRequest
from barnabas.wire.messages.streams_group_describe import StreamsGroupDescribeRequest
from tests.client.admin.fake_nodes import Answer, FakeNodes, admin_of, broken


def run(nodes: FakeNodes, call: Callable[[Admin], Coroutine[Any, Any, Any]], **settings: Any) -> Any:
    async def whole() -> Any:
        async with admin_of(nodes, **settings) as admin:
            return await call(admin)

    return asyncio.run(whole())


def topics_with(errors: dict[str, ErrorCode]) -> CreateTopicsResponse:
    return CreateTopicsResponse(
        topics=[
            CreatableTopicResult(name=name, error_code=error, error_message=None, num_partitions=2, configs=[])
            for name, error in errors.items()
        ]
    )


def created(broker_id: int, request: CreateTopicsRequest, version: int) -> CreateTopicsResponse:
    return topics_with({each.name: ErrorCode.NONE for each in request.topics})


def in_turn(*answers: Any) -> Answer:
    """Answers one after the other; each may be a function."""
    left = list(answers)

    def answer(broker_id: int, request: Any, version: int) -> Any:
        one = left.pop(0)
        return one(broker_id, request, version) if callable(one) else one

    return answer


def create(*names: str) -> Callable[[Admin], Coroutine[Any, Any, Any]]:
    return lambda admin: admin.create_topics([NewTopic(name, 2, 1) for name in names])


# controllers


def test_a_controller_that_moved_is_followed() -> None:
    refused = topics_with({"a": ErrorCode.NOT_CONTROLLER})
    nodes = FakeNodes({CreateTopicsRequest: in_turn(refused, created)}, controllers=(1, 2))
    assert run(nodes, create("a"))["a"].num_partitions == 2
    assert nodes.asked_brokers(CreateTopicsRequest) == [1, 2]


def test_only_what_was_not_done_is_asked_for_again() -> None:
    mixed = topics_with({"a": ErrorCode.NONE, "b": ErrorCode.THROTTLING_QUOTA_EXCEEDED})
    nodes = FakeNodes({CreateTopicsRequest: in_turn(mixed, created)})
    assert list(run(nodes, create("a", "b"))) == ["a", "b"]
    again = nodes.requests(CreateTopicsRequest)[1]
    assert [topic.name for topic in again.topics] == ["b"]


def test_a_change_that_timed_out_is_for_the_caller_to_judge() -> None:
    nodes = FakeNodes({CreateTopicsRequest: in_turn(topics_with({"a": ErrorCode.REQUEST_TIMED_OUT}))})
    with pytest.raises(BrokerError) as raised:
        run(nodes, create("a"))
    assert raised.value.code is ErrorCode.REQUEST_TIMED_OUT


def test_an_error_after_a_broken_connection_says_that_the_change_may_have_been_made() -> None:
    exists = topics_with({"a": ErrorCode.TOPIC_ALREADY_EXISTS})
    nodes = FakeNodes({CreateTopicsRequest: in_turn(broken(1, DisconnectedError), exists)})
    with pytest.raises(BrokerError, match="an earlier try broke off unanswered"):
        run(nodes, create("a"))


def test_a_cluster_without_controller_is_waited_for() -> None:
    nodes = FakeNodes({CreateTopicsRequest: created}, controllers=(None, None, 2))
    run(nodes, create("a"))
    assert nodes.asked_brokers(CreateTopicsRequest) == [2]


# errors by key


def test_one_failure_among_several_comes_with_the_results_of_the_others() -> None:
    mixed = topics_with({"a": ErrorCode.NONE, "b": ErrorCode.TOPIC_ALREADY_EXISTS, "c": ErrorCode.NONE})
    nodes = FakeNodes({CreateTopicsRequest: in_turn(mixed)})
    with pytest.raises(KeyedError, match="b: TOPIC_ALREADY_EXISTS") as raised:
        run(nodes, create("a", "b", "c"))
    assert list(raised.value.errors) == ["b"]
    assert list(raised.value.results) == ["a", "c"]


def test_a_key_that_the_answer_leaves_out_has_failed() -> None:
    nodes = FakeNodes({CreateTopicsRequest: in_turn(topics_with({}))})
    with pytest.raises(BrokerError, match="did not mention a"):
        run(nodes, create("a"))


def test_nothing_asked_is_nothing_sent() -> None:
    nodes = FakeNodes({})
    assert run(nodes, create()) == {}
    assert not nodes.asked


# time


def test_what_does_not_pass_ends_with_the_last_failure_named() -> None:
    nodes = FakeNodes({CreateTopicsRequest: lambda *_: topics_with({"a": ErrorCode.NOT_CONTROLLER})})
    with pytest.raises(ClientTimeoutError, match=r"create_topics for a was not done within 30 ms.*NOT_CONTROLLER"):
        run(nodes, lambda admin: admin.create_topics([NewTopic("a", 1, 1)], timeout=0.03))
    assert len(nodes.asked) > 2


def test_the_default_time_is_that_of_the_settings() -> None:
    nodes = FakeNodes({CreateTopicsRequest: lambda *_: topics_with({"a": ErrorCode.NOT_CONTROLLER})})
    with pytest.raises(ClientTimeoutError, match="within 20 ms"):
        run(nodes, create("a"), default_api_timeout_ms=20, request_timeout_ms=20)


def test_retries_are_bounded_by_their_setting() -> None:
    nodes = FakeNodes({CreateTopicsRequest: lambda *_: topics_with({"a": ErrorCode.NOT_CONTROLLER})})
    with pytest.raises(BrokerError, match="NOT_CONTROLLER"):
        run(nodes, create("a"), retries=2)
    assert len(nodes.asked) == 3


def test_a_broker_that_never_answers_ends_with_the_call() -> None:
    async def for_ever(*_: Any) -> None:
        await asyncio.get_running_loop().create_future()

    nodes = FakeNodes({CreateTopicsRequest: for_ever})
    with pytest.raises(ClientTimeoutError, match="create_topics for a was not done"):
        run(nodes, lambda admin: admin.create_topics([NewTopic("a", 1, 1)], timeout=0.01))


def test_closing_ends_calls_that_are_under_way_and_later_ones() -> None:
    async def story() -> None:
        asked = asyncio.Event()

        def answer(*_: Any) -> CreateTopicsResponse:
            asked.set()
            return topics_with({"a": ErrorCode.NOT_CONTROLLER})

        admin = admin_of(FakeNodes({CreateTopicsRequest: answer}))
        call = asyncio.create_task(admin.create_topics([NewTopic("a", 1, 1)]))
        await asked.wait()
        await admin.close()
        with pytest.raises(ClientClosedError):
            await call
        with pytest.raises(ClientClosedError):
            await admin.list_topics()

    asyncio.run(story())


def test_an_admin_belongs_to_the_loop_that_used_it_first() -> None:
    admin = admin_of(FakeNodes({}))
    asyncio.run(admin.start())
    with pytest.raises(WrongUseError, match="another event loop"):
        asyncio.run(admin.list_topics())
    asyncio.run(admin.close())


# any broker


def test_a_broker_that_cannot_be_reached_is_not_the_last_one() -> None:
    def answer(broker_id: int, request: Any, version: int) -> Any:
        return broken(broker_id, ConnectError) if len(nodes.asked) < 3 else nodes._tell_topics(broker_id, request, 1)

    nodes = FakeNodes({MetadataRequest: answer}, leaders={"a": [1]})
    assert list(run(nodes, lambda admin: admin.list_topics())) == ["a"]
    assert sorted(nodes.asked_brokers(MetadataRequest)) == [1, 2, 3]


# leaders


def offsets(broker_id: int, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
    return ListOffsetsResponse(
        topics=[
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(
                        partition_index=each.partition_index, offset=100 * broker_id, leader_epoch=5
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )


def latest(*partitions: TopicPartition) -> Callable[[Admin], Coroutine[Any, Any, Any]]:
    return lambda admin: admin.list_offsets(dict.fromkeys(partitions, OffsetSpec.latest()))


A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)


def test_each_leader_is_asked_once_for_its_partitions() -> None:
    nodes = FakeNodes({ListOffsetsRequest: offsets}, leaders={"a": [1, 2], "b": [2]})
    found = run(nodes, latest(A0, A1, B0))
    assert found == {A0: ListedOffset(100, -1, 5), A1: ListedOffset(200, -1, 5), B0: ListedOffset(200, -1, 5)}
    assert sorted(nodes.asked_brokers(ListOffsetsRequest)) == [1, 2]


def test_a_leader_that_moved_is_looked_up_again() -> None:
    def answer(broker_id: int, request: ListOffsetsRequest, version: int) -> ListOffsetsResponse:
        response = offsets(broker_id, request, version)
        if broker_id == 1:
            response.topics[0].partitions[0].error_code = ErrorCode.NOT_LEADER_OR_FOLLOWER
            nodes.leaders = {"a": [3]}
        return response

    nodes = FakeNodes({ListOffsetsRequest: answer}, leaders={"a": [1]})
    assert run(nodes, latest(A0))[A0].offset == 300


def test_a_partition_without_leader_is_waited_for() -> None:
    def tell(broker_id: int, request: MetadataRequest, version: int) -> Any:
        response = nodes._tell_topics(broker_id, request, version)
        nodes.leaders = {"a": [2]}
        return response

    nodes = FakeNodes({ListOffsetsRequest: offsets, MetadataRequest: tell}, leaders={"a": [-1]})
    assert run(nodes, latest(A0))[A0].offset == 200


def test_a_topic_that_there_is_not_fails_soon_and_is_not_created() -> None:
    nodes = FakeNodes({}, leaders={"b": [1]})
    with pytest.raises(BrokerError, match="there is no topic a"):
        run(nodes, latest(A0))
    assert not any(request.allow_auto_topic_creation for request in nodes.requests(MetadataRequest))


def test_a_partition_that_there_is_not_is_named() -> None:
    nodes = FakeNodes({ListOffsetsRequest: offsets}, leaders={"a": [1]})
    with pytest.raises(KeyedError, match="the topic a has 1 partitions, and 1 is not one of them") as raised:
        run(nodes, latest(A0, A1))
    assert list(raised.value.results) == [A0]


def test_a_kind_of_offset_that_is_too_new_for_a_broker_is_refused_with_words() -> None:
    nodes = FakeNodes({ListOffsetsRequest: offsets}, versions={ListOffsetsRequest: 6}, leaders={"a": [1]})
    with pytest.raises(UnsupportedRequestError, match="came with 7, that is Kafka"):
        run(nodes, lambda admin: admin.list_offsets({A0: OffsetSpec.max_timestamp()}))


# coordinators


def deleted(error: ErrorCode) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(results=[DeletableGroupResult(group_id="g", error_code=error)])


@pytest.mark.parametrize(
    "first", [deleted(ErrorCode.NOT_COORDINATOR), deleted(ErrorCode.COORDINATOR_NOT_AVAILABLE), broken(2, ConnectError)]
)
def test_a_coordinator_that_moved_is_followed(first: Any) -> None:
    nodes = FakeNodes({DeleteGroupsRequest: in_turn(first, deleted(ErrorCode.NONE))}, coordinators=(2, 3))
    run(nodes, lambda admin: admin.delete_groups(["g"]))
    assert nodes.asked_brokers(DeleteGroupsRequest) == [2, 3]


def test_a_coordinator_that_loads_is_asked_again() -> None:
    loading = deleted(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    nodes = FakeNodes({DeleteGroupsRequest: in_turn(loading, deleted(ErrorCode.NONE))}, coordinators=(2, 3))
    run(nodes, lambda admin: admin.delete_groups(["g"]))
    assert nodes.asked_brokers(DeleteGroupsRequest) == [2, 2]


def old_offsets(broker_id: int, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
    return OffsetFetchResponse(
        topics=[
            OffsetFetchResponseTopic(
                name=request.group_id,
                partitions=[
                    OffsetFetchResponsePartition(partition_index=0, committed_offset=7, metadata=""),
                    OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata=""),
                ],
            )
        ]
    )


def test_old_coordinators_are_asked_for_one_group_at_a_time() -> None:
    nodes = FakeNodes({OffsetFetchRequest: old_offsets}, versions={OffsetFetchRequest: 7})
    found = run(nodes, lambda admin: admin.list_group_offsets({"a": None, "b": [B0]}))
    assert found == {"a": {A0: OffsetAndMetadata(7)}, "b": {B0: OffsetAndMetadata(7)}}
    first, second = nodes.requests(OffsetFetchRequest)
    assert (first.group_id, first.topics) == ("a", None)
    assert (second.group_id, second.topics[0].partition_indexes) == ("b", [0])


def test_new_coordinators_are_asked_for_all_groups_at_once_and_by_name() -> None:
    def answer(broker_id: int, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        assert version == 9  # 10 names topics by id
        partition = OffsetFetchResponsePartitions(partition_index=0, committed_offset=7, metadata="note")
        topic = OffsetFetchResponseTopics(name="a", partitions=[partition])
        return OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id=each.group_id, topics=[topic]) for each in request.groups]
        )

    nodes = FakeNodes({OffsetFetchRequest: answer})
    found = run(nodes, lambda admin: admin.list_group_offsets({"a": None, "b": None}))
    assert found == {group: {A0: OffsetAndMetadata(7, "note")} for group in ("a", "b")}
    assert len(nodes.requests(OffsetFetchRequest)) == 1


def test_offsets_that_a_transaction_changes_are_waited_for() -> None:
    def answer(broker_id: int, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        response = old_offsets(broker_id, request, version)
        if len(nodes.asked) < 3:
            response.topics[0].partitions[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        return response

    nodes = FakeNodes({OffsetFetchRequest: answer}, versions={OffsetFetchRequest: 7})
    found = run(nodes, lambda admin: admin.list_group_offsets("a", require_stable=True))
    assert found == {A0: OffsetAndMetadata(7)}


def test_pending_offsets_are_told_and_not_waited_for() -> None:
    def answer(broker_id: int, request: OffsetFetchRequest, version: int) -> OffsetFetchResponse:
        assert request.require_stable
        response = old_offsets(broker_id, request, version)
        response.topics[0].partitions[0].error_code = ErrorCode.UNSTABLE_OFFSET_COMMIT
        if len(nodes.asked) < 3:
            response.topics[0].partitions[1].error_code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        return response

    nodes = FakeNodes({OffsetFetchRequest: answer}, versions={OffsetFetchRequest: 7})
    assert run(nodes, lambda admin: admin.pending_group_offsets("a", [A0])) == {A0}
    assert len(nodes.requests(OffsetFetchRequest)) > 1


def test_brokers_that_cannot_tell_stable_offsets_are_not_taken_for_those_that_can() -> None:
    nodes = FakeNodes({OffsetFetchRequest: old_offsets}, versions={OffsetFetchRequest: 6})
    with pytest.raises(UnsupportedRequestError, match="require_stable"):
        run(nodes, lambda admin: admin.list_group_offsets("a", require_stable=True))


def test_a_group_that_no_kind_of_describing_finds_does_not_exist() -> None:
    dead = DescribedGroup(
        group_id="g", group_state="Dead", protocol_type="", protocol_data="", members=[], error_code=0
    )
    nodes = FakeNodes(
        {DescribeGroupsRequest: lambda *_: DescribeGroupsResponse(groups=[dead])},
        versions={
            DescribeGroupsRequest: 5,
            ConsumerGroupDescribeRequest: None,
            ShareGroupDescribeRequest: None,
            StreamsGroupDescribeRequest: None,
        },
    )
    with pytest.raises(BrokerError, match="there is no group g") as raised:
        run(nodes, lambda admin: admin.describe_groups(["g"]))
    assert raised.value.code is ErrorCode.GROUP_ID_NOT_FOUND


# every broker


def listed(broker_id: int, request: ListGroupsRequest, version: int) -> ListGroupsResponse:
    group = ListedGroup(group_id=f"g{broker_id}", protocol_type="consumer", group_state="Stable", group_type="classic")
    return ListGroupsResponse(groups=[group])


def test_groups_are_those_of_all_brokers() -> None:
    groups = run(FakeNodes({ListGroupsRequest: listed}), lambda admin: admin.list_groups())
    assert [each.group_id for each in groups] == ["g1", "g2", "g3"]
    assert {(each.state, each.type) for each in groups} == {(GroupState.STABLE, GroupType.CLASSIC)}


def test_a_broker_that_cannot_tell_its_groups_is_named() -> None:
    def answer(broker_id: int, request: ListGroupsRequest, version: int) -> Any:
        denied = ListGroupsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED, groups=[])
        return denied if broker_id == 2 else listed(broker_id, request, version)

    with pytest.raises(KeyedError) as raised:
        run(FakeNodes({ListGroupsRequest: answer}), lambda admin: admin.list_groups())
    assert list(raised.value.errors) == [2]
    assert list(raised.value.results) == [1, 3]


def test_a_filter_that_old_brokers_do_not_know_is_not_dropped_in_silence() -> None:
    nodes = FakeNodes({ListGroupsRequest: listed}, versions={ListGroupsRequest: 3})
    with pytest.raises((UnsupportedRequestError, KeyedError), match="states_filter"):
        run(nodes, lambda admin: admin.list_groups(states=["stable"]))


# settings


def test_settings_of_a_broker_are_asked_of_that_broker() -> None:
    def answer(broker_id: int, request: DescribeConfigsRequest, version: int) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[
                DescribeConfigsResult(resource_type=each.resource_type, resource_name=each.resource_name, configs=[])
                for each in request.resources
            ]
        )

    nodes = FakeNodes({DescribeConfigsRequest: answer})
    brokers = [ConfigResource(ConfigResourceType.BROKER, name) for name in ("2", "3")]
    topic = ConfigResource(ConfigResourceType.TOPIC, "a")
    default = ConfigResource(ConfigResourceType.BROKER, "")
    found = run(nodes, lambda admin: admin.describe_configs([*brokers, topic, default]))
    assert list(found) == [*brokers, topic, default]
    by_broker = {broker_id: message for broker_id, message, _ in nodes.asked}
    assert by_broker[2].resources[0].resource_name == "2"  # type: ignore[attr-defined]
    assert by_broker[3].resources[0].resource_name == "3"  # type: ignore[attr-defined]


def test_a_broker_that_is_not_in_the_cluster_is_named() -> None:
    with pytest.raises(BrokerError, match="there is no broker 9 in the cluster; there are 1, 2, 3"):
        run(FakeNodes({}), lambda admin: admin.describe_configs([ConfigResource(ConfigResourceType.BROKER, "9")]))


def test_brokers_that_cannot_change_settings_one_by_one_are_refused() -> None:
    nodes = FakeNodes({}, versions={IncrementalAlterConfigsRequest: None})
    topic = ConfigResource(ConfigResourceType.TOPIC, "a")
    with pytest.raises(UnsupportedRequestError, match="IncrementalAlterConfigs"):
        run(nodes, lambda admin: admin.alter_configs({topic: [AlterConfig("retention.ms", 5)]}))


# old brokers


def test_old_brokers_need_numbers_for_a_new_topic() -> None:
    nodes = FakeNodes({CreateTopicsRequest: created}, versions={CreateTopicsRequest: 3})
    with pytest.raises(UnsupportedRequestError, match=r"broker1:9092: .*give partitions and replication factor"):
        run(nodes, lambda admin: admin.create_topics([NewTopic("a")]))
    assert list(run(nodes, create("a"))) == ["a"]


def test_topics_are_deleted_in_the_form_that_the_broker_knows() -> None:
    def answer(broker_id: int, request: DeleteTopicsRequest, version: int) -> DeleteTopicsResponse:
        names = request.topic_names if version < 6 else [each.name for each in request.topics]
        ids = [Uuid.ZERO] * len(names) if version < 6 else [each.topic_id for each in request.topics]
        return DeleteTopicsResponse(
            responses=[
                DeletableTopicResult(name=name, topic_id=topic_id) for name, topic_id in zip(names, ids, strict=True)
            ]
        )

    some_id = Uuid(b"0123456789abcdef")
    old = FakeNodes({DeleteTopicsRequest: answer}, versions={DeleteTopicsRequest: 5})
    run(old, lambda admin: admin.delete_topics(["a"]))
    with pytest.raises(UnsupportedRequestError, match="by id from 6 on"):
        run(old, lambda admin: admin.delete_topics([some_id]))
    new = FakeNodes({DeleteTopicsRequest: answer})
    run(new, lambda admin: admin.delete_topics(["a", some_id]))
    (request,) = new.requests(DeleteTopicsRequest)
    assert [(each.name, each.topic_id) for each in request.topics] == [("a", Uuid.ZERO), (None, some_id)]


def test_topics_are_described_page_by_page() -> None:
    def partition(number: int) -> DescribeTopicPartitionsResponsePartition:
        return DescribeTopicPartitionsResponsePartition(
            partition_index=number, leader_id=1, replica_nodes=[1, 2], isr_nodes=[1], offline_replicas=[]
        )

    def topic(name: str, *numbers: int) -> DescribeTopicPartitionsResponseTopic:
        return DescribeTopicPartitionsResponseTopic(
            name=name, topic_id=Uuid(b"0123456789abcdef"), partitions=[partition(number) for number in numbers]
        )

    pages = [
        DescribeTopicPartitionsResponse(
            topics=[topic("a", 0), topic("b", 0, 1)], next_cursor=Cursor(topic_name="b", partition_index=2)
        ),
        DescribeTopicPartitionsResponse(topics=[topic("b", 2)]),
    ]
    nodes = FakeNodes({DescribeTopicPartitionsRequest: in_turn(*pages)})
    found = run(nodes, lambda admin: admin.describe_topics(["b", "a"]))
    assert list(found) == ["b", "a"]
    assert [each.partition for each in found["b"].partitions] == [0, 1, 2]
    assert [node.host for node in found["a"].partitions[0].replicas] == ["broker1", "broker2"]
    second = nodes.requests(DescribeTopicPartitionsRequest)[1]
    assert [each.name for each in second.topics] == ["b"]


def test_brokers_that_have_no_pages_tell_all_at_once() -> None:
    nodes = FakeNodes({}, versions={DescribeTopicPartitionsRequest: None}, leaders={"a": [1, -1]})
    described = run(nodes, lambda admin: admin.describe_topics(["a"]))["a"]
    assert [each.leader.node_id if each.leader else None for each in described.partitions] == [1, None]
    assert described.partitions[0].elr is None
    with pytest.raises(BrokerError, match="there is no topic b"):
        run(nodes, lambda admin: admin.describe_topics(["b"]))


def test_what_no_broker_knows_is_told_once() -> None:
    """However many there are: who asks may have another way."""
    nodes = FakeNodes({}, versions={ListTransactionsRequest: None})
    with pytest.raises(UnsupportedRequestError, match="does not offer ListTransactions"):
        run(nodes, lambda admin: admin.list_transactions())
    nodes = FakeNodes({}, versions={ListTransactionsRequest: 0})
    with pytest.raises(UnsupportedRequestError):
        run(nodes, lambda admin: admin.list_transactions(pattern="a.*"))
