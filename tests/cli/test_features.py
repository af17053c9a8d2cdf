"""`features`: levels of a running node, and what releases bring; beside Kafka's own tool."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator

import pytest

from barnabas.cli.aliases import run
from barnabas.testing import EmbeddedBroker
from tests.cli.kafka_tools import KafkaTools
from tests.cli.tools import Tools
from tests.oracles import needs_kafka

#: What needs no cluster; the exit code may be 1.
OF_RELEASES = """
version-mapping
version-mapping --release-version 4.0
version-mapping --release-version 4.0-IV3
version-mapping --release-version 3.9
version-mapping --release-version 3.3-IV3
feature-dependencies --feature kraft.version=1 --feature metadata.version=25
feature-dependencies --feature eligible.leader.replicas.version=1
feature-dependencies --feature nope=1
feature-dependencies --feature metadata.version=99
feature-dependencies --feature metadata.version=3
feature-dependencies --feature group.version=9
feature-dependencies --feature group.version
feature-dependencies --feature share.version=x
""".strip().splitlines()

OF_A_NODE = """
describe
downgrade --feature metadata.version=24 --dry-run
downgrade --feature metadata.version=22
downgrade --feature metadata.version=22 --unsafe
downgrade --feature metadata.version=30
downgrade --metadata 4.0-IV2 --dry-run
upgrade --feature metadata.version=30 --dry-run
upgrade --feature group.version=1
upgrade --feature metadata.version=25
upgrade --metadata 9.9
upgrade --feature kraft.version=1 --dry-run
upgrade --release-version 4.0 --feature a=1
upgrade --feature a=1 --feature a=2
upgrade
disable --feature nope
disable --feature group.version --dry-run
disable
""".strip().splitlines()


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


def same(text: str) -> str:
    """Without what changes from call to call, and what our tools say before what went wrong."""
    text = text.removeprefix("barnabas: ").replace(", 4.3-IV0, 4.4-IV0", ", 4.3-IV0")
    lines = [line for line in text.splitlines() if not line.startswith("SLF4J")]
    return re.sub(r"Epoch: \d+", "Epoch: N", "\n".join(lines))


@needs_kafka()
@pytest.mark.parametrize("call", OF_RELEASES)
def test_releases_as_kafkas_tool_tells_of_them(barnabas: Tools, kafka: KafkaTools, call: str) -> None:
    ours, kafkas = barnabas("features", *shlex.split(call)), kafka("features", *shlex.split(call))
    assert (ours.code, ours.out, same(ours.err)) == (kafkas.code, kafkas.out, same(kafkas.err))


@needs_kafka()
def test_of_our_node_as_kafkas_tool(barnabas: Tools, kafka: KafkaTools, our_node: str) -> None:
    for call in OF_A_NODE:
        arguments = ("--bootstrap-server", our_node, *shlex.split(call))
        ours, kafkas = barnabas("features", *arguments), kafka("features", *arguments)
        assert (ours.code, same(ours.out), same(ours.err)) == (kafkas.code, same(kafkas.out), same(kafkas.err)), call


@needs_kafka()
def test_of_apache_kafka(barnabas: Tools, kafka: KafkaTools, apache_kafka: str) -> None:
    for call in ("describe", "upgrade --feature group.version=9 --dry-run", "upgrade --release-version 4.3 --dry-run"):
        arguments = ("--bootstrap-server", apache_kafka, *shlex.split(call))
        ours, kafkas = barnabas("features", *arguments), kafka("features", *arguments)
        assert (ours.code, same(ours.out)) == (kafkas.code, same(kafkas.out)), call


def test_levels_go_down_and_up_and_the_voters_come_into_the_log(barnabas: Tools) -> None:
    with EmbeddedBroker() as broker:
        at = ("features", "--bootstrap-server", broker.bootstrap_servers)
        told = barnabas(*at, "downgrade", "--feature", "metadata.version=23")
        assert told == (0, "metadata.version was downgraded to 23.\n", "")
        assert "FinalizedVersionLevel: 4.0-IV1" in barnabas(*at, "describe").out
        assert barnabas(*at, "upgrade", "--metadata", "4.0-IV3").code == 0
        told = barnabas(*at, "upgrade", "--feature", "kraft.version=1")
        assert told == (0, "kraft.version was upgraded to 1.\n", "")
        quorum = barnabas("metadata-quorum", "--bootstrap-server", broker.bootstrap_servers, "describe", "--status").out
        assert '"directoryId": "' in quorum
        assert barnabas("topics", "--bootstrap-server", broker.bootstrap_servers, "--create", "--topic", "t").code == 0
        told = barnabas(*at, "disable", "--feature", "kraft.version")
        assert told.code == 1
        assert "Can't downgrade the version of this feature." in told.out


def test_json_and_a_node_by_its_id(barnabas: Tools, our_node: str) -> None:
    told = barnabas("features", "--bootstrap-server", our_node, "describe", "--node-id", "1", "--json")
    assert told.code == 0
    assert '"feature":"metadata.version","supportedMinVersion":"3.3-IV3"' in told.out
    told = barnabas("features", "--bootstrap-server", our_node, "describe", "--node-id", "77")
    assert told.code == 1
    assert "there is no broker 77" in told.err


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("describe", "give exactly one of --bootstrap-server or --bootstrap-controller"),
        ("--bootstrap-server a:1 --bootstrap-controller b:1 describe", "give exactly one of"),
        ("--bootstrap-server a:1 describe --node-id -1", "must be non-negative"),
        ("--bootstrap-server a:1 raise", "No such command 'raise'"),
        ("feature-dependencies", "Missing option '--feature'"),
    ],
)
def test_wrong_calls_end_with_1(call: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kafka-features.sh", *call.split()]) == 1
    assert said in capsys.readouterr().err
