"""A node's administration without the node: handlers over a controller whose records are committed at once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from types import ModuleType
from typing import Any, TypeVar

from barnabas.broker.configs.config_resources import BrokerRules, controller_options, effective_settings
from barnabas.broker.services import MetadataCache
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.authorizer import AclOperation, AllowEverything, AuthorizableRequestContext, Authorizer, Resource
from barnabas.metadata.controller_apis import ControllerApis
from barnabas.wire.message import Request, Response
from tests.broker.connections import FakeConnection, call, context_of, over_the_wire
from tests.metadata.clusters import CLUSTER_ID, Cluster

T = TypeVar("T")


def node_settings(**changes: str) -> BrokerSettings:
    return BrokerSettings.load(
        {
            "node.id": "1",
            "process.roles": "broker,controller",
            "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": "1@127.0.0.1:9093",
            "offsets.topic.replication.factor": "1",
        },
        {name.replace("_", "."): value for name, value in changes.items()},
    )


class Deny(AllowEverything):
    """Allows everything but some operations."""

    def __init__(self, *operations: AclOperation) -> None:
        self._operations = operations

    def is_allowed(
        self,
        caller: AuthorizableRequestContext,
        operation: AclOperation,
        resource_type: Resource,
        resource_name: str,
        *,
        log_if_denied: bool = True,
        log_if_allowed: bool = True,
    ) -> bool:
        return operation not in self._operations


class AdminNode:
    """What the handlers see of node 1, and `ask` to call them."""

    def __init__(self, settings: BrokerSettings | None = None) -> None:
        self.static = settings or node_settings()
        self.cluster = Cluster(brokers=1, options=controller_options(self.static, CLUSTER_ID))
        self.settings = self.static
        self.node_id = 1
        self.authorizer: Authorizer = AllowEverything()
        self.metadata = MetadataCache()
        self.controller = self
        self.tls = None
        self._apply()

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        nothing: Any = None
        rules = BrokerRules(self.static, self.node_id)
        apis = ControllerApis(self.cluster.controller, nothing, self.authorizer, rules)
        response = self.cluster.do(apis.handle(request, version, caller, self.cluster.now_ms))
        self._apply()
        return response

    def ask(self, handler: ModuleType, request: Request, version: int) -> Any:
        """The handler's answer, after request and answer went through their bytes."""
        received = type(request).decode(request.encode(version), version)
        connection = FakeConnection()
        context = context_of(handler.API_KEY, version, connection)

        async def handle() -> Any:
            answer = call(handler, self, context, received, connection)
            while isinstance(answer, Awaitable):
                answer = await answer
            return answer

        return over_the_wire(asyncio.run(handle()), version)

    def _apply(self) -> None:
        self.metadata.image = self.cluster.image
        self.settings = effective_settings(self.static, self.cluster.image, 1)
        self.cluster.controller.options = controller_options(self.static, CLUSTER_ID, self.cluster.image)
