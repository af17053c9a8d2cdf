"""What is written to topics and read from them, by topic and in all (Kafka's BrokerTopicMetrics)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.broker.metrics.naming import of_mbean
from barnabas.broker.metrics.sources import NodeParts

_PER_STEP: Final = 50


def _family(name: str, text: str) -> Family:
    return of_mbean(f"kafka.server:type=BrokerTopicMetrics,name={name}", "counter", text)


BYTES_IN: Final = _family("BytesInPerSec", "Bytes that clients wrote; without a topic, to all of them.")
BYTES_OUT: Final = _family("BytesOutPerSec", "Bytes that clients read.")
_BY_FIELD: Final = (
    ("bytes_in", BYTES_IN),
    ("messages_in", _family("MessagesInPerSec", "Records that clients wrote.")),
    ("bytes_out", BYTES_OUT),
    ("produce_requests", _family("TotalProduceRequestsPerSec", "Batches that clients sent, one for each partition.")),
    ("failed_produce_requests", _family("FailedProduceRequestsPerSec", "Those of them that were refused.")),
    (
        "fetch_requests",
        _family("TotalFetchRequestsPerSec", "Partitions that were read for an answer; where nothing is new, none is."),
    ),
    ("failed_fetch_requests", _family("FailedFetchRequestsPerSec", "Those of them that were refused.")),
    ("bytes_rejected", _family("BytesRejectedPerSec", "Bytes in batches that were refused.")),
)
_IN_ALL: Final = (
    ("replication_bytes_in", _family("ReplicationBytesInPerSec", "Bytes that came from leaders.")),
    ("replication_bytes_out", _family("ReplicationBytesOutPerSec", "Bytes that went to followers.")),
)
FAMILIES: Final = tuple(family for _, family in (*_BY_FIELD, *_IN_ALL))


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    services = parts.services
    if services is None:
        return
    meters = services.replica_manager.topic_meters
    everything = meters.all()
    for field, family in (*_BY_FIELD, *_IN_ALL):
        out.add(family, getattr(everything, field))
    for number, (topic, meter) in enumerate(meters):
        if number % _PER_STEP == 0:
            yield
        label = labels(topic=topic)
        for field, family in _BY_FIELD:
            out.add(family, getattr(meter, field), label)
