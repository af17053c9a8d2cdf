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
    from barnabas.client.admin.configs import AlterConfig as AlterConfig
    from barnabas.client.admin.configs import ConfigResource as ConfigResource
    from barnabas.client.admin.configs import ConfigResourceType as ConfigResourceType
    from barnabas.client.admin.offsets import OffsetSpec as OffsetSpec
    from barnabas.client.admin.sync_admin import Admin as Admin
    from barnabas.client.admin.topics import NewPartitions as NewPartitions
    from barnabas.client.admin.topics import NewTopic as NewTopic
    from barnabas.client.consumer.sync_consumer import Consumer as Consumer
    from barnabas.client.core.consuming.offsets import OffsetAndMetadata as OffsetAndMetadata
    from barnabas.client.plugins import RebalanceListener as RebalanceListener
    from barnabas.client.producer.sync_producer import Producer as Producer

_PLACES = {
    "Admin": "client.admin.sync_admin",
    "AlterConfig": "client.admin.configs",
    "BarnabasError": "base.errors",
    "BrokerError": "base.errors",
    "ConfigResource": "client.admin.configs",
    "ConfigResourceType": "client.admin.configs",
    "Consumer": "client.consumer.sync_consumer",
    "ConsumerRecord": "client._kernel.receiving",
    "NewPartitions": "client.admin.topics",
    "NewTopic": "client.admin.topics",
    "OffsetAndMetadata": "client.core.consuming.offsets",
    "OffsetSpec": "client.admin.offsets",
    "Producer": "client.producer.sync_producer",
    "RebalanceListener": "client.plugins",
    "RecordMetadata": "client._kernel.sending",
    "TopicPartition": "base.ids",
}

__all__ = [
    "Admin",
    "AlterConfig",
    "BarnabasError",
    "BrokerError",
    "ConfigResource",
    "ConfigResourceType",
    "Consumer",
    "ConsumerRecord",
    "NewPartitions",
    "NewTopic",
    "OffsetAndMetadata",
    "OffsetSpec",
    "Producer",
    "RebalanceListener",
    "RecordMetadata",
    "TopicPartition",
]


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"barnabas.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
