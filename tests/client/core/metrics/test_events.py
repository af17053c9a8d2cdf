"""What the events of a client come to in its metrics."""

from __future__ import annotations

import math

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import ManualClock
from barnabas.client.core.metrics import (
    ConsumerMetrics,
    FetchMetrics,
    GroupMetrics,
    MetricsRegistry,
    NetworkMetrics,
    ProducerMetrics,
)

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def registry(clock: ManualClock) -> MetricsRegistry:
    return MetricsRegistry(clock.monotonic_ms, client_id="me")


def test_batches_are_counted_for_the_client_and_for_their_topic(registry: MetricsRegistry) -> None:
    events = ProducerMetrics(registry)
    events.batch_drained("t", 10, 500, 1000, 4, largest_record_bytes=90)
    events.batch_drained("u", 30, 1500, 2000, 8, largest_record_bytes=110)
    events.request_sent(40)
    values = registry.as_dict()
    of_client, of_topics = values["producer-metrics"], values["producer-topic-metrics"]
    assert of_client["batch-size-avg"] == 1000
    assert of_client["batch-size-max"] == 1500
    assert of_client["compression-rate-avg"] == 0.625
    assert of_client["record-queue-time-max"] == 8
    assert of_client["record-size-avg"] == 100
    assert of_client["record-send-total"] == 40
    assert of_client["records-per-request-avg"] == 40
    assert of_topics["record-send-total{topic=t}"] == 10
    assert of_topics["byte-total{topic=u}"] == 1500
    assert of_topics["compression-rate{topic=t}"] == 0.5


def test_failures_and_retries_are_counted_in_records(registry: MetricsRegistry) -> None:
    events = ProducerMetrics(registry)
    events.records_retried("t", 5)
    events.records_failed("t", 3)
    events.batch_split()
    values = registry.as_dict()
    assert values["producer-metrics"]["record-retry-total"] == 5
    assert values["producer-metrics"]["record-error-total"] == 3
    assert values["producer-metrics"]["batch-split-total"] == 1
    assert values["producer-topic-metrics"]["record-error-total{topic=t}"] == 3
    assert values["producer-topic-metrics"]["record-send-total{topic=t}"] == 0


def test_waits_for_memory(registry: MetricsRegistry, clock: ManualClock) -> None:
    events = ProducerMetrics(registry)
    free = [100]
    events.buffer(1000, lambda: free[0])
    events.waiting(+1)
    now = registry.as_dict()["producer-metrics"]
    assert (now["buffer-total-bytes"], now["buffer-available-bytes"], now["waiting-threads"]) == (1000, 100, 1)
    events.waiting(-1)
    events.waited(15_000_000_000)
    events.buffer_exhausted()
    free[0] = 1000
    now = registry.as_dict()["producer-metrics"]
    assert (now["buffer-available-bytes"], now["waiting-threads"]) == (1000, 0)
    assert now["bufferpool-wait-ratio"] == 0.5
    assert now["bufferpool-wait-time-ns-total"] == 15e9
    assert now["buffer-exhausted-total"] == 1


def test_the_age_of_metadata_grows_until_the_next_update(registry: MetricsRegistry, clock: ManualClock) -> None:
    updated_ms: list[int | None] = [None]
    ProducerMetrics(registry).watch(metadata_updated_ms=lambda: updated_ms[0], in_flight=lambda: 3)
    assert math.isnan(registry.as_dict()["producer-metrics"]["metadata-age"])
    updated_ms[0] = clock.monotonic_ms()
    clock.advance(2500)
    assert registry.as_dict()["producer-metrics"]["metadata-age"] == 2.5
    assert registry.as_dict()["producer-metrics"]["requests-in-flight"] == 3


def test_connections_requests_and_answers(registry: MetricsRegistry) -> None:
    network = NetworkMetrics(registry, "consumer")
    network.connected(-1)
    network.connected(7)
    network.disconnected(-1)
    network.sent(7, 100)
    network.sent(7, 300)
    network.received(7, 5000, 12.0)
    of_client, of_node = registry.as_dict()["consumer-metrics"], registry.as_dict()["consumer-node-metrics"]
    assert (of_client["connection-count"], of_client["connection-creation-total"]) == (1, 2)
    assert of_client["connection-close-total"] == 1
    assert (of_client["request-total"], of_client["request-size-avg"], of_client["request-size-max"]) == (2, 200, 300)
    assert (of_client["outgoing-byte-total"], of_client["incoming-byte-total"]) == (400, 5000)
    assert (of_client["response-total"], of_client["network-io-total"]) == (1, 3)
    assert of_node["request-total{node-id=node-7}"] == 2
    assert of_node["incoming-byte-total{node-id=node-7}"] == 5000


def test_the_latency_of_a_node_is_that_of_the_main_requests(clock: ManualClock) -> None:
    registry = MetricsRegistry(clock.monotonic_ms)
    network = NetworkMetrics(registry, "producer")
    network.received(1, 10, 1.0)
    ProducerMetrics(registry, network).request_latency(1, 50.0)
    assert registry.as_dict()["producer-node-metrics"]["request-latency-avg{node-id=node-1}"] == 50
    assert registry.as_dict()["producer-metrics"]["request-latency-max"] == 50
    admin = MetricsRegistry(clock.monotonic_ms)
    NetworkMetrics(admin, "admin-client").received(1, 10, 1.0)
    assert admin.as_dict()["admin-client-node-metrics"]["request-latency-avg{node-id=node-1}"] == 1


