"""A cluster of brokers that know only versions, metadata and coordinators, and that can be told to misbehave."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.client.core.metadata import Metadata
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings import ClientSettings, ProducerSettings
from barnabas.net import Connection, ListenerSpec, Server
from barnabas.wire import ApiKey, decode_request_header, encode_response
from barnabas.wire.apis import api
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.api_versions import ApiVersion, ApiVersionsResponse
from barnabas.wire.messages.find_coordinator import Coordinator, FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.heartbeat import HeartbeatResponse
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

VERSIONS: Mapping[ApiKey, tuple[int, int]] = {
    ApiKey.API_VERSIONS: (0, 4),
    ApiKey.METADATA: (0, 13),
    ApiKey.FIND_COORDINATOR: (0, 6),
    ApiKey.HEARTBEAT: (0, 4),
}

#: What an answer may be instead: nothing at all, or the end of the connection.
SILENCE = object()
HANG_UP = object()

Answer = Callable[["Broker", Request, int], Any]


class LoopClock:
    """The running loop's time, as a clock: real or simulated."""

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class Broker:
    """One node. `answers` replaces what it would say, by api: a message, `SILENCE`, `HANG_UP`, or bytes of a body."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.cluster = cluster
        self.node_id = node_id
        self.versions = dict(VERSIONS)
        self.answers: dict[ApiKey, Answer] = {}
        #: What it was asked, with the version.
        self.log: list[tuple[ApiKey, int, Request]] = []
        self.connection_count = 0
        self.server = Server(lambda frame: False)
        self.port = 0

    async def start(self) -> None:
        self.server = Server(lambda frame: False)
        await self.server.start([ListenerSpec("A", "127.0.0.1", self.port)], self._dispatch)
        self.port = self.server.endpoints["A"][1]

    async def stop(self) -> None:
        await self.server.stop(0)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def asked(self, key: ApiKey) -> list[Any]:
        return [request for each, _, request in self.log if each is key]

    def _dispatch(self, connection: Connection, frame: bytearray) -> None:
        header, body = decode_request_header(frame)
        key, version = ApiKey(header.request_api_key), header.request_api_version
        highest = self.versions.get(key, (0, -1))[1]
        if key is ApiKey.API_VERSIONS and version > highest:
            refusal = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[])
            connection.respond(encode_response(refusal, 0, header.correlation_id))
            return
        request = api(key).request.decode(memoryview(frame)[body:], version)
        self.log.append((key, version, request))
        answer: Any = (
            self.answers[key](self, request, version) if key in self.answers else self._usual(request, version)
        )
        if answer is HANG_UP:
            connection.abort("told to")
        elif isinstance(answer, Response):
            connection.respond(encode_response(answer, version, header.correlation_id))
        elif isinstance(answer, bytes):
            connection.respond([header.correlation_id.to_bytes(4, "big"), answer])

    def _usual(self, request: Request, version: int) -> Response:
        if isinstance(request, MetadataRequest):
            return self.cluster.metadata(request)
        if isinstance(request, FindCoordinatorRequest):
            return self.cluster.coordinators(request, version)
        if request.API_KEY == ApiKey.HEARTBEAT:
            return HeartbeatResponse(error_code=0)
        keys = [
            ApiVersion(api_key=key, min_version=low, max_version=high) for key, (low, high) in self.versions.items()
        ]
        return ApiVersionsResponse(api_keys=keys)


class Cluster:
    """Brokers 1 to n. `topics` by name: id and the leader and epoch of each partition."""

    def __init__(self, size: int = 1) -> None:
        self.brokers = {node_id: Broker(self, node_id) for node_id in range(1, size + 1)}
        self.topics: dict[str, tuple[Uuid, list[tuple[int, int]]]] = {}
        self.errors: dict[str, ErrorCode] = {}
        self.coordinator_of: dict[str, int | ErrorCode] = {}
        self.cluster_id = "fakefakefakefakefake00"
        #: Who is told of; all that were made unless changed.
        self.shown = list(self.brokers)

    def __getitem__(self, node_id: int) -> Broker:
        return self.brokers[node_id]

    async def start(self) -> None:
        for broker in self.brokers.values():
            await broker.start()

    async def stop(self) -> None:
        for broker in self.brokers.values():
            await broker.stop()

    @property
    def bootstrap_servers(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def add_topic(self, name: str, *leaders: tuple[int, int], seed: int = 0) -> None:
        self.topics[name] = (Uuid.random(Random(f"{name}{seed}")), list(leaders) or [(1, 0)])

    def metadata(self, request: MetadataRequest) -> MetadataResponse:
        names = list(self.topics) if request.topics is None else [str(each.name) for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=node_id, host="127.0.0.1", port=self.brokers[node_id].port)
                for node_id in self.shown
            ],
            cluster_id=self.cluster_id,
            controller_id=self.shown[0],
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        code = self.errors.get(name, ErrorCode.NONE)
        if not code and name not in self.topics:
            code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        if code:
            return MetadataResponseTopic(name=name, error_code=code, partitions=[])
        topic_id, leaders = self.topics[name]
        partitions = [
            MetadataResponsePartition(
                partition_index=number, leader_id=leader, leader_epoch=epoch, replica_nodes=[leader], isr_nodes=[leader]
            )
            for number, (leader, epoch) in enumerate(leaders)
        ]
        return MetadataResponseTopic(name=name, topic_id=topic_id, partitions=partitions)

    def coordinators(self, request: FindCoordinatorRequest, version: int) -> FindCoordinatorResponse:
        told = [self._coordinator(key) for key in (request.coordinator_keys if version >= 4 else [request.key])]
        if version >= 4:
            return FindCoordinatorResponse(coordinators=told)
        one = told[0]
        return FindCoordinatorResponse(
            error_code=one.error_code, node_id=one.node_id, host=one.host, port=one.port, error_message=None
        )

    def _coordinator(self, key: str) -> Coordinator:
        found = self.coordinator_of.get(key, 1)
        if isinstance(found, ErrorCode):
            return Coordinator(key=key, node_id=-1, host="", port=-1, error_code=found, error_message=None)
        return Coordinator(key=key, node_id=found, host="127.0.0.1", port=self.brokers[found].port)


def client(
    bootstrap_servers: str, kind: type[ClientSettings] = ProducerSettings, *, metrics: Any = None, **settings: Any
) -> NetworkClient:
    """A network that is not started."""
    loaded = kind.load({"bootstrap.servers": bootstrap_servers}, **settings)
    randomness = Random(5)
    metadata = Metadata.of(loaded, randomness=randomness)
    return NetworkClient(loaded, metadata, clock=LoopClock(), randomness=randomness, metrics=metrics)
