"""Apache Kafka's system, whole, in Python.

>>> from barnabas import Admin, Consumer, Producer

The clients are here for programs without asyncio; `barnabas.aio` has the same names for programs with it. What clients
raise is here, too. Nothing is loaded before it is asked for, so that a node starts without its clients and a tool
without either.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from barnabas import aio as aio
    from barnabas import errors as errors
    from barnabas import spark as spark
    from barnabas import testing as testing
    from barnabas.base.error_codes import ErrorCode as ErrorCode
    from barnabas.base.errors import BarnabasError as BarnabasError
    from barnabas.base.errors import BrokerError as BrokerError
    from barnabas.base.errors import SettingsError as SettingsError
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
    from barnabas.client.core.producing.transaction_states import TransactionHandle as TransactionHandle
    from barnabas.client.errors import BufferFullError as BufferFullError
    from barnabas.client.errors import ClientClosedError as ClientClosedError
    from barnabas.client.errors import ClientError as ClientError
    from barnabas.client.errors import ClientTimeoutError as ClientTimeoutError
    from barnabas.client.errors import CommitFailedError as CommitFailedError
    from barnabas.client.errors import CorruptRecordsError as CorruptRecordsError
    from barnabas.client.errors import DeliveryTimeoutError as DeliveryTimeoutError
    from barnabas.client.errors import KeyedError as KeyedError
    from barnabas.client.errors import LogTruncatedError as LogTruncatedError
    from barnabas.client.errors import NoBrokersError as NoBrokersError
    from barnabas.client.errors import NoOffsetError as NoOffsetError
    from barnabas.client.errors import OffsetOutOfRangeError as OffsetOutOfRangeError
    from barnabas.client.errors import ProducerFencedError as ProducerFencedError
    from barnabas.client.errors import RecordTooLargeError as RecordTooLargeError
    from barnabas.client.errors import SerializationError as SerializationError
    from barnabas.client.errors import TransactionAbortableError as TransactionAbortableError
    from barnabas.client.errors import TransactionAbortedError as TransactionAbortedError
    from barnabas.client.errors import TransactionError as TransactionError
    from barnabas.client.errors import TransactionFatalError as TransactionFatalError
    from barnabas.client.errors import TransactionStateError as TransactionStateError
    from barnabas.client.errors import TransactionTimeoutError as TransactionTimeoutError
    from barnabas.client.errors import UnknownPartitionError as UnknownPartitionError
    from barnabas.client.errors import WakeupError as WakeupError
    from barnabas.client.errors import WrongUseError as WrongUseError
    from barnabas.client.plugins import RebalanceListener as RebalanceListener
    from barnabas.client.producer.sync_producer import Producer as Producer
    from barnabas.net.errors import AuthenticationFailedError as AuthenticationFailedError
    from barnabas.net.errors import ConnectError as ConnectError
    from barnabas.net.errors import DisconnectedError as DisconnectedError
    from barnabas.net.errors import RequestTimeoutError as RequestTimeoutError
    from barnabas.net.errors import UnsupportedRequestError as UnsupportedRequestError

_PLACES = {
    "Admin": "client.admin.sync_admin",
    "AlterConfig": "client.admin.configs",
    "AuthenticationFailedError": "net.errors",
    "BarnabasError": "base.errors",
    "BrokerError": "base.errors",
    "BufferFullError": "client.errors",
    "ClientClosedError": "client.errors",
    "ClientError": "client.errors",
    "ClientTimeoutError": "client.errors",
    "CommitFailedError": "client.errors",
    "ConfigResource": "client.admin.configs",
    "ConfigResourceType": "client.admin.configs",
    "ConnectError": "net.errors",
    "Consumer": "client.consumer.sync_consumer",
    "ConsumerRecord": "client._kernel.receiving",
    "CorruptRecordsError": "client.errors",
    "DeliveryTimeoutError": "client.errors",
    "DisconnectedError": "net.errors",
    "ErrorCode": "base.error_codes",
    "KeyedError": "client.errors",
    "LogTruncatedError": "client.errors",
    "NewPartitions": "client.admin.topics",
    "NewTopic": "client.admin.topics",
    "NoBrokersError": "client.errors",
    "NoOffsetError": "client.errors",
    "OffsetAndMetadata": "client.core.consuming.offsets",
    "OffsetOutOfRangeError": "client.errors",
    "OffsetSpec": "client.admin.offsets",
    "Producer": "client.producer.sync_producer",
    "ProducerFencedError": "client.errors",
    "RebalanceListener": "client.plugins",
    "RecordMetadata": "client._kernel.sending",
    "RecordTooLargeError": "client.errors",
    "RequestTimeoutError": "net.errors",
    "SerializationError": "client.errors",
    "SettingsError": "base.errors",
    "TopicPartition": "base.ids",
    "TransactionAbortableError": "client.errors",
    "TransactionAbortedError": "client.errors",
    "TransactionError": "client.errors",
    "TransactionFatalError": "client.errors",
    "TransactionHandle": "client.core.producing.transaction_states",
    "TransactionStateError": "client.errors",
    "TransactionTimeoutError": "client.errors",
    "UnknownPartitionError": "client.errors",
    "UnsupportedRequestError": "net.errors",
    "WakeupError": "client.errors",
    "WrongUseError": "client.errors",
}
#: Packages that are loaded when somebody uses them, as `barnabas.aio` after `import barnabas`.
_PACKAGES = ("aio", "errors", "spark", "testing")

__all__ = [
    "Admin",
    "AlterConfig",
    "AuthenticationFailedError",
    "BarnabasError",
    "BrokerError",
    "BufferFullError",
    "ClientClosedError",
    "ClientError",
    "ClientTimeoutError",
    "CommitFailedError",
    "ConfigResource",
    "ConfigResourceType",
    "ConnectError",
    "Consumer",
    "ConsumerRecord",
    "CorruptRecordsError",
    "DeliveryTimeoutError",
    "DisconnectedError",
    "ErrorCode",
    "KeyedError",
    "LogTruncatedError",
    "NewPartitions",
    "NewTopic",
    "NoBrokersError",
    "NoOffsetError",
    "OffsetAndMetadata",
    "OffsetOutOfRangeError",
    "OffsetSpec",
    "Producer",
    "ProducerFencedError",
    "RebalanceListener",
    "RecordMetadata",
    "RecordTooLargeError",
    "RequestTimeoutError",
    "SerializationError",
    "SettingsError",
    "TopicPartition",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionFatalError",
    "TransactionHandle",
    "TransactionStateError",
    "TransactionTimeoutError",
    "UnknownPartitionError",
    "UnsupportedRequestError",
    "WakeupError",
    "WrongUseError",
]


def __getattr__(name: str) -> Any:
    if name in _PACKAGES:
        return importlib.import_module(f"barnabas.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module 'barnabas' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"barnabas.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_PLACES, *_PACKAGES})
