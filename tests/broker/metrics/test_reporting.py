"""Reporters of a node, on virtual time: they are told what a scrape tells, of what is there."""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Iterator

import pytest

from barnabas.aio import Admin, Producer
from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.base.metrics.registry import Metric, MetricsRegistry
from barnabas.broker.metrics.reporting import Reporting
from barnabas.testing import AsyncEmbeddedBroker
from tests.virtual_time import clock, on_virtual_time

BYTES_IN = "node-metrics:kafka_server_brokertopicmetrics_bytesin_total{%s}"
INTERVAL_S = 11


class Reporter:
    """A plug-in of a node."""

    known: dict[str, Metric] = {}  # noqa: RUF012
    first: list[str] = []  # noqa: RUF012
    gone: list[str] = []  # noqa: RUF012

    def init(self, metrics: list[Metric]) -> None:
        self.known.update({str(each.name): each for each in metrics})
        self.first.extend(self.known)

    def metric_change(self, metric: Metric) -> None:
        assert str(metric.name) not in self.known
        self.known[str(metric.name)] = metric

    def metric_removal(self, metric: Metric) -> None:
        assert self.known.pop(str(metric.name)) is metric
        self.gone.append(str(metric.name))

    def close(self) -> None:
        self.known.clear()


@pytest.fixture(autouse=True)
def _nothing_known() -> Iterator[None]:
    yield
    for each in (Reporter.known, Reporter.first, Reporter.gone):
        each.clear()


@on_virtual_time
async def test_a_reporter_is_told_what_a_scrape_tells() -> None:
    async with AsyncEmbeddedBroker(overrides={"metric.reporters": f"{__name__}.Reporter"}) as broker:
        known = Reporter.known
        assert "node-metrics:kafka_server_app_info_start_time_ms{}" in Reporter.first
        assert any("busy-ratio" in name for name in Reporter.first)
        async with Producer(bootstrap_servers=broker.bootstrap_servers, clock=clock()) as producer:
            await producer.send("clicks", b"x" * 1000)
            await asyncio.sleep(INTERVAL_S)
            of_topic = known[BYTES_IN % "topic=clicks"]
            seen = of_topic.value()
            assert seen >= 1000
            assert known[BYTES_IN % ""].value() >= seen
            assert of_topic.is_counter
            assert of_topic.name.description.startswith("Bytes that clients wrote")
            requests = [each for each in known.values() if "_requestmetrics_requests_total" in each.name.name]
            assert sum(each.value() for each in requests if ("request", "Produce") in each.name.tags) == 1
            assert any(name.startswith("node-metrics:kafka_network_requestmetrics_totaltimems_sum{") for name in known)
            assert not [name for name in known if "_bucket" in name]
            await producer.send("clicks", b"x" * 1000)
            assert of_topic.value() == seen, "it is what was collected last"
            await asyncio.sleep(INTERVAL_S)
            assert of_topic.value() > seen
        async with Admin(bootstrap_servers=broker.bootstrap_servers, clock=clock()) as admin:
            await admin.delete_topics(["clicks"])
        await asyncio.sleep(INTERVAL_S)
        assert not [name for name in known if "topic=clicks" in name]
        assert BYTES_IN % "topic=clicks" in Reporter.gone
        assert BYTES_IN % "" in known
    assert not known


@on_virtual_time
async def test_without_reporters_nothing_is_collected() -> None:
    async with AsyncEmbeddedBroker(overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        await asyncio.sleep(INTERVAL_S)
        registry = broker.node.metrics.registry
        assert registry is not None
        assert {each.name.group for each in registry.metrics()} == {"kafka-metrics-count", "loop-metrics"}
        out, _ = await broker.node.metrics.node_metrics.collected()
        assert dict(out.families())[_named(out, "barnabas_scrapes_total")] == ["barnabas_scrapes_total 1"]


@on_virtual_time
async def test_without_reporters_and_listener_nothing_is_measured() -> None:
    async with AsyncEmbeddedBroker() as broker:
        assert not broker.node.metrics.is_wanted
        assert broker.node.metrics.registry is None


def _named(out: Exposition, name: str) -> Family:
    return next(family for family, _ in out.families() if family.name == name)


class Collected:
    """Stands for what a node collects."""

    def __init__(self, *rounds: tuple[Exposition, bool] | Exception) -> None:
        self._rounds = list(rounds)

    async def collected(self) -> tuple[Exposition, bool]:
        found = self._rounds.pop(0)
        if isinstance(found, Exception):
            raise found
        return found


GAUGE = Family("g", "gauge", "A gauge.")
TIMES = Family("t", "histogram", "Times.")


def _exposition(**values: float) -> Exposition:
    out = Exposition()
    for name, value in values.items():
        out.add(GAUGE, value, labels(name=name))
    return out


@on_virtual_time
async def test_what_could_not_be_collected_is_not_taken_for_gone(caplog: pytest.LogCaptureFixture) -> None:
    both, one = _exposition(a=1, b=2), _exposition(a=3)
    node = Collected((both, True), (one, False), OSError("later"), (_exposition(a=4), True))
    registry = MetricsRegistry(lambda: 0, client_id=None)
    told = Reporting(node, registry, [Reporter()], 10)
    await told.start()
    seen = []
    for _ in range(4):
        seen.append({name: each.value() for name, each in Reporter.known.items() if ":g{" in name})
        with caplog.at_level(logging.CRITICAL):
            await asyncio.sleep(10.5 if len(seen) == 1 else 10)
    await told.stop()
    a, b = "node-metrics:g{name=a}", "node-metrics:g{name=b}"
    assert seen == [{a: 1, b: 2}, {a: 3, b: 2}, {a: 3, b: 2}, {a: 4}]


@on_virtual_time
async def test_tags_are_what_was_meant_and_values_what_was_written() -> None:
    odd = 'a"b\\c\nd} 1,x="'
    out = Exposition()
    out.add(GAUGE, math.inf, labels(first=odd, second="\\n"))
    out.add(GAUGE, math.nan)
    out.histogram(TIMES, [1.0], [2, 1], 7.5, labels(request="Fetch"))
    told = Reporting(Collected((out, True)), MetricsRegistry(lambda: 0, client_id=None), [Reporter()], 10)
    await told.start()
    found = {(each.name.name, each.name.tags): each for each in Reporter.known.values()}
    del found["count", ()]
    assert {key: str(each.value()) for key, each in found.items()} == {
        ("g", (("first", odd), ("second", "\\n"))): "inf",
        ("g", ()): "nan",
        ("t_sum", (("request", "Fetch"),)): "7.5",
        ("t_count", (("request", "Fetch"),)): "3.0",
    }
    await told.stop()
