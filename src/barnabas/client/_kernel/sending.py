"""Everything compiled that a producer is made of: the way of records into batches, and the news of them."""

from collections.abc import Callable

from barnabas.client._kernel.deliveries import Delivery, Home, RecordMetadata, SendFuture
from barnabas.client._kernel.path import (
    AsyncSendPath,
    BatchRoom,
    Lane,
    SendPath,
    SyncSendPath,
    now_ms,
    partition_number,
    record_bound_bytes,
    record_timestamp_ms,
    topic_name,
)
from barnabas.client._kernel.tables import ArrowDelivery, OffsetRange, RowGroups

#: Called with where the record went, and with None or what went wrong; then the offset is -1.
OnDelivery = Callable[[RecordMetadata, Exception | None], object]

__all__ = [
    "ArrowDelivery",
    "AsyncSendPath",
    "BatchRoom",
    "Delivery",
    "Home",
    "Lane",
    "OffsetRange",
    "OnDelivery",
    "RecordMetadata",
    "RowGroups",
    "SendFuture",
    "SendPath",
    "SyncSendPath",
    "now_ms",
    "partition_number",
    "record_bound_bytes",
    "record_timestamp_ms",
    "topic_name",
]
