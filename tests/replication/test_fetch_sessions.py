"""Fetch sessions: the rules one by one, and any sequence of them against a naive client and server."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.replication.fetch_sessions import (
    DEFAULT_BYTES,
    FetchSessionCache,
    SessionFetch,
    WantedPartition,
    size_of,
)
from barnabas.wire.fetch_session_epoch import MAX_EPOCH, next_epoch
from barnabas.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    ForgottenTopic,
    PartitionData,
    ReplicaState,
)

MINUTE_MS = 60_000


def request(
    wanted: dict[int, int], session_id: int = 0, epoch: int = 0, *, forgotten: tuple[int, ...] = (), **how: Any
) -> FetchRequest:
    """Partitions of the topic "t" with the offsets that are asked for."""
    named: dict[str, Any] = how.pop("named", {"topic": "t"})
    partitions = [
        FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1000)
        for number, offset in wanted.items()
    ]
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, **how}
    return FetchRequest(
        session_id=session_id,
        session_epoch=epoch,
        topics=[FetchTopic(partitions=partitions, **named)] if partitions else [],
        forgotten_topics_data=[ForgottenTopic(partitions=list(forgotten), **named)] if forgotten else [],
        **fields,
    )


def data(
    number: int, high_watermark: int, *, log_start: int = 0, error: int = 0, records: bytes = b""
) -> PartitionData:
    return PartitionData(
        partition_index=number,
        error_code=error,
        high_watermark=high_watermark,
        log_start_offset=log_start,
        records=records,
    )


def cache(slots: int = 10) -> FetchSessionCache:
    return FetchSessionCache(slots, Random(1))


def answer(fetch: SessionFetch, results: dict[int, PartitionData], now_ms: int = 0) -> tuple[list[int], int]:
    """Which partitions are told of, in order, and the session's id."""
    assert not fetch.error
    told, with_records = [], []
    for wanted in list(fetch.wanted):
        result = results[wanted.key[1]]
        if fetch.is_news(wanted, result):
            told.append(wanted.key[1])
            if result.records:
                with_records.append(wanted)
    error, session_id = fetch.finish(with_records, now_ms)
    assert not error
    return told, session_id


def begun(sessions: FetchSessionCache, partitions: int = 1, now_ms: int = 0, **how: Any) -> int:
    """A session with so many partitions; its id, or 0."""
    fetch = sessions.begin(request(dict.fromkeys(range(partitions), 0), **how), uses_ids=False, now_ms=now_ms)
    return answer(fetch, {number: data(number, 0) for number in range(partitions)}, now_ms)[1]


def error_of(sessions: FetchSessionCache, *arguments: Any, uses_ids: bool = False, **how: Any) -> ErrorCode:
    return sessions.begin(request(*arguments, **how), uses_ids=uses_ids, now_ms=0).error


def test_a_full_fetch_begins_a_session_and_an_incremental_one_tells_the_news() -> None:
    sessions = cache()
    first = sessions.begin(request({0: 0, 1: 0, 2: 0}), uses_ids=False, now_ms=0)
    told, session_id = answer(first, {0: data(0, 5), 1: data(1, 5), 2: data(2, 5)})
    assert (told, session_id > 0) == ([0, 1, 2], True)
    second = sessions.begin(request({1: 7}, session_id, 1), uses_ids=False, now_ms=0)
    assert [(each.key[1], each.fetch_offset) for each in second.wanted] == [(0, 0), (1, 7), (2, 0)]
    told, again = answer(second, {0: data(0, 5), 1: data(1, 6), 2: data(2, 5, log_start=3)})
    assert (told, again) == ([1, 2], session_id)
    third = sessions.begin(request({}, session_id, 2), uses_ids=False, now_ms=0)
    assert answer(third, {0: data(0, 5), 1: data(1, 6), 2: data(2, 5, log_start=3)}) == ([], session_id)


