"""How much of their quotas clients use; told of those who have one (Kafka's beans of Produce, Fetch, Request and
ControllerMutation, by user and client id)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from heapq import heappush, heappushpop
from typing import Final

from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.broker.metrics.naming import of_mbean
from barnabas.broker.metrics.sources import NodeParts
from barnabas.metadata.client_quotas import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from barnabas.metadata.quota_limits import Owner

_BEAN: Final = "kafka.server:type={},user=*,client-id=*#{}"
#: Client ids are anybody's to choose: so many are told of each quota, those who use the most.
_MOST_OWNERS: Final = 1_000
_PER_STEP: Final = 100

PRODUCED: Final = of_mbean(
    _BEAN.format("Produce", "byte-rate"), "gauge", "Bytes that one with a quota produces per second, by its window."
)
FETCHED: Final = of_mbean(
    _BEAN.format("Fetch", "byte-rate"), "gauge", "Bytes that one with a quota fetches per second, by its window."
)
REQUEST_TIME: Final = of_mbean(
    _BEAN.format("Request", "request-time"), "gauge", "The share of the loop's time that its requests take, in percent."
)
TOKENS: Final = of_mbean(
    _BEAN.format("ControllerMutation", "tokens"),
    "gauge",
    "Partitions that it may create or delete at once; below zero it must wait. Told by the active controller.",
)
FAMILIES: Final = (PRODUCED, FETCHED, REQUEST_TIME, TOKENS)
_BY_KEY: Final = ((PRODUCER_BYTE_RATE, PRODUCED), (CONSUMER_BYTE_RATE, FETCHED), (REQUEST_PERCENTAGE, REQUEST_TIME))


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    if parts.broker is not None:
        for key, family in _BY_KEY:
            yield from _add(out, family, parts.broker.quotas.rates(key))
    if parts.controller is not None and parts.controller.controller.is_active:
        now_ms = parts.runtime.clock.monotonic_ms()
        yield from _add(out, TOKENS, parts.controller.controller.mutation_quotas.tokens(now_ms))


def _add(out: Exposition, family: Family, found: Iterable[tuple[Owner, float] | None]) -> Iterator[None]:
    # Of tokens, who has the fewest uses the most.
    sign = -1 if family is TOKENS else 1
    largest: list[tuple[float, Owner]] = []
    for number, told in enumerate(found, 1):
        if told is not None:
            owner, value = told
            if len(largest) < _MOST_OWNERS:
                heappush(largest, (sign * value, owner))
            else:
                heappushpop(largest, (sign * value, owner))
        if number % _PER_STEP == 0:
            yield
    for number, (signed, (user, client_id)) in enumerate(largest, 1):
        out.add(family, sign * signed, labels(user=user, client_id=client_id))
        if number % _PER_STEP == 0:
            yield
    yield
