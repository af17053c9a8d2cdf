"""Who is told which metrics there are."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.core.metrics import FetchMetrics, Metric, MetricsRegistry


class Diary:
    def __init__(self) -> None:
        self.known: dict[str, Metric] = {}
        self.is_closed = False

    def init(self, metrics: list[Metric]) -> None:
        self.known |= {str(each.name): each for each in metrics}

    def metric_change(self, metric: Metric) -> None:
        self.known[str(metric.name)] = metric

    def metric_removal(self, metric: Metric) -> None:
        del self.known[str(metric.name)]

    def close(self) -> None:
        self.is_closed = True


class Faulty:
    def init(self, metrics: list[Metric]) -> None:
        raise RuntimeError("no init")

    def metric_change(self, metric: Metric) -> None:
        raise RuntimeError("no change")

    def metric_removal(self, metric: Metric) -> None:
        raise RuntimeError("no removal")

    def close(self) -> None:
        raise RuntimeError("no close")


def test_a_reporter_knows_at_all_times_what_there_is() -> None:
    early, late = Diary(), Diary()
    registry = MetricsRegistry(lambda: 0, client_id="me", reporters=[early])
    events = FetchMetrics(registry)
    events.lag(TopicPartition("t", 0), 5)
    registry.add_reporter(late)
    assert early.known.keys() == late.known.keys() == {str(name) for name in registry.values()}
    lag = "consumer-fetch-manager-metrics:records-lag{client-id=me,topic=t,partition=0}"
    assert late.known[lag].value() == 5
    events.assigned([])
    assert lag not in early.known
    assert early.known.keys() == late.known.keys() == {str(name) for name in registry.values()}
    registry.close()
    assert early.is_closed
    assert late.is_closed


def test_a_reporter_that_fails_does_not_stop_the_client(caplog: pytest.LogCaptureFixture) -> None:
    after = Diary()
    with caplog.at_level(logging.ERROR):
        registry = MetricsRegistry(lambda: 0, reporters=[Faulty(), after])
        registry.gauge("one", "group", lambda now_ms: 1, "One.")
        registry.close()
    assert "no init" in caplog.text
    assert "no change" in caplog.text
    assert "no close" in caplog.text
    assert after.known.keys() == {str(name) for name in registry.values()}
    assert after.is_closed
