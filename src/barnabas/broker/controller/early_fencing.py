"""Brokers whose process has died are fenced before their session ends: their kernel closed the connection.

A closed connection is a hint, not a proof, so it counts only if
- the broker closed it, and it carried the last heartbeat of its present epoch,
- the broker was not heard of again within the grace: ours redial at once, others notice late,
- no other broker's connection closed within that time, also if it came back: then it is the network, or us,
- this broker was not fenced early within a session timeout before,
- no broker that was fenced early turned out to live within a minute before: then closed connections say little here.
Fencing early is fencing as any other: leaders are elected from those in sync, or not at all.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.base.log_context import logger
from barnabas.net import Connection

_log = logger("barnabas.controller")

#: For brokers that redial as soon as their connection is gone.
OWN_GRACE_MS: Final = 500
#: For others: a little more than the time between two heartbeats.
_OTHERS_GRACE: Final = 1.25
_OWN_SOFTWARE: Final = "barnabas"
#: How long nobody is fenced early after that was wrong.
_MISTRUST_S: Final = 60.0
_NEVER_S: Final = -1e9


@dataclass(slots=True)
class _Heard:
    """Who was heard of last on which connection, when it was last closed, and when the broker was thought dead."""

    epoch: int
    connection: Connection
    closed_at_s: float = _NEVER_S
    fenced_at_s: float = _NEVER_S
    is_thought_dead: bool = False


class EarlyFencing:
    """`fence(broker_id, epoch)` is called for a broker that is gone."""

    def __init__(self, fence: Callable[[int, int], None], heartbeat_interval_ms: int, session_timeout_ms: int) -> None:
        self._fence = fence
        self._others_grace_s = _OTHERS_GRACE * heartbeat_interval_ms / 1000
        self._session_s = session_timeout_ms / 1000
        self._heard: dict[int, _Heard] = {}
        self._mistaken_at_s = _NEVER_S
        #: How many brokers were fenced before their session would have ended; also by others, who saw a process end.
        self.count = 0

    def heard(self, broker_id: int, epoch: int, connection: Connection) -> None:
        """A heartbeat came."""
        known, heard = self._heard.get(broker_id), _Heard(epoch, connection)
        if known is not None:
            heard.closed_at_s, heard.fenced_at_s = known.closed_at_s, known.fenced_at_s
            if known.is_thought_dead and known.epoch == epoch:
                self._mistaken_at_s = asyncio.get_running_loop().time()
        self._heard[broker_id] = heard
        if known is None or known.connection is not connection:
            connection.on_close(lambda: self._closed(broker_id, connection))

    def let_go(self, broker_id: int) -> None:
        """It said that it stops, and is fenced: that it closes its connection now tells nothing."""
        self._heard.pop(broker_id, None)

    def clear(self) -> None:
        """Another node is the active controller: it knows better."""
        self._heard.clear()

    def _closed(self, broker_id: int, connection: Connection) -> None:
        heard = self._heard.get(broker_id)
        if heard is None or heard.connection is not connection or not connection.was_ended_by_peer:
            return
        loop = asyncio.get_running_loop()
        heard.closed_at_s = loop.time()
        loop.call_later(self._grace_s(connection), self._look, broker_id, heard)

    def _grace_s(self, connection: Connection) -> float:
        is_ours = connection.client_software[0] == _OWN_SOFTWARE
        return OWN_GRACE_MS / 1000 if is_ours else self._others_grace_s

    def _look(self, broker_id: int, heard: _Heard) -> None:
        """The grace is over."""
        now_s = asyncio.get_running_loop().time()
        if self._heard.get(broker_id) is not heard:
            return  # it came back
        grace_s = self._grace_s(heard.connection)
        others = [each.closed_at_s for other_id, each in self._heard.items() if other_id != broker_id]
        if any(abs(other_s - heard.closed_at_s) <= grace_s for other_s in others):
            _log.info("Broker %d closed its connection, but others did so too; its session decides", broker_id)
        elif now_s - heard.fenced_at_s >= self._session_s and now_s - self._mistaken_at_s >= _MISTRUST_S:
            heard.fenced_at_s, heard.is_thought_dead = now_s, True
            _log.warning("Fencing broker %d early: its process closed the connection and did not come back", broker_id)
            self._fence(broker_id, heard.epoch)
