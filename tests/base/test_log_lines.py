"""What reaches the log of a node, counted, with a clock that stands until it is moved."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator

import pytest

from barnabas.base.log_lines import INTERVAL_MS, LINES_AT_ONCE, MAX_LINE_BYTES, LimitedHandler
from barnabas.base.runtime import ManualClock


class Lines(logging.Handler):
    """A log of formatted lines."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))

    def emit(self, record: logging.LogRecord) -> None:
        self.lines += self.format(record).split("\n")


class Rig:
    def __init__(self) -> None:
        self.clock = ManualClock()
        self.log = Lines()
        self.later: list[tuple[int, Callable[[], None]]] = []
        self.handler = LimitedHandler(
            self.log, self.clock.monotonic_ms, lambda after_ms, action: self.later.append((after_ms, action))
        )
        self.logger = logging.getLogger("tests.log_lines")
        self.logger.propagate = False
        self.logger.setLevel(logging.DEBUG)
        self.logger.addHandler(self.handler)

    def warn(self, text: str) -> None:
        self.logger.warning("the topic %s was not created", text)

    def end(self) -> None:
        self.logger.removeHandler(self.handler)


@pytest.fixture
def rig() -> Iterator[Rig]:
    rig = Rig()
    yield rig
    rig.end()


def test_repeated_lines_are_limited_and_the_rest_is_counted(rig: Rig) -> None:
    for number in range(1_334):
        rig.warn(str(number))
    assert len(rig.log.lines) == LINES_AT_ONCE
    assert [after_ms for after_ms, _ in rig.later] == [INTERVAL_MS]
    rig.clock.advance(INTERVAL_MS)
    rig.later[0][1]()
    (told,) = rig.log.lines[LINES_AT_ONCE:]
    assert told.startswith("WARNING … and 1,234 more like it (test_log_lines.py:")
    assert told.endswith(": the topic %s was not created)")


def test_a_flood_leaves_one_line_in_a_second_and_one_count_in_an_interval(rig: Rig) -> None:
    for _ in range(60_000):
        rig.warn("again")
        rig.clock.advance(10)
    counts = sum("more like it" in line for line in rig.log.lines)
    assert counts <= 600_000 / INTERVAL_MS
    assert len(rig.log.lines) - counts <= LINES_AT_ONCE + 600
    left_out = sum(int(line.split()[3].replace(",", "")) for line in rig.log.lines if "more like it" in line)
    rig.handler.close()
    left_out += int(rig.log.lines[-1].split()[3].replace(",", ""))
    assert len([line for line in rig.log.lines if "more like it" not in line]) + left_out == 60_000


def test_each_place_and_level_has_its_own_limit(rig: Rig) -> None:
    for _ in range(LINES_AT_ONCE + 1):
        rig.warn("noise")
    rig.logger.error("something else")
    assert rig.log.lines[-1] == "ERROR something else"


def test_a_text_that_is_new_each_time_does_not_get_around_the_limit(rig: Rig) -> None:
    for number in range(10 * LINES_AT_ONCE):
        rig.logger.warning("a client says " + str(number))
    assert len(rig.log.lines) == LINES_AT_ONCE


def test_what_is_critical_always_passes(rig: Rig) -> None:
    for _ in range(10 * LINES_AT_ONCE):
        rig.logger.critical("the disk has failed")
    assert len(rig.log.lines) == 10 * LINES_AT_ONCE


def test_what_was_left_out_is_told_at_the_end(rig: Rig) -> None:
    for _ in range(LINES_AT_ONCE + 7):
        rig.warn("noise")
    rig.handler.close()
    assert "… and 7 more like it" in rig.log.lines[-1]


def test_a_line_is_bounded_and_ids_are_shortened(rig: Rig) -> None:
    rig.logger.warning("the group %s of %s", "g" * 32_768, "\U0001f389" * 65_536)
    rig.logger.warning("%s", "words and words " * 100_000)
    first, second = rig.log.lines
    assert first.startswith(f"WARNING the group {'g' * 64}…(32,768 characters) of \U0001f389")
    assert len(first) < 300
    assert len(second.encode()) < MAX_LINE_BYTES + 100


def test_nobody_writes_lines_of_his_own(rig: Rig) -> None:
    rig.warn("x\n2026-01-01 CRITICAL barnabas.broker: all is lost\x1b[2J")
    (line,) = rig.log.lines
    assert "x\\n2026-01-01 CRITICAL barnabas.broker: all is lost\\x1b[2J" in line


def test_a_traceback_keeps_its_lines_and_cannot_be_forged_either(rig: Rig) -> None:
    try:
        raise ValueError("one\nCRITICAL two\x1b[2J")
    except ValueError:
        rig.logger.exception("a request failed")
    first, *trace = rig.log.lines
    assert first == "ERROR a request failed"
    assert trace[0] == "    Traceback (most recent call last):"
    assert '    raise ValueError("one' in "\n".join(trace)
    assert trace[-2:] == ["    ValueError: one", "    CRITICAL two\\x1b[2J"]
    assert all(line.startswith("    ") for line in trace)


def test_a_traceback_without_end_keeps_both_its_ends(rig: Rig) -> None:
    try:
        raise ValueError("\n".join(f"line {number}" for number in range(100_000)))
    except ValueError:
        rig.logger.exception("a request failed")
    assert len(rig.log.lines) < 150
    assert rig.log.lines[1] == "    Traceback (most recent call last):"
    assert rig.log.lines[-1] == "    line 99999"


def test_a_wrong_call_is_logged_and_ends_nothing(rig: Rig) -> None:
    rig.handler.handle(logging.LogRecord("tests", logging.WARNING, "", 1, "%d of %d", ("one",), None))
    assert "'%d of %d' cannot be filled in" in rig.log.lines[0]


def test_other_handlers_get_the_record_as_it_was(rig: Rig) -> None:
    other = Lines()
    rig.logger.addHandler(other)
    try:
        rig.warn("\x1b")
    finally:
        rig.logger.removeHandler(other)
    assert other.lines == ["WARNING the topic \x1b was not created"]
