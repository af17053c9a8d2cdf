"""Planned faults of a broker, by kind of request: errors, closed connections, late answers."""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Awaitable
from dataclasses import dataclass
from threading import Lock

from barnabas.base.error_codes import ErrorCode
from barnabas.base.steps import at_once
from barnabas.broker.context import RequestContext
from barnabas.broker.error_responses import error_response
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response

__all__ = ["Faults"]


@dataclass(slots=True)
class _Fault:
    """What a request of some kind will meet, and how many of them."""

    error: ErrorCode | None
    close: bool
    delay_ms: int
    remaining: int


class Faults:
    """What goes wrong next. May be told from any thread.

    broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER, times=2)
    broker.faults.fail_next(ApiKey.FETCH, close=True)
    broker.faults.fail_next(ApiKey.HEARTBEAT, delay_ms=500)
    """

    def __init__(self) -> None:
        #: How many requests of each kind have come, faults or not.
        self.seen: Counter[ApiKey] = Counter()
        self._planned: dict[ApiKey, deque[_Fault]] = {}
        self._lock = Lock()

    def fail_next(
        self,
        api_key: ApiKey,
        *,
        error: ErrorCode | None = None,
        close: bool = False,
        delay_ms: int = 0,
        times: int = 1,
    ) -> None:
        """Let the next `times` requests of a kind meet a fault; after those planned before.

        With `error` they are not carried out but answered with it, with `close` they are not carried out and their
        connection is closed. `delay_ms` comes before that, or alone before the request is carried out as ever.
        """
        if error is not None and close:
            raise ValueError("a request is answered with an error or its connection is closed, not both")
        if error is None and not close and delay_ms <= 0:
            raise ValueError("say what is to happen: error=, close=True or delay_ms=")
        if times < 1:
            raise ValueError(f"times must be at least 1, not {times}")
        with self._lock:
            self._planned.setdefault(ApiKey(api_key), deque()).append(_Fault(error, close, delay_ms, times))

    def clear(self) -> None:
        """Forget what was planned and has not happened."""
        with self._lock:
            self._planned.clear()

    @property
    def pending(self) -> int:
        """How many requests have yet to meet their fault."""
        with self._lock:
            return sum(fault.remaining for planned in self._planned.values() for fault in planned)

    def intercept(self, context: RequestContext, request: Request) -> Response | Awaitable[Response | None] | None:
        """A node's interceptor: None lets the request pass."""
        fault = self._take(context.api_key)
        if fault is None:
            return None
        if fault.delay_ms:
            return self._later(fault, context, request)
        return _outcome(fault, context, request)

    def _take(self, api_key: ApiKey) -> _Fault | None:
        with self._lock:
            self.seen[api_key] += 1
            planned = self._planned.get(api_key)
            if not planned:
                return None
            fault = planned[0]
            fault.remaining -= 1
            if fault.remaining == 0:
                planned.popleft()
            return fault

    async def _later(self, fault: _Fault, context: RequestContext, request: Request) -> Response | None:
        await asyncio.sleep(fault.delay_ms / 1000)
        outcome = _outcome(fault, context, request)
        return outcome if outcome is None or isinstance(outcome, Response) else await outcome


def _outcome(fault: _Fault, context: RequestContext, request: Request) -> Response | asyncio.Future[Response] | None:
    if fault.error is None and not fault.close:
        return None
    if fault.close or getattr(request, "acks", None) == 0:  # who waits for no answer cannot be told an error
        given_up: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        given_up.cancel()
        return given_up
    assert fault.error is not None
    return at_once(error_response(context, request, fault.error, "planned by a test"))
