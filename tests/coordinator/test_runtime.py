"""The runtime that coordinators share: what is in records changes by replay alone, after the append.

The shard here is small: counters by name. An operation adds to one of them, and reads it first.
"""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import InvariantError
from barnabas.coordinator.results import (
    NO_RECORDS,
    CoordinatorRecord,
    CoordinatorResult,
    Now,
    Operation,
    ProducerWrite,
    Record,
    Records,
    Reply,
    WriteCallback,
)
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.timeline import SnapshotRegistry, TimelineDict
from barnabas.coordinator.timer import CoordinatorTimer
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.records.reading import iter_entries
from barnabas.wire.schema import Struct
from tests.coordinator.counter_messages import Count, CounterName
from tests.coordinator.driver import batch_of

NOW = Now(0, 0)
MAX_WRITE_BYTES = 400
NAMES = ("a", "b", "c")


class CounterShard:
    """A `CoordinatorShard` of counters; those that are at zero are deleted. `parked` is soft."""

    def __init__(self) -> None:
        self.snapshots = SnapshotRegistry()
        self.timer = CoordinatorTimer()
        self.replies: list[Reply] = []
        self.counts: TimelineDict[str, int] = TimelineDict(self.snapshots)
        self.parked: list[object] = []

    def deserialize(self, key: bytes, value: bytes | None) -> tuple[Struct, Struct | None]:
        return CounterName(name=key.decode()), None if value is None else Count(count=value.decode())

    def replay(self, key: Struct, value: Struct | None, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        assert isinstance(key, CounterName)
        if value is None:
            self.counts.delete(key.name)
        else:
            assert isinstance(value, Count)
            self.counts.set(key.name, int(value.count))

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None: ...

    def loaded(self, now: Now) -> list[Operation]:
        return []

    def unloaded(self, error: ErrorCode) -> None:
        self.replies += [Reply(token, Count(count=error.name)) for token in self.parked]

    def record(self, name: str, count: int) -> CoordinatorRecord:
        data = Record(name.encode(), str(count).encode() if count else None)
        return CoordinatorRecord(CounterName(name=name), Count(count=str(count)) if count else None, data)

    def add(self, name: str, amount: int, times: int, now: Now) -> CoordinatorResult:
        """In so many records as asked for, which are one write."""
        count = self.counts.get(name) or 0
        records = [self.record(name, max(count + amount * (each + 1), 0)) for each in range(times)]
        return CoordinatorResult(records, Count(count=str(max(count + amount * times, 0))))


class BrokenShard(CounterShard):
    """What the runtime is there to rule out: state that changes before its record is in the log."""

    def add(self, name: str, amount: int, times: int, now: Now) -> CoordinatorResult:
        result = super().add(name, amount, times, now)
        self.counts.set(name, amount)
        return result


class RuntimeMachine(RuleBasedStateMachine):
    """Operations, appends and commits as they come, some of which fail, against the log."""

    shard_class: type[CounterShard] = CounterShard

    @initialize()
    def begin(self) -> None:
        self.log = bytearray()
        self.next_offset = 0
        self.high_watermark = 0
        self.asked: set[object] = set()
        self.answers: dict[object, str] = {}
        self.runtime = self.loaded(self.log)

    def loaded(self, log: bytes | bytearray) -> CoordinatorRuntime[CounterShard]:
        runtime = CoordinatorRuntime(self.shard_class(), MAX_WRITE_BYTES)
        runtime.load(bytes(log))
        assert not runtime.finish_loading(NOW)
        return runtime

    @rule(name=st.sampled_from(NAMES), amount=st.sampled_from([-1, 1, 5]), times=st.sampled_from([1, 2, 40]))
    def add(self, name: str, amount: int, times: int) -> None:
        token = len(self.asked)
        self.asked.add(token)
        add = partial(self.runtime.shard.add, name, amount, times)
        operation = Operation(name, add, token, lambda error: Count(count=error.name))
        if self.runtime.must_append_before(operation):
            self.append()
        self.runtime.run(operation, NOW)
        self.hear()

    @rule(fails=st.booleans(), knows_high_watermark=st.booleans())
    def append(self, fails: bool = False, knows_high_watermark: bool = False) -> None:
        while self.runtime.has_unappended:
            before = self.latest()
            writes = self.runtime.next_batch()
            if fails:
                self.runtime.append_failed(ErrorCode.NOT_COORDINATOR, NOW)
                assert self.latest() == before
                break
            records = [record for write in writes for record in write.records]
            first_offset = self.next_offset
            self.log += batch_of(records, first_offset)
            self.next_offset += len(records)
            if knows_high_watermark:
                self.high_watermark = self.next_offset
            self.runtime.appended(first_offset, NOW, self.high_watermark)
            self.runtime.committed(self.high_watermark, NOW)
        self.hear()

    @rule()
    def commit(self) -> None:
        self.high_watermark = self.next_offset
        self.runtime.committed(self.high_watermark, NOW)
        self.hear()

    @rule(offset=st.integers(0, 100))
    def time_out(self, offset: int) -> None:
        self.runtime.not_committed(offset, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOW)
        self.hear()

    @rule(loses=st.booleans())
    def fail_over(self, loses: bool) -> None:
        """Another node, or this one again, has what is committed for certain, and perhaps more."""
        for token, response in self.runtime.unload(ErrorCode.NOT_COORDINATOR):
            self.note(token, response)
        if loses:
            self.log, self.next_offset = bytearray(self.committed_log()), self.high_watermark
        self.high_watermark = self.next_offset
        self.runtime = self.loaded(self.log)

    def committed_log(self) -> bytes:
        # What is committed always ends with a batch.
        size, offset = 0, 0
        for entry in iter_entries(bytes(self.log)):
            if entry.next_offset > self.high_watermark:
                break
            size, offset = size + entry.size_bytes, entry.next_offset
        assert offset == self.high_watermark
        return bytes(self.log[:size])

    def hear(self) -> None:
        for token, response in self.runtime.take_replies():
            self.note(token, response)

    def note(self, token: object, response: Struct) -> None:
        assert token in self.asked
        assert token not in self.answers, "answered twice"
        assert isinstance(response, Count)
        self.answers[token] = response.count

    def latest(self) -> dict[str, int]:
        return dict(self.runtime.shard.counts.latest())

    @invariant()
    def state_is_what_the_log_says(self) -> None:
        if not hasattr(self, "runtime"):
            return
        assert self.latest() == self.loaded(self.log).shard.counts.latest()
        assert len(self.runtime.shard.counts) == len(self.latest())
        for name in NAMES:
            assert self.runtime.shard.counts.get(name) == self.latest().get(name)

    @invariant()
    def readers_see_what_is_committed(self) -> None:
        if hasattr(self, "runtime"):
            expected = self.loaded(self.committed_log()).shard.counts.latest()
            assert self.runtime.shard.counts.committed == expected

    @invariant()
    def who_was_not_answered_waits_for_a_write(self) -> None:
        if hasattr(self, "runtime"):
            assert {*self.runtime.waiting_tokens} == self.asked - {*self.answers}

    def teardown(self) -> None:
        if hasattr(self, "runtime"):
            self.append()
            self.commit()
            assert self.asked == {*self.answers}
            assert not self.runtime.has_uncommitted


RuntimeMachine.TestCase.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)
TestRuntimeMachine = RuntimeMachine.TestCase