def test_who_got_records_comes_last_the_next_time() -> None:
    sessions = cache()
    session_id = begun(sessions, 3)
    second = sessions.begin(request({}, session_id, 1), uses_ids=False, now_ms=0)
    answer(second, {0: data(0, 1, records=b"x"), 1: data(1, 0), 2: data(2, 1)})
    third = sessions.begin(request({}, session_id, 2), uses_ids=False, now_ms=0)
    assert [each.key[1] for each in third.wanted] == [1, 2, 0]


def test_an_error_is_always_told_and_so_is_its_end() -> None:
    sessions = cache()
    session_id = begun(sessions)
    for epoch, (result, is_told) in enumerate(
        [(data(0, -1, error=6), True), (data(0, -1, error=6), True), (data(0, 0), True), (data(0, 0), False)], 1
    ):
        fetch = sessions.begin(request({}, session_id, epoch), uses_ids=False, now_ms=0)
        assert answer(fetch, {0: result})[0] == ([0] if is_told else [])


@pytest.mark.parametrize("epoch", [2, 3, 100])
def test_another_epoch_than_the_next_is_refused_and_the_session_goes_on(epoch: int) -> None:
    sessions = cache()
    session_id = begun(sessions)
    assert error_of(sessions, {}, session_id, epoch) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert error_of(sessions, {}, session_id, 1) is ErrorCode.NONE
    assert error_of(sessions, {}, session_id, 1) is ErrorCode.INVALID_FETCH_SESSION_EPOCH


def test_unknown_sessions_and_mixed_names_are_refused() -> None:
    sessions = cache()
    assert error_of(sessions, {}, 77, 1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    session_id = begun(sessions)
    by_id = {"topic_id": Uuid(bytes(range(16)))}
    assert error_of(sessions, {1: 0}, session_id, 1, uses_ids=True, named=by_id) is (
        ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
    )


def test_epochs_go_on_at_1_after_the_largest() -> None:
    assert (next_epoch(1), next_epoch(MAX_EPOCH - 1), next_epoch(MAX_EPOCH)) == (2, MAX_EPOCH, 1)
    sessions = cache()
    session_id = begun(sessions)
    session = sessions.get(session_id)
    assert session is not None
    session.epoch = MAX_EPOCH
    assert error_of(sessions, {}, session_id, MAX_EPOCH) is ErrorCode.NONE
    assert error_of(sessions, {}, session_id, 1) is ErrorCode.NONE


def test_minus_1_ends_a_session_and_0_replaces_it() -> None:
    sessions = cache()
    first = begun(sessions)
    assert begun(sessions, session_id=first, epoch=-1) == 0
    assert len(sessions) == 0
    second = begun(sessions)
    third = begun(sessions, session_id=second, epoch=0)
    assert sessions.get(second) is None
    assert sessions.get(third) is not None


def test_a_session_without_partitions_ends() -> None:
    sessions = cache()
    session_id = begun(sessions, 2)
    last = sessions.begin(request({}, session_id, 1, forgotten=(0, 1)), uses_ids=False, now_ms=0)
    assert answer(last, {}) == ([], 0)
    assert len(sessions) == 0
    assert begun(sessions, 0) == 0


def test_an_answer_that_was_overtaken_is_an_error() -> None:
    sessions = cache()
    session_id = begun(sessions)
    slow = sessions.begin(request({}, session_id, 1), uses_ids=False, now_ms=0)
    sessions.begin(request({}, session_id, 2), uses_ids=False, now_ms=0)
    assert slow.finish([], 0) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, 0)


def test_a_partition_that_is_added_anew_is_told_of() -> None:
    sessions = cache()
    session_id = begun(sessions, 2)
    second = sessions.begin(request({}, session_id, 1, forgotten=(1,)), uses_ids=False, now_ms=0)
    assert answer(second, {0: data(0, 0)})[0] == []
    third = sessions.begin(request({1: 0}, session_id, 2), uses_ids=False, now_ms=0)
    assert answer(third, {0: data(0, 0), 1: data(1, 0)})[0] == [1]


