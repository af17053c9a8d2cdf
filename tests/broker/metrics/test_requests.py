"""Fetches of consumers are told without those of followers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import cast

from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.base.metrics.registry import RecordingLevel
from barnabas.broker.metrics import requests
from barnabas.broker.metrics.sources import NodeParts
from barnabas.broker.request_names import FETCH_FOLLOWER_SLOT
from barnabas.net import RequestFields
from barnabas.wire.apis import ApiKey
from tests.broker.metrics.scraping import Scrape
from tests.net.test_request_meter import World, frame

LONGEST = "barnabas_requestmetrics_longest_totaltimems"


def fetch(world: World, took_ms: float, *, is_follower: bool) -> None:
    request = RequestFields()
    world.meter.arrived(request)
    world.meter.begins(request, frame(ApiKey.FETCH))
    if is_follower:
        request.count_also_as(FETCH_FOLLOWER_SLOT)
    world.passes(took_ms)
    request.response_is_ready(10)
    request.response_has_left()


def told(world: World) -> Scrape:
    out = Exposition()
    parts = SimpleNamespace(server=SimpleNamespace(meter=world.meter), level=RecordingLevel.INFO)
    for _ in requests.collect(cast(NodeParts, parts), out):
        pass
    return Scrape(whole_text(out))


def test_the_slowest_fetch_is_a_consumers_where_no_follower_was_slower() -> None:
    world = World()
    fetch(world, 20, is_follower=False)
    fetch(world, 5, is_follower=True)
    found = told(world)
    assert round(found.value(LONGEST, request="FetchConsumer")) == 20
    assert round(found.value(LONGEST, request="FetchFollower")) == 5
    fetch(world, 500, is_follower=True)
    found = told(world)
    assert round(found.value(LONGEST, request="Fetch")) == round(found.value(LONGEST, request="FetchFollower")) == 500
    assert (LONGEST, (("request", "FetchConsumer"),)) not in found.samples
    assert found.value("kafka_network_requestmetrics_totaltimems_count", request="FetchConsumer") == 1
    fetch(world, 600, is_follower=False)
    assert round(told(world).value(LONGEST, request="FetchConsumer")) == 600
