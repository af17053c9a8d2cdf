"""Nodes that are processes of their own, run by our program or by Apache Kafka's from one and the same folder and file.

The folders are formatted to the levels that both know: with static voters by our program, or with voters in the log
(kraft.version 1) by the program that is named.
"""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from enum import Enum
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final, Self

from barnabas.base.ids import Uuid
from barnabas.broker.quorum.format_options import parse_initial_controllers
from barnabas.broker.quorum.formatting import format_directories
from barnabas.broker.settings import BrokerSettings
from barnabas.storage.real_files import RealFileSystem
from tests.cli.processes import command
from tests.oracles.kafka_controller import java_command, run_kafka
from tests.oracles.kafka_server import answers
from tests.ports import free_ports

CLUSTER_ID: Final = "4L6g3nShT-eMCtK--X86sw"
HOST: Final = "127.0.0.1"
TIMEOUT_S: Final = 150
#: What Kafka has to be told when it formats for both; and which transactions.
LEVELS: Final = ("--release-version", "4.0-IV3", "--feature", "group.version=0", "--feature")

_COMPLAINT: Final = re.compile(r" (WARN|WARNING|ERROR|FATAL|CRITICAL) ")
#: Peers that are not there yet or any more, a slow machine, and what Kafka says of every node of its own. A partition
#: that we deleted has no index any more while its folder still waits to be removed. A follower that hears of a new
#: leader from that first, and then from the controller, calls its partition failed in between. A node that is paused
#: while it syncs says that this took long.
_EXPECTED: Final = re.compile(
    "could not be established|Performing controller activation|Renouncing the leadership|already been closed|"
    "LogLoader partition=second-.*Could not find offset index file|Graceful shutdown|Fencing broker .* early|"
    "partitions cannot be fetched from node|Partition .* marked as failed|"
    "Expected partition .* but it was missing|EventPerformanceMonitor|"
    "waits: (no controller leads|it reads the metadata log)|"
    "Unexpected error handling request .*apiKey=(BROKER_HEARTBEAT|CONTROLLER_REGISTRATION)|"
    "heartbeat of broker .* was not taken: NOT_CONTROLLER|Exiting early; no longer|disconnected|"
    "Unable to send a heartbeat because the RPC got timed out|Unable to register broker|"
    "a sync of its log took|not part of the metadata quorum|No meta.properties file|hostname can.t be resolved|"
    # The machine of the tests is busy.
    "barnabas.request.slow"
)


class Kind(Enum):
    """Whose program runs a node."""

    OURS = "ours"
    KAFKA = "kafka"


class PeerNode:
    """One node. `start` says which program runs it; whoever stopped it may start it with the other."""

    def __init__(
        self, folder: Path, node_id: int, roles: str, ports: tuple[int, int], settings: Mapping[str, str]
    ) -> None:
        self.folder = folder
        self.node_id = node_id
        self.roles = roles
        self.port, self.controller_port = ports
        self.kind: Kind | None = None
        self.log_path = folder / "node.log"
        self.properties = folder / "node.properties"
        self._process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)
        self._write_properties(settings)

    def _write_properties(self, settings: Mapping[str, str]) -> None:
        listeners = []
        if self.is_broker:
            listeners.append(f"PLAINTEXT://{self.address}")
        if self.is_controller:
            listeners.append(f"CONTROLLER://{HOST}:{self.controller_port}")
        entries = {
            "process.roles": self.roles,
            "node.id": str(self.node_id),
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str(self.folder / "data"),
            "offsets.topic.num.partitions": "3",
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.num.partitions": "3",
            "transaction.state.log.min.isr": "1",
            "group.initial.rebalance.delay.ms": "0",
        } | dict(settings)
        self.properties.write_text("".join(f"{name}={value}\n" for name, value in entries.items()))
        self._entries = entries

    def format(self, by: Kind, initial_controllers: str | None = None, transaction_version: int = 2) -> None:
        """With the voters of the settings; or with these, which the log then names, or none if it is empty."""
        if by is Kind.KAFKA:
            first = []
            if initial_controllers:
                first = ["--initial-controllers", initial_controllers]
            elif initial_controllers is not None and self.is_controller:
                first = ["--no-initial-controllers"]
            levels = [*LEVELS, f"transaction.version={transaction_version}"]
            arguments = ["-t", CLUSTER_ID, "-c", str(self.properties), *levels, *first]
            run_kafka("kafka.tools.StorageTool", "format", *arguments)
            return
        voters = parse_initial_controllers(initial_controllers, "CONTROLLER") if initial_controllers else None
        settings = BrokerSettings.load(self._entries)
        format_directories(
            RealFileSystem(),
            settings,
            CLUSTER_ID,
            Random(self.node_id),
            voters=voters,
            transaction_version=transaction_version,
        )

    @property
    def is_broker(self) -> bool:
        return "broker" in self.roles

    @property
    def is_controller(self) -> bool:
        return "controller" in self.roles

    @property
    def address(self) -> str:
        """Where clients find a broker."""
        return f"{HOST}:{self.port}"

    @property
    def controller(self) -> str:
        return f"{HOST}:{self.controller_port}"

    @property
    def metadata_log(self) -> Path:
        return self.folder / "data" / "__cluster_metadata-0"

    @property
    def is_running(self) -> bool:
        return self._process is not None

    def start(self, kind: Kind) -> None:
        assert self._process is None, f"node {self.node_id} runs already"
        self.kind = kind
        ours = [*command("server", "start"), str(self.properties)]
        program = ours if kind is Kind.OURS else [*java_command(), "kafka.Kafka", str(self.properties)]
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                program,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self.folder,
                env=os.environ | {"PYTHONUNBUFFERED": "1"},
            )

    def wait_until_it_answers(self) -> None:
        port = self.port if self.is_broker else self.controller_port
        self.until(lambda: answers(f"{HOST}:{port}"), "it answers")

    def until(self, condition: Callable[[], object], what: str, timeout_s: float = TIMEOUT_S) -> None:
        """Wait for something that this node has to bring about."""
        deadline = time.monotonic() + timeout_s
        while not condition():
            self.check_alive()
            if time.monotonic() > deadline:
                raise AssertionError(f"node {self.node_id}: it did not happen that {what}:\n{self.log_tail()}")
            time.sleep(0.05)

    def check_alive(self) -> None:
        assert self._process is not None, f"node {self.node_id} was not started"
        if self._process.poll() is not None:
            raise AssertionError(f"node {self.node_id} ended, code {self._process.returncode}:\n{self.log_tail()}")

    def pause(self) -> None:
        self._signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self._signal(signal.SIGCONT)

    def _signal(self, which: signal.Signals) -> None:
        assert self._process is not None, f"node {self.node_id} was not started"
        self._process.send_signal(which)

    def stop(self) -> float:
        """Stop cleanly, which must take less than the time limit; returns the seconds that it took."""
        began = time.monotonic()
        code = self._end(signal.SIGTERM)
        # Kafka's JVM ends by the signal.
        assert code in (None, 0, 143), f"node {self.node_id} ended with code {code}:\n{self.log_tail()}"
        return time.monotonic() - began

    def kill(self) -> None:
        self._end(signal.SIGKILL)

    def _end(self, how: signal.Signals) -> int | None:
        process, self._process = self._process, None
        if process is None:
            return None
        process.send_signal(how)
        process.send_signal(signal.SIGCONT)
        try:
            return process.wait(TIMEOUT_S / 2)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise AssertionError(f"node {self.node_id} did not stop:\n{self.log_tail()}") from None

    def log_tail(self, size: int = 6000) -> str:
        return self.log_path.read_text(errors="replace")[-size:] if self.log_path.exists() else ""

    def complaints(self) -> list[str]:
        """What it said of others that is not to be expected; of Kafka only where there is a backend for its logger."""
        lines = self.log_path.read_text(errors="replace").splitlines() if self.log_path.exists() else []
        return [
            f"node {self.node_id}: {line}"
            for line in lines
            if (_COMPLAINT.search(line) or "Traceback" in line) and not _EXPECTED.search(line)
        ]


