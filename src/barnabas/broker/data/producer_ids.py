"""Ids for producers, which no producer has had before: taken from blocks that the controller gives out.

The next block is asked for while the present one still has ids, so that nobody waits. What is left of a block when the
node stops is never used.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.log_context import logger
from barnabas.broker.controller.controller_channel import ControllerChannel, broker_caller
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse

_log = logger("barnabas.broker")

#: A block is renewed when less than one in this many of its ids is left.
_PREFETCH_DIVISOR: Final = 10
_VERSION: Final = api(ApiKey.ALLOCATE_PRODUCER_IDS).served.high


class ProducerIdPool:
    """The ids that this broker gives out. It asks as a member of the cluster: `broker_epoch` tells its epoch."""

    def __init__(self, controller: ControllerChannel, broker_id: int, broker_epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._next_id = 0
        self._left = 0
        self._prefetch_at = 0
        self._following: tuple[int, int] | None = None
        self._request: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """An id, or None if there is none at the moment; then one is on its way, and `more` waits for it."""
        if not self.has_some():
            return None
        producer_id = self._next_id
        self._next_id += 1
        self._left -= 1
        return producer_id

    def has_some(self) -> bool:
        """Whether there is an id to take; if few are left, more are asked for."""
        if not self._left and self._following is not None:
            self._next_id, self._left = self._following
            self._prefetch_at = self._left // _PREFETCH_DIVISOR
            self._following = None
        if self._left <= self._prefetch_at and self._following is None and self._request is None:
            self._request = asyncio.get_running_loop().create_task(self._fetch())
        return self._left > 0

    async def more(self) -> None:
        """Wait for the block that was asked for; it may also not come."""
        if self._request is not None:
            await asyncio.shield(self._request)

    async def _fetch(self) -> None:
        try:
            request = AllocateProducerIdsRequest(broker_id=self._broker_id, broker_epoch=self._broker_epoch())
            response = await self._controller.submit(request, _VERSION, broker_caller(self._broker_id))
            block = cast(AllocateProducerIdsResponse, response)
            if block.error_code != ErrorCode.NONE:
                raise BrokerError(ErrorCode.of(block.error_code))
            self._following = block.producer_id_start, block.producer_id_len
        except BarnabasError as failure:
            _log.warning("the controller gave no producer ids: %s", failure)
        finally:
            self._request = None

    def close(self) -> None:
        """Stop asking for ids."""
        if self._request is not None:
            self._request.cancel()
