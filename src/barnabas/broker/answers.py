"""Answers that may be there at once or later, without a task for either. They say what failed; they do not raise."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
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
