"""What a partition remembers of its producers: duplicates, sequences, epochs and transactions."""

from __future__ import annotations

from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import CONTROL_BIT, HEADER, TRANSACTIONAL_BIT, BatchView
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.producer_state import DuplicateBatch, LastBatch, ProducerStates
from tests.storage.producers import MAX, PARTITION, PID, Story, data, marker, refusal_of


class TestSequences:
    def test_a_retry_is_answered_with_the_first_offset(self) -> None:
        story = Story()
        assert story.send(data(0, 10)) == "at 0"
        assert story.send(data(10, 5)) == "at 10"
        assert story.send(data(0, 10)) == "duplicate of 0 to 9"
        assert story.send(data(10, 5)) == "duplicate of 10 to 14"
        assert story.send(data(15, 1)) == "at 15"

    def test_the_answer_has_the_time_of_the_first_append(self) -> None:
        states = ProducerStates(PARTITION)
        states.apply(data(0, 3, offset=40, timestamp_ms=1234))
        assert states.check(data(0, 3, timestamp_ms=9999)) == DuplicateBatch(40, 42, 1234)

    def test_five_batches_are_remembered(self) -> None:
        story = Story()
        for sequence in range(6):
            story.send(data(sequence))
        assert story.send(data(1)) == "duplicate of 1 to 1"
        assert story.send(data(0)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def test_only_the_very_same_batch_is_a_duplicate(self) -> None:
        story = Story()
        story.send(data(0, 4))
        assert story.send(data(0, 3)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(1, 3)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(2, 10)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"

    def test_gaps_are_refused(self) -> None:
        story = Story()
        story.send(data(0, 4))
        assert story.send(data(5)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(4)) == "at 4"

    def test_sequences_wrap_around(self) -> None:
        story = Story()
        assert story.send(data(MAX - 1)) == "at 0"
        assert story.send(data(MAX, 3)) == "at 1"  # MAX, 0, 1
        assert story.send(data(MAX, 3)) == "duplicate of 1 to 3"
        assert story.send(data(0)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(2)) == "at 4"

    def test_after_the_highest_comes_zero(self) -> None:
        story = Story()
        story.send(data(MAX))
        assert story.send(data(0)) == "at 1"

    def test_an_unknown_producer_may_begin_anywhere(self) -> None:
        assert Story().send(data(77)) == "at 0"

    def test_producers_do_not_mind_each_other(self) -> None:
        story = Story()
        story.send(data(0, pid=1))
        assert story.send(data(0, pid=2)) == "at 1"
        assert story.send(data(0, pid=1)) == "duplicate of 0 to 0"
        assert len(story.states) == 2
        assert 1 in story.states

    def test_batches_without_a_producer_pass(self) -> None:
        story = Story()
        for _ in range(2):
            story.send(data(-1, pid=-1, epoch=-1))
        assert len(story.states) == 0


class TestEpochs:
    def test_a_new_epoch_begins_at_zero_and_forgets_the_old_batches(self) -> None:
        story = Story()
        story.send(data(0, 5))
        assert story.send(data(5, epoch=1)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(0, 5, epoch=1)) == "at 5"
        assert story.send(data(0, 5)) == "INVALID_PRODUCER_EPOCH"
        assert story.send(data(0, 5, epoch=1)) == "duplicate of 5 to 9"

    def test_offsets_of_a_transaction_have_an_epoch_but_no_sequence(self) -> None:
        story = Story()
        assert story.send(data(-1, epoch=3, transactional=True), coordinator=True) == "at 0"
        assert story.send(data(-1, epoch=3, transactional=True), coordinator=True) == "at 1"
        assert story.send(data(-1, epoch=2, transactional=True), coordinator=True) == "INVALID_PRODUCER_EPOCH"
        assert story.send(data(-1, epoch=3), coordinator=True) == "INVALID_TXN_STATE"

    def test_replicas_take_what_the_leader_took(self) -> None:
        story = Story()
        for sequence, epoch in [(0, 5), (9, 5), (3, 2), (0, 2)]:
            story.take(data(sequence, epoch=epoch))
        assert story.send(data(1, epoch=2)) == "at 4"
        assert story.send(data(0, epoch=1)) == "INVALID_PRODUCER_EPOCH"


class TestTransactions:
    def test_readers_wait_for_the_marker_and_its_replication(self) -> None:
        story = Story()
        states = story.states
        story.send(data(0, 5, pid=-1, epoch=-1))
        story.send(data(0, 3, transactional=True))
        story.send(data(3, 2, transactional=True))
        assert story.states.first_open_offset == 5
        assert [states.last_stable_offset(hw) for hw in (3, 5, 6, 10)] == [3, 5, 5, 5]
        assert story.end_transaction() == "committed 5 to 10, stable to 11"
        assert states.first_open_offset is None
        states.on_high_watermark(10)
        assert states.last_stable_offset(10) == 5
        states.on_high_watermark(11)
        assert states.last_stable_offset(11) == 11

    def test_the_oldest_open_transaction_holds_all_back(self) -> None:
        story = Story()
        story.send(data(0, pid=1, transactional=True))
        story.send(data(0, pid=2, transactional=True))
        assert story.end_transaction(pid=2, commit=False) == "aborted 1 to 2, stable to 0"
        story.send(data(0, pid=3, transactional=True))
        assert story.end_transaction(pid=1, commit=False) == "aborted 0 to 4, stable to 3"
        assert story.states.first_unstable_offset == 0
        story.states.on_high_watermark(3)  # the marker at 2 is replicated, that at 4 is not
        assert story.states.first_unstable_offset == 0
        story.states.on_high_watermark(5)
        assert story.states.first_unstable_offset == 3

    def test_data_outside_of_an_open_transaction_is_refused(self) -> None:
        story = Story()
        story.send(data(0, transactional=True))
        assert story.send(data(1)) == "INVALID_TXN_STATE"
        assert story.send(data(0, epoch=1)) == "INVALID_TXN_STATE"
        assert story.end_transaction() == "committed 0 to 1, stable to 2"
        assert story.send(data(1)) == "at 2"

    def test_sequences_go_on_after_a_marker_of_the_same_epoch(self) -> None:
        story = Story()
        story.send(data(0, transactional=True))
        story.end_transaction()
        assert story.send(data(0, transactional=True)) == "duplicate of 0 to 0"
        assert story.send(data(1, transactional=True)) == "at 2"

    def test_a_marker_with_a_newer_epoch_fences_the_old_one(self) -> None:
        story = Story()
        story.send(data(0, transactional=True))
        assert story.end_transaction(epoch=1, commit=False) == "aborted 0 to 1, stable to 2"
        assert story.send(data(1, transactional=True)) == "INVALID_PRODUCER_EPOCH"
        assert story.send(data(1, epoch=1, transactional=True)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(0, epoch=1, transactional=True)) == "at 2"

    def test_old_markers_are_fenced(self) -> None:
        story = Story()
        story.send(data(0, epoch=4, transactional=True))
        assert story.end_transaction(epoch=3) == "INVALID_PRODUCER_EPOCH"
        assert story.end_transaction(epoch=4, coordinator_epoch=9) == "committed 0 to 1, stable to 2"
        assert story.end_transaction(epoch=4, coordinator_epoch=8) == "TRANSACTION_COORDINATOR_FENCED"
        assert story.end_transaction(epoch=4, coordinator_epoch=9) == "at 2"

    def test_newer_transactions_end_with_a_newer_epoch(self) -> None:
        story = Story()
        story.send(data(0, transactional=True))
        assert story.end_transaction(2, epoch=0) == "INVALID_PRODUCER_EPOCH"
        assert story.end_transaction(2, epoch=1) == "committed 0 to 1, stable to 2"
        assert story.end_transaction(2, epoch=1) == "at 2"  # sent again: nothing is open
        story.send(data(0, epoch=1, transactional=True))
        assert story.end_transaction(2, epoch=1) == "INVALID_PRODUCER_EPOCH"
        assert story.end_transaction(0, epoch=1) == "committed 3 to 4, stable to 5"

    def test_the_last_epoch_of_a_producer_cannot_be_raised(self) -> None:
        story = Story()
        story.send(data(0, epoch=32767, transactional=True))
        assert story.end_transaction(2, epoch=32767) == "committed 0 to 1, stable to 2"

    def test_a_marker_alone_makes_the_producer_known(self) -> None:
        story = Story()
        assert story.end_transaction(epoch=6) == "at 0"
        assert story.states.first_unstable_offset is None
        assert story.send(data(3, epoch=6)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.states.last_batches() == {PID: LastBatch(-1, 6)}

    def test_an_emptied_marker_says_nothing(self) -> None:
        states = ProducerStates(PARTITION)
        states.apply(data(0, transactional=True))
        fields = (1, HEADER.size - 12, 0, 2, 0, CONTROL_BIT | TRANSACTIONAL_BIT, 0, 0, 0, PID, 0, -1, 0)
        emptied = BatchView(HEADER.pack(*fields))
        assert states.apply(emptied) is None
        assert states.first_open_offset == 0

    def test_a_partly_deleted_transaction_counts_from_the_log_start(self) -> None:
        story = Story()
        story.send(data(0, 10, transactional=True))
        story.states.on_log_start(4)
        assert story.states.last_stable_offset(10, log_start_offset=4) == 4
        assert story.end_transaction() == "committed 0 to 10, stable to 11"
        story.states.on_log_start(10)
        assert story.states.first_unstable_offset == 0
        story.states.on_log_start(11)
        assert story.states.first_unstable_offset is None

    def test_questions_about_one_transaction(self) -> None:
        story = Story()
        assert story.states.oldest_transaction_timestamp_ms() is None
        story.send(data(0, epoch=2, transactional=True, timestamp_ms=50))
        story.send(data(1, epoch=2, transactional=True, timestamp_ms=70))
        assert story.states.has_open_transaction(PID, 2)
        assert not story.states.has_open_transaction(PID, 1)
        assert not story.states.has_open_transaction(PID + 1, 2)
        assert story.states.oldest_transaction_timestamp_ms() == 70


class TestRefusals:
    def test_say_who_and_what(self) -> None:
        states = ProducerStates(TopicPartition("orders", 3))
        states.apply(data(0, 10, pid=7, epoch=2))
        assert refusal_of(states, data(12, pid=7, epoch=2)) == (
            "OUT_OF_ORDER_SEQUENCE_NUMBER: orders-3: producer 7, epoch 2, sent sequence 12 where 10 comes next"
        )
        assert refusal_of(states, data(10, pid=7, epoch=3)) == (
            "OUT_OF_ORDER_SEQUENCE_NUMBER: orders-3: producer 7, epoch 3, sent sequence 10 where 0 comes next; "
            "its epoch was 2 before"
        )
        assert refusal_of(states, data(10, pid=7, epoch=1)) == (
            "INVALID_PRODUCER_EPOCH: orders-3: producer 7 has epoch 2 by now, and a batch came with epoch 1"
        )
        states.apply(data(10, pid=7, epoch=2, offset=10, transactional=True))
        assert refusal_of(states, data(11, pid=7, epoch=2)) == (
            "INVALID_TXN_STATE: orders-3: producer 7 sent a batch outside of its transaction, "
            "which is open since offset 10"
        )
        assert refusal_of(states, marker(pid=7, epoch=2), coordinator=True, version=2) == (
            "INVALID_PRODUCER_EPOCH: orders-3: the marker with epoch 2 of producer 7 is late: "
            "the transaction that is open since offset 10 has that epoch"
        )
        states.apply(marker(pid=7, epoch=2, coordinator_epoch=5, offset=11))
        assert refusal_of(states, marker(pid=7, epoch=2, coordinator_epoch=4), coordinator=True) == (
            "TRANSACTION_COORDINATOR_FENCED: orders-3: the marker for producer 7 comes from a coordinator "
            "with epoch 4, which one with epoch 5 replaced"
        )

    def test_checking_changes_nothing(self) -> None:
        states = ProducerStates(PARTITION)
        states.apply(data(0, transactional=True))
        before = states.entries()
        for batch in (data(0), data(1, transactional=True), data(0, epoch=1, transactional=True), data(5, pid=3)):
            try:
                states.check(batch)
            except AppendRefusedError:
                continue
        states.check_from_coordinator(marker(epoch=1))
        assert states.entries() == before
        assert states.first_unstable_offset == 0


class TestExpiry:
    def test_silent_producers_go_unless_a_transaction_is_open(self) -> None:
        story = Story()
        story.send(data(0, pid=1, timestamp_ms=1000))
        story.send(data(0, pid=2, timestamp_ms=1000, transactional=True))
        story.send(data(0, pid=3, timestamp_ms=1001))
        assert story.states.expire(1999, 1000) == 0
        assert story.states.expire(2000, 1000) == 1
        assert story.send(data(5, pid=1)) == "at 3"
        story.end_transaction(pid=2, timestamp_ms=1500)
        assert story.states.expire(2500, 1000) == 2


class NaiveStates:
    """Remembers everything that was ever applied, and looks it all through for each answer."""

    def __init__(self) -> None:
        self.log: list[BatchView] = []
        # What a snapshot does not keep: batches but for the newest, and transactions that were decided.
        self.forgotten: set[int] = set()
        self.decided_below = 0

    def of(self, pid: int) -> list[BatchView]:
        return [batch for batch in self.log if batch.producer_id == pid]

    def window(self, pid: int) -> list[BatchView]:
        found: list[BatchView] = []
        epoch = None
        for batch in self.of(pid):
            if batch.producer_epoch != epoch:
                found, epoch = [], batch.producer_epoch
            if not batch.is_control and batch.base_offset not in self.forgotten:
                found.append(batch)
        return found[-5:]

    def restart(self, end: int) -> None:
        self.forgotten |= {batch.base_offset for pid in range(3) for batch in self.window(pid)[:-1]}
        self.decided_below = end

    def open_since(self, pid: int) -> int | None:
        since = None
        for batch in self.of(pid):
            if batch.is_control:
                since = None
            elif batch.is_transactional and since is None:
                since = batch.base_offset
        return since

    def decide(self, batch: BatchView) -> ErrorCode | DuplicateBatch | None:
        past = self.of(batch.producer_id)
        if not past:
            return None
        epoch, window = past[-1].producer_epoch, self.window(batch.producer_id)
        if batch.producer_epoch < epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH
        if batch.producer_epoch == epoch:
            for old in window:
                if (old.base_sequence, old.last_sequence) == (batch.base_sequence, batch.last_sequence):
                    return DuplicateBatch(old.base_offset, old.last_offset, old.max_timestamp_ms)
        expected = 0
        if batch.producer_epoch == epoch and window:
            expected = 0 if window[-1].last_sequence == MAX else window[-1].last_sequence + 1
        if batch.base_sequence != expected:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        if self.open_since(batch.producer_id) is not None and not batch.is_transactional:
            return ErrorCode.INVALID_TXN_STATE
        return None

    def first_unstable(self, high_watermark: int) -> int | None:
        found = [since for pid in range(3) if (since := self.open_since(pid)) is not None]
        for place, batch in enumerate(self.log):
            if batch.is_control and batch.base_offset >= max(high_watermark, self.decided_below):
                earlier = NaiveStates()
                earlier.log = self.log[:place]
                since = earlier.open_since(batch.producer_id)
                if since is not None:
                    found.append(since)
        return min(found, default=None)


class Step(NamedTuple):
    kind: str
    pid: int
    epoch_step: int
    sequence_step: int
    records: int
    transactional: bool


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from(["data"] * 6 + ["replica", "commit", "abort", "watermark", "snapshot"]),
        st.integers(0, 2),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1]),
        st.sampled_from([0, 0, 0, 0, 0, 1, -1, -2, -4]),
        st.sampled_from([1, 1, 2, 3]),
        st.booleans(),
    ),
    max_size=40,
)


