"""A connection without a network, for tests of what stands behind it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator, Sequence
from types import ModuleType
from typing import Any, TypeVar, cast

from barnabas.base.steps import at_once
from barnabas.broker.context import RequestContext
from barnabas.broker.router import Route
from barnabas.broker.turns import Turns
from barnabas.net import ConnectionPhase, RequestFields
from barnabas.wire.apis import ApiKey
from barnabas.wire.compiler import Buffer
from barnabas.wire.message import Message

M = TypeVar("M", bound=Message)


class FakeConnection(RequestFields):
    """Remembers what it was told: the answers, and why it was closed."""

    def __init__(self, listener: str = "PLAINTEXT") -> None:
        self.id = 1
        self.listener = listener
        self.peer_host = "127.0.0.1"
        self.peer_port = 50_000
        self.principal = "User:ANONYMOUS"
        self.is_token_authenticated = False
        self.client_software = ("", "")
        self.sends_untouched = False
        self.answers: list[bytes] = []
        self.unanswered = 0
        self.muted_ms: list[int] = []
        self.phase = ConnectionPhase.READY
        self.closed: str | None = None
        self._on_close: dict[object, Callable[[], object]] = {}

        self.is_parked = False
        self.expected_bytes = 0
        self.asked_bytes = 0
        self.released_frames = 0

    @property
    def is_closed(self) -> bool:
        return self.closed is not None

    def ask_room(self, size_bytes: int, granted: Callable[[], None]) -> bool:
        self.asked_bytes += size_bytes
        return True

    def go_on_later(self, slice_of_work: Callable[[], None]) -> None:
        asyncio.get_running_loop().call_soon(slice_of_work)

    def respond(self, parts: Sequence[Buffer]) -> None:
        self.answers.append(b"".join(bytes(part) for part in parts))

    def respond_with_frame(self, frame: bytes) -> None:
        self.answers.append(frame[4:])

    def finish_without_response(self) -> None:
        self.unanswered += 1

    def mute_for(self, throttle_ms: int) -> None:
        self.muted_ms.append(throttle_ms)

    def expect_response(self, size_bytes: int) -> None:
        self.expected_bytes += size_bytes

    def release_frame(self) -> None:
        self.released_frames += 1

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        token = object()
        self._on_close[token] = callback
        return lambda: cast(None, self._on_close.pop(token, None))

    def park(self, give_up: Callable[[], object]) -> Callable[[], None]:
        self.is_parked = True
        return self.on_close(give_up)

    def close(self, reason: str | None = None) -> None:
        self.closed = reason or ""
        self.phase = ConnectionPhase.CLOSED
        for callback in list(self._on_close.values()):
            callback()


def handled(answer: Any, connection: FakeConnection) -> Any:
    """What a handler returned, or a future of it, whether it works in steps or at once."""
    if not isinstance(answer, Generator):
        return answer
    done = Turns().future(cast(Any, connection), answer)
    return done.result() if done.done() else done


def over_the_wire(message: M, version: int) -> M:
    """The message after it went through its bytes, as it is sent: pieces of it may be encoded already."""
    return type(message).decode(b"".join(at_once(message.encode_in_slices(version))), version)


def context_of(
    key: ApiKey, version: int, connection: FakeConnection, client_id: str | None = "tests"
) -> RequestContext:
    return RequestContext(key, version, 1, client_id, connection.listener, connection.principal, connection.peer_host)


def call(handler: ModuleType, services: Any, context: RequestContext, request: Any, connection: FakeConnection) -> Any:
    """What a handler answers, or a future of it: it is called as the router calls it."""
    return handled(Route.of(handler).handle(services, context, request, cast(Any, connection)), connection)
