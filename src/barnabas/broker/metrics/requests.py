"""Requests by API: how many, how large, and where their time went (Kafka's RequestMetrics)."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.base.metrics.registry import RecordingLevel
from barnabas.broker.metrics.naming import of_mbean
from barnabas.broker.metrics.sources import NodeParts
from barnabas.broker.request_names import FETCH_FOLLOWER_SLOT
from barnabas.net import RequestMeter
from barnabas.wire.apis import ApiKey

_BEAN: Final = "kafka.network:type=RequestMetrics,name={},request=*"
#: Upper ends of the buckets, in milliseconds; the first of those that are counted apart are of no interest.
_BOUNDS_MS: Final = tuple(0.001024 * 2**power for power in range(27))
_FIRST_BOUND: Final = 4

REQUESTS: Final = of_mbean(f"{_BEAN.format('RequestsPerSec')},version=*", "counter", "Requests that were answered.")
ERRORS: Final = of_mbean(
    f"{_BEAN.format('ErrorsPerSec')},error=*", "counter", "Errors in answers; those without one are not counted here."
)
REQUEST_BYTES: Final = of_mbean(_BEAN.format("RequestBytes"), "summary", "Sizes of requests.")
RESPONSE_BYTES: Final = Family(
    "barnabas_requestmetrics_responsebytes_total", "counter", "Bytes of answers, by request. Kafka does not tell it."
)
_PARTS: Final = (
    ("RequestQueueTimeMs", "From a request's last byte until it was taken up."),
    ("LocalTimeMs", "While this node worked on it."),
    ("RemoteTimeMs", "While it waited for others: followers, records, members, the controller."),
    ("ThrottleTimeMs", "How long clients were told to wait, by quotas."),
    ("ResponseQueueTimeMs", "From when the answer was made until it was given to the socket."),
    ("ResponseSendTimeMs", "Until the socket had taken all of it."),
    ("TotalTimeMs", "From a request's last byte until its answer had left."),
)
_TOTAL: Final = len(_PARTS) - 1
#: As sums and counts, and as histograms.
SUMMARIES: Final = tuple(of_mbean(_BEAN.format(name), "summary", text) for name, text in _PARTS[:_TOTAL])
HISTOGRAMS: Final = tuple(of_mbean(_BEAN.format(name), "histogram", text) for name, text in _PARTS)
LONGEST: Final = Family(
    "barnabas_requestmetrics_longest_totaltimems",
    "gauge",
    "The slowest request since the start (Kafka's Max); not told of FetchConsumer while one of a follower was slower.",
)
FAMILIES: Final = (REQUESTS, ERRORS, REQUEST_BYTES, RESPONSE_BYTES, *SUMMARIES, HISTOGRAMS[_TOTAL], LONGEST)

#: Of each part of the time: the sum, the longest if it is known, and how many fell into each bucket.
_Parts = Sequence[tuple[int, int | None, list[int]]]


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    meter = parts.server.meter
    for slot in meter.keys:
        name = name_of(slot)
        counts = meter.counts_of(slot)
        if name is None or counts is None:
            continue
        count, request_bytes, _, response_bytes, versions, times = counts
        label = labels(request=name)
        if slot < FETCH_FOLLOWER_SLOT:
            for version, number in versions.items():
                out.add(REQUESTS, number, labels(request=name, version=version))
        else:
            out.add(REQUESTS, count, label)
        _sum(out, REQUEST_BYTES, request_bytes, count, label)
        out.add(RESPONSE_BYTES, response_bytes, label)
        _add_times(out, label, times, count, parts.level)
        yield
    for (key, error), number in list(meter.errors.items()):
        out.add(ERRORS, number, labels(request=name_of(key), error=ErrorCode.of(error).name))
    yield from _fetches_of_consumers(meter, out, parts.level)


def name_of(slot: int) -> str | None:
    if slot == FETCH_FOLLOWER_SLOT:
        return "FetchFollower"
    try:
        return ApiKey(slot).camel_name
    except ValueError:
        return None


def _add_times(out: Exposition, label: str, times: _Parts, count: int, level: RecordingLevel) -> None:
    for place, (sum_ns, longest_ns, buckets) in enumerate(times):
        if place == _TOTAL or level > RecordingLevel.INFO:
            folded = [sum(buckets[: _FIRST_BOUND + 1]), *buckets[_FIRST_BOUND + 1 :]]
            out.histogram(HISTOGRAMS[place], _BOUNDS_MS[_FIRST_BOUND:], folded, sum_ns / 1e6, label)
        else:
            _sum(out, SUMMARIES[place], sum_ns / 1e6, count, label)
        if place == _TOTAL and longest_ns is not None:
            out.add(LONGEST, longest_ns / 1e6, label)


def _sum(out: Exposition, family: Family, total: float, count: int, label: str) -> None:
    lines = out.lines_of(family)
    lines.append(f"{family.name}_sum{label} {total}")
    lines.append(f"{family.name}_count{label} {count}")


def _fetches_of_consumers(meter: RequestMeter, out: Exposition, level: RecordingLevel) -> Iterator[None]:
    """All fetches but those of followers: only those are counted apart. The longest of all is a consumer's where no
    follower's was as long."""
    everything, followers = meter.counts_of(ApiKey.FETCH), meter.counts_of(FETCH_FOLLOWER_SLOT)
    if everything is None:
        return
    count, request_bytes, _, response_bytes, _, times = everything
    of_consumers: _Parts = times
    if followers is not None:
        count -= followers[0]
        request_bytes -= followers[1]
        response_bytes -= followers[3]
        of_consumers = [
            (
                each[0] - other[0],
                each[1] if each[1] > other[1] else None,
                [a - b for a, b in zip(each[2], other[2], strict=True)],
            )
            for each, other in zip(times, followers[5], strict=True)
        ]
    label = labels(request="FetchConsumer")
    out.add(REQUESTS, count, label)
    _sum(out, REQUEST_BYTES, request_bytes, count, label)
    out.add(RESPONSE_BYTES, response_bytes, label)
    _add_times(out, label, of_consumers, count, level)
    yield
