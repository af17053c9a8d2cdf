"""Which clients quotas slow down, and for how long: told to those who ask why it is slow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator
from typing import Final, NamedTuple

from barnabas.base.foreign_text import told_apart

#: Of more, those that were slowed down last are known.
_MOST: Final = 1000


class _Waits(NamedTuple):
    """Of all connections of a client."""

    total_ms: int = 0
    until_s: float = 0.0


class ThrottledClient(NamedTuple):
    principal: str
    client_id: str
    #: Since the start of the server; with what it waits yet.
    total_ms: int
    #: Until the last of its connections is served again.
    left_ms: float


class ThrottledClients:
    """By principal and client id. It costs only those who are throttled."""

    __slots__ = ("_waits",)

    def __init__(self) -> None:
        self._waits: OrderedDict[tuple[str, str], _Waits] = OrderedDict()

    def note(self, principal: str, client_id: str | None, throttle_ms: int, until_s: float) -> None:
        client = (principal, told_apart(client_id or ""))
        before = self._waits.get(client, _Waits())
        self._waits[client] = _Waits(before.total_ms + throttle_ms, max(before.until_s, until_s))
        self._waits.move_to_end(client)
        if len(self._waits) > _MOST:
            self._waits.popitem(last=False)

    def told(self, now_s: float) -> Iterator[ThrottledClient]:
        for client, waits in self._waits.items():
            yield ThrottledClient(*client, waits.total_ms, max(0.0, waits.until_s - now_s) * 1000)
