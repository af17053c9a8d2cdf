"""Apache Kafka's system, whole, in Python.

>>> from barnabas import Admin, Consumer, Producer

The clients are here for programs without asyncio; `barnabas.aio` has the same names for programs with it. Nothing is
loaded before it is asked for, so that a node starts without its clients and a tool without either.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas.base.errors import BarnabasError as BarnabasError
    from barnabas.base.errors import BrokerError as BrokerError
    from barnabas.base.ids import TopicPartition as TopicPartition
    from barnabas.client._kernel.receiving import ConsumerRecord as ConsumerRecord
    from barnabas.client._kernel.sending import RecordMetadata as RecordMetadata
    from barnabas.client.admin.sync_admin import Admin as Admin
    from barnabas.client.consumer.sync_consumer import Consumer as Consumer
    from barnabas.client.core.consuming.offsets import OffsetAndMetadata as OffsetAndMetadata
    from barnabas.client.producer.sync_producer import Producer as Producer

_PLACES = {
    "Admin": "barnabas.client.admin.sync_admin",
    "BarnabasError": "barnabas.base.errors",
    "BrokerError": "barnabas.base.errors",
    "Consumer": "barnabas.client.consumer.sync_consumer",
    "ConsumerRecord": "barnabas.client._kernel.receiving",
    "OffsetAndMetadata": "barnabas.client.core.consuming.offsets",
    "Producer": "barnabas.client.producer.sync_producer",
    "RecordMetadata": "barnabas.client._kernel.sending",
    "TopicPartition": "barnabas.base.ids",
}

__all__ = [
    "Admin",
    "BarnabasError",
    "BrokerError",
    "Consumer",
    "ConsumerRecord",
    "OffsetAndMetadata",
    "Producer",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    found = getattr(importlib.import_module(_PLACES[name]), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
