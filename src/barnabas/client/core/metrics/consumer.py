"""What happens in a consumer, as metrics: polls (`consumer-metrics`), fetches (`consumer-fetch-manager-metrics`, also
by topic and by partition) and the group (`consumer-coordinator-metrics`).

Each event is one poll, one fetch or one chunk of a partition, never one record.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final, NamedTuple

from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.registry import MetricsRegistry, Tags, Told
from barnabas.base.metrics.samples import (
    AVG,
    COUNT_PER_HOUR,
    COUNT_RATE,
    COUNT_TOTAL,
    HOUR_MS,
    MAX,
    MIN,
    RATE,
    TOTAL,
    LatestValue,
    Sampled,
    Windows,
)
from barnabas.client.core.metrics.network import NetworkMetrics

GROUP: Final = "consumer-metrics"
FETCH_GROUP: Final = "consumer-fetch-manager-metrics"
COORDINATOR_GROUP: Final = "consumer-coordinator-metrics"

#: What is told of something that never happened yet, as Kafka does.
NEVER: Final = -1.0


class ConsumerMetrics:
    """Called by the consumer around its calls."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._now_ms = registry.now_ms
        self._started_ms: int | None = None
        self._between_ms = 0
        self._between = registry.sampled(
            GROUP,
            (AVG, "time-between-poll-avg", "Milliseconds between two polls, on average."),
            (MAX, "time-between-poll-max", "Milliseconds between two polls, at most."),
        )
        self._idle = registry.sampled(
            GROUP, (AVG, "poll-idle-ratio-avg", "The part of the time that is spent in polls, not in the program.")
        )
        self._commit_sync = registry.sampled(
            GROUP, (TOTAL, "commit-sync-time-ns-total", "Nanoseconds spent waiting for commits.")
        )
        self._committed = registry.sampled(
            GROUP, (TOTAL, "committed-time-ns-total", "Nanoseconds spent asking for committed offsets.")
        )
        registry.gauge("last-poll-seconds-ago", GROUP, self._last_poll_s, "Seconds since the last poll; -1 for never.")

    def poll_started(self) -> None:
        now_ms = self._now_ms()
        self._between_ms = 0 if self._started_ms is None else now_ms - self._started_ms
        self._between.record(self._between_ms, now_ms)
        self._started_ms = now_ms

    def poll_ended(self) -> None:
        now_ms = self._now_ms()
        took_ms = now_ms - (now_ms if self._started_ms is None else self._started_ms)
        if took_ms + self._between_ms:
            self._idle.record(took_ms / (took_ms + self._between_ms), now_ms)

    def commit_sync(self, ns: int) -> None:
        """A commit that the program waited for took so long."""
        self._commit_sync.record(ns, self._now_ms())

    def committed(self, ns: int) -> None:
        """The program waited so long for committed offsets."""
        self._committed.record(ns, self._now_ms())

    def _last_poll_s(self, now_ms: int) -> float:
        return _seconds_since(self._started_ms, now_ms)


class _Topic(NamedTuple):
    fetch_size: Sampled
    fetch_records: Sampled
    size_bytes: Sampled
    records: Sampled


class _Partition:
    __slots__ = ("lag", "lead", "preferred_replica")

    def __init__(self) -> None:
        self.lag: LatestValue | None = None
        self.lead: LatestValue | None = None
        self.preferred_replica = -1


