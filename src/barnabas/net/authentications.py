"""How many peers have shown who they are, and how many failed to: counted, and told, but not each of many."""

from __future__ import annotations

import asyncio
import math
from typing import TYPE_CHECKING, Final

from barnabas.base.log_context import logger

if TYPE_CHECKING:
    from barnabas.net.connection import Connection

_log = logger("barnabas.net")

_LOG_INTERVAL_S: Final = 1.0


class Authentications:
    """The counts of a server."""

    __slots__ = ("_logged_at_s", "_untold", "failed_count", "succeeded_count")

    def __init__(self) -> None:
        self.succeeded_count = 0
        self.failed_count = 0
        self._untold = 0
        self._logged_at_s = -math.inf

    def succeeded(self) -> None:
        self.succeeded_count += 1

    def failed(self, connection: Connection, why: str) -> None:
        """`why` is for those who run the node: it holds nothing secret, and the peer does not get to read it."""
        self.failed_count += 1
        now_s = asyncio.get_running_loop().time()
        if now_s - self._logged_at_s < _LOG_INTERVAL_S:
            self._untold += 1
            return
        more = f" (and {self._untold} more since the last such line)" if self._untold else ""
        _log.info("Failed authentication with %s on %s: %s%s", connection.peer, connection.listener, why, more)
        self._logged_at_s, self._untold = now_s, 0
