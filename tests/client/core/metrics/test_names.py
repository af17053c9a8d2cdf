"""Our metrics are called as Kafka's are.

`kafka_metrics.txt` is what clients of Apache Kafka 4.3.1 have, a line each: client, group, name, tags beside its id.
"""

from __future__ import annotations

import re
from pathlib import Path

from barnabas._version import Build
from barnabas.base.ids import TopicPartition
from barnabas.client.core.metrics import (
    ConsumerMetrics,
    FetchMetrics,
    GroupMetrics,
    MetricsRegistry,
    NetworkMetrics,
    ProducerMetrics,
    tell_app_info,
)
from barnabas.testing import EmbeddedBroker
from tests.oracles import needs_kafka, run_java

KAFKA = Path(__file__).with_name("kafka_metrics.txt")

#: What we leave out; the docstring of barnabas.client.core.metrics says why.
LEFT_OUT = re.compile(
    r"\S+ \S+ (io-(wait-)?(ratio|time-ns-.*)|select-(rate|total)"
    r"|(successful|failed)-(re)?authentication-.*|reauthentication-latency-.*) "
)


def of_kafka() -> set[str]:
    return {line for line in KAFKA.read_text().splitlines() if not LEFT_OUT.fullmatch(line)}


def registry() -> MetricsRegistry:
    metrics = MetricsRegistry(lambda: 0, client_id="me")
    tell_app_info(metrics, Build("1.2.3", "0123abc"), 1_700_000_000_000)
    return metrics


def producer() -> MetricsRegistry:
    metrics = registry()
    network = NetworkMetrics(metrics, "producer")
    network.sent(1, 10)
    events = ProducerMetrics(metrics, network)
    events.watch(metadata_updated_ms=lambda: None, in_flight=lambda: 0)
    events.batch_drained("t", 1, 100, 100, 5)
    return metrics


def consumer() -> MetricsRegistry:
    metrics = registry()
    network = NetworkMetrics(metrics, "consumer")
    network.sent(1, 10)
    ConsumerMetrics(metrics)
    GroupMetrics(metrics)
    events = FetchMetrics(metrics, network)
    events.consumed("t", 0, 1, 100)
    events.lag(TopicPartition("t", 0), 0)
    events.lead(TopicPartition("t", 0), 1)
    return metrics


def admin() -> MetricsRegistry:
    metrics = registry()
    NetworkMetrics(metrics, "admin-client").sent(1, 10)
    return metrics


def test_each_client_has_the_metrics_of_kafka() -> None:
    ours = set()
    for client, metrics in (("producer", producer()), ("consumer", consumer()), ("admin", admin())):
        for name in metrics.values():
            # What is a text in Kafka is a tag of its own name.
            tags = ",".join(sorted(key for key, _ in name.tags if key not in ("client-id", name.name)))
            ours.add(f"{client} {name.group} {name.name} {tags}")
    assert ours == of_kafka()


def test_what_only_grows_is_called_a_total() -> None:
    for metrics in (producer(), consumer(), admin()):
        for metric in metrics.metrics():
            assert (str(metric.name), metric.is_counter) == (str(metric.name), metric.name.name.endswith("-total"))


def test_every_metric_says_what_it_is() -> None:
    for metrics in (producer(), consumer(), admin()):
        for metric in metrics.metrics():
            assert re.fullmatch(r"[A-Z].{8,110}\.", metric.name.description), metric.name


@needs_kafka()
def test_the_list_is_that_of_javas_clients_at_every_level() -> None:
    with EmbeddedBroker() as broker:
        printed = run_java("ClientMetrics.java", "", arguments=("names", broker.bootstrap_servers, "TRACE"))
    assert printed == KAFKA.read_text()