class FetchMetrics:
    """Called by the fetcher."""

    def __init__(self, registry: MetricsRegistry, network: NetworkMetrics | None = None) -> None:
        """`network` takes the latencies per node."""
        self._registry = registry
        self._network = network
        self._now_ms = registry.now_ms
        self._topics: dict[str, _Topic] = {}
        self._partitions: dict[TopicPartition, _Partition] = {}
        self._declare()

    def fetched(self, node_id: int, size_bytes: int, records: int, latency_ms: float) -> None:
        """A fetch was answered with so many bytes of records, in all its partitions."""
        now_ms = self._now_ms()
        self._latency.record(latency_ms, now_ms)
        self._fetch_size.record(size_bytes, now_ms)
        self._fetch_records.record(records, now_ms)
        if self._network is not None:
            self._network.latency(node_id, latency_ms)

    def topic_fetched(self, topic: str, size_bytes: int, records: int) -> None:
        """What the same answer held of one topic; called once per topic that it had records of."""
        now_ms = self._now_ms()
        of_topic = self._topics.get(topic) or self._add_topic(topic)
        of_topic.fetch_size.record(size_bytes, now_ms)
        of_topic.fetch_records.record(records, now_ms)

    def throttled(self, ms: float) -> None:
        """An answer said how long the broker throttled us; also 0, as the average is over all answers."""
        self._throttle.record(ms, self._now_ms())

    def consumed(self, topic: str, partition: int, records: int, size_bytes: int) -> None:
        """A chunk of a partition was handed to the program."""
        now_ms = self._now_ms()
        self._size_bytes.record(size_bytes, now_ms)
        self._records.record(records, now_ms)
        of_topic = self._topics.get(topic) or self._add_topic(topic)
        of_topic.size_bytes.record(size_bytes, now_ms)
        of_topic.records.record(records, now_ms)

    def lag(self, partition: TopicPartition, records: int) -> None:
        """How many records the position is behind the end."""
        now_ms = self._now_ms()
        self._lag_max.record(records, now_ms)
        state = self._partitions.get(partition) or self._add_partition(partition)
        if state.lag is None:
            state.lag = self._registry.latest(
                FETCH_GROUP,
                "records-lag",
                "Records between the position and the end of this partition.",
                (MAX, "records-lag-max", "The largest lag of this partition."),
                (AVG, "records-lag-avg", "The lag of this partition, on average."),
                tags=_tags(partition),
            )
        state.lag.record(records, now_ms)

    def lead(self, partition: TopicPartition, records: int) -> None:
        """How many records the position is past the start of what the log still holds."""
        now_ms = self._now_ms()
        self._lead_min.record(records, now_ms)
        state = self._partitions.get(partition) or self._add_partition(partition)
        if state.lead is None:
            state.lead = self._registry.latest(
                FETCH_GROUP,
                "records-lead",
                "Records between the start of this partition and the position.",
                (MIN, "records-lead-min", "The smallest lead of this partition."),
                (AVG, "records-lead-avg", "The lead of this partition, on average."),
                tags=_tags(partition),
            )
        state.lead.record(records, now_ms)

    def preferred_replica(self, partition: TopicPartition, node_id: int) -> None:
        """From whom this partition is read instead of its leader; -1 for the leader."""
        (self._partitions.get(partition) or self._add_partition(partition)).preferred_replica = node_id

    def assigned(self, partitions: Iterable[TopicPartition]) -> None:
        """These partitions are read from now on; metrics of others go away."""
        now_assigned = dict.fromkeys(partitions)
        for partition in [each for each in self._partitions if each not in now_assigned]:
            del self._partitions[partition]
            self._registry.remove(FETCH_GROUP, _tags(partition))
        for partition in now_assigned:
            if partition not in self._partitions:
                self._add_partition(partition)

    def _declare(self) -> None:
        sampled = self._registry.sampled
        self._latency = sampled(
            FETCH_GROUP,
            (AVG, "fetch-latency-avg", "Milliseconds until a fetch is answered, on average."),
            (MAX, "fetch-latency-max", "Milliseconds until a fetch is answered, at most."),
            (COUNT_RATE, "fetch-rate", "Fetches per second."),
            (COUNT_TOTAL, "fetch-total", "Fetches answered."),
        )
        self._throttle = sampled(
            FETCH_GROUP,
            (AVG, "fetch-throttle-time-avg", "Milliseconds that brokers throttled a fetch, on average."),
            (MAX, "fetch-throttle-time-max", "Milliseconds that brokers throttled a fetch, at most."),
        )
        of_all = self._quantities(())
        self._fetch_size, self._fetch_records, self._size_bytes, self._records = of_all
        self._lag_max = sampled(FETCH_GROUP, (MAX, "records-lag-max", "The largest lag of any partition."))
        self._lead_min = sampled(FETCH_GROUP, (MIN, "records-lead-min", "The smallest lead of any partition."))

    def _quantities(self, tags: Tags) -> _Topic:
        def sampled(*told: Told) -> Sampled:
            return self._registry.sampled(FETCH_GROUP, *told, tags=tags)

        return _Topic(
            fetch_size=sampled(
                (AVG, "fetch-size-avg", "Bytes that a fetch brought, on average."),
                (MAX, "fetch-size-max", "Bytes that a fetch brought, at most."),
            ),
            fetch_records=sampled((AVG, "records-per-request-avg", "Records that a fetch brought, on average.")),
            size_bytes=sampled(
                (RATE, "bytes-consumed-rate", "Bytes per second that the program took."),
                (TOTAL, "bytes-consumed-total", "Bytes that the program took."),
            ),
            records=sampled(
                (RATE, "records-consumed-rate", "Records per second that the program took."),
                (TOTAL, "records-consumed-total", "Records that the program took."),
            ),
        )

    def _add_topic(self, topic: str) -> _Topic:
        added = self._topics[topic] = self._quantities((("topic", topic),))
        return added

    def _add_partition(self, partition: TopicPartition) -> _Partition:
        state = self._partitions[partition] = _Partition()
        self._registry.gauge(
            "preferred-read-replica",
            FETCH_GROUP,
            lambda now_ms: state.preferred_replica,
            "The replica that is read instead of the leader; -1 for the leader.",
            tags=_tags(partition),
        )
        return state


