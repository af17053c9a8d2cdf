"""What becomes known of a record, to whom, when and where."""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import pickle
import threading
import weakref
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.client._kernel.sending import Home, RecordMetadata, SendFuture
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.errors import ClientTimeoutError, WrongUseError
from tests.client.core.producing.append_world import TOPIC, SyncPath, accumulator, cluster, drained

VIEW = cluster({TOPIC: [1]})
FAILURE = BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)


def sent(count: int = 1, home: Home | None = None, **options: Any) -> tuple[list[SendFuture], ProducerBatch]:
    """Futures of records in one batch that is on its way."""
    target = accumulator(home=home)
    path = SyncPath(target, VIEW)
    futures = [path.send(TOPIC, b"v%d" % number, b"k", timestamp_ms=7, **options) for number in range(count)]
    [batch] = drained(target, VIEW)
    return futures, batch


def test_a_record_learns_its_offset_from_its_batch() -> None:
    futures, batch = sent(3)
    assert [future.done() for future in futures] == [False] * 3
    batch.delivery.succeed(40)
    assert [future.result() for future in futures] == [
        RecordMetadata(TOPIC, 0, 40 + number, 7, 1, 2) for number in range(3)
    ]
    assert futures[0].exception() is None
    assert not batch.delivery.succeed(50)
    assert not batch.delivery.fail(FAILURE)
    assert futures[0].result().offset == 40


def test_the_broker_s_time_wins_where_it_stamps_records() -> None:
    [future], batch = sent()
    batch.delivery.succeed(0, 99)
    assert future.result().timestamp_ms == 99


def test_without_acknowledgements_no_offset_is_known() -> None:
    futures, batch = sent(2)
    batch.delivery.succeed(-1)
    assert [future.result().offset for future in futures] == [-1, -1]


def test_null_parts_have_size_minus_one() -> None:
    target = accumulator()
    path = SyncPath(target, VIEW)
    future = path.send(TOPIC)
    drained(target, VIEW)[0].delivery.succeed(0)
    assert (future.result().serialized_key_size, future.result().serialized_value_size) == (-1, -1)


def test_all_records_of_a_failed_batch_fail() -> None:
    futures, batch = sent(2)
    batch.delivery.fail(FAILURE)
    for future in futures:
        assert future.exception() is FAILURE
        with pytest.raises(BrokerError) as raised:
            future.result()
        assert raised.value is FAILURE


def test_raising_an_error_often_does_not_lengthen_its_traceback() -> None:
    [future], batch = sent()
    batch.delivery.fail(FAILURE)
    lengths = set()
    for _ in range(3):
        with pytest.raises(BrokerError) as raised:
            future.result()
        lengths.add(len(raised.traceback))
    assert len(lengths) == 1


def test_records_that_were_refused_by_themselves_have_errors_of_their_own() -> None:
    futures, batch = sent(3)
    own = BrokerError(ErrorCode.INVALID_RECORD, "no key")
    others = BrokerError(ErrorCode.INVALID_RECORD, "another record of the batch was refused")
    batch.delivery.fail(others, {1: own})
    assert [future.exception() for future in futures] == [others, own, others]


def test_callbacks_run_in_the_order_of_the_records_and_one_that_raises_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    seen: list[Any] = []

    def called(metadata: RecordMetadata, error: Exception | None) -> None:
        seen.append((metadata.offset, error))
        if metadata.offset == 1:
            raise LookupError("in the callback")

    futures, batch = sent(3, on_delivery=called)
    with caplog.at_level(logging.ERROR):
        batch.delivery.succeed(0)
    assert seen == [(0, None), (1, None), (2, None)]
    assert "in the callback" in caplog.text
    assert futures[1].result().offset == 1


def test_a_callback_of_a_failed_record_knows_where_it_was_to_go() -> None:
    seen: list[Any] = []
    _, batch = sent(1, on_delivery=lambda metadata, error: seen.append((metadata, error)))
    batch.delivery.fail(FAILURE)
    assert seen == [(RecordMetadata(TOPIC, 0, -1, 7, 1, 2), FAILURE)]


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit, asyncio.CancelledError, GeneratorExit])
def test_nothing_that_a_callback_raises_gets_out(kind: type[BaseException], caplog: pytest.LogCaptureFixture) -> None:
    seen: list[object] = []

    def called(metadata: RecordMetadata, error: Exception | None) -> None:
        seen.append(metadata.offset)
        raise kind

    def done(future: SendFuture) -> None:
        seen.append(future)
        raise kind

    def over() -> None:
        seen.append("over")
        raise kind

    futures, batch = sent(2, on_delivery=called)
    futures[0].add_done_callback(done)
    batch.delivery.when_done(over)
    batch.delivery.when_done(lambda: seen.append("all"))
    assert batch.delivery.succeed(0)
    assert seen == [0, 1, futures[0], "over", "all"]
    assert futures[1].done()
    assert sum("callback raised" in record.message for record in caplog.records) == 4


