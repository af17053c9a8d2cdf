"""The order in which requests are dispatched: urgent ones first, each lane in the order of arrival.

Connections hand in whole frames. They are dispatched from one callback of the event loop, soon after the sockets were
read, so that an urgent request overtakes all that arrived with it. After a few milliseconds the loop gets its turn, so
that also an urgent request that arrives later waits no longer than that.

Work on a request that takes longer is handed in slice by slice. Each turn ends with one of them: so nobody waits for
more than one slice, and long work goes on however busy the lanes are.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.base.log_context import logger
from barnabas.net._kernel.metering import RequestMeter

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

_log = logger("barnabas.net")

Dispatch = Callable[["Connection", bytearray], None]
IsUrgent = Callable[[bytearray], bool]


class RequestChannel:
    """Frames that wait to be dispatched. A connection has at most one here.

    Guarantees: a frame of a connection that was closed meanwhile is not dispatched; a dispatch that fails closes its
    connection and nothing else.
    """

    __slots__ = (
        "_budget_ns",
        "_held_back",
        "_is_awake",
        "_is_urgent",
        "_long",
        "_loop",
        "_normal",
        "_outbox",
        "_urgent",
        "captures",
        "max_waiting",
        "meter",
    )

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        is_urgent: IsUrgent,
        max_waiting: int,
        budget_s: float,
        meter: RequestMeter | None = None,
    ) -> None:
        self.max_waiting = max_waiting
        #: Where requests are counted, with their times.
        self.meter = meter or RequestMeter(loop.time)
        #: Whether connections keep what they are asked and answer, for the request log.
        self.captures = False
        self._loop = loop
        self._is_urgent = is_urgent
        self._budget_ns = int(budget_s * 1e9)
        self._urgent: deque[tuple[Connection, bytearray]] = deque()
        self._normal: deque[tuple[Connection, bytearray]] = deque()
        #: The next slices of requests that take longer, each in its turn.
        self._long: deque[tuple[Connection, Callable[[], None]]] = deque()
        self._is_awake = False
        # Who was answered in this turn; None between turns.
        self._outbox: list[Connection] | None = None
        #: Connections that do not read until the lane is shorter, in the order in which they stopped.
        self._held_back: dict[Connection, None] = {}

    @property
    def waiting_count(self) -> int:
        return len(self._urgent) + len(self._normal)

    def submit(self, connection: Connection, frame: bytearray) -> None:
        self.meter.arrived(connection)
        if connection.is_privileged or self._is_urgent(frame):
            self._urgent.append((connection, frame))
        else:
            normal = self._normal
            normal.append((connection, frame))
            if len(normal) > self.max_waiting:
                self._held_back[connection] = None
                connection.hold_back()
        if not self._is_awake:
            self._wake()

    def go_on_later(self, connection: Connection, slice_of_work: Callable[[], None]) -> None:
        """Have the next slice of the work on a request done when others had their turn; also if it was closed."""
        self._long.append((connection, slice_of_work))
        self._wake()

    def _wake(self) -> None:
        if not self._is_awake:
            self._is_awake = True
            self._loop.call_soon(self._drain)

    def send_later(self, connection: Connection) -> bool:
        """Have `connection.send_answer` called at the end of this turn; false if none is under way.

        Small responses leave together: a peer with several connections, or a machine with several peers, is woken once
        and finds them all, which costs both sides half of what one wake-up for each does. None waits longer than a
        turn takes.
        """
        if self._outbox is None:
            return False
        self._outbox.append(connection)
        return True

    def forget(self, connection: Connection) -> None:
        self._held_back.pop(connection, None)

    def _drain(self) -> None:
        meter = self.meter
        end_ns = meter.turn_begins(self._budget_ns)
        has_time = True
        # Answering may bring up the next request of the same connection.
        while has_time and (self._urgent or self._normal):
            outbox = self._outbox = []
            has_time = self._dispatch_until(end_ns)
            self._outbox = None
            for connection in outbox:
                try:
                    connection.send_answer()
                except Exception:
                    _log.exception("an answer to %s could not be sent", connection.peer)
                    connection.abort("its answer could not be sent")
        if self._long:
            self._do_a_slice(*self._long.popleft())
        meter.turn_ends()
        if self._urgent or self._normal or self._long:
            self._loop.call_soon(self._drain)
        else:
            self._is_awake = False

    def _do_a_slice(self, connection: Connection, slice_of_work: Callable[[], None]) -> None:
        try:
            slice_of_work()
        except Exception:
            _log.exception("a request from %s could not be worked on", connection.peer)
            connection.close("its request could not be worked on")

    def _dispatch_until(self, end_ns: int) -> bool:
        """Dispatch what waits; false if the time was over before, or just when, all was done."""
        begins, has_time = self.meter.begins, self.meter.has_time
        urgent, normal, captures = self._urgent, self._normal, self.captures
        while urgent or normal:
            if urgent:
                connection, frame = urgent.popleft()
            else:
                connection, frame = normal.popleft()
                if self._held_back and len(normal) <= self.max_waiting // 2:
                    self._let_read()
            if connection.is_closed:
                connection.finish_without_response()
                continue
            begins(connection, frame)
            if captures:
                connection.capture(frame)
            try:
                connection.dispatch(connection, frame)
            except Exception:
                _log.exception("a request from %s could not be dispatched", connection.peer)
                connection.close("its request could not be dispatched")
            if not has_time(end_ns):
                return False
        return True

    def _let_read(self) -> None:
        held_back, self._held_back = self._held_back, {}
        for connection in held_back:
            connection.read_on()
