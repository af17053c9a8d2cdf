"""When a snapshot of the metadata is due, and what it holds.

A snapshot forgets what was deleted, so none is taken before the node has nothing left of that.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from typing import Final

from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.periodic import Scheduler
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.features import METADATA_VERSION_BUILT, encode_record
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.metadata.quorum import Quorum
from barnabas.metadata.snapshot import image_records
from barnabas.raft.types import LeaderAndEpoch, Snapshot, SnapshotId
from barnabas.storage.manager import PeriodicTask

_log = logger("barnabas.metadata")

#: Waits until the node has done all that the log says up to an offset; False if it never will.
UntilApplied = Callable[[int], Awaitable[bool]]

_LOOK_MS: Final = 60_000


def snapshot_of(image: ClusterImage, last_contained_ms: int) -> Snapshot:
    return Snapshot(SnapshotId(image.offset + 1, image.epoch), last_contained_ms, _values(image))


def _values(image: ClusterImage) -> Iterator[bytes]:
    metadata_version = image.features.metadata_version or METADATA_VERSION_BUILT
    return (encode_record(record, metadata_version) for record in image_records(image))


class SnapshotGenerator:
    """Takes a snapshot after so many bytes, or so long, of changes, as the settings say; one at a time."""

    def __init__(
        self,
        quorum: Quorum,
        loader: MetadataLoader,
        settings: BrokerSettings,
        runtime: Runtime,
        until_applied: UntilApplied,
    ) -> None:
        self._quorum = quorum
        self._loader = loader
        self._settings = settings
        self._clock = runtime.clock
        self._until_applied = until_applied
        # The first update counts what was loaded since the last snapshot, too.
        self._bytes_since_snapshot = 0
        self._last_snapshot_ms = self._clock.monotonic_ms()
        self._taking: asyncio.Task[None] | None = None
        self._is_writing = False
        self._is_stopping = False
        self._scheduler = Scheduler([PeriodicTask("snapshot of the metadata", _LOOK_MS, self._look)])

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self._bytes_since_snapshot += update.size_bytes
        self.take_if_due()

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        pass

    async def _look(self) -> None:
        self.take_if_due()

    def take_if_due(self) -> None:
        if self._taking is None and self._is_due():
            self._taking = asyncio.get_running_loop().create_task(self._take(), name="snapshot of the metadata")
            self._taking.add_done_callback(self._taken)

    def _is_due(self) -> bool:
        if not self._bytes_since_snapshot or self._is_stopping or self._loader.image.pending is not None:
            return False
        if self._bytes_since_snapshot >= self._settings.metadata_log_max_record_bytes_between_snapshots:
            return True
        interval_ms = self._settings.metadata_log_max_snapshot_interval_ms
        return 0 < interval_ms <= self._clock.monotonic_ms() - self._last_snapshot_ms

    async def _take(self) -> None:
        image, covered_bytes = self._loader.image, self._bytes_since_snapshot
        snapshot = snapshot_of(image, self._loader.last_append_ms)
        if await self._until_applied(image.offset) and not self._is_stopping:
            self._is_writing = True
            self._last_snapshot_ms = self._clock.monotonic_ms()
            await self._quorum.take_snapshot(snapshot)
            self._bytes_since_snapshot -= covered_bytes

    def _taken(self, task: asyncio.Task[None]) -> None:
        self._taking = None
        self._is_writing = False
        if not task.cancelled() and (failure := task.exception()) is not None:
            # The log still has everything; the next attempt comes with the next change after the interval.
            _log.error("a snapshot of the metadata could not be written: %s", failure)

    async def stop(self) -> None:
        self._is_stopping = True
        await self._scheduler.stop()
        if self._taking is not None:
            if not self._is_writing:
                # It waits for the broker to apply what is in it; one that has failed, or was not started, never will.
                self._taking.cancel()
            await asyncio.gather(self._taking, return_exceptions=True)
