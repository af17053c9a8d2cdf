"""All that a scrape tells, for reporters: put together now and then, and kept as one metric for each sample.

A reporter reads a metric when it likes, from any thread: it reads what was collected last. Of histograms and summaries
it is told the sum and the count.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import Iterable
from contextlib import suppress
from typing import Final, Protocol

from barnabas.base.log_context import logger
from barnabas.base.metrics.exposition import Exposition, Family
from barnabas.base.metrics.registry import Metric, MetricsListener, MetricsRegistry, Tags
from barnabas.broker.metrics.node_metrics import SLICE_S

_log = logger("barnabas.broker")

#: The group of them all; their names are those that Prometheus sees.
GROUP: Final = "node-metrics"
_LABEL: Final = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="((?:[^"\\]|\\.)*)"')
_ESCAPED: Final = re.compile(r"\\(.)")


class _Collects(Protocol):
    """What collects: `NodeMetrics`."""

    async def collected(self) -> tuple[Exposition, bool]: ...


class _Sample:
    """One sample: its value as it was collected last, and in which round that was."""

    __slots__ = ("metric", "round", "value")

    metric: Metric

    def __init__(self, value: float, round_: int) -> None:
        self.value = value
        self.round = round_

    def measure(self, now_ms: int) -> float:
        return self.value


class Reporting:
    """Tells `reporters` what `metrics` tells Prometheus, every `interval_s` seconds anew."""

    def __init__(
        self,
        metrics: _Collects,
        registry: MetricsRegistry,
        reporters: Iterable[MetricsListener],
        interval_s: float,
    ) -> None:
        self._metrics = metrics
        self._registry = registry
        self._reporters = reporters
        self._interval_s = interval_s
        self._loop = asyncio.get_running_loop()
        self._samples: dict[str, _Sample] = {}
        self._round = 0
        self._running: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Reporters are attached when there is something to hand them."""
        try:
            await self._collect()
        finally:
            for each in self._reporters:
                self._registry.add_reporter(each)
        self._running = self._loop.create_task(self._run(), name="collect metrics for reporters")

    async def stop(self) -> None:
        if self._running is not None:
            self._running.cancel()
            with suppress(asyncio.CancelledError):
                await self._running

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval_s)
            await self._collect()

    async def _collect(self) -> None:
        try:
            await self._tell()
        except Exception:  # the next time it may go well
            _log.exception("the metrics for reporters could not be collected")

    async def _tell(self) -> None:
        out, is_whole = await self._metrics.collected()
        self._round += 1
        slice_s = self._loop.time()
        for family, lines in out.families():
            buckets = f"{family.name}_bucket{{"
            for line in lines:
                if not line.startswith(buckets):
                    self._take(family, line)
                if self._loop.time() - slice_s > SLICE_S:
                    await asyncio.sleep(0)
                    slice_s = self._loop.time()
        if not is_whole:
            return  # what is missing may be there all the same
        for key in [key for key, each in self._samples.items() if each.round != self._round]:
            self._registry.take_back(self._samples.pop(key).metric)
            if self._loop.time() - slice_s > SLICE_S:
                await asyncio.sleep(0)
                slice_s = self._loop.time()

    def _take(self, family: Family, line: str) -> None:
        key, _, text = line.rpartition(" ")
        sample = self._samples.get(key)
        if sample is not None:
            sample.value, sample.round = float(text), self._round
            return
        sample = self._samples[key] = _Sample(float(text), self._round)
        name, _, labels = key.partition("{")
        sample.metric = self._registry.gauge(
            name, GROUP, sample.measure, family.help, tags=_tags(labels), is_counter=family.kind != "gauge"
        )


def _tags(labels: str) -> Tags:
    """Labels as they stand in a sample, without what was escaped."""
    return tuple((name, _ESCAPED.sub(_meant, value)) for name, value in _LABEL.findall(labels))


def _meant(escaped: re.Match[str]) -> str:
    return "\n" if escaped[1] == "n" else escaped[1]
