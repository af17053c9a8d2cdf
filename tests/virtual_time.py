"""Stories on virtual time: hours of waiting take none, and no busy machine makes anything late.

A story is a coroutine. It has a loop and a network of its own, where an `AsyncEmbeddedBroker` and our clients work as
anywhere else; bytes arrive late and in pieces, as the seed says. Clients take the time from `clock()`.
"""

from __future__ import annotations

import asyncio
import functools
from collections.abc import Awaitable, Callable, Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final, ParamSpec, TypeVar

from barnabas.base.runtime import Clock, SystemClock
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.network import Network
from barnabas.testing.sim.runtime import SimulatedClock

T = TypeVar("T")
P = ParamSpec("P")

#: A story that has not ended after so long never will.
LIMIT_S: Final = 100_000.0


@contextmanager
def virtual_loop(seed: int | None = 1, **network: Any) -> Iterator[VirtualTimeLoop]:
    """A loop with a network behind it; without a seed, what is ready runs in the order in which it became so."""
    loop = VirtualTimeLoop(None if seed is None else Random(seed))
    Network(loop, Random(seed or 1), **network)
    try:
        yield loop
    finally:
        loop.close()


def play(story: Awaitable[T], *, seed: int | None = 1, limit_s: float = LIMIT_S) -> T:
    """What a story comes to."""
    with virtual_loop(seed) as loop:
        return loop.run_until_complete(story, limit_s=limit_s)


def on_virtual_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """A test that is a coroutine, on virtual time."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        play(test(*arguments, **keywords))

    return run


def on_real_time(test: Callable[P, Coroutine[Any, Any, None]]) -> Callable[P, None]:
    """The same on the machine's time, for those who talk with clients or brokers of others; they may not hang."""

    @functools.wraps(test)
    def run(*arguments: P.args, **keywords: P.kwargs) -> None:
        asyncio.run(asyncio.wait_for(test(*arguments, **keywords), 30))

    return run


def clock() -> Clock:
    """The clock of the running loop: its own where its time is virtual, else the machine's."""
    loop = asyncio.get_running_loop()
    return SimulatedClock(loop) if isinstance(loop, VirtualTimeLoop) else SystemClock()


async def until(holds: Callable[[], object]) -> None:
    """For what no callback tells: look again after a while. If it never comes true, the story reaches its limit."""
    while not holds():  # noqa: ASYNC110
        await asyncio.sleep(0.005)