def test_fetches_and_what_the_program_took_of_them(registry: MetricsRegistry) -> None:
    events = FetchMetrics(registry)
    events.fetched(1, 3000, 30, 20.0)
    events.topic_fetched("t", 1000, 10)
    events.topic_fetched("u", 2000, 20)
    events.throttled(0)
    events.throttled(30)
    events.consumed("t", 0, 10, 1000)
    values = registry.as_dict()["consumer-fetch-manager-metrics"]
    assert (values["fetch-total"], values["fetch-latency-avg"], values["fetch-size-max"]) == (1, 20, 3000)
    assert values["records-per-request-avg"] == 30
    assert values["fetch-throttle-time-avg"] == 15
    assert (values["bytes-consumed-total"], values["records-consumed-total"]) == (1000, 10)
    assert (values["fetch-size-avg{topic=u}"], values["records-per-request-avg{topic=u}"]) == (2000, 20)
    assert (values["records-consumed-total{topic=t}"], values["records-consumed-total{topic=u}"]) == (10, 0)


def test_lag_and_lead_of_partitions(registry: MetricsRegistry) -> None:
    events = FetchMetrics(registry)
    for lag, lead in ((10, 5), (2, 13)):
        events.lag(T0, lag)
        events.lead(T0, lead)
    events.lag(T1, 40)
    events.lead(T1, 3)
    values = registry.as_dict()["consumer-fetch-manager-metrics"]
    of_t0 = "{topic=t,partition=0}"
    assert [values[f"records-lag{kind}{of_t0}"] for kind in ("", "-max", "-avg")] == [2, 10, 6]
    assert [values[f"records-lead{kind}{of_t0}"] for kind in ("", "-min", "-avg")] == [13, 5, 9]
    assert (values["records-lag-max"], values["records-lead-min"]) == (40, 3)


def test_metrics_of_a_partition_go_with_it(registry: MetricsRegistry) -> None:
    events = FetchMetrics(registry)
    events.assigned([T0, T1])
    events.lag(T0, 1)
    events.preferred_replica(T1, 3)
    values = registry.as_dict()["consumer-fetch-manager-metrics"]
    assert values["preferred-read-replica{topic=t,partition=0}"] == -1
    assert values["preferred-read-replica{topic=t,partition=1}"] == 3
    events.assigned([T1])
    values = registry.as_dict()["consumer-fetch-manager-metrics"]
    assert not [name for name in values if "partition=0" in name]
    assert values["preferred-read-replica{topic=t,partition=1}"] == 3
    events.assigned([T0, T1])
    of_t0 = [name for name in registry.as_dict()["consumer-fetch-manager-metrics"] if "partition=0" in name]
    assert of_t0 == ["preferred-read-replica{topic=t,partition=0}"], "what came before is forgotten"


def test_time_in_and_between_polls(registry: MetricsRegistry, clock: ManualClock) -> None:
    events = ConsumerMetrics(registry)
    assert registry.as_dict()["consumer-metrics"]["last-poll-seconds-ago"] == -1
    events.poll_started()
    events.poll_ended()
    clock.advance(300)
    events.poll_started()
    clock.advance(100)
    events.poll_ended()
    clock.advance(5000)
    values = registry.as_dict()["consumer-metrics"]
    assert values["time-between-poll-max"] == 300
    assert values["time-between-poll-avg"] == 150
    assert values["poll-idle-ratio-avg"] == 0.25
    assert values["last-poll-seconds-ago"] == 5


def test_the_life_of_a_member(registry: MetricsRegistry, clock: ManualClock) -> None:
    events = GroupMetrics(registry)
    before = registry.as_dict()["consumer-coordinator-metrics"]
    assert (before["last-heartbeat-seconds-ago"], before["last-rebalance-seconds-ago"]) == (-1, -1)
    events.joined(40)
    events.synced(10)
    events.rebalance_failed()
    events.rebalanced(100)
    events.partitions_assigned(3)
    events.revoked_callback(1)
    events.assigned_callback(2)
    events.lost_callback(3)
    events.heartbeat_sent()
    events.heartbeat(7)
    events.committed(9)
    clock.advance(2000)
    after = registry.as_dict()["consumer-coordinator-metrics"]
    assert (after["join-time-avg"], after["join-total"], after["sync-time-max"], after["sync-total"]) == (40, 1, 10, 1)
    assert (after["rebalance-total"], after["rebalance-latency-total"], after["failed-rebalance-total"]) == (1, 100, 1)
    assert after["rebalance-rate-per-hour"] == pytest.approx(1, rel=0.01)
    assert after["assigned-partitions"] == 3
    assert [after[f"partition-{what}-latency-max"] for what in ("revoked", "assigned", "lost")] == [1, 2, 3]
    assert (after["heartbeat-response-time-max"], after["heartbeat-total"], after["commit-latency-avg"]) == (7, 1, 9)
    assert (after["last-heartbeat-seconds-ago"], after["last-rebalance-seconds-ago"]) == (2, 2)
