"""Numbers of batches: when one may leave, what a gap means, when they begin anew."""

from __future__ import annotations

from typing import Any, cast

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import InvariantError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.producing.sequences import MAX_EPOCH, Sequences, after

P0 = TopicPartition("t", 0)
P1 = TopicPartition("t", 1)
MAX_SEQUENCE = 2**31 - 1
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
UNKNOWN = ErrorCode.UNKNOWN_PRODUCER_ID


class Batch:
    def __init__(self, partition: TopicPartition = P0, record_count: int = 10) -> None:
        self.partition = partition
        self.record_count = record_count
        self.producer_id = self.producer_epoch = self.base_sequence = -1
        self.attempts = 0

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence >= 0

    @property
    def numbers(self) -> tuple[int, int, int]:
        return self.producer_id, self.producer_epoch, self.base_sequence

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = False
    ) -> None:
        self.producer_id, self.producer_epoch, self.base_sequence = producer_id, producer_epoch, base_sequence


def numbered(max_in_flight: int = 5, epoch: int = 0) -> Any:
    sequences = Sequences(max_in_flight)
    sequences.assign(7, epoch)
    return cast(Any, sequences)


def started(count: int, **options: int) -> tuple[Any, list[Any]]:
    """Sequences of a partition that the broker knows, with `count` batches on their way, the first at sequence 10."""
    sequences = numbered(**options)
    first = Batch()
    sequences.sent(first)
    sequences.returned(first)
    sequences.acked(first, 9)
    batches = [Batch() for _ in range(count)]
    for batch in batches:
        assert sequences.may_send(batch)
        sequences.sent(batch)
    return sequences, batches


def come_back(sequences: Any, *batches: Any) -> None:
    for batch in batches:
        sequences.returned(batch)
        batch.attempts += 1


def test_nothing_leaves_before_there_is_an_id() -> None:
    assert not Sequences(5).may_send(cast(Any, Batch()))


def test_batches_are_numbered_by_their_records_and_each_partition_by_itself() -> None:
    sequences, batches = started(2)
    other = Batch(P1)
    sequences.sent(other)
    assert [each.numbers for each in batches] == [(7, 0, 10), (7, 0, 20)]
    assert other.numbers == (7, 0, 0)


def test_only_one_batch_is_on_its_way_until_the_broker_knows_the_producer() -> None:
    sequences = numbered()
    first = Batch()
    sequences.sent(first)
    assert not sequences.may_send(Batch())
    assert sequences.may_send(Batch(P1))
    come_back(sequences, first)
    assert not sequences.may_send(Batch()), "it has to be sent again first"
    assert sequences.may_send(first)
    sequences.sent(first)
    come_back(sequences, first)
    sequences.acked(first, 9)
    assert sequences.may_send(Batch())


def test_no_more_are_in_flight_than_a_broker_remembers() -> None:
    sequences, _ = started(5)
    assert not sequences.may_send(Batch())


def test_nothing_new_leaves_that_would_make_a_broker_forget_the_oldest() -> None:
    sequences, (a, *others) = started(5)
    for each in others:
        come_back(sequences, each)
        sequences.acked(each, 0)
    assert not sequences.may_send(Batch()), "a would be the sixth"
    come_back(sequences, a)
    sequences.acked(a, 0)
    assert sequences.may_send(Batch())


def test_nothing_new_leaves_while_the_oldest_is_tried_again() -> None:
    sequences, (a,) = started(1)
    come_back(sequences, a)
    sequences.sent(a)
    assert not sequences.may_send(Batch())


def test_what_is_sent_again_goes_one_by_one_in_order() -> None:
    sequences, (a, b, c) = started(3)
    come_back(sequences, c, a, b)
    assert [sequences.may_send(each) for each in (a, b, c)] == [True, False, False]
    sequences.sent(a)
    assert not sequences.may_send(b)
    come_back(sequences, a)
    sequences.acked(a, 19)
    assert sequences.may_send(b)
    assert not sequences.may_send(c)
    assert [each.base_sequence for each in (a, b, c)] == [10, 20, 30]


def test_out_of_order_behind_an_open_batch_changes_nothing() -> None:
    sequences, (a, b) = started(2)
    come_back(sequences, b)
    sequences.refused(b, OUT_OF_ORDER, 0)
    sequences.restart_where_due()
    assert (a.numbers, b.numbers) == ((7, 0, 10), (7, 0, 20))


def test_out_of_order_of_the_oldest_starts_a_new_epoch_once_nothing_is_on_its_way() -> None:
    sequences, (a, b) = started(2)
    come_back(sequences, a)
    sequences.refused(a, OUT_OF_ORDER, 0)
    sequences.restart_where_due()
    assert a.numbers == (7, 0, 10), "b is on its way with the old numbers"
    assert not sequences.may_send(a)
    come_back(sequences, b)
    sequences.restart_where_due()
    assert (a.numbers, b.numbers) == ((7, 1, 0), (7, 1, 10))
    assert [sequences.may_send(each) for each in (a, b)] == [True, False]
    assert sequences.epoch == 1


def test_an_unknown_producer_begins_anew_unless_the_partition_is_moving() -> None:
    sequences, (a,) = started(1)
    come_back(sequences, a)
    sequences.refused(a, UNKNOWN, -1)
    sequences.restart_where_due()
    assert a.numbers == (7, 0, 10)
    sequences.refused(a, UNKNOWN, 10)
    sequences.restart_where_due()
    assert a.numbers == (7, 1, 0)


def test_a_forgotten_producer_whose_records_are_there_is_told_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    sequences, (a,) = started(1)
    come_back(sequences, a)
    sequences.refused(a, UNKNOWN, 0)
    assert "forgot producer 7 although its last record, at offset 9" in caplog.text


