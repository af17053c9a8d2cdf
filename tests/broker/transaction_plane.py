"""A data plane with groups, and a transaction coordinator on another broker that says what a test wants."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from typing import Any, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.data.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from barnabas.broker.groups.group_coordinator import GroupCoordinatorService
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.topic_names import CONSUMER_OFFSETS, TRANSACTION_STATE
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnResult,
    AddPartitionsToTxnTopicResult,
    AddPartitionsToTxnTransaction,
)
from barnabas.wire.messages.produce import PartitionProduceResponse
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from tests.broker.connections import over_the_wire
from tests.broker.data_plane import NODE, DataPlane, answers_of, batch, produce_request

COORDINATOR = 2
VERSION = 5
TXN = "orders"
#: By topic and partition.
Batches = dict[tuple[Any, int], bytes | bytearray]


class FakeCoordinator:
    """Knows which partitions each transactional id has; says `error` instead if that is set. Stands for
    `BrokerChannels`, too: what is sent to other brokers comes here."""

    def __init__(self) -> None:
        self.partitions: dict[str, set[TopicPartition]] = {}
        self.error = ErrorCode.NONE
        self.failure: Exception | None = None
        self.asked: list[AddPartitionsToTxnRequest] = []
        self.is_held = False
        self.held: asyncio.Event = asyncio.Event()

    def add(self, *partitions: tuple[str, int], transactional_id: str = TXN) -> None:
        self.partitions.setdefault(transactional_id, set()).update(TopicPartition(*each) for each in partitions)

    def end(self, transactional_id: str = TXN) -> None:
        self.partitions.pop(transactional_id, None)

    @property
    def transactions(self) -> list[AddPartitionsToTxnTransaction]:
        return [each for request in self.asked for each in request.transactions]

    async def send(self, broker_id: int, request: Request, *, timeout_ms: int) -> Response:
        assert broker_id == COORDINATOR
        assert isinstance(request, AddPartitionsToTxnRequest)
        request = over_the_wire(request, VERSION)
        self.asked.append(request)
        if self.is_held:
            await self.held.wait()
        if self.failure is not None:
            raise self.failure
        answer = AddPartitionsToTxnResponse(
            results_by_transaction=[
                AddPartitionsToTxnResult(
                    transactional_id=each.transactional_id,
                    topic_results=[
                        AddPartitionsToTxnTopicResult(
                            name=topic.name,
                            results_by_partition=[
                                AddPartitionsToTxnPartitionResult(
                                    partition_index=number,
                                    partition_error_code=self._judge(each, TopicPartition(topic.name, number)),
                                )
                                for number in topic.partitions
                            ],
                        )
                        for topic in each.topics
                    ],
                )
                for each in request.transactions
            ]
        )
        return cast(Response, over_the_wire(answer, VERSION))

    def _judge(self, asked: AddPartitionsToTxnTransaction, partition: TopicPartition) -> ErrorCode:
        if self.error is not ErrorCode.NONE:
            return self.error
        known = self.partitions.setdefault(asked.transactional_id, set())
        if not asked.verify_only:
            known.add(partition)
        return ErrorCode.NONE if partition in known else ErrorCode.TRANSACTION_ABORTABLE


class TransactionPlane(DataPlane):
    """With topic `t` of three partitions, the topics of both coordinators, and groups."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(offsets_topic_num_partitions=2, **settings)
        self.coordinator = FakeCoordinator()
        self.services.transaction_partitions = AddPartitionsToTxnManager(
            cast(Any, self.coordinator), self.metadata, lambda: self.services.settings
        )
        self.services.groups = GroupCoordinatorService(self.settings, self.services.runtime, NODE, self.replica_manager)
        self.services.groups.start()
        self.replica_manager.must_be_verified = lambda: self.services.settings.transaction_partition_verification_enable
        self.create_topic("t", 3)
        self.create_topic(TRANSACTION_STATE, 3, replicas=(COORDINATOR,))
        self.create_topic(CONSUMER_OFFSETS, 2)
        self.pass_ms(10)

    def apply(self, image: ClusterImage, **changes: Any) -> None:
        async def applying() -> None:
            DataPlane.apply(self, image, **changes)
            if self.services.groups is not None:
                self.services.groups.apply(image, ClusterDelta(**changes))

        self.run(applying())

    def set(self, **changes: Any) -> None:
        """While the node runs."""
        given = {name.replace("_", "."): value for name, value in changes.items()}
        self.services.settings = self.services.settings.with_live_changes(given)

    # A producer in a transaction

    def transactional(self, *values: bytes, sequence: int = 0, producer_id: int = 7, epoch: int = 0) -> bytearray:
        return batch(
            values or (b"x",),
            timestamp_ms=self.now_ms,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            transactional=True,
        )

    def send(
        self,
        batches: Batches,
        *,
        version: int = 12,
        transactional_id: str | None = TXN,
        **how: Any,
    ) -> dict[tuple[str, int], PartitionProduceResponse]:
        request = produce_request(batches, transactional_id=transactional_id, **how)
        return answers_of(self.ask(request, version))

    def send_one(self, *values: bytes, number: int = 0, version: int = 12, **producer: Any) -> PartitionProduceResponse:
        return self.send({("t", number): self.transactional(*values, **producer)}, version=version)["t", number]

    # A coordinator that ends it

    def marker(
        self,
        partitions: Iterable[tuple[str, int]] = (("t", 0),),
        *,
        producer_id: int = 7,
        epoch: int = 0,
        committed: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
    ) -> WritableTxnMarker:
        topics: dict[str, list[int]] = {}
        for topic, number in partitions:
            topics.setdefault(topic, []).append(number)
        return WritableTxnMarker(
            producer_id=producer_id,
            producer_epoch=epoch,
            transaction_result=committed,
            topics=[WritableTxnMarkerTopic(name=name, partition_indexes=numbers) for name, numbers in topics.items()],
            coordinator_epoch=coordinator_epoch,
            transaction_version=transaction_version,
        )

    def write_markers(self, *markers: WritableTxnMarker, version: int = 2) -> dict[tuple[int, str, int], ErrorCode]:
        response = self.ask(WriteTxnMarkersRequest(markers=list(markers)), version)
        return {
            (each.producer_id, topic.name, partition.partition_index): ErrorCode.of(partition.error_code)
            for each in response.markers
            for topic in each.topics
            for partition in topic.partitions
        }

    def end(self, *partitions: tuple[str, int], **how: Any) -> None:
        outcome = self.write_markers(self.marker(partitions or (("t", 0),), **how))
        assert set(outcome.values()) == {ErrorCode.NONE}, outcome
