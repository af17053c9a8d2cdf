"""How a coordinator reaches the log of its partition: what it needs, and nothing of how it is done."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable
from typing import Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Runtime
from barnabas.wire.compiler import Buffer


class PartitionWriter(Protocol):
    """The log as coordinators see it."""

    def append_as_coordinator(self, partition: TopicPartition, batch: bytearray, now_ms: int) -> int:
        """Append a batch as the leader, under the rules of acks=all.

        The offset that the high watermark must reach: the one after the last record. A `LogError` or `BrokerError`
        means that nothing is in the log.
        """
        ...

    def append_in_transaction(
        self, partition: TopicPartition, batch: bytearray, guard: object, now_ms: int, transaction_version: int
    ) -> int:
        """The same for a batch of a producer's transaction, verified by `guard`, or for the marker that ends it."""
        ...

    def wait_for_high_watermark(self, partition: TopicPartition, offset: int, timeout_ms: int) -> Awaitable[ErrorCode]:
        """Done when everything below `offset` is committed, or with the reason why that will not be known."""
        ...

    def until_readable(self, partition: TopicPartition) -> Awaitable[ErrorCode]:
        """Done when all that earlier leaders wrote is known to be committed, so that `read_all` gives all of it; or
        with the reason why that will not be."""
        ...

    def read_all(self, partition: TopicPartition, max_bytes: int, runtime: Runtime) -> AsyncIterator[Buffer]:
        """Everything that is committed, from the start of the log, as buffers of about `max_bytes`; the last batch of
        one may be cut off, and comes whole with the next. The reading happens away from the event loop."""
        ...
