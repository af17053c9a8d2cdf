"""Who is told which metrics there are: plug-ins that `metric.reporters` lists, and the context that they are handed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from barnabas.base.metrics.registry import Metric
from barnabas.base.plugins import load_plugins, safely
from barnabas.base.settings import Plugin, Settings
from barnabas.base.settings.load import CONTEXT_PREFIX

#: Java's own reporter by its short name, and as Kafka's defaults spell it.
JMX: Final = ("jmx", "org.apache.kafka.common.metrics.JmxReporter", "JmxReporter")


class MetricsReporter(Protocol):
    """Told which metrics there are. It reads them when it likes, from any thread: `metric.value()`."""

    def init(self, metrics: list[Metric]) -> None:
        """The metrics that exist when it is attached."""
        ...

    def metric_change(self, metric: Metric) -> None:
        """A metric was added."""
        ...

    def metric_removal(self, metric: Metric) -> None:
        """A metric is gone, such as one of a partition that is not read any more."""
        ...

    def close(self) -> None: ...


class Jmx:
    """Java's own reporter, which every Java configuration names: there is no JMX here, and so nothing to do."""

    def init(self, metrics: list[Metric]) -> None:
        pass

    def metric_change(self, metric: Metric) -> None:
        pass

    def metric_removal(self, metric: Metric) -> None:
        pass


@dataclass(frozen=True, slots=True)
class MetricsContext:
    """Whose metrics these are: the namespace is Kafka's, the labels are what settings name `metrics.context.*`."""

    namespace: str
    labels: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(
        cls, namespace: str, unknown: Mapping[str, object], labels: Mapping[str, str] | None = None
    ) -> MetricsContext:
        """With those among settings that nobody else knows."""
        named = {
            name.removeprefix(CONTEXT_PREFIX): str(value)
            for name, value in unknown.items()
            if name.startswith(CONTEXT_PREFIX)
        }
        return cls(namespace, {"_namespace": namespace, **named, **(labels or {})})


def load_reporters(
    settings: Settings, listed: Iterable[Plugin], context: MetricsContext | None = None
) -> list[MetricsReporter]:
    """The reporters that metric.reporters lists; one with `context_change` is told whose metrics they are, first."""
    methods = ("init", "metric_change", "metric_removal")
    loaded = load_plugins("metric.reporters", listed, methods, settings, dict.fromkeys(JMX, Jmx))
    reporters = [each for each in loaded if not isinstance(each, Jmx)]
    for each in reporters:
        tell = getattr(each, "context_change", None)
        if context is not None and callable(tell):
            safely(each, "context_change", lambda told=tell: told(context))  # type: ignore[misc]
    return reporters
