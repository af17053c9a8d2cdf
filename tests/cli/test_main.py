"""The `barnabas` command itself: help, exit codes, and how failures are told."""

from __future__ import annotations

import subprocess
import sys

import pytest

from barnabas.cli.main import TOOLS, main
from tests.cli.tools import Tools


def test_help_lists_every_tool(barnabas: Tools) -> None:
    told = barnabas("--help")
    assert told.code == 0
    for name, tool in TOOLS.items():
        assert name in told.out
        assert tool.help in told.out


@pytest.mark.parametrize("words", [(), ("storage",)])
def test_who_asks_for_nothing_is_told_what_there_is(barnabas: Tools, words: tuple[str, ...]) -> None:
    told = barnabas(*words)
    assert told == (0, barnabas(*words, "--help").out, "")


@pytest.mark.parametrize("name", TOOLS)
def test_every_tool_explains_itself_with_an_example(barnabas: Tools, name: str) -> None:
    told = barnabas(name, "--help")
    assert told.code == 0
    assert f"Usage: barnabas {name}" in told.out
    if name != "server":
        assert f"barnabas {name}" in told.out.partition("Example")[2]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("nonsense",), "No such command 'nonsense'"),
        (("storage", "format"), "Missing option"),
        (("dump-log",), "Missing option '--files'"),
        (("dump-log", "--files", "x", "--max-bytes", "many"), "'many' is not a valid integer"),
        (("metadata-shell", "ls"), "give either --snapshot FILE or --directory DIR"),
    ],
)
def test_a_wrong_call_is_told_in_one_line_and_ends_with_2(
    barnabas: Tools, arguments: tuple[str, ...], said: str
) -> None:
    told = barnabas(*arguments)
    assert (told.code, told.out) == (2, "")
    assert told.err.startswith("barnabas: ")
    assert said in told.err
    assert told.err.count("\n") == 1


@pytest.mark.parametrize(
    ("written", "said"),
    [
        ("tops", "No such command 'tops'. Did you mean 'top' or 'topics'?"),
        ("console-consumr", "Did you mean 'console-consumer'"),
        ("kafka-topics.sh", "No such command 'kafka-topics.sh'. Did you mean 'topics'?"),
        ("nonsense", "No such command 'nonsense' (see"),
    ],
)
def test_a_slip_of_the_pen_is_answered_with_what_was_meant(barnabas: Tools, written: str, said: str) -> None:
    told = barnabas(written, "--list")
    assert (told.code, told.out) == (2, "")
    assert said in told.err
    assert told.err.count("\n") == 1


def test_a_file_that_is_missing_ends_with_1(barnabas: Tools) -> None:
    told = barnabas("storage", "info", "-c", "/nowhere/server.properties")
    assert told == (1, "", "barnabas: /nowhere/server.properties: No such file or directory\n")


def test_the_module_can_be_run() -> None:
    done = subprocess.run([sys.executable, "-m", "barnabas", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("barnabas ")


def test_a_reader_that_has_seen_enough_is_no_failure_to_tell_of() -> None:
    """As with `barnabas … | head -1`."""
    process = subprocess.Popen(
        [sys.executable, "-m", "barnabas", "--help"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert process.stdout is not None
    assert process.stderr is not None
    process.stdout.close()
    assert process.stderr.read() == b""
    process.wait()


@pytest.mark.parametrize("arguments", [["--help"], ["storage", "random-uuid"]])
def test_tools_load_only_what_they_need(arguments: list[str]) -> None:
    """What takes long to import stays out of the way of those who do not use it."""
    code = (
        "import sys; from barnabas.cli.main import main; main(sys.argv[1:]);"
        "print([name for name in ('rich', 'asyncio', 'pyarrow', 'barnabas.broker', 'email') if name in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=True)
    assert done.stdout.splitlines()[-1] == "[]"


def test_the_exit_code_is_an_int() -> None:
    assert main(["--version"]) == 0
