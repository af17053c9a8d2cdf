"""Whose brokers are asked how far topics are ahead of a flow, and what becomes of their answer."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

from barnabas import Producer
from barnabas.spark.lag import LagError
from barnabas.spark.pipelines.graph import TABLE, TEMPORARY, Dataset, Flow, Graph
from barnabas.spark.pipelines.lagging import Lags
from barnabas.spark.pipelines.reporting import FlowLag
from barnabas.testing import EmbeddedBroker

HERE = {"bootstrap.servers": "here:1"}
THERE = {"bootstrap.servers": "there:1"}
GRAPH = Graph(
    {
        "records": Dataset("records", TEMPORARY, ""),
        "timed": Dataset("timed", TEMPORARY, ""),
        "clicks": Dataset("clicks", TABLE, ""),
    },
    {
        "records": Flow("records", "records", "", ("barnabas: t",), (HERE,)),
        "timed": Flow("timed", "timed", "", ("records", "timed")),
        "clicks": Flow("clicks", "clicks", "", ("timed",)),
        "copy": Flow("copy", "copy", "", ("clicks",)),
        "both": Flow("both", "both", "", ("records", "barnabas: u"), (THERE,)),
    },
)


class FakeMeter:
    def __init__(self, cluster: Mapping[str, str]) -> None:
        self.cluster = cluster
        self.records = [3, 0, -2]
        self.is_closed = False

    def measure(self, of: Mapping[str, Any]) -> Any:
        if not self.records:
            raise LagError("nobody answers")
        return [SimpleNamespace(records=each, seconds=each / 2 if each > 0 else None) for each in self.records]

    def close(self) -> None:
        self.is_closed = True


def test_clusters_are_found_through_temporary_views_and_not_through_tables() -> None:
    found = {name: GRAPH.clusters_of(name) for name in ("clicks", "copy", "both", "unknown")}
    assert found == {"clicks": [HERE], "copy": [], "both": [THERE, HERE], "unknown": []}
    assert "here" not in repr(GRAPH)


def test_one_cluster_is_asked_again_and_again_with_one_meter() -> None:
    meters: list[FakeMeter] = []

    def meter_of(cluster: Mapping[str, str]) -> FakeMeter:
        meters.append(FakeMeter(cluster))
        return meters[-1]

    lags = Lags(lambda name: name.removeprefix("c.d."), meter_of)
    lags.graph = GRAPH
    assert lags.after({"name": "c.d.clicks"}) == FlowLag(3, 1.5)
    assert lags.after({"name": "copy"}) is None
    assert lags.after({"name": "both"}) is None
    assert lags.after({"name": None}) is None
    meters[0].records = [7]
    assert lags.now() == {"clicks": FlowLag(7, 3.5)}
    meters[0].records = []
    assert lags.now() == {}
    assert [meter.cluster for meter in meters] == [HERE]
    lags.close()
    assert meters[0].is_closed


def test_a_broker_tells_what_has_come_since() -> None:
    with EmbeddedBroker() as broker:
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("t", str(number).encode(), partition=0)
            producer.flush()
        cluster = {"bootstrap.servers": broker.bootstrap_servers, "group.id": "g", "batch.size": "1"}
        lags = Lags()
        lags.graph = Graph(flows={"a": Flow("a", "a", "", (), (cluster,))})
        ends = {"endOffset": {"t": {"0": 2}}, "latestOffset": {"t": {"0": 2}}}
        found = lags.after({"name": "a", "sources": [ends]})
        assert found is not None
        assert found.records == 3
        assert found.seconds is not None
        assert 0 <= found.seconds < 60
        # Five records in one batch of about a hundred bytes.
        size = lags.bytes_of({"name": "a", "sources": [ends], "numInputRows": 5})
        assert size is not None
        assert 50 < size < 200
        lags.close()
