"""Nodes of a cluster as processes of their own, on free ports, to be killed, paused and started again."""

from __future__ import annotations

import ctypes
import os
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from types import TracebackType
from typing import ClassVar, Final

from barnabas.base.ids import Uuid
from barnabas.base.properties import format_properties
from barnabas.broker.quorum.formatting import format_directories
from barnabas.broker.settings import BrokerSettings
from barnabas.storage.real_files import RealFileSystem
from tests.ports import free_ports

COMBINED: Final = "broker,controller"
START_TIMEOUT_S: Final = 90.0
_STOP_TIMEOUT_S: Final = 30.0
_PR_SET_PDEATHSIG: Final = 1
#: Short enough for a test of a silent death, long enough for a machine with other things to do.
SETTINGS: Final[Mapping[str, str]] = {
    "broker.session.timeout.ms": "6000",
    "broker.heartbeat.interval.ms": "1000",
    "offsets.topic.replication.factor": "1",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "1000",
    "log.initial.task.delay.ms": "0",
}


def three() -> dict[int, str]:
    return dict.fromkeys((1, 2, 3), COMBINED)


def end_with_parent() -> None:
    """A node must not outlive tests that were killed."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


class Node:
    """One process. Where it listens and where others find its controller may differ: a test may stand between."""

    def __init__(self, node_id: int, roles: str, folder: Path, broker_port: int, controller_port: int) -> None:
        self.node_id = node_id
        self.roles = roles
        self.file = folder / f"node-{node_id}.properties"
        self.log = folder / f"node-{node_id}.log"
        self.data = folder / f"node-{node_id}"
        self.bootstrap = f"127.0.0.1:{broker_port}"
        self.controller = f"127.0.0.1:{controller_port}"
        self.voter_address = self.controller
        self.process: subprocess.Popen[str] | None = None
        self.is_paused = False

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    @property
    def pid(self) -> int:
        assert self.process is not None, f"node {self.node_id} was not started"
        return self.process.pid

    def launch(self) -> None:
        """Begin to start; `until_ready` waits."""
        assert not self.is_running
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "barnabas", "server", "start", str(self.file)],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                preexec_fn=end_with_parent,
            )

    def until_ready(self, timeout_s: float = START_TIMEOUT_S) -> None:
        process = self.process
        assert process is not None
        assert process.stdout is not None
        deadline_s = time.monotonic() + timeout_s
        output, told = process.stdout.fileno(), b""
        # Not by lines: two that come at once would leave the second in a buffer that nobody waits for.
        while select.select([output], [], [], max(0.0, deadline_s - time.monotonic()))[0]:
            piece = os.read(output, 65536)
            told += piece
            if told.startswith(b"ready: ") or b"\nready: " in told:
                return
            if not piece:
                raise AssertionError(f"node {self.node_id} ended with code {process.wait()}:\n{self.tail()}")
        raise AssertionError(f"node {self.node_id} was not ready within {timeout_s:.0f} s:\n{self.tail()}")

    def kill(self) -> None:
        """As a crash does."""
        assert self.process is not None
        self.process.kill()
        self._ended()

    def pause(self) -> None:
        """It neither runs nor ends: its connections stay open, and nobody answers."""
        self.is_paused = True
        os.kill(self.pid, signal.SIGSTOP)

    def go_on(self) -> None:
        self.is_paused = False
        os.kill(self.pid, signal.SIGCONT)

    def stop(self) -> int:
        """Cleanly; the exit code."""
        assert self.process is not None
        self.process.terminate()
        return self._ended()

    def _ended(self) -> int:
        process = self.process
        assert process is not None
        try:
            return process.wait(_STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"node {self.node_id} did not stop:\n{self.tail()}") from None
        finally:
            if process.stdout is not None:
                process.stdout.close()
            self.is_paused = False
            self.process = None

    def end(self) -> None:
        """At the end of the tests, whatever state it is in."""
        if self.process is not None:
            self.kill()

    def told(self) -> str:
        return self.log.read_text(errors="replace") if self.log.exists() else ""

    def tail(self) -> str:
        return self.told()[-4000:]


class Cluster:
    """Nodes by their ids, `roles` says what each is. `with` starts them and ends them."""

    NODE: ClassVar[type[Node]] = Node

    def __init__(
        self,
        folder: Path,
        roles: Mapping[int, str] | None = None,
        settings: Mapping[str, str] | None = None,
        *,
        between: Mapping[int, str] | None = None,
    ) -> None:
        """`between` are addresses under which others find the controllers, if something stands before them."""
        self.folder = folder
        self.cluster_id = str(Uuid.random(random.Random()))
        roles = roles or three()
        self._settings = {**SETTINGS, **(settings or {})}
        folder.mkdir(parents=True, exist_ok=True)
        self.nodes = {each: self.NODE(each, role, folder, *free_ports(2)) for each, role in roles.items()}
        for each, address in (between or {}).items():
            self.nodes[each].voter_address = address

    def __getitem__(self, node_id: int) -> Node:
        return self.nodes[node_id]

    @property
    def controllers(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.is_controller]

    @property
    def brokers(self) -> list[Node]:
        return [each for each in self.nodes.values() if each.is_broker]

    @property
    def running_brokers(self) -> list[Node]:
        return [each for each in self.brokers if each.is_running and not each.is_paused]

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.brokers)

    @property
    def voters(self) -> str:
        return ",".join(f"{each.node_id}@{each.voter_address}" for each in self.controllers)

    def properties(self, node: Node, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        listeners = [f"PLAINTEXT://{node.bootstrap}"] if node.is_broker else []
        if node.is_controller:
            listeners.append(f"CONTROLLER://{node.controller}")
        return {
            "node.id": str(node.node_id),
            "process.roles": node.roles,
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(node.data),
            **self._settings,
            **(changes or {}),
        }

    def write(self, node: Node, changes: Mapping[str, str] | None = None) -> None:
        node.file.write_text(format_properties(self.properties(node, changes)), encoding="utf-8")

    def format(self, node: Node, cluster_id: str | None = None) -> None:
        settings = BrokerSettings.load(self.properties(node), {})
        format_directories(RealFileSystem(), settings, cluster_id or self.cluster_id, random.Random())

    def prepare(self) -> None:
        for each in self.nodes.values():
            self.write(each)
            self.format(each)

    def start(self, *node_ids: int) -> None:
        """Start nodes, all if none is named, and wait until each is ready."""
        nodes = [self.nodes[each] for each in node_ids or self.nodes]
        for each in nodes:
            each.launch()
        for each in nodes:
            each.until_ready()

    def start_missing(self) -> None:
        """Whoever is paused goes on, whoever has ended is started again."""
        for each in self.nodes.values():
            if each.is_paused:
                each.go_on()
        missing = [each.node_id for each in self.nodes.values() if not each.is_running]
        if missing:
            self.start(*missing)

    def end(self, nodes: Iterable[Node] | None = None) -> None:
        for each in nodes or self.nodes.values():
            each.end()

    def __enter__(self) -> Cluster:
        try:
            self.prepare()
            self.start()
        except BaseException:
            self.end()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()
