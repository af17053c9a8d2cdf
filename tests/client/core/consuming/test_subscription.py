"""What a consumer reads, and where the program is in it."""

from __future__ import annotations

import re

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.errors import SettingsError
from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import Chunk, ConsumerRecord
from barnabas.client.core.consuming.fetch_buffer import FetchBuffer
from barnabas.client.core.consuming.offsets import (
    EARLIEST,
    LATEST,
    NO_RESET,
    OffsetAndMetadata,
    ResetKind,
    ResetStrategy,
)
from barnabas.client.core.consuming.partition_state import FetchState, Position
from barnabas.client.core.consuming.subscription import Mode, Subscription
from barnabas.client.errors import WrongUseError
from tests.client.core.consuming.logs import T0, T1, batch, fetch_state_of, fetched

OTHER = TopicPartition("orders", 0)


def reading(*partitions: TopicPartition, at: int = 0) -> Subscription:
    subscription = Subscription(EARLIEST)
    subscription.assign(partitions)
    for partition in partitions:
        subscription.seek(partition, at)
    return subscription


# Offsets and resets


def test_resets_are_read_as_the_setting_writes_them() -> None:
    assert ResetStrategy.parse("earliest") == EARLIEST
    assert ResetStrategy.parse("latest") == LATEST
    assert ResetStrategy.parse("none") == NO_RESET
    day = ResetStrategy.parse("by_duration:P1DT2H3M4.5S")
    assert day == ResetStrategy(ResetKind.BY_DURATION, (26 * 3600 + 3 * 60) * 1000 + 4500)
    assert (EARLIEST.timestamp_ms(9), LATEST.timestamp_ms(9)) == (-2, -1)
    assert ResetStrategy.parse("by_duration:PT1S").timestamp_ms(5000) == 4000
    assert ResetStrategy.parse("by_duration:P1D").timestamp_ms(5000) == 0


@pytest.mark.parametrize(
    "text", ["", "first", "none:", "earliest:P1D", "by_duration", "by_duration:P", "by_duration:PT"]
)
def test_other_resets_are_refused(text: str) -> None:
    with pytest.raises(SettingsError, match=r"auto\.offset\.reset"):
        ResetStrategy.parse(text)


def test_negative_offsets_are_refused() -> None:
    with pytest.raises(ValueError, match="0 or more, not -1"):
        OffsetAndMetadata(-1)


# Modes


def test_modes_exclude_each_other_until_unsubscribed() -> None:
    subscription = Subscription(EARLIEST)
    subscription.subscribe(["clicks"])
    with pytest.raises(WrongUseError, match=r"topics by name; call unsubscribe\(\) before it can read partitions"):
        subscription.assign([T0])
    with pytest.raises(WrongUseError, match="by pattern"):
        subscription.subscribe_pattern("c.*")
    subscription.unsubscribe()
    subscription.assign([T0])
    with pytest.raises(WrongUseError, match="partitions by hand"):
        subscription.subscribe(["clicks"])
    with pytest.raises(WrongUseError, match="no group"):
        subscription.assigned_from_group([T0])
    subscription.assign([])
    assert subscription.mode is Mode.NONE


def test_a_lone_string_is_not_taken_for_a_list_of_letters() -> None:
    with pytest.raises(TypeError, match=r"\['clicks'\]"):
        Subscription(EARLIEST).subscribe("clicks")
    with pytest.raises(ValueError, match="not empty"):
        Subscription(EARLIEST).subscribe([""])


def test_patterns_match_whole_names() -> None:
    subscription = Subscription(EARLIEST)
    subscription.subscribe_pattern(re.compile("clicks|orders"))
    assert subscription.matches("clicks")
    assert not subscription.matches("clicks2")
    assert subscription.set_matched(["clicks"])
    assert not subscription.set_matched(["clicks"])
    assert subscription.fits([T0, OTHER])
    assert subscription.topics == {"clicks"}


