"""`barnabas top` against a node: what it says agrees with what clients did; on a terminal, in a pipe, as JSON."""

from __future__ import annotations

import asyncio
import contextlib
import fcntl
import io
import itertools
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

from barnabas import Admin, Consumer, NewTopic, OffsetAndMetadata, Producer
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.cli import output
from barnabas.cli.top import scraping
from barnabas.cli.top.figures import NodeFigures
from barnabas.cli.top.scraping import SETTING, MetricsAddress, ScrapeError, Scraper, _address, _figures, parse_addresses
from barnabas.cli.top.terminal import Terminal, show_all_text
from barnabas.client.admin import ClusterDescription, ConfigEntry, ConfigResource
from barnabas.client.core.cluster_view import Node
from barnabas.client.errors import ClientTimeoutError, KeyedError
from barnabas.net.errors import UnsupportedRequestError
from barnabas.testing import EmbeddedBroker
from tests.cli.processes import command
from tests.cli.tools import Tools
from tests.cli.top.test_model import TEXT
from tests.oracles import missing
from tests.oracles.kafka_server import KafkaServer
from tests.ports import free_ports

LIMIT_S = 60
#: A terminal that is as it was: with a cursor, and with the other page.
LEFT = b"\x1b[?25h\x1b[?1049l"


@pytest.fixture(scope="module")
def bootstrap() -> Iterator[str]:
    """A node with a group that has read 30 of 100 records, and written them a minute ago."""
    with EmbeddedBroker(overrides={"offsets.topic.num.partitions": 1}) as broker:
        address = broker.bootstrap_servers
        with Admin(bootstrap_servers=address) as admin:
            admin.create_topics([NewTopic("clicks", 2, 1), NewTopic("quiet", 1, 1)])
        minute_ago_ms = int(time.time() * 1000) - 60_000
        with Producer(bootstrap_servers=address) as producer:
            for number in range(100):
                producer.send("clicks", b"x", partition=number % 2, timestamp_ms=minute_ago_ms)
        with Consumer(bootstrap_servers=address, group_id="readers", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition("clicks", 0), TopicPartition("clicks", 1)])
            consumer.commit({TopicPartition("clicks", number): OffsetAndMetadata(15) for number in (0, 1)})
        yield address


