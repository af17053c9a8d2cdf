"""One fetch on its way: look what is there, wait if that is too little, read the bytes, answer.

Looking finds byte ranges and reads nothing. While a fetch waits it costs nothing: no task, one timer, and a note at
each of its partitions. When enough was appended it looks again. The bytes are read once, at the end, and go to the
socket as they lie in the file; what is not in the page cache is read away from the loop. Where there are many
partitions or bytes, all of this is done in steps.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Generator, Iterable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import known
from barnabas.base.ids import Uuid
from barnabas.broker.context import RequestContext
from barnabas.broker.data.leader_hints import MISSED_LEADER, leader_hint
from barnabas.broker.services import Services
from barnabas.broker.turns import Steps, chunks, crowd_of, in_crowd, spent
from barnabas.metadata.authorizer import AclOperation, Resource
from barnabas.net import Connection
from barnabas.replication._kernel.following import ConsumerGlance, FollowerGlance, Glance, TopicMeter
from barnabas.replication.fetch_sessions import NOT_SENT, PartitionKey, SessionFetch, WantedPartition
from barnabas.replication.leader_state import LeaderState, is_older_broker
from barnabas.replication.partition import Partition
from barnabas.replication.purgatory import DelayedFetch
from barnabas.replication.roles import NO_REPLICA, Isolation, PartitionError, PartitionRead, PartitionRole
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
#: How soon a follower that waits hears of a new high watermark if there is nothing else to tell it; later if its fetch
#: has many partitions. Under load records come sooner, and bring it along: to tell it at once would double the fetches.
_NEWS_SECONDS: Final = 0.01
_NEWS_SECONDS_PER_PARTITION: Final = 0.0001
#: How long a fetch waits that finds no memory for its answer, before it tries again.
_NO_ROOM_SECONDS: Final = 0.02
#: A fetch with more partitions, or with more bytes to read, goes on in steps; one of them counts as so many bytes.
FEW_PARTITIONS: Final = 128
#: What is done for one partition takes a quarter of what a step may take, or less: to pause after each would cost more.
_PARTITIONS_PER_STEP: Final = 4
#: To see that there is nothing new in one takes a tenth of that; where compiled code sees it, far less.
_GLANCES_PER_STEP: Final = 32
_PASSED_OVER_PER_STEP: Final = 512
_FEW_BYTES: Final = 4 * 1024 * 1024
_BYTES_PER_STEP: Final = 64 * 1024
#: What an answer takes beside its records, about: quotas are asked before it is made.
_ANSWER_BYTES: Final = 24
_PARTITION_BYTES: Final = 56

Buffer = bytes | bytearray | memoryview
FetchAnswer = FetchResponse | Awaitable[FetchResponse]


#: What one look has found for one partition. A plain tuple: each fetch makes one for each partition.
_Found = tuple[WantedPartition, Partition | None, PartitionRead | LogError]


class _Look:
    """What one look has found."""

    __slots__ = (
        "at_least_one",
        "found",
        "has_news",
        "has_room",
        "is_final",
        "left_bytes",
        "offsets",
        "seen_bytes",
        "size_bytes",
    )

    def __init__(self, max_bytes: int, room_bytes: int, *, is_large: bool = False) -> None:
        self.found: list[_Found] = []
        self.size_bytes = 0
        #: Whether there is memory for answers at all.
        self.has_room = room_bytes > 0
        self.left_bytes = min(max_bytes, room_bytes) if room_bytes > 0 else 0
        #: The first batch that is found comes whole, however large, or nobody could ever get past it.
        self.at_least_one = self.has_room
        #: Whether waiting would bring nothing more: there is an error, or the rest lies in another segment.
        self.is_final = False
        #: Whether a follower was not told yet of a high watermark, or log start.
        self.has_news = False
        #: Where to wait, and from which offset on something is new there.
        self.offsets: dict[PartitionRole, int] = {}
        #: How much had been appended, if others have their turn between the look and the waiting.
        self.seen_bytes: dict[PartitionRole, int] | None = {} if is_large else None

    def wait_at(self, role: PartitionRole, offset: int) -> None:
        self.offsets[role] = offset
        if self.seen_bytes is not None:
            self.seen_bytes[role] = role.appended_bytes

    def take(self, size_bytes: int) -> None:
        self.size_bytes += size_bytes
        self.left_bytes = self.left_bytes - size_bytes if size_bytes < self.left_bytes else 0
        self.at_least_one = False


class _Answers:
    """The partitions of a response, in the making."""

    __slots__ = ("last_topic", "partitions", "topics", "with_records")

    def __init__(self) -> None:
        self.topics: list[FetchableTopicResponse] = []
        #: Those of the last topic.
        self.partitions: list[PartitionData] = []
        self.last_topic: str | Uuid | None = None
        self.with_records: list[WantedPartition] = []

    def add(self, topic: str | Uuid, data: PartitionData) -> None:
        if topic != self.last_topic:
            self.last_topic = topic
            partitions = self.partitions = []
            if isinstance(topic, Uuid):
                self.topics.append(FetchableTopicResponse(topic_id=topic, partitions=partitions))
            else:
                self.topics.append(FetchableTopicResponse(topic=topic, partitions=partitions))
        self.partitions.append(data)


class Fetch:
    """One request of one client."""

    __slots__ = (
        "_connection",
        "_context",
        "_delayed",
        "_done",
        "_endpoints",
        "_has_found",
        "_is_denied",
        "_is_first_look",
        "_is_looking",
        "_is_news_due",
        "_is_time_up",
        "_isolation",
        "_loop",
        "_max_bytes",
        "_min_bytes",
        "_news_timer",
        "_replica",
        "_replica_epoch",
        "_request",
        "_services",
        "_session",
        "_throttle_ms",
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
        *,
        is_denied: bool = False,
    ) -> None:
        """`is_denied`: it says that it is a follower, which it may not be."""
        self._services = services
        self._is_denied = is_denied
        self._connection = connection
        self._context = context
        self._request = request
        self._session = session
        state = request.replica_state
        if state is None:
            self._replica, self._replica_epoch = request.replica_id, NOT_SENT
        else:
            self._replica, self._replica_epoch = state.replica_id, state.replica_epoch
        if self._replica >= 0:
            self._isolation = Isolation.LOG_END
        elif request.isolation_level:
            self._isolation = Isolation.READ_COMMITTED
        else:
            self._isolation = Isolation.READ_UNCOMMITTED
        self._max_bytes = min(request.max_bytes, services.settings.fetch_max_bytes)
        if self._is_limited:
            self._max_bytes = services.quotas.fetch_max_bytes(context, self._max_bytes)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._endpoints: dict[int, NodeEndpoint] = {}
        self._throttle_ms = 0
        self._timers: list[asyncio.TimerHandle] = []
        #: Whether it looks, or has found enough and answers.
        self._is_looking = False
        self._is_time_up = False
        #: Where a follower is counts as of the moment when it asked, not of when it is answered.
        self._is_first_look = True
        #: Whether the last look has found anything to tell.
        self._has_found = True
        self._is_news_due = False
        self._news_timer: asyncio.TimerHandle | None = None

    @property
    def _is_limited(self) -> bool:
        """Whether quotas may make it wait: never if it is a follower's."""
        return self._replica < 0 and self._services.quotas.limits_frames

    def answer(self) -> FetchAnswer | Steps[FetchAnswer]:
        if self._is_large:
            return self._answer_in_steps()
        look = self._look()
        return self._park(look) if self._may_wait(look) else self._respond(look)

    def _answer_in_steps(self) -> Steps[FetchAnswer]:
        look = yield from self._look_in_steps()
        if self._may_wait(look):
            return self._park(look)
        if self._is_limited and (throttled := self._throttled(look)) is not None:
            return throttled
        return (yield from self._respond_in_steps(look))

    @property
    def _is_large(self) -> bool:
        # Asked each time: the session may grow while a fetch of it waits.
        return len(self._session.wanted) > FEW_PARTITIONS

    def _may_wait(self, look: _Look) -> bool:
        is_over = self._request.max_wait_ms <= 0 or self._services.replica_manager.fetch_purgatory.is_closed
        return not is_over and not self._is_enough(look)

    # Looking

    def _is_enough(self, look: _Look) -> bool:
        return look.is_final or look.size_bytes >= self._min_bytes or not self._session.wanted

    def _look(self) -> _Look:
        """What is there now."""
        look = _Look(self._max_bytes, self._services.response_room())
        self._look_through(look, self._pass_over(look, self._session.wanted))
        self._is_first_look = False
        return look

    def _look_in_steps(self) -> Steps[_Look]:
        """The same where there are many partitions: others have their turn meanwhile."""
        look = _Look(self._max_bytes, self._services.response_room(), is_large=True)
        for many in chunks(list(self._session.wanted), _PASSED_OVER_PER_STEP):
            for some in chunks(list(self._pass_over(look, many)), _GLANCES_PER_STEP):
                closer_looks = self._look_through(look, some)
                yield from spent(1 + closer_looks // _PARTITIONS_PER_STEP)
            yield None
        self._is_first_look = False
        return look

    def _pass_over(self, look: _Look, some: Iterable[WantedPartition]) -> Iterable[WantedPartition]:
        """Those that need more than a compiled glance: of who goes on with a session, few do."""
        if self._session.is_full or self._is_denied:
            return some
        services, replica = self._services, self._replica
        index = services.replica_manager.index
        glance: Glance
        if replica < 0:
            glance = ConsumerGlance(index, LeaderState, self._may_read)
        elif is_older_broker(services.metadata.image.brokers.get(replica), self._replica_epoch):
            return some
        else:
            glance = FollowerGlance(index, LeaderState, replica, self._replica_epoch)
        now_ms = services.runtime.clock.monotonic_ms()
        return glance.over(some, self._is_first_look, now_ms, look.offsets, look.seen_bytes)

    def _look_through(self, look: _Look, some: Iterable[WantedPartition]) -> int:
        """Look at partitions; at how many it took more than a glance."""
        index = self._services.replica_manager.index
        session, found, is_consumer = self._session, look.found, self._replica < 0
        is_full, offsets, seen_bytes = session.is_full, look.offsets, look.seen_bytes
        allowed_topic: str | Uuid | None = None
        closer_looks = 0
        for wanted in some:
            key = wanted.key
            partition = index.get(key)
            if partition is None or (key[0] is not allowed_topic and not self._is_allowed(partition.name.topic)):
                code = self._why_not(key, partition)
                self._add_error(look, wanted, None, PartitionError(code, code.text))
                closer_looks += 1
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
                offsets[role] = offset
                if seen_bytes is not None:
                    seen_bytes[role] = role.appended_bytes
                if is_full or wanted.high_watermark != offset or wanted.log_start_offset != log.log_start_offset:
                    found.append((wanted, partition, self._nothing_new(log)))
            else:
                closer_looks += 1
                if is_consumer or not self._has_all(look, wanted, role):
                    self._look_at(look, wanted, partition)
        return closer_looks

    def _has_all(self, look: _Look, wanted: WantedPartition, role: PartitionRole | None) -> bool:
        """Whether this is a follower that has all there is; if so, that is noted."""
        offset, replica = wanted.fetch_offset, self._replica
        if (
            not isinstance(role, LeaderState)
            or wanted.leader_epoch != role.leader_epoch
            or replica not in role.followers
            or not role.has_all(offset, wanted.last_fetched_epoch)
        ):
            return False
        if self._is_first_look:
            try:
                role.update_follower_fetch_state(replica, offset, wanted.follower_log_start_offset, self._replica_epoch)
            except LogError:
                return False  # the error is told by whoever looks closer
        log, session = role.log, self._session
        look.wait_at(role, offset)
        if session.is_full or session.is_unknown(wanted, log.high_watermark, log.log_start_offset):
            look.has_news = look.has_news or not session.is_full
            look.found.append((wanted, role.partition, self._nothing_new(log)))
        return True

    def _nothing_new(self, log: PartitionLog) -> PartitionRead:
        aborted: list[TransactionRange] | None = [] if self._isolation is Isolation.READ_COMMITTED else None
        return PartitionRead(None, log.high_watermark, log.last_stable_offset, log.log_start_offset, aborted)

    def _look_at(self, look: _Look, wanted: WantedPartition, partition: Partition) -> None:
        offset = wanted.fetch_offset
        try:
            leader, replica, epoch = partition.role, self._replica, wanted.leader_epoch
            if not isinstance(leader, LeaderState) or (epoch >= 0 and epoch != leader.leader_epoch):
                leader = partition.leading(epoch)  # which says what is wrong
            if replica >= 0:
                leader.follower(replica, self._replica_epoch, wanted.leader_epoch)
            read = leader.read(
                offset,
                min(wanted.max_bytes, look.left_bytes),
                self._isolation,
                last_fetched_epoch=wanted.last_fetched_epoch,
                at_least_one=look.at_least_one,
                replica=replica if self._is_first_look else NO_REPLICA,
                replica_log_start_offset=wanted.follower_log_start_offset,
                broker_epoch=self._replica_epoch,
            )
        except LogError as failure:
            self._add_error(look, wanted, partition, failure)
            return
        look.wait_at(leader, offset)
        look.found.append((wanted, partition, read))
        if replica >= 0 and not self._session.is_full:
            is_news = self._session.is_unknown(wanted, read.high_watermark, read.log_start_offset)
            look.has_news = look.has_news or is_news
        if read.range is not None:
            look.take(read.range.size_bytes)
            look.is_final = look.is_final or read.range.file is not leader.log.active_segment.file
        elif read.diverging is not None:
            look.is_final = True

    def _is_allowed(self, topic: str) -> bool:
        if self._replica >= 0:
            return not self._is_denied
        return self._services.authorizer.is_allowed(self._context, AclOperation.READ, Resource.TOPIC, topic)

    def _may_read(self, partition: Partition) -> bool:
        """Who may not is told, and written of, by the rules."""
        return self._services.authorizer.is_allowed(
            self._context, AclOperation.READ, Resource.TOPIC, partition.name.topic, log_if_denied=False
        )

    def _why_not(self, key: PartitionKey, partition: Partition | None) -> ErrorCode:
        """Why a partition is not read: nobody learns from it of a topic that they may not read."""
        image = self._services.metadata.image
        topic = image.topic_names.get(key[0]) if isinstance(key[0], Uuid) else key[0]
        if partition is not None or self._is_denied or (topic is not None and not self._is_allowed(topic)):
            return ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return self._services.replica_manager.why_missing(image, key)

    def _add_error(self, look: _Look, wanted: WantedPartition, partition: Partition | None, failure: LogError) -> None:
        if partition is not None:
            self._services.replica_manager.log_failed(partition, failure)
        look.found.append((wanted, partition, failure))
        look.is_final = True

    @property
    def is_of_follower(self) -> bool:
        return self._replica >= 0

    # Waiting

    def _park(self, look: _Look) -> Awaitable[FetchResponse]:
        # The session knows what is wanted. Who waits holds no more than that.
        self._request.topics = []
        self._request.forgotten_topics_data = []
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[FetchResponse] = self._loop.create_future()
        self._delayed = DelayedFetch(self._isolation, self._on_ready, self._on_news if self._replica >= 0 else None)
        self._timers.append(self._loop.call_later(self._request.max_wait_ms / 1000, self.complete_now))
        self._unpark = self._connection.park(self._done.cancel)
        self._services.replica_manager.fetch_purgatory.add(self)
        self._done.add_done_callback(self._stop_waiting)
        self._wait_on(look)
        if look.has_news:
            self._on_news()
        return self._done

    def _wait_on(self, look: _Look) -> None:
        self._has_found = bool(look.found) or not look.has_room
        if look.has_room:
            self._delayed.start(look.offsets, self._min_bytes - look.size_bytes, look.seen_bytes)
        else:
            self._timers[1:] = [self._loop.call_later(_NO_ROOM_SECONDS, self._look_again)]

    def _on_ready(self) -> None:
        # Not at once: whoever has just appended gets an answer first, and several appends make one look.
        self._loop.call_soon(self._look_again)

    def _on_news(self) -> None:
        if self._news_timer is None:
            delay = _NEWS_SECONDS + _NEWS_SECONDS_PER_PARTITION * len(self._session.wanted)
            self._news_timer = self._loop.call_later(delay, self._tell_news)

    def _tell_news(self) -> None:
        self._news_timer = None
        self._is_news_due = True
        self._delayed.stop()
        self._look_again()

    def _look_again(self) -> None:
        if self._done.done() or self._is_looking:
            return
        self._is_looking = True
        self._connection.wait_ends()
        if self._is_large:
            crowd = crowd_of(len(self._session.wanted))
            steps = self._look_in_steps()
            if crowd is not None:
                steps = in_crowd(crowd, steps)
            self._services.turns.start(self._connection, steps, lambda look, _: self._looked(look), self._failed)
            return
        try:
            look = self._look()
        except Exception as failure:
            self._failed(failure)
        else:
            self._looked(look)

    def complete_now(self) -> None:
        """The time is up."""
        self._services.replica_manager.fetch_purgatory.expired_count += 1
        self._is_time_up = True
        self._delayed.stop()
        if self._has_found or self._delayed.has_changed or self._is_looking or self._done.done():
            self._look_again()
        else:
            # Nothing has happened: it would look in vain, at every partition.
            self._is_looking = True
            self._looked(_Look(0, 0))

    def _looked(self, look: _Look) -> None:
        if self._done.done():
            return
        try:
            if self._is_time_up or self._is_enough(look) or (self._is_news_due and look.has_news):
                self._complete(look)
            else:
                self._is_looking = self._is_news_due = False
                self._services.turns.finished(self._connection)
                self._connection.wait_begins()
                self._wait_on(look)
        except Exception as failure:
            self._failed(failure)

    def _failed(self, failure: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(failure)

    def _complete(self, look: _Look) -> None:
        # From here on it is we who take time, not the client.
        self._connection.wait_ends()
        self._unpark()
        answer = self._respond(look)
        # It goes on in a later turn of the loop, which works for others until then.
        self._connection.wait_begins()
        if isinstance(answer, FetchResponse):
            # Others that look before that must know of it.
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
        if self._news_timer is not None:
            self._news_timer.cancel()

    # Answering

    def _throttled(self, look: _Look) -> FetchResponse | None:
        """Nothing but how long to wait, in place of what was found; None if that may be read."""
        size_bytes = _ANSWER_BYTES + _PARTITION_BYTES * len(look.found) + look.size_bytes
        self._throttle_ms, may_read = self._services.quotas.fetch_throttle_ms(
            self._context, self._connection, size_bytes
        )
        if may_read:
            return None
        error, session_id = self._session.throttled()
        return FetchResponse(throttle_time_ms=self._throttle_ms, error_code=error, session_id=session_id, responses=[])

    def _respond(self, look: _Look) -> FetchAnswer | Steps[FetchAnswer]:
        if self._is_limited and (throttled := self._throttled(look)) is not None:
            return throttled
        return self._respond_unthrottled(look)

    def _respond_unthrottled(self, look: _Look) -> FetchAnswer | Steps[FetchAnswer]:
        if self._is_large or look.size_bytes > _FEW_BYTES:
            return self._respond_in_steps(look)
        answers = _Answers()
        if look.found:
            buffers = [self._read_now(outcome) for _, _, outcome in look.found]
            if None in buffers:
                self._connection.expect_response(look.size_bytes)
                return self._respond_cold(look, buffers)
            self._answer_some(answers, look.found, buffers)
        return self._response(answers)

    def _respond_in_steps(self, look: _Look) -> Steps[FetchAnswer]:
        buffers: list[Buffer | None] = []
        if look.size_bytes > _FEW_BYTES:
            self._connection.expect_response(look.size_bytes)
        for number, (_, _, outcome) in enumerate(look.found, 1):
            if not number % _PARTITIONS_PER_STEP:
                yield None
            if isinstance(outcome, PartitionRead) and outcome.range is not None:
                size_bytes = outcome.range.size_bytes
                if size_bytes >= _BYTES_PER_STEP:
                    yield from spent(size_bytes // _BYTES_PER_STEP)
            buffers.append(self._read_now(outcome))
        if None not in buffers:
            return (yield from self._response_in_steps(look, buffers))
        if look.size_bytes <= _FEW_BYTES:
            self._connection.expect_response(look.size_bytes)
        return self._respond_cold(look, buffers)

    def _read_now(self, outcome: PartitionRead | LogError) -> Buffer | None:
        """The bytes that were found; None if they must be read away from the loop, which also tells what fails."""
        if isinstance(outcome, LogError) or outcome.range is None:
            return b""
        try:
            return outcome.range.map_now() if self._connection.sends_untouched else outcome.range.read_now()
        except (OSError, LogError):
            return None

    async def _respond_cold(self, look: _Look, buffers: list[Buffer | None]) -> FetchResponse:
        """Read what is not in memory, away from the loop."""
        self._connection.wait_ends()
        for place, (wanted, partition, outcome) in enumerate(look.found):
            while buffers[place] is None and isinstance(outcome, PartitionRead) and outcome.range is not None:
                partition = known(partition, "only a partition that is here has been read")
                log = partition.log
                self._connection.wait_begins()
                try:
                    buffers[place] = await self._services.runtime.offload(outcome.range.read)
                except (OSError, LogError) as failure:
                    outcome = self._read_failure(wanted, partition, log, outcome.range, failure)
                    look.found[place] = wanted, partition, outcome
                finally:
                    self._connection.wait_ends()
        return await self._services.turns.future(self._connection, self._response_in_steps(look, buffers))

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

    def _response_in_steps(self, look: _Look, buffers: list[Buffer | None]) -> Steps[FetchResponse]:
        answers, found = _Answers(), look.found
        for start in range(0, len(found), _PARTITIONS_PER_STEP):
            end = start + _PARTITIONS_PER_STEP
            self._answer_some(answers, found[start:end], buffers[start:end])
            yield None
        return self._response(answers)

    def _answer_some(self, answers: _Answers, found: list[_Found], buffers: list[Buffer | None]) -> None:
        session = self._session
        for (wanted, partition, outcome), buffer in zip(found, buffers, strict=True):
            if partition is not None:
                self._count(partition.meter, outcome, 0 if buffer is None else len(buffer))
            data = self._partition_data(wanted, outcome, b"" if buffer is None else buffer)
            if session.is_news(wanted, data):
                answers.add(wanted.key[0], data)
                if buffer:
                    answers.with_records.append(wanted)

    def _count(self, meter: TopicMeter, outcome: PartitionRead | LogError, size_bytes: int) -> None:
        meter.fetch_requests += 1
        if isinstance(outcome, LogError):
            meter.failed_fetch_requests += 1
        elif self._replica >= 0:
            meter.replication_bytes_out += size_bytes
        else:
            meter.bytes_out += size_bytes

    def _response(self, answers: _Answers) -> FetchResponse:
        error, session_id = self._session.finish(answers.with_records, self._services.runtime.clock.monotonic_ms())
        if error:
            return FetchResponse(error_code=error, session_id=session_id, responses=[])
        endpoints = list(self._endpoints.values())
        return FetchResponse(
            throttle_time_ms=self._throttle_ms,
            session_id=session_id,
            responses=answers.topics,
            node_endpoints=endpoints,
        )

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