class GroupMetrics:
    """Called by the member of a group."""

    def __init__(self, registry: MetricsRegistry) -> None:
        self._registry = registry
        self._now_ms = registry.now_ms
        self._assigned = 0
        self._heartbeat_ms: int | None = None
        self._rebalanced_ms: int | None = None
        self._declare_requests()
        self._declare_rebalances()
        self._revoked = self._callback("partition-revoked")
        self._got = self._callback("partition-assigned")
        self._lost = self._callback("partition-lost")

    def heartbeat_sent(self) -> None:
        self._heartbeat_ms = self._now_ms()

    def heartbeat(self, ms: float) -> None:
        """A heartbeat was answered after so long."""
        self._heartbeat.record(ms, self._now_ms())

    def joined(self, ms: float) -> None:
        """A JoinGroup was answered with success."""
        self._join.record(ms, self._now_ms())

    def synced(self, ms: float) -> None:
        """A SyncGroup was answered with success."""
        self._sync.record(ms, self._now_ms())

    def rebalanced(self, ms: float) -> None:
        """A rebalance ended well, so long after it began, failed attempts included."""
        now_ms = self._rebalanced_ms = self._now_ms()
        self._rebalance.record(ms, now_ms)
        self._rebalance_by_hour.record(1, now_ms)

    def rebalance_failed(self) -> None:
        self._failed.record(1, self._now_ms())

    def committed(self, ms: float) -> None:
        """An OffsetCommit was answered after so long."""
        self._commit.record(ms, self._now_ms())

    def partitions_assigned(self, count: int) -> None:
        """So many partitions are assigned now."""
        self._assigned = count

    def revoked_callback(self, ms: float) -> None:
        """The listener's on_partitions_revoked took so long."""
        self._revoked.record(ms, self._now_ms())

    def assigned_callback(self, ms: float) -> None:
        """The listener's on_partitions_assigned took so long."""
        self._got.record(ms, self._now_ms())

    def lost_callback(self, ms: float) -> None:
        """The listener's on_partitions_lost took so long."""
        self._lost.record(ms, self._now_ms())

    def _declare_requests(self) -> None:
        sampled, gauge = self._registry.sampled, self._registry.gauge
        self._heartbeat = sampled(
            COORDINATOR_GROUP,
            (MAX, "heartbeat-response-time-max", "Milliseconds until a heartbeat is answered, at most."),
            (COUNT_RATE, "heartbeat-rate", "Heartbeats per second."),
            (COUNT_TOTAL, "heartbeat-total", "Heartbeats answered."),
        )
        self._join = self._request("join", "join-time", "join")
        self._sync = self._request("sync", "sync-time", "sync")
        self._commit = self._request("commit", "commit-latency", "commit")
        gauge(
            "assigned-partitions", COORDINATOR_GROUP, lambda now_ms: self._assigned, "Partitions that are assigned now."
        )
        gauge(
            "last-heartbeat-seconds-ago",
            COORDINATOR_GROUP,
            lambda now_ms: _seconds_since(self._heartbeat_ms, now_ms),
            "Seconds since the last heartbeat was sent; -1 for never.",
        )

    def _declare_rebalances(self) -> None:
        sampled = self._registry.sampled
        by_hour = Windows(self._registry.windows.num_samples, HOUR_MS)
        self._rebalance = sampled(
            COORDINATOR_GROUP,
            (AVG, "rebalance-latency-avg", "Milliseconds that a rebalance takes, on average."),
            (MAX, "rebalance-latency-max", "Milliseconds that a rebalance takes, at most."),
            (TOTAL, "rebalance-latency-total", "Milliseconds that rebalances took."),
            (COUNT_TOTAL, "rebalance-total", "Rebalances that ended well."),
        )
        self._rebalance_by_hour = sampled(
            COORDINATOR_GROUP,
            (COUNT_PER_HOUR, "rebalance-rate-per-hour", "Rebalances per hour that ended well."),
            windows=by_hour,
        )
        self._failed = sampled(
            COORDINATOR_GROUP,
            (COUNT_PER_HOUR, "failed-rebalance-rate-per-hour", "Rebalances per hour that failed."),
            (COUNT_TOTAL, "failed-rebalance-total", "Rebalances that failed."),
            windows=by_hour,
        )
        self._registry.gauge(
            "last-rebalance-seconds-ago",
            COORDINATOR_GROUP,
            lambda now_ms: _seconds_since(self._rebalanced_ms, now_ms),
            "Seconds since the last rebalance that ended well; -1 for never.",
        )

    def _request(self, name: str, time: str, what: str) -> Sampled:
        return self._registry.sampled(
            COORDINATOR_GROUP,
            (AVG, f"{time}-avg", f"Milliseconds that a {what} takes, on average."),
            (MAX, f"{time}-max", f"Milliseconds that a {what} takes, at most."),
            (COUNT_RATE, f"{name}-rate", f"How often a {what} happens, per second."),
            (COUNT_TOTAL, f"{name}-total", f"How often a {what} happened."),
        )

    def _callback(self, name: str) -> Sampled:
        return self._registry.sampled(
            COORDINATOR_GROUP,
            (AVG, f"{name}-latency-avg", "Milliseconds that the listener takes for this, on average."),
            (MAX, f"{name}-latency-max", "Milliseconds that the listener takes for this, at most."),
        )


def _tags(partition: TopicPartition) -> Tags:
    return (("topic", partition.topic), ("partition", str(partition.partition)))


def _seconds_since(then_ms: int | None, now_ms: int) -> float:
    return NEVER if then_ms is None else float((now_ms - then_ms) // 1000)
