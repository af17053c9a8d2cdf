"""Transactions, and producers that partitions know."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.driver import MAX_VERSION, NOT_DONE, Part, RequestSpec, broker_error, raise_if_error
from barnabas.client.admin.offsets import by_topic
from barnabas.client.admin.routes import TheseNodes, each_broker, each_leader, transaction_coordinators
from barnabas.client.core.producing.transaction_requests import end_version
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.client.errors import ProducerFencedError
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest, AddOffsetsToTxnResponse
from barnabas.wire.messages.describe_producers import (
    DescribeProducersRequest,
    DescribeProducersResponse,
    PartitionResponse,
    TopicRequest,
)
from barnabas.wire.messages.describe_transactions import (
    DescribeTransactionsRequest,
    DescribeTransactionsResponse,
)
from barnabas.wire.messages.describe_transactions import TransactionState as DescribedState
from barnabas.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.list_transactions import ListTransactionsRequest, ListTransactionsResponse
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

#: From the next version on, brokers add the offsets of a transaction by themselves.
_BEFORE_EPOCHS_OF_TRANSACTIONS: Final = 3
#: The producer's time is over, or another has begun in its id.
_GONE: Final = (
    ErrorCode.PRODUCER_FENCED,
    ErrorCode.INVALID_PRODUCER_EPOCH,
    ErrorCode.INVALID_PRODUCER_ID_MAPPING,
)


class TransactionState(StrEnum):
    """How far a transaction is, by Kafka's names. One that a newer broker added is UNKNOWN."""

    UNKNOWN = "Unknown"
    EMPTY = "Empty"
    ONGOING = "Ongoing"
    PREPARE_COMMIT = "PrepareCommit"
    PREPARE_ABORT = "PrepareAbort"
    COMPLETE_COMMIT = "CompleteCommit"
    COMPLETE_ABORT = "CompleteAbort"
    PREPARE_EPOCH_FENCE = "PrepareEpochFence"

    @classmethod
    def _missing_(cls, value: object) -> TransactionState:
        return cls.UNKNOWN


@dataclass(frozen=True, slots=True)
class ProducerState:
    """A producer as a partition knows it. None stands for what it does not have: a transaction, a coordinator."""

    producer_id: int
    producer_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    coordinator_epoch: int | None
    transaction_start_offset: int | None


@dataclass(frozen=True, slots=True)
class TransactionListing:
    """A transactional id, its producer and state, and the broker that looks after it."""

    transactional_id: str
    producer_id: int
    state: TransactionState
    coordinator_id: int


@dataclass(frozen=True, slots=True)
class TransactionDescription:
    """A transaction as its coordinator knows it. `started_ms` is None while none is open."""

    transactional_id: str
    coordinator_id: int
    state: TransactionState
    producer_id: int
    producer_epoch: int
    timeout_ms: int
    started_ms: int | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class ProducerIdAndEpoch:
    """Who may write for a transactional id."""

    producer_id: int
    producer_epoch: int