# Room


def test_without_room_there_is_no_session() -> None:
    sessions = cache(1)
    assert begun(sessions) > 0
    assert begun(sessions, 9) == 0
    assert begun(cache(0)) == 0


def test_the_silent_give_way_after_two_minutes() -> None:
    sessions = cache(2)
    silent, busy = begun(sessions), begun(sessions)
    sessions.begin(request({}, busy, 1), uses_ids=False, now_ms=2 * MINUTE_MS)
    assert begun(sessions, now_ms=2 * MINUTE_MS) == 0
    assert begun(sessions, now_ms=2 * MINUTE_MS + 1) > 0
    assert (sessions.get(silent), sessions.get(busy) is not None) == (None, True)


def test_old_small_sessions_give_way_to_larger_ones() -> None:
    sessions = cache(2)
    small, large = begun(sessions, 2), begun(sessions, 5)
    later_ms = 2 * MINUTE_MS + 1
    for session_id in (small, large):
        sessions.begin(request({}, session_id, 1), uses_ids=False, now_ms=later_ms)
    assert begun(sessions, 1, now_ms=later_ms) == 0
    assert begun(sessions, 3, now_ms=later_ms) > 0
    assert (sessions.get(small), sessions.get(large) is not None) == (None, True)


def test_clients_give_way_to_followers_at_once_and_never_the_other_way_round() -> None:
    sessions = cache(2)
    client = begun(sessions, 5)
    follower = begun(sessions, 1, replica_id=2)
    assert begun(sessions, 1, replica_state=ReplicaState(replica_id=3)) > 0
    assert (sessions.get(client), sessions.get(follower) is not None) == (None, True)
    # Those that are left are worth more than any client.
    assert begun(sessions, 99, now_ms=MINUTE_MS) == 0


# Any sequence


def sized(max_partitions: int, slots: int = 100) -> FetchSessionCache:
    """Sessions with bytes for so many partitions of the topic "t"."""
    return FetchSessionCache(slots, Random(1), max_bytes=max_partitions * size_of(("t", 0)))


def counted(sessions: FetchSessionCache) -> int:
    """What the sessions take, by looking at each."""
    return sum(size_of(key) for session in sessions._sessions.values() for key in session.partitions)


