"""Requests to one node, on a connection of their own: what this node says, and no other."""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple, TypeVar, cast

from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest, CreateTopicsResponse
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    TopicData,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from tests.cluster.nodes import Cluster, Node

PATIENCE_S: Final = 60.0
_LOOK_S: Final = 0.02
_SHORT_S: Final = 3.0
T = TypeVar("T")


class Quorum(NamedTuple):
    leader_id: int
    epoch: int


class Broker(NamedTuple):
    is_fenced: bool
    address: str


def ask(address: str, request: Request, *, version: int | None = None, timeout_s: float = _SHORT_S) -> Any:
    """The answer, in the newest version if none is given; raises `OSError` where there is none in time."""
    host, _, port = address.rpartition(":")
    version = api(ApiKey(request.API_KEY)).served.high if version is None else version
    frame = b"".join(map(bytes, encode_request(request, version, 7, "tests")))
    with socket.create_connection((host, int(port)), timeout=timeout_s) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        size = struct.unpack(">i", _exactly(connection, 4))[0]
        answer = _exactly(connection, size)
    response: Response = decode_response(api(ApiKey(request.API_KEY)).response, version, answer)[1]
    return response


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        piece = connection.recv(size - len(parts))
        if not piece:
            raise ConnectionResetError("the node closed the connection")
        parts += piece
    return bytes(parts)


def until(what: str, look: Callable[[], T | None], *, patience_s: float = PATIENCE_S) -> T:
    """What `look` finds, as soon as it finds something; what does not answer has nothing to find."""
    deadline_s = time.monotonic() + patience_s
    problem: object = None
    while time.monotonic() < deadline_s:
        try:
            found = look()
        except OSError as failure:
            problem, found = failure, None
        if found is not None and found is not False:
            return found
        time.sleep(_LOOK_S)
    raise AssertionError(f"{what}: not after {patience_s:.0f} s ({problem})")


def quorum(address: str, *, timeout_s: float = 1.0) -> Quorum | None:
    """Who leads, by the word of a controller that thinks that it leads, or of a broker that found it."""
    request = DescribeQuorumRequest(
        topics=[TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])]
    )
    response = cast(DescribeQuorumResponse, ask(address, request, timeout_s=timeout_s))
    if response.error_code or not response.topics or response.topics[0].partitions[0].error_code:
        return None
    found = response.topics[0].partitions[0]
    return Quorum(found.leader_id, found.leader_epoch)


def active(cluster: Cluster, *, above: int = -1, among: Iterable[Node] | None = None) -> tuple[Node, int]:
    """The active controller and its epoch, once there is one in an epoch above the given."""
    candidates = list(cluster.controllers if among is None else among)

    def look() -> tuple[Node, int] | None:
        for each in candidates:
            if each.is_running and not each.is_paused:
                try:
                    found = quorum(each.controller)
                except OSError:
                    continue
                if found is not None and found.leader_id == each.node_id and found.epoch > above:
                    return each, found.epoch
        return None

    return until(f"a controller leads in an epoch above {above}", look)


def create(
    node: Node, name: str, partitions: int = 1, *, at: int | None = None, timeout_ms: int = 30_000
) -> tuple[int, str]:
    """Create a topic through one node; error code and message. `at` is the broker that shall have it."""
    from barnabas.wire.messages.create_topics import CreatableReplicaAssignment

    assignments = [] if at is None else [CreatableReplicaAssignment(partition_index=0, broker_ids=[at])]
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions if at is None else -1,
        replication_factor=1 if at is None else -1,
        assignments=assignments,
        configs=[],
    )
    request = CreateTopicsRequest(topics=[topic], timeout_ms=timeout_ms)
    response = cast(CreateTopicsResponse, ask(node.bootstrap, request, timeout_s=timeout_ms / 1000 + 10))
    return response.topics[0].error_code, response.topics[0].error_message or ""


def created(node: Node, name: str, partitions: int = 1, *, at: int | None = None) -> None:
    assert create(node, name, partitions, at=at) == (0, "")


def brokers(node: Node) -> dict[int, Broker]:
    """All brokers that this one knows of."""
    request = DescribeClusterRequest(include_cluster_authorized_operations=False, include_fenced_brokers=True)
    response = cast(DescribeClusterResponse, ask(node.bootstrap, request))
    assert response.error_code == 0, response
    return {each.broker_id: Broker(each.is_fenced, f"{each.host}:{each.port}") for each in response.brokers}


def fenced(node: Node) -> set[int]:
    return {broker_id for broker_id, each in brokers(node).items() if each.is_fenced}


def leaders(node: Node, topic: str) -> list[int] | None:
    """Who leads each partition, as this node tells; None if it knows no such topic."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    response = cast(MetadataResponse, ask(node.bootstrap, request))
    found = response.topics[0]
    if found.error_code == 3:
        return None
    return [each.leader_id for each in sorted(found.partitions, key=lambda each: each.partition_index)]


def replicas_in_sync(node: Node, topic: str) -> list[list[int]]:
    """Of each partition, as this node tells."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    response = cast(MetadataResponse, ask(node.bootstrap, request))
    return [
        sorted(each.isr_nodes) for each in sorted(response.topics[0].partitions, key=lambda each: each.partition_index)
    ]


def topics(node: Node) -> set[str]:
    response = cast(MetadataResponse, ask(node.bootstrap, MetadataRequest(topics=None)))
    return {str(each.name) for each in response.topics}


def all_unfenced(cluster: Cluster) -> None:
    """Wait until each running broker tells that all running brokers are unfenced."""
    expected = {each.node_id for each in cluster.running_brokers}
    for node in cluster.running_brokers:
        until(
            f"node {node.node_id} sees all brokers unfenced",
            lambda node=node: expected <= {each for each, told in brokers(node).items() if not told.is_fenced},  # type: ignore[misc]
        )
