"""The text for Prometheus, read back by Prometheus's own parser."""

from __future__ import annotations

import math

from prometheus_client.parser import text_string_to_metric_families

from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.prometheus import escaped_label
from barnabas.client.core.metrics import FetchMetrics, MetricsRegistry, NetworkMetrics, ProducerMetrics, prometheus_text

Sample = tuple[str, tuple[tuple[str, str], ...]]


def read(text: str) -> tuple[dict[str, str], dict[Sample, float]]:
    """Types by family, and values by name and labels. The parser itself refuses what is malformed."""
    types: dict[str, str] = {}
    values: dict[Sample, float] = {}
    for family in text_string_to_metric_families(text):
        assert family.name not in types, "a family comes once"
        assert family.documentation
        types[family.name] = family.type
        for sample in family.samples:
            labels = tuple(sorted(sample.labels.items()))
            assert (sample.name, labels) not in values, "no two values for one name and labels"
            values[sample.name, labels] = sample.value
    return types, values


def producer(client_id: str) -> MetricsRegistry:
    registry = MetricsRegistry(lambda: 0, client_id=client_id)
    network = NetworkMetrics(registry, "producer")
    network.sent(3, 100)
    ProducerMetrics(registry, network).batch_drained("a.topic", 10, 500, 1000, 4)
    return registry


def test_all_values_are_there_under_labels() -> None:
    registry = producer("me")
    types, values = read(prometheus_text(registry.metrics()))
    assert len(values) == len(registry.values())
    assert values["kafka_producer_topic_record_send_total", (("client_id", "me"), ("topic", "a.topic"))] == 10
    assert values["kafka_producer_node_request_total", (("client_id", "me"), ("node", "3"))] == 1
    assert math.isnan(values["kafka_producer_request_latency_avg", (("client_id", "me"),)])
    # The parser speaks of a counter without its ending.
    assert types["kafka_producer_topic_record_send"] == "counter"
    assert types["kafka_producer_batch_size_avg"] == "gauge"


def test_several_clients_share_one_text() -> None:
    first, second = producer("first"), producer("second")
    _, values = read(prometheus_text([*first.metrics(), *second.metrics()]))
    for client_id in ("first", "second"):
        assert values["kafka_producer_outgoing_byte_total", (("client_id", client_id),)] == 100


def test_client_topic_and_partition_are_told_apart() -> None:
    registry = MetricsRegistry(lambda: 0, client_id="me")
    events = FetchMetrics(registry)
    events.consumed("t", 0, 10, 1000)
    events.lag(TopicPartition("t", 0), 7)
    _, values = read(prometheus_text(registry.metrics()))
    of_client = (("client_id", "me"),)
    assert values["kafka_consumer_fetch_manager_records_consumed_total", of_client] == 10
    assert values["kafka_consumer_fetch_manager_topic_records_consumed_total", (*of_client, ("topic", "t"))] == 10
    assert (
        values["kafka_consumer_fetch_manager_partition_records_lag", (*of_client, ("partition", "0"), ("topic", "t"))]
        == 7
    )


def test_any_client_id_comes_through() -> None:
    odd = 'back\\slash "quote" {brace} \n line, ü'
    registry = MetricsRegistry(lambda: 0, client_id=odd)
    _, values = read(prometheus_text(registry.metrics()))
    assert list(values) == [("kafka_metrics_count_count", (("client_id", odd),))]


def test_no_metrics_make_no_text() -> None:
    assert prometheus_text([]) == ""


def test_an_endless_label_is_shortened_and_stays_different_from_others() -> None:
    longest_topic = "t" * 249
    assert escaped_label(longest_topic) == longest_topic
    one, other = escaped_label("x" * 30_000 + "1"), escaped_label("x" * 30_000 + "2")
    assert one != other
    assert one == escaped_label("x" * 30_000 + "1"), "it is the same whenever it is told"
    assert len(one) < 300
    assert len(escaped_label('"' * 30_000)) < 600
