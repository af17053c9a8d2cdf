"""Every line says who speaks: nodes and clients of one process do not mix, whoever's handler writes the line."""

from __future__ import annotations

import asyncio
import json
import logging

import pytest

from barnabas.base.log_context import TRACE, logger, said, speaking
from barnabas.base.log_formats import JsonLines
from barnabas.base.log_lines import LINES_AT_ONCE, LimitedHandler
from barnabas.base.runtime import ManualClock
from barnabas.base.system_runtime import SystemRuntime

LOG = logger("barnabas.tests.speaking")


@pytest.fixture(autouse=True)
def _heard(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(TRACE, "barnabas.tests.speaking")


def test_tasks_and_callbacks_speak_as_whoever_made_them(caplog: pytest.LogCaptureFixture) -> None:
    async def node(number: int) -> None:
        with speaking(f"node {number}"):
            task = asyncio.create_task(later(number))
            asyncio.get_running_loop().call_soon(LOG.info, "a callback of %d", number)
        await task

    async def later(number: int) -> None:
        await asyncio.sleep(0)
        LOG.info("a task of %d", number)

    async def both() -> None:
        await asyncio.gather(node(1), node(2))
        LOG.info("nobody in particular")

    asyncio.run(both())
    assert sorted(caplog.messages) == [
        "[node 1] a callback of 1",
        "[node 1] a task of 1",
        "[node 2] a callback of 2",
        "[node 2] a task of 2",
        "nobody in particular",
    ]


def test_work_in_threads_speaks_as_its_node(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        runtime = SystemRuntime()
        with speaking("node 7"):
            await runtime.offload(lambda: LOG.warning("the disk is slow"))
        runtime.close()

    asyncio.run(story())
    assert caplog.messages == ["[node 7] the disk is slow"]


@pytest.mark.parametrize("who", ["producer 100 %s of %d", "consumer 50%"])
def test_a_name_is_not_filled_in(caplog: pytest.LogCaptureFixture, who: str) -> None:
    with speaking(who):
        LOG.info("%s: %d", "t", 3)
        LOG.info("all of it: 100 %")
    assert caplog.messages == [f"[{who}] t: 3", f"[{who}] all of it: 100 %"]
    assert [said(record) for record in caplog.records] == ["t: 3", "all of it: 100 %"]


def test_a_name_is_one_line(caplog: pytest.LogCaptureFixture) -> None:
    with speaking("producer a\n2026-01-01 ERROR \x1b[31m" + "x" * 9999):
        LOG.info("here")
    (line,) = caplog.messages
    assert line.startswith("[producer a\\n2026-01-01 ERROR \\x1b[31m")
    assert len(line) < 400


def lines_of(handler: logging.Handler, caplog: pytest.LogCaptureFixture) -> None:
    for record in caplog.records:
        handler.handle(record)


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(JsonLines())

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


def test_lines_of_json(caplog: pytest.LogCaptureFixture) -> None:
    log = Lines()
    handler = LimitedHandler(log, ManualClock().monotonic_ms)
    with speaking("node 2"):
        LOG.warning('a "topic"\n%s', "ünder", extra={"fields": {"totalMs": 12.5}})
        try:
            raise ValueError("two\nlines")
        except ValueError:
            LOG.exception("it failed")
        LOG.log(TRACE, "fine")
    lines_of(handler, caplog)
    first, second, third = (json.loads(line) for line in log.lines)
    assert first.pop("time").endswith("Z")
    assert first == {
        "level": "WARNING",
        "logger": "barnabas.tests.speaking",
        "who": "node 2",
        "message": 'a "topic"\\nünder',
        "totalMs": 12.5,
    }
    assert (second["message"], second["who"]) == ("it failed", "node 2")
    assert "ValueError: two" in second["exception"]
    assert third["level"] == "TRACE"
    assert not [line for line in log.lines if "\n" in line]


def test_lines_of_other_libraries_say_who_too() -> None:
    log = Lines()
    handler = LimitedHandler(log, ManualClock().monotonic_ms)
    with speaking("node 3"):
        handler.handle(logging.LogRecord("asyncio", logging.ERROR, __file__, 1, "a task %s", ("failed",), None))
    (line,) = (json.loads(each) for each in log.lines)
    assert (line["who"], line["message"]) == ("node 3", "a task failed")


def test_a_log_that_was_turned_on_is_whole() -> None:
    log = Lines()
    handler = LimitedHandler(log, ManualClock().monotonic_ms, whole=["barnabas.request"])
    for name in ("barnabas.request", "barnabas.broker"):
        for number in range(3 * LINES_AT_ONCE):
            handler.handle(logging.LogRecord(name, logging.DEBUG, __file__, 1, "line %d", (number,), None))
    assert len(log.lines) == 4 * LINES_AT_ONCE


def test_a_log_that_is_whole_shortens_no_words_and_is_bounded_all_the_same() -> None:
    log = Lines()
    handler = LimitedHandler(log, ManualClock().monotonic_ms, whole=["barnabas.request"])
    for text in ("x" * 10_000 + "\n", "x" * 100_000):
        handler.handle(logging.LogRecord("barnabas.request", logging.DEBUG, __file__, 1, "%s", (text,), None))
    first, second = (json.loads(line)["message"] for line in log.lines)
    assert first == "x" * 10_000 + "\\n"
    assert second == "x" * 65_536 + "…(100,000 characters)"
