"""Markers on their way to the leaders of partitions. Kafka's TransactionMarkerChannelManager.

A transaction whose outcome is in the log ends in all its partitions, however long that takes: whatever goes wrong is
tried again, with whoever leads the partition then. What ends the sending is that the partition is deleted, or that this
node does not coordinate the transaction any more. Each broker gets one request at a time, with all that has come for it
meanwhile; in which version is negotiated with each (KAFKA-20322).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final, Protocol, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.coordinator.transactions.metadata import TransactionMetadata
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_log = logger("barnabas.transactions")

_FIRST_BACKOFF_MS: Final = 20
_MAX_BACKOFF_MS: Final = 1_000
#: So many partitions are in one request at most, except if one transaction has more.
_PARTITIONS_PER_REQUEST: Final = 2_000

#: A leader waits for its followers as long as the request lasts, and then says for which partitions it did so in vain.
#: Whoever waits no longer than that never hears of the others.
_LEADERS_ANSWER_MS: Final = 5_000

#: The partition needs no marker: it can have none, so it has no records of transactions either.
_NOT_NEEDED: Final = (ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION)
#: Somebody else coordinates this transaction now, or has fenced its producer since.
_OVERTAKEN: Final = (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED)


class Brokers(Protocol):
    """The way to other brokers, and to this one."""

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int) -> Response: ...


class ShardMarkers:
    """The markers of one shard, as it was loaded: what it is told of them ends with it."""

    def __init__(self, sender: MarkerSender, coordinator_epoch: Callable[[], int]) -> None:
        self._sender = sender
        self._coordinator_epoch = coordinator_epoch
        self.is_cancelled = False
        #: Told when all markers of a transaction are written.
        self.on_written: Callable[[str, TransactionMetadata], None] = lambda *_: None

    def send(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        self._sender.add(_Pending(self, transactional_id, metadata, self._coordinator_epoch()))

    def cancel_all(self) -> None:
        self.is_cancelled = True


class _Pending:
    """A transaction that waits for its markers."""

    __slots__ = ("coordinator_epoch", "is_given_up", "left", "metadata", "retries", "shard", "transactional_id")

    def __init__(
        self, shard: ShardMarkers, transactional_id: str, metadata: TransactionMetadata, coordinator_epoch: int
    ) -> None:
        self.shard = shard
        self.transactional_id = transactional_id
        self.metadata = metadata
        self.coordinator_epoch = coordinator_epoch
        #: Partitions without a marker, in an order that is the same in every process.
        self.left = dict.fromkeys(sorted(metadata.partitions))
        self.retries = 0
        self.is_given_up = False

    @property
    def is_over(self) -> bool:
        return self.is_given_up or self.shard.is_cancelled

    def marker(self, partitions: Iterable[TopicPartition]) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for topic, index in partitions:
            topics.setdefault(topic, []).append(index)
        return WritableTxnMarker(
            producer_id=self.metadata.producer_id,
            producer_epoch=self.metadata.producer_epoch,
            transaction_result=self.metadata.state is TransactionState.PREPARE_COMMIT,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()],
            coordinator_epoch=self.coordinator_epoch,
            transaction_version=self.metadata.client_version,
        )


class MarkerSender:
    """Sends markers; `image` tells who leads what."""

    def __init__(self, brokers: Brokers, image: Callable[[], ClusterImage], request_timeout_ms: int) -> None:
        self._brokers = brokers
        self._image = image
        self._request_timeout_ms = request_timeout_ms
        self._queues: dict[int, dict[_Pending, list[TopicPartition]]] = {}
        self._senders: dict[int, asyncio.Task[None]] = {}
        self._is_stopped = False

    def for_shard(self, coordinator_epoch: Callable[[], int]) -> ShardMarkers:
        """Where a shard hands in its markers; `coordinator_epoch` is the leader epoch of its partition."""
        return ShardMarkers(self, coordinator_epoch)

    def add(self, pending: _Pending) -> None:
        # Not at once: whoever hands it in is in the middle of something.
        asyncio.get_running_loop().call_soon(self._route, pending, list(pending.left))

    async def stop(self) -> None:
        self._is_stopped = True
        senders = list(self._senders.values())
        for sender in senders:
            sender.cancel()
        await asyncio.gather(*senders, return_exceptions=True)

    # Finding the leaders

    def _route(self, pending: _Pending, partitions: list[TopicPartition]) -> None:
        """Queue it for those who lead these partitions now."""
        if pending.is_over or self._is_stopped:
            return
        image = self._image()
        leaderless = []
        for each in partitions:
            partition = image.partition(*each)
            if partition is None and each.topic != CONSUMER_OFFSETS:
                # It was deleted, and its records with it.
                pending.left.pop(each, None)
            elif partition is not None and partition.leader in image.brokers:
                self._queues.setdefault(partition.leader, {}).setdefault(pending, []).append(each)
                if partition.leader not in self._senders:
                    self._start(partition.leader)
            else:
                # Or this broker has not heard yet that the topic of offsets was created.
                leaderless.append(each)
        if leaderless:
            self._route_later(pending, leaderless)
        if not pending.left:
            pending.shard.on_written(pending.transactional_id, pending.metadata)

    def _route_later(self, pending: _Pending, partitions: list[TopicPartition]) -> None:
        delay_ms = min(_FIRST_BACKOFF_MS << min(pending.retries, 10), _MAX_BACKOFF_MS)
        pending.retries += 1
        asyncio.get_running_loop().call_later(delay_ms / 1000, self._route, pending, partitions)

    # Sending

    def _start(self, broker_id: int) -> None:
        task = asyncio.get_running_loop().create_task(self._send_all(broker_id), name=f"markers to broker {broker_id}")
        self._senders[broker_id] = task

    async def _send_all(self, broker_id: int) -> None:
        try:
            # In the next turn, so that what comes in this one is sent together.
            await asyncio.sleep(0)
            while batch := self._next_batch(broker_id):
                await self._send(broker_id, batch)
        finally:
            del self._senders[broker_id]

    def _next_batch(self, broker_id: int) -> dict[_Pending, list[TopicPartition]]:
        queue = self._queues.get(broker_id, {})
        batch: dict[_Pending, list[TopicPartition]] = {}
        count = 0
        while queue and count < _PARTITIONS_PER_REQUEST:
            pending = next(iter(queue))
            partitions = queue.pop(pending)
            if not pending.is_over:
                batch[pending] = partitions
                count += len(partitions)
        if not queue:
            self._queues.pop(broker_id, None)
        return batch

    async def _send(self, broker_id: int, batch: dict[_Pending, list[TopicPartition]]) -> None:
        markers = [pending.marker(partitions) for pending, partitions in batch.items()]
        try:
            response = await self._brokers.send(
                broker_id,
                WriteTxnMarkersRequest(markers=markers),
                timeout_ms=self._request_timeout_ms + _LEADERS_ANSWER_MS,
            )
            errors = _errors(cast(WriteTxnMarkersResponse, response))
        except Exception as failure:
            # Whatever it is, the transactions are decided, and their partitions wait.
            trace = None if isinstance(failure, BarnabasError) else failure
            _log.info("markers were not sent to broker %d, and are tried again: %s", broker_id, failure, exc_info=trace)
            for pending, partitions in batch.items():
                self._route_later(pending, partitions)
            return
        for pending, partitions in batch.items():
            self._sent(pending, partitions, errors)

    def _sent(
        self, pending: _Pending, partitions: list[TopicPartition], errors: dict[tuple[int, TopicPartition], ErrorCode]
    ) -> None:
        if pending.is_over:
            return
        again = []
        for each in partitions:
            # Without an answer it is as good as not sent: a marker may be written twice.
            error = errors.get((pending.metadata.producer_id, each), ErrorCode.REQUEST_TIMED_OUT)
            if error is ErrorCode.NONE or error in _NOT_NEEDED:
                pending.left.pop(each, None)
            elif error in _OVERTAKEN:
                text = "the transaction of %r is not ended here any more, %s has heard of a later one: %s"
                _log.warning(text, pending.transactional_id, each, error.name)
                pending.is_given_up = True
                return
            else:
                _log.info("%s did not take the marker of %r: %s", each, pending.transactional_id, error.name)
                again.append(each)
        if again:
            self._route_later(pending, again)
        else:
            pending.retries = 0
        if not pending.left:
            pending.shard.on_written(pending.transactional_id, pending.metadata)


def _errors(response: WriteTxnMarkersResponse) -> dict[tuple[int, TopicPartition], ErrorCode]:
    return {
        (marker.producer_id, TopicPartition(topic.name, each.partition_index)): ErrorCode.of(each.error_code)
        for marker in response.markers
        for topic in marker.topics
        for each in topic.partitions
    }
