"""The disks: directories, flushes, compaction."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Final

from barnabas.base.metrics.exposition import Exposition, labels
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.storage.files import Space

_MANAGER: Final = "kafka.log:type=LogManager,name="
_CLEANER: Final = "kafka.log:type=LogCleanerManager,name="

OFFLINE_COUNT: Final = of_mbean(f"{_MANAGER}OfflineLogDirectoryCount", "gauge", "Directories that have failed.")
OFFLINE: Final = of_mbean(
    f"{_MANAGER}LogDirectoryOffline,logDirectory=*", "gauge", "1 for a directory that has failed."
)
FLUSHES: Final = of_mbean(
    "kafka.log:type=LogFlushStats,name=LogFlushRateAndTimeMs", "summary", "Flushes by the clock, and their time."
)
DIRTY: Final = of_mbean(f"{_CLEANER}max-dirty-percent", "gauge", "How much of the dirtiest log could be compacted.")
SINCE_RUN: Final = of_mbean(f"{_CLEANER}time-since-last-run-ms", "gauge", "Since logs were last looked at.")
UNCLEANABLE: Final = of_mbean(
    f"{_CLEANER}uncleanable-partitions-count,logDirectory=*", "gauge", "Logs that cannot be compacted."
)
UNCLEANABLE_BYTES: Final = of_mbean(f"{_CLEANER}uncleanable-bytes,logDirectory=*", "gauge", "Their bytes.")
CLEAN_SECONDS: Final = of_mbean(
    "kafka.log:type=LogCleaner,name=max-clean-time-secs", "gauge", "What the last compaction took."
)
CLEANED: Final = own("logcleaner_cleaned_total", "counter", "Compactions that came to an end.")
TOTAL_BYTES: Final = own("logdirectory_bytes", "gauge", "Size of the disk that a directory lies on, where it says so.")
FREE_BYTES: Final = own("logdirectory_free_bytes", "gauge", "What is free there, the last time that it said so.")
FAMILIES: Final = (
    *(OFFLINE_COUNT, OFFLINE, FLUSHES, DIRTY, SINCE_RUN, UNCLEANABLE, UNCLEANABLE_BYTES, CLEAN_SECONDS, CLEANED),
    *(TOTAL_BYTES, FREE_BYTES),
)


#: So long a scrape waits for a disk to say how full it is, once: those that it has had to wait for it leaves alone.
_PATIENCE_S: Final = 0.1


class DiskReader:
    """Remembers how full disks are. One on a network may take for ever to say it, so that is asked off the event loop,
    and of each directory by one at a time."""

    def __init__(self) -> None:
        self._known: dict[str, Space] = {}
        self._looks: dict[str, asyncio.Future[Space]] = {}

    async def look(self, parts: NodeParts) -> None:
        """Before a scrape. Of a disk that says nothing for a while, what was known is told."""
        begun = []
        for directory in () if parts.services is None else parts.services.logs.directories:
            if directory.is_online and directory.path not in self._looks:
                look = asyncio.ensure_future(parts.runtime.offload(directory.space))
                self._looks[directory.path] = look
                look.add_done_callback(partial(self._end_look, directory.path))
                begun.append(look)
        if begun:
            await asyncio.wait(begun, timeout=_PATIENCE_S)

    def _end_look(self, path: str, look: asyncio.Future[Space]) -> None:
        del self._looks[path]
        self._known.pop(path, None)
        if not look.cancelled() and look.exception() is None and look.result().total_bytes >= 0:
            self._known[path] = look.result()

    def stop(self) -> None:
        for each in self._looks.values():
            each.cancel()

    def collect(self, parts: NodeParts, out: Exposition) -> Iterator[None]:
        services = parts.services
        if services is None:
            return
        logs, cleaner = services.logs, services.logs.cleaner
        directories = logs.directories
        out.add(OFFLINE_COUNT, sum(not each.is_online for each in directories))
        for directory in directories:
            label = labels(logDirectory=directory.path)
            out.add(OFFLINE, int(not directory.is_online), label)
            unclean = [each for each in cleaner.uncleanable if each in directory.logs]
            out.add(UNCLEANABLE, len(unclean), label)
            out.add(UNCLEANABLE_BYTES, sum(directory.logs[each].size_bytes for each in unclean), label)
            space = self._known.get(directory.path)
            if directory.is_online and space is not None:
                out.add(TOTAL_BYTES, space.total_bytes, label)
                out.add(FREE_BYTES, space.usable_bytes, label)
        flushes = out.lines_of(FLUSHES)
        flushes.append(f"{FLUSHES.name}_sum {logs.flush_ms}")
        flushes.append(f"{FLUSHES.name}_count {logs.flush_count}")
        out.add(DIRTY, 100 * cleaner.largest_dirty_ratio)
        now_ms = parts.runtime.clock.monotonic_ms()
        out.add(SINCE_RUN, 0 if cleaner.last_look_ms is None else now_ms - cleaner.last_look_ms)
        out.add(CLEAN_SECONDS, cleaner.last_cleaning_ms / 1000)
        out.add(CLEANED, cleaner.cleaned_count)
        yield
