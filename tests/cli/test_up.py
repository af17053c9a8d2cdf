"""One command, one line, a node; and one line with the reason when there can be none."""

from __future__ import annotations

import re
import signal
import socket
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition

from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from tests.cli.processes import TIMEOUT_S, refused, running
from tests.compat.mock_cluster import Connection

ANYWHERE = ("up", "--listen", "127.0.0.1:0")


def test_a_record_is_there_after_a_restart(tmp_path: Path) -> None:
    arguments = (*ANYWHERE, "--data-dir", "data")
    with running(*arguments, folder=tmp_path) as (process, bootstrap):
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("greetings", b"hello")
        assert producer.flush(TIMEOUT_S) == 0
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0
    assert (tmp_path / "data/.kafka_cleanshutdown").exists()
    with running(*arguments, folder=tmp_path) as (_, bootstrap):
        consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "readers"})
        consumer.assign([TopicPartition("greetings", 0, 0)])
        record = consumer.poll(TIMEOUT_S)
        assert record is not None
        assert record.value() == b"hello"
        consumer.close()


NOTES = (
    "data: in {data}\n"
    "log: this output, warnings and errors; -v tells all\n"
    "Ctrl-C stops the node\n"
)  # fmt: skip
NO_DELAY = "group.initial.rebalance.delay.ms=0: new groups do not wait for more members (3000 in Kafka)\n"