def test_the_leader_of_a_group_needs_the_topics_of_all() -> None:
    subscription = Subscription(EARLIEST)
    subscription.subscribe(["clicks"])
    assert not subscription.set_group_topics(["clicks"])
    assert subscription.set_group_topics(["clicks", "orders"])
    assert subscription.group_subscription == {"clicks", "orders"}
    subscription.reset_group_topics()
    assert subscription.group_subscription == {"clicks"}


# Assignments


def test_partitions_that_stay_keep_their_position_and_pause() -> None:
    subscription = reading(T0, T1, at=5)
    subscription.pause([T1])
    version = subscription.assignment_version
    subscription.assign([T1, OTHER])
    assert subscription.assigned() == [T1, OTHER]
    assert subscription.position(T1) == Position(5)
    assert subscription.paused() == [T1]
    assert subscription.position(OTHER) is None
    assert subscription.assignment_version == version + 1
    with pytest.raises(WrongUseError, match="clicks-0 is not assigned"):
        subscription.position(T0)


def test_what_is_about_to_be_revoked_is_not_read_but_can_be_committed() -> None:
    subscription = Subscription(EARLIEST)
    subscription.subscribe(["clicks"])
    subscription.assigned_from_group([T0, T1])
    for partition in (T0, T1):
        subscription.seek(partition, 3)
    subscription.mark_pending_revocation([T0])
    assert not subscription.state(T0).is_fetchable
    assert subscription.state(T1).is_fetchable
    assert set(subscription.consumed()) == {T0, T1}
    subscription.revoke([T0])
    assert subscription.assigned() == [T1]
    subscription.assigned_from_group([T1, T0])
    assert subscription.position(T1) == Position(3)
    assert subscription.position(T0) is None


def test_a_revocation_that_did_not_happen_is_forgotten_with_the_next_assignment() -> None:
    subscription = Subscription(EARLIEST)
    subscription.subscribe(["clicks"])
    subscription.assigned_from_group([T0])
    subscription.seek(T0, 1)
    subscription.mark_pending_revocation([T0])
    subscription.assigned_from_group([T0])
    assert subscription.state(T0).is_fetchable


# Positions


def test_a_reset_without_a_strategy_is_refused() -> None:
    subscription = Subscription(NO_RESET)
    subscription.assign([T0])
    with pytest.raises(ValueError, match="none"):
        subscription.request_reset(T0)
    subscription.request_reset(T0, LATEST)
    assert fetch_state_of(subscription.state(T0)) is FetchState.AWAIT_RESET
    assert subscription.position(T0) is None
    assert subscription.consumed() == {}


def test_lag_counts_to_the_end_that_the_reader_can_see() -> None:
    subscription = reading(T0, at=4)
    assert subscription.lag(T0, read_committed=False) is None
    state = subscription.state(T0)
    state.high_watermark, state.last_stable_offset = 10, 7
    assert subscription.lag(T0, read_committed=False) == 6
    assert subscription.lag(T0, read_committed=True) == 3
    subscription.seek(T0, 100)
    assert subscription.lag(T0, read_committed=False) == 0


def test_every_change_is_told() -> None:
    told: list[int] = []
    subscription = Subscription(EARLIEST)
    subscription.on_change(lambda: told.append(1))
    subscription.assign([T0])
    subscription.assign([T0])  # nothing new
    subscription.seek(T0, 1)
    subscription.pause([T0])  # nothing more to fetch
    subscription.resume([T0])
    subscription.request_reset(T0)
    assert len(told) == 4


NAMES = [TopicPartition("t", number) for number in range(3)]


