"""`cluster`: ids, and brokers that are forgotten."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.cli.aliases import run
from tests.cli.processes import running
from tests.cli.tools import Tools


def test_the_id_of_a_cluster(barnabas: Tools, our_node: str) -> None:
    told = barnabas("cluster", "cluster-id", "--bootstrap-server", our_node)
    assert (told.code, told.err) == (0, "")
    assert told.out.startswith("Cluster ID: ")
    assert len(told.out) == len("Cluster ID: ") + 22 + 1


def test_an_unknown_broker_cannot_be_unregistered(barnabas: Tools, our_node: str) -> None:
    told = barnabas("cluster", "unregister", "--bootstrap-server", our_node, "--id", "77")
    assert (told.code, told.out) == (1, "")
    assert "there is no broker 77" in told.err


def test_a_broker_that_is_unregistered_is_back_after_a_restart(barnabas: Tools, tmp_path: Path) -> None:
    node = ("up", "--listen", "127.0.0.1:0", "--data-dir", "data")
    with running(*node, folder=tmp_path) as (process, bootstrap):
        assert barnabas.at(bootstrap, "topics --create --topic kept").code == 0
        told = barnabas("cluster", "unregister", "--bootstrap-server", bootstrap, "--id", "1")
        assert told == (0, "Broker 1 is no longer registered.\n", "")
        process.terminate()
        assert process.wait(30) == 0
    with running(*node, folder=tmp_path) as (_, bootstrap):
        assert "Leader: 1" in barnabas.at(bootstrap, "topics --describe --topic kept").out


@pytest.mark.parametrize(
    ("call", "said"),
    [
        ("cluster-id", "Usage:"),
        ("cluster-id --json", "give exactly one of --bootstrap-server or --bootstrap-controller"),
        ("unregister --id 7", "give exactly one of --bootstrap-server or --bootstrap-controller"),
        ("unregister --bootstrap-server a:1", "--id is missing"),
        ("unregister --bootstrap-server a:1 --id x", "'x' is not a valid integer"),
        ("forget", "No such command 'forget'"),
    ],
)
def test_wrong_calls_end_with_1(call: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["kafka-cluster.sh", *call.split()]) == 1
    assert said in capsys.readouterr().err
