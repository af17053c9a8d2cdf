"""How far replicas are behind their leaders is told by those who follow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

import pytest

from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.broker.data import replica_fetcher
from barnabas.broker.metrics import partitions
from barnabas.broker.metrics.sources import NodeParts
from tests.broker.data_plane import DataPlane, batch
from tests.broker.metrics.scraping import Scrape
from tests.broker.test_replica_fetcher import Follower, ScriptedChannel, stamped

LAG = "kafka_server_fetcherlagmetrics_consumerlag"
MAX_LAG = "kafka_server_replicafetchermanager_maxlag"


def told(plane: DataPlane) -> Scrape:
    out = Exposition()
    parts = SimpleNamespace(services=plane.services, runtime=plane.services.runtime)
    for _ in partitions.collect(cast(NodeParts, parts), out):
        pass
    return Scrape(whole_text(out))


def test_a_follower_tells_how_far_behind_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "Channel", ScriptedChannel)
    plane = Follower()
    plane.two.answers = {
        0: [{"records": stamped(0, 1), "high_watermark": 7}],
        1: [{"records": stamped(0), "high_watermark": 2}],
    }
    plane.follow(2)
    plane.pass_ms(100)
    found = told(plane)
    plane.run(plane.fetchers.stop())
    assert found[MAX_LAG] == 5
    assert [found.value(LAG, topic="t", partition=number) for number in "01"] == [5, 1]


def test_a_leader_whose_followers_have_not_fetched_yet_tells_of_no_lag() -> None:
    plane = DataPlane()
    plane.create_topic("t", replicas=(1, 2))
    plane.produce({("t", 0): batch([b"x"] * 10)}, acks=1)
    found = told(plane)
    assert found.value("kafka_log_log_logendoffset", topic="t", partition="0") == 10
    assert found[MAX_LAG] == 0