@pytest.mark.parametrize("kind", [KeyboardInterrupt, SystemExit])
def test_what_ends_a_program_is_handed_on_where_somebody_takes_it(kind: type[BaseException]) -> None:
    def called(*_: Any) -> None:
        raise kind

    home, taken = Home(), list[BaseException]()
    home.settle(taken.append)
    futures, batch = sent(2, home=home, on_delivery=called)
    batch.delivery.succeed(0)
    assert [type(each) for each in taken] == [kind, kind]
    assert futures[1].done()


def test_a_record_is_done_when_its_callback_has_run() -> None:
    seen: list[bool] = []
    futures: list[SendFuture] = []

    def called(metadata: RecordMetadata, error: Exception | None) -> None:
        seen.extend(future.done() for future in futures)
        futures[0].add_done_callback(lambda future: seen.append(future.done()))

    made, batch = sent(1, on_delivery=called)
    futures.extend(made)
    assert batch.delivery.succeed(0)
    assert seen == [False, True]


def test_a_thread_that_waits_goes_on_after_the_callback() -> None:
    order: list[str] = []
    is_running, may_end = threading.Event(), threading.Event()

    def called(metadata: RecordMetadata, error: Exception | None) -> None:
        is_running.set()
        assert may_end.wait(10)
        order.append("callback")

    [future], batch = sent(1, on_delivery=called)
    telling = threading.Thread(target=batch.delivery.succeed, args=(0,))
    telling.start()
    assert is_running.wait(10)
    waiting = threading.Thread(target=lambda: order.append(f"offset {future.result(10).offset}"))
    waiting.start()
    assert not future.done()
    may_end.set()
    telling.join(10)
    waiting.join(10)
    assert order == ["callback", "offset 0"]


def test_a_done_callback_can_be_removed() -> None:
    futures, batch = sent(2)
    seen: list[SendFuture] = []
    for future in futures:
        future.add_done_callback(seen.append)
    futures[0].add_done_callback(seen.append)
    assert futures[0].remove_done_callback(seen.append) == 2
    assert futures[0].remove_done_callback(seen.append) == 0
    batch.delivery.succeed(0)
    assert seen == [futures[1]]


def test_asyncio_can_wait_for_several() -> None:
    async def story() -> tuple[int, int]:
        futures, batch = sent(2)
        waited: Any = asyncio.wait(futures, timeout=0.001)
        first, _ = await waited
        asyncio.get_running_loop().call_soon(batch.delivery.succeed, 0)
        waited = asyncio.wait(futures, return_when=asyncio.FIRST_EXCEPTION)
        done, _ = await waited
        assert not any(future.cancelled() for future in done)
        return len(first), len(done)

    assert asyncio.run(story()) == (0, 2)


def test_a_thread_that_gets_the_number_of_one_that_ended_may_wait() -> None:
    home = Home()
    home.settle()
    [future], _ = sent(home=home)
    with pytest.raises(WrongUseError):
        future.result(0)
    home.leave()
    with pytest.raises(ClientTimeoutError):
        future.result(0)


def test_done_callbacks_get_the_future_before_and_after() -> None:
    [future], batch = sent()
    seen: list[SendFuture] = []
    future.add_done_callback(seen.append)
    assert seen == []
    batch.delivery.succeed(0)
    future.add_done_callback(seen.append)
    assert seen == [future, future]


def test_a_thread_waits_until_it_is_told() -> None:
    futures, batch = sent(2)
    offsets: list[int] = []
    threads = [
        threading.Thread(target=lambda future=future: offsets.append(future.result(10).offset)) for future in futures
    ]
    for thread in threads:
        thread.start()
    batch.delivery.succeed(3)
    for thread in threads:
        thread.join(10)
    assert sorted(offsets) == [3, 4]


def test_waiting_ends_after_its_timeout_and_can_begin_again() -> None:
    [future], batch = sent()
    for _ in range(3):
        with pytest.raises(ClientTimeoutError, match=f"{TOPIC}-0"):
            future.result(0.001)
    with pytest.raises(TimeoutError):
        future.exception(-1)
    batch.delivery.succeed(0)
    assert future.result(0).offset == 0


