"""Which clients quotas slow down, and for how long: told to those who ask why it is slow."""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple

from barnabas.base.foreign_text import told_apart

#: Of more, those that wait, and those that were served again last, are known.
_MOST: Final = 1000


class ThrottledWait:
    """Of one connection, from now until it is served again, or ends."""

    __slots__ = ("client", "of_client", "since_us", "until_s")

    def __init__(self, client: tuple[str, str], of_client: _Waits, now_s: float, until_s: float) -> None:
        self.client = client
        self.of_client = of_client
        self.since_us = _us(now_s)
        #: May be moved.
        self.until_s = until_s


class _Waits:
    """Of all connections of a client. Whole microseconds: a sum of them never becomes less by rounding, which is what
    Prometheus takes for a restart."""

    __slots__ = ("live", "over_us")

    def __init__(self) -> None:
        #: What those took that are over.
        self.over_us = 0
        self.live: dict[ThrottledWait, None] = {}


class ThrottledClient(NamedTuple):
    principal: str
    client_id: str
    #: Since the start of the server, of all connections together; what is still to be waited is not in it.
    total_ms: int
    #: Until the last of its connections is served again; 0 if none waits, or all that did have ended.
    left_ms: float


class ThrottledClients:
    """By principal and client id. It costs only those who are throttled."""

    __slots__ = ("_over", "_waiting")

    def __init__(self) -> None:
        #: Of which some connection waits, and of which none does any more.
        self._waiting: OrderedDict[tuple[str, str], _Waits] = OrderedDict()
        self._over: OrderedDict[tuple[str, str], _Waits] = OrderedDict()

    def begin(self, principal: str, client_id: str | None, now_s: float, until_s: float) -> ThrottledWait:
        """A connection waits from now on; `end` must be told when it does not any more."""
        client = (principal, told_apart(client_id or ""))
        waits = self._waiting.get(client)
        if waits is None:
            waits = self._over.pop(client) if client in self._over else _Waits()
            self._waiting[client] = waits
        self._waiting.move_to_end(client)
        wait = ThrottledWait(client, waits, now_s, until_s)
        waits.live[wait] = None
        if len(self._waiting) + len(self._over) > _MOST:
            (self._over or self._waiting).popitem(last=False)
        return wait

    def end(self, wait: ThrottledWait, now_s: float) -> None:
        """The connection is served again, or has ended."""
        waits = wait.of_client
        del waits.live[wait]
        waits.over_us += _us(now_s) - wait.since_us
        # It may have been dropped, and have come again.
        if not waits.live and self._waiting.get(wait.client) is waits:
            self._over[wait.client] = self._waiting.pop(wait.client)

    def clients(self) -> list[tuple[str, str]]:
        """A copy, for those who look at them bit by bit."""
        return [*self._waiting, *self._over]

    def told(self, client: tuple[str, str], now_s: float) -> ThrottledClient | None:
        """None if it was forgotten meanwhile."""
        waits = self._waiting.get(client) or self._over.get(client)
        if waits is None:
            return None
        now_us = _us(now_s)
        total_us = waits.over_us + sum(now_us - each.since_us for each in waits.live)
        until_s = max((each.until_s for each in waits.live), default=now_s)
        return ThrottledClient(*client, total_us // 1000, max(0.0, until_s - now_s) * 1000)


def _us(now_s: float) -> int:
    return int(now_s * 1_000_000)
