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


class Lags:
    """Of all flows of a run. Where a flow has read to is kept, so that it can be asked for again without a batch."""

    def __init__(
        self, short: Callable[[str], str] = str, meter_of: Callable[[Mapping[str, str]], Meter] = _meter_of
    ) -> None:
        self.graph = Graph()
        self._short = short
        self._meter_of = meter_of
        self._meters: list[tuple[Mapping[str, str], Meter]] = []
        self._progress: dict[str, Mapping[str, Any]] = {}

    def after(self, progress: Mapping[str, Any]) -> int | None:
        """The lag of the flow whose query has just told this; None if it reads no topics, or nobody answers."""
        name = self._short(progress.get("name") or "")
        if not name:
            return None
        self._progress[name] = progress
        return self._measured(name, progress)

    def now(self) -> dict[str, int]:
        """The lag of every flow that has ever told how far it has read."""
        measured = {name: self._measured(name, progress) for name, progress in list(self._progress.items())}
        return {name: records for name, records in measured.items() if records is not None}

    def close(self) -> None:
        for _, meter in self._meters:
            meter.close()
        self._meters.clear()

    def _measured(self, name: str, progress: Mapping[str, Any]) -> int | None:
        clusters = self.graph.clusters_of(name)
        # Which source of a query reads which cluster a progress does not say.
        if len(clusters) != 1:
            return None
        try:
            partitions = self._meter(clusters[0]).measure(progress)
        except (BarnabasError, ValueError) as failure:
            _log.debug("the lag of flow %s cannot be had: %s", name, failure)
            return None
        return sum(max(0, each.records) for each in partitions) if partitions else None

    def _meter(self, cluster: Mapping[str, str]) -> Meter:
        for known, meter in self._meters:
            if known == cluster:
                return meter
        self._meters.append((cluster, self._meter_of(cluster)))
        return self._meters[-1][1]