@settings(max_examples=200, deadline=None)
@given(steps, st.sampled_from([0, 0, MAX - 6]))
def test_agrees_with_who_remembers_everything(script: list[Step], first_sequence: int) -> None:
    states, naive = ProducerStates(PARTITION), NaiveStates()
    end = high_watermark = 0
    for step in script:
        past, window = naive.of(step.pid), naive.window(step.pid)
        epoch = max((past[-1].producer_epoch if past else 3) + step.epoch_step, 0)
        sequence = ((window[-1].last_sequence + 1 if window else first_sequence) + step.sequence_step) % (MAX + 1)
        if step.epoch_step > 0 and step.sequence_step == 0:
            sequence = 0
        if step.kind == "watermark":
            high_watermark = max(high_watermark, end - step.records)
            states.on_high_watermark(high_watermark)
        elif step.kind == "snapshot":
            kept = states.entries()
            states.restore(kept)
            assert states.entries() == kept
            naive.restart(end)
        else:
            if step.kind in ("commit", "abort"):
                batch = marker(commit=step.kind == "commit", pid=step.pid, epoch=epoch, offset=end)
                if step.epoch_step < 0 and past:
                    assert "INVALID_PRODUCER_EPOCH" in refusal_of(states, batch, coordinator=True)
                    continue
                states.check_from_coordinator(batch)
            else:
                batch = data(
                    sequence, step.records, pid=step.pid, epoch=epoch, offset=end, transactional=step.transactional
                )
                if step.kind == "data":
                    decision = naive.decide(batch)
                    if isinstance(decision, ErrorCode):
                        assert refusal_of(states, batch).startswith(decision.name)
                        continue
                    duplicate = states.check(batch)
                    # A snapshot keeps the time of the marker, if that came last.
                    assert (duplicate and duplicate[:2]) == (decision and decision[:2])
                    if duplicate is not None:
                        continue
            states.apply(batch)
            naive.log.append(batch)
            end = batch.next_offset
        assert states.first_unstable_offset == naive.first_unstable(high_watermark)
        assert states.first_open_offset == min(
            (since for pid in range(3) if (since := naive.open_since(pid)) is not None), default=None
        )
