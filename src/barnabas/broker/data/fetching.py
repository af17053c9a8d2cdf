"""One fetch on its way: look what is there, wait if that is too little, read the bytes, answer.

Looking finds byte ranges and reads nothing. While a fetch waits it costs nothing: no task, one timer, and a note at
each of its partitions. When enough was appended it looks again. The bytes are read once, at the end, and go to the
socket as they lie in the file; what is not in the page cache is read away from the loop. Where there are many
partitions or bytes, all of this is done in steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import known
from barnabas.base.ids import Uuid
from barnabas.base.steps import at_once
from barnabas.broker.context import RequestContext
from barnabas.broker.data.leader_hints import MISSED_LEADER, leader_hint
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, crowd_of, in_crowd, spent
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.net import Connection
from barnabas.replication.fetch_sessions import SessionFetch, WantedPartition, replica_of
from barnabas.replication.partition import Partition
from barnabas.replication.purgatory import DelayedFetch
from barnabas.replication.roles import Isolation, LeaderState, PartitionError, PartitionRead, PartitionRole
from barnabas.storage.aborted import AbortedTransaction as TransactionRange
from barnabas.storage.errors import LogError
from barnabas.storage.log import PartitionLog
from barnabas.storage.segment import FileRange
from barnabas.wire.messages.fetch import (
    AbortedTransaction,
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)

_NONE: Final = -1
_FIRST_WITH_STORAGE_ERRORS: Final = 6
_FIRST_WITH_HINTS: Final = 16
_NOT_LOOKED_AT: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    }
)
#: How long a fetch waits that finds no memory for its answer, before it tries again.
_NO_ROOM_SECONDS: Final = 0.02
#: A fetch with more partitions, or with more bytes to read, goes on in steps; one of them counts as so many bytes.
FEW_PARTITIONS: Final = 64
#: What is done for one partition takes a quarter of what a step may take, or less: to pause after each would cost more.
_PARTITIONS_PER_STEP: Final = 4
_FEW_BYTES: Final = 4 * 1024 * 1024
_BYTES_PER_STEP: Final = 64 * 1024

Buffer = bytes | bytearray | memoryview
FetchAnswer = FetchResponse | Awaitable[FetchResponse]


class _Found(NamedTuple):
    """What one look has found for one partition."""

    wanted: WantedPartition
    partition: Partition | None
    outcome: PartitionRead | LogError


class _Look:
    """What one look has found."""

    __slots__ = ("at_least_one", "found", "has_room", "is_final", "left_bytes", "offsets", "seen_bytes", "size_bytes")

    def __init__(self, max_bytes: int, room_bytes: int) -> None:
        self.found: list[_Found] = []
        self.size_bytes = 0
        #: Whether there is memory for answers at all.
        self.has_room = room_bytes > 0
        self.left_bytes = min(max_bytes, room_bytes) if room_bytes > 0 else 0
        #: The first batch that is found comes whole, however large, or nobody could ever get past it.
        self.at_least_one = self.has_room
        #: Whether waiting would bring nothing more: there is an error, or the rest lies in another segment.
        self.is_final = False
        #: Where to wait, from which offset on something is new there, and how much had been appended.
        self.offsets: dict[PartitionRole, int] = {}
        self.seen_bytes: dict[PartitionRole, int] = {}

    def wait_at(self, role: PartitionRole, offset: int) -> None:
        self.offsets[role] = offset
        self.seen_bytes[role] = role.appended_bytes

    def take(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.left_bytes = max(0, self.left_bytes - size_bytes)
        self.at_least_one = False


class Fetch:
    """One request of one client."""

    __slots__ = (
        "_connection",
        "_context",
        "_delayed",
        "_done",
        "_endpoints",
        "_is_looking",
        "_is_time_up",
        "_isolation",
        "_loop",
        "_max_bytes",
        "_min_bytes",
        "_replica",
        "_request",
        "_services",
        "_session",
        "_timers",
        "_unpark",
    )

    def __init__(
        self,
        services: Services,
        context: RequestContext,
        request: FetchRequest,
        connection: Connection,
        session: SessionFetch,
    ) -> None:
        self._services = services
        self._connection = connection
        self._context = context
        self._request = request
        self._session = session
        self._replica = replica_of(request)
        if self._replica >= 0:
            self._isolation = Isolation.LOG_END
        elif request.isolation_level:
            self._isolation = Isolation.READ_COMMITTED
        else:
            self._isolation = Isolation.READ_UNCOMMITTED
        self._max_bytes = min(request.max_bytes, services.settings.fetch_max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._timers: list[asyncio.TimerHandle] = []
        #: Whether it looks, or has found enough and answers.
        self._is_looking = False
        self._is_time_up = False

    def answer(self) -> FetchAnswer | Steps[FetchAnswer]:
        if self._is_large:
            return self._answer_in_steps()
        look = at_once(self._look())
        return self._park(look) if self._may_wait(look) else self._respond(look)

    def _answer_in_steps(self) -> Steps[FetchAnswer]:
        look = yield from self._look()
        return self._park(look) if self._may_wait(look) else (yield from self._respond_in_steps(look))

    @property
    def _is_large(self) -> bool:
        return len(self._session.wanted) > FEW_PARTITIONS

    def _may_wait(self, look: _Look) -> bool:
        is_over = self._request.max_wait_ms <= 0 or self._services.replica_manager.fetch_purgatory.is_closed
        return not is_over and not self._is_enough(look)

    # Looking

    def _is_enough(self, look: _Look) -> bool:
        return look.is_final or look.size_bytes >= self._min_bytes or not self._session.wanted

    def _look(self) -> Steps[_Look]:
        """What is there now."""
        look = _Look(self._max_bytes, self._services.response_room())
        index = self._services.replica_manager.index
        session = self._session
        is_consumer = self._replica < 0
        allowed_topic: str | Uuid | None = None
        for number, wanted in enumerate(list(session.wanted) if self._is_large else session.wanted):
            if not number % _PARTITIONS_PER_STEP:
                yield None
            key = wanted.key
            partition = index.get(key)
            if partition is None:
                code = self._services.replica_manager.why_missing(self._services.metadata.image, key)
                self._add_error(look, wanted, None, PartitionError(code, code.text))
                continue
            if key[0] != allowed_topic:
                if not self._is_allowed(partition):
                    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                    self._add_error(look, wanted, None, PartitionError(code, code.text))
                    continue
                allowed_topic = key[0]
            role, offset = partition.role, wanted.fetch_offset
            if (
                is_consumer
                and isinstance(role, LeaderState)
                and offset == (log := role.log).high_watermark
                and (wanted.leader_epoch < 0 or wanted.leader_epoch == role.leader_epoch)
                and wanted.last_fetched_epoch < 0
            ):
                # The reader has all there is: the usual case of most partitions in most fetches.
                look.wait_at(role, offset)
                if session.is_full or session.is_unknown(wanted, offset, log.log_start_offset):
                    look.found.append(_Found(wanted, partition, self._nothing_new(log)))
            else:
                self._look_at(look, wanted, partition)
        return look

    def _nothing_new(self, log: PartitionLog) -> PartitionRead:
        aborted: list[TransactionRange] | None = [] if self._isolation is Isolation.READ_COMMITTED else None
        return PartitionRead(None, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted)

    def _look_at(self, look: _Look, wanted: WantedPartition, partition: Partition) -> None:
        offset = wanted.fetch_offset
        try:
            leader = partition.leading(wanted.leader_epoch)
            read = leader.read(
                offset,
                min(wanted.max_bytes, look.left_bytes),
                self._isolation,
                last_fetched_epoch=wanted.last_fetched_epoch,
                at_least_one=look.at_least_one,
                replica=self._replica,
            )
        except LogError as failure:
            self._add_error(look, wanted, partition, failure)
            return
        look.wait_at(leader, offset)
        look.found.append(_Found(wanted, partition, read))
        if read.range is not None:
            look.take(read.range.size_bytes)
            look.is_final = look.is_final or read.range.file is not leader.log.active_segment.file
        elif read.diverging is not None:
            look.is_final = True

    def _is_allowed(self, partition: Partition) -> bool:
        return self._replica >= 0 or self._services.authorizer.is_allowed(
            self._context, AclOperation.READ, Resource.TOPIC, partition.name.topic
        )

    def _add_error(self, look: _Look, wanted: WantedPartition, partition: Partition | None, failure: LogError) -> None:
        if partition is not None:
            self._services.replica_manager.log_failed(partition, failure)
        look.found.append(_Found(wanted, partition, failure))
        look.is_final = True

    # Waiting

    def _park(self, look: _Look) -> Awaitable[FetchResponse]:
        # The session knows what is wanted. Who waits holds no more than that.
        self._request.topics = []
        self._request.forgotten_topics_data = []
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[FetchResponse] = self._loop.create_future()
        self._delayed = DelayedFetch(self._isolation, self._on_ready)
        self._timers.append(self._loop.call_later(self._request.max_wait_ms / 1000, self.complete_now))
        self._unpark = self._connection.park(self._done.cancel)
        self._services.replica_manager.fetch_purgatory.add(self)
        self._done.add_done_callback(self._stop_waiting)
        self._wait_on(look)
        return self._done

    def _wait_on(self, look: _Look) -> None:
        if look.has_room:
            self._delayed.start(look.offsets, self._min_bytes - look.size_bytes, look.seen_bytes)
        else:
            self._timers[1:] = [self._loop.call_later(_NO_ROOM_SECONDS, self._look_again)]

    def _on_ready(self) -> None:
        # Not at once: whoever has just appended gets an answer first, and several appends make one look.
        self._loop.call_soon(self._look_again)

    def _look_again(self) -> None:
        if self._done.done() or self._is_looking:
            return
        self._is_looking = True
        if self._is_large:
            crowd = crowd_of(len(self._session.wanted))
            steps = self._look() if crowd is None else in_crowd(crowd, self._look())
            self._services.turns.start(self._connection, steps, lambda look, _: self._looked(look), self._failed)
            return
        try:
            look = at_once(self._look())
        except Exception as failure:
            self._failed(failure)
        else:
            self._looked(look)

    def complete_now(self) -> None:
        """The time is up."""
        self._is_time_up = True
        self._delayed.stop()
        self._look_again()

    def _looked(self, look: _Look) -> None:
        if self._done.done():
            return
        try:
            if self._is_time_up or self._is_enough(look):
                self._complete(look)
            else:
                self._is_looking = False
                self._services.turns.finished(self._connection)
                self._wait_on(look)
        except Exception as failure:
            self._failed(failure)

    def _failed(self, failure: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(failure)

    def _complete(self, look: _Look) -> None:
        # From here on it is we who take time, not the client.
        self._unpark()
        answer = self._respond(look)
        if isinstance(answer, FetchResponse):
            # It leaves in a later turn of the loop; others that look before that must know of it.
            self._connection.expect_response(look.size_bytes)
            self._done.set_result(answer)
        else:
            for timer in self._timers:
                timer.cancel()
            asyncio.ensure_future(self._answered(answer)).add_done_callback(self._hand_over)

    async def _answered(self, answer: Awaitable[FetchResponse] | Steps[FetchAnswer]) -> FetchResponse:
        if isinstance(answer, Generator):
            outcome = await self._services.turns.future(self._connection, answer)
            return outcome if isinstance(outcome, FetchResponse) else await outcome
        return await answer

    def _hand_over(self, read: asyncio.Future[FetchResponse]) -> None:
        if self._done.done():
            return
        if read.cancelled():
            self._done.cancel()
        elif (failure := read.exception()) is not None:
            self._done.set_exception(failure)
        else:
            self._done.set_result(read.result())

    def _stop_waiting(self, _: object) -> None:
        self._delayed.stop()
        self._unpark()
        self._services.replica_manager.fetch_purgatory.discard(self)
        for timer in self._timers:
            timer.cancel()

    # Answering

    def _respond(self, look: _Look) -> FetchAnswer | Steps[FetchAnswer]:
        steps = self._respond_in_steps(look)
        return steps if self._is_large or look.size_bytes > _FEW_BYTES else at_once(steps)

    def _respond_in_steps(self, look: _Look) -> Steps[FetchAnswer]:
        buffers: list[Buffer | None] = []
        is_cold = False
        if look.size_bytes > _FEW_BYTES:
            self._connection.expect_response(look.size_bytes)
        for number, (_, partition, outcome) in enumerate(look.found):
            if not number % _PARTITIONS_PER_STEP:
                yield None
            buffer: Buffer | None = None
            if isinstance(outcome, PartitionRead) and outcome.range is not None and partition is not None:
                try:
                    if outcome.range.size_bytes >= _BYTES_PER_STEP:
                        yield from spent(outcome.range.size_bytes // _BYTES_PER_STEP)
                    buffer = outcome.range.read_now()
                    is_cold = is_cold or buffer is None
                except (OSError, LogError):
                    is_cold = True  # it is read again there, and the error looked at
            buffers.append(buffer)
        if not is_cold:
            return (yield from self._response(look, buffers))
        if look.size_bytes <= _FEW_BYTES:
            self._connection.expect_response(look.size_bytes)
        return self._respond_cold(look, buffers)

    async def _respond_cold(self, look: _Look, buffers: list[Buffer | None]) -> FetchResponse:
        """Read what is not in memory, away from the loop."""
        for place, (wanted, partition, outcome) in enumerate(look.found):
            while buffers[place] is None and isinstance(outcome, PartitionRead) and outcome.range is not None:
                partition = known(partition, "only a partition that is here has been read")
                log = partition.log
                try:
                    buffers[place] = await self._services.runtime.offload(outcome.range.read)
                except (OSError, LogError) as failure:
                    outcome = self._read_failure(wanted, partition, log, outcome.range, failure)
                    look.found[place] = _Found(wanted, partition, outcome)
        return await self._services.turns.future(self._connection, self._response(look, buffers))

    def _read_failure(
        self,
        wanted: WantedPartition,
        partition: Partition,
        log: PartitionLog | None,
        data: FileRange,
        failure: OSError | LogError,
    ) -> PartitionRead | LogError:
        """What to say, or to read, in place of what could not be read."""
        if log is None or partition.log is not log:
            # Deleted, or offline, meanwhile: then closed files say nothing of the disk.
            return partition.unusable()
        try:
            if log.holds(data):
                raise failure if isinstance(failure, LogError) else log.failed(failure)
            # The file went while it was read, by retention or compaction. What it held may be in another.
            leader = partition.leading(wanted.leader_epoch)
            return leader.read(wanted.fetch_offset, data.size_bytes, self._isolation)
        except LogError as error:
            self._services.replica_manager.log_failed(partition, error)
            return error

    def _response(self, look: _Look, buffers: list[Buffer | None]) -> Steps[FetchResponse]:
        session = self._session
        topics: list[FetchableTopicResponse] = []
        partitions: list[PartitionData] = []
        with_records: list[WantedPartition] = []
        last_topic: str | Uuid | None = None
        for number, ((wanted, _, outcome), buffer) in enumerate(zip(look.found, buffers, strict=True)):
            if not number % _PARTITIONS_PER_STEP:
                yield None
            data = self._partition_data(wanted, outcome, b"" if buffer is None else buffer)
            if not session.is_news(wanted, data):
                continue
            topic = wanted.key[0]
            if topic != last_topic:
                last_topic = topic
                partitions = []
                if isinstance(topic, Uuid):
                    topics.append(FetchableTopicResponse(topic_id=topic, partitions=partitions))
                else:
                    topics.append(FetchableTopicResponse(topic=topic, partitions=partitions))
            partitions.append(data)
            if buffer:
                with_records.append(wanted)
        error, session_id = session.finish(with_records, self._services.runtime.clock.monotonic_ms())
        if error:
            return FetchResponse(error_code=error, session_id=session_id, responses=[])
        return FetchResponse(session_id=session_id, responses=topics, node_endpoints=list(self._endpoints.values()))

    def _partition_data(
        self, wanted: WantedPartition, outcome: PartitionRead | LogError, records: Buffer
    ) -> PartitionData:
        if isinstance(outcome, LogError):
            return self._error_data(wanted, outcome.code)
        _, high_watermark, stable, log_start_offset, aborted, diverging = outcome
        told: list[AbortedTransaction] | None = None
        if aborted is not None:
            told = [
                AbortedTransaction(producer_id=each.producer_id, first_offset=each.first_offset) for each in aborted
            ]
        data = PartitionData(
            partition_index=wanted.key[1],
            high_watermark=high_watermark,
            last_stable_offset=stable,
            log_start_offset=log_start_offset,
            aborted_transactions=told,
            records=records,
        )
        if diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=diverging.epoch, end_offset=diverging.end_offset)
        return data

    def _error_data(self, wanted: WantedPartition, code: ErrorCode) -> PartitionData:
        version = self._context.version
        if code is ErrorCode.KAFKA_STORAGE_ERROR and version < _FIRST_WITH_STORAGE_ERRORS:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        data = PartitionData(
            partition_index=wanted.key[1],
            error_code=code,
            high_watermark=_NONE,
            # Kafka says "none" where it did not get as far as looking, and nothing where it did.
            aborted_transactions=[] if code in _NOT_LOOKED_AT else None,
            records=b"",
        )
        if code in MISSED_LEADER and version >= _FIRST_WITH_HINTS:
            hint = leader_hint(self._services.metadata.image, wanted.key, self._context.listener)
            if hint is not None:
                data.current_leader = LeaderIdAndEpoch(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)
                if hint.endpoint is not None:
                    self._endpoints[hint.leader_id] = NodeEndpoint(
                        node_id=hint.leader_id, host=hint.endpoint.host, port=hint.endpoint.port, rack=hint.rack
                    )
        return data
