"""Topics as brokers describe them: page by page, or all at once by those before 3.8."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.client.admin.acls import AclOperation, authorized_operations
from barnabas.client.admin.driver import (
    MAY_PASS,
    MAYBE_NOT_YET,
    AdminApiDriver,
    Call,
    RequestSpec,
    broker_error,
    is_worth_another_try,
    raise_if_error,
    settled,
)
from barnabas.client.admin.routes import AnyNode, metadata_request
from barnabas.client.core.cluster_view import ClusterView, Node
from barnabas.net.errors import UnsupportedRequestError
from barnabas.wire.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponsePartition

T = TypeVar("T", bound=str | Uuid)

#: How many partitions an answer tells of unless somebody says otherwise; Kafka's own default.
PAGE_PARTITIONS: Final = 2000


@dataclass(frozen=True, slots=True)
class TopicPartitionInfo:
    """Who has a partition. `elr` are those out of sync that could lead without loss, if the cluster tells."""

    partition: int
    leader: Node | None
    leader_epoch: int
    replicas: tuple[Node, ...]
    isr: tuple[Node, ...]
    elr: tuple[Node, ...] | None = None
    last_known_elr: tuple[Node, ...] | None = None
    offline_replicas: tuple[Node, ...] = ()


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic with its partitions. `authorized_operations` is None unless it was asked for."""

    name: str
    topic_id: Uuid
    is_internal: bool
    partitions: tuple[TopicPartitionInfo, ...]
    authorized_operations: frozenset[AclOperation] | None = None


async def describe(
    driver: AdminApiDriver, call: Call, topics: list[T], with_operations: bool, page_partitions: int = PAGE_PARTITIONS
) -> dict[T, TopicDescription]:
    """Each topic, or its error. Only by name can topics be asked for page by page."""
    if not any(isinstance(each, Uuid) for each in topics):
        try:
            return await _by_pages(driver, call, topics, with_operations, page_partitions)
        except UnsupportedRequestError:
            pass  # An older broker: it tells all that it knows at once.
    return await _at_once(driver, call, topics, with_operations)


async def _at_once(
    driver: AdminApiDriver, call: Call, topics: list[T], with_operations: bool
) -> dict[T, TopicDescription]:
    def build(spec: RequestSpec[T]) -> MetadataRequest:
        return metadata_request(spec, spec.keys, with_operations)

    def read(spec: RequestSpec[T], response: MetadataResponse) -> Iterable[tuple[T, TopicDescription | Exception]]:
        raise_if_error(response.error_code)
        nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
        asked = set(spec.keys)
        for each in response.topics:
            key: Any = each.topic_id if each.topic_id in asked else each.name
            if each.error_code:
                yield key, broker_error(each.error_code, _unknown(each.error_code, key))
            else:
                yield (
                    key,
                    TopicDescription(
                        name=each.name or "",
                        topic_id=each.topic_id,
                        is_internal=each.is_internal,
                        partitions=_in_order(_partition(one, nodes) for one in each.partitions),
                        authorized_operations=authorized_operations(each.topic_authorized_operations),
                    ),
                )

    return await driver.ask_each(call, topics, AnyNode(), MetadataRequest, build, read)


@dataclass(slots=True)
class _Pages:
    """What was read so far, and where to go on: a topic may be spread over several pages."""

    topics: dict[str, DescribeTopicPartitionsResponseTopic] = field(default_factory=dict)
    cursor: Cursor | None = None

    def add(self, response: DescribeTopicPartitionsResponse) -> None:
        for each in response.topics:
            if each.name is not None and each.name in self.topics:
                self.topics[each.name].partitions.extend(each.partitions)
            elif each.name is not None:
                self.topics[each.name] = each
        self.cursor = response.next_cursor


