"""`barnabas … | head`: a tool whose output nobody reads any more ends, without a word about it."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from barnabas import Admin, Producer
from barnabas.testing import EmbeddedBroker
from tests.cli.processes import TIMEOUT_S, command

RECORDS = 20_000
TOPICS = 500


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """The address of a node that has much to show, and where its data lies."""
    directory = tmp_path_factory.mktemp("data")
    with EmbeddedBroker(data_dir=directory) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([f"topic-{number:05}-{'x' * 60}" for number in range(TOPICS)])
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for number in range(RECORDS):
                producer.send("many", str(number).encode())
        yield broker.bootstrap_servers, directory


@pytest.mark.parametrize(
    "call",
    [
        "dump-log --print-data-log --files {directory}/many-0/00000000000000000000.log",
        "dump-log --json --deep-iteration --files {directory}/many-0/00000000000000000000.log",
        "metadata-shell --directory {directory} find /",
        "topics {at} --list",
        "topics {at} --describe",
        "get-offsets {at}",
        "configs {at} --describe --all --entity-type topics",
        "console-consumer {at} --topic many --from-beginning",
        "verifiable-consumer {at} --topic many --group-id g --verbose",
        "verifiable-producer {at} --topic numbers",
        "producer-perf-test {at} --topic numbers --num-records 1000000000 --record-size 9 --throughput 1000"
        " --reporting-interval 1",
    ],
)
def test_a_tool_ends_quietly_when_nobody_reads_on(node: tuple[str, Path], call: str) -> None:
    bootstrap, directory = node
    arguments = call.format(at=f"--bootstrap-server {bootstrap}", directory=directory).split()
    with subprocess.Popen(command(*arguments), stdout=subprocess.PIPE, stderr=subprocess.PIPE) as tool:
        try:
            assert tool.stdout is not None
            first = tool.stdout.readline()
            tool.stdout.close()
            tool.stdout = None
            told = tool.communicate(timeout=TIMEOUT_S)[1].decode()
        finally:
            tool.kill()
    code = tool.returncode
    assert first, told
    is_told = arguments[0] == "console-consumer"
    # 0 if it had printed all by then.
    assert code in ((0,) if is_told else (0, 141)), told
    assert "Traceback" not in told
    assert ("nobody reads standard output any more" in told) == is_told
    assert "pipe" not in told.lower()
