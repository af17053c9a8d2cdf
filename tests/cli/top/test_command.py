"""When `barnabas top` looks, on virtual time: nobody is asked but a cluster that notes when."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from typing import Any

import pytest

from barnabas.cli import output
from barnabas.cli.top.asking import Looker
from barnabas.cli.top.command import _Top, _Wanted
from barnabas.cli.top.history import EndHistory
from barnabas.cli.top.model import Sample
from barnabas.cli.warnings_shown import show_warnings
from barnabas.client.admin import Admin
from barnabas.client.errors import NoBrokersError
from barnabas.testing import AsyncEmbeddedBroker
from tests.virtual_time import clock, on_virtual_time


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


@on_virtual_time
async def test_a_cluster_that_goes_away_is_shown_as_it_was_and_since_when(capsys: pytest.CaptureFixture[str]) -> None:
    broker = AsyncEmbeddedBroker()
    await broker.start()
    await broker.create_topic("clicks")
    async with Admin(bootstrap_servers=broker.bootstrap_servers, clock=clock()) as admin:
        top = _Top(admin, None, _Wanted(as_json=False, once=False, interval_s=2.0))
        running = asyncio.ensure_future(top.run())
        await asyncio.sleep(3)
        assert "\n? " not in capsys.readouterr().out
        await broker.stop()
        await asyncio.sleep(15)
        told = capsys.readouterr().out
        assert re.search(r"^\? no answer since \d\d:\d\d:\d\d UTC: ", told, re.MULTILINE)
        assert "\nclicks " in told
        top._key("q")
        await running


class HasProblems(Looks):
    async def look(self) -> Sample:
        return replace(await super().look(), problems=("always",))


@on_virtual_time
async def test_a_warning_stays_until_a_look_went_well(capsys: pytest.CaptureFixture[str]) -> None:
    top = top_of(HasProblems())
    running = asyncio.ensure_future(top.run())
    await asyncio.sleep(1)
    top._warned("a broker is gone")
    assert re.search(r"\? a broker is gone\s+\? always", capsys.readouterr().out)
    await asyncio.sleep(10)
    told = capsys.readouterr().out
    assert "? always" in told
    assert "gone" not in told
    top._key("q")
    await running


@on_virtual_time
async def test_a_cluster_that_is_not_there_is_waited_for_some_seconds() -> None:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    async with Admin(bootstrap_servers="127.0.0.1:9092", clock=clock()) as admin:
        with pytest.raises(NoBrokersError, match="Check bootstrap"):
            await Looker(admin, lambda: 0).look()
    assert 5 < loop.time() - start_s < 15


class Warns(Looks):
    """Its client has something to say at the second look, which is the last."""

    top: _Top

    async def look(self) -> Sample:
        if self.at_s:
            logging.getLogger("barnabas.client").warning("nobody answers\x1b[2J")
            self.top._key("q")
        return await super().look()


def test_warnings_stand_on_the_screen_not_in_the_middle_of_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_watched", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.setattr(logging.root, "handlers", [])
    show_warnings()

    async def story() -> None:
        looks = Warns()
        looks.top = top_of(looks)
        looks.top._key(" ")
        await looks.top.run()

    asyncio.run(story())
    told = capsys.readouterr()
    assert "? nobody answers\\x1b[2J" in told.out
    assert told.err == ""
    logging.getLogger("barnabas.client").warning("later")
    assert capsys.readouterr().err == "barnabas: later\n"
