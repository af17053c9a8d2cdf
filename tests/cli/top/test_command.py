"""When `barnabas top` looks, on virtual time: nobody is asked but a cluster that notes when."""

from __future__ import annotations

import asyncio
from typing import Any

from barnabas.cli.top.command import _Top, _Wanted
from barnabas.cli.top.history import EndHistory
from barnabas.cli.top.model import Sample
from tests.virtual_time import on_virtual_time


class Looks:
    """Stands for what looks at a cluster: when it was asked to, in seconds."""

    def __init__(self) -> None:
        self.history = EndHistory()
        self.at_s: list[float] = []
        self._start_s = asyncio.get_running_loop().time()

    async def look(self) -> Sample:
        self.at_s.append(round(asyncio.get_running_loop().time() - self._start_s, 3))
        return Sample(0)


def top_of(looker: Any, interval_s: float = 10.0) -> _Top:
    admin: Any = None
    top = _Top(admin, None, _Wanted(as_json=False, once=False, interval_s=interval_s))
    top._looker = looker
    return top


@on_virtual_time
async def test_the_space_bar_looks_at_once_and_a_new_interval_holds_at_once() -> None:
    looks = Looks()
    top = top_of(looks)
    running = asyncio.ensure_future(top.run())
    for seconds, key, expected in (
        (12, " ", [0, 10, 12]),
        (7, "n", [0, 10, 12]),  # keys that choose what is shown ask nobody
        (4, "-", [0, 10, 12, 22, 25]),
        (3, "+", [0, 10, 12, 22, 25, 29]),
    ):
        await asyncio.sleep(seconds)
        top._key(key)
        await asyncio.sleep(1)
        assert looks.at_s == expected
    await asyncio.sleep(8)
    top._key("q")
    await running
    assert looks.at_s[5:] == [29]
