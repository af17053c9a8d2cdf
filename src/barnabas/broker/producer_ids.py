"""Ids for producers, which no producer has had before: taken from blocks that the controller gives out.

The next block is asked for while the present one still has ids, so that nobody waits. What is left of a block when the
node stops is never used.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Final

from barnabas.base.errors import BarnabasError

_log = logging.getLogger("barnabas.broker")

#: A block is renewed when less than one in this many of its ids is left.
_PREFETCH_DIVISOR: Final = 10


class ProducerIdPool:
    """`allocate` asks the controller for a block: its first id, and how many ids it has."""

    def __init__(self, allocate: Callable[[], Awaitable[tuple[int, int]]]) -> None:
        self._allocate = allocate
        self._next_id = 0
        self._left = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._request: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """An id, or None if there is none at the moment; then one is on its way, and `more` waits for it."""
        if not self._left and self._following is not None:
            self._next_id, self._left = self._following
            self._prefetch_at = self._left // _PREFETCH_DIVISOR
            self._following = None
        if self._left <= self._prefetch_at and self._following is None and self._request is None:
            self._request = asyncio.get_running_loop().create_task(self._fetch())
        if not self._left:
            return None
        producer_id = self._next_id
        self._next_id += 1
        self._left -= 1
        return producer_id

    async def more(self) -> None:
        """Wait for the block that was asked for; it may also not come."""
        if self._request is not None:
            await asyncio.shield(self._request)

    async def _fetch(self) -> None:
        try:
            self._following = await self._allocate()
        except BarnabasError as failure:
            _log.warning("the controller gave no producer ids: %s", failure)
        finally:
            self._request = None

    def close(self) -> None:
        """Stop asking for ids."""
        if self._request is not None:
            self._request.cancel()
