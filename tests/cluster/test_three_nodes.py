"""Three nodes that are broker and controller each: asked at any of them, the cluster is one."""

from __future__ import annotations

import uuid
from typing import cast

from barnabas import Admin, AlterConfig, ConfigResource, ConfigResourceType, Consumer, Producer
from barnabas.base.ids import Uuid
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse, DeleteTopicState
from barnabas.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResponse,
)
from tests.cluster.asking import active, ask, brokers, created, leaders, quorum, topics, until
from tests.cluster.nodes import Cluster


def unique(name: str) -> str:
    return f"{name}-{uuid.uuid4().hex[:8]}"


def test_all_tell_the_same_brokers_and_one_leader(three: Cluster) -> None:
    leader, epoch = active(three)
    expected = {each.node_id: (False, each.bootstrap) for each in three.brokers}
    for node in three.brokers:
        assert brokers(node) == expected
        assert quorum(node.bootstrap) == (leader.node_id, epoch)


def test_a_topic_created_at_any_node_can_be_used_there_at_once_and_elsewhere_soon(three: Cluster) -> None:
    names = {node.node_id: unique("made") for node in three.brokers}
    for node in three.brokers:
        created(node, names[node.node_id], 3)
        assert sorted(leaders(node, names[node.node_id]) or []) == [1, 2, 3]
    for node in three.brokers:
        until("all topics are known", lambda node=node: set(names.values()) <= topics(node))  # type: ignore[misc]


def test_topics_are_deleted_through_any_node_by_clients_of_any_age(three: Cluster) -> None:
    served = api(ApiKey.DELETE_TOPICS).served
    for version in range(served.low, served.high + 1):
        for node in three.brokers:
            topic = unique("deleted")
            created(node, topic)
            named = DeleteTopicsRequest(topic_names=[topic], timeout_ms=30_000)
            by_state = DeleteTopicsRequest(topics=[DeleteTopicState(name=topic, topic_id=Uuid.ZERO)], timeout_ms=30_000)
            request = by_state if version >= 6 else named
            response = cast(DeleteTopicsResponse, ask(node.bootstrap, request, version=version))
            assert [(each.name, each.error_code) for each in response.responses] == [(topic, 0)], version


def test_records_go_to_whoever_leads_and_come_from_there(three: Cluster) -> None:
    topic = unique("records")
    created(three[2], topic, 3)
    with Producer(bootstrap_servers=three[1].bootstrap) as producer:
        sent = [producer.send(topic, b"%d" % each, partition=each % 3) for each in range(30)]
        assert {each.result(30).partition for each in sent} == {0, 1, 2}
    with Consumer(
        topic, bootstrap_servers=three[3].bootstrap, auto_offset_reset="earliest", group_id=topic
    ) as consumer:
        values: list[bytes] = []
        while len(values) < 30:
            values += [each.value for each in consumer.poll(30)]
        consumer.commit()
    assert sorted(values) == sorted(b"%d" % each for each in range(30))
    with Admin(bootstrap_servers=three[2].bootstrap) as admin:
        offsets = admin.list_group_offsets(topic)
    assert sum(each.offset for each in offsets.values()) == 30


def test_settings_that_are_altered_at_one_node_hold_at_all(three: Cluster) -> None:
    topic = unique("settings")
    created(three[1], topic)
    resource = ConfigResource(ConfigResourceType.TOPIC, topic)
    with Admin(bootstrap_servers=three[3].bootstrap) as admin:
        admin.alter_configs({resource: [AlterConfig("retention.ms", 12345)]})
    request = DescribeConfigsRequest(
        resources=[DescribeConfigsResource(resource_type=2, resource_name=topic, configuration_keys=["retention.ms"])]
    )
    for node in three.brokers:
        address = node.bootstrap
        until("it is known", lambda address=address: _value(ask(address, request)) == "12345")  # type: ignore[misc]


def _value(response: DescribeConfigsResponse) -> str | None:
    return response.results[0].configs[0].value
