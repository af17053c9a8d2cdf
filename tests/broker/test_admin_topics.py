"""Topics through the handlers: every version, and who may do what."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker.handlers import create_partitions, create_topics, delete_topics
from barnabas.metadata.authorizer import AclOperation
from barnabas.metadata.image import ConfigResourceType
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tests.broker.admin import AdminNode, Deny, node_settings
from tests.metadata.clusters import new_topic


@pytest.mark.parametrize("version", list(CreateTopicsRequest.SERVED))
def test_topics_are_created_in_every_version(version: int) -> None:
    node = AdminNode(node_settings(num_partitions="3"))
    request = CreateTopicsRequest(topics=[new_topic("t", configs={"flush.ms": "9"}), new_topic("t/t")])
    good, bad = node.ask(create_topics, request, version).topics
    assert (good.error_code, bad.error_code) == (0, ErrorCode.INVALID_TOPIC_EXCEPTION)
    assert len(node.metadata.image.topics["t"].partitions) == 3
    assert node.metadata.image.config(ConfigResourceType.TOPIC, "t") == {"flush.ms": "9"}
    assert (good.num_partitions, len(good.configs)) == ((3, 33) if version >= 5 else (-1, 0))
    assert (good.topic_id != Uuid.ZERO) == (version >= 7)


@pytest.mark.parametrize("version", list(DeleteTopicsRequest.SERVED))
def test_topics_are_deleted_in_every_version(version: int) -> None:
    node = AdminNode()
    node.ask(create_topics, CreateTopicsRequest(topics=[new_topic("t")]), 7)
    if version >= 6:
        request = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=Uuid.ZERO)], timeout_ms=1)
    else:
        request = DeleteTopicsRequest(topic_names=["t"], timeout_ms=1)
    (result,) = node.ask(delete_topics, request, version).responses
    assert (result.name, result.error_code) == ("t", 0)
    assert not node.metadata.image.topics


@pytest.mark.parametrize("version", list(CreatePartitionsRequest.SERVED))
def test_partitions_are_added_in_every_version(version: int) -> None:
    node = AdminNode()
    node.ask(create_topics, CreateTopicsRequest(topics=[new_topic("t")]), 7)
    growth = CreatePartitionsTopic(name="t", count=4, assignments=None)
    request = CreatePartitionsRequest(topics=[growth], timeout_ms=1, validate_only=False)
    (result,) = node.ask(create_partitions, request, version).results
    assert (result.error_code, result.error_message) == (0, None)
    assert len(node.metadata.image.topics["t"].partitions) == 4


def test_who_may_not_is_refused() -> None:
    node = AdminNode()
    node.ask(create_topics, CreateTopicsRequest(topics=[new_topic("t")]), 7)
    node.authorizer = Deny(AclOperation.CREATE, AclOperation.DELETE, AclOperation.ALTER)
    (created,) = node.ask(create_topics, CreateTopicsRequest(topics=[new_topic("u")]), 7).topics
    named = [DeleteTopicState(name="t", topic_id=Uuid.ZERO)]
    (deleted,) = node.ask(delete_topics, DeleteTopicsRequest(topics=named, timeout_ms=1), 6).responses
    growth = CreatePartitionsTopic(name="t", count=4, assignments=None)
    request = CreatePartitionsRequest(topics=[growth], timeout_ms=1, validate_only=False)
    (grown,) = node.ask(create_partitions, request, 3).results
    refused = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert [each.error_code for each in (created, deleted, grown)] == [refused] * 3
    node.authorizer = Deny(AclOperation.DESCRIBE_CONFIGS)
    (hidden,) = node.ask(create_topics, CreateTopicsRequest(topics=[new_topic("u")]), 7).topics
    assert (hidden.error_code, hidden.topic_config_error_code, hidden.configs) == (0, refused, [])


def test_a_few_bytes_cannot_ask_for_very_many_partitions() -> None:
    node = AdminNode()
    too_many = CreateTopicsRequest(topics=[new_topic(f"t{number}", 150, 1) for number in range(100)])
    refused = node.ask(create_topics, too_many, 7).topics
    assert {each.error_code for each in refused} == {ErrorCode.POLICY_VIOLATION}
    assert "15000" in refused[0].error_message
    assert not node.metadata.image.topics
    node.ask(create_topics, CreateTopicsRequest(topics=[new_topic(f"t{number}", 1, 1) for number in range(70)]), 7)
    growth = [CreatePartitionsTopic(name=f"t{number}", count=151, assignments=None) for number in range(70)]
    more = CreatePartitionsRequest(topics=growth, timeout_ms=1, validate_only=False)
    refused = node.ask(create_partitions, more, 3).results
    assert {each.error_code for each in refused} == {ErrorCode.POLICY_VIOLATION}
    assert "10500" in refused[0].error_message
    assert {len(topic.partitions) for topic in node.metadata.image.topics.values()} == {1}
