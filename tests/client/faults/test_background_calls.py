"""Calls to the background that meet its end, an interruption, or a caller that is gone: none waits for ever."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import pytest

from barnabas.client.errors import ClientClosedError
from barnabas.client.sync import LoopThread, invoke
from tests.client.faults.reading import LIMIT_S, wait_until


async def sleep_for_long() -> None:
    await asyncio.sleep(600)


def test_a_call_under_way_when_the_background_is_closed_says_so() -> None:
    thread = LoopThread("the client")
    outcome: list[Any] = []

    def call() -> None:
        try:
            thread.run(sleep_for_long())
        except ClientClosedError as error:
            outcome.append(str(error))

    caller = threading.Thread(target=call)
    caller.start()
    wait_until(lambda: thread._calls, "it waits")
    thread.close()
    caller.join(LIMIT_S)
    assert outcome == ["the client was closed meanwhile"]


def test_calls_that_race_with_the_close_all_end() -> None:
    for _ in range(30):
        thread = LoopThread("the client")
        outcome: list[Any] = []

        def call(thread: LoopThread = thread, outcome: list[Any] = outcome) -> None:
            try:
                while True:
                    thread.run(asyncio.sleep(0))
            except ClientClosedError as error:
                outcome.append(error)

        callers = [threading.Thread(target=call) for _ in range(4)]
        for caller in callers:
            caller.start()
        thread.close()
        for caller in callers:
            caller.join(LIMIT_S)
        assert len(outcome) == 4


def test_a_callback_of_the_program_whose_caller_is_gone_runs_all_the_same() -> None:
    """A task that outlives the call which began it has nobody to hand the callback to, and must not wait for one."""
    thread = LoopThread("the client")
    ran: list[str] = []
    tasks: list[asyncio.Task[None]] = []

    async def later() -> None:
        await asyncio.sleep(0.01)
        await invoke(ran.append, threading.current_thread().name)

    async def begin() -> None:
        tasks.append(asyncio.create_task(later()))

    thread.run(begin())
    wait_until(lambda: ran, "it ran")
    assert ran == ["the client"]
    thread.close()


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interruption_in_a_callback_breaks_the_call_off_and_leaves_the_background_alive(
    interrupt: type[BaseException],
) -> None:
    thread = LoopThread("the client")
    ended: list[str] = []

    def callback() -> None:
        raise interrupt

    async def work() -> None:
        try:
            await invoke(callback)
        finally:
            await asyncio.sleep(0.01)
            ended.append("in good order")

    with pytest.raises(interrupt):
        thread.run(work())
    assert ended == ["in good order"], "the call ends after its coroutine"

    async def answer() -> int:
        return 7

    assert thread.run(answer()) == 7
    thread.close()


def test_a_callback_that_raises_stop_iteration_does_not_stop_anything() -> None:
    thread = LoopThread("the client")

    def callback() -> None:
        raise StopIteration

    async def work() -> None:
        await invoke(callback)

    with pytest.raises(RuntimeError, match="StopIteration"):
        thread.run(work())
    thread.close()