def test_unknown_partitions_are_remembered_only_within_bounds() -> None:
    """Requests that name very many partitions leave nothing behind; what is modest is remembered."""
    max_bytes = DEFAULT_BYTES // 32
    sessions = FetchSessionCache(1000, Random(1), max_bytes=max_bytes)
    for number in range(4):
        assert begun(sessions, 130_000 // 32, named={"topic": f"no-such-topic-{number}"}) == 0
    assert sessions.size_bytes == 0
    while begun(sessions, 600, named={"topic": "no-such-topic"}):
        pass
    assert max_bytes * 3 // 4 < sessions.size_bytes == counted(sessions) <= max_bytes


def test_long_names_count() -> None:
    sessions = FetchSessionCache(1000, Random(1), max_bytes=10_000_000)
    assert begun(sessions, 1000) > 0
    assert begun(sessions, 1000, named={"topic": "t" * 2000}) == 0
    assert begun(sessions, 1000, named={"topic": "\N{SNOWMAN}" * 300}) == 0


def test_when_bytes_are_short_the_largest_gives_way_to_those_half_as_large() -> None:
    sessions = sized(80)
    large = [begun(sessions, size) for size in (8, 10, 9, *[10] * 5)]
    assert all(large)
    assert begun(sessions, 5) > 0
    assert sessions.get(large[1]) is None
    assert len(sessions) == 8
    assert counted(sessions) == sessions.size_bytes


def test_a_session_as_large_as_the_others_finds_no_room_when_bytes_are_short() -> None:
    sessions = sized(80)
    assert all(begun(sessions, 10) for _ in range(8))
    assert begun(sessions, 6) == 0
    assert len(sessions) == 8
    assert begun(sessions, 6, 3 * MINUTE_MS) > 0, "who was silent for two minutes gives way"
    assert len(sessions) == 8


def test_a_follower_gets_the_bytes_of_clients_but_no_more_than_half() -> None:
    sessions = sized(80)
    clients = [begun(sessions, 10) for _ in range(8)]
    assert begun(sessions, 41, replica_id=2) == 0
    assert all(sessions.get(each) for each in clients), "nobody gives way in vain"
    assert begun(sessions, 40, replica_id=2) > 0
    assert len(sessions) == 5
    assert begun(sessions, 40, replica_id=3) > 0
    assert begun(sessions, 40, replica_id=4) == 0
    assert len(sessions) == 2


def test_a_session_that_outgrows_its_part_is_given_up() -> None:
    sessions = sized(80)
    session_id = begun(sessions, 9)
    assert error_of(sessions, {9: 0}, session_id, 1) is ErrorCode.NONE
    assert error_of(sessions, {10: 0, 11: 0}, session_id, 2, forgotten=(0, 1)) is ErrorCode.NONE
    assert sessions.size_bytes == counted(sessions) == 10 * size_of(("t", 0))
    assert error_of(sessions, {12: 0}, session_id, 3) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert (len(sessions), sessions.size_bytes) == (0, 0)


def test_a_session_that_grows_when_bytes_are_short_is_given_up_or_takes_those_of_larger_ones() -> None:
    sessions = sized(80)
    small, *large = (begun(sessions, size) for size in (4, 10, 10, 10, 10, 10, 10, 10, 6))
    assert all(large)
    assert error_of(sessions, {4: 0}, small, 1) is ErrorCode.NONE
    assert len(sessions) == 8, "one of the largest gave way"
    assert begun(sessions, 5) > 0
    assert begun(sessions, 0) == 0
    grown = dict.fromkeys(range(5, 11), 0)
    assert error_of(sessions, grown, small, 2) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert counted(sessions) == sessions.size_bytes


class Sessions(RuleBasedStateMachine):
    """One client of one node, whose partitions move. The client knows only what answers tell it.

    After every answer that arrives, what the client knows of the partitions that it asks for is what the node has.
    """

    @initialize(slots=st.integers(0, 2), max_bytes=st.sampled_from([DEFAULT_BYTES, 16 * size_of(("t", 0))]))
    def start(self, slots: int, max_bytes: int) -> None:
        self.sessions = FetchSessionCache(slots, Random(3), eviction_ms=1000, max_bytes=max_bytes)
        self.now_ms = 0
        #: What the node has: high watermark, log start, error.
        self.partitions = {number: [0, 0, 0] for number in range(4)}
        #: What the client asks for, and what it was told.
        self.wanted: dict[int, int] = {0: 0, 1: 0}
        self.known: dict[int, tuple[int, int]] = {}
        self.session_id, self.epoch = 0, 0
        #: What the node was told since the session began, the naive way.
        self.pending: dict[int, int] = dict(self.wanted)
        self.forgotten: set[int] = set()

    @invariant()
    def bytes_are_counted(self) -> None:
        assert self.sessions.size_bytes == counted(self.sessions)

    @rule(number=st.integers(0, 3), by=st.integers(1, 3))
    def write(self, number: int, by: int) -> None:
        self.partitions[number][0] += by

    @rule(number=st.integers(0, 3))
    def delete_records(self, number: int) -> None:
        self.partitions[number][1] = self.partitions[number][0]

    @rule(number=st.integers(0, 3), error=st.sampled_from([0, 6, 74]))
    def fail(self, number: int, error: int) -> None:
        self.partitions[number][2] = error

    @rule(number=st.integers(0, 3), offset=st.integers(0, 9))
    def want(self, number: int, offset: int) -> None:
        self.wanted[number] = self.pending[number] = offset
        self.forgotten.discard(number)

    @rule(number=st.integers(0, 3))
    def forget(self, number: int) -> None:
        if self.wanted.pop(number, None) is not None:
            self.known.pop(number, None)
            self.pending.pop(number, None)
            self.forgotten.add(number)

    @rule(by_ms=st.sampled_from([1, 600, 5000]))
    def pass_time(self, by_ms: int) -> None:
        self.now_ms += by_ms

    @rule(size=st.integers(1, 5), is_follower=st.booleans())
    def another_client_comes(self, size: int, is_follower: bool) -> None:
        begun(self.sessions, size, self.now_ms, replica_id=2 if is_follower else -1)

    @rule(records=st.sets(st.integers(0, 3)), is_lost=st.booleans(), ends=st.booleans())
    def fetch(self, records: set[int], is_lost: bool, ends: bool) -> None:
        is_full = self.epoch <= 0
        asked = self.wanted if is_full else self.pending
        epoch = -1 if ends and is_full else self.epoch
        forgotten = () if is_full else tuple(sorted(self.forgotten))
        fetch = self.sessions.begin(
            request(dict(asked), self.session_id, epoch, forgotten=forgotten), uses_ids=False, now_ms=self.now_ms
        )
        if fetch.error:
            assert not is_full
            assert fetch.error in (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            self._start_over()
            return
        assert {each.key[1]: each.fetch_offset for each in fetch.wanted} == self.wanted
        told, with_records = self._results(fetch, records)
        error, session_id = fetch.finish(with_records, self.now_ms)
        assert not error
        if is_lost:
            return  # the connection broke: the client asks again with the epoch that the node has used
        self._take(told, session_id, is_full)

    def _results(
        self, fetch: SessionFetch, records: set[int]
    ) -> tuple[dict[int, PartitionData], list[WantedPartition]]:
        told: dict[int, PartitionData] = {}
        with_records = []
        for wanted in list(fetch.wanted):
            number = wanted.key[1]
            high_watermark, log_start, error = self.partitions[number]
            result = data(number, high_watermark, log_start=log_start, records=b"x" if number in records else b"")
            if error:
                result = data(number, -1, log_start=-1, error=error)
            if fetch.is_news(wanted, result):
                told[number] = result
                if result.records:
                    with_records.append(wanted)
            else:
                assert not fetch.is_full
                assert not result.records
        return told, with_records

    def _take(self, told: dict[int, PartitionData], session_id: int, is_full: bool) -> None:
        if is_full:
            assert set(told) == set(self.wanted)
        for number, result in told.items():
            if result.error_code:
                self.known.pop(number, None)
            else:
                self.known[number] = (result.high_watermark, result.log_start_offset)
        for number in self.wanted:
            high_watermark, log_start, error = self.partitions[number]
            if error:
                assert number in told
            else:
                assert self.known[number] == (high_watermark, log_start)
        self.pending.clear()
        self.forgotten.clear()
        if session_id:
            assert is_full or session_id == self.session_id
            self.session_id, self.epoch = session_id, 1 if is_full else self.epoch + 1
        else:
            self._start_over()

    def _start_over(self) -> None:
        self.session_id, self.epoch = 0, 0
        self.pending = dict(self.wanted)
        self.forgotten.clear()
        self.known.clear()

    @precondition(lambda self: self.session_id)
    @rule(replaces=st.booleans())
    def leave(self, replaces: bool) -> None:
        """End the session, or ask for a new one in its place."""
        if replaces:
            self.epoch = 0
        else:
            self.sessions.begin(request({}, self.session_id, -1), uses_ids=False, now_ms=self.now_ms)
            assert self.sessions.get(self.session_id) is None
            self._start_over()


TestAnySequence = Sessions.TestCase
TestAnySequence.settings = settings(max_examples=150, stateful_step_count=40, deadline=None)
