"""A connection without a network, for tests of what stands behind it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import cast

from barnabas.wire.compiler import Buffer


class FakeConnection:
    """Remembers what it was told: the answers, and why it was closed."""

    def __init__(self, listener: str = "PLAINTEXT") -> None:
        self.id = 1
        self.listener = listener
        self.peer_host = "127.0.0.1"
        self.peer_port = 50_000
        self.principal = "User:ANONYMOUS"
        self.client_software = ("", "")
        self.answers: list[bytes] = []
        self.unanswered = 0
        self.muted_ms: list[int] = []
        self.closed: str | None = None
        self._on_close: dict[object, Callable[[], object]] = {}

        self.expected_bytes = 0

    def respond(self, parts: Sequence[Buffer]) -> None:
        self.answers.append(b"".join(bytes(part) for part in parts))

    def finish_without_response(self) -> None:
        self.unanswered += 1

    def mute_for(self, throttle_ms: int) -> None:
        self.muted_ms.append(throttle_ms)

    def expect_response(self, size_bytes: int) -> None:
        self.expected_bytes += size_bytes

    def on_close(self, callback: Callable[[], object]) -> Callable[[], None]:
        token = object()
        self._on_close[token] = callback
        return lambda: cast(None, self._on_close.pop(token, None))

    def park(self, give_up: Callable[[], object]) -> Callable[[], None]:
        return self.on_close(give_up)

    def close(self, reason: str | None = None) -> None:
        self.closed = reason or ""
        for callback in list(self._on_close.values()):
            callback()
