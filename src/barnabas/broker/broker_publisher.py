"""From committed metadata to a broker that acts by it.

Two images are kept apart. The loader's follows the log batch by batch. The broker answers by another one, the applied:
it moves on only when the partitions, settings and groups that it speaks of are in place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from barnabas.metadata.delta import ClusterDelta, everything
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.raft.types import LeaderAndEpoch

Apply = Callable[[ClusterImage, ClusterDelta], Awaitable[None]]


class BrokerMetadataPublisher:
    """Has images applied, one after the other, once `start` was called."""

    def __init__(self, loader: MetadataLoader, apply: Apply, on_failure: Callable[[BaseException], None]) -> None:
        self._loader = loader
        self._apply = apply
        self._on_failure = on_failure
        self._to_apply: deque[MetadataUpdate] = deque()
        self._is_applying = False
        self._task: asyncio.Task[None] | None = None
        self._applied_offset = -1
        self._is_over = False
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []

    # What the loader calls

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        if self._is_applying:
            self._to_apply.append(update)
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._apply_all(), name="apply metadata")
                self._task.add_done_callback(self._done)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        pass

    async def until_applied(self, offset: int) -> bool:
        """Wait until what the log says up to `offset` was done; False if it will not be."""
        if offset <= self._applied_offset or self._is_over:
            return offset <= self._applied_offset
        outcome: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        self._waiting.append((offset, outcome))
        return await outcome

    # Applying

    async def start(self) -> None:
        """Apply what was committed by now as a whole; from here on each change is applied as it comes."""
        self._is_applying = True
        image = self._loader.publish_to(self)
        await self._apply(image, everything(image))
        self._note_applied(image.offset)

    async def _apply_all(self) -> None:
        while self._to_apply:
            update = self._to_apply.popleft()
            await self._apply(update.image, update.delta)
            self._note_applied(update.image.offset)
        # Here, not when the loop tells of the end: what is committed before that would wait for the next batch.
        self._task = None

    def _note_applied(self, offset: int) -> None:
        self._applied_offset = max(self._applied_offset, offset)
        still = []
        for wanted, outcome in self._waiting:
            if wanted > self._applied_offset and not self._is_over:
                still.append((wanted, outcome))
            elif not outcome.done():
                outcome.set_result(wanted <= self._applied_offset)
        self._waiting = still

    def _end(self) -> None:
        """Nothing more is applied: who waits is told so."""
        self._is_over = True
        self._note_applied(-1)

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            # Going on would let the node act by something that was never decided.
            self._is_applying = False
            self._to_apply.clear()
            self._end()
            self._on_failure(failure)

    async def stop(self) -> None:
        self._is_applying = False
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
        self._end()
