"""What a client tells about itself: Kafka's metrics under Kafka's names.

`MetricsRegistry` holds the metrics of one client. The event classes (`ProducerMetrics`, `NetworkMetrics`,
`FetchMetrics`, `GroupMetrics`, `ConsumerMetrics`) are called when something happens, once per batch, request, fetch or
poll, and never per record.

Of what Kafka's clients report, this is left out:

- `io-ratio`, `io-wait-ratio`, `io-time-ns-*`, `io-wait-time-ns-*`, `select-rate`, `select-total`: how a Java thread
  divides its time around `select()`. An event loop is shared with other work and does not know.
- `successful-…`, `failed-…` and `reauthentication-…`: they come with authentication.
- The second copy of consumer metrics in which the periods of a topic's name are underscores: deprecated in Kafka.
"""

from __future__ import annotations

from barnabas.base.metrics.prometheus import CONTENT_TYPE, prometheus_text
from barnabas.base.metrics.registry import Metric, MetricName, MetricsRegistry, RecordingLevel
from barnabas.base.metrics.samples import Windows
from barnabas.client.core.metrics.app_info import tell_app_info
from barnabas.client.core.metrics.consumer import ConsumerMetrics, FetchMetrics, GroupMetrics
from barnabas.client.core.metrics.network import ADMIN, CONSUMER, PRODUCER, NetworkMetrics
from barnabas.client.core.metrics.producer import ProducerMetrics

__all__ = [
    "ADMIN",
    "CONSUMER",
    "CONTENT_TYPE",
    "PRODUCER",
    "ConsumerMetrics",
    "FetchMetrics",
    "GroupMetrics",
    "Metric",
    "MetricName",
    "MetricsRegistry",
    "NetworkMetrics",
    "ProducerMetrics",
    "RecordingLevel",
    "Windows",
    "prometheus_text",
    "tell_app_info",
]