def test_waiting_where_deliveries_are_told_is_refused() -> None:
    home = Home()
    home.settle()
    [future], batch = sent(home=home)
    with pytest.raises(WrongUseError, match="await"):
        future.result(1)
    batch.delivery.succeed(0)
    assert future.result().offset == 0


def test_a_fork_does_not_wait_for_what_it_will_never_hear() -> None:
    home = Home()
    [future], _ = sent(home=home)
    reader, writer = os.pipe()
    child = os.fork()
    if not child:
        try:
            future.result(5)
        except WrongUseError:
            os.write(writer, b"refused" if home.is_forked else b"?")
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(child, 0)
    assert os.read(reader, 20) == b"refused"
    os.close(reader)
    assert not home.is_forked


def test_a_coroutine_waits_in_the_loop_where_deliveries_are_told() -> None:
    async def story() -> list[int]:
        home = Home()
        home.settle()
        futures, batch = sent(3, home=home)
        asyncio.get_running_loop().call_soon(batch.delivery.succeed, 5)
        first = await futures[0]
        rest = await asyncio.gather(*futures[1:])
        return [first.offset, *(each.offset for each in rest)]

    assert asyncio.run(story()) == [5, 6, 7]


def test_a_coroutine_waits_for_a_delivery_that_another_thread_tells() -> None:
    [future], batch = sent()

    async def story() -> int:
        thread = threading.Thread(target=batch.delivery.succeed, args=(8,))
        asyncio.get_running_loop().call_soon(thread.start)
        metadata = await future
        thread.join()
        return metadata.offset

    assert asyncio.run(story()) == 8


def test_a_wait_that_is_cancelled_leaves_the_record_alone() -> None:
    async def story() -> int:
        [future], batch = sent()
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.001):
                await future
        batch.delivery.succeed(2)
        return (await future).offset

    assert asyncio.run(story()) == 2


def test_an_error_is_raised_where_the_future_is_awaited() -> None:
    async def story() -> None:
        [future], batch = sent()
        asyncio.get_running_loop().call_soon(batch.delivery.fail, FAILURE)
        await future

    with pytest.raises(BrokerError):
        asyncio.run(story())


def test_after_a_split_each_record_follows_its_part() -> None:
    seen: list[int] = []
    futures, batch = sent(4, on_delivery=lambda metadata, _: seen.append(metadata.offset))
    waited: list[int] = []
    waiting = threading.Thread(target=lambda: waited.append(futures[3].result(10).offset))
    waiting.start()
    late: list[SendFuture] = []
    first, second = batch.split(batch.size_bytes - 15)
    futures[2].add_done_callback(late.append)
    assert not batch.delivery.succeed(1)
    second.delivery.succeed(100)
    assert [future.done() for future in futures] == [False, False, True, True]
    assert not batch.delivery.is_done
    first.delivery.succeed(200)
    waiting.join(10)
    assert [future.result(0).offset for future in futures] == [200, 201, 100, 101]
    assert seen == [100, 101, 200, 201]
    assert waited == [101]
    assert late == [futures[2]]
    assert batch.delivery.is_done


def test_a_callback_is_let_go_once_it_has_run() -> None:
    class Callback:
        def __call__(self, metadata: RecordMetadata, error: Exception | None) -> None:
            pass

    callback = Callback()
    seen = weakref.ref(callback)
    futures, batch = sent(1, on_delivery=callback)
    del callback
    assert seen() is not None
    batch.delivery.succeed(0)
    gc.collect()
    assert seen() is None
    assert futures[0].done()


def test_metadata_is_plain_data() -> None:
    metadata = RecordMetadata(TOPIC, 1, 2, 3, 4, 5)
    assert pickle.loads(pickle.dumps(metadata)) == metadata
    assert hash(metadata) == hash(RecordMetadata(TOPIC, 1, 2, 3, 4, 5))
    assert metadata != RecordMetadata(TOPIC, 1, 2, 3, 4, 6)
    assert metadata.__eq__((TOPIC, 1, 2, 3, 4, 5)) is NotImplemented
    assert repr(metadata) == f"RecordMetadata(topic='{TOPIC}', partition=1, offset=2, timestamp_ms=3)"


def test_futures_say_what_they_are() -> None:
    futures, batch = sent(2)
    assert repr(futures[0]) == f"<SendFuture for {TOPIC}-0, pending>"
    batch.delivery.succeed(4)
    assert repr(futures[1]) == f"<SendFuture for {TOPIC}-0, offset 5>"
    with pytest.raises(TypeError, match="made by send"):
        SendFuture()
