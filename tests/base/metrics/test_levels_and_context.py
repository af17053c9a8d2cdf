"""What is recorded at which level, and whose metrics reporters are told of."""

from __future__ import annotations

from barnabas.base.metrics.registry import Metric, MetricsRegistry, RecordingLevel
from barnabas.base.metrics.reporters import MetricsContext, load_reporters
from barnabas.base.metrics.samples import TOTAL
from barnabas.base.settings import Plugin
from barnabas.client.settings import ProducerSettings


class Hearing:
    def __init__(self) -> None:
        self.contexts: list[MetricsContext] = []

    def context_change(self, context: MetricsContext) -> None:
        self.contexts.append(context)

    def init(self, metrics: list[Metric]) -> None: ...
    def metric_change(self, metric: Metric) -> None: ...
    def metric_removal(self, metric: Metric) -> None: ...
    def close(self) -> None: ...


def test_what_is_above_the_level_is_told_to_nobody() -> None:
    for level, expected in (
        (RecordingLevel.INFO, {"coarse-total"}),
        (RecordingLevel.DEBUG, {"coarse-total", "fine-total"}),
    ):
        registry = MetricsRegistry(lambda: 0, client_id=None, level=level)
        registry.sampled("g", (TOTAL, "coarse-total", ""))
        registry.sampled("g", (TOTAL, "fine-total", ""), level=RecordingLevel.DEBUG).record(1, 0)
        assert {each.name.name for each in registry.metrics() if each.name.group == "g"} == expected


def test_a_node_has_no_client_id() -> None:
    registry = MetricsRegistry(lambda: 0, client_id=None)
    assert [each.name.tags for each in registry.metrics()] == [()]


def test_a_reporter_hears_whose_metrics_they_are() -> None:
    settings = ProducerSettings.load({"bootstrap.servers": "x:1", "metrics.context.region": "north"})
    assert settings.warnings == (), "a label is no unknown setting"
    hearing = Hearing()
    context = MetricsContext.of("kafka.producer", settings.extras)
    listed = [Plugin("jmx"), Plugin("org.apache.kafka.common.metrics.JmxReporter"), Plugin("hearing", hearing)]
    assert [each is hearing for each in load_reporters(settings, listed, context)] == [True]
    assert hearing.contexts == [MetricsContext("kafka.producer", {"_namespace": "kafka.producer", "region": "north"})]
