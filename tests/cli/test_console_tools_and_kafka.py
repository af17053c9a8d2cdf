"""The tools with a producer or a consumer beside Kafka's own: each reads what the other wrote, and they print alike."""

from __future__ import annotations

import io
import json
import re
import shlex
from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest

from barnabas.cli.main import main
from barnabas.testing import EmbeddedBroker
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Tools, run_kafka
from tests.oracles import needs_kafka

#: A call without its --bootstrap-server, and what we say of it. Kafka refuses all of these too.
WRONG_CALLS = [
    ("console-producer", "--topic is missing"),
    ("console-producer --topic a --batch-size x", "--batch-size"),
    ("console-producer --topic a --command-config f --producer.config f", "does not go with --producer.config"),
    (
        "console-producer --topic a --command-property a=b --producer-property a=b",
        "does not go with --producer-property",
    ),
    ("console-producer --topic a --reader-property a=b --property a=b", "does not go with --property"),
    ("console-producer --topic a --reader-property headers.separator=:", "headers.separator and headers.key.separator"),
    ("console-producer --topic a --line-reader no.such.Reader", "no.such.Reader"),
    ("console-producer --topic a --request-required-acks 7", "acks"),
    ("console-producer --topic a --compression-codec brotli", "compression.type"),
    ("console-producer --topic a --nonsense", "--nonsense"),
    ("console-consumer", "exactly one of --topic or --include"),
    ("console-consumer --topic a --include b", "exactly one of --topic or --include"),
    ("console-consumer --include a --partition 0", "--topic is missing for --partition"),
    ("console-consumer --topic a --offset 3", "--partition is missing for --offset"),
    (
        "console-consumer --topic a --partition 0 --offset 3 --from-beginning",
        "--from-beginning does not go with --offset",
    ),
    ("console-consumer --topic a --partition 0 --offset -3", "--offset: '-3'"),
    ("console-consumer --topic a --partition 0 --offset soon", "--offset: 'soon'"),
    ("console-consumer --topic a --partition 0 --group g", "--partition is read without a group"),
    ("console-consumer --topic a --group g --command-property group.id=h", "'g' and 'h'"),
    (
        "console-consumer --topic a --from-beginning --command-property auto.offset.reset=latest",
        "auto.offset.reset=latest",
    ),
    ("console-consumer --topic a --property a=b --formatter-property a=b", "does not go with --property"),
    (
        "console-consumer --topic a --consumer-property a=b --command-property a=b",
        "does not go with --consumer-property",
    ),
    ("console-consumer --topic a --formatter no.such.Formatter", "no.such.Formatter"),
    ("console-consumer --topic a --isolation-level odd", "isolation.level"),
    ("consumer-perf-test --topic a", "exactly one of --num-records or --messages"),
    ("consumer-perf-test --num-records 1", "exactly one of --topic or --include"),
    ("consumer-perf-test --topic a --num-records 1 --messages 1", "exactly one of --num-records or --messages"),
    ("consumer-perf-test --topic a --num-records 1 --reporting-interval 0", "--reporting-interval"),
    ("consumer-perf-test --topic a --num-records x", "--num-records"),
    ("producer-perf-test --topic a --num-records 1 --throughput -1", "exactly one of --record-size"),
    ("producer-perf-test --topic a --num-records 0 --record-size 1 --throughput -1", "--num-records must be greater"),
    ("producer-perf-test --num-records 1 --record-size 1 --throughput -1", "--topic"),
    ("producer-perf-test --topic a --num-records 1 --record-size 1", "--throughput"),
    ("producer-perf-test --topic a --num-records 1 --record-size 1 --throughput 1 --command-property x", "'x'"),
]
_topics = count()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


@pytest.fixture
def topic() -> str:
    return f"shared-{next(_topics)}"


def properties(option: str, *pairs: str) -> list[str]:
    return [word for pair in pairs for word in (option, pair)]


@pytest.mark.parametrize(("call", "said"), WRONG_CALLS)
def test_wrong_calls_are_told(barnabas: Tools, call: str, said: str) -> None:
    tool, *arguments = shlex.split(call)
    told = barnabas(tool, "--bootstrap-server", "127.0.0.1:1", *arguments)
    assert (told.code, told.out) == (1, "")
    assert said in told.err
    assert "Traceback" not in told.err


@pytest.mark.parametrize("tool", ["console-producer", "console-consumer", "consumer-perf-test"])
def test_the_cluster_must_be_named(barnabas: Tools, tool: str) -> None:
    told = barnabas(tool, "--topic", "a", *(["--num-records", "1"] if "perf" in tool else []))
    assert (told.code, told.out) == (1, "")
    assert "--bootstrap-server is missing" in told.err


@needs_kafka()
def test_kafka_refuses_the_same(kafka: KafkaTools) -> None:
    for call, _ in WRONG_CALLS:
        tool, *arguments = shlex.split(call)
        # What Kafka's tool finds out while it runs must not take long.
        told = kafka(tool, "--bootstrap-server", "127.0.0.1:1", *arguments)
        assert told.code == 1, call


LINES = "a:1,b:2\tkey\tvalue\nc:NIL\tNIL\tNIL\nd:\t\tgrüße\n"
READER = properties("--reader-property", "parse.key=true", "parse.headers=true", "null.marker=NIL")
FORMATTER = properties(
    "--formatter-property",
    *(f"print.{name}=true" for name in ("key", "headers", "offset", "partition", "timestamp")),
)


