"""Runs a shard of the transaction coordinator by hand: virtual time, a log in memory, markers that the test writes."""

from __future__ import annotations

from itertools import count
from typing import TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.results import CoordinatorResult, Now, Operation
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.transactions.config import TransactionCoordinatorConfig
from barnabas.coordinator.transactions.metadata import TransactionMetadata, record_of
from barnabas.coordinator.transactions.requests import (
    ADD_OFFSETS,
    ADD_PARTITIONS,
    END_TXN,
    INIT_PRODUCER_ID,
    OffsetsToTxn,
    TransactionCoordinatorRequest,
)
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from barnabas.wire.messages.add_partitions_to_txn import AddPartitionsToTxnTopic, AddPartitionsToTxnTransaction
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.schema import Struct
from tests.coordinator.driver import MAX_WRITE_BYTES, WALL_START_MS, batch_of

Q = TypeVar("Q")
R = TypeVar("R", bound=Struct)


class HeldMarkers:
    """Markers that are to be written; the test says when they are."""

    def __init__(self) -> None:
        self.sent: dict[str, TransactionMetadata] = {}
        self.is_cancelled = False

    def send(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        assert transactional_id not in self.sent, "its markers are on their way"
        self.sent[transactional_id] = metadata

    def cancel_all(self) -> None:
        self.is_cancelled = True


class Bench:
    """A shard with its surroundings. `answers` has what each token was told; telling it twice is an error."""

    def __init__(self, **limits: int) -> None:
        self.config = TransactionCoordinatorConfig(**limits)
        self.now_ms = 0
        self._ids = count(1000)
        self.has_ids = True
        self.log = bytearray()
        self.next_offset = 0
        self.answers: dict[object, Struct] = {}
        #: "commit" at once, "hold" until `commit_held`, or an error with which appends fail.
        self.appends: str | ErrorCode = "commit"
        self.markers = HeldMarkers()
        self.runtime = self.loaded()

    def _new_id(self) -> int | None:
        return next(self._ids) if self.has_ids else None

    @property
    def shard(self) -> TransactionCoordinatorShard:
        return self.runtime.shard

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_START_MS + self.now_ms)

    def metadata(self, transactional_id: str) -> TransactionMetadata:
        metadata = self.shard.stored.get(transactional_id)
        assert metadata is not None
        return metadata

    # Asking

    def run(self, operation: Operation) -> None:
        if self.runtime.must_append_before(operation):
            self.append()
        for following in self.runtime.run(operation, self.now):
            self.run(following)

    def submit(self, kind: TransactionCoordinatorRequest[Q, R], request: Q, version: int, token: object = None) -> None:
        error = kind.refusal(self.config, request)
        if error is ErrorCode.NONE:
            self.run(kind.operation(request, version, self.shard, token))
        else:
            refused = CoordinatorResult(response=kind.failed(request, error))
            self.run(Operation(None, lambda _: refused, token))

    def ask(self, kind: TransactionCoordinatorRequest[Q, R], request: Q, version: int) -> R:
        """The answer, which must come at once."""
        token = object()
        self.submit(kind, request, version, token)
        self.settle()
        return self.answers.pop(token)  # type: ignore[return-value]

    def init(
        self, name: str, producer_id: int = -1, epoch: int = -1, *, timeout_ms: int = 60_000, version: int = 5
    ) -> tuple[ErrorCode, int, int]:
        request = InitProducerIdRequest(
            transactional_id=name, transaction_timeout_ms=timeout_ms, producer_id=producer_id, producer_epoch=epoch
        )
        answer = self.ask(INIT_PRODUCER_ID, request, version)
        return ErrorCode.of(answer.error_code), answer.producer_id, answer.producer_epoch

    def add(
        self, name: str, producer_id: int, epoch: int, *partitions: int, version: int = 3, verify: bool = False
    ) -> list[ErrorCode]:
        topics = [AddPartitionsToTxnTopic(name="t", partitions=list(partitions))]
        transaction = AddPartitionsToTxnTransaction(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, verify_only=verify, topics=topics
        )
        answer = self.ask(ADD_PARTITIONS, transaction, version)
        return [ErrorCode.of(each.partition_error_code) for each in answer.topic_results[0].results_by_partition]

    def add_offsets(self, name: str, producer_id: int, epoch: int, *, version: int = 4) -> ErrorCode:
        request = AddOffsetsToTxnRequest(
            transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id="g"
        )
        asked = OffsetsToTxn(request, TopicPartition("__consumer_offsets", 7))
        return ErrorCode.of(self.ask(ADD_OFFSETS, asked, version).error_code)

    def end(
        self, name: str, producer_id: int, epoch: int, *, commit: bool = True, version: int = 4
    ) -> tuple[ErrorCode, int, int]:
        request = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=commit)
        answer = self.ask(END_TXN, request, version)
        return ErrorCode.of(answer.error_code), answer.producer_id, answer.producer_epoch

    def write_markers(self, transactional_id: str | None = None) -> None:
        """All of them are in the partitions."""
        for each in [transactional_id] if transactional_id is not None else list(self.markers.sent):
            self.run(self.shard.complete(each, self.markers.sent.pop(each)))
        self.settle()

    # What becomes of it

    def settle(self) -> None:
        while True:
            has_written = self.append()
            replies = self.runtime.take_replies()
            for token, response in replies:
                assert token not in self.answers, f"{token} was answered twice"
                if token is not None:
                    self.answers[token] = response
            if not has_written and not replies:
                return

    def append(self) -> bool:
        """Append all that waits for it; whether there was something."""
        if not self.runtime.has_unappended:
            return False
        writes = self.runtime.next_batch()
        if isinstance(self.appends, ErrorCode):
            self.runtime.append_failed(self.appends, self.now)
            return True
        records = [record for write in writes for record in write.records]
        self.log += batch_of(records, self.next_offset)
        first_offset, self.next_offset = self.next_offset, self.next_offset + len(records)
        self.runtime.appended(first_offset, self.now)
        if self.appends == "commit":
            self.commit_held()
        return True

    def commit_held(self) -> None:
        self.runtime.committed(self.next_offset, self.now)

    def give_up_held(self, error: ErrorCode) -> None:
        for offset in range(self.next_offset + 1):
            self.runtime.not_committed(offset, error, self.now)

    def advance(self, by_ms: int) -> None:
        """Let time pass; timers fire at their moments."""
        self.settle()
        to_ms = self.now_ms + by_ms
        while True:
            deadline_ms = self.runtime.next_deadline_ms
            if deadline_ms is None or deadline_ms > to_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            for operation in self.runtime.due(self.now):
                self.run(operation)
            following = self.runtime.next_deadline_ms
            assert following is None or following > self.now_ms, "a timer that is due did not fire"
            self.settle()
        self.now_ms = to_ms

    def write(self, transactional_id: str, metadata: TransactionMetadata) -> None:
        """Let the log say this, as if it had come to that."""
        record = record_of(transactional_id, metadata, self.config.transaction_version)
        self.log += batch_of([record], self.next_offset)
        self.next_offset += 1
        self.reload()

    def reload(self) -> None:
        """Another node takes over, and reads the log."""
        self.settle()
        old = self.markers
        for token, response in self.runtime.unload(ErrorCode.NOT_COORDINATOR):
            if token is not None:
                self.answers[token] = response
        assert old.is_cancelled
        self.runtime = self.loaded()

    def loaded(self) -> CoordinatorRuntime[TransactionCoordinatorShard]:
        """Another one, which has read the log."""
        self.markers = HeldMarkers()
        shard = TransactionCoordinatorShard(self.config, self._new_id, self.markers)
        runtime = CoordinatorRuntime(shard, MAX_WRITE_BYTES)
        runtime.load(bytes(self.log))
        for operation in runtime.finish_loading(self.now):
            runtime.run(operation, self.now)
        return runtime
