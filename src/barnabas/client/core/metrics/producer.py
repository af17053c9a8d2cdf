"""What happens in a producer, as metrics: groups `producer-metrics` and `producer-topic-metrics`.

Each event is one batch, one request or one wait, never one record.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.base.metrics.samples import (
    AVG,
    COUNT_RATE,
    COUNT_TOTAL,
    MAX,
    NAN,
    RATE,
    RATIO_OF_NS,
    TOTAL,
    Sampled,
)
from barnabas.client.core.metrics.network import NetworkMetrics

GROUP: Final = "producer-metrics"
TOPIC_GROUP: Final = "producer-topic-metrics"


class _Topic(NamedTuple):
    records: Sampled
    size_bytes: Sampled
    compression: Sampled
    retries: Sampled
    errors: Sampled


class ProducerMetrics:
    """Called by the accumulator, the buffer pool and the sender."""

    def __init__(self, registry: MetricsRegistry, network: NetworkMetrics | None = None) -> None:
        """`network` takes the latencies per node."""
        self._registry = registry
        self._network = network
        self._now_ms = registry.now_ms
        self._topics: dict[str, _Topic] = {}
        self._waiting = 0
        self._buffer_total_bytes = 0
        self._buffer_available_bytes: Callable[[], float] = lambda: 0.0
        self._declare_batches()
        self._declare_requests()
        self._declare_waits()

    # Batches and requests: called by the sender on the loop's thread.

    def batch_drained(
        self,
        topic: str,
        records: int,
        size_bytes: int,
        uncompressed_bytes: int,
        queue_ms: float,
        largest_record_bytes: int = 0,
    ) -> None:
        """A batch leaves in a request. `size_bytes` is what it takes on the wire, `queue_ms` how long it waited."""
        now_ms = self._now_ms()
        compression = size_bytes / uncompressed_bytes if uncompressed_bytes else 1.0
        self._batch_size.record(size_bytes, now_ms)
        self._compression.record(compression, now_ms)
        self._queue_time.record(queue_ms, now_ms)
        if largest_record_bytes:
            self._record_size.record(largest_record_bytes, now_ms)
        of_topic = self._topics.get(topic) or self._add_topic(topic)
        of_topic.records.record(records, now_ms)
        of_topic.size_bytes.record(size_bytes, now_ms)
        of_topic.compression.record(compression, now_ms)

    def request_sent(self, records: int) -> None:
        """A produce request with so many records, in all its batches, leaves."""
        self._records.record(records, self._now_ms())

    def request_latency(self, node_id: int, ms: float) -> None:
        """A produce request was answered."""
        self._latency.record(ms, self._now_ms())
        if self._network is not None:
            self._network.latency(node_id, ms)

    def throttled(self, node_id: int, ms: float) -> None:
        """An answer said how long the broker throttled us; also 0, as the average is over all answers."""
        self._throttle.record(ms, self._now_ms())

    def records_failed(self, topic: str, records: int) -> None:
        """Records failed for good."""
        now_ms = self._now_ms()
        self._errors.record(records, now_ms)
        (self._topics.get(topic) or self._add_topic(topic)).errors.record(records, now_ms)

    def records_retried(self, topic: str, records: int) -> None:
        """A batch with so many records goes back to be sent again."""
        now_ms = self._now_ms()
        self._retries.record(records, now_ms)
        (self._topics.get(topic) or self._add_topic(topic)).retries.record(records, now_ms)

    def batch_split(self) -> None:
        """A batch was too large for the broker and was split."""
        self._splits.record(1, self._now_ms())

    # Memory and waits: called where a program may block. Who has several threads holds a lock while calling.

    def buffer(self, total_bytes: int, available_bytes: Callable[[], float]) -> None:
        """Called once: how large the pool is, and how to learn what is left of it."""
        self._buffer_total_bytes = total_bytes
        self._buffer_available_bytes = available_bytes

    def waiting(self, change: int) -> None:
        """One more (+1) or one less (-1) waits for memory."""
        self._waiting += change

    def waited(self, ns: int) -> None:
        """Somebody waited so long for memory."""
        self._buffer_wait.record(ns, self._now_ms())

    def buffer_exhausted(self) -> None:
        """A record was given up because no memory came free in time."""
        self._exhausted.record(1, self._now_ms())

    def metadata_wait(self, ns: int) -> None:
        """Somebody waited so long until a topic was known."""
        self._metadata_wait.record(ns, self._now_ms())

    def transaction_call(self, which: str, ns: int) -> None:
        """A call of the transactional producer took so long."""
        self._transaction_calls[which].record(ns, self._now_ms())

    def flush(self, ns: int) -> None:
        """A flush took so long."""
        self._flush.record(ns, self._now_ms())

    def watch(self, *, metadata_updated_ms: Callable[[], float | None], in_flight: Callable[[], int]) -> None:
        """Called once: how to learn when metadata last came (monotonic; None for never), and what is in flight."""

        def age_s(now_ms: int) -> float:
            updated_ms = metadata_updated_ms()
            return NAN if updated_ms is None else (now_ms - updated_ms) / 1000

        gauge = self._registry.gauge
        gauge("metadata-age", GROUP, age_s, "Seconds since metadata last came.")
        gauge("requests-in-flight", GROUP, lambda now_ms: in_flight(), "Requests that wait for their answer.")

    def _declare_batches(self) -> None:
        sampled = self._registry.sampled
        self._batch_size = sampled(
            GROUP,
            (AVG, "batch-size-avg", "Bytes of a batch as it is sent, on average."),
            (MAX, "batch-size-max", "Bytes of the largest batch sent."),
        )
        self._compression = sampled(
            GROUP, (AVG, "compression-rate-avg", "Size of a batch when compressed, as a part of its size before.")
        )
        self._queue_time = sampled(
            GROUP,
            (AVG, "record-queue-time-avg", "Milliseconds that a batch waited before it was sent, on average."),
            (MAX, "record-queue-time-max", "Milliseconds that a batch waited before it was sent, at most."),
        )
        self._record_size = sampled(
            GROUP,
            (MAX, "record-size-max", "Bytes of the largest record."),
            (AVG, "record-size-avg", "Bytes of the largest record of a batch, on average."),
        )
        self._splits = sampled(
            GROUP,
            (COUNT_RATE, "batch-split-rate", "Batches per second that were split, being too large."),
            (COUNT_TOTAL, "batch-split-total", "Batches that were split, being too large."),
        )

    def _declare_requests(self) -> None:
        sampled = self._registry.sampled
        self._records = sampled(
            GROUP,
            (RATE, "record-send-rate", "Records sent per second."),
            (TOTAL, "record-send-total", "Records sent."),
            (AVG, "records-per-request-avg", "Records in a produce request, on average."),
        )
        self._latency = sampled(
            GROUP,
            (AVG, "request-latency-avg", "Milliseconds until a produce request is answered, on average."),
            (MAX, "request-latency-max", "Milliseconds until a produce request is answered, at most."),
        )
        self._throttle = sampled(
            GROUP,
            (AVG, "produce-throttle-time-avg", "Milliseconds that brokers throttled a request, on average."),
            (MAX, "produce-throttle-time-max", "Milliseconds that brokers throttled a request, at most."),
        )
        self._retries = sampled(
            GROUP,
            (RATE, "record-retry-rate", "Records per second that are sent again."),
            (TOTAL, "record-retry-total", "Records that were sent again."),
        )
        self._errors = sampled(
            GROUP,
            (RATE, "record-error-rate", "Records per second that failed."),
            (TOTAL, "record-error-total", "Records that failed."),
        )

    def _declare_waits(self) -> None:
        sampled, gauge = self._registry.sampled, self._registry.gauge
        gauge("buffer-total-bytes", GROUP, lambda now_ms: self._buffer_total_bytes, "Memory that batches may take.")
        gauge("buffer-available-bytes", GROUP, lambda now_ms: self._buffer_available_bytes(), "Memory that is free.")
        gauge("waiting-threads", GROUP, lambda now_ms: self._waiting, "Callers that wait for memory.")
        self._buffer_wait = sampled(
            GROUP,
            (RATIO_OF_NS, "bufferpool-wait-ratio", "The part of the time that callers wait for memory."),
            (TOTAL, "bufferpool-wait-time-ns-total", "Nanoseconds that callers waited for memory."),
        )
        self._exhausted = sampled(
            GROUP,
            (COUNT_RATE, "buffer-exhausted-rate", "Records per second that were given up for want of memory."),
            (COUNT_TOTAL, "buffer-exhausted-total", "Records that were given up for want of memory."),
        )
        self._metadata_wait = sampled(
            GROUP, (TOTAL, "metadata-wait-time-ns-total", "Nanoseconds that callers waited for metadata.")
        )
        self._flush = sampled(GROUP, (TOTAL, "flush-time-ns-total", "Nanoseconds spent in flush."))
        self._transaction_calls = {
            call: sampled(GROUP, (TOTAL, f"txn-{call}-time-ns-total", f"Nanoseconds spent in {method}."))
            for call, method in (
                ("init", "init_transactions"),
                ("begin", "begin_transaction"),
                ("send-offsets", "send_offsets_to_transaction"),
                ("prepare", "transaction_handle"),
                ("commit", "commit_transaction"),
                ("abort", "abort_transaction"),
            )
        }

    def _add_topic(self, topic: str) -> _Topic:
        tags = (("topic", topic),)

        def pair(rate: str, total: str, what: str) -> Sampled:
            told = ((RATE, rate, f"{what} per second."), (TOTAL, total, f"{what}."))
            return self._registry.sampled(TOPIC_GROUP, *told, tags=tags)

        compression = (AVG, "compression-rate", "Size of a batch when compressed, as a part of its size before.")
        added = self._topics[topic] = _Topic(
            records=pair("record-send-rate", "record-send-total", "Records sent"),
            size_bytes=pair("byte-rate", "byte-total", "Bytes sent"),
            compression=self._registry.sampled(TOPIC_GROUP, compression, tags=tags),
            retries=pair("record-retry-rate", "record-retry-total", "Records sent again"),
            errors=pair("record-error-rate", "record-error-total", "Records that failed"),
        )
        return added
