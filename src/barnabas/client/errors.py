"""What can go wrong with a client, in kinds that a program may want to tell apart.

An error code that a broker answered with comes as `BrokerError`, with the code. A connection that broke comes as one of
`barnabas.net.errors`, where no retry is left. Everything here derives from `BarnabasError`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition


class ClientError(BarnabasError):
    """What a client raises by itself."""


class ClientTimeoutError(ClientError, TimeoutError):
    """It took longer than the caller, or a setting, allows."""


class ClientClosedError(ClientError):
    """The client was closed, before or meanwhile."""


class NoBrokersError(ClientError, ConnectionError):
    """None of the bootstrap servers answers."""


class WrongUseError(ClientError, RuntimeError):
    """Called from where it must not be: another event loop, a second thread, a forked process, a callback."""


class SerializationError(ClientError, ValueError):
    """A key or value could not be turned into bytes or back. Of a record that was read it says where that lies."""

    partition: TopicPartition | None = None
    offset: int | None = None


class UnknownPartitionError(ClientError, ValueError):
    """A partition that its topic does not have."""


class RecordTooLargeError(ClientError, ValueError):
    """A record that no request could carry."""


class BufferFullError(ClientTimeoutError):
    """buffer.memory was used up for longer than max.block.ms."""


class DeliveryTimeoutError(ClientTimeoutError):
    """A record was not acknowledged within delivery.timeout.ms. It may have been written all the same."""


class TransactionError(ClientError):
    """Something about a transaction. Its kinds say what to do: try again, abort and go on, give up."""

    #: What a broker answered, if it was that.
    code: ErrorCode | None = None


class TransactionTimeoutError(TransactionError, ClientTimeoutError):
    """Try again: it was not done within max.block.ms, and goes on meanwhile. The same call again waits for it."""


class TransactionAbortableError(TransactionError):
    """Abort and go on: this transaction cannot be committed. After `abort_transaction()` the next one may begin."""


class TransactionFatalError(TransactionError):
    """Give up: this producer cannot go on. Close it; the transaction is aborted by whoever begins next, or in time."""


class ProducerFencedError(TransactionFatalError):
    """Give up: the id or epoch of the producer is not accepted any more, since another one has begun."""


class TransactionAbortedError(TransactionError):
    """The record was not sent, because its transaction was aborted before."""


class TransactionStateError(TransactionError, WrongUseError):
    """A call that the state of the transaction does not allow. It has changed nothing."""


class NoOffsetError(ClientError):
    """There is no committed offset and auto.offset.reset is none."""

    def __init__(self, partitions: tuple[TopicPartition, ...]) -> None:
        self.partitions = partitions
        names = ", ".join(map(str, partitions))
        super().__init__(
            f"no position for {names}: nothing is committed and auto.offset.reset is none; seek, or set it to "
            "earliest or latest"
        )


class OffsetOutOfRangeError(ClientError):
    """The position lies outside what the partition holds and auto.offset.reset is none."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        places = ", ".join(f"{partition} at {offset}" for partition, offset in self.offsets.items())
        super().__init__(f"out of range: {places}; auto.offset.reset is none, so seek to where reading should go on")


class LogTruncatedError(ClientError):
    """The log was cut back below the position: records that were read are not in it any more."""

    def __init__(self, offsets: Mapping[TopicPartition, int]) -> None:
        self.offsets = dict(offsets)
        places = ", ".join(f"{partition} (last common offset {offset})" for partition, offset in self.offsets.items())
        super().__init__(f"the log was truncated below the position of {places}; seek to where reading should go on")


class CorruptRecordsError(ClientError):
    """Records that cannot be read: a checksum or a form is wrong. Seek past them to go on."""

    def __init__(self, partition: TopicPartition, offset: int, reason: str) -> None:
        self.partition = partition
        self.offset = offset
        super().__init__(
            f"the records of {partition} at offset {offset} cannot be read: {reason}; seek past it to go on"
        )


class WakeupError(ClientError):
    """`wakeup()` was called: the poll ends, and nothing is lost."""


class CommitFailedError(ClientError):
    """Offsets were not committed, because the group has moved on without this member."""


class KeyedError(ClientError):
    """Some of several things that were asked for failed: `errors` by key, `results` of those that did not."""

    def __init__(self, errors: Mapping[Any, Exception], results: Mapping[Any, Any]) -> None:
        self.errors = dict(errors)
        self.results = dict(results)
        super().__init__("; ".join(f"{key}: {error}" for key, error in self.errors.items()))


__all__ = [
    "BrokerError",
    "BufferFullError",
    "ClientClosedError",
    "ClientError",
    "ClientTimeoutError",
    "CommitFailedError",
    "CorruptRecordsError",
    "DeliveryTimeoutError",
    "KeyedError",
    "LogTruncatedError",
    "NoBrokersError",
    "NoOffsetError",
    "OffsetOutOfRangeError",
    "ProducerFencedError",
    "RecordTooLargeError",
    "SerializationError",
    "TransactionAbortableError",
    "TransactionAbortedError",
    "TransactionError",
    "TransactionFatalError",
    "TransactionStateError",
    "TransactionTimeoutError",
    "UnknownPartitionError",
    "WakeupError",
    "WrongUseError",
]