@pytest.fixture
def tools(capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(capsys)


def test_what_it_says_agrees_with_what_clients_did(bootstrap: str, tools: Tools) -> None:
    told = tools.json_at(bootstrap, "top --once --interval 0.2")
    topics = {each["name"]: each for each in told["topics"]}
    assert (topics["clicks"]["partitions"], topics["quiet"]["partitions"]) == (2, 1)
    assert topics["clicks"]["recordsPerSecond"] == 0
    assert topics["clicks"]["sizeBytes"] > 100
    (group,) = (each for each in told["groups"] if each["groupId"] == "readers")
    assert group["lag"] == 70
    # By their timestamps, within what eight halvings leave.
    assert 55 < group["lagSeconds"] < 75
    (broker,) = told["brokers"]
    assert (broker["leaders"], broker["behind"], broker["state"]) == (4, 0, "controller")
    assert told["apis"] is None
    assert told["partitions"] == told["problems"] == []
    assert told["reasons"] == ["readers has lag and no members: nobody reads"]


def test_a_screen_in_a_pipe_has_all_rows(bootstrap: str, tools: Tools) -> None:
    told = tools.at(bootstrap, "top --once --interval 0.2")
    assert told.code == 0
    assert "\x1b" not in told.out
    assert [line.split()[0] for line in told.out.splitlines() if line.isupper() or line[:7].isupper()][:2] == [
        "BROKERS",
        "TOPICS",
    ]
    assert re.search(r"^readers +Empty +0 +70 +", told.out, re.MULTILINE)
    assert "! readers has lag and no members: nobody reads" in told.out


def test_throughput(bootstrap: str, tools: Tools) -> None:
    process = subprocess.Popen(
        command("top", "--bootstrap-server", bootstrap, "--json", "--interval", "0.3"),
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdout is not None
    try:
        looks: list[dict[str, Any]] = [json.loads(process.stdout.readline())]
        with Producer(bootstrap_servers=bootstrap) as producer:
            for _ in range(1000):
                producer.send("quiet", b"x")
        total = 0.0
        while total < 999 and len(looks) < 50:
            looks.append(json.loads(process.stdout.readline()))
            seconds = (looks[-1]["timestampMs"] - looks[-2]["timestampMs"]) / 1000
            (rate,) = (each["recordsPerSecond"] for each in looks[-1]["topics"] if each["name"] == "quiet")
            total += rate * seconds
        # Each record is counted once, whatever the looks.
        assert round(total) == 1000
    finally:
        process.terminate()
        process.wait(LIMIT_S)
        process.stdout.close()


def test_options(bootstrap: str, tools: Tools) -> None:
    assert tools("top").code == 1
    for address in ("nowhere", "nowhere:0x1", "[::1:9404"):
        told = tools.at(bootstrap, f"top --once --metrics {address}")
        assert told.code == 1
        assert "HOST:PORT" in told.err
    for address in ("127.0.0.1:1", "a..b:1"):  # nobody is there, and it cannot be the name of a host
        told = tools.at(bootstrap, f"top --once --interval 0.2 --metrics {address}")
        assert told.code == 0
        assert f"? metrics of {address}: " in told.out


def test_addresses() -> None:
    assert parse_addresses(None) is None
    plain, secured = parse_addresses("a:1, https://me:p%40ss@[::1]:2") or ()
    assert (plain.host, plain.port, plain.is_secured, plain.login) == ("a", 1, False, None)
    assert (secured.host, secured.port, secured.is_secured, secured.login) == ("::1", 2, True, "me:p@ss")


class Screen:
    """`barnabas top` on a terminal of its own; what stands on it, without its control sequences."""

    def __init__(self, bootstrap: str, width: int, height: int, interval_s: float = 0.3, **around: str) -> None:
        self._bytes = b""
        # The program's side stays open here too: with the last who has it goes what was not read.
        self.descriptor, self._terminal = pty.openpty()
        self.resize(width, height)
        #: How it treats what is typed, echo among it: before, and after `end`.
        self.attributes = termios.tcgetattr(self._terminal)
        # The terminal tells its size; whoever runs the tests may have told another.
        inherited = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
        self.process = subprocess.Popen(
            command("top", "--bootstrap-server", bootstrap, "--interval", str(interval_s)),
            stdin=self._terminal,
            stdout=self._terminal,
            stderr=self._terminal,
            start_new_session=True,
            env={**inherited, "TERM": "xterm", **around},
        )

    def resize(self, width: int, height: int) -> None:
        fcntl.ioctl(self.descriptor, termios.TIOCSWINSZ, struct.pack("HHHH", height, width, 0, 0))

    def press(self, keys: str) -> None:
        os.write(self.descriptor, keys.encode())

    def until(self, pattern: str) -> list[str]:
        """Lines of the first whole screen on which it stands."""
        deadline = time.monotonic() + LIMIT_S
        while time.monotonic() < deadline:
            for drawn in self._bytes.split(b"\x1b[H")[1:]:
                if not drawn.rstrip().endswith(b"\x1b[J"):
                    continue
                text = re.sub(r"\x1b\[[?\d;]*[a-zA-Z]", "", drawn.decode())
                if re.search(pattern, text, re.MULTILINE):
                    self._bytes = b""
                    return text.replace("\r", "").split("\n")
            if select.select([self.descriptor], [], [], 1)[0]:
                with contextlib.suppress(OSError):
                    self._bytes += os.read(self.descriptor, 1 << 16)
        raise AssertionError(self._bytes[-3000:])

    def end(self) -> bytes:
        """Wait until it has left the terminal; what it wrote. The last of that may come after its end."""
        deadline = time.monotonic() + LIMIT_S
        while not self._bytes.endswith(LEFT) and time.monotonic() < deadline:
            if select.select([self.descriptor], [], [], 1)[0]:
                self._bytes += os.read(self.descriptor, 1 << 16)
        self.process.wait(LIMIT_S)
        self.attributes = termios.tcgetattr(self._terminal)
        os.close(self.descriptor)
        os.close(self._terminal)
        return self._bytes

    def kill(self) -> None:
        """If it has not ended."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()


def test_on_a_terminal_with_keys_and_another_size(bootstrap: str) -> None:
    shown = Screen(bootstrap, 80, 24)
    try:
        lines = shown.until(r"^q quit")
        assert len(lines) == 24
        assert max(map(len, lines)) <= 80
        assert any(line.startswith("GROUPS") for line in lines)
        shown.press("3")
        lines = shown.until(r"^GROUPS(?s:(?!TOPICS).)*q quit")
        assert not any(line.startswith("TOPICS") for line in lines)
        shown.press("0n")
        shown.resize(200, 50)
        os.kill(shown.process.pid, signal.SIGWINCH)
        lines = shown.until(r"^BROKERS.*GROUPS")
        assert len(lines) == 50
        shown.press("q")
        assert shown.end().endswith(LEFT)
        assert shown.process.returncode == 0
    finally:
        shown.kill()


@contextlib.contextmanager
def _heard(number: signal.Signals) -> Iterator[None]:
    """What is started meanwhile does not ignore the signal, as it would in tests that `nohup` has started."""
    before = signal.signal(number, lambda *_: None)
    try:
        yield
    finally:
        signal.signal(number, before)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM, signal.SIGHUP])
def test_a_signal_leaves_the_terminal_as_it_was(bootstrap: str, number: signal.Signals) -> None:
    with _heard(number):
        shown = Screen(bootstrap, 80, 24)
    before = shown.attributes
    try:
        shown.until(r"^q quit")
        os.kill(shown.process.pid, number)
        told = shown.end()
        assert told.endswith(LEFT)
        assert b"Traceback" not in told
        assert shown.attributes == before
        assert shown.process.returncode == 128 + number
    finally:
        shown.kill()


def test_it_ends_when_its_terminal_was_closed(bootstrap: str) -> None:
    shown = Screen(bootstrap, 80, 24, interval_s=600)
    try:
        shown.until(r"^q quit")
        os.close(shown.descriptor)
        assert shown.process.wait(LIMIT_S) == 0
    finally:
        shown.kill()
        os.close(shown._terminal)


def test_on_a_terminal_that_knows_no_utf_8(bootstrap: str) -> None:
    shown = Screen(bootstrap, 60, 24, PYTHONIOENCODING="ascii")
    try:
        lines = shown.until(r"^q quit")
        assert " - 1 broker, " in lines[0]
        assert lines[-1].startswith("q quit - 1-5 one part alone")
        assert lines[-1].endswith("~")
        shown.press("q")
        shown.end()
        assert shown.process.returncode == 0
    finally:
        shown.kill()


@pytest.mark.parametrize(
    ("encoding", "told"),
    [("ascii", b"a - b~ >5 ?"), ("latin-1", b"a \xb7 b~ >5 ?"), ("utf-8", "a · b… ≥5 表".encode())],
)
def test_only_what_an_output_does_not_know_is_replaced(
    monkeypatch: pytest.MonkeyPatch, encoding: str, told: bytes
) -> None:
    data = io.BytesIO()
    monkeypatch.setattr("sys.stdout", io.TextIOWrapper(data, encoding=encoding, write_through=True))
    show_all_text()
    sys.stdout.write("a · b… ≥5 表")
    assert data.getvalue() == told


def test_nothing_is_drawn_on_a_terminal_that_was_left(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(output, "is_watched", lambda: True)
    monkeypatch.setenv("TERM", "xterm")

    async def story() -> None:
        with Terminal(lambda key: None, lambda: None) as terminal:
            terminal.draw(["in time"], frozenset())
        terminal.draw(["too late"], frozenset())

    asyncio.run(story())
    told = capsys.readouterr().out
    assert "in time" in told
    assert told.endswith(LEFT.decode())


def served(answer: bytes) -> Any:
    """What is made of an HTTP answer."""

    async def story() -> Any:
        async def handle(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            asked = await reader.readuntil(b"\r\n\r\n")
            assert asked.startswith(b"GET /metrics HTTP/1.1\r\n")
            writer.write(answer)
            writer.close()

        server = await asyncio.start_server(handle, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        async with server:
            (address,) = parse_addresses(f"127.0.0.1:{port}") or ()
            return await _figures(address)

    return asyncio.run(story())


def test_a_node_is_asked_by_http() -> None:
    told = served(b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\n\r\n" + TEXT.encode())
    assert told.node_id == 3
    for answer, words in (
        (b"HTTP/1.1 401 Unauthorized\r\n\r\n", "user:password@"),
        (b"HTTP/1.1 503 Service Unavailable\r\n\r\n", "503 Service Unavailable"),
        (b"SSH-2.0-x\r\n\r\n", "it answers"),
        (b"", "bytes"),
        (b"HTTP/1.1 200 OK\r\nX: " + b"x" * (1 << 17), "head of its answer does not end"),
        (b'HTTP/1.1 200 OK\r\n\r\nkafka_network_requestmetrics_totaltimems_bucket{le="abc"} 1', "abc"),
    ):
        with pytest.raises(ScrapeError, match=words):
            served(answer)


@pytest.mark.parametrize("host", ["127.0.0.1", "localhost"])
def test_nobody_there_is_told_in_words(host: str) -> None:
    (address,) = parse_addresses(f"{host}:{free_ports(1)[0]}") or ()
    with pytest.raises(ScrapeError, match=r"^nobody answers there$"):
        asyncio.run(_figures(address))


def test_a_listener_is_where_the_broker_says() -> None:
    broker = Node(3, "kafka-3", 9092)
    told = {
        "127.0.0.1:9404": ("127.0.0.1", 9404, False),
        "0.0.0.0:9404": ("kafka-3", 9404, False),
        ":9404": ("kafka-3", 9404, False),
        "SSL://[::1]:9404": ("::1", 9404, True),
        "SSL://:9404": ("kafka-3", 9404, True),
    }
    for listener, (host, port, is_secured) in told.items():
        address = _address(listener, broker)
        assert address is not None
        assert (address.host, address.port, address.is_secured, address.broker_id) == (host, port, is_secured, 3)
    assert _address("127.0.0.1:0", broker) is None


class Settings:
    """Stands for an admin that asks brokers for their settings: what becomes of it each time, and who was asked."""

    def __init__(self, *outcomes: dict[str, str | Exception | None] | Exception) -> None:
        self.asked: list[list[str]] = []
        self._outcomes = list(outcomes)

    async def describe_configs(self, resources: list[ConfigResource], timeout: float) -> Any:
        self.asked.append([each.name for each in resources])
        outcome = self._outcomes.pop(0)
        if isinstance(outcome, Exception):
            raise outcome
        results, errors = {}, {}
        for each in resources:
            told = outcome[each.name]
            if isinstance(told, Exception):
                errors[each] = told
            else:
                results[each] = {} if told is None else {SETTING: ConfigEntry(SETTING, told)}
        if errors:
            raise KeyedError(errors, results)
        return results


def test_a_broker_is_asked_for_its_listener_until_it_has_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scraping, "_LOOKS_BETWEEN", 1)
    late = ClientTimeoutError("no time")
    denied = BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    admin: Any = Settings(late, {"1": ":9404", "2": late, "3": denied, "4": None}, {"2": ":9405"}, {"1": ":9406"})

    async def story() -> list[list[str]]:
        scraper = Scraper(None)
        seen = []
        for brokers in ((1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (1, 2, 3, 4), (2, 3, 4), (1, 2, 3, 4)):
            nodes = tuple(Node(number, f"kafka-{number}", 9092) for number in brokers)
            found = await scraper._find(admin, ClusterDescription("c", None, nodes))
            seen.append(sorted(each.text for each in found))
        return seen

    first, second = "kafka-1:9404", "kafka-2:9405"
    assert asyncio.run(story()) == [[], [first], [first, second], [first, second], [second], ["kafka-1:9406", second]]
    assert admin.asked == [["1", "2", "3", "4"], ["1", "2", "3", "4"], ["2"], ["1"]]


def test_who_cannot_be_asked_is_waited_for_rarely() -> None:
    late = ClientTimeoutError("no time")
    admin: Any = Settings({"1": ":9404", "2": late, "3": UnsupportedRequestError("kafka-3", "no")}, {"2": late})

    async def story() -> None:
        scraper, nodes = Scraper(None), tuple(Node(number, f"kafka-{number}", 9092) for number in (1, 2, 3))
        for _ in range(15):
            found = await scraper._find(admin, ClusterDescription("c", None, nodes))
            assert [each.text for each in found] == ["kafka-1:9404"]

    asyncio.run(story())
    assert admin.asked == [["1", "2", "3"], ["2"]]


def test_where_nobody_tells_any_more_is_asked_for_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    admin: Any = Settings({"1": ":9404"}, {"1": ":9405"})

    async def figures(address: MetricsAddress) -> NodeFigures:
        if address.port == 9404:
            raise ScrapeError("nobody answers there")
        return NodeFigures(node_id=1)

    monkeypatch.setattr(scraping, "_figures", figures)

    async def story() -> list[set[int]]:
        scraper, cluster = Scraper(None), ClusterDescription("c", None, (Node(1, "kafka-1", 9092),))
        return [set((await scraper.scrape(admin, cluster))[0]) for _ in range(3)]

    assert asyncio.run(story()) == [set(), {1}, {1}]


def test_metrics_of_another_cluster_are_not_taken_for_those_of_this(monkeypatch: pytest.MonkeyPatch) -> None:
    told = {"a": NodeFigures(cluster_id="here", node_id=1), "b": NodeFigures(cluster_id="elsewhere", node_id=2)}

    async def figures(address: MetricsAddress) -> NodeFigures:
        return told[address.host]

    monkeypatch.setattr(scraping, "_figures", figures)
    scraper, admin = Scraper([MetricsAddress(host, 9404) for host in told]), cast(Any, None)
    nodes, problems = asyncio.run(scraper.scrape(admin, ClusterDescription("here", None, ())))
    assert (set(nodes), problems) == ({1}, ["metrics of b:9404: they are of another cluster, elsewhere"])


@pytest.mark.slow
@pytest.mark.skipif(missing() is not None, reason="needs Kafka's jars: make oracles")
def test_of_kafka_itself(tmp_path: Path, tools: Tools) -> None:
    with KafkaServer(tmp_path, {"offsets.topic.num.partitions": "1"}) as server:
        minute_ago_ms = int(time.time() * 1000) - 60_000
        with Admin(bootstrap_servers=server.bootstrap) as admin:
            admin.create_topics([NewTopic("clicks", 2, 1)])
        with Producer(bootstrap_servers=server.bootstrap) as producer:
            for number in range(100):
                producer.send("clicks", b"x", partition=number % 2, timestamp_ms=minute_ago_ms)
        with Consumer(bootstrap_servers=server.bootstrap, group_id="readers", enable_auto_commit=False) as consumer:
            consumer.assign([TopicPartition("clicks", 0)])
            consumer.commit({TopicPartition("clicks", 0): OffsetAndMetadata(15)})
        told = tools.json_at(server.bootstrap, "top --once --interval 0.2")
        (group,) = told["groups"]
        assert (group["groupId"], group["lag"]) == ("readers", 35)
        assert 55 < group["lagSeconds"] < 80
        assert told["controllerId"] == 1
        assert told["problems"] == []


def test_a_node_of_ours_tells_all(tools: Tools) -> None:
    """By its metrics listener, which is found by its setting: APIs with their times, bytes, who is slowed down."""
    listener = f"127.0.0.1:{free_ports(1)[0]}"
    with EmbeddedBroker(overrides={"offsets.topic.num.partitions": 1, "metrics.listener": listener}) as broker:
        address = broker.bootstrap_servers
        changed = tools.at(
            address, "configs --alter --entity-type clients --entity-name noisy --add-config producer_byte_rate=200000"
        )
        assert changed.code == 0, changed.err
        with Producer(bootstrap_servers=address, client_id="noisy", linger_ms=0) as producer:
            stop, is_slowed_down = threading.Event(), threading.Event()

            def send() -> None:
                for number in itertools.count(1):
                    producer.send("clicks", b"x" * 4000).result(LIMIT_S)
                    if number == 500:  # what a window lets pass at once
                        is_slowed_down.set()
                    if stop.is_set():
                        return

            sending = threading.Thread(target=send)
            sending.start()
            try:
                assert is_slowed_down.wait(LIMIT_S)
                told = tools.json_at(address, "top --once --interval 1")
            finally:
                stop.set()
                sending.join(LIMIT_S)
        (topic,) = (each for each in told["topics"] if each["name"] == "clicks")
        apis = {each["name"]: each for each in told["apis"]}
        produce = apis["Produce"]
        assert produce["requestsPerSecond"] > 0
        parts = [produce[f"{part}Ms"] for part in ("queue", "local", "remote", "responseQueue", "send")]
        assert sum(parts) == pytest.approx(produce["meanMs"], abs=0.05)
        # Both are of one look; of a request that comes meanwhile, one may know.
        assert topic["bytesInPerSecond"] == pytest.approx(produce["requestsPerSecond"] * 4070, abs=4070)
        assert topic["bytesInPerSecond"] > 0
        assert topic["recordsPerSecond"] > 0
        (node,) = told["brokers"]
        assert 0 <= node["idle"] <= 1
        assert any(each.startswith("noisy as User:ANONYMOUS (") for each in told["throttled"])
        assert any(each.startswith("Slowed down by quotas: noisy as User:ANONYMOUS") for each in told["reasons"])
        assert told["problems"] == []