class ReadingProgram(RuleBasedStateMachine):
    """A program that iterates, polls lists, seeks, pauses and gets other partitions, against a plain account of what it
    was given and what it came back from.
    """

    @initialize()
    def begin(self) -> None:
        self.subscription = Subscription(EARLIEST)
        self.buffer = FetchBuffer(self.subscription)
        self.position: dict[TopicPartition, int] = {}
        self.consumed: dict[TopicPartition, int] = {}
        self.held: dict[TopicPartition, int] = {}  # where the program is once it comes back
        self.chunk: Chunk | None = None

    def is_known(self, partition: TopicPartition) -> bool:
        return partition in self.position

    @rule(names=st.lists(st.sampled_from(NAMES), unique=True, min_size=1))
    def assign(self, names: list[TopicPartition]) -> None:
        self.subscription.assign(names)
        for account in (self.position, self.consumed, self.held):
            for gone in [name for name in account if name not in names]:
                del account[gone]

    @rule(name=st.sampled_from(NAMES), offset=st.integers(0, 50))
    def seek(self, name: TopicPartition, offset: int) -> None:
        if self.subscription.is_assigned(name):
            self.subscription.seek(name, offset)
            self.position[name] = self.consumed[name] = offset
            self.held.pop(name, None)

    @rule(name=st.sampled_from(NAMES))
    def reset(self, name: TopicPartition) -> None:
        if self.subscription.is_assigned(name):
            self.subscription.request_reset(name)
            for account in (self.position, self.consumed, self.held):
                account.pop(name, None)

    @rule(name=st.sampled_from(NAMES), paused=st.booleans())
    def pause(self, name: TopicPartition, paused: bool) -> None:
        if self.subscription.is_assigned(name):
            (self.subscription.pause if paused else self.subscription.resume)([name])

    @rule(name=st.sampled_from(NAMES), count=st.integers(1, 5))
    def fetch(self, name: TopicPartition, count: int) -> None:
        state = self.subscription.get(name)
        if state is None or not state.has_position:
            return
        data = bytes(batch(state.fetch.offset, [b"x"] * count))
        chunk = Chunk(*name, fetched(data, at=state.fetch.offset), len(data))
        self.buffer.add(name, state, chunk)
        state.fetch = Position(state.fetch.offset + count, 0)

    @rule()
    def prune(self) -> None:
        self.buffer.prune()

    def came_back(self) -> None:
        self.subscription.begin_poll()
        self.consumed.update(self.held)
        self.held.clear()

    @rule(limit=st.integers(1, 6))
    def poll(self, limit: int) -> None:
        self.came_back()
        taken: list[ConsumerRecord] = []
        while len(taken) < limit and (chunk := self.buffer.next_chunk()) is not None:
            taken += chunk.take(limit - len(taken))
        for record in taken:
            self.given(TopicPartition(record.topic, record.partition), record.offset)
        self.chunk = None

    @rule()
    def iterate(self) -> None:
        record = next(self.chunk, None) if self.chunk is not None else None
        if record is None:
            self.came_back()
            self.chunk = self.buffer.next_chunk()
            record = next(self.chunk, None) if self.chunk is not None else None
        else:
            # The same chunk goes on: the program is done with its last record; others it got before keep their state.
            name = TopicPartition(record.topic, record.partition)
            if name in self.held:
                self.consumed[name] = self.held.pop(name)
        if record is not None:
            self.given(TopicPartition(record.topic, record.partition), record.offset)

    def given(self, name: TopicPartition, offset: int) -> None:
        assert offset == self.position[name], "records come in order, without gaps, from the position on"
        assert name not in self.subscription.paused()
        self.position[name] = self.held[name] = offset + 1

    @precondition(lambda self: hasattr(self, "subscription"))
    @invariant()
    def accounts_agree(self) -> None:
        found = {name: each.offset for name, each in self.subscription.positions().items()}
        assert found == self.position
        consumed = {name: each.offset for name, each in self.subscription.consumed().items()}
        assert consumed == self.consumed
        waiting = sum(state.queued_bytes for state in self.subscription.states().values())
        assert waiting >= 0


ReadingProgram.TestCase.settings = settings(max_examples=120, stateful_step_count=30, deadline=None)
test_a_program_gets_each_record_once_and_commits_what_it_is_done_with = ReadingProgram.TestCase
