"""All metrics of a node: put together when somebody asks, in slices, and offered over HTTP and to reporters."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from barnabas.base.log_context import logger
from barnabas.base.metrics.exposition import Exposition, Family
from barnabas.base.metrics.prometheus import CONTENT_TYPE
from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.broker.metrics import (
    controller,
    coordinators,
    lag,
    logs,
    network,
    partitions,
    process,
    quorum,
    quotas,
    replication,
    requests,
    topics,
)
from barnabas.broker.metrics.naming import own
from barnabas.broker.metrics.sources import Collector, NodeParts
from barnabas.net.http_listener import HttpAnswer

_log = logger("barnabas.broker")

#: How long a slice of a scrape may keep the loop.
SLICE_S: Final = 0.002
#: What one scrape has found is told again to those who ask so soon after it.
_FRESH_S: Final = 0.05

SCRAPES: Final = own("scrapes_total", "counter", "Times that the metrics were put together.")
SCRAPE_SECONDS: Final = own("scrape_seconds", "gauge", "How long that took the last time.")
SAMPLES: Final = own("scrape_samples", "gauge", "How many samples there were.")
ERRORS: Final = own(
    "scrape_errors_total", "counter", "Parts of a scrape that failed: what they had told by then stands; see the log."
)
FAMILIES: Final[tuple[Family, ...]] = (
    *requests.FAMILIES,
    *topics.FAMILIES,
    *partitions.FAMILIES,
    *replication.FAMILIES,
    *logs.FAMILIES,
    *network.FAMILIES,
    *quotas.FAMILIES,
    *process.FAMILIES,
    *controller.FAMILIES,
    *quorum.FAMILIES,
    *coordinators.FAMILIES,
    *lag.FAMILIES,
    *(SCRAPES, SCRAPE_SECONDS, SAMPLES, ERRORS),
)


class NodeMetrics:
    """`parts` tells what there is of the node now."""

    def __init__(self, parts: Callable[[], NodeParts], registry: MetricsRegistry) -> None:
        self._parts = parts
        self._loop = asyncio.get_running_loop()
        self._watch = process.LoopWatch(registry, parts().server.meter)
        self._lag = lag.LagReader()
        self._disks = logs.DiskReader()
        self._collecting = asyncio.Lock()
        self._rendering: asyncio.Task[tuple[bytes, ...]] | None = None
        self._rendered: tuple[float, tuple[bytes, ...]] | None = None
        self._scrapes = self._errors = 0
        self._last_s = 0.0
        self._last_samples = 0

    @property
    def collectors(self) -> tuple[Collector, ...]:
        return (
            network.collect,
            quotas.collect,
            self._watch.collect,
            requests.collect,
            topics.collect,
            replication.collect,
            self._disks.collect,
            controller.collect,
            quorum.collect,
            coordinators.collect,
            self._lag.collect,
            partitions.collect,
        )

    async def text(self) -> tuple[bytes, ...]:
        """What Prometheus reads, in pieces, since to join megabytes takes long. Who asks meanwhile gets the same."""
        rendered = self._rendered
        if rendered is not None and self._loop.time() - rendered[0] < _FRESH_S:
            return rendered[1]
        if self._rendering is None:
            self._rendering = self._loop.create_task(self._render(), name="put metrics together")
            self._rendering.add_done_callback(self._end_rendering)
        # Whoever does not wait any more leaves it to the others.
        return await asyncio.shield(self._rendering)

    def _end_rendering(self, _: object) -> None:
        self._rendering = None

    async def _render(self) -> tuple[bytes, ...]:
        began_s = self._loop.time()
        out, _ = await self.collected()
        slice_s = self._loop.time()
        pieces: list[bytes] = []
        for piece in out.text():
            pieces.append(piece.encode("utf-8", "replace"))
            if self._loop.time() - slice_s > SLICE_S:
                await asyncio.sleep(0)
                slice_s = self._loop.time()
        text = tuple(pieces)
        self._last_s = self._loop.time() - began_s
        self._rendered = (self._loop.time(), text)
        self._loop.call_later(_FRESH_S, self._forget, text)
        return text

    async def collected(self) -> tuple[Exposition, bool]:
        """What there is to tell now, and whether that is all: if a part of it failed, it is not."""
        # What collectors remember is for one at a time.
        async with self._collecting:
            began_s, errors = self._loop.time(), self._errors
            out = Exposition()
            await self._disks.look(self._parts())
            await self._collect(out)
            self._scrapes += 1
            self._last_samples = out.sample_count
            out.add(SCRAPES, self._scrapes)
            out.add(SCRAPE_SECONDS, self._last_s)
            out.add(SAMPLES, self._last_samples)
            out.add(ERRORS, self._errors)
            self._last_s = self._loop.time() - began_s
            return out, self._errors == errors

    async def _collect(self, out: Exposition) -> None:
        parts, slice_s = self._parts(), self._loop.time()
        for collect in self.collectors:
            try:
                for _ in collect(parts, out):
                    if self._loop.time() - slice_s > SLICE_S:
                        await asyncio.sleep(0)
                        slice_s = self._loop.time()
            except Exception:  # the others have something to tell all the same, now more than ever
                self._errors += 1
                _log.exception("a part of the metrics could not be told")

    def _forget(self, text: tuple[bytes, ...]) -> None:
        if self._rendered is not None and self._rendered[1] is text:
            self._rendered = None

    async def page(self) -> HttpAnswer:
        return HttpAnswer(200, parts=await self.text(), content_type=CONTENT_TYPE)

    def stop(self) -> None:
        self._watch.stop()
        self._disks.stop()
        if self._rendering is not None:
            self._rendering.cancel()
