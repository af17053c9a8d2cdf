"""What a node of ours says of itself on its metrics listener, read from Prometheus' text: pure."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, NamedTuple

#: The parts of the time of a request, in the order of their sums.
PARTS: Final = ("queue", "local", "remote", "throttle", "response queue", "send", "total")

_REQUESTS: Final = "kafka_network_requestmetrics_"
_SUMS: Final = {
    f"{_REQUESTS}{part}_sum": place
    for place, part in enumerate(
        (
            "requestqueuetimems",
            "localtimems",
            "remotetimems",
            "throttletimems",
            "responsequeuetimems",
            "responsesendtimems",
            "totaltimems",
        )
    )
}
_COUNT: Final = f"{_REQUESTS}totaltimems_count"
_BUCKET: Final = f"{_REQUESTS}totaltimems_bucket"
_BYTES_IN: Final = "kafka_server_brokertopicmetrics_bytesin_total"
_BYTES_OUT: Final = "kafka_server_brokertopicmetrics_bytesout_total"
_GROUP_LAG: Final = "barnabas_group_lag_seconds_max"
_IDLE: Final = "barnabas_loop_idle_ratio"
_BUSY: Final = "barnabas_loop_cpu_seconds_total"
_LIFETIME: Final = "barnabas_loop_seconds_total"
_STALL: Final = "barnabas_loop_longest_stall_seconds"
_NODE: Final = "kafka_server_app_info_version"
_THROTTLED: Final = "barnabas_throttled_ms_total"
_THROTTLE_LEFT: Final = "barnabas_throttle_left_ms"
_CLUSTER: Final = "kafka_server_kafkaserver_clusterid"

_LINE: Final = re.compile(r"([a-zA-Z_:][\w:]*)(?:\{(.*)\})?\s+(\S+)(?:\s+-?\d+)?")
_LABEL: Final = re.compile(r'([a-zA-Z_]\w*)="((?:[^"\\]|\\.)*)"')
_ESCAPE: Final = re.compile(r"\\(.)")


class Point(NamedTuple):
    """One line: a metric, its labels, its value."""

    name: str
    labels: Mapping[str, str]
    value: float


@dataclass(frozen=True, slots=True)
class ApiFigures:
    """Of one API since the node started: how many requests, the sums of the parts of their time, and how many took up
    to how long."""

    count: float = 0.0
    sums_ms: tuple[float, ...] = (0.0,) * len(PARTS)
    #: By upper bound, each with all that were faster.
    buckets: tuple[tuple[float, float], ...] = ()

    def since(self, before: ApiFigures | None) -> ApiFigures:
        """What came to it; one that is smaller than it was began anew with its node."""
        if before is None or before.count > self.count:
            return self
        sums = tuple(now - then for now, then in zip(self.sums_ms, before.sums_ms, strict=True))
        then = dict(before.buckets)
        buckets = tuple((bound, count - then.get(bound, 0.0)) for bound, count in self.buckets)
        return ApiFigures(self.count - before.count, sums, buckets)

    def quantile_ms(self, share: float) -> float | None:
        """So long, or less, took this share of them; between two bounds they are taken to be spread evenly."""
        wanted, below, before = share * self.count, 0.0, 0.0
        for bound, count in self.buckets:
            if count >= wanted and count > before:
                if math.isinf(bound):
                    return below  # longer than is counted: at least that
                return below + (bound - below) * (wanted - before) / (count - before)
            below, before = bound, count
        return None


def together(several: Iterable[ApiFigures]) -> ApiFigures:
    """Of several nodes."""
    found = list(several)
    buckets: dict[float, float] = {}
    for each in found:
        for bound, count in each.buckets:
            buckets[bound] = buckets.get(bound, 0.0) + count
    sums = tuple(map(sum, zip(*(each.sums_ms for each in found), strict=True))) or ApiFigures().sums_ms
    return ApiFigures(sum(each.count for each in found), sums, tuple(sorted(buckets.items())))


class LoopTime(NamedTuple):
    """For how long a loop is there, and how much of that it was at work; both by the node's clocks, at one moment."""

    seconds: float
    busy_s: float


