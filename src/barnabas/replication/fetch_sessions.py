"""Fetch sessions: both sides remember what was asked and answered, and only changes travel.

A client begins with a full fetch, session 0 and epoch 0. If there is room its answer names a session; from then on the
client sends which partitions it adds, changes or forgets, with an epoch that rises by one each time, and hears only of
partitions with news: records, an error, another high watermark or log start. Epoch -1 ends the session.

Which session must give way when there is no room: one that was silent for two minutes; else, for a new one that is
worth more, the one that is worth least of those older than two minutes. Followers are worth more than clients, and
large sessions more than small ones.

Room is also counted in bytes, which Kafka does not do: partitions that do not exist are remembered like others, since
they may come to exist, and a few requests could name millions of them. A client's session may take an eighth of all
bytes, a follower's a half. When bytes are short, who was silent for two minutes gives way; then the largest session of
a client, if it is at least twice as large as the new one, or if that is a follower's. So the bytes go to many small
sessions rather than to few large ones. A session that outgrows its part or finds no room is given up: its client begins
with a full fetch again, which is always answered, and is given no other session while it asks for so much.
"""

from __future__ import annotations

from bisect import insort
from collections.abc import Collection, Generator, Iterable
from random import Random
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.base.steps import at_once
from barnabas.replication._kernel.following import FetchPosition
from barnabas.wire.fetch_session_epoch import FINAL_EPOCH, INITIAL_EPOCH, MAX_EPOCH, NO_SESSION, next_epoch
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, PartitionData

DEFAULT_EVICTION_MS: Final = 120_000
NOT_SENT: Final = -1
#: What all sessions may take: room for 300,000 partitions, or for 1,000 sessions with 300 each.
DEFAULT_BYTES: Final = 128 * 1024 * 1024
#: What a session keeps of a partition, beside the letters of the topic's name: measured, and rounded up.
PARTITION_BYTES: Final = 384
_PARTS_OF_A_CLIENT: Final = 8
_PARTS_OF_A_FOLLOWER: Final = 2
#: To note what is wanted of one takes so little that a pause after each would cost more.
_PARTITIONS_PER_STEP: Final = 4

#: A topic by name or by id, as the request's version has it, and the partition's number.
PartitionKey = tuple[str | Uuid, int]
_Worth = tuple[bool, int, int]


def replica_of(request: FetchRequest) -> int:
    """The follower that asks, or -1 for a consumer."""
    return request.replica_id if request.replica_state is None else request.replica_state.replica_id


def replica_epoch_of(request: FetchRequest) -> int:
    """The broker epoch of the follower that asks, or -1 where it does not say."""
    return NOT_SENT if request.replica_state is None else request.replica_state.replica_epoch


def size_of(key: PartitionKey) -> int:
    """What a session takes for a partition. Each counts with a name of its own: later requests bring it once more."""
    topic = key[0]
    if isinstance(topic, Uuid):
        return PARTITION_BYTES
    return PARTITION_BYTES + (len(topic) if topic.isascii() else 4 * len(topic))


class WantedPartition(FetchPosition):
    """What a client asks of one partition, and in a session also what it was told last."""

    __slots__ = ()

    def __init__(self, key: PartitionKey, asked: FetchPartition) -> None:
        self.key = key
        self.high_watermark = NOT_SENT
        self.log_start_offset = NOT_SENT
        self.ask(asked)

    def ask(self, asked: FetchPartition) -> None:
        self.fetch_offset = asked.fetch_offset
        self.max_bytes = asked.partition_max_bytes
        self.leader_epoch = asked.current_leader_epoch
        self.last_fetched_epoch = asked.last_fetched_epoch
        self.follower_log_start_offset = asked.log_start_offset

    def __repr__(self) -> str:
        return f"<{self.key[0]}-{self.key[1]} from {self.fetch_offset}>"


class FetchSession:
    """What one client and this node know of each other."""

    __slots__ = (
        "created_ms",
        "epoch",
        "id",
        "is_privileged",
        "last_used_ms",
        "partitions",
        "size_bytes",
        "uses_ids",
        "worth",
    )

    def __init__(self, session_id: int, now_ms: int, *, is_privileged: bool, uses_ids: bool) -> None:
        self.id = session_id
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.is_privileged = is_privileged
        self.uses_ids = uses_ids
        self.epoch = next_epoch(INITIAL_EPOCH)
        #: In the order in which they are read: whoever got records goes to the end.
        self.partitions: dict[PartitionKey, WantedPartition] = {}
        self.size_bytes = 0
        #: Its place among those that may be evicted, while it is there.
        self.worth: _Worth | None = None

    def __repr__(self) -> str:
        return f"<fetch session {self.id}, epoch {self.epoch}, {len(self.partitions)} partitions>"


