"""Calls from threads to a loop in the background: results, callbacks in the caller's thread, and every wrong use."""

from __future__ import annotations

import asyncio
import gc
import os
import signal
import threading
from collections.abc import Iterator

import pytest

from barnabas.client.errors import ClientClosedError, WrongUseError
from barnabas.client.sync import LoopThread, invoke


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    made = LoopThread("the client")
    yield made
    made.close()


async def plus_one(number: int) -> int:
    await asyncio.sleep(0)
    return number + 1


async def failing() -> None:
    raise ValueError("as told")


def test_a_call_returns_what_the_coroutine_returned_or_raised(thread: LoopThread) -> None:
    assert thread.run(plus_one(1)) == 2
    with pytest.raises(ValueError, match="as told"):
        thread.run(failing())


def test_callbacks_run_in_the_thread_that_waits_and_may_call_again(thread: LoopThread) -> None:
    seen: list[tuple[str, int]] = []

    def listener(number: int) -> None:
        seen.append((threading.current_thread().name, thread.run(plus_one(number))))

    async def work() -> str:
        await invoke(listener, 5)
        return "done"

    assert thread.run(work()) == "done"
    assert seen == [(threading.current_thread().name, 6)]


def test_what_a_callback_raises_reaches_the_coroutine(thread: LoopThread) -> None:
    def listener() -> None:
        raise KeyError("lost")

    async def work() -> str:
        try:
            await invoke(listener)
        except KeyError:
            return "seen"
        return "missed"

    assert thread.run(work()) == "seen"


def test_a_call_from_the_loops_own_thread_is_refused_instead_of_waiting_for_ever(thread: LoopThread) -> None:
    async def calls_back() -> None:
        thread.run(plus_one(1))

    with pytest.raises(WrongUseError, match="own callbacks"):
        thread.run(calls_back())


def test_an_interrupted_call_cancels_its_coroutine(thread: LoopThread) -> None:
    begun, cancelled = threading.Event(), threading.Event()

    async def sleeps() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            cancelled.set()
            raise

    def interrupt() -> None:
        begun.wait(10)
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        thread.run(sleeps())
    assert cancelled.wait(10)


def test_after_close_every_call_says_so(thread: LoopThread) -> None:
    thread.close()
    thread.close()
    with pytest.raises(ClientClosedError, match="the client is closed"):
        thread.run(plus_one(1))


def test_a_forked_child_is_told_to_make_its_own(thread: LoopThread) -> None:
    read_end, write_end = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            thread.run(plus_one(1))
        except WrongUseError as error:
            os.write(write_end, str(error).encode())
        thread.close()
        os._exit(0)
    os.close(write_end)
    with os.fdopen(read_end) as told:
        assert "make a new client in the child" in told.read()
    assert os.waitpid(child, 0)[1] == 0
    assert thread.run(plus_one(1)) == 2, "the parent goes on"


def test_a_client_that_is_dropped_leaves_no_thread() -> None:
    made = LoopThread("dropped")
    thread = made._thread
    del made
    gc.collect()
    thread.join(10)
    assert not thread.is_alive()
