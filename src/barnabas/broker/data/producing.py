"""One produce request on its way: check each batch, append it, wait if it must be committed first, answer.

What is cheap to check is appended at once, in the order of the request. Large compressed batches are checked away from
the loop and appended after the others. A request that waits for followers keeps offsets and its answer: its records,
and with them the frame, are let go of once they are in the log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterator, Sequence
from functools import partial
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.base.log_context import logger
from barnabas.broker.context import RequestContext
from barnabas.broker.data.leader_hints import MISSED_LEADER, LeaderHint, hint_of, leader_hint
from barnabas.broker.data.transaction_verification import Verification
from barnabas.broker.data.waiting_produce import WaitingProduce
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, chunks, each_of, spent
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.metadata.topic_names import is_internal
from barnabas.net import Connection
from barnabas.records.batch import CODEC_MASK, TRANSACTIONAL_BIT
from barnabas.records.compression import Codec, DecompressionLimitError
from barnabas.replication.fetch_sessions import PartitionKey
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.roles import PartitionError
from barnabas.storage.errors import AppendRefusedError, LogError
from barnabas.storage.log import Appended
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import Buffer, PreparedAppend, TakesLongError, prepare_from_client
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)

_log = logger("barnabas.broker")

_ALL: Final = -1
_NONE: Final = -1
FIRST_BY_ID: Final = 13
_FIRST_WITH_HINTS: Final = 10
_FIRST_WITH_ZSTD: Final = 7
#: May write to internal topics: tools that repair them.
_ADMIN_CLIENT: Final = "__admin_client"
_CODEC_AT: Final = 22
#: Errors for which Kafka does not look at the log, and so does not say where it starts.
_UNREADABLE: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    }
)
# From this size on a batch is checked away from the loop. Decompressing takes 2 to 9 ms for each compressed megabyte,
# so what is left to the loop takes it half a millisecond at most; compressing anew takes several times as long.
_COSTLY_COMPRESSED_BYTES: Final = 64 * 1024
_COSTLY_RECODED_BYTES: Final = 16 * 1024
# What may come out of a compressed batch that is checked on the loop. Four kilobytes can hold a hundred megabytes.
_INLINE_LIMIT_BYTES: Final = 1024 * 1024
# Requests within these bounds are dealt with in one turn, as most are; of others a step counts as so many bytes.
_FEW_PARTITIONS: Final = 64
_FEW_BYTES: Final = 1024 * 1024
_BYTES_PER_STEP: Final = 16 * 1024
# How many batches of a request are on their way to be checked elsewhere.
_CHECKS_AT_ONCE: Final = 4


ProduceAnswer = ProduceResponse | Awaitable[ProduceResponse | None] | None


class _Costly(NamedTuple):
    """A batch that is checked away from the loop, and the place of its answer."""

    partition: Partition
    records: Buffer
    settings: TopicSettings
    partition_index: int
    answers: list[PartitionProduceResponse]
    place: int


class _Uncommitted(NamedTuple):
    """What must be committed before the answer: all below an offset, by the leader that appended it."""

    leader: LeaderState
    required_offset: int
    answer: PartitionProduceResponse


class OrdinaryAppend(NamedTuple):
    """A batch that was appended before the rules were asked, or that the disk refused."""

    leader: LeaderState
    outcome: Appended | OSError


class Produce:
    """One request on its way."""

    __slots__ = (
        "connection",
        "context",
        "costly",
        "endpoints",
        "error_count",
        "index",
        "now_ms",
        "request",
        "services",
        "uncommitted",
        "verification",
        "waits_for_all",
    )

    def __init__(
        self, services: Services, context: RequestContext, request: ProduceRequest, connection: Connection
    ) -> None:
        self.services = services
        self.connection = connection
        self.context = context
        self.request = request
        self.index = services.replica_manager.index
        self.waits_for_all = request.acks == _ALL
        self.now_ms = services.runtime.clock.now_ms()
        self.error_count = 0
        self.endpoints: dict[int, NodeEndpoint] = {}
        # Batches to be checked away from the loop.
        self.costly: list[_Costly] = []
        self.uncommitted: list[_Uncommitted] = []
        #: Of the partitions of a transaction; None outside of one.
        self.verification: Verification | None = None

    def run(self) -> ProduceAnswer | Steps[ProduceAnswer]:
        if not _is_small(self.request.topic_data):
            return self._run_in_steps()
        response = ProduceResponse(responses=[])
        for _ in self._append_all(response):
            pass
        return self._finish_costly(response) if self.costly else self._settle(response)

    def _run_in_steps(self) -> Steps[ProduceAnswer]:
        response = ProduceResponse(responses=[])
        for size_bytes in self._append_all(response):
            yield None
            if size_bytes >= _BYTES_PER_STEP:
                yield from spent(size_bytes // _BYTES_PER_STEP)
        return self._finish_costly(response) if self.costly else self._settle(response)

    def run_on(self, appended: list[OrdinaryAppend]) -> ProduceAnswer:
        """Go on behind a batch that the disk refused: those before it are appended."""
        response = ProduceResponse(responses=[])
        for _ in self._append_all(response, appended):
            pass
        return self._finish_costly(response) if self.costly else self._settle(response)

    def _append_all(self, response: ProduceResponse, appended: Sequence[OrdinaryAppend] = ()) -> Iterator[int]:
        """Append the batches one after the other; yields how many bytes were looked at for each.

        `appended`: the first of them, if they are in their logs already.
        """
        done = iter(appended)
        by_id = self.context.version >= FIRST_BY_ID
        for topic in self.request.topic_data:
            answers: list[PartitionProduceResponse] = []
            told = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers)
            response.responses.append(told)
            topic_key: str | Uuid = topic.topic_id if by_id else topic.name
            refusal = self.why_not(topic_key)
            yield 0
            for data in topic.partition_data:
                # The request is kept until it is answered. Its records are not, or it would hold the frame.
                records, data.records = data.records, None
                ordinary = next(done, None)
                if ordinary is not None:
                    answers.append(self._ordinary(data.index, records or b"", *ordinary))
                    continue
                if refusal is not None:
                    answers.append(self._error(data.index, *refusal))
                    yield 0
                    continue
                put_off = len(self.costly)
                answers.append(self._append(data.index, records or b"", topic_key, answers))
                was_put_off = len(self.costly) > put_off
                yield _INLINE_LIMIT_BYTES // 4 if was_put_off else len(records or b"")

    def why_not(self, topic_key: str | Uuid) -> tuple[ErrorCode, str] | None:
        """Why nobody, or not this client, may write to a topic."""
        name = topic_key
        if isinstance(name, Uuid):
            known = self.services.metadata.image.topic_names.get(name)
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID, f"no topic has the id {name}"
            name = known
        if not self.services.authorizer.is_allowed(self.context, AclOperation.WRITE, Resource.TOPIC, name):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.TOPIC_AUTHORIZATION_FAILED.text
        if is_internal(name) and self.context.client_id != _ADMIN_CLIENT:
            return ErrorCode.INVALID_TOPIC_EXCEPTION, f"{name} is written by the cluster itself"
        return None

    # One partition

    def _append(
        self, index: int, records: Buffer, topic_key: str | Uuid, answers: list[PartitionProduceResponse]
    ) -> PartitionProduceResponse:
        key = (topic_key, index)
        partition = self.index.get(key)
        if partition is None:
            code = self.services.replica_manager.why_missing(self.services.metadata.image, key)
            return self._error(index, code, code.text, key)
        try:
            leader = partition.role
            if not isinstance(leader, LeaderState):
                raise partition.unusable()
            settings = leader.log.settings
            if len(records) > _COSTLY_RECODED_BYTES and _is_costly(records, settings):
                return self._put_off(partition, records, settings, index, answers)
            prepared = prepare_from_client(records, settings, self.now_ms, limit_bytes=_INLINE_LIMIT_BYTES)
            return self._append_prepared(leader, prepared, index)
        except (DecompressionLimitError, TakesLongError):
            # Little that becomes much.
            return self._put_off(partition, records, settings, index, answers)
        except LogError as failure:
            return self._refused(partition, index, failure, len(records))

    def _put_off(
        self,
        partition: Partition,
        records: Buffer,
        settings: TopicSettings,
        index: int,
        answers: list[PartitionProduceResponse],
    ) -> PartitionProduceResponse:
        """Have a batch checked away from the loop; the answer, which comes next in `answers`, is replaced then."""
        self.costly.append(_Costly(partition, records, settings, index, answers, len(answers)))
        return PartitionProduceResponse(index=index, base_offset=_NONE)

    def _append_prepared(self, leader: LeaderState, prepared: PreparedAppend, index: int) -> PartitionProduceResponse:
        attributes = prepared.batches[0].attributes
        if self.context.version < _FIRST_WITH_ZSTD and attributes & CODEC_MASK == Codec.ZSTD:
            raise PartitionError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, "zstd needs Produce v7 or later")
        if attributes & TRANSACTIONAL_BIT:
            appended = self._append_in_transaction(leader, prepared)
        else:
            appended = leader.append(prepared, acks_all=self.waits_for_all, now_ms=self.now_ms)
        return self._appended(index, leader, appended)

    def _appended(self, index: int, leader: LeaderState, appended: Appended) -> PartitionProduceResponse:
        answer = PartitionProduceResponse(
            index=index,
            base_offset=appended.first_offset,
            log_append_time_ms=appended.append_time_ms,
            log_start_offset=appended.log_start_offset,
        )
        if self.waits_for_all and not leader.is_alone:
            self.uncommitted.append(_Uncommitted(leader, appended.last_offset + 1, answer))
        return answer

    def _ordinary(
        self, index: int, records: Buffer, leader: LeaderState, outcome: Appended | OSError
    ) -> PartitionProduceResponse:
        if isinstance(outcome, OSError):
            return self._refused(leader.partition, index, leader.append_failed(records, outcome), len(records))
        return self._appended(index, leader, outcome)

    def _append_in_transaction(self, leader: LeaderState, prepared: PreparedAppend) -> Appended:
        verification = self.verification
        if verification is None:
            text = "a batch belongs to a transaction, and the request does not name it"
            raise PartitionError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        refusal = verification.produce_error(leader.partition)
        if refusal is not None:
            leader.refuse_unverified(prepared, refusal)
            raise refusal
        return leader.append_in_transaction(
            prepared,
            verification.guard_of(leader.partition),
            acks_all=self.waits_for_all,
            now_ms=self.now_ms,
            must_be_verified=verification.is_required,
        )

    # What takes longer

    async def _finish_costly(self, response: ProduceResponse) -> ProduceResponse | None:
        await self._append_costly()
        outcome = self._settle(response)
        return await outcome if isinstance(outcome, asyncio.Future) else outcome

    async def _append_costly(self) -> None:
        """Check what is large elsewhere, then append it here. Nobody else gets a turn between the two."""
        costly, self.costly = self.costly, []
        for some in chunks(costly, _CHECKS_AT_ONCE):
            checks = [self._check_elsewhere(each) for each in some]
            for each, check in zip(some, checks, strict=True):
                each.answers[each.place] = await self._append_checked(each, check)

    def _check_elsewhere(self, each: _Costly) -> asyncio.Future[PreparedAppend]:
        work = partial(prepare_from_client, each.records, each.settings, self.now_ms)
        return asyncio.ensure_future(self.services.runtime.offload(work))

    async def _append_checked(self, each: _Costly, check: Awaitable[PreparedAppend]) -> PartitionProduceResponse:
        try:
            prepared = await check
            return self._append_prepared(each.partition.leading(), prepared, each.partition_index)
        except LogError as failure:
            return self._refused(each.partition, each.partition_index, failure, len(each.records))
        except Exception:
            # The others may be in their logs already, and their clients must hear of it.
            _log.exception("a batch for %s was not appended", each.partition.name)
            code = ErrorCode.UNKNOWN_SERVER_ERROR
            return self._error(each.partition_index, code, code.text)

    def _settle(self, response: ProduceResponse) -> ProduceResponse | asyncio.Future[ProduceResponse | None] | None:
        if not self.uncommitted:
            return self._finish(response)
        waiting = WaitingProduce(self.services, self.connection, partial(self._committed, response))
        return waiting.start([each[:2] for each in self.uncommitted], self.request.timeout_ms)

    def told(
        self, response: ProduceResponse, leaders: list[LeaderState], outcomes: dict[LeaderState, ErrorCode]
    ) -> ProduceResponse | None:
        """The answer to a request that was appended in its frame; `leaders` took its batches, in their order."""
        answers = (answer for topic in response.responses for answer in topic.partition_responses)
        for leader, answer in zip(leaders, answers, strict=True):
            if leader in outcomes:
                self.uncommitted.append(_Uncommitted(leader, _NONE, answer))
        return self._committed(response, outcomes)

    def _committed(self, response: ProduceResponse, outcomes: dict[LeaderState, ErrorCode]) -> ProduceResponse | None:
        """The answer, now that the outcome of each partition is known."""
        for leader, _, answer in self.uncommitted:
            outcome = outcomes[leader]
            if outcome and not answer.error_code:
                outcome = self._code_for(leader.partition, outcome)
                self.error_count += 1
                answer.error_code = outcome
                answer.error_message = f"{leader.partition.name}: {outcome.text}"
                if self._is_hinted(outcome):
                    image = self.services.metadata.image
                    self._add_hint(answer, hint_of(leader.partition, image, self.context.listener))
        return self._finish(response)

    # Answers

    def _finish(self, response: ProduceResponse) -> ProduceResponse | None:
        if not self.request.acks:
            if self.error_count:
                # There is no other way to tell: the client finds the leader anew when it comes back.
                self.connection.close(f"{self.error_count} partitions of a request with acks=0 failed")
            return None
        if self.endpoints:
            response.node_endpoints = list(self.endpoints.values())
        return response

    def refuse_all(self, code: ErrorCode, message: str) -> Steps[ProduceResponse | None]:
        response = ProduceResponse(responses=[])
        for topic in self.request.topic_data:
            yield None
            refused = yield from each_of(topic.partition_data, lambda data: self._error(data.index, code, message))
            told = TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=refused)
            response.responses.append(told)
        return self._finish(response)

    def _refused(
        self, partition: Partition, index: int, failure: LogError, size_bytes: int
    ) -> PartitionProduceResponse:
        self.services.replica_manager.log_failed(partition, failure)
        partition.meter.produce_requests += 1
        partition.meter.failed_produce_requests += 1
        partition.meter.bytes_rejected += size_bytes
        answer = self._error(index, self._code_for(partition, failure.code), str(failure), partition.name)
        verification = self.verification
        is_unverified = verification is not None and verification.refusal_of(partition.name) is not ErrorCode.NONE
        is_unreadable = failure.code in _UNREADABLE or is_unverified
        if isinstance(failure, AppendRefusedError):
            answer.record_errors = [
                BatchIndexAndErrorMessage(batch_index=number, batch_index_error_message=message)
                for number, message in failure.record_errors
            ]
            is_unreadable = is_unreadable or (failure.code is ErrorCode.INVALID_RECORD and not failure.record_errors)
        if partition.log is not None and not is_unreadable:
            answer.log_start_offset = partition.log.log_start_offset
        return answer

    def _code_for(self, partition: Partition, code: ErrorCode) -> ErrorCode:
        """Who names topics by id is told that of a topic that was deleted meanwhile."""
        is_gone = partition.is_deleted and self.context.version >= FIRST_BY_ID
        return ErrorCode.UNKNOWN_TOPIC_ID if is_gone else code

    def _error(
        self, index: int, code: ErrorCode, message: str, key: PartitionKey | None = None
    ) -> PartitionProduceResponse:
        self.error_count += 1
        answer = PartitionProduceResponse(index=index, error_code=code, base_offset=_NONE, error_message=message)
        if key is not None and self._is_hinted(code):
            self._add_hint(answer, leader_hint(self.services.metadata.image, key, self.context.listener))
        return answer

    def _is_hinted(self, code: ErrorCode) -> bool:
        return code in MISSED_LEADER and self.context.version >= _FIRST_WITH_HINTS

    def _add_hint(self, answer: PartitionProduceResponse, hint: LeaderHint | None) -> None:
        """Say who leads."""
        if hint is None:
            return
        answer.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
        if hint.endpoint is not None:
            self.endpoints[hint.leader_id] = NodeEndpoint(
                node_id=hint.leader_id, host=hint.endpoint.host, port=hint.endpoint.port, rack=hint.rack
            )


def _is_small(topics: list[TopicProduceData]) -> bool:
    if len(topics) > _FEW_PARTITIONS:
        return False
    batches = [data.records for topic in topics for data in topic.partition_data[: _FEW_PARTITIONS + 1]]
    return len(batches) <= _FEW_PARTITIONS and sum(len(each) for each in batches if each is not None) <= _FEW_BYTES


def _is_costly(records: Buffer, settings: TopicSettings) -> bool:
    codec = records[_CODEC_AT] & CODEC_MASK
    wanted = settings.compression_type
    if wanted != "producer" and not (wanted == "uncompressed" and not codec):
        return True
    return codec != Codec.NONE and len(records) > _COSTLY_COMPRESSED_BYTES
