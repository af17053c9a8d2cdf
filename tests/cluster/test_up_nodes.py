"""`barnabas up --nodes 3`: processes under one roof, that come and go together."""

from __future__ import annotations

import os
import re
import signal
import subprocess
from pathlib import Path

from tests.cli.processes import TIMEOUT_S, running
from tests.cluster.asking import until

_NODE = re.compile(r"^node (\d): broker and controller at (\S+), process (\d+), log in (\S+)$", re.MULTILINE)
_UP = ("up", "--nodes", "3", "--listen", "127.0.0.1:0", "--data-dir", "data")


def test_nodes_are_told_of_one_by_one_and_start_again_from_their_folder(tmp_path: Path) -> None:
    said = tmp_path / "node.log"
    with running(*_UP, folder=tmp_path) as (process, bootstrap):
        nodes = {int(each[1]): each for each in _NODE.finditer(said.read_text())}
        assert sorted(nodes) == [1, 2, 3]
        assert bootstrap == ",".join(nodes[each][2] for each in (1, 2, 3))
        os.kill(int(nodes[2][3]), signal.SIGKILL)
        until("it tells of the end of one", lambda: "node 2 has ended with code -9; see " in said.read_text())
        process.send_signal(signal.SIGINT)
        assert process.wait(TIMEOUT_S) == 0
    for each in (1, 3):
        assert not _is_alive(int(nodes[each][3]))
    with running(*_UP, folder=tmp_path) as (_, again):
        assert again == bootstrap


def test_controllers_and_brokers_apart(tmp_path: Path) -> None:
    apart = ("up", "--controllers", "1", "--brokers", "2", "--listen", "127.0.0.1:0", "--data-dir", "data")
    with running(*apart, folder=tmp_path) as (_, bootstrap):
        told = (tmp_path / "node.log").read_text()
        assert told.count(": controller, process ") == 1
        assert told.count(": broker at ") == 2
        assert len(bootstrap.split(",")) == 2


def test_when_all_nodes_have_ended_so_does_it(tmp_path: Path) -> None:
    said = tmp_path / "node.log"
    with running(*_UP, folder=tmp_path) as (process, _):
        for each in _NODE.finditer(said.read_text()):
            os.kill(int(each[3]), signal.SIGKILL)
        assert process.wait(TIMEOUT_S) == 1
    assert "all nodes have ended" in said.read_text()


def _is_alive(pid: int) -> bool:
    return subprocess.run(["kill", "-0", str(pid)], capture_output=True, check=False).returncode == 0
