"""`console-producer` and `console-consumer` in the hands of a person: lines in, lines out."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest

from barnabas import Consumer, Producer, TopicPartition
from barnabas.testing import EmbeddedBroker
from tests.cli.tools import Told, Tools

_numbers = count()


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


class Console:
    """The two tools with a node and a topic."""

    def __init__(self, tools: Tools, node: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
        self._tools = tools
        self._monkeypatch = monkeypatch
        self._where = ("--bootstrap-server", node.bootstrap_servers)
        self._topic = topic

    def produce(self, text: str | bytes, *options: str) -> Told:
        data = text.encode() if isinstance(text, str) else text
        self._monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(data)))
        return self._tools("console-producer", *self._where, "--topic", self._topic, "--timeout", "0", *options)

    def consume(self, *options: str, topic: bool = True) -> Told:
        named = ("--topic", self._topic) if topic else ()
        return self._tools("console-consumer", *self._where, *named, *options)


@pytest.fixture
def console(barnabas: Tools, node: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch) -> Console:
    return Console(barnabas, node, topic, monkeypatch)


def show(*names: str) -> list[str]:
    return [word for name in names for word in ("--formatter-property", name)]


def test_lines_go_in_and_come_out(console: Console) -> None:
    assert console.produce("one\ntwo\n\nlast") == Told(0, "", "")
    told = console.consume("--from-beginning", "--max-messages", "4")
    assert told == Told(0, "one\ntwo\n\nlast\n", "Processed a total of 4 messages\n")


def test_all_fields(console: Console) -> None:
    options = ("parse.key=true", "parse.headers=true", "null.marker=NIL")
    words = [word for name in options for word in ("--reader-property", name)]
    assert console.produce("a:1,b:NIL\tk\tv\nNIL\tNIL\tNIL\n", *words).code == 0
    names = ("timestamp", "partition", "offset", "headers", "key", "value", "epoch", "delivery")
    told = console.consume("--from-beginning", "--max-messages", "2", *show(*(f"print.{name}=true" for name in names)))
    first, second = (line.split("\t") for line in told.out.splitlines())
    assert first[0].startswith("CreateTime:1")
    assert first[1:] == ["Partition:0", "Offset:0", "Delivery:NOT_PRESENT", "Epoch:0", "a:1,b:null", "k", "v"]
    assert second[1:] == ["Partition:0", "Offset:1", "Delivery:NOT_PRESENT", "Epoch:0", "NO_HEADERS", "null", "null"]


def test_separators_and_what_is_left_out(console: Console) -> None:
    assert console.produce("h:1\tv\n", "--reader-property", "parse.headers=true").code == 0
    one = ("--partition", "0", "--offset", "earliest", "--max-messages", "1")
    fields = show("print.key=true", "key.separator= | ", "line.separator=;\n", "null.literal=-")
    assert console.consume(*one, *fields).out == "- | v;\n"
    assert console.consume(*one, *show("print.value=false")).out == ""
    assert console.consume(*one, *show("print.value=false", "print.headers=true")).out == "h:1\n"
    assert console.consume(*one, "--formatter", "noop").err == "Processed a total of 1 messages\n"


def test_deserializers(console: Console, node: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        producer.send(topic, b"\0\0\0\0\0\0\1\0", b"\0\0\0\x07")
    one = ("--partition", "0", "--offset", "0", "--max-messages", "1", *show("print.key=true"))
    long = "org.apache.kafka.common.serialization.LongDeserializer"
    assert console.consume(*one, "--key-deserializer", "integer", "--value-deserializer", long).out == "7\t256\n"
    told = console.consume(*one, "--value-deserializer", "integer")
    assert (told.code, told.out) == (1, "")
    assert f"the record of {topic}-0 at offset 0 cannot be shown" in told.err
    told = console.consume(*one, "--value-deserializer", "integer", "--skip-message-on-error")
    assert told.code == 0
    assert told.err.endswith("Processed a total of 1 messages\n")


def test_json(console: Console) -> None:
    console.produce(b"k\t\xff\n", "--reader-property", "parse.key=true")
    told = console.consume("--from-beginning", "--max-messages", "1", "--json")
    record = json.loads(told.out)
    assert (record["offset"], record["key"], record["value"]) == (0, "k", {"base64": "/w=="})
    assert record["timestampType"] == "CreateTime"


def test_where_to_begin_and_when_to_end(console: Console) -> None:
    console.produce("0\n1\n2\n3\n")
    one = ("--partition", "0", "--timeout-ms", "300")
    assert console.consume(*one, "--offset", "2").out == "2\n3\n"
    assert console.consume(*one, "--from-beginning", "--max-messages", "3").out == "0\n1\n2\n"
    told = console.consume(*one)
    assert told == Told(0, "", "Processed a total of 0 messages\n")


def test_a_group_goes_on_where_it_was(console: Console) -> None:
    console.produce("".join(f"{number}\n" for number in range(10)))
    read = [
        console.consume("--group", "readers", "--from-beginning", "--max-messages", "3").out.split() for _ in range(3)
    ]
    assert read == [["0", "1", "2"], ["3", "4", "5"], ["6", "7", "8"]]


def test_a_record_that_was_not_shown_is_not_committed(console: Console, node: EmbeddedBroker, topic: str) -> None:
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for value in (b"\0\0\0\1", b"bad value", b"\0\0\0\3"):
            producer.send(topic, value)
    options = ("--group", "strict", "--from-beginning", "--value-deserializer", "integer", "--timeout-ms", "5000")
    assert console.consume(*options).out == "1\n"
    assert console.consume(*options).out == ""
    assert console.consume(*options, "--skip-message-on-error", "--max-messages", "2").out == "3\n"


def test_a_pattern_of_topics(console: Console, topic: str) -> None:
    console.produce("x\n")
    told = console.consume(
        "--include", f"{topic[:-1]}[{topic[-1]}]", "--from-beginning", "--max-messages", "1", topic=False
    )
    assert told.out == "x\n"


def test_what_a_group_commits_can_be_read(console: Console, node: EmbeddedBroker, topic: str) -> None:
    console.produce("x\n")
    where = TopicPartition(topic, 0)
    with Consumer(bootstrap_servers=node.bootstrap_servers, group_id="seen", enable_auto_commit=False) as consumer:
        consumer.assign([where])
        consumer.commit({where: 1})
    stored = ("--topic", "__consumer_offsets", "--from-beginning", "--timeout-ms", "500")
    java = "org.apache.kafka.tools.consumer.OffsetsMessageFormatter"
    for name in ("offsets", java):
        lines = [
            json.loads(line) for line in console.consume(*stored, "--formatter", name, topic=False).out.splitlines()
        ]
        (found,) = [line for line in lines if line["key"]["data"]["group"] == "seen"]
        assert found["key"] == {"type": 1, "data": {"group": "seen", "topic": topic, "partition": 0}}
        assert found["value"]["data"]["offset"] == 1
    groups = console.consume(*stored, "--formatter", "group-metadata", topic=False).out.splitlines()
    assert {json.loads(line)["key"]["type"] for line in groups} <= {2}


def test_files_of_settings(console: Console, tmp_path: Path) -> None:
    (tmp_path / "reader.properties").write_text("parse.key=true\nkey.separator=:\n")
    (tmp_path / "producer.properties").write_text("compression.type=zstd\nacks=1\n")
    (tmp_path / "formatter.properties").write_text("print.key=true\nkey.separator=>\n")
    files = ("--reader-config", str(tmp_path / "reader.properties"))
    assert console.produce("k:v\n", *files, "--command-config", str(tmp_path / "producer.properties")).code == 0
    shown = ("--formatter-config", str(tmp_path / "formatter.properties"))
    told = console.consume("--from-beginning", "--max-messages", "1", *shown, *show("key.separator=="))
    assert told.out == "k=v\n"


@pytest.mark.parametrize("codec", [("--compression-codec",), ("--compression-codec", "lz4"), ()])
def test_codecs(console: Console, codec: tuple[str, ...]) -> None:
    assert console.produce("x\ny\n", *codec).code == 0
    assert console.consume("--from-beginning", "--max-messages", "2").out == "x\ny\n"


def test_old_spellings_still_work(console: Console) -> None:
    told = console.produce("k\tv\n", "--property", "parse.key=true", "--producer-property", "acks=all")
    assert told.err.splitlines() == [
        "Warning: --producer-property is deprecated; use --command-property",
        "Warning: --property is deprecated; use --reader-property",
    ]
    told = console.consume("--from-beginning", "--max-messages", "1", "--property", "print.key=true",
                           "--consumer-property", "group.id=old")  # fmt: skip
    assert told.out == "k\tv\n"


def test_a_record_that_cannot_be_sent_is_told_and_the_others_get_through(console: Console) -> None:
    told = console.produce(f"good\n{'x' * 3000}\nfine\n", "--command-property", "max.request.size=2000")
    assert told.code == 1
    assert told.err.startswith("barnabas: record 2 was not sent to topic ")
    assert told.err.count("\n") == 1
    assert console.consume("--from-beginning", "--max-messages", "2").out == "good\nfine\n"


def test_with_sync_the_first_failure_ends_it(console: Console) -> None:
    told = console.produce(f"good\n{'x' * 3000}\nfine\n", "--sync", "--command-property", "max.request.size=2000")
    assert told.code == 1
    assert console.consume("--from-beginning", "--timeout-ms", "1000").out == "good\n"


def test_a_wrong_line_ends_it_after_what_came_before(console: Console) -> None:
    told = console.produce("k\tv\nwrong\nk\tw\n", "--reader-property", "parse.key=true")
    assert told.code == 1
    assert "line 2: there is no key.separator" in told.err
    assert console.consume("--from-beginning", "--timeout-ms", "1000").out == "v\n"


def test_nobody_at_the_address(barnabas: Tools, unused_port: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"x\n")))
    where = ("--bootstrap-server", f"127.0.0.1:{unused_port}", "--topic", "t")
    told = barnabas("console-producer", *where, "--max-block-ms", "200")
    assert told.code == 1
    assert told.err.startswith("barnabas: record 1 was not sent to topic t")
    assert f"127.0.0.1:{unused_port}" in told.err


def test_colours_are_for_terminals(console: Console, monkeypatch: pytest.MonkeyPatch) -> None:
    console.produce("k\tv\n", "--reader-property", "parse.key=true")
    monkeypatch.setattr("barnabas.cli.console_consumer.is_terminal", lambda: True)
    told = console.consume("--from-beginning", "--max-messages", "1", *show("print.key=true", "print.offset=true"))
    assert told.out == "\x1b[2mOffset:0\x1b[0m\t\x1b[36mk\x1b[0m\tv\n"
