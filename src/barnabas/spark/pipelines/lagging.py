"""How far topics are ahead of the flows that read them, as their brokers tell it.

An update reads up to the ends that it finds at its start, and its progress tells those ends: by them nothing is ever
left when it is done. What has come meanwhile only the brokers know.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from barnabas.base.errors import BarnabasError
from barnabas.spark.pipelines.graph import Graph
from barnabas.spark.pipelines.reporting import FlowLag

_log: Final = logging.getLogger(__name__)
#: Numbers for people: they are not worth a long wait.
_TIMEOUT_S: Final = 3.0


class Meter(Protocol):
    """What is asked of a `LagMeter`."""

    def measure(self, of: Mapping[str, Any]) -> Any: ...

    def close(self) -> None: ...


def _meter_of(cluster: Mapping[str, str]) -> Meter:
    from barnabas.client.settings import CONSUMER_SETTINGS
    from barnabas.spark.client_settings import settings_for
    from barnabas.spark.lag import LagMeter

    return LagMeter(settings=settings_for(cluster, CONSUMER_SETTINGS), timeout=_TIMEOUT_S)


def _size_of(cluster: Mapping[str, str], progress: Mapping[str, Any]) -> float:
    """Bytes of a record in the ranges that a progress tells of."""
    from barnabas.client.settings import CONSUMER_SETTINGS
    from barnabas.spark.client_settings import settings_for
    from barnabas.spark.density import bytes_per_offset
    from barnabas.spark.lag import read_ranges

    ranges = read_ranges(progress)
    if not ranges:
        raise ValueError("it tells of no offsets")
    found = bytes_per_offset(settings_for(cluster, CONSUMER_SETTINGS), ranges, timeout_s=_TIMEOUT_S)
    return sum(found[each.topic_partition] * each.size for each in ranges) / sum(each.size for each in ranges)


class Lags:
    """Of all flows of a run. Where a flow has read to is kept, so that it can be asked for again without a batch."""

    def __init__(
        self,
        short: Callable[[str], str] = str,
        meter_of: Callable[[Mapping[str, str]], Meter] = _meter_of,
        size_of: Callable[[Mapping[str, str], Mapping[str, Any]], float] = _size_of,
    ) -> None:
        self.graph = Graph()
        self._short = short
        self._meter_of = meter_of
        self._meters: list[tuple[Mapping[str, str], Meter]] = []
        self._progress: dict[str, Mapping[str, Any]] = {}
        self._size_of = size_of
        #: Bytes of a record, by flow.
        self._sizes: dict[str, float] = {}

    def after(self, progress: Mapping[str, Any]) -> FlowLag | None:
        """The lag of the flow whose query has just told this; None if it reads no topics, or nobody answers."""
        name = self._short(progress.get("name") or "")
        if not name:
            return None
        self._progress[name] = progress
        return self._measured(name, progress)

    def now(self) -> dict[str, FlowLag]:
        """The lag of every flow that has ever told how far it has read."""
        measured = {name: self._measured(name, progress) for name, progress in list(self._progress.items())}
        return {name: lag for name, lag in measured.items() if lag is not None}

    def close(self) -> None:
        for _, meter in self._meters:
            meter.close()
        self._meters.clear()

    def _measured(self, name: str, progress: Mapping[str, Any]) -> FlowLag | None:
        clusters = self.graph.clusters_of(name)
        # Which source of a query reads which cluster a progress does not say.
        if len(clusters) != 1:
            return None
        try:
            partitions = self._meter(clusters[0]).measure(progress)
        except (BarnabasError, ValueError) as failure:
            _log.debug("the lag of flow %s cannot be had: %s", name, failure)
            return None
        if not partitions:
            return None
        ages = [each.seconds for each in partitions if each.seconds is not None]
        return FlowLag(sum(max(0, each.records) for each in partitions), max(ages, default=None))

    def bytes_of(self, progress: Mapping[str, Any]) -> int | None:
        """About how many bytes of the log the rows are that a query has just read; None if that cannot be had. A flow
        is looked at once: records of a topic have about the same size."""
        name, rows = self._short(progress.get("name") or ""), int(progress.get("numInputRows") or 0)
        clusters = self.graph.clusters_of(name)
        if len(clusters) != 1 or not rows:
            return None
        if name not in self._sizes:
            try:
                self._sizes[name] = self._size_of(clusters[0], progress)
            except (BarnabasError, ValueError) as failure:
                _log.debug("how large the records of flow %s are cannot be had: %s", name, failure)
                return None
        return round(rows * self._sizes[name])

    def _meter(self, cluster: Mapping[str, str]) -> Meter:
        for known, meter in self._meters:
            if known == cluster:
                return meter
        self._meters.append((cluster, self._meter_of(cluster)))
        return self._meters[-1][1]
