"""Stories of a transactional sender: those of `sender_stories`, and what its program and its coordinators say.

set txn=1                     the cluster has transactions v1 (2: v2); `init=2`: InitProducerId up to version 2
init, begin, commit, abort, handle, offsets g1 0=5
                              calls of the program; what comes of them follows a `=`
features 7 2                  the cluster has finalised transaction.version 2, in epoch 7
> find transaction x          the coordinator is looked for
> INIT_PRODUCER_ID …          what is asked of it
found 1, not-found CODE       the answer to the first
reply NONE, reply CODE        the answer to the second; `reply NONE 7 3`: with this producer id and epoch;
reply 0=CODE 1=CODE           by partition
lost                          the connection is
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.producing.sender import Sender
from barnabas.client.core.producing.transaction_manager import TransactionManager
from barnabas.client.core.producing.transaction_requests import Kind, TransactionRequest
from barnabas.client.core.producing.transaction_states import TransactionResult
from barnabas.client.errors import ClientError
from barnabas.net.errors import DisconnectedError
from barnabas.wire.messages.add_offsets_to_txn import AddOffsetsToTxnResponse
from barnabas.wire.messages.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from barnabas.wire.messages.end_txn import EndTxnResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)
from tests.client.core.producing import sender_stories
from tests.client.core.producing.sender_world import TOPIC


class Player(sender_stories.Player):
    def _begin(self, options: dict[str, str]) -> None:
        super()._begin(options)
        self.features = (1, int(options.get("txn", 1)))
        self.init_version = int(options.get("init", 5))
        self.manager = TransactionManager("x", timeout_ms=60_000, retry_backoff_ms=100, finalized=lambda: self.features)
        plain = self.sender
        self.sender = Sender(
            plain._settings,
            plain._metadata,
            plain._accumulator,
            plain._nodes,
            randomness=self.random,
            metrics=plain._metrics,
            transactions=self.manager,
        )
        self.asked: TransactionRequest | None = None
        self.said: list[str] = []

    def _happen(self, words: list[str]) -> None:
        try:
            self._call(words)
        except ClientError as error:
            self.said.append(f"= {words[0]}: {type(error).__name__}: {error}")

    def _call(self, words: list[str]) -> None:
        match words:
            case ["init" | "commit" | "abort" as call] if call != "abort" or len(words) == 1:
                self._told_of(call, getattr(self.manager, call)())
            case ["begin"]:
                self.manager.begin()
            case ["handle"]:
                self.said.append(f"= {self.manager.prepare()}")
            case ["offsets", group, *pairs]:
                offsets = {
                    TopicPartition(TOPIC, int(number)): OffsetAndMetadata(int(offset))
                    for number, offset in (each.split("=") for each in pairs)
                }
                self._told_of("offsets", self.manager.send_offsets(offsets, GroupMetadata(group, 3, "m1")))
            case ["features", epoch, level]:
                self.features = (int(epoch), int(level))
            case ["found", node_id]:
                self.manager.answered(self._taken(), int(node_id), 0, self.now_ms)
            case ["not-found", code]:
                self.manager.failed(self._taken(), BrokerError(ErrorCode[code]), self.now_ms)
            case ["lost"]:
                self.manager.failed(self._taken(), DisconnectedError("b:9092", "it went away"), self.now_ms)
            case ["reply", *said]:
                request = self._taken()
                self.manager.answered(request, response_to(request, said), self.init_version, self.now_ms)
            case _:
                super()._happen(words)

    def _told_of(self, call: str, result: TransactionResult) -> None:
        def told() -> None:
            result.is_told = True
            fate = "done" if result.error is None else f"{type(result.error).__name__}: {result.error}"
            self.said.append(f"= {call}: {fate}")

        result.when_done(told)

    def _taken(self) -> TransactionRequest:
        request, self.asked = self.asked, None
        assert request is not None, "nothing is asked"
        return request

    def _turn(self) -> Iterator[str]:
        step, asked = self.sender.step, []

        def watched(now_ms: int) -> Any:
            taken = step(now_ms)
            if taken.transaction is not None:
                self.asked = taken.transaction
                asked.append(f"> {_shown(taken.transaction)}")
            return taken

        self.sender.step = watched  # type: ignore[method-assign]
        try:
            lines = list(super()._turn())
        finally:
            del self.sender.step
        said, self.said = self.said, []
        yield from said
        yield from lines
        yield from asked


def response_to(request: TransactionRequest, said: list[str]) -> Any:
    """What a coordinator answers."""
    first = said[0]
    codes = dict(each.split("=") for each in said if "=" in each)
    code = ErrorCode.NONE if codes else ErrorCode[first]
    match request.kind:
        case Kind.INIT_PRODUCER_ID | Kind.BUMP_EPOCH:
            producer_id, epoch = map(int, said[1:] or (-1, -1))
            return InitProducerIdResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)
        case Kind.ADD_PARTITIONS:
            results = [
                AddPartitionsToTxnPartitionResult(
                    partition_index=each.partition, partition_error_code=_code_of(each.partition, codes, code)
                )
                for each in sorted(request.subject)
            ]
            topics = [AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=results)]
            return AddPartitionsToTxnResponse(results_by_topic_v3_and_below=topics)
        case Kind.ADD_OFFSETS:
            return AddOffsetsToTxnResponse(error_code=code)
        case Kind.TXN_OFFSET_COMMIT:
            parts = [
                TxnOffsetCommitResponsePartition(
                    partition_index=each.partition, error_code=_code_of(each.partition, codes, code)
                )
                for each in request.subject[0]
            ]
            return TxnOffsetCommitResponse(topics=[TxnOffsetCommitResponseTopic(name=TOPIC, partitions=parts)])
        case _:
            producer_id, epoch = map(int, said[1:] or (-1, -1))
            return EndTxnResponse(error_code=code, producer_id=producer_id, producer_epoch=epoch)


def _code_of(number: int, codes: dict[str, str], code: ErrorCode) -> ErrorCode:
    return ErrorCode[codes[str(number)]] if str(number) in codes else code


def _shown(request: TransactionRequest) -> str:
    message: Any = request.message
    match request.kind:
        case Kind.FIND_COORDINATOR:
            return f"find {request.coordinator.name.lower()} {request.key}"
        case Kind.INIT_PRODUCER_ID | Kind.BUMP_EPOCH:
            return f"{request.kind.name} {message.producer_id} e{message.producer_epoch}"
        case Kind.ADD_PARTITIONS:
            numbers = " ".join(str(each.partition) for each in sorted(request.subject))
            return f"ADD_PARTITIONS e{message.v3_and_below_producer_epoch}: {numbers}"
        case Kind.ADD_OFFSETS:
            return f"ADD_OFFSETS e{message.producer_epoch}: {message.group_id}"
        case Kind.TXN_OFFSET_COMMIT:
            kept = [f"{each.partition_index}={each.committed_offset}" for each in message.topics[0].partitions]
            who = f"{message.group_id} {message.member_id}/{message.generation_id}"
            return f"TXN_OFFSET_COMMIT e{message.producer_epoch} of {who}: {' '.join(kept)} (to v{request.max_version})"
        case _:
            how = "commit" if message.committed else "abort"
            return f"END {how} {message.producer_id} e{message.producer_epoch} (to v{request.max_version})"


def play(script: str) -> str:
    return Player().played(script)