class SessionFetch:
    """One fetch as the sessions see it: what to read, and which of the results to send.

    Guarantee: when `finish` was called with all that was read, the client knows the high watermark and log start of
    every partition of the session, from this answer or an earlier one.
    """

    __slots__ = ("_cache", "_expected_epoch", "_is_privileged", "_session", "_uses_ids", "error", "is_full", "wanted")

    def __init__(
        self,
        wanted: Collection[WantedPartition],
        *,
        error: ErrorCode = ErrorCode.NONE,
        session: FetchSession | None = None,
        cache: FetchSessionCache | None = None,
        is_privileged: bool = False,
        uses_ids: bool = False,
    ) -> None:
        self.wanted = wanted
        self.error = error
        #: Whether all partitions are answered, not only those with news.
        self.is_full = session is None
        self._session = session
        self._expected_epoch = session.epoch if session is not None else INITIAL_EPOCH
        # Where to keep a session, if one is to be made.
        self._cache = cache
        self._is_privileged = is_privileged
        self._uses_ids = uses_ids

    @staticmethod
    def is_unknown(wanted: WantedPartition, high_watermark: int, log_start_offset: int) -> bool:
        """Whether the client was told something else of a partition, or nothing."""
        return wanted.high_watermark != high_watermark or wanted.log_start_offset != log_start_offset

    def is_news(self, wanted: WantedPartition, data: PartitionData) -> bool:
        """Whether the client must hear of this; if so, it counts as told."""
        has_records = bool(data.records)
        if data.error_code:
            # When the error is gone the client must hear of the partition again, so nothing counts as known.
            wanted.high_watermark = wanted.log_start_offset = NOT_SENT
            return True
        is_news = (
            self.is_full
            or has_records
            or self.is_unknown(wanted, data.high_watermark, data.log_start_offset)
            or data.diverging_epoch is not None
            or data.preferred_read_replica >= 0
        )
        if is_news:
            wanted.high_watermark = data.high_watermark
            wanted.log_start_offset = data.log_start_offset
        return is_news

    def throttled(self) -> tuple[ErrorCode, int]:
        """The same for an answer that tells nothing, since its client has to wait: a session goes on with what was told
        before, and none begins."""
        session = self._session
        if session is None:
            return ErrorCode.NONE, NO_SESSION
        if session.epoch != self._expected_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION
        return ErrorCode.NONE, session.id

    def finish(self, with_records: Iterable[WantedPartition], now_ms: int) -> tuple[ErrorCode, int]:
        """The error of the answer as a whole, and the id of the session that goes on (0 for none)."""
        session = self._session
        if session is not None:
            if session.epoch != self._expected_epoch:
                # The client has used the session elsewhere meanwhile, so what counts as told may not have arrived.
                return ErrorCode.INVALID_FETCH_SESSION_EPOCH, NO_SESSION
            _move_to_end(session.partitions, with_records)
            return ErrorCode.NONE, session.id
        if self._cache is None or not self._cache.can_hold(len(self.wanted), is_privileged=self._is_privileged):
            return ErrorCode.NONE, NO_SESSION
        partitions = {wanted.key: wanted for wanted in self.wanted}
        _move_to_end(partitions, with_records)
        created = self._cache.create(partitions, now_ms, is_privileged=self._is_privileged, uses_ids=self._uses_ids)
        return ErrorCode.NONE, NO_SESSION if created is None else created.id