def test_state_that_changes_before_the_append_is_found_out() -> None:
    machine = RuntimeMachine()
    machine.shard_class = BrokenShard
    machine.begin()
    machine.add("a", 5, 1)
    with pytest.raises(AssertionError):
        machine.state_is_what_the_log_says()


# One by one


def run(runtime: CoordinatorRuntime[CounterShard], operation: Operation) -> None:
    assert not runtime.run(operation, NOW)


def loaded_runtime() -> CoordinatorRuntime[CounterShard]:
    runtime = CoordinatorRuntime(CounterShard(), MAX_WRITE_BYTES)
    runtime.finish_loading(NOW)
    return runtime


def test_an_operation_sees_what_those_before_it_wrote() -> None:
    runtime = loaded_runtime()
    add = Operation("a", partial(runtime.shard.add, "a", 1, 1), "first")
    run(runtime, add)
    assert runtime.must_append_before(add)
    assert runtime.must_append_before(Operation(None, lambda _: CoordinatorResult()))
    assert not runtime.must_append_before(Operation("b", lambda _: CoordinatorResult()))
    with pytest.raises(InvariantError, match="must see the records"):
        runtime.run(add, NOW)
    runtime.next_batch()
    runtime.appended(0, NOW)
    run(runtime, add._replace(token="second"))
    runtime.next_batch()
    runtime.appended(1, NOW)
    runtime.committed(2, NOW)
    assert [reply.token for reply in runtime.take_replies()] == ["first", "second"]
    assert runtime.shard.counts.committed == {"a": 2}


def test_blind_operations_share_a_batch_and_others_wait_for_it() -> None:
    runtime = loaded_runtime()
    blind = Operation("a", partial(runtime.shard.add, "a", 1, 1), is_blind=True)
    run(runtime, blind)
    run(runtime, blind)
    assert runtime.must_append_before(blind._replace(is_blind=False))
    assert len(runtime.next_batch()) == 2


