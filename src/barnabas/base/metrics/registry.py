"""All metrics of one client, or of a node: by name, as a dict, as text for Prometheus, and for reporters."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, Protocol

from barnabas.base.log_context import logger
from barnabas.base.metrics.samples import LatestValue, Sampled, Stat, Windows

_LOG: Final = logger(__name__)

Tags = tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class MetricName:
    """What a metric is called, in Kafka's words. Two are the same if name, group and tags are."""

    name: str
    group: str
    tags: Tags = ()
    description: str = field(default="", compare=False)

    def __str__(self) -> str:
        inside = ",".join(f"{key}={value}" for key, value in self.tags)
        return f"{self.group}:{self.name}{{{inside}}}"


class RecordingLevel(IntEnum):
    """How much is measured: what is of a higher level than `metrics.recording.level` is not."""

    INFO = 0
    DEBUG = 1
    TRACE = 2


class Metric:
    """A metric that can be read at any time, from any thread."""

    __slots__ = ("_measure", "_now_ms", "is_counter", "name")

    def __init__(
        self, name: MetricName, measure: Callable[[int], float], now_ms: Callable[[], int], is_counter: bool
    ) -> None:
        self.name = name
        #: Whether it only ever grows.
        self.is_counter = is_counter
        self._measure = measure
        self._now_ms = now_ms

    def value(self) -> float:
        """The value now; NaN where there is nothing to tell yet, such as the average of nothing."""
        return self.measure(self._now_ms())

    def measure(self, now_ms: int) -> float:
        return float(self._measure(now_ms))

    def __repr__(self) -> str:
        return f"Metric({self.name}: {self.value():g})"


class MetricsListener(Protocol):
    """Who is told which metrics there are; `barnabas.client.plugins.MetricsReporter` is this for users."""

    def init(self, metrics: list[Metric]) -> None: ...
    def metric_change(self, metric: Metric) -> None: ...
    def metric_removal(self, metric: Metric) -> None: ...
    def close(self) -> None: ...


Told = tuple[Stat, str, str]
"""A statistic, the name of its metric, and a description."""


class MetricsRegistry:
    """The metrics of one client, or of a node, which has no client id. `now_ms` gives the monotonic time in
    milliseconds. What is above `level` is recorded, and told to nobody."""

    def __init__(
        self,
        now_ms: Callable[[], int],
        *,
        client_id: str | None = "",
        windows: Windows | None = None,
        reporters: Iterable[MetricsListener] = (),
        level: RecordingLevel = RecordingLevel.INFO,
    ) -> None:
        self.now_ms = now_ms
        self.level = level
        self._own_tags: Tags = () if client_id is None else (("client-id", client_id),)
        self.windows = windows or Windows()
        self._metrics: dict[MetricName, Metric] = {}
        self._reporters = list(reporters)
        for reporter in self._reporters:
            self._tell(reporter, lambda each: each.init([]))
        self.gauge("count", "kafka-metrics-count", lambda now_ms: len(self._metrics), "How many metrics there are.")

    def sampled(
        self,
        group: str,
        *told: Told,
        tags: Tags = (),
        windows: Windows | None = None,
        level: RecordingLevel = RecordingLevel.INFO,
    ) -> Sampled:
        """A new quantity and the metrics that tell about it."""
        sampled = Sampled(windows or self.windows)
        if level <= self.level:
            self.tell_about(sampled, group, *told, tags=tags)
        return sampled

    def latest(self, group: str, name: str, description: str, *told: Told, tags: Tags = ()) -> LatestValue:
        """A new quantity whose latest value is a metric, beside what else is told about it."""
        latest = LatestValue(self.windows)
        self.gauge(name, group, latest.latest, description, tags=tags)
        self.tell_about(latest.sampled, group, *told, tags=tags)
        return latest

    def tell_about(self, sampled: Sampled, group: str, *told: Told, tags: Tags = ()) -> None:
        for stat, name, description in told:
            self.gauge(name, group, _of(stat, sampled), description, tags=tags, is_counter=stat.is_counter)

    def gauge(
        self,
        name: str,
        group: str,
        measure: Callable[[int], float],
        description: str,
        *,
        tags: Tags = (),
        is_counter: bool = False,
    ) -> Metric:
        """A metric that is computed, from the time in milliseconds, when it is read."""
        metric_name = MetricName(name, group, (*self._own_tags, *tags), description)
        metric = Metric(metric_name, measure, self.now_ms, is_counter)
        self._metrics[metric_name] = metric
        for reporter in self._reporters:
            self._tell(reporter, lambda each: each.metric_change(metric))
        return metric

    def remove(self, group: str, tags: Tags) -> None:
        """Take back all metrics of a group that have exactly these tags beside the client's id."""
        exact = (*self._own_tags, *tags)
        for name in [name for name in self._metrics if name.group == group and name.tags == exact]:
            self.take_back(self._metrics[name])

    def take_back(self, metric: Metric) -> None:
        """Take back one metric."""
        del self._metrics[metric.name]
        for reporter in self._reporters:
            self._tell(reporter, lambda each: each.metric_removal(metric))

    def metrics(self) -> list[Metric]:
        # One step of the interpreter: a metric may be added meanwhile by another thread.
        return list(self._metrics.values())

    def values(self) -> dict[MetricName, float]:
        """All values now."""
        now_ms = self.now_ms()
        return {each.name: each.measure(now_ms) for each in self.metrics()}

    def as_dict(self) -> dict[str, dict[str, float]]:
        """All values now by group and name; tags but the client's follow the name, as in `byte-rate{topic=t}`."""
        groups: dict[str, dict[str, float]] = {}
        for name, value in self.values().items():
            inside = ",".join(f"{key}={tag}" for key, tag in name.tags if key != "client-id")
            groups.setdefault(name.group, {})[f"{name.name}{{{inside}}}" if inside else name.name] = value
        return groups

    def add_reporter(self, reporter: MetricsListener) -> None:
        """Tell a reporter from now on; it hears of all that exist first."""
        self._reporters.append(reporter)
        self._tell(reporter, lambda each: each.init(self.metrics()))

    def close(self) -> None:
        for reporter in self._reporters:
            self._tell(reporter, lambda each: each.close())
        self._reporters.clear()

    @staticmethod
    def _tell(reporter: MetricsListener, news: Callable[[MetricsListener], None]) -> None:
        try:
            news(reporter)
        except Exception:
            _LOG.exception("the metrics reporter %r failed; all else goes on", reporter)


def _of(stat: Stat, sampled: Sampled) -> Callable[[int], float]:
    measure = stat.measure
    return lambda now_ms: measure(sampled, now_ms)