async def _by_pages(
    driver: AdminApiDriver, call: Call, topics: list[T], with_operations: bool, page_partitions: int
) -> dict[T, TopicDescription]:
    asked = list(dict.fromkeys(topics))
    results: dict[T, TopicDescription] = {}
    errors: dict[T, Exception] = {}
    waiting, tries = asked, 0
    while waiting:
        pages = await _pages(driver, call, sorted(str(each) for each in waiting), page_partitions)
        view = await _view_with(driver, call, pages)
        for key in waiting:
            topic = pages.topics.get(str(key))
            if topic is None or topic.error_code:
                code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic.error_code
                errors[key] = broker_error(code, _unknown(code, key))
            else:
                results[key] = _description(topic, view.nodes, with_operations)
                errors.pop(key, None)
        tries += 1
        waiting = [key for key, error in errors.items() if is_worth_another_try(error, MAY_PASS, tries)]
        if waiting and not await driver.pause(call, tries):
            break
    return settled(asked, results, errors)


async def _pages(driver: AdminApiDriver, call: Call, names: list[str], page_partitions: int) -> _Pages:
    pages = _Pages()
    route: AnyNode[tuple[()]] = AnyNode()

    def build(spec: RequestSpec[tuple[()]]) -> DescribeTopicPartitionsRequest:
        # What lies before the cursor is done, and must not be asked for again.
        left = [name for name in names if pages.cursor is None or name >= pages.cursor.topic_name]
        return DescribeTopicPartitionsRequest(
            topics=[TopicRequest(name=name) for name in left],
            response_partition_limit=page_partitions,
            cursor=pages.cursor,
        )

    while True:
        pages.add(await driver.ask_one(call, route, DescribeTopicPartitionsRequest, build, _same))
        if pages.cursor is None:
            return pages


def _same(response: DescribeTopicPartitionsResponse) -> DescribeTopicPartitionsResponse:
    return response


async def _view_with(driver: AdminApiDriver, call: Call, pages: _Pages) -> ClusterView:
    """A view that has all brokers the pages name, if the cluster knows them: one may have left for good."""
    named = {node_id for topic in pages.topics.values() for one in topic.partitions for node_id in one.replica_nodes}
    return driver.view if named <= driver.view.nodes.keys() else await driver.newest_view(call)


def _description(
    topic: DescribeTopicPartitionsResponseTopic, nodes: Mapping[int, Node], with_operations: bool
) -> TopicDescription:
    return TopicDescription(
        name=topic.name or "",
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=_in_order(_partition(one, nodes) for one in topic.partitions),
        authorized_operations=authorized_operations(topic.topic_authorized_operations) if with_operations else None,
    )


def _in_order(partitions: Iterable[TopicPartitionInfo]) -> tuple[TopicPartitionInfo, ...]:
    return tuple(sorted(partitions, key=lambda each: each.partition))


def _partition(
    one: MetadataResponsePartition | DescribeTopicPartitionsResponsePartition, nodes: Mapping[int, Node]
) -> TopicPartitionInfo:
    elr, last_known_elr = None, None
    if isinstance(one, DescribeTopicPartitionsResponsePartition):
        elr, last_known_elr = _maybe_nodes(one.eligible_leader_replicas, nodes), _maybe_nodes(one.last_known_elr, nodes)
    return TopicPartitionInfo(
        partition=one.partition_index,
        leader=_nodes([one.leader_id], nodes)[0] if one.leader_id >= 0 else None,
        leader_epoch=one.leader_epoch,
        replicas=_nodes(one.replica_nodes, nodes),
        isr=_nodes(one.isr_nodes, nodes),
        elr=elr,
        last_known_elr=last_known_elr,
        offline_replicas=_nodes(one.offline_replicas, nodes),
    )


def _nodes(ids: Iterable[int], nodes: Mapping[int, Node]) -> tuple[Node, ...]:
    return tuple(nodes.get(node_id) or Node(node_id, "", -1) for node_id in ids)


def _maybe_nodes(ids: Iterable[int] | None, nodes: Mapping[int, Node]) -> tuple[Node, ...] | None:
    return None if ids is None else _nodes(ids, nodes)


def _unknown(code: int, topic: str | Uuid) -> str | None:
    """Brokers say nothing more than the code."""
    return f"there is no topic {topic}" if ErrorCode.of(code) in MAYBE_NOT_YET else None
