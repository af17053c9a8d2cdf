"""kcat, the command that people type first: metadata, records in and out, offsets by number and by time, groups."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Timer
from typing import Any

import pytest

from tests.oracles import ROOT, other_process

UNPACKED = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "kcat" / "usr"
COMMAND = shutil.which("kcat") or shutil.which("kafkacat") or shutil.which("kcat", path=UNPACKED / "bin")
TIMEOUT_S = 30
BIG = 900_000

pytestmark = other_process("kcat is not installed, and 'make oracles' could not fetch it" if COMMAND is None else None)


class Kcat:
    """The command against one node, with a topic of its own for the test."""

    def __init__(self, node: str) -> None:
        self.node = node
        self.topic = f"kcat-{uuid.uuid4().hex[:8]}"

    def run(self, *arguments: str, text: str | bytes = "", code: int | None = 0) -> str:
        """What it printed, once it ended with the code that is expected."""
        given = text.encode() if isinstance(text, str) else text
        done = subprocess.run(
            [str(COMMAND), "-b", self.node, *arguments],
            input=given,
            capture_output=True,
            env=_environment(),
            check=False,
            timeout=TIMEOUT_S,
        )
        assert code is None or done.returncode == code, done.stderr.decode()
        return done.stdout.decode() if done.returncode == 0 else done.stderr.decode()

    def produce(self, text: str | bytes, *arguments: str, code: int = 0) -> str:
        return self.run("-P", "-t", self.topic, *arguments, text=text, code=code)

    def records(self, *arguments: str) -> list[dict[str, Any]]:
        """All records from the offset that is asked for to the end."""
        printed = self.run("-C", "-t", self.topic, "-e", "-q", "-J", *arguments)
        return [json.loads(line) for line in printed.splitlines()]

    def payloads(self, *arguments: str) -> list[str]:
        return [each["payload"] for each in self.records(*arguments)]

    def create_topic(self, partitions: int) -> None:
        admin_of = pytest.importorskip("confluent_kafka.admin", reason="confluent-kafka is not installed")
        admin = admin_of.AdminClient({"bootstrap.servers": self.node})
        for future in admin.create_topics([admin_of.NewTopic(self.topic, partitions, 1)]).values():
            future.result(TIMEOUT_S)


def _environment() -> dict[str, str]:
    libraries = [str(each) for each in UNPACKED.glob("lib/*")]
    return os.environ | ({"LD_LIBRARY_PATH": os.pathsep.join(libraries)} if libraries else {})


@pytest.fixture
def kcat(node: str) -> Kcat:
    return Kcat(node)


def test_metadata_and_a_topic_that_writing_creates(kcat: Kcat) -> None:
    kcat.produce("first\n")
    listed = json.loads(kcat.run("-L", "-J"))
    (broker,) = listed["brokers"]
    assert broker["name"] == kcat.node
    assert listed["controllerid"] == broker["id"]
    (topic,) = [each for each in listed["topics"] if each["topic"] == kcat.topic]
    assert topic["partitions"][0] == {
        "partition": 0,
        "leader": broker["id"],
        "replicas": [{"id": broker["id"]}],
        "isrs": [{"id": broker["id"]}],
    }


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_records_of_every_codec(kcat: Kcat, codec: str) -> None:
    kcat.produce("k1|v1\nk2|\n|v3\n", "-z", codec, "-K", "|", "-Z", "-H", "one=eins", "-H", "two", "-H", "one=zwei")
    kcat.produce("y" * BIG + "\n", "-z", codec)
    one, tombstone, keyless, big = kcat.records("-o", "beginning")
    assert (one["key"], one["payload"]) == ("k1", "v1")
    assert one["headers"] == ["one", "eins", "two", None, "one", "zwei"]
    assert (one["tstype"], one["offset"]) == ("create", 0)
    assert abs(one["ts"] - time.time() * 1000) < 60_000
    assert (tombstone["key"], tombstone["payload"]) == ("k2", None)
    assert (keyless["key"], keyless["payload"]) == (None, "v3")
    assert (big["payload"], big["offset"]) == ("y" * BIG, 3)


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_acks(kcat: Kcat, acks: str) -> None:
    kcat.create_topic(1)
    kcat.produce("a\nb\n", "-X", f"acks={acks}")
    # Nobody has said that it was written where no answer was asked for.
    deadline = time.monotonic() + TIMEOUT_S
    while (seen := kcat.payloads()) != ["a", "b"]:
        assert acks == "0", seen
        assert time.monotonic() < deadline, seen


def test_an_idempotent_producer(kcat: Kcat) -> None:
    numbers = [str(number) for number in range(1000)]
    kcat.produce("\n".join(numbers) + "\n", "-X", "enable.idempotence=true", "-X", "batch.num.messages=10")
    assert kcat.payloads() == numbers


def test_partitions_are_chosen(kcat: Kcat) -> None:
    kcat.create_topic(3)
    for partition in range(3):
        kcat.produce(f"in {partition}\n", "-p", str(partition))
    assert kcat.payloads("-p", "1") == ["in 1"]
    assert sorted(kcat.payloads()) == ["in 0", "in 1", "in 2"]


def test_offsets_by_number_and_by_time(kcat: Kcat) -> None:
    kcat.create_topic(1)
    kcat.produce("0\n1\n2\n")
    between = max(each["ts"] for each in kcat.records()) + 1
    while time.time() * 1000 < between:
        time.sleep(0.001)
    kcat.produce("3\n4\n")
    assert kcat.payloads("-p", "0", "-o", "2") == ["2", "3", "4"]
    assert kcat.payloads("-p", "0", "-o", "-1") == ["4"]
    assert kcat.payloads("-p", "0", "-o", "end") == []
    assert kcat.payloads("-p", "0", "-o", f"s@{between}") == ["3", "4"]
    assert kcat.payloads("-p", "0", "-o", "s@0", "-o", f"e@{between}") == ["0", "1", "2"]
    assert kcat.payloads("-p", "0", "-c", "2") == ["0", "1"]
    # 0 finds the first record; -1 and -2 are the protocol's numbers for the end and the beginning.
    asked = {"0": 0, str(between): 3, "99999999999999": -1, "-1": 5, "-2": 0}
    for timestamp, offset in asked.items():
        assert kcat.run("-Q", "-t", f"{kcat.topic}:0:{timestamp}").split() == [kcat.topic, "[0]", "offset", str(offset)]
    # An offset outside the log: the client is told so, and goes where it was told to go then.
    assert kcat.payloads("-p", "0", "-o", "77", "-X", "auto.offset.reset=earliest") == ["0", "1", "2", "3", "4"]


def test_a_group_commits_and_resumes(kcat: Kcat) -> None:
    kcat.create_topic(1)
    kcat.produce("0\n1\n2\n3\n4\n")
    consume = ("-G", f"{kcat.topic}-group", "-q", "-e", "-f", "%o:%s\n", "-X", "auto.offset.reset=earliest")
    assert kcat.run(*consume, "-c", "2", kcat.topic).split() == ["0:0", "1:1"]
    assert kcat.run(*consume, kcat.topic).split() == ["2:2", "3:3", "4:4"]
    assert kcat.run(*consume, kcat.topic).split() == []


@contextmanager
def member(kcat: Kcat, strategy: str) -> Iterator[subprocess.Popen[str]]:
    """A member of the topic's group; its standard error tells of each rebalance."""
    options = ("-u", "-f", "%s\n", "-X", f"partition.assignment.strategy={strategy}", "-X", "heartbeat.interval.ms=200")
    process = subprocess.Popen(
        [str(COMMAND), "-b", kcat.node, "-G", f"{kcat.topic}-group", *options, kcat.topic],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=_environment(),
        text=True,
    )
    try:
        yield process
    finally:
        process.terminate()
        process.wait(TIMEOUT_S)
        assert process.stderr is not None
        process.stderr.close()


