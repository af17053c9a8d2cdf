"""From committed metadata records to a node that acts by them.

Two images are kept apart. `committed` follows the log batch by batch. The node answers by another one, the applied: it
moves on only when the partitions, settings and groups that it speaks of are in place.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Iterator

from barnabas.broker.metadata_snapshots import SnapshotId
from barnabas.metadata.committer import CommittedBatch
from barnabas.metadata.delta import ClusterDelta, everything
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import image_records
from barnabas.wire.stored.cluster_metadata import MetadataRecord

Apply = Callable[[ClusterImage, ClusterDelta], Awaitable[None]]


class MetadataPublisher:
    """Makes images of batches and has them applied, one after the other, once `start` was called."""

    def __init__(self, apply: Apply, on_failure: Callable[[BaseException], None]) -> None:
        self.committed = ClusterImage()
        self._apply = apply
        self._on_failure = on_failure
        self._to_apply: deque[tuple[ClusterImage, ClusterDelta]] = deque()
        self._is_applying = False
        self._task: asyncio.Task[None] | None = None

    # What the metadata log calls

    def on_snapshot(self, records: Iterator[MetadataRecord], snapshot: SnapshotId, _: int) -> None:
        builder = ImageBuilder(ClusterImage())
        for record in records:
            builder.replay(record)
        self.committed = builder.build(snapshot.end_offset - 1, snapshot.epoch)

    def on_commit(self, batch: CommittedBatch) -> None:
        builder = ImageBuilder(self.committed)
        for record in batch.records:
            builder.replay(record)
        self.committed = builder.build(batch.last_offset, batch.epoch)
        if self._is_applying:
            self._to_apply.append((self.committed, builder.delta))
            if self._task is None:
                self._task = asyncio.get_running_loop().create_task(self._apply_all(), name="apply metadata")
                self._task.add_done_callback(self._done)

    def state_records(self) -> Iterator[MetadataRecord]:
        """The whole committed state, for a snapshot."""
        return image_records(self.committed)

    # Applying

    async def start(self) -> None:
        """Apply what was committed by now as a whole; from here on each batch is applied as it comes."""
        self._is_applying = True
        await self._apply(self.committed, everything(self.committed))

    async def _apply_all(self) -> None:
        while self._to_apply:
            image, delta = self._to_apply.popleft()
            await self._apply(image, delta)
        # Here, not when the loop tells of the end: what is committed before that would wait for the next batch.
        self._task = None

    def _done(self, task: asyncio.Task[None]) -> None:
        if self._task is task:
            self._task = None
        if not task.cancelled() and (failure := task.exception()) is not None:
            # Going on would let the node act by something that was never decided.
            self._is_applying = False
            self._to_apply.clear()
            self._on_failure(failure)

    async def stop(self) -> None:
        self._is_applying = False
        if self._task is not None:
            await asyncio.gather(self._task, return_exceptions=True)
