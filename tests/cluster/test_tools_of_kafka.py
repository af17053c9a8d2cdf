"""Kafka's own tools on our cluster: whom they ask, and what they read from its files, is what ours tell."""

from __future__ import annotations

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.kafka_tools import KafkaTools
from tests.cli.test_metadata_quorum import same
from tests.cli.tools import Tools, run_kafka, run_kafkas_shell
from tests.cluster.asking import active, created
from tests.cluster.nodes import Cluster, Node
from tests.oracles import needs_kafka
from tests.spark.rig.processes import wait_until

pytestmark = needs_kafka()

_FIRST = "00000000000000000000.log"


@pytest.fixture(scope="module")
def kafka() -> Iterator[KafkaTools]:
    with KafkaTools() as tools:
        yield tools


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Tools:
    return Tools(capsys)


def test_the_quorum_and_its_features(three: Cluster, barnabas: Tools, kafka: KafkaTools) -> None:
    leader, epoch = active(three)
    ways = (("--bootstrap-server", three[1].bootstrap), ("--bootstrap-controller", leader.controller))
    for way in ways:
        for call in ("describe --status", "describe --replication"):
            ours, theirs = (
                barnabas("metadata-quorum", *way, *call.split()),
                kafka("metadata-quorum", *way, *call.split()),
            )
            assert ours.code == theirs.code == 0, (ours, theirs)
            assert same(ours.out) == same(theirs.out)
        told = kafka("metadata-quorum", *way, "describe", "--status").out
        assert re.search(rf"LeaderId: +{leader.node_id}\nLeaderEpoch: +{epoch}\n", told)
        for tool, call in (("features", "describe"), ("cluster", "list-endpoints"), ("cluster", "cluster-id")):
            placed = (*way, call) if tool == "features" else (call, *way)
            ours, theirs = barnabas(tool, *placed), kafka(tool, *placed)
            assert theirs.code == 0
            assert _without_epoch(ours.out) == _without_epoch(theirs.out)


def _without_epoch(text: str) -> str:
    """The epoch of the features is an offset, and the log grows."""
    return re.sub(r"Epoch: \d+", "Epoch: N", text)


def _log_with(topic: str, node: Node) -> Path:
    """A node that is no part of the majority may get to know of a topic later."""
    log = node.data / "__cluster_metadata-0" / _FIRST
    wait_until(lambda: topic.encode() in log.read_bytes(), f"node {node.node_id} knows of {topic}")
    return log


def test_the_logs_of_all_nodes_while_they_run(three: Cluster, barnabas: Tools) -> None:
    created(three[1], "for-the-tools")
    for node in three.nodes.values():
        log = str(_log_with("for-the-tools", node))
        arguments = ["--cluster-metadata-decoder", "--skip-record-metadata", "--files", log]
        theirs = run_kafka("org.apache.kafka.tools.DumpLogSegments", arguments)
        assert theirs.code == 0, theirs.err
        ours = barnabas("dump-log", *arguments)
        assert '"name":"for-the-tools"' in theirs.out
        # It grows between the two calls.
        common = min(len(ours.out.splitlines()), len(theirs.out.splitlines()))
        assert common > 20
        assert ours.out.splitlines()[:common] == theirs.out.splitlines()[:common]


def test_the_state_of_any_node_while_it_runs(three: Cluster, barnabas: Tools, tmp_path: Path) -> None:
    created(three[2], "for-the-shell")
    for node in three.nodes.values():
        _log_with("for-the-shell", node)
        # Kafka's shell locks the directory, so a node that runs keeps it out: it gets a copy.
        copy = shutil.copytree(
            node.data / "__cluster_metadata-0", tmp_path / str(node.node_id) / "__cluster_metadata-0"
        )
        call = ["--snapshot", str(copy / _FIRST), "ls", "/image/topics/byName"]
        theirs = run_kafkas_shell(call, lambda words: "for-the-shell" in words)
        call[1] = str(node.data / "__cluster_metadata-0" / _FIRST)
        assert set(barnabas("metadata-shell", *call).out.split()) >= set(theirs.out.split())