def told(process: subprocess.Popen[str], partitions: int) -> str:
    """The line in which the member got this many partitions, eagerly or in addition."""
    assert process.stderr is not None
    with killed_after(process, TIMEOUT_S):
        for line in process.stderr:
            if ("assigned:" in line or "incremental assignment" in line) and line.count("[") == partitions:
                return line
    raise AssertionError("the member has ended, or was not told in time")


@contextmanager
def killed_after(process: subprocess.Popen[str], seconds: float) -> Iterator[None]:
    """Reading from it blocks, so a process that says nothing ends."""
    timer = Timer(seconds, process.kill)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
def test_members_share_and_take_over(kcat: Kcat, strategy: str) -> None:
    kcat.create_topic(4)
    with member(kcat, strategy) as one:
        assert told(one, 4)
        with member(kcat, strategy) as two:
            assert told(two, 2)
        # Eagerly all four are given anew, cooperatively the two that were given away come back.
        assert told(one, 2 if strategy == "cooperative-sticky" else 4)


def test_errors(kcat: Kcat) -> None:
    kcat.create_topic(1)
    unknown = kcat.run("-C", "-t", f"{kcat.topic}-none", "-e", "-X", "allow.auto.create.topics=false", code=1)
    assert "Unknown topic or partition" in unknown
    assert "does not exist" in kcat.run("-C", "-t", kcat.topic, "-p", "99", "-e", code=1)
    assert "Unknown partition" in kcat.produce("x\n", "-p", "99", code=1)
    assert "Invalid topic" in kcat.run("-C", "-t", "no spaces", "-e", code=1)
    too_large = kcat.produce(b"x" * 1_100_000 + b"\n", "-X", "message.max.bytes=2000000", code=1)
    assert "Message size too large" in too_large
