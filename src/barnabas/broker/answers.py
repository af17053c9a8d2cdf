"""Answers that may be there at once or later, without a task for either. They say what failed; they do not raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from barnabas.net import Connection

T = TypeVar("T")
U = TypeVar("U")


def once(answer: T | asyncio.Future[T], then: Callable[[T], U]) -> U | asyncio.Future[U]:
    """Go on with an answer as soon as it is there, which may be now."""
    if not isinstance(answer, asyncio.Future):
        return then(answer)
    result: asyncio.Future[U] = answer.get_loop().create_future()

    def finish(done: asyncio.Future[T]) -> None:
        if done.cancelled() or result.done():
            result.cancel()
        else:
            result.set_result(then(done.result()))

    answer.add_done_callback(finish)
    return result


def parked(answer: T | asyncio.Future[T], connection: Connection) -> T | asyncio.Future[T]:
    """An answer that may wait for other clients. If its own is gone first it is given up: nobody listens."""
    if isinstance(answer, asyncio.Future):
        go_on = connection.park(answer.cancel)
        answer.add_done_callback(lambda _: go_on())
    return answer


def all_of(answers: Sequence[T | asyncio.Future[T]], then: Callable[[list[T]], U]) -> U | asyncio.Future[U]:
    """Go on when the last of several answers is there."""
    waiting = [each for each in answers if isinstance(each, asyncio.Future)]
    if not waiting:
        return then([each for each in answers if not isinstance(each, asyncio.Future)])
    result: asyncio.Future[U] = waiting[0].get_loop().create_future()

    def finish(done: asyncio.Future[list[T]]) -> None:
        if done.cancelled() or result.done():
            result.cancel()
        else:
            result.set_result(then([each.result() if isinstance(each, asyncio.Future) else each for each in answers]))

    asyncio.gather(*waiting).add_done_callback(finish)
    return result
