"""A cluster that answers as a test says, below the admin's driver: who is asked, in which version, and what then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from random import Random
from typing import Any

from barnabas.base.errors import LocalProtocolError
from barnabas.client.admin import Admin
from barnabas.client.admin.driver import AdminApiDriver
from barnabas.client.core.cluster_view import ClusterView, Node
from barnabas.client.network_client import CoordinatorType
from barnabas.net.errors import ChannelError, UnsupportedRequestError
from barnabas.wire.headers import encode_request
from barnabas.wire.message import Request
from barnabas.wire.messages.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

#: Numbers of connections to coordinators, as the network gives them, are not those of the brokers.
COORDINATOR_BASE = 1000

Answer = Callable[[int, Any, int], Any]


class FakeNodes:
    """The `Nodes` of a driver. `answers` gives a function of broker, request and version for each kind of request; it
    may return an exception. `versions` is what brokers offer: None for not at all, the newest where nothing is said."""

    def __init__(
        self,
        answers: Mapping[type[Request], Answer],
        *,
        versions: Mapping[type[Request], int | None] | None = None,
        broker_ids: Iterable[int] = (1, 2, 3),
        controllers: Iterable[int | None] = (1,),
        leaders: Mapping[str, list[int]] | None = None,
        coordinators: Iterable[int] = (3,),
    ) -> None:
        self._nodes = {each: Node(each, f"broker{each}", 9092) for each in broker_ids}
        self._answers: dict[type[Request], Answer] = {MetadataRequest: self._tell_topics}
        self._answers |= answers
        self._versions = dict(versions or {})
        self._controllers = list(controllers)
        self._coordinators = list(coordinators)
        self.leaders = leaders or {}
        #: (broker, request, version) of all that was asked.
        self.asked: list[tuple[int, Request, int]] = []
        self.update_count = 0
        self.is_closed = False

    @property
    def view(self) -> ClusterView:
        controller = self._controllers[min(self.update_count, len(self._controllers) - 1)]
        return ClusterView(
            self.update_count, "fake", None if controller is None else self._nodes[controller], self._nodes
        )

    async def start(self) -> None: ...

    async def close(self) -> None:
        self.is_closed = True

    async def update_metadata(self, timeout_ms: float, *, is_asked_for: bool = False) -> ClusterView:
        await asyncio.sleep(0)
        self.update_count += 1
        return self.view

    def node(self, node_id: int) -> Node | None:
        return self._nodes.get(node_id % COORDINATOR_BASE)

    def is_connected(self, node_id: int) -> bool:
        return False

    def in_flight(self, node_id: int) -> int:
        return 0

    async def connect(self, node_id: int, timeout_ms: float | None = None) -> None: ...

    def version_of(self, node_id: int, request: type[Request]) -> int | None:
        version = self._versions.get(request, request.VERSIONS.high)
        if version is None:
            raise UnsupportedRequestError(f"broker{node_id}:9092", f"it does not offer {request.__name__}")
        return version

    async def request(
        self, node_id: int, message: Request, *, version: int | None = None, timeout_ms: float | None = None
    ) -> Any:
        assert version is not None
        try:
            encode_request(message, version, 1, "test")
        except LocalProtocolError as error:
            raise UnsupportedRequestError(f"broker{node_id}:9092", str(error)) from error
        broker_id = node_id % COORDINATOR_BASE
        self.asked.append((broker_id, message, version))
        await asyncio.sleep(0)
        answer = self._answers[type(message)](broker_id, message, version)
        if asyncio.iscoroutine(answer):
            answer = await answer
        if isinstance(answer, Exception):
            raise answer
        return answer

    async def coordinator(self, kind: CoordinatorType, key: str, timeout_ms: float) -> int:
        return COORDINATOR_BASE + self._coordinators[0]

    async def coordinators(self, kind: CoordinatorType, keys: Iterable[str], timeout_ms: float) -> dict[str, int]:
        return {key: await self.coordinator(kind, key, timeout_ms) for key in keys}

    def forget_coordinator(self, kind: CoordinatorType, key: str, why: str = "") -> None:
        if len(self._coordinators) > 1:
            del self._coordinators[0]

    def asked_brokers(self, request: type[Request]) -> list[int]:
        return [broker_id for broker_id, message, _ in self.asked if isinstance(message, request)]

    def requests(self, request: type[Request]) -> list[Any]:
        return [message for _, message, _ in self.asked if isinstance(message, request)]

    def _tell_topics(self, broker_id: int, request: MetadataRequest, version: int) -> MetadataResponse:
        wanted = list(self.leaders) if request.topics is None else [each.name or "" for each in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=each.node_id, host=each.host, port=each.port)
                for each in self._nodes.values()
            ],
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name=name,
                    error_code=0 if name in self.leaders else 3,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=leader,
                            leader_epoch=5,
                            replica_nodes=[1],
                            isr_nodes=[1],
                        )
                        for number, leader in enumerate(self.leaders.get(name, ()))
                    ],
                )
                for name in wanted
            ],
        )


def admin_of(nodes: FakeNodes, **settings: Any) -> Admin:
    """An admin above such a cluster, which does not wait long before it tries again."""
    quick = {"retry_backoff_ms": 1, "retry_backoff_max_ms": 2}
    admin = Admin(bootstrap_servers="fake:9092", **(quick | settings))
    admin._driver = AdminApiDriver(admin.settings, nodes, Random(7))
    return admin


def broken(broker_id: int, kind: type[ChannelError]) -> ChannelError:
    return kind(f"broker{broker_id}:9092", "as the test wants it")