class FetchSessionCache:
    """The sessions of a node, at most `slots` of them, which take at most `max_bytes` together."""

    def __init__(
        self,
        slots: int,
        randomness: Random,
        *,
        eviction_ms: int = DEFAULT_EVICTION_MS,
        max_bytes: int = DEFAULT_BYTES,
    ) -> None:
        self._slots = slots
        self._max_bytes = max_bytes
        self.size_bytes = 0
        #: How many had to give way.
        self.evicted_count = 0
        self._randomness = randomness
        self._eviction_ms = eviction_ms
        # The one that was not used for the longest time first.
        self._sessions: dict[int, FetchSession] = {}
        # Those old enough to give way, the least worthy first.
        self._evictable: list[_Worth] = []

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        """Partitions in all of them."""
        return sum(len(each.partitions) for each in self._sessions.values())

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def begin(self, request: FetchRequest, *, uses_ids: bool, now_ms: int) -> SessionFetch:
        """What a request asks for, by itself or together with those before it."""
        if request.session_epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            return at_once(self.begin_in_steps(request, uses_ids=uses_ids, now_ms=now_ms))
        session = self._next_of(request, uses_ids)
        if isinstance(session, ErrorCode):
            return self._refused(session)
        # Often nothing else is wanted than the last time: where there was nothing to read.
        if request.topics or request.forgotten_topics_data:
            more_bytes = 0
            for topic in request.topics:
                more_bytes += _want(session, topic.topic_id if uses_ids else topic.topic, topic.partitions)
            for forgotten in request.forgotten_topics_data:
                name = forgotten.topic_id if uses_ids else forgotten.topic
                more_bytes -= _forget(session, name, forgotten.partitions)
            session.size_bytes += more_bytes
            self.size_bytes += more_bytes
        return self._begun(session, now_ms)

    def begin_in_steps(
        self, request: FetchRequest, *, uses_ids: bool, now_ms: int
    ) -> Generator[None, None, SessionFetch]:
        """The same, a few partitions a step."""
        epoch = request.session_epoch
        if epoch in (FINAL_EPOCH, INITIAL_EPOCH):
            self._remove(request.session_id)
            return SessionFetch(
                (yield from _asked(request, uses_ids)),
                cache=None if epoch == FINAL_EPOCH else self,
                is_privileged=replica_of(request) >= 0,
                uses_ids=uses_ids,
            )
        session = self._next_of(request, uses_ids)
        if isinstance(session, ErrorCode):
            return self._refused(session)
        yield from self._update(session, request)
        return self._begun(session, now_ms)

    def _next_of(self, request: FetchRequest, uses_ids: bool) -> FetchSession | ErrorCode:
        """The session that a request goes on with; it counts as used from here on."""
        session = self._sessions.get(request.session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != request.session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_ids != uses_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        # Before the steps: who uses the session elsewhere meanwhile must not be taken for this one.
        session.epoch = next_epoch(session.epoch)
        return session

    @staticmethod
    def _refused(error: ErrorCode) -> SessionFetch:
        return SessionFetch((), error=error)

    def _begun(self, session: FetchSession, now_ms: int) -> SessionFetch:
        """A fetch of a session that knows what is wanted, unless it has lost its place meanwhile."""
        if self._sessions.get(session.id) is not session:
            return self._refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not self._fits(session, now_ms):
            self._remove(session.id)
            return self._refused(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
        if not session.partitions:
            self._remove(session.id)
            return SessionFetch(())
        self._touch(session, now_ms)
        return SessionFetch(session.partitions.values(), session=session)

    def create(
        self, partitions: dict[PartitionKey, WantedPartition], now_ms: int, *, is_privileged: bool, uses_ids: bool
    ) -> FetchSession | None:
        """A session for a client that wants one; None if there is no room, or nothing to remember."""
        size_bytes = sum(map(size_of, partitions))
        if not partitions or size_bytes > self._most_bytes(is_privileged):
            return None
        if not self._make_bytes(size_bytes, None, now_ms, is_privileged=is_privileged):
            return None
        if not self._make_room(len(partitions), now_ms, is_privileged=is_privileged):
            return None
        session_id = self._randomness.randrange(1, MAX_EPOCH)
        while session_id in self._sessions:
            session_id = self._randomness.randrange(1, MAX_EPOCH)
        session = FetchSession(session_id, now_ms, is_privileged=is_privileged, uses_ids=uses_ids)
        session.partitions = partitions
        session.size_bytes = size_bytes
        self.size_bytes += size_bytes
        self._touch(session, now_ms)
        return session

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        self._sessions.pop(session.id, None)
        self._sessions[session.id] = session
        worth = session.worth
        if worth is not None and worth[1] == len(session.partitions):
            return
        self._protect(session)
        if now_ms - session.created_ms > self._eviction_ms:
            session.worth = (session.is_privileged, len(session.partitions), session.id)
            insort(self._evictable, session.worth)

    def _protect(self, session: FetchSession) -> None:
        if session.worth is not None:
            self._evictable.remove(session.worth)
            session.worth = None

    def _make_room(self, size: int, now_ms: int, *, is_privileged: bool) -> bool:
        if len(self._sessions) < self._slots:
            return True
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > self._eviction_ms:
            self._remove(oldest.id)
            self.evicted_count += 1
            return True
        least = self._least_worthy(is_privileged=is_privileged)
        if least is None or least > (is_privileged, size, 0):
            return False
        self._remove(least[2])
        self.evicted_count += 1
        return True

    def can_hold(self, count: int, *, is_privileged: bool) -> bool:
        """Whether a session of so many partitions is at all possible."""
        return count * PARTITION_BYTES <= self._most_bytes(is_privileged)

    def _most_bytes(self, is_privileged: bool) -> int:
        return self._max_bytes // (_PARTS_OF_A_FOLLOWER if is_privileged else _PARTS_OF_A_CLIENT)

    def _fits(self, session: FetchSession, now_ms: int) -> bool:
        """Whether a session that may have grown still has its place."""
        is_privileged = session.is_privileged
        return session.size_bytes <= self._most_bytes(is_privileged) and self._make_bytes(
            0, session, now_ms, is_privileged=is_privileged
        )

    def _make_bytes(self, more_bytes: int, growing: FetchSession | None, now_ms: int, *, is_privileged: bool) -> bool:
        """Let others give way until there are so many bytes for a new session, or enough for one that has grown."""
        if self.size_bytes + more_bytes <= self._max_bytes:
            return True
        own_bytes = more_bytes if growing is None else growing.size_bytes
        others = [each for each in self._sessions.values() if each is not growing]
        giving_way = [each for each in others if now_ms - each.last_used_ms > self._eviction_ms]
        large = [
            each
            for each in others
            if now_ms - each.last_used_ms <= self._eviction_ms
            and not each.is_privileged
            and (is_privileged or each.size_bytes >= 2 * own_bytes)
        ]
        giving_way += sorted(large, key=lambda each: each.size_bytes, reverse=True)
        missing_bytes = self.size_bytes + more_bytes - self._max_bytes
        if sum(each.size_bytes for each in giving_way) < missing_bytes:
            return False
        for session in giving_way:
            self._remove(session.id)
            if self.size_bytes + more_bytes <= self._max_bytes:
                break
        return True

    def _least_worthy(self, *, is_privileged: bool) -> _Worth | None:
        if not is_privileged:
            return self._evictable[0] if self._evictable else None
        # To a follower every client gives way, however new.
        clients = ((False, len(each.partitions), each.id) for each in self._sessions.values() if not each.is_privileged)
        return min((*clients, *self._evictable[:1]), default=None)

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self.size_bytes -= session.size_bytes
            self._protect(session)

    def _update(self, session: FetchSession, request: FetchRequest) -> Generator[None, None, None]:
        more_bytes = 0
        for topic in request.topics:
            name = topic.topic_id if session.uses_ids else topic.topic
            yield
            for start in range(0, len(topic.partitions), _PARTITIONS_PER_STEP):
                more_bytes += _want(session, name, topic.partitions[start : start + _PARTITIONS_PER_STEP])
                yield
        for forgotten in request.forgotten_topics_data:
            name = forgotten.topic_id if session.uses_ids else forgotten.topic
            yield
            for index in forgotten.partitions:
                yield
                more_bytes -= _forget(session, name, (index,))
        if self._sessions.get(session.id) is session:
            self.size_bytes += more_bytes
            session.size_bytes += more_bytes


def _want(session: FetchSession, topic: str | Uuid, partitions: Iterable[FetchPartition]) -> int:
    """Note what is asked of partitions; how many bytes more the session takes."""
    wanted = session.partitions
    more_bytes = 0
    for asked in partitions:
        key = (topic, asked.partition)
        known = wanted.get(key)
        if known is None:
            wanted[key] = WantedPartition(key, asked)
            more_bytes += size_of(key)
        else:
            known.ask(asked)
    return more_bytes


def _forget(session: FetchSession, topic: str | Uuid, partitions: Iterable[int]) -> int:
    """Partitions are not wanted any more; how many bytes less the session takes."""
    less_bytes = 0
    for index in partitions:
        if session.partitions.pop((topic, index), None) is not None:
            less_bytes += size_of((topic, index))
    return less_bytes


def _asked(request: FetchRequest, uses_ids: bool) -> Generator[None, None, Collection[WantedPartition]]:
    """All partitions of a request in its order; of one that is named twice the last counts, in the first's place."""
    found: dict[PartitionKey, WantedPartition] = {}
    for topic in request.topics:
        name = topic.topic_id if uses_ids else topic.topic
        yield
        for number, asked in enumerate(topic.partitions, 1):
            if not number % _PARTITIONS_PER_STEP:
                yield
            key = (name, asked.partition)
            found[key] = WantedPartition(key, asked)
    return found.values()


def _move_to_end(partitions: dict[PartitionKey, WantedPartition], those: Iterable[WantedPartition]) -> None:
    """Who got something comes last the next time."""
    for wanted in those:
        if partitions.pop(wanted.key, None) is not None:
            partitions[wanted.key] = wanted