def test_another_partition_moves_to_the_new_epoch_without_another_one() -> None:
    sequences, (a,) = started(1)
    other = Batch(P1)
    sequences.sent(other)
    for each in (a, other):
        come_back(sequences, each)
        sequences.refused(each, OUT_OF_ORDER, 0)
    sequences.restart_where_due()
    assert (a.numbers, other.numbers) == ((7, 1, 0), (7, 1, 0))


def test_behind_a_gap_nothing_new_leaves() -> None:
    sequences, (a, b) = started(2)
    come_back(sequences, a)
    sequences.given_up(a)
    assert not sequences.may_send(Batch())
    come_back(sequences, b)
    assert sequences.may_send(b), "its answer tells whether the broker has what was given up"


def test_an_acknowledgement_beyond_a_gap_closes_it() -> None:
    sequences, (a, b) = started(2)
    come_back(sequences, a, b)
    sequences.given_up(a)
    sequences.acked(b, 29)
    sequences.restart_where_due()
    new = Batch()
    assert sequences.may_send(new)
    sequences.sent(new)
    assert new.numbers == (7, 0, 30)


def test_an_acknowledgement_before_a_gap_leaves_it_open() -> None:
    sequences, (a, b) = started(2)
    come_back(sequences, b)
    sequences.given_up(b)
    come_back(sequences, a)
    sequences.acked(a, 19)
    assert not sequences.may_send(Batch())
    sequences.restart_where_due()
    new = Batch()
    assert sequences.may_send(new)
    sequences.sent(new)
    assert new.numbers == (7, 1, 0)


def test_a_late_acknowledgement_of_what_was_given_up_closes_the_gap() -> None:
    sequences, (a,) = started(1)
    sequences.given_up(a)
    sequences.restart_where_due()
    assert not sequences.may_send(Batch()), "it is still on its way"
    come_back(sequences, a)
    sequences.acked(a, 19)
    sequences.restart_where_due()
    new = Batch()
    sequences.sent(new)
    assert new.numbers == (7, 0, 20)


def test_what_was_never_sent_leaves_no_gap() -> None:
    sequences, _ = started(0)
    sequences.given_up(Batch())
    assert sequences.may_send(Batch())


def test_refused_behind_a_gap_begins_anew_without_the_one_given_up() -> None:
    sequences, (a, b, c) = started(3)
    come_back(sequences, a, b, c)
    sequences.given_up(a)
    sequences.refused(b, OUT_OF_ORDER, 0)
    sequences.restart_where_due()
    assert (b.numbers, c.numbers) == ((7, 1, 0), (7, 1, 10))


def test_after_the_last_epoch_a_new_id_is_needed() -> None:
    sequences, (a,) = started(1, epoch=MAX_EPOCH)
    come_back(sequences, a)
    sequences.refused(a, OUT_OF_ORDER, 0)
    sequences.restart_where_due()
    assert not sequences.has_id
    assert not sequences.may_send(a)
    sequences.assign(8, 0)
    sequences.restart_where_due()
    assert a.numbers == (8, 0, 0)
    assert sequences.may_send(a)


def test_sequences_wrap_to_zero_and_gaps_are_seen_across_it() -> None:
    assert after(MAX_SEQUENCE, 1) == 0
    sequences = numbered()
    state = Batch(record_count=MAX_SEQUENCE - 4)
    sequences.sent(state)
    come_back(sequences, state)
    sequences.acked(state, 0)
    a, b = Batch(), Batch()
    sequences.sent(a)
    sequences.sent(b)
    assert (a.base_sequence, b.base_sequence) == (MAX_SEQUENCE - 4, 5)
    come_back(sequences, a, b)
    sequences.given_up(a)
    assert not sequences.may_send(Batch())
    sequences.acked(b, 1)
    assert sequences.may_send(Batch())


def test_parts_of_a_split_batch_take_its_place() -> None:
    sequences, (a, b) = started(2)
    come_back(sequences, a, b)
    parts = [Batch(record_count=5), Batch(record_count=5)]
    parts[0].set_producer_state(7, 0, 10)
    parts[1].set_producer_state(7, 0, 15)
    sequences.split(a, parts)
    assert [sequences.may_send(each) for each in (*parts, b)] == [True, False, False]


def test_more_answers_than_requests_are_a_fault() -> None:
    sequences, (a,) = started(1)
    come_back(sequences, a)
    with pytest.raises(InvariantError, match="more answers than requests"):
        come_back(sequences, a)


@given(st.lists(st.sampled_from(["send", "lose", "refuse", "give up", "acknowledge", "restart"]), max_size=60))
def test_a_pair_of_epoch_and_sequence_never_names_two_batches(actions: list[str]) -> None:
    """Whatever answers come: what left under some numbers is the only one that ever leaves under them."""
    sequences = numbered()
    queue: list[Any] = []
    network: list[Any] = []
    names: dict[tuple[int, int, int], Any] = {}
    for action in actions:
        head = queue[0] if queue else Batch()
        if action == "send" and sequences.may_send(head):
            del queue[:1]
            sequences.sent(head)
            assert names.setdefault(head.numbers, head) is head
            network.append(head)
        elif action == "restart":
            sequences.restart_where_due()
        elif network and action != "send":
            batch = network.pop(0)
            come_back(sequences, batch)
            if action == "acknowledge":
                sequences.acked(batch, 0)
            elif action == "give up":
                sequences.given_up(batch)
            else:
                queue.append(batch)
                queue.sort(key=lambda each: (each.producer_epoch, each.base_sequence))
                if action == "refuse":
                    sequences.refused(batch, OUT_OF_ORDER, 0)