class PeerCluster:
    """Nodes with one set of voters. `roles` says of each node id what it is: `broker`, `controller` or both."""

    def __init__(
        self,
        folder: Path,
        roles: Mapping[int, str],
        settings: Mapping[str, str] | None = None,
        *,
        voters_in_log: Mapping[int, Kind] | None = None,
        first_voters: Collection[int] | None = None,
        transaction_version: int = 2,
    ) -> None:
        """`voters_in_log` says which program formats each node of a quorum with kraft.version 1; `first_voters` are
        all controllers, unless they are named."""
        drawn = free_ports(2 * len(roles))
        ports = dict(zip(roles, zip(drawn[::2], drawn[1::2], strict=True), strict=True))
        where = {each: f"{HOST}:{ports[each][1]}" for each, role in roles.items() if "controller" in role}
        voters = ",".join(f"{each}@{address}" for each, address in where.items())
        named = {"controller.quorum.voters": voters}
        if voters_in_log is not None:
            named = {"controller.quorum.bootstrap.servers": ",".join(where.values())}
        self.nodes = {
            each: PeerNode(folder / f"node-{each}", each, role, ports[each], named | dict(settings or {}))
            for each, role in roles.items()
        }
        first = where.keys() if first_voters is None else first_voters
        initial = ",".join(f"{each}@{where[each]}:{Uuid.random(Random(each))}" for each in first)
        for each, node in self.nodes.items():
            if voters_in_log is None:
                node.format(Kind.OURS, transaction_version=transaction_version)
            else:
                node.format(voters_in_log[each], initial if each in first else "", transaction_version)

    def __getitem__(self, node_id: int) -> PeerNode:
        return self.nodes[node_id]

    @property
    def bootstrap(self) -> str:
        """All brokers that run."""
        return ",".join(each.address for each in self.nodes.values() if each.is_broker and each.is_running)

    def start(self, kinds: Mapping[int, Kind]) -> None:
        """Start these together, and wait until all of them answer."""
        for node_id, kind in kinds.items():
            self.nodes[node_id].start(kind)
        for node_id in kinds:
            self.nodes[node_id].wait_until_it_answers()

    def stop(self, node_ids: Iterable[int] | None = None) -> None:
        """Brokers first, so that somebody is left who lets them go."""
        chosen = [self.nodes[each] for each in (self.nodes if node_ids is None else node_ids)]
        for node in sorted(chosen, key=lambda each: each.is_controller):
            node.stop()

    def complaints(self) -> list[str]:
        return [line for each in self.nodes.values() for line in each.complaints()]

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self.stop()
        for node in self.nodes.values():
            node.kill()