def test_it_says_where_things_are_and_ctrl_c_stops_it_cleanly(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--data-dir", "data", folder=tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
        assert process.stdout is not None
        assert process.stdout.read() == "", "programs read one line"
    told = NOTES.format(data=tmp_path / "data") + NO_DELAY + "stopped\n"
    assert (tmp_path / "node.log").read_text() == told


def test_a_rebalance_delay_that_was_asked_for_is_not_spoken_of(tmp_path: Path) -> None:
    delay = ("--override", "group.initial.rebalance.delay.ms=0")
    with running(*ANYWHERE, "--ephemeral", *delay, folder=tmp_path) as (process, _):
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    told = (tmp_path / "node.log").read_text()
    assert told.startswith("data: in memory, and gone when the node stops\n")
    assert "rebalance" not in told


def test_clients_are_given_the_address_that_is_advertised(tmp_path: Path) -> None:
    advertised = ("--override", "advertised.listeners=PLAINTEXT://localhost:0")
    with running(*ANYWHERE, "--ephemeral", *advertised, folder=tmp_path) as (_, bootstrap):
        assert re.fullmatch(r"localhost:[1-9][0-9]*", bootstrap)


@pytest.mark.parametrize("host", ["0.0.0.0", "[::]"])
def test_who_listens_everywhere_says_what_to_advertise(tmp_path: Path, host: str) -> None:
    code, told = refused("up", "--listen", f"{host}:9092", "--ephemeral", folder=tmp_path)
    assert code == 2
    assert f"--override advertised.listeners=PLAINTEXT://{socket.gethostname()}:9092" in told


def test_an_ephemeral_node_leaves_nothing(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--ephemeral", folder=tmp_path) as (_, bootstrap):
        assert re.fullmatch(r"127\.0\.0\.1:[1-9][0-9]*", bootstrap)
        producer = Producer({"bootstrap.servers": bootstrap})
        producer.produce("greetings", b"hello")
        assert producer.flush(TIMEOUT_S) == 0
    assert [path.name for path in tmp_path.iterdir()] == ["node.log"]


def test_a_port_that_is_taken_is_told(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        code, told = refused("up", "--listen", address, "--data-dir", "data", folder=tmp_path)
    assert code == 1
    assert told.startswith(f"barnabas: {address} is already in use")
    assert told.count("\n") == 1


def test_where_metrics_are_is_a_line_of_its_own(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--ephemeral", "--metrics", "127.0.0.1:0", folder=tmp_path) as (process, _):
        assert process.stdout is not None
        assert re.fullmatch(r"metrics: http://127\.0\.0\.1:[0-9]+/metrics\n", process.stdout.readline())


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("--metrics", "9405"), "--metrics 9405: write it as HOST:PORT"),
        (
            ("--listen", "127.0.0.1:9405", "--metrics", "127.0.0.1:9405"),
            "--listen 127.0.0.1:9405 and --metrics 127.0.0.1:9405 both name port 9405 of 127.0.0.1",
        ),
        (("--nodes", "3", "--metrics", "127.0.0.1:9094"), "both name port 9094 of 127.0.0.1"),
    ],
)
def test_a_place_for_metrics_that_cannot_be_is_told_by_the_option(
    tmp_path: Path, arguments: tuple[str, ...], said: str
) -> None:
    code, told = refused("up", *arguments, folder=tmp_path)
    assert code == 2
    assert said in told


def test_a_directory_is_used_by_one_node(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--data-dir", "data", folder=tmp_path):
        code, told = refused(*ANYWHERE, "--data-dir", "data", folder=tmp_path)
    assert code == 1
    assert told == (
        "barnabas: log directory data: another process is using it: is a node running already? A second one needs a "
        "--data-dir of its own, or --ephemeral, and another port with --listen\n"
    )


def test_a_directory_of_another_node_is_refused(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--data-dir", "data", folder=tmp_path):
        pass
    others = ("--override", "node.id=7", "--override", "controller.quorum.voters=7@localhost:9093")
    code, told = refused(*ANYWHERE, "--data-dir", "data", *others, folder=tmp_path)
    assert code == 1
    assert told == (
        "barnabas: log directory data belongs to node 1, but node.id is 7; correct node.id, or use another directory\n"
    )


def test_a_directory_that_cannot_be_written_is_refused(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    code, told = refused(*ANYWHERE, "--data-dir", "file/data", folder=tmp_path)
    assert code == 1
    assert told.startswith("barnabas: ")
    assert "file/data" in told
    assert told.count("\n") == 1


@pytest.mark.parametrize(
    ("override", "word"),
    [
        ("num.partitions=none", "num.partitions"),
        ("log.retention.check.interval.ms=0", "log.retention.check.interval.ms"),
        ("authorizer.class.name=org.example.Authorizer", "authorizer.class.name"),
        ("ssl.engine.factory.class=org.example.Factory", "ssl.engine.factory.class"),
        ("listeners=SSL://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "SSL"),
        ("process.roles=broker", "process.roles"),
    ],
)
def test_a_setting_that_makes_no_sense_or_is_not_built_stops_the_start(
    tmp_path: Path, override: str, word: str
) -> None:
    code, told = refused(*ANYWHERE, "--ephemeral", "--override", override, folder=tmp_path)
    assert code == 1
    assert word in told
    assert "Traceback" not in told


def test_a_name_that_nobody_knows_is_told_with_the_nearest_that_is_known(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--ephemeral", "--override", "num.partitons=3", folder=tmp_path):
        pass
    told = (tmp_path / "node.log").read_text()
    assert told.count("ignored unless a plug-in reads it; did you mean num.partitions?") == 1


def test_a_logger_that_nobody_has_is_told_with_the_nearest_that_is_known(tmp_path: Path) -> None:
    levels = "logging.levels=kafka.request.loger=DEBUG,kafka.log=WARN,asyncio=ERROR"
    with running(*ANYWHERE, "--ephemeral", "--override", levels, folder=tmp_path):
        pass
    told = (tmp_path / "node.log").read_text()
    assert "a logger kafka.request.loger so far; did you mean kafka.request.logger?" in told
    assert told.count("nothing here has a logger") == 1


@pytest.mark.parametrize(
    "arguments",
    [
        ("--listen", "nowhere"),
        ("--listen", "127.0.0.1:70000"),
        ("--ephemeral", "--data-dir", "data"),
        ("--no-such-option",),
        ("--override", "nonsense"),
    ],
)
def test_wrong_calls_are_explained(tmp_path: Path, arguments: tuple[str, ...]) -> None:
    code, told = refused("up", *arguments, folder=tmp_path)
    assert code in (1, 2)
    assert told.startswith("barnabas: ")
    assert not list(tmp_path.iterdir())


def test_clients_neither_fill_nor_forge_the_log(tmp_path: Path) -> None:
    with running(*ANYWHERE, "--ephemeral", folder=tmp_path) as (_, bootstrap):
        host, _, port = bootstrap.rpartition(":")
        client = Connection(host, int(port))
        for number in range(300):
            name = f"{number} CRITICAL\n\x1b[2J" + "i" * 32_000
            request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=1000)
            client.call(request, InitProducerIdResponse, 4)
        client.close()
    lines = (tmp_path / "node.log").read_text().splitlines()
    ours = [line for line in lines if line.startswith(("data: ", "log: ", "Ctrl-C ", "stopped", "group.initial."))]
    assert len(lines) - len(ours) <= 3, "a client wrote lines of its own"
    assert max(map(len, lines)) < 1000
    assert all(line.isprintable() for line in lines)
