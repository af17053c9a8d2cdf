"""`verifiable-producer` and `verifiable-consumer` tell of all that happens, and signals end tools well."""

from __future__ import annotations

import json
import os
import pty
import signal
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Consumer, Producer
from barnabas.testing import EmbeddedBroker
from tests.cli.processes import TIMEOUT_S, command
from tests.cli.tools import Tools


@pytest.fixture(scope="module")
def node() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as broker:
        yield broker


def events(text: str) -> list[dict[str, Any]]:
    """Without their timestamps."""
    found = [json.loads(line) for line in text.splitlines()]
    assert all(list(event)[:2] == ["timestamp", "name"] for event in found)
    return [{name: value for name, value in event.items() if name != "timestamp"} for event in found]


def test_numbers_are_sent_and_told(barnabas: Tools, node: EmbeddedBroker) -> None:
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", "numbers")
    options = "--max-messages 3 --repeating-keys 2 --value-prefix 7 --message-create-time 1000"
    told = barnabas("verifiable-producer", *where, *options.split())
    start, *sent, end, data = events(told.out)
    assert (told.code, start, end) == (0, {"name": "startup_complete"}, {"name": "shutdown_complete"})
    assert sent == [
        {
            "name": "producer_send_success",
            "key": key,
            "value": value,
            "offset": offset,
            "topic": "numbers",
            "partition": 0,
        }
        for offset, (key, value) in enumerate([("0", "7.0"), ("1", "7.1"), ("0", "7.2")])
    ]
    assert (data["sent"], data["acked"], data["target_throughput"]) == (3, 3, -1)
    with Consumer("numbers", bootstrap_servers=node.bootstrap_servers, auto_offset_reset="earliest") as consumer:
        assert consumer.poll(10)[0].timestamp_ms == 1000


def test_failures_are_told(barnabas: Tools, node: EmbeddedBroker, tmp_path: Any) -> None:
    (tmp_path / "settings").write_text("max.request.size=1\n")
    told = barnabas("verifiable-producer", "--bootstrap-server", node.bootstrap_servers, "--topic", "numbers",
                    "--max-messages", "1", "--command-config", str(tmp_path / "settings"))  # fmt: skip
    _, failed, _, data = events(told.out)
    assert failed["name"] == "producer_send_error"
    assert failed["exception"] == "class barnabas.client.errors.RecordTooLargeError"
    assert (data["sent"], data["acked"]) == (1, 0)


def test_records_partitions_and_commits_are_told(barnabas: Tools, node: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for number in range(5):
            producer.send("told", b"%d" % number, b"k")
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", "told", "--group-id", "g")
    told = barnabas("verifiable-consumer", *where, "--max-messages", "4", "--verbose")
    partition = {"topic": "told", "partition": 0}
    names = [event["name"] for event in events(told.out)]
    assert told.code == 0
    assert names[:2] == ["startup_complete", "partitions_assigned"]
    assert names[-2:] == ["partitions_revoked", "shutdown_complete"]
    found = events(told.out)
    assert found[1]["partitions"] == found[-2]["partitions"] == [partition]
    records = [event for event in found if event["name"] == "record_data"]
    assert records == [
        {"name": "record_data", "key": "k", "value": str(number), **partition, "offset": number} for number in range(4)
    ]
    assert sum(event["count"] for event in found if event["name"] == "records_consumed") == 4
    commits = [event for event in found if event["name"] == "offsets_committed"]
    assert commits[-1] == {"name": "offsets_committed", "offsets": [partition | {"offset": 4}], "success": True}
    again = barnabas("verifiable-consumer", *where, "--max-messages", "1", "--enable-autocommit", "--verbose")
    assert [event["value"] for event in events(again.out) if event["name"] == "record_data"] == ["4"]
    assert "offsets_committed" not in again.out


def started(*arguments: str, **options: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, **options)


def ended(process: subprocess.Popen[str], number: int) -> tuple[int, str, str]:
    process.send_signal(number)
    out, err = process.communicate(timeout=TIMEOUT_S)
    return process.returncode, out, err


def test_a_signal_ends_the_verifiable_tools_in_order(node: EmbeddedBroker) -> None:
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", "endless")
    producer = started("verifiable-producer", *where, "--throughput", "50")
    consumer = started("verifiable-consumer", *where, "--group-id", "endless")
    for process, last in ((producer, "producer_send_success"), (consumer, "offsets_committed")):
        assert process.stdout is not None
        while json.loads(process.stdout.readline())["name"] != last:
            pass
    code, out, _ = ended(producer, signal.SIGTERM)
    *_, end, data = events(out)
    assert (code, end["name"], data["name"]) == (143, "shutdown_complete", "tool_data")
    assert data["sent"] == data["acked"] > 0
    code, out, _ = ended(consumer, signal.SIGINT)
    names = [event["name"] for event in events(out)]
    assert (code, names[-1]) == (130, "shutdown_complete")
    assert "shutdown_requested" in names


def test_ctrl_c_ends_the_console_tools_and_no_line_is_lost(node: EmbeddedBroker) -> None:
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", "typed")
    master, terminal = pty.openpty()
    environment = os.environ | {"TERM": "xterm"}
    # Lines wait a minute for others, so they are sent only since the tool ends.
    producer = subprocess.Popen(
        command("console-producer", *where, "--timeout", "60000"),
        stdin=terminal, stdout=terminal, stderr=subprocess.PIPE, text=True, env=environment, start_new_session=True,
    )  # fmt: skip
    os.close(terminal)
    shown = b""
    for line in (b"one\n", b"two\n"):
        while not shown.endswith(b">"):
            shown += os.read(master, 1000)
        shown = b""
        os.write(master, line)
    while not shown.endswith(b">"):
        shown += os.read(master, 1000)
    producer.send_signal(signal.SIGINT)
    _, err = producer.communicate(timeout=TIMEOUT_S)
    os.close(master)
    assert (producer.returncode, err) == (130, "")
    consumer = started("console-consumer", *where, "--from-beginning")
    assert consumer.stdout is not None
    assert [consumer.stdout.readline() for _ in range(2)] == ["one\n", "two\n"]
    assert ended(consumer, signal.SIGINT) == (130, "", "Processed a total of 2 messages\n")


def test_a_reader_that_has_seen_enough_is_no_failure(node: EmbeddedBroker) -> None:
    with Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for _ in range(5000):
            producer.send("long", b"x" * 100)
    where = ("--bootstrap-server", node.bootstrap_servers, "--topic", "long", "--from-beginning")
    consumer = started("console-consumer", *where)
    assert consumer.stdout is not None
    consumer.stdout.readline()
    consumer.stdout.close()
    assert consumer.wait(TIMEOUT_S) == 0
    assert consumer.stderr is not None
    with consumer.stderr:
        assert "nobody reads standard output any more" in consumer.stderr.read()
