"""What others chose (groups, clients, racks, records) is shown by the tools, and never obeyed by a terminal."""

from __future__ import annotations

import json
import os
import pty
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer, TopicPartition

from barnabas.cli.output import compact_json, print_table
from barnabas.testing import EmbeddedBroker
from tests.cli import story
from tests.cli.processes import TIMEOUT_S, command
from tests.cli.tools import Told, Tools

#: A title of the window, a colour, a line of its own, a mark that turns the text around, C1, and rich's markup.
EVIL = "\x1b]0;owned\x07[red]\x1b[31m\nforged\r\u202e\x9b2J\x7f"
SEEN = "\\x1b]0;owned\\x07[red]\\x1b[31m\\nforged\\r\\u202e\\x9b2J\\x7f"


class Node:
    def __init__(self, bootstrap: str, folder: Path) -> None:
        self.bootstrap = bootstrap
        self.folder = folder


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    """A node whose rack, groups, members, offsets and records are evil."""
    folder = tmp_path_factory.mktemp("node")
    settings = {"broker.rack": f"rack{EVIL}", "offsets.topic.num.partitions": 1}
    with EmbeddedBroker(folder, overrides=settings) as broker:
        bootstrap = broker.bootstrap_servers
        story.play(bootstrap)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("clicks", EVIL.encode() + b"\xff", EVIL.encode(), 1, headers={"h" + EVIL: EVIL.encode()})
        assert producer.flush(TIMEOUT_S) == 0
        with story.member(bootstrap, EVIL, client_id=EVIL, group_instance_id="static" + EVIL) as consumer:
            consumer.commit(offsets=[TopicPartition("clicks", 0, 1, metadata=EVIL)], asynchronous=False)
            yield Node(bootstrap, folder)


LISTINGS = [
    "topics --list",
    "topics --describe",
    "topics --describe --topic no-such",
    "consumer-groups --list",
    "consumer-groups --list --state --type",
    "consumer-groups --describe --all-groups",
    "consumer-groups --describe --all-groups --verbose",
    "consumer-groups --describe --all-groups --members --verbose",
    "consumer-groups --describe --all-groups --state --verbose",
    "consumer-groups --delete --all-groups",
    "consumer-groups --reset-offsets --all-groups --all-topics --to-earliest --dry-run",
    "configs --describe --entity-type brokers --entity-name 1 --all",
    "configs --describe --entity-type topics",
    "get-offsets",
    "broker-api-versions",
]


def is_harmless(text: str) -> bool:
    return not [
        each for each in text if (ord(each) < 0x20 and each not in "\n\t") or 0x7F <= ord(each) < 0xA0
    ] and not ({"\u202e", "\u2028"} & set(text))


def check(told: Told) -> None:
    assert is_harmless(told.out), told.out
    assert is_harmless(told.err), told.err
    assert "forged" not in [line[:6] for line in (told.out + told.err).splitlines()]


@pytest.mark.parametrize("call", LISTINGS)
def test_listings_show_control_characters_also_in_pipes(node: Node, barnabas: Tools, call: str) -> None:
    told = barnabas.at(node.bootstrap, call)
    check(told)
    if call.startswith(("consumer-groups", "broker-api")):
        assert SEEN in told.out + told.err


def test_json_holds_what_there_is(node: Node, barnabas: Tools) -> None:
    told = barnabas.at(node.bootstrap, "consumer-groups --list --json")
    assert is_harmless(told.out)
    assert EVIL in [each["group"] for each in json.loads(told.out)]


def test_calls_that_are_refused_are_quoted_harmlessly(node: Node, barnabas: Tools) -> None:
    for arguments in (
        ("topics", "--create", "--topic", f"bad{EVIL}"),
        ("consumer-groups", "--describe", "--group", f"bad{EVIL}"),
        ("consumer-groups", "--delete", "--group", EVIL),
        ("consumer-groups", "--delete-offsets", "--group", EVIL, "--topic", "clicks"),
        ("configs", "--describe", "--entity-type", "topics", "--entity-name", f"bad{EVIL}"),
        ("configs", "--alter", "--entity-type", "topics", "--entity-name", "clicks", "--add-config", f"{EVIL}=1"),
        ("get-offsets", "--topic", f"bad{EVIL}"),
    ):
        tool, *rest = arguments
        told = barnabas(tool, "--bootstrap-server", node.bootstrap, *rest)
        assert told.out + told.err
        assert is_harmless(told.out + told.err), told


