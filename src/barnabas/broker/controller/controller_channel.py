"""The way from a broker to the active controller: by message, wherever the controller is."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import NamedTuple, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.quorum import Quorum
from barnabas.wire.message import Request, Response


class BrokerCaller(NamedTuple):
    """A broker that asks for itself, not for a client."""

    principal: str
    client_host: str
    client_id: str | None


def broker_caller(node_id: int) -> BrokerCaller:
    return BrokerCaller("User:ANONYMOUS", "127.0.0.1", f"broker-{node_id}")


class ControllerChannel(Protocol):
    """Takes a request to the active controller and brings its answer back."""

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        """Raises `BrokerError` where no answer came, or one with nothing but an error."""
        ...


class DirectChannel:
    """To a controller in the same process, by a call.

    An answer waits until this broker has applied what was decided: whoever hears that a topic exists can use it here.
    """

    def __init__(
        self, controller: QuorumController, quorum: Quorum, until_applied: Callable[[int], Awaitable[bool]]
    ) -> None:
        self._controller = controller
        self._quorum = quorum
        self._until_applied = until_applied

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        response = await self._controller.submit(request, version, caller)
        if not await self._until_applied(self._quorum.high_watermark - 1):
            raise BrokerError(ErrorCode.NOT_CONTROLLER, "the node is stopping")
        return response