class Noting(WriteCallback):
    def __init__(self, notes: list[str]) -> None:
        self.notes = notes

    def appended(self, now: Now) -> Records:
        self.notes.append("appended")
        return NO_RECORDS

    def committed(self, now: Now) -> Records:
        self.notes.append("committed")
        return NO_RECORDS

    def failed(self, error: ErrorCode, now: Now) -> Records:
        self.notes.append(error.name)
        return NO_RECORDS


def test_a_write_that_fits_into_no_batch_fails_at_once_and_changes_nothing() -> None:
    runtime = loaded_runtime()
    notes: list[str] = []
    result = runtime.shard.add("a", 1, 40, NOW)
    result.callback = Noting(notes)
    run(runtime, Operation("a", lambda _: result, "token", lambda error: Count(count=error.name)))
    assert notes == ["UNKNOWN_SERVER_ERROR"]
    assert runtime.take_replies() == [Reply("token", Count(count="UNKNOWN_SERVER_ERROR"))]
    assert not runtime.has_unappended
    assert not runtime.shard.counts.latest()


def test_a_write_that_nobody_waits_for_any_longer_is_still_committed() -> None:
    runtime = loaded_runtime()
    notes: list[str] = []
    result = runtime.shard.add("a", 1, 1, NOW)
    result.callback = Noting(notes)
    run(runtime, Operation("a", lambda _: result, "token", lambda error: Count(count=error.name)))
    runtime.next_batch()
    runtime.appended(0, NOW)
    runtime.not_committed(1, ErrorCode.COORDINATOR_NOT_AVAILABLE, NOW)
    assert runtime.take_replies() == [Reply("token", Count(count="COORDINATOR_NOT_AVAILABLE"))]
    assert (dict(runtime.shard.counts.latest()), runtime.shard.counts.committed) == ({"a": 1}, {})
    runtime.committed(1, NOW)
    assert runtime.take_replies() == []
    assert runtime.shard.counts.committed == {"a": 1}
    assert notes == ["appended", "COORDINATOR_NOT_AVAILABLE"]


def test_what_follows_a_write_is_answered_after_it() -> None:
    runtime = loaded_runtime()
    run(runtime, Operation("a", partial(runtime.shard.add, "a", 1, 1), "written"))
    later = CoordinatorResult(response=Count(count="later"), after_writes=True)
    run(runtime, Operation("b", lambda _: later, "waits"))
    run(runtime, Operation("b", lambda _: CoordinatorResult(response=Count(count="now")), "at once"))
    assert [reply.token for reply in runtime.take_replies()] == ["at once"]
    runtime.next_batch()
    runtime.appended(0, NOW)
    runtime.committed(1, NOW)
    assert [reply.token for reply in runtime.take_replies()] == ["written", "waits"]


@pytest.mark.parametrize("is_first", [True, False])
def test_what_a_producer_is_refused_is_not_told_to_those_who_only_wait(is_first: bool) -> None:
    def told(error: ErrorCode) -> Count:
        return Count(count=error.name)

    runtime = loaded_runtime()
    if not is_first:
        run(runtime, Operation("a", partial(runtime.shard.add, "a", 1, 1), "before"))
        runtime.next_batch()
        runtime.appended(0, NOW)
    of_producer = runtime.shard.add("b", 1, 1, NOW)
    of_producer.producer = ProducerWrite(7, 0)
    run(runtime, Operation("b", lambda _: of_producer, "producer", told))
    later = CoordinatorResult(response=Count(count="later"), after_writes=True)
    run(runtime, Operation("c", lambda _: later, "waits", told))
    assert len(runtime.next_batch()) == 1
    runtime.append_failed(ErrorCode.INVALID_PRODUCER_EPOCH, NOW)
    refused, answered = Reply("producer", Count(count="INVALID_PRODUCER_EPOCH")), Reply("waits", Count(count="later"))
    if is_first:
        assert runtime.take_replies() == [refused, answered]
        return
    assert runtime.take_replies() == [refused]
    runtime.committed(1, NOW)
    assert runtime.take_replies() == [Reply("before", Count(count="1")), answered]


def test_unloading_answers_everyone_and_stops_the_timers() -> None:
    runtime = loaded_runtime()
    runtime.shard.parked.append("parked")
    runtime.shard.timer.schedule(("x",), 5, Operation("a", lambda _: CoordinatorResult()))
    run(runtime, Operation("a", partial(runtime.shard.add, "a", 1, 1), "on its way"))
    runtime.next_batch()
    runtime.appended(0, NOW)
    run(runtime, Operation("b", partial(runtime.shard.add, "b", 1, 1), "not appended"))
    replies = runtime.unload(ErrorCode.NOT_COORDINATOR)
    assert [reply.token for reply in replies] == ["on its way", "not appended", "parked"]
    assert runtime.next_deadline_ms is None