@needs_kafka()
def test_each_reads_what_the_other_wrote(
    barnabas: Tools, kafka: KafkaTools, node: EmbeddedBroker, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", topic)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINES.encode())))
    assert barnabas("console-producer", *where, *READER, "--compression-codec", "lz4").code == 0
    assert kafka("console-producer", *where, *READER, standard_input=LINES).code == 0
    for options in (
        ["--max-messages", "6", *FORMATTER],
        ["--max-messages", "6", *FORMATTER, *properties("--formatter-property", "key.separator=|", "null.literal=-")],
        ["--max-messages", "2", *properties("--formatter-property", "print.value=false", "print.offset=true")],
        ["--max-messages", "3", "--key-deserializer", "org.apache.kafka.common.serialization.StringDeserializer"],
        ["--max-messages", "3", "--formatter", "org.apache.kafka.tools.consumer.LoggingMessageFormatter"],
        ["--max-messages", "3", "--formatter", "org.apache.kafka.tools.consumer.NoOpMessageFormatter"],
    ):
        ours = barnabas("console-consumer", *where, "--from-beginning", *options)
        kafkas = kafka("console-consumer", *where, "--from-beginning", *options)
        assert ours.code == kafkas.code == 0
        assert ours.out == kafkas.out
        assert kafkas.err.splitlines()[-1] == ours.err.strip()


@needs_kafka()
def test_records_of_coordinators_look_the_same(barnabas: Tools, kafka: KafkaTools, node: EmbeddedBroker) -> None:
    main(["topics", "--bootstrap-server", node.bootstrap_servers, "--create", "--topic", "seen"])
    reset = ("--reset-offsets", "--group", "g", "--topic", "seen", "--to-latest", "--execute")
    assert barnabas("consumer-groups", "--bootstrap-server", node.bootstrap_servers, *reset).code == 0
    stored = ("--bootstrap-server", node.bootstrap_servers, "--topic", "__consumer_offsets", "--from-beginning",
              "--timeout-ms", "1500")  # fmt: skip
    formatter = ("--formatter", "org.apache.kafka.tools.consumer.OffsetsMessageFormatter")
    ours = barnabas("console-consumer", *stored, *formatter)
    kafkas = kafka("console-consumer", *stored, *formatter)
    assert "seen" in ours.out
    # Kafka writes one behind the other; we begin a new line.
    assert values(ours.out) == values(kafkas.out)


def values(text: str) -> list[Any]:
    decoder, found, place = json.JSONDecoder(), [], 0
    text = text.replace("\n", "")
    while place < len(text):
        value, place = decoder.raw_decode(text, place)
        found.append(value)
    return sorted(found, key=json.dumps)


@needs_kafka()
def test_measurements_have_the_same_form(barnabas: Tools, kafka: KafkaTools, node: EmbeddedBroker, topic: str) -> None:
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", topic)
    send = ("producer-perf-test", *where, "--num-records", "2000", "--record-size", "50", "--throughput", "-1",
            "--warmup-records", "500")  # fmt: skip
    read = ("consumer-perf-test", *where, "--num-records", "4000", "--timeout", "20000")
    assert shape(barnabas(*send).out) == shape(kafka(*send).out)
    assert shape(barnabas(*read).out) == shape(kafka(*read).out)


def shape(text: str) -> list[str]:
    """The words of lines, without their numbers."""
    return [re.sub(r"\d+", "0", line) for line in text.splitlines()]


@needs_kafka()
def test_verifiable_tools_tell_the_same(barnabas: Tools, node: EmbeddedBroker, topic: str) -> None:
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", topic)
    send = (*where, "--max-messages", "3", "--repeating-keys", "2", "--acks", "1")
    read = (*where, "--max-messages", "6", "--verbose")
    sent = [
        barnabas("verifiable-producer", *send).out,
        run_kafka("org.apache.kafka.tools.VerifiableProducer", send).out,
    ]
    told = [
        barnabas("verifiable-consumer", *read, "--group-id", "ours").out,
        run_kafka("org.apache.kafka.tools.VerifiableConsumer", (*read, "--group-id", "kafkas")).out,
    ]
    ours, kafkas = (forms(text) for text in sent)
    assert ours == kafkas
    ours, kafkas = (forms(text) for text in told)
    # Kafka's tool says this of itself at every end, ours when a signal asks for it.
    kafkas.remove('["name", "timestamp"] shutdown_requested')
    assert ours == kafkas


def forms(text: str) -> list[str]:
    """Names of events and of their fields, in whatever order a JVM has them, and what records there were."""
    found = []
    for line in text.splitlines():
        event = json.loads(line)
        record = [event.get(name) for name in ("key", "value", "topic", "partition")] if "value" in event else []
        found.append(f"{json.dumps(sorted(event))} {event['name']}" + (f" {record}" if record else ""))
    return found


@needs_kafka()
def test_with_apache_kafka_as_the_broker(
    barnabas: Tools, apache_kafka: str, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = ("--bootstrap-server", apache_kafka, "--topic", topic)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(LINES.encode())))
    assert barnabas("console-producer", *where, *READER).code == 0
    told = barnabas("console-consumer", *where, "--from-beginning", "--max-messages", "3", "--group", "g", *FORMATTER)
    assert [line.split("\t", 1)[1] for line in told.out.splitlines()] == [
        "Partition:0\tOffset:0\ta:1,b:2\tkey\tvalue",
        "Partition:0\tOffset:1\tc:null\tnull\tnull",
        "Partition:0\tOffset:2\td:\t\tgrüße",
    ]
    sent = barnabas("producer-perf-test", *where, "--num-records", "500", "--record-size", "9", "--throughput", "-1")
    assert sent.out.startswith("500 records sent")
    read = barnabas("verifiable-consumer", *where, "--group-id", "v", "--max-messages", "503")
    assert json.loads(read.out.splitlines()[-1])["name"] == "shutdown_complete"
