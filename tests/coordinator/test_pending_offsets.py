"""What open transactions hold of groups: the same as a plain model, and as cheap with many of them as with few."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.steps import at_once
from barnabas.coordinator.offsets.fetches import fetch_stable
from barnabas.coordinator.offsets.manager import OffsetMetadataManager
from barnabas.coordinator.timeline import SnapshotRegistry
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics
from barnabas.wire.stored.consumer_offsets import OffsetCommitValue
from tests.bounds.meter import Meter

GROUPS = ("a", "b")
PLACES = [TopicPartition("t", number) for number in range(2)]
PRODUCERS = (7, 8)


def value_of(offset: int) -> OffsetCommitValue:
    return OffsetCommitValue(offset=offset, leader_epoch=-1, metadata="", commit_timestamp=0, expire_timestamp=-1)


class Model:
    """Every transaction by itself, and a walk over all of them for each question."""

    def __init__(self) -> None:
        self.plain: dict[tuple[str, TopicPartition], int] = {}
        self.open: dict[int, dict[tuple[str, TopicPartition], int]] = {}

    def pending(self, group: str) -> set[TopicPartition]:
        return {place for held in self.open.values() for of, place in held if of == group}

    def offsets(self, group: str) -> dict[TopicPartition, int]:
        return {place: offset for (of, place), offset in self.plain.items() if of == group}


COMMITS = st.tuples(
    st.just("commit"), st.sampled_from(GROUPS), st.sampled_from(PLACES), st.sampled_from((NO_PRODUCER_ID, *PRODUCERS))
)
TOMBSTONES = st.tuples(st.just("forget"), st.sampled_from(GROUPS), st.sampled_from(PLACES), st.just(NO_PRODUCER_ID))
ENDS = st.tuples(st.sampled_from(("end", "abort")), st.just(""), st.just(PLACES[0]), st.sampled_from(PRODUCERS))
WATERMARKS = st.tuples(st.just("high watermark"), st.just(""), st.just(PLACES[0]), st.just(NO_PRODUCER_ID))


@settings(max_examples=200, deadline=None)
@given(st.lists(st.one_of(COMMITS, COMMITS, TOMBSTONES, ENDS, WATERMARKS), max_size=25), st.integers(0, 25))
def test_like_a_plain_model(steps: list[tuple[str, str, TopicPartition, int]], loaded: int) -> None:
    snapshots, model = SnapshotRegistry(), Model()
    manager = OffsetMetadataManager(snapshots)
    for offset, (kind, group, place, producer_id) in enumerate(steps):
        if offset == loaded:
            snapshots.loaded(offset)
        snapshots.begin(offset)
        if kind == "commit":
            manager.replay(group, place, value_of(offset), offset, producer_id)
            held = model.plain if producer_id == NO_PRODUCER_ID else model.open.setdefault(producer_id, {})
            held[group, place] = offset
        elif kind == "forget":
            manager.replay(group, place, None, offset)
            for held in (model.plain, *model.open.values()):
                held.pop((group, place), None)
        elif kind == "high watermark":
            snapshots.commit(offset)
        else:
            manager.replay_end_transaction(producer_id, committed=kind == "end")
            for key, at in model.open.pop(producer_id, {}).items():
                if kind == "end":
                    model.plain[key] = max(at, model.plain.get(key, -1))
        for each in GROUPS:
            assert {at: found.offset for at, found in manager.latest(each).items()} == model.offsets(each)
            assert manager.pending(each) == model.pending(each)
            assert manager.has_transaction(each) is bool(model.pending(each))
            assert {at for at in PLACES if manager.has_transaction(each, at)} == model.pending(each)
            assert {*manager.known_partitions(each)} == {*model.offsets(each)} | model.pending(each)
        known = {group for group, _ in manager.groups_with("t")}
        assert known == {group for group in GROUPS if manager.known_partitions(group)}
    for producer_id in PRODUCERS:
        manager.replay_end_transaction(producer_id, committed=False)
    # Nothing of them is kept.
    assert not manager._pending
    assert not manager._open_transactions


def crowded(transaction_count: int) -> OffsetMetadataManager:
    """A group with offsets, and other transactions: of another group, and of another topic of the same one."""
    manager = OffsetMetadataManager(SnapshotRegistry())
    for number in range(20):
        manager.replay("a", TopicPartition("t", number), value_of(5), number)
    manager.replay("a", PLACES[0], value_of(6), 20, 1)
    for number in range(transaction_count):
        group, topic = ("a", "other") if number % 2 else ("b", "t")
        manager.replay(group, TopicPartition(topic, number), value_of(6), 21 + number, 2 + number)
    return manager


def ask(manager: OffsetMetadataManager, question: str) -> None:
    if question == "fetch":
        topics = [OffsetFetchRequestTopics(name="t", partition_indexes=list(range(20)))]
        at_once(fetch_stable(manager, "a", topics))
    elif question == "tombstone":
        manager.replay("a", PLACES[0], None, 10_000)
    else:
        assert not manager.has_transaction("a", PLACES[1])


@pytest.mark.parametrize("question", ["fetch", "tombstone", "expiry"])
def test_many_open_transactions_cost_no_more_than_few(question: str) -> None:
    calls = []
    for transaction_count in (10, 1_000):
        meter = Meter()
        meter.run(partial(ask, crowded(transaction_count), question))
        calls.append(meter.total_calls)
    assert calls[1] <= calls[0]  # the first of them may have loaded something


def test_a_transaction_that_ends_during_a_fetch_was_open_when_the_offsets_were_read() -> None:
    snapshots = SnapshotRegistry()
    manager = OffsetMetadataManager(snapshots)
    snapshots.loaded(0)
    for offset, producer_id in enumerate((NO_PRODUCER_ID, 7)):
        snapshots.begin(offset)
        manager.replay("a", PLACES[0], value_of(5 + offset), offset, producer_id)
    steps = fetch_stable(manager, "a", [OffsetFetchRequestTopics(name="t", partition_indexes=[0])])
    next(steps)
    snapshots.begin(2)
    manager.replay_end_transaction(7, committed=True)
    answer = at_once(steps)
    assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.UNSTABLE_OFFSET_COMMIT]
