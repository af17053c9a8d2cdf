"""A partition leader asks transaction coordinators: does a partition belong to a transaction, or may it be added?

One question is on its way to each coordinator at a time. What comes meanwhile, from however many producers, goes with
the next one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from enum import Enum, auto
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.broker.broker_channels import BrokerChannels, ChannelError
from barnabas.broker.services import MetadataCache
from barnabas.broker.settings import BrokerSettings
from barnabas.coordinator.routing import partition_for
from barnabas.metadata.image import NO_LEADER
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.net.errors import UnsupportedRequestError
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnRequest,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopic,
    AddPartitionsToTxnTransaction,
)

_log = logger("barnabas.broker")

#: Why partitions are not verified; those that are not named are.
Refusals = Mapping[TopicPartition, ErrorCode]

_FIRST_PRODUCE_THAT_ADDS: Final = 12
_FIRST_PRODUCE_WITH_ABORTABLE: Final = 11
_FIRST_OFFSET_COMMIT_THAT_ADDS: Final = 5
_FIRST_OFFSET_COMMIT_WITH_ABORTABLE: Final = 4
#: So that no coordinator refuses a request for its size, whoever else asks at the same time.
_PARTITIONS_PER_REQUEST: Final = 2000


class TransactionSupportedOperation(Enum):
    """What a client understands, by the version of its request."""

    #: An error of its time.
    DEFAULT_ERROR = auto()
    #: TRANSACTION_ABORTABLE.
    GENERIC_ERROR_SUPPORTED = auto()
    #: It does not add partitions itself: whoever writes to them does (transactions v2).
    ADD_PARTITION = auto()

    @property
    def supports_epoch_bump(self) -> bool:
        return self is TransactionSupportedOperation.ADD_PARTITION

    @classmethod
    def of_produce(cls, version: int) -> TransactionSupportedOperation:
        if version >= _FIRST_PRODUCE_THAT_ADDS:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version >= _FIRST_PRODUCE_WITH_ABORTABLE else cls.DEFAULT_ERROR

    @classmethod
    def of_txn_offset_commit(cls, version: int) -> TransactionSupportedOperation:
        if version >= _FIRST_OFFSET_COMMIT_THAT_ADDS:
            return cls.ADD_PARTITION
        return cls.GENERIC_ERROR_SUPPORTED if version >= _FIRST_OFFSET_COMMIT_WITH_ABORTABLE else cls.DEFAULT_ERROR


class _Question:
    """What one request of a producer asks about one transaction."""

    __slots__ = ("answer", "operation", "partitions", "producer_epoch", "producer_id", "transactional_id")

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: list[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.partitions = partitions
        self.operation = operation
        self.answer: asyncio.Future[Refusals] = asyncio.get_running_loop().create_future()

    def refuse(self, code: ErrorCode) -> None:
        self.settle(dict.fromkeys(self.partitions, code))

    def settle(self, refusals: Refusals) -> None:
        if not self.answer.done():
            self.answer.set_result(refusals)

    def is_same_transaction(self, other: _Question) -> bool:
        return (
            self.producer_id == other.producer_id
            and self.producer_epoch == other.producer_epoch
            and self.operation.supports_epoch_bump == other.operation.supports_epoch_bump
        )


class AddPartitionsToTxnManager:
    """Asks the coordinators of the image. `settings` tells those of the moment."""

    def __init__(
        self, brokers: BrokerChannels, metadata: MetadataCache, settings: Callable[[], BrokerSettings]
    ) -> None:
        self._brokers = brokers
        self._metadata = metadata
        self._settings = settings
        #: By coordinator: what waits for its turn.
        self._waiting: dict[int, list[_Question]] = {}
        self._asking: dict[int, asyncio.Task[None]] = {}

    async def add_or_verify(
        self,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        partitions: Iterable[TopicPartition],
        operation: TransactionSupportedOperation,
    ) -> Refusals:
        """Why partitions do not belong to a transaction; none of those that do."""
        question = _Question(transactional_id, producer_id, producer_epoch, list(partitions), operation)
        self._ask(question)
        return await question.answer

    def _ask(self, question: _Question) -> None:
        coordinator = self._coordinator_of(question.transactional_id)
        if coordinator is None:
            question.refuse(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            return
        self._waiting.setdefault(coordinator, []).append(question)
        if coordinator not in self._asking:
            self._asking[coordinator] = asyncio.get_running_loop().create_task(self._ask_all(coordinator))

    def _coordinator_of(self, transactional_id: str) -> int | None:
        topic = self._metadata.image.topics.get(TRANSACTION_STATE)
        if topic is None:
            return None
        leader = topic.partitions[partition_for(transactional_id, len(topic.partitions))].leader
        return None if leader == NO_LEADER else leader

    async def _ask_all(self, coordinator: int) -> None:
        """Until nobody waits for this coordinator."""
        try:
            while questions := self._next_questions(coordinator):
                try:
                    await self._ask_coordinator(coordinator, questions)
                except Exception:
                    _log.exception("broker %d could not be asked about transactions", coordinator)
                    raise
                finally:
                    for each in questions:
                        each.refuse(ErrorCode.NETWORK_EXCEPTION)  # unless it has its answer
        finally:
            del self._asking[coordinator]
            for each in self._waiting.pop(coordinator, ()):
                each.refuse(ErrorCode.NETWORK_EXCEPTION)

    def _next_questions(self, coordinator: int) -> list[_Question]:
        """As many as fit into a request, but of each transactional id those of one producer epoch: an answer names the
        id alone."""
        first: dict[str, _Question] = {}
        now: list[_Question] = []
        later: list[_Question] = []
        room = _PARTITIONS_PER_REQUEST
        for each in self._waiting.pop(coordinator, ()):
            has_room = not now or room >= len(each.partitions)
            if has_room and each.is_same_transaction(first.setdefault(each.transactional_id, each)):
                now.append(each)
                room -= len(each.partitions)
            else:
                later.append(each)
        if later:
            self._waiting[coordinator] = later
        return now

    async def _ask_coordinator(self, coordinator: int, questions: list[_Question]) -> None:
        timeout_ms = self._settings().request_timeout_ms
        try:
            response = await self._brokers.send(coordinator, _request(questions), timeout_ms=timeout_ms)
        except UnsupportedRequestError:
            # A coordinator that is older than the question: as before, what a producer says that has asked it itself is
            # believed. For the others nobody has asked, and no marker would ever come.
            for each in questions:
                if not each.operation.supports_epoch_bump:
                    each.settle({})
            return
        except ChannelError as failure:
            _log.info("broker %d cannot be asked about transactions: %s", coordinator, failure)
            return
        assert isinstance(response, AddPartitionsToTxnResponse)
        _take(response, questions)

    async def close(self) -> None:
        asking = list(self._asking.values())
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)


def _request(questions: list[_Question]) -> AddPartitionsToTxnRequest:
    by_id: dict[str, tuple[_Question, dict[str, dict[int, None]]]] = {}
    for each in questions:
        _, topics = by_id.setdefault(each.transactional_id, (each, {}))
        for topic, number in each.partitions:
            topics.setdefault(topic, {})[number] = None
    return AddPartitionsToTxnRequest(
        transactions=[
            AddPartitionsToTxnTransaction(
                transactional_id=each.transactional_id,
                producer_id=each.producer_id,
                producer_epoch=each.producer_epoch,
                verify_only=not each.operation.supports_epoch_bump,
                topics=[
                    AddPartitionsToTxnTopic(name=name, partitions=list(numbers)) for name, numbers in topics.items()
                ],
            )
            for each, topics in by_id.values()
        ]
    )


def _take(response: AddPartitionsToTxnResponse, questions: list[_Question]) -> None:
    if response.error_code:
        code = ErrorCode.of(response.error_code)
        _log.error("a transaction coordinator refuses to be asked: %s", code.name)
        # That this broker may not ask is nothing that a client could understand.
        is_ours = code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        for each in questions:
            each.refuse(ErrorCode.INVALID_TXN_STATE if is_ours else code)
        return
    codes = {
        (result.transactional_id, topic.name, partition.partition_index): ErrorCode.of(partition.partition_error_code)
        for result in response.results_by_transaction
        for topic in result.topic_results
        for partition in topic.results_by_partition
    }
    for each in questions:
        refusals = {}
        for partition in each.partitions:
            code = codes.get((each.transactional_id, *partition), ErrorCode.UNKNOWN_SERVER_ERROR)
            if code is not ErrorCode.NONE:
                refusals[partition] = _for_client(code, each.operation)
        each.settle(refusals)


def _for_client(code: ErrorCode, operation: TransactionSupportedOperation) -> ErrorCode:
    if code is ErrorCode.PRODUCER_FENCED:
        return ErrorCode.INVALID_PRODUCER_EPOCH  # what a partition says of it
    if code is ErrorCode.OPERATION_NOT_ATTEMPTED:
        return ErrorCode.NETWORK_EXCEPTION  # for the sake of a partition that another request may have named
    is_old = operation is TransactionSupportedOperation.DEFAULT_ERROR
    return ErrorCode.INVALID_TXN_STATE if is_old and code is ErrorCode.TRANSACTION_ABORTABLE else code
