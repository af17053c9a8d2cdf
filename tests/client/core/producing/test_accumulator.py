"""Queues of batches: what is ready when, what leaves in which order, and that all memory comes back."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.producing.accumulator import ANY_PARTITION, NEVER_MS, Accumulator
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from barnabas.client.errors import ClientClosedError, RecordTooLargeError
from barnabas.records import BatchView, Codec
from tests.client.core.producing.append_world import TOPIC, accumulator, by_partition, cluster, drained, put, records_of

ONE = cluster({TOPIC: [1]})
SIX = cluster({TOPIC: [1, 2, 1, 2, 1, 2]})


def finish(target: Accumulator, batches: list[ProducerBatch], base_offset: int = 0) -> None:
    for batch in batches:
        batch.delivery.succeed(base_offset)
        target.release(batch)


# When a batch is ready


def test_a_batch_is_ready_when_it_has_lingered() -> None:
    target = accumulator(linger_ms=5)
    put(target, 0, view=ONE, now_ms=100)
    assert target.ready(ONE, 101).nodes == []
    assert target.ready(ONE, 101).next_check_ms == 4
    assert target.ready(ONE, 105).nodes == [1]


def test_a_full_batch_is_ready_at_once() -> None:
    target = accumulator(linger_ms=10**6)
    put(target, 0, b"x" * 600, view=ONE)
    assert target.ready(ONE, 0).nodes == []
    put(target, 0, b"x" * 600, view=ONE)
    assert target.ready(ONE, 0).nodes == [1]


def test_nothing_waits_while_somebody_flushes() -> None:
    target = accumulator(linger_ms=10**6)
    future = put(target, 0, view=ONE)
    told: list[bool] = []
    flush = target.begin_flush(lambda: told.append(future.done()))
    assert target.ready(ONE, 0).nodes == [1]
    batches = drained(target, ONE)
    put(target, 0, view=ONE)
    assert target.ready(ONE, 0).nodes == [1]
    finish(target, batches)
    assert told == [True]
    assert flush.is_done
    target.end_flush(flush)
    target.end_flush(flush)
    assert target.ready(ONE, 0).nodes == []


def test_a_flush_with_nothing_to_wait_for_is_done_at_once() -> None:
    assert accumulator().begin_flush().is_done


def test_nothing_waits_while_memory_is_short() -> None:
    target = accumulator(linger_ms=10**6, memory_bytes=1500)
    put(target, 0, view=SIX)
    lane = target.lane(TOPIC, SIX)
    assert lane is not None
    waiter = target.append(lane, 1, b"v", None, None, 1, None, 0)
    assert isinstance(waiter, MemoryWaiter)
    assert target.ready(SIX, 0).nodes == [1]
    finish(target, drained(target, SIX))
    assert waiter.is_ready
    future = target.append(lane, 1, b"v", None, None, 1, None, 0, waiter)
    assert not isinstance(future, MemoryWaiter)
    assert target.pool.available_bytes == 500


def test_memory_that_is_not_needed_after_all_is_given_back() -> None:
    target = accumulator(memory_bytes=1500)
    first = put(target, 0, view=SIX)
    lane = target.lane(TOPIC, SIX)
    assert lane is not None
    waiter = target.append(lane, 1, b"v", None, None, 1, None, 0)
    assert isinstance(waiter, MemoryWaiter)
    finish(target, drained(target, SIX))
    # Another thread has opened a batch of the same partition meanwhile.
    target.pool.give_up(waiter)
    put(target, 1, view=SIX)
    again = MemoryWaiter(200)
    assert target.pool.ask(again)
    assert not isinstance(target.append(lane, 1, b"v", None, None, 1, None, 0, again), MemoryWaiter)
    assert target.pool.available_bytes == 500
    assert first.done()


def test_a_partition_without_a_leader_asks_for_metadata() -> None:
    target = accumulator(linger_ms=0)
    view = cluster({TOPIC: [-1, 1]})
    put(target, 0, view=view)
    ready = target.ready(view, 0)
    assert (ready.nodes, ready.unknown_leader_topics, ready.next_check_ms) == ([], [TOPIC], NEVER_MS)
    assert drained(target, view) == []
    moved = cluster({TOPIC: [2, 1]}, version=2)
    target.metadata_updated(moved)
    assert target.ready(moved, 0).nodes == [2]


def test_a_muted_partition_is_neither_ready_nor_drained() -> None:
    target = accumulator(linger_ms=0)
    put(target, 0, view=ONE)
    target.mute(TopicPartition(TOPIC, 0))
    assert target.ready(ONE, 0).nodes == []
    assert drained(target, ONE) == []
    target.unmute(TopicPartition(TOPIC, 0))
    assert len(drained(target, ONE)) == 1


# Draining


def test_drained_batches_take_no_more_records() -> None:
    target = accumulator()
    put(target, 0, b"a", view=ONE)
    [batch] = drained(target, ONE)
    put(target, 0, b"b", view=ONE)
    assert batch.is_closed
    assert [record.value for record in records_of(batch)] == [b"a"]
    assert by_partition(drained(target, ONE)) == {TopicPartition(TOPIC, 0): [b"b"]}


def test_a_request_takes_one_batch_of_a_partition_and_no_more_than_it_may_carry() -> None:
    target = accumulator()
    view = cluster({TOPIC: [1, 1, 1]})
    for partition in range(3):
        for _ in range(2):
            put(target, partition, b"x" * 800, view=view)
    first = target.drain(view, [1], 2000, 0)[1]
    assert [batch.partition.partition for batch in first] == [0, 1]
    second = target.drain(view, [1], 2000, 0)[1]
    assert [batch.partition.partition for batch in second] == [2, 0]
    third = target.drain(view, [1], 2000, 0)[1]
    assert [batch.partition.partition for batch in third] == [1, 2]


def test_a_batch_that_is_larger_than_a_request_goes_alone() -> None:
    target = accumulator()
    put(target, 0, b"x" * 5000, view=ONE)
    assert [batch.record_count for batch in target.drain(ONE, [1], 100, 0)[1]] == [1]


def test_batches_that_may_not_be_sent_stay() -> None:
    target = accumulator()
    view = cluster({TOPIC: [1, 1]})
    put(target, 0, view=view)
    put(target, 1, view=view)
    batches = target.drain(view, [1], 10**6, 0, lambda batch: batch.partition.partition == 1)[1]
    assert [batch.partition.partition for batch in batches] == [1]
    assert target.has_queued


# Coming back


def test_a_batch_that_comes_back_waits_longer_each_time() -> None:
    target = accumulator(retry_backoff_ms=100, retry_backoff_max_ms=1000, linger_ms=0)
    put(target, 0, view=ONE)
    waits = []
    for _ in range(6):
        [batch] = drained(target, ONE, now_ms=10**6)
        target.reenqueue(batch, 0)
        assert target.ready(ONE, 0).nodes == []
        assert target.ready(ONE, 0).next_check_ms == batch.retry_at_ms
        assert target.ready(ONE, batch.retry_at_ms).nodes == [1]
        waits.append(batch.retry_at_ms)
    assert all(80 * 2**i <= wait <= 120 * 2**i for i, wait in enumerate(waits[:3]))
    assert waits[-1] == 1000


def test_a_new_leader_is_tried_without_a_wait() -> None:
    target = accumulator(linger_ms=0)
    put(target, 0, view=ONE)
    target.ready(ONE, 0)
    [batch] = drained(target, ONE)
    target.reenqueue(batch, 0)
    assert target.ready(ONE, 0).nodes == []
    moved = cluster({TOPIC: [2]}, version=2, epoch=1)
    assert target.ready(moved, 0).nodes == [2]
    [batch] = drained(target, moved)
    target.reenqueue(batch, 0)
    assert target.ready(moved, 0).nodes == []


@given(st.permutations(range(5)), st.sampled_from([0, 2**31 - 4]))
@settings(deadline=None)
def test_batches_come_back_in_the_order_of_their_sequences(order: list[int], first: int) -> None:
    target = accumulator(linger_ms=0, retry_backoff_ms=0)
    for number in range(6):
        put(target, 0, b"%d" % number * 600, view=ONE)
    batches = [target.drain(ONE, [1], 10**6, 0)[1][0] for _ in range(5)]
    for number, batch in enumerate(batches):
        batch.set_producer_state(1, 0, first + number & 0x7FFFFFFF)
    for number in order:
        target.reenqueue(batches[number], 0)
    assert [batch.base_sequence for batch in target.queued(TopicPartition(TOPIC, 0))][:5] == [
        first + number & 0x7FFFFFFF for number in range(5)
    ]


def test_a_batch_that_comes_back_alone_does_not_open_again() -> None:
    target = accumulator(linger_ms=0, retry_backoff_ms=0)
    put(target, 0, b"a", view=ONE)
    [batch] = drained(target, ONE)
    target.reenqueue(batch, 0)
    put(target, 0, b"b", view=ONE)
    assert by_partition(drained(target, ONE)) == {TopicPartition(TOPIC, 0): [b"a", b"b"]}


def test_a_numbered_batch_follows_its_numbers_without_touching_bytes_that_are_out() -> None:
    target = accumulator(codec=Codec.GZIP)
    for _ in range(5):
        put(target, 0, b"x" * 100, view=ONE)
    [batch] = drained(target, ONE)
    batch.set_producer_state(9, 1, 5)
    first = batch.encoded()
    assert batch.encoded() is first
    batch.set_producer_state(9, 2, 0)
    second = batch.encoded()
    for encoded, epoch, sequence in ((first, 1, 5), (second, 2, 0)):
        view = BatchView(encoded)
        view.check_crc()
        assert (view.producer_id, view.producer_epoch, view.base_sequence) == (9, epoch, sequence)
    assert batch.last_sequence == 4
    assert batch.size_bytes < batch.uncompressed_bytes


# Splitting


@given(st.lists(st.integers(0, 400), min_size=2, max_size=30), st.booleans())
@settings(deadline=None)
def test_a_split_batch_keeps_records_order_numbers_and_futures(sizes: list[int], numbered: bool) -> None:
    target = accumulator(batch_bytes=20_000)
    futures = [put(target, 0, bytes([number]) * size, view=ONE) for number, size in enumerate(sizes)]
    [batch] = drained(target, ONE)
    if numbered:
        batch.set_producer_state(1, 0, 2**31 - 2)
    queue = [batch]
    done: list[ProducerBatch] = []
    for _ in range(200):
        if not queue:
            break
        large = queue.pop(0)
        if large.record_count > 1 and large.uncompressed_bytes > 500:
            parts = target.split_and_reenqueue(large, 0)
            target.release(large)
            assert len(parts) > 1
            assert drained(target, ONE) == parts
            queue[:0] = parts
        else:
            done.append(large)
    assert not queue
    assert [record.value for batch in done for record in records_of(batch)] == [
        bytes([number]) * size for number, size in enumerate(sizes)
    ]
    if numbered:
        sequence = 2**31 - 2
        for part in done:
            assert part.base_sequence == sequence
            sequence = sequence + part.record_count & 0x7FFFFFFF
    offset = 1000
    expected: list[int] = []
    for part in done:
        finish(target, [part], offset)
        expected.extend(range(offset, offset + part.record_count))
        offset += part.record_count + 10
    assert [future.result(0).offset for future in futures] == expected
    assert not target.has_incomplete
    assert target.pool.available_bytes == target.pool.total_bytes


# Ends


def test_batches_expire_in_their_queue() -> None:
    target = accumulator(delivery_timeout_ms=100)
    put(target, 0, view=SIX, now_ms=0)
    put(target, 1, view=SIX, now_ms=50)
    assert target.next_expiry_ms(10) == 90
    assert target.expired(99) == []
    [batch] = target.expired(100)
    assert batch.partition.partition == 0
    assert batch.is_closed
    assert target.next_expiry_ms(100) == 50
    target.release(batch)
    put(target, 0, view=SIX, now_ms=100)
    assert target.next_expiry_ms(200) == 0


def test_release_gives_memory_back_once() -> None:
    target = accumulator()
    put(target, 0, view=ONE)
    [batch] = drained(target, ONE)
    assert target.pool.available_bytes == target.pool.total_bytes - 1000
    target.release(batch)
    target.release(batch)
    assert target.pool.available_bytes == target.pool.total_bytes


def test_abort_fails_what_is_queued_and_what_is_on_its_way() -> None:
    target = accumulator()
    sent = put(target, 0, view=ONE)
    [batch] = drained(target, ONE)
    queued = put(target, 0, view=ONE)
    error = BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR)
    target.abort(error)
    assert sent.exception(0) is error
    assert queued.exception(0) is error
    assert not batch.delivery.succeed(5), "what was reported failed is not acknowledged later"
    assert not target.has_incomplete
    assert not target.has_queued
    assert target.pool.available_bytes == target.pool.total_bytes


def test_a_callback_may_send_while_everything_is_aborted() -> None:
    target = accumulator()
    lane = target.lane(TOPIC, ONE)
    assert lane is not None
    later: list[object] = []
    target.append(lane, 0, b"v", None, None, 1, lambda *_: later.append(put(target, 0, b"after", view=ONE)), 0)
    target.abort(ClientClosedError("x"))
    assert len(later) == 1
    assert by_partition(drained(target, ONE)) == {TopicPartition(TOPIC, 0): [b"after"]}


def test_a_closed_accumulator_takes_nothing_and_holds_nothing_back() -> None:
    target = accumulator(linger_ms=10**6, memory_bytes=1500)
    put(target, 0, view=SIX)
    lane = target.lane(TOPIC, SIX)
    assert lane is not None
    waiter = target.append(lane, 1, b"v", None, None, 1, None, 0)
    assert isinstance(waiter, MemoryWaiter)
    target.close()
    assert waiter.is_closed
    assert not lane.is_open
    assert target.ready(SIX, 0).nodes == [1]
    with pytest.raises(ClientClosedError):
        put(target, 0, view=SIX)


@pytest.mark.parametrize(("memory_bytes", "name"), [(1 << 20, "max.request.size"), (4000, "buffer.memory")])
def test_a_record_that_nothing_could_carry_is_refused(memory_bytes: int, name: str) -> None:
    target = accumulator(max_request_bytes=5000, memory_bytes=memory_bytes)
    with pytest.raises(RecordTooLargeError, match=name):
        put(target, 0, b"x" * (5000 if name == "max.request.size" else 4000), view=ONE)
    assert target.pool.available_bytes == memory_bytes
    assert not target.has_incomplete


def test_a_record_larger_than_a_batch_gets_one_for_itself() -> None:
    target = accumulator()
    put(target, 0, b"a", view=ONE)
    put(target, 0, b"x" * 3000, view=ONE)
    put(target, 0, b"b" * 50, view=ONE)
    assert [batch.record_count for batch in drained(target, ONE)] == [1, 1, 1]


# Sticky partitions, lanes


def test_the_sticky_partition_changes_between_batches() -> None:
    target = accumulator(is_adaptive=False, batch_bytes=1000)
    for number in range(400):
        put(target, ANY_PARTITION, b"%04d" % number * 20, view=SIX)
    batches = drained(target, SIX)
    assert len({batch.partition for batch in batches}) > 3
    # Nine records fill a batch; the partition changes when two are full, since the first alone is less than batch.size.
    assert {batch.record_count for batch in batches[:-2]} <= {9, 10, 11}


def test_a_topic_that_is_not_known_any_more_closes_its_lane() -> None:
    target = accumulator()
    put(target, 0, view=ONE)
    lane = target.lanes[TOPIC]
    target.metadata_updated(cluster({"other": [1]}, version=2))
    assert not lane.is_open
    assert target.lane(TOPIC, cluster({"other": [1]}, version=2)) is None
    again = target.lane(TOPIC, cluster({TOPIC: [1, 1]}, version=3))
    assert again is lane
    assert (again.is_open, again.partition_count) == (True, 2)
    assert len(drained(target, ONE)) == 1


def test_a_topic_that_gains_partitions_keeps_its_open_batches() -> None:
    target = accumulator()
    put(target, 0, b"a", view=ONE)
    target.metadata_updated(cluster({TOPIC: [1, 1]}, version=2))
    put(target, 0, b"b", view=ONE)
    assert [batch.record_count for batch in drained(target, ONE)] == [2]
