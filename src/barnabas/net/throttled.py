"""Which clients quotas slow down, and for how long all together: told to those who ask why it is slow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Mapping
from typing import Final

from barnabas.base.foreign_text import told_apart

#: Of more, those that were slowed down last are known.
_MOST: Final = 1000


class ThrottledClients:
    """By principal and client id, milliseconds since the start of the server. It costs only those who are throttled."""

    __slots__ = ("_total_ms",)

    def __init__(self) -> None:
        self._total_ms: OrderedDict[tuple[str, str], int] = OrderedDict()

    def note(self, principal: str, client_id: str | None, throttle_ms: int) -> None:
        client = (principal, told_apart(client_id or ""))
        self._total_ms[client] = self._total_ms.get(client, 0) + throttle_ms
        self._total_ms.move_to_end(client)
        if len(self._total_ms) > _MOST:
            self._total_ms.popitem(last=False)

    @property
    def total_ms(self) -> Mapping[tuple[str, str], int]:
        return self._total_ms
