"""When `barnabas top` looks, on virtual time: nobody is asked but a cluster that notes when."""

from __future__ import annotations

import asyncio
import logging
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.cli import output
from barnabas.cli.top.asking import Looker
from barnabas.cli.top.command import _Top, _Wanted
from barnabas.cli.top.history import EndHistory
from barnabas.cli.top.model import Sample
from barnabas.cli.warnings_shown import show_warnings
from barnabas.client.admin import Admin, ClusterDescription
from barnabas.client.core.cluster_view import Node
from barnabas.client.errors import ClientTimeoutError, KeyedError, NoBrokersError
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


class LostItsQuorum:
    """Stands for an admin of a cluster without a quorum: of three brokers, which no controller fences, the first
    answers."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def describe_cluster(self, **_: object) -> ClusterDescription:
        return ClusterDescription("c", None, tuple(Node(number, f"kafka-{number}", 9092) for number in (1, 2, 3)))

    async def list_topics(self, **_: object) -> list[str]:
        return ["t"]

    async def describe_topics(self, names: list[str]) -> dict[str, Any]:
        nodes = (await self.describe_cluster()).nodes
        led = [SimpleNamespace(partition=each.node_id, leader=each, replicas=nodes, isr=nodes) for each in nodes]
        return {name: SimpleNamespace(partitions=led) for name in names}

    async def list_offsets(self, specs: Any, timeout: float) -> Any:
        return await self._asked("offsets", {each: SimpleNamespace(offset=5) for each in specs}, timeout)

    async def list_groups(self, timeout: float) -> Any:
        return await self._asked("groups", {number: [] for number in (1, 2, 3)}, timeout)

    async def describe_log_dirs(self, brokers: list[int], timeout: float) -> Any:
        return await self._asked("sizes", {number: {} for number in brokers}, timeout)

    async def describe_metadata_quorum(self, timeout: float) -> Any:
        self.asked.append("quorum")
        await asyncio.sleep(timeout)
        raise ClientTimeoutError("no controller")

    async def _asked(self, what: str, answers: dict[Any, Any], timeout: float) -> dict[Any, Any]:
        """Those of the first broker; the others are waited for."""
        self.asked.append(what)
        own = {each: told for each, told in answers.items() if getattr(each, "partition", each) == 1}
        if own != answers:
            await asyncio.sleep(timeout)
            late = ClientTimeoutError("no time")
            raise KeyedError({each: late for each in answers if each not in own}, own)
        return own


@on_virtual_time
async def test_a_cluster_without_a_quorum_is_told_soon_and_what_is_late_is_not_asked_again(
    capsys: pytest.CaptureFixture[str],
) -> None:
    loop = asyncio.get_running_loop()
    start_s = loop.time()
    admin: Any = LostItsQuorum()
    await _Top(admin, None, _Wanted(as_json=False, once=True, interval_s=2.0)).run()
    assert loop.time() - start_s < 7
    assert sorted(admin.asked) == ["groups", "offsets", "offsets", "quorum", "sizes"]
    lines = capsys.readouterr().out.splitlines()
    assert "1 broker, no controller" in lines[0]
    assert [line for line in lines if line.startswith(("!", "?"))] == [
        "! No controller leads: nothing is created, changed or elected; the rest goes on",
        "! Brokers 2, 3 do not answer, and nobody has fenced them: clients wait",
        "? the quorum: no controller",
    ]
    assert sum("no answer" in line for line in lines) == 2


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
