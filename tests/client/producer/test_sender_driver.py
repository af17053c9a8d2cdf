"""The sender on an event loop: it wakes when there is something to do, sleeps otherwise, and leaves nobody waiting."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable
from contextlib import nullcontext
from random import Random
from typing import Any

import pytest

from barnabas.client._kernel.sending import SendFuture
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.producing.accumulator import Accumulator, AccumulatorSettings
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.buffer_pool import BufferPool
from barnabas.client.core.producing.sender import Sender
from barnabas.client.core.producing.sender_ports import SenderSettings
from barnabas.client.errors import ClientClosedError, ClientError, ClientTimeoutError
from barnabas.client.producer.driver import SenderDriver, SenderFailedError
from barnabas.net.errors import DisconnectedError
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.wire.messages.produce import (
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.core.producing.sender_stories import StillMetadata
from tests.client.core.producing.sender_world import CountingMetrics
from tests.virtual_time import play

VIEW = ClusterView(1, "c", None, {1: Node(1, "b", 9092)}, [TopicView("t", partitions=(PartitionInfo("t", 0, 1, 0),))])


class LoopClock:
    """The time of the running loop, from a moment on, as clocks of programs have it."""

    def now_ms(self) -> int:
        return 1_700_000_000_000 + self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return int(asyncio.get_running_loop().time() * 1000)


class FakeNetwork:
    """Answers each request after `answer_after_s`, or never."""

    def __init__(self) -> None:
        self.answer_after_s: float | None = 0.001
        self.is_connected = True
        self.error: Exception | None = None
        self.asked: list[ProduceRequest] = []
        self.in_flight = 0
        self.next_offset = 0
        self.ready: list[Callable[[int], None]] = []
        self.updated: list[Callable[[ClusterView], None]] = []

    def delay_ms(self, node_id: int, now_ms: int) -> float:
        return 0.0 if self.is_connected and self.in_flight < 5 else math.inf

    def version_of(self, node_id: int, request: type[Any]) -> int | None:
        return 12

    def connect_soon(self, node_id: int) -> None:
        pass

    def on_denial(self, callback: Callable[[Any], None]) -> None:
        """Nobody is refused here."""

    def on_ready(self, callback: Callable[[int], None]) -> None:
        self.ready.append(callback)

    def on_update(self, callback: Callable[[ClusterView], None]) -> None:
        self.updated.append(callback)

    async def request_any(self, message: Any, *, timeout_ms: float | None = None) -> Any:
        return InitProducerIdResponse(producer_id=7, producer_epoch=0)

    def request_soon(
        self,
        node_id: int,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        version: int | None = None,
        timeout_ms: float | None = None,
    ) -> None:
        self.asked.append(message)
        self.in_flight += 1
        if self.answer_after_s is not None:
            asyncio.get_running_loop().call_later(self.answer_after_s, self._answer, on_answer)

    def _answer(self, on_answer: Callable[[Any], None]) -> None:
        self.in_flight -= 1
        if self.error is not None:
            on_answer(self.error)
            return
        answer = PartitionProduceResponse(index=0, base_offset=self.next_offset)
        self.next_offset += 1
        on_answer(ProduceResponse(responses=[TopicProduceResponse(name="t", partition_responses=[answer])]))

    def send(self, node_id: int, message: Any, on_sent: Any = None, *, version: int | None = None) -> None:
        self.asked.append(message)
        asyncio.get_running_loop().call_soon(on_sent, None)


class Bench:
    def __init__(self, *, linger_ms: int = 0, acks: int = -1, is_shared: bool = False, **options: Any) -> None:
        self.network = FakeNetwork()
        self.metadata = StillMetadata()
        self.metadata.view = VIEW
        self.accumulator = Accumulator(
            AccumulatorSettings(linger_ms=linger_ms, batch_bytes=200, **options),
            BufferPool(1 << 24, 200),
            randomness=Random(1),
            lock=threading.RLock() if is_shared else nullcontext(),
        )
        self.sender = Sender(
            SenderSettings(acks=acks, is_idempotent=acks != 0, **options),
            self.metadata,  # type: ignore[arg-type]
            self.accumulator,
            self.network,
            randomness=Random(1),
            metrics=CountingMetrics(),
        )
        self.driver = SenderDriver(
            self.network,
            self.accumulator,
            self.sender,
            clock=LoopClock(),
            request_timeout_ms=30_000,
            is_shared=is_shared,
        )
        self.step_count = 0
        step = self.sender.step

        def counted(now_ms: int) -> Any:
            self.step_count += 1
            return step(now_ms)

        self.sender.step = counted  # type: ignore[method-assign]

    def send(self, value: bytes = b"v", on_delivery: Any = None, now_ms: int | None = None) -> SendFuture:
        lane = self.accumulator.lane("t", VIEW)
        assert lane is not None
        now_ms = LoopClock().monotonic_ms() if now_ms is None else now_ms
        made = self.accumulator.append(lane, 0, value, None, None, 1, on_delivery, now_ms)
        assert isinstance(made, SendFuture)
        return made


def test_a_record_is_sent_and_acknowledged() -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.start()
        assert (await bench.send()).offset == 0
        assert (await bench.send()).offset == 1
        await bench.driver.close()

    play(story())


def test_a_batch_that_lingers_leaves_when_its_time_is_up() -> None:
    async def story() -> None:
        bench = Bench(linger_ms=500)
        bench.driver.start()
        began = asyncio.get_running_loop().time()
        await bench.send()
        assert 0.5 <= asyncio.get_running_loop().time() - began < 0.52

    play(story())


def test_flush_waits_for_what_is_there_and_does_not_linger() -> None:
    async def story() -> None:
        bench = Bench(linger_ms=60_000)
        bench.driver.start()
        sent = [bench.send() for _ in range(10)]
        await bench.driver.flush(1000)
        assert all(each.done() for each in sent)
        await bench.driver.flush(0)

    play(story())


def test_a_flush_that_takes_too_long_says_so_and_the_records_go_on() -> None:
    async def story() -> None:
        bench = Bench()
        bench.network.answer_after_s = 5
        bench.driver.start()
        sent = bench.send()
        with pytest.raises(ClientTimeoutError, match="within 100 ms; it is still being sent"):
            await bench.driver.flush(100)
        assert not sent.done()
        assert (await sent).offset == 0

    play(story())


def test_closing_sends_what_is_there() -> None:
    async def story() -> None:
        bench = Bench(linger_ms=60_000)
        bench.driver.start()
        sent = [bench.send(b"x" * 150) for _ in range(10)]
        await bench.driver.close(1000)
        assert [each.exception() for each in sent] == [None] * 10
        with pytest.raises(ClientClosedError):
            bench.send()
        await bench.driver.close(1000)

    play(story())


@pytest.mark.parametrize("timeout_ms", [0, 500])
def test_what_is_not_acknowledged_in_time_fails_when_closed(timeout_ms: int) -> None:
    async def story() -> None:
        bench = Bench()
        bench.network.answer_after_s = 60
        bench.driver.start()
        sent = [bench.send(b"x" * 150) for _ in range(3)]
        began = asyncio.get_running_loop().time()
        await bench.driver.close(timeout_ms)
        assert asyncio.get_running_loop().time() - began == pytest.approx(timeout_ms / 1000, abs=0.01)
        for each in sent:
            with pytest.raises(ClientClosedError, match="the producer was closed, and this was not acknowledged"):
                await each
        await asyncio.sleep(100)  # late answers change nothing
        assert bench.accumulator.pool.available_bytes == 1 << 24

    play(story())


def test_a_caller_who_gives_up_closing_leaves_no_record_without_an_outcome() -> None:
    async def story() -> None:
        bench = Bench()
        bench.network.answer_after_s = None
        bench.driver.start()
        sent = bench.send()
        closing = asyncio.create_task(bench.driver.close())
        await asyncio.sleep(1)
        closing.cancel()
        with pytest.raises(ClientClosedError):
            await sent

    play(story())


def test_nothing_to_do_costs_nothing() -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.start()
        await bench.send()
        await asyncio.sleep(1)
        before = bench.step_count
        await asyncio.sleep(3600)
        assert bench.step_count == before

    play(story())


def test_a_node_that_is_away_is_waited_for_without_asking_again_and_again() -> None:
    async def story() -> None:
        bench = Bench()
        bench.network.is_connected = False
        bench.driver.start()
        sent = bench.send()
        await asyncio.sleep(60)
        assert bench.step_count < 10
        bench.network.is_connected = True
        bench.network.ready[0](1)
        assert (await sent).offset == 0

    play(story())


def test_what_is_never_answered_times_out_by_itself() -> None:
    async def story() -> None:
        bench = Bench(delivery_timeout_ms=2000)
        bench.network.answer_after_s = None
        bench.driver.start()
        sent = [bench.send(b"x" * 150) for _ in range(3)]
        await asyncio.sleep(2.1)
        assert all(isinstance(each.exception(), ClientTimeoutError) for each in sent)

    play(story())


def test_lost_requests_are_sent_again() -> None:
    async def story() -> None:
        bench = Bench()
        bench.network.error = DisconnectedError("b:9092", "the connection broke")
        bench.driver.start()
        sent = bench.send()
        await asyncio.sleep(1)
        assert 2 <= len(bench.network.asked) < 10
        bench.network.error = None
        assert (await sent).offset == 0

    play(story())


def test_without_acks_records_are_done_when_they_have_left() -> None:
    async def story() -> None:
        bench = Bench(acks=0)
        bench.driver.start()
        assert (await bench.send()).offset == -1
        await bench.driver.close()

    play(story())


def test_a_callback_that_raises_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def raises(metadata: Any, error: Exception | None) -> None:
        raise ValueError("in the program")

    async def story() -> None:
        bench = Bench()
        bench.driver.start()
        first, second = bench.send(on_delivery=raises), bench.send()
        assert [(await first).offset, (await second).offset] == [0, 1]
        assert (await bench.send()).offset == 1

    play(story())
    assert "in the program" in caplog.text


def test_a_batch_that_cannot_be_encoded_fails_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    real = ProducerBatch.encoded

    def encoded(batch: ProducerBatch) -> bytearray:
        if batch.record_count == 2:
            raise RuntimeError("no such codec")
        return real(batch)

    monkeypatch.setattr(ProducerBatch, "encoded", encoded)

    async def story() -> None:
        bench = Bench()
        bench.driver.start()
        await bench.send()
        bad = [bench.send(), bench.send()]
        for each in bad:
            with pytest.raises(ClientError, match="t-0: 2 records could not be encoded: RuntimeError"):
                await each
        assert (await bench.send()).offset == 1
        assert bench.driver.failure is None

    play(story())


def test_a_driver_that_was_never_started_closes() -> None:
    async def story() -> None:
        bench = Bench()
        sent = bench.send()
        await bench.driver.close()
        with pytest.raises(ClientClosedError):
            await sent

    play(story())


def test_a_callback_may_send() -> None:
    async def story() -> None:
        bench = Bench()
        bench.driver.start()
        more: list[SendFuture] = []
        await bench.send(on_delivery=lambda metadata, error: more.append(bench.send()))
        assert (await more[0]).offset == 1

    play(story())


@pytest.mark.parametrize("method", ["step", "answered", "failed"])
def test_a_fault_of_the_sender_fails_every_record_and_says_so(method: str, caplog: pytest.LogCaptureFixture) -> None:
    def broken(*arguments: Any) -> Any:
        raise ZeroDivisionError("a fault")

    async def story() -> None:
        bench = Bench()
        bench.driver.start()
        await bench.send()
        if method == "failed":
            bench.network.error = DisconnectedError("b:9092", "the connection broke")
        setattr(bench.sender, method, broken)
        sent = [bench.send(b"x" * 150) for _ in range(3)]
        for each in sent:
            with pytest.raises(SenderFailedError, match="fault in barnabas"):
                await each
        assert isinstance(bench.driver.failure, SenderFailedError)
        with pytest.raises(ClientClosedError):
            bench.send()
        await bench.driver.close(1000)

    play(story())
    assert "ZeroDivisionError" in caplog.text


def test_an_interruption_in_the_midst_of_an_answer_leaves_nobody_waiting() -> None:
    bench = Bench()
    sent: list[SendFuture] = []

    async def story() -> None:
        bench.driver.start()
        sent.append(bench.send())
        await sent[0]

    async def ending() -> None:
        with pytest.raises(SenderFailedError, match="interrupted by KeyboardInterrupt"):
            await sent[0]
        with pytest.raises(ClientClosedError):
            bench.send()
        await bench.driver.close()

    def interrupted(*_: Any) -> Any:
        raise KeyboardInterrupt

    bench.sender._take_leader_hints = interrupted  # type: ignore[assignment,method-assign]
    loop = asyncio.new_event_loop()
    try:
        first = loop.create_task(story())
        with pytest.raises(KeyboardInterrupt):
            loop.run_until_complete(first)
        loop.run_until_complete(ending())
        assert isinstance(first.exception(), SenderFailedError)
    finally:
        loop.close()


def test_ctrl_c_in_a_wake_does_not_keep_the_next_from_waking() -> None:
    async def story() -> None:
        bench = Bench(is_shared=True)
        bench.driver.start()
        await bench.send()
        loop = bench.driver._loop

        class Interrupted:
            def call_soon_threadsafe(self, *_: Any, **__: Any) -> None:
                bench.driver._loop = loop
                raise KeyboardInterrupt

        await asyncio.sleep(1)
        bench.driver._loop = Interrupted()  # type: ignore[assignment]
        with pytest.raises(KeyboardInterrupt):
            bench.driver.wake_threadsafe()
        async with asyncio.timeout(1):
            await bench.send()

    play(story())


def test_no_wake_of_another_thread_is_lost() -> None:
    """Threads put records in and wake the loop; at the end nobody wakes it any more, and all must have left."""

    async def story() -> None:
        bench = Bench(is_shared=True)
        bench.network.answer_after_s = 0
        bench.driver.start()
        clock_ms = LoopClock().monotonic_ms()
        sent: list[SendFuture] = []

        def work() -> None:
            sent.extend(bench.send(b"x" * 100, now_ms=clock_ms) for _ in range(300))

        async with asyncio.timeout(10):
            await asyncio.gather(*(asyncio.to_thread(work) for _ in range(3)))
            for each in sent:
                await each
        assert len(sent) == 900

    asyncio.run(story())


def test_waking_who_is_awake_costs_no_call_of_the_loop() -> None:
    async def story() -> None:
        bench = Bench(is_shared=True)
        bench.driver.start()
        await asyncio.sleep(0.01)
        calls = 0
        loop = asyncio.get_running_loop()
        real = loop.call_soon_threadsafe

        def counted(*arguments: Any, **options: Any) -> Any:
            nonlocal calls
            calls += 1
            return real(*arguments, **options)

        loop.call_soon_threadsafe = counted  # type: ignore[method-assign,assignment]
        for _ in range(100):
            bench.driver.wake_threadsafe()
        assert calls == 1

    asyncio.run(story())