@pytest.mark.parametrize(
    "arguments",
    [
        ("--print-data-log", "--files", "clicks-1/00000000000000000000.log"),
        ("--offsets-decoder", "--files", "__consumer_offsets-0/00000000000000000000.log"),
        ("--cluster-metadata-decoder", "--files", "__cluster_metadata-0/00000000000000000000.log"),
    ],
)
def test_dumped_logs_are_harmless(
    node: Node, barnabas: Tools, monkeypatch: pytest.MonkeyPatch, arguments: tuple[str, ...]
) -> None:
    monkeypatch.chdir(node.folder)
    told = barnabas("dump-log", *arguments)
    assert told.code == 0
    check(told)
    assert "owned" in told.out


def test_the_metadata_shell_is_harmless(node: Node, barnabas: Tools) -> None:
    snapshot = str(node.folder / "__cluster_metadata-0/00000000000000000000.log")
    for words in (("tree", "/"), ("ls", "/"), ("cat", "/image/cluster/1")):
        check(barnabas("metadata-shell", "--snapshot", snapshot, *words))


@pytest.mark.usefixtures("terminal")
def test_tables_take_neither_escapes_nor_markup(node: Node, barnabas: Tools) -> None:
    told = barnabas.at(node.bootstrap, "consumer-groups --describe --all-groups --state")
    told_brokers = barnabas.at(node.bootstrap, "broker-api-versions")
    assert "\x1b]0;" not in told.out + told_brokers.out
    assert "\x9b" not in told.out + told_brokers.out
    assert "[red]" in told_brokers.out


@pytest.mark.usefixtures("terminal")
def test_a_title_has_no_markup(capsys: pytest.CaptureFixture[str]) -> None:
    print_table(("name",), [("[bold]cell\x1b",)], title="[red]\x1b]0;")
    out = capsys.readouterr().out
    assert "[red]\\x1b]0;" in out
    assert "[bold]cell\\x1b" in out


def test_json_of_any_text_is_harmless_and_the_same() -> None:
    text = EVIL + "\u2028\u2066\udcff ü 漢"
    assert is_harmless(compact_json([text]))
    assert json.loads(compact_json([text])) == [text]
    assert "ü 漢" in compact_json([text])


CONSUME = ("console-consumer", "--topic", "clicks", "--partition", "1", "--offset", "earliest", "--max-messages", "1")
FIELDS = ("--formatter-property", "print.key=true", "--formatter-property", "print.headers=true")


def consumed_into_a_pipe(node: Node, *options: str) -> bytes:
    arguments = command(*CONSUME, "--bootstrap-server", node.bootstrap, *options)
    return subprocess.run(arguments, capture_output=True, check=True, timeout=TIMEOUT_S).stdout


def consumed_at_a_terminal(node: Node, *options: str) -> bytes:
    """What arrives at a terminal that translates nothing."""
    master, slave = pty.openpty()
    subprocess.run(["stty", "-opost"], stdin=slave, check=True)
    arguments = command(*CONSUME, "--bootstrap-server", node.bootstrap, *options)
    with subprocess.Popen(
        arguments, stdout=slave, stderr=subprocess.DEVNULL, env={**os.environ, "NO_COLOR": "1"}
    ) as process:
        os.close(slave)
        data = b""
        try:
            while piece := os.read(master, 65536):
                data += piece
        except OSError:  # how Linux tells that nobody is at the other end any more
            pass
        assert process.wait(TIMEOUT_S) == 0
    os.close(master)
    return data


def test_into_pipes_records_go_byte_by_byte(node: Node) -> None:
    evil = EVIL.encode()
    assert consumed_into_a_pipe(node, *FIELDS) == b"h" + evil + b":" + evil + b"\t" + evil + b"\t" + evil + b"\xff\n"


def test_at_a_terminal_records_are_made_visible(node: Node) -> None:
    seen = SEEN.replace("\\n", "\n").encode()
    told = consumed_at_a_terminal(node, *FIELDS)
    assert told == b"h" + seen + b":" + seen + b"\t" + seen + b"\t" + seen + b"\\xff\n"


def test_raw_sends_records_to_a_terminal_as_they_are(node: Node) -> None:
    assert consumed_at_a_terminal(node, "--raw") == EVIL.encode() + b"\xff\n"


def test_formatters_that_know_nothing_of_terminals_are_made_harmless_too(node: Node) -> None:
    for options in (("--json",), ("--formatter", "tests.cli.test_foreign_text.Plain")):
        told = consumed_at_a_terminal(node, *options)
        assert b"owned" in told
        assert is_harmless(told.decode())


class Plain:
    """A formatter as somebody might write it."""

    def configure(self, settings: object) -> None:
        pass

    def write_to(self, record: object, output: object) -> None:
        output.write(record.value)  # type: ignore[attr-defined]