@dataclass(frozen=True, slots=True)
class NodeFigures:
    """What is shown of a node. Counters grow from its start on."""

    apis: Mapping[str, ApiFigures] = field(default_factory=dict)
    bytes_in: Mapping[str, float] = field(default_factory=dict)
    bytes_out: Mapping[str, float] = field(default_factory=dict)
    group_lag_s: Mapping[str, float] = field(default_factory=dict)
    #: The share of the last minute that its loop had nothing to do.
    idle: float | None = None
    #: How long the loop was busy with one thing, at most, of late.
    longest_stall_ms: float | None = None
    #: How long quotas had clients wait, in milliseconds, by who they are.
    throttled_ms: Mapping[str, float] = field(default_factory=dict)
    node_id: int | None = None
    #: None of nodes that tell the share of the last minute alone.
    loop: LoopTime | None = None
    #: How long clients wait yet for their quotas.
    throttle_left_ms: Mapping[str, float] = field(default_factory=dict)
    cluster_id: str | None = None

    def idle_since(self, before: NodeFigures | None) -> float | None:
        """The share of the time since then that its loop had nothing to do; where that is not told, of the last minute.

        By the node's own clock: one that is busy answers late."""
        if before is None or self.loop is None or before.loop is None:
            return self.idle
        seconds, busy_s = self.loop.seconds - before.loop.seconds, self.loop.busy_s - before.loop.busy_s
        if seconds <= 0 or busy_s < 0:
            return self.idle  # it began anew, or this is the same answer
        return max(0.0, 1.0 - busy_s / seconds)


def points(text: str) -> Iterator[Point]:
    """The lines of Prometheus' text format; what is not understood is passed over."""
    # Nothing else ends a line: the format escapes no other break that Python knows, and names are of others' choice.
    for line in text.split("\n"):
        if line.startswith("#"):
            continue
        found = _LINE.fullmatch(line.strip())
        if found is None:
            continue
        try:
            value = float(found[3])
        except ValueError:
            continue
        yield Point(found[1], {name: _unescaped(each) for name, each in _LABEL.findall(found[2] or "")}, value)


def _unescaped(text: str) -> str:
    return _ESCAPE.sub(lambda match: "\n" if match[1] == "n" else match[1], text)


def figures_of(text: str) -> NodeFigures:
    """What a scrape of one node tells."""
    sums: dict[str, list[float]] = {}
    counts: dict[str, float] = {}
    buckets: dict[str, list[tuple[float, float]]] = {}
    topics: dict[str, dict[str, float]] = {_BYTES_IN: {}, _BYTES_OUT: {}}
    lags: dict[str, float] = {}
    single: dict[str, float] = {}
    throttled: dict[str, float] = {}
    throttle_left: dict[str, float] = {}
    cluster_id: str | None = None
    node_id: int | None = None
    for name, labels, value in points(text):
        request = labels.get("request", "")
        if name in _SUMS:
            sums.setdefault(request, [0.0] * len(PARTS))[_SUMS[name]] = value
        elif name == _COUNT:
            counts[request] = value
        elif name == _BUCKET:
            buckets.setdefault(request, []).append((float(labels.get("le", "inf")), value))
        elif name in topics and "topic" in labels:
            topics[name][labels["topic"]] = value
        elif name == _GROUP_LAG:
            lags[labels.get("group", "")] = value
        elif name in (_IDLE, _STALL, _BUSY, _LIFETIME):
            single[name] = value
        elif name == _NODE and labels.get("node_id", "").isdecimal():
            node_id = int(labels["node_id"])
        elif name == _THROTTLED:
            throttled[_client(labels)] = value
        elif name == _THROTTLE_LEFT:
            throttle_left[_client(labels)] = value
        elif name == _CLUSTER:
            cluster_id = labels.get("cluster_id")
    apis = {
        name: ApiFigures(count, tuple(sums.get(name, ApiFigures().sums_ms)), tuple(sorted(buckets.get(name, ()))))
        for name, count in counts.items()
    }
    if "FetchConsumer" in apis:
        apis.pop("Fetch", None)  # it is in there, and with followers
    return NodeFigures(
        apis,
        topics[_BYTES_IN],
        topics[_BYTES_OUT],
        lags,
        single.get(_IDLE),
        single[_STALL] * 1000 if _STALL in single else None,
        throttled,
        node_id,
        LoopTime(single[_LIFETIME], single[_BUSY]) if _BUSY in single and _LIFETIME in single else None,
        throttle_left,
        cluster_id,
    )


def _client(labels: Mapping[str, str]) -> str:
    principal, client = labels.get("principal", ""), labels.get("client_id", "")
    return f"{client or '(no client.id)'} as {principal}"