class TransactionCalls(Part):
    """Calls about transactions, most of them from Kafka 3.0 on."""

    async def describe_producers(
        self,
        partitions: Iterable[TopicPartition],
        *,
        broker_id: int | None = None,
        timeout: float | None = None,
    ) -> dict[TopicPartition, tuple[ProducerState, ...]]:
        """The producers that each partition knows, as its leader or a given replica tells."""
        call = await self._driver.begin("describe_producers", timeout)
        wanted = [TopicPartition(*each) for each in partitions]

        def build(spec: RequestSpec[TopicPartition]) -> DescribeProducersRequest:
            return DescribeProducersRequest(
                topics=[
                    TopicRequest(name=topic, partition_indexes=[each.partition for each in those])
                    for topic, those in by_topic(spec.keys).items()
                ]
            )

        def read(
            spec: RequestSpec[TopicPartition], response: DescribeProducersResponse
        ) -> Iterable[tuple[TopicPartition, tuple[ProducerState, ...] | Exception]]:
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        yield partition, broker_error(each.error_code, each.error_message)
                    else:
                        yield partition, _producers(each)

        if broker_id is None:
            return await self._driver.ask_each(call, wanted, each_leader(), DescribeProducersRequest, build, read)
        route: TheseNodes[TopicPartition] = TheseNodes(lambda partition: broker_id)
        # A broker that is not a replica says so; asking it again does not make it one.
        may_pass = NOT_DONE - {ErrorCode.NOT_LEADER_OR_FOLLOWER}
        return await self._driver.ask_each(
            call, wanted, route, DescribeProducersRequest, build, read, may_pass=may_pass
        )

    async def describe_transactions(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, TransactionDescription]:
        """Transactions as their coordinators know them. TRANSACTIONAL_ID_NOT_FOUND for an id that there is not."""
        call = await self._driver.begin("describe_transactions", timeout)

        def read(
            spec: RequestSpec[str], response: DescribeTransactionsResponse
        ) -> Iterable[tuple[str, TransactionDescription | Exception]]:
            for each in response.transaction_states:
                if each.error_code:
                    yield each.transactional_id, broker_error(each.error_code)
                else:
                    yield each.transactional_id, _transaction(each, spec.node.node_id)

        return await self._driver.ask_each(
            call,
            transactional_ids,
            transaction_coordinators(),
            DescribeTransactionsRequest,
            lambda spec: DescribeTransactionsRequest(transactional_ids=spec.keys),
            read,
        )

    async def list_transactions(
        self,
        *,
        states: Iterable[TransactionState | str] | None = None,
        producer_ids: Iterable[int] | None = None,
        min_duration_ms: int | None = None,
        pattern: str | None = None,
        timeout: float | None = None,
    ) -> list[TransactionListing]:
        """All transactional ids, sorted, or those that pass the filters. Every broker is asked; errors are by broker.

        `min_duration_ms` needs Kafka 3.8, `pattern` (a regular expression of Java's) 4.1: `UnsupportedRequestError`.
        """
        call = await self._driver.begin("list_transactions", timeout)
        request = ListTransactionsRequest(
            state_filters=[str(TransactionState(each)) for each in states or ()],
            producer_id_filters=list(producer_ids or ()),
            duration_filter=-1 if min_duration_ms is None else min_duration_ms,
            transactional_id_pattern=pattern,
        )

        def read(
            spec: RequestSpec[int], response: ListTransactionsResponse
        ) -> Iterable[tuple[int, list[TransactionListing] | Exception]]:
            raise_if_error(response.error_code)
            yield (
                spec.keys[0],
                [
                    TransactionListing(
                        each.transactional_id,
                        each.producer_id,
                        TransactionState(each.transaction_state),
                        spec.node.node_id,
                    )
                    for each in response.transaction_states
                ],
            )

        brokers = sorted((await self._driver.newest_view(call, is_first=True)).nodes)
        found = await self._driver.ask_each(
            call, brokers, each_broker(), ListTransactionsRequest, lambda spec: request, read
        )
        listed = {each.transactional_id: each for some in found.values() for each in some}
        return [listed[transactional_id] for transactional_id in sorted(listed)]

    async def abort_transaction(
        self,
        partition: TopicPartition,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int | None = None,
        *,
        timeout: float | None = None,
    ) -> None:
        """Write the end of a transaction that hangs into one partition; the numbers come from `describe_producers`.

        Only for a transaction that its coordinator has forgotten: to end one that it knows, use
        `force_terminate_transaction`.
        INVALID_PRODUCER_EPOCH or TRANSACTION_COORDINATOR_FENCED if the numbers are old.
        """
        call = await self._driver.begin("abort_transaction", timeout)
        where = TopicPartition(*partition)

        def build(spec: RequestSpec[TopicPartition]) -> WriteTxnMarkersRequest:
            return WriteTxnMarkersRequest(
                markers=[
                    WritableTxnMarker(
                        producer_id=producer_id,
                        producer_epoch=producer_epoch,
                        transaction_result=False,
                        topics=[WritableTxnMarkerTopic(name=where.topic, partition_indexes=[where.partition])],
                        coordinator_epoch=coordinator_epoch or 0,
                    )
                ]
            )

        def read(
            spec: RequestSpec[TopicPartition], response: WriteTxnMarkersResponse
        ) -> Iterable[tuple[TopicPartition, Exception | None]]:
            for marker in response.markers:
                for topic in marker.topics:
                    for each in topic.partitions:
                        error = broker_error(each.error_code) if each.error_code else None
                        yield TopicPartition(topic.name, each.partition_index), error

        await self._driver.ask_each(call, [where], each_leader(), WriteTxnMarkersRequest, build, read)

    async def force_terminate_transaction(self, transactional_id: str, *, timeout: float | None = None) -> None:
        """Abort the open transaction of an id, also a prepared one, and lock out the producer that has it.

        An id that nobody used before is known from then on, without a transaction, as with Kafka.
        """
        await self.fence_producers([transactional_id], timeout=timeout)

    async def fence_producers(
        self, transactional_ids: Iterable[str], *, timeout: float | None = None
    ) -> dict[str, ProducerIdAndEpoch]:
        """End the open transactions of some ids, and lock out the producers that use them now.

        Returns who could write for each id from then on.
        """
        call = await self._driver.begin("fence_producers", timeout)

        def build(spec: RequestSpec[str]) -> InitProducerIdRequest:
            return InitProducerIdRequest(transactional_id=spec.keys[0], transaction_timeout_ms=spec.timeout_ms)

        def read(
            spec: RequestSpec[str], response: InitProducerIdResponse
        ) -> Iterable[tuple[str, ProducerIdAndEpoch | Exception]]:
            raise_if_error(response.error_code)
            yield spec.keys[0], ProducerIdAndEpoch(response.producer_id, response.producer_epoch)

        return await self._driver.ask_each(
            call,
            transactional_ids,
            transaction_coordinators(),
            InitProducerIdRequest,
            build,
            read,
            one_by_one_below=MAX_VERSION,
        )

    async def is_transaction_open(
        self, handle: TransactionHandle, group_id: str, *, timeout: float | None = None
    ) -> bool:
        """Whether a transaction that a producer handed over can still be ended, for brokers before 3.0 that have no
        `describe_transactions`. `group_id` is one to which the producer sent offsets in it.

        Not to be asked of one that was ended in its handle's name: those brokers would begin the next one.
        """
        call = await self._driver.begin("is_transaction_open", timeout)

        def build(spec: RequestSpec[str]) -> AddOffsetsToTxnRequest:
            return AddOffsetsToTxnRequest(
                transactional_id=handle.transactional_id,
                producer_id=handle.producer_id,
                producer_epoch=handle.producer_epoch,
                group_id=group_id,
            )

        def read(spec: RequestSpec[str], response: AddOffsetsToTxnResponse) -> Iterable[tuple[str, bool]]:
            is_gone = response.error_code in _GONE
            if not is_gone:
                raise_if_error(response.error_code)
            yield handle.transactional_id, not is_gone

        found = await self._driver.ask_each(
            call,
            [handle.transactional_id],
            transaction_coordinators(),
            AddOffsetsToTxnRequest,
            build,
            read,
            max_version=_BEFORE_EPOCHS_OF_TRANSACTIONS,
            one_by_one_below=MAX_VERSION,
        )
        return found[handle.transactional_id]

    async def end_transaction(
        self, handle: TransactionHandle, *, commit: bool = True, timeout: float | None = None
    ) -> None:
        """Commit or abort a transaction that a producer handed over: `Producer.transaction_handle()`.

        May be repeated, as after an error that leaves the outcome open: what is ended that way stays so. Raises
        `ProducerFencedError` if another producer with the id has begun since, or transaction.timeout.ms is over: then
        it was aborted, unless it was ended before. INVALID_TXN_STATE if it was ended the other way.
        """
        call = await self._driver.begin("end_transaction", timeout)
        if handle.is_empty:
            return

        def build(spec: RequestSpec[str]) -> EndTxnRequest:
            return EndTxnRequest(
                transactional_id=handle.transactional_id,
                producer_id=handle.producer_id,
                producer_epoch=handle.producer_epoch,
                committed=commit,
            )

        def read(spec: RequestSpec[str], response: EndTxnResponse) -> Iterable[tuple[str, Exception | None]]:
            code = ErrorCode.of(response.error_code)
            if code in (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH):
                fenced = ProducerFencedError(
                    f"another producer with the transactional id {handle.transactional_id!r} has begun, or "
                    f"transaction.timeout.ms is over: {handle} was aborted, unless it was ended before"
                )
                fenced.code = code
                raise fenced
            raise_if_error(response.error_code)
            yield handle.transactional_id, None

        await self._driver.ask_each(
            call,
            [handle.transactional_id],
            transaction_coordinators(),
            EndTxnRequest,
            build,
            read,
            max_version=end_version(handle.version),
            one_by_one_below=MAX_VERSION,
        )


def _producers(each: PartitionResponse) -> tuple[ProducerState, ...]:
    return tuple(
        ProducerState(
            producer_id=one.producer_id,
            producer_epoch=one.producer_epoch,
            last_sequence=one.last_sequence,
            last_timestamp_ms=one.last_timestamp,
            coordinator_epoch=one.coordinator_epoch if one.coordinator_epoch >= 0 else None,
            transaction_start_offset=one.current_txn_start_offset if one.current_txn_start_offset >= 0 else None,
        )
        for one in each.active_producers
    )


def _transaction(each: DescribedState, coordinator_id: int) -> TransactionDescription:
    return TransactionDescription(
        transactional_id=each.transactional_id,
        coordinator_id=coordinator_id,
        state=TransactionState(each.transaction_state),
        producer_id=each.producer_id,
        producer_epoch=each.producer_epoch,
        timeout_ms=each.transaction_timeout_ms,
        started_ms=each.transaction_start_time_ms if each.transaction_start_time_ms >= 0 else None,
        partitions=tuple(
            sorted(TopicPartition(topic.topic, number) for topic in each.topics for number in topic.partitions)
        ),
    )
