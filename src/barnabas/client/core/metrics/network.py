"""What happens on connections, as metrics: groups `producer-metrics`, `consumer-metrics` or `admin-client-metrics`, and
per node `producer-node-metrics` and so on.
"""

from __future__ import annotations

from typing import Final, Literal, NamedTuple

from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.base.metrics.samples import AVG, COUNT_RATE, COUNT_TOTAL, MAX, RATE, TOTAL, Sampled

Kind = Literal["producer", "consumer", "admin-client"]
PRODUCER: Final = "producer"
CONSUMER: Final = "consumer"
ADMIN: Final = "admin-client"


class _Node(NamedTuple):
    requests: Sampled
    incoming: Sampled
    latency: Sampled


class NetworkMetrics:
    """Called by the network for each request and answer, with what went over the wire, framing included."""

    def __init__(self, registry: MetricsRegistry, kind: Kind) -> None:
        self._registry = registry
        self._now_ms = registry.now_ms
        self._group = f"{kind}-metrics"
        self._node_group = f"{kind}-node-metrics"
        # A producer and a consumer tell the latency of their main requests only, as Kafka's do: a heartbeat would blur
        # it. An admin has no main request, so all of its count.
        self._all_latencies = kind == ADMIN
        self._nodes: dict[int, _Node] = {}
        self.connection_count = 0
        self._declare()

    def connected(self, node_id: int) -> None:
        self.connection_count += 1
        self._opened.record(1, self._now_ms())

    def disconnected(self, node_id: int) -> None:
        """A connection that had been made is gone."""
        self.connection_count -= 1
        self._closed.record(1, self._now_ms())

    def sent(self, node_id: int, size_bytes: int) -> None:
        """A request left."""
        now_ms = self._now_ms()
        self._requests.record(size_bytes, now_ms)
        self._operations.record(1, now_ms)
        (self._nodes.get(node_id) or self._add_node(node_id)).requests.record(size_bytes, now_ms)

    def received(self, node_id: int, size_bytes: int, latency_ms: float | None = None) -> None:
        """An answer came, so long after its request."""
        now_ms = self._now_ms()
        self._answers.record(size_bytes, now_ms)
        self._operations.record(1, now_ms)
        node = self._nodes.get(node_id) or self._add_node(node_id)
        node.incoming.record(size_bytes, now_ms)
        if latency_ms is not None and self._all_latencies:
            node.latency.record(latency_ms, now_ms)

    def latency(self, node_id: int, ms: float) -> None:
        """How long a main request took; the metrics of producer and consumer call this themselves."""
        (self._nodes.get(node_id) or self._add_node(node_id)).latency.record(ms, self._now_ms())

    def _declare(self) -> None:
        sampled, group = self._registry.sampled, self._group
        gauge = self._registry.gauge
        gauge("connection-count", group, lambda now_ms: self.connection_count, "Connections that are open.")
        self._opened = sampled(
            group,
            (COUNT_RATE, "connection-creation-rate", "Connections opened per second."),
            (COUNT_TOTAL, "connection-creation-total", "Connections opened."),
        )
        self._closed = sampled(
            group,
            (COUNT_RATE, "connection-close-rate", "Connections closed per second."),
            (COUNT_TOTAL, "connection-close-total", "Connections closed."),
        )
        self._requests = self._requests_of(group, ())
        self._answers = self._answers_of(group, ())
        self._operations = sampled(
            group,
            (COUNT_RATE, "network-io-rate", "Requests sent and answers received per second."),
            (COUNT_TOTAL, "network-io-total", "Requests sent and answers received."),
        )

    def _requests_of(self, group: str, tags: tuple[tuple[str, str], ...]) -> Sampled:
        return self._registry.sampled(
            group,
            (RATE, "outgoing-byte-rate", "Bytes sent per second."),
            (TOTAL, "outgoing-byte-total", "Bytes sent."),
            (COUNT_RATE, "request-rate", "Requests sent per second."),
            (COUNT_TOTAL, "request-total", "Requests sent."),
            (AVG, "request-size-avg", "Bytes of a request, on average."),
            (MAX, "request-size-max", "Bytes of the largest request."),
            tags=tags,
        )

    def _answers_of(self, group: str, tags: tuple[tuple[str, str], ...]) -> Sampled:
        return self._registry.sampled(
            group,
            (RATE, "incoming-byte-rate", "Bytes received per second."),
            (TOTAL, "incoming-byte-total", "Bytes received."),
            (COUNT_RATE, "response-rate", "Answers received per second."),
            (COUNT_TOTAL, "response-total", "Answers received."),
            tags=tags,
        )

    def _add_node(self, node_id: int) -> _Node:
        tags = (("node-id", f"node-{node_id}"),)
        added = self._nodes[node_id] = _Node(
            requests=self._requests_of(self._node_group, tags),
            incoming=self._answers_of(self._node_group, tags),
            latency=self._registry.sampled(
                self._node_group,
                (AVG, "request-latency-avg", "Milliseconds until this node answers, on average."),
                (MAX, "request-latency-max", "Milliseconds until this node answers, at most."),
                tags=tags,
            ),
        )
        return added
