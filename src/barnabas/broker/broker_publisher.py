"""From committed metadata to a broker that acts by it.

Two images are kept apart. The loader's follows the log batch by batch. The broker answers by another one, the applied:
it moves on only when the partitions, settings and groups that it speaks of are in place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable

from barnabas.base.ids import TopicPartition
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
        self._to_apply: deque[tuple[ClusterImage, ClusterDelta]] = deque()
        self._newest = ClusterImage()
        self._is_applying = False
        self._is_starting = False
        self._task: asyncio.Task[None] | None = None
        self._applied_offset = -1
        self._is_over = False
        self._waiting: list[tuple[int, asyncio.Future[bool]]] = []

    # What the loader calls

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self._newest = update.image
        self._add(update.delta)

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

    def apply_again(self, partitions: tuple[TopicPartition, ...]) -> None:
        """Bring partitions once more to what the newest image says: something kept this node from it."""
        self._add(ClusterDelta(partitions_changed=partitions))

    def _add(self, delta: ClusterDelta) -> None:
        if self._is_applying:
            self._to_apply.append((self._newest, delta))
            self._go_on()

    def _go_on(self) -> None:
        if self._to_apply and self._task is None and not self._is_starting:
            self._task = asyncio.get_running_loop().create_task(self._apply_all(), name="apply metadata")
            self._task.add_done_callback(self._done)

    async def start(self) -> None:
        """Apply what was committed by now as a whole; from here on each change is applied as it comes."""
        self._is_applying = self._is_starting = True
        image = self._newest = self._loader.publish_to(self)
        await self._apply(image, everything(image))
        self._note_applied(image.offset)
        # What was committed meanwhile had to wait: else the first image would have taken its place again.
        self._is_starting = False
        self._go_on()

    async def _apply_all(self) -> None:
        while self._to_apply:
            image, delta = self._to_apply.popleft()
            await self._apply(image, delta)
            self._note_applied(image.offset)
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
