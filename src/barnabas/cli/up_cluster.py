"""`barnabas up --nodes 3`: a cluster on this machine, each node a process of its own.

Everything lies in one folder: `node-1.properties`, `node-1.log` and the data in `node-1` for each node. Ports are
chosen once and stand in the files, so that the cluster can be started again from its folder.
"""

from __future__ import annotations

import contextlib
import os
import selectors
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.base.properties import format_properties, load_properties_file
from barnabas.base.system_runtime import new_randomness
from barnabas.broker.quorum.formatting import format_directories
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.single_node import replication_for
from barnabas.cli.output import say
from barnabas.net.sockets import reserved_ports
from barnabas.storage.meta_properties import read_meta_properties
from barnabas.storage.real_files import RealFileSystem

READY_TIMEOUT_S: Final = 60.0
_STOP_TIMEOUT_S: Final = 30.0
_LOOK_S: Final = 0.1


@dataclass
class _Node:
    """One process. `bootstrap` is known once it has said that it is ready."""

    node_id: int
    roles: str
    file: Path
    log: Path
    process: subprocess.Popen[bytes] | None = None
    bootstrap: str | None = None
    is_ready: bool = False
    told: bytes = field(default=b"")

    @property
    def is_running(self) -> bool:
        return self.process is not None and self.process.poll() is None


class LocalCluster:
    """The nodes of a folder. `roles` says what each is, by its id."""

    def __init__(self, directory: Path, host: str, port: int, roles: Mapping[int, str]) -> None:
        self.directory = directory
        self._host = host
        self._port = port
        self.nodes = [
            _Node(each, role, directory / f"node-{each}.properties", directory / f"node-{each}.log")
            for each, role in roles.items()
        ]
        self._ports = contextlib.ExitStack()

    # Files

    def prepare(self, overrides: Mapping[str, str]) -> None:
        """Write the nodes' files where there are none, and format their directories."""
        self.directory.mkdir(parents=True, exist_ok=True)
        found = [each for each in self.nodes if each.file.exists()]
        extra = sorted(set(self.directory.glob("node-*.properties")) - {each.file for each in self.nodes})
        if found and (len(found) < len(self.nodes) or extra):
            have = len(found) + len(extra)
            raise BarnabasError(
                f"{self.directory} holds a cluster of {have} nodes; start it with as many, or use another --data-dir"
            )
        if not found:
            self._write_files()
        settings = [BrokerSettings.load(load_properties_file(str(each.file)), overrides) for each in self.nodes]
        self._check_roles(settings)
        self._format(settings)

    def _write_files(self) -> None:
        free = iter(self._ports.enter_context(reserved_ports(self._host, 2 * len(self.nodes))))
        places = {each.node_id: f"{self._host}:{next(free)}" for each in self.nodes if "controller" in each.roles}
        voters = ",".join(f"{node_id}@{place}" for node_id, place in places.items())
        brokers = 0
        for each in self.nodes:
            listeners = []
            if "broker" in each.roles:
                listeners.append(f"PLAINTEXT://{self._host}:{self._port + brokers if self._port else next(free)}")
                brokers += 1
            if each.node_id in places:
                listeners.append(f"CONTROLLER://{places[each.node_id]}")
            each.file.write_text(format_properties(self._properties(each, voters, listeners)), encoding="utf-8")

    def _properties(self, node: _Node, voters: str, listeners: Sequence[str]) -> dict[str, str]:
        return {
            "node.id": str(node.node_id),
            "process.roles": node.roles,
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": ",".join(listeners),
            "log.dirs": str((self.directory / f"node-{node.node_id}").absolute()),
            **replication_for(sum("broker" in each.roles for each in self.nodes)),
            "group.initial.rebalance.delay.ms": "0",
        }

    def _check_roles(self, settings: Sequence[BrokerSettings]) -> None:
        for node, each in zip(self.nodes, settings, strict=True):
            if sorted(each.process_roles) != sorted(node.roles.split(",")):
                raise BarnabasError(
                    f"{node.file} is of a node with process.roles={','.join(each.process_roles)}; start the cluster "
                    "with the numbers that it was made with, or use another --data-dir"
                )

    def _format(self, settings: Sequence[BrokerSettings]) -> None:
        files, randomness = RealFileSystem(), new_randomness()
        ids = [found.cluster_id for each in settings if (found := read_meta_properties(files, each.metadata_dir))]
        cluster_id = ids[0] if ids else str(Uuid.random(randomness))
        for each in settings:
            now_ms = time.time_ns() // 1_000_000
            format_directories(files, each, cluster_id, randomness, ignore_formatted=True, now_ms=now_ms)

    # Processes

    def start(self, arguments: Sequence[str], metrics: str | None = None) -> None:
        """Start all nodes, and wait until each has said that it is ready. The first has its metrics at `metrics`, the
        others at the ports after it."""
        for number, node in enumerate(self.nodes):
            command = ["server", "start", str(node.file), "--log-file", str(node.log), *arguments]
            if metrics is not None:
                host, _, port = metrics.rpartition(":")
                own_port = int(port) + number if int(port) else 0
                command += ["--override", f"metrics.listener={host}:{own_port}"]
            node.process = subprocess.Popen(
                [sys.executable, "-m", "barnabas", *command],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                # Ctrl-C is for us: we tell the nodes.
                start_new_session=True,
            )
        deadline_s = time.monotonic() + READY_TIMEOUT_S
        with selectors.DefaultSelector() as outputs:
            self._listen(outputs)
            while not all(each.is_ready for each in self.nodes):
                if time.monotonic() > deadline_s:
                    late = ", ".join(str(each.node_id) for each in self.nodes if not each.is_ready)
                    raise BarnabasError(
                        f"node {late} was not ready after {READY_TIMEOUT_S:.0f} s; see {self.directory}"
                    )
                for key, _ in outputs.select(_LOOK_S):
                    self._read(outputs, key)

    def _read(self, outputs: selectors.BaseSelector, key: selectors.SelectorKey) -> None:
        node: _Node = key.data
        piece = os.read(key.fd, 65536)
        if not piece:
            outputs.unregister(key.fileobj)
            if not node.is_ready:
                told = node.told.decode(errors="replace").strip()
                reason = told.rpartition("barnabas: ")[2] or "it said nothing"
                raise BarnabasError(f"node {node.node_id} did not start (see {node.log}): {reason}")
            return
        node.told += piece
        lines = node.told.decode(errors="replace").splitlines()
        for line in lines:
            if line.startswith("ready: ") and not node.is_ready:
                node.is_ready = True
                node.bootstrap = line.rpartition("bootstrap ")[2] if "bootstrap " in line else None
                what = node.roles.replace(",", " and ")
                where = f" at {node.bootstrap}" if node.bootstrap else ""
                # It comes with the line that says that the node is ready.
                metrics = next((f", {each}" for each in lines if each.startswith("metrics: ")), "")
                say(f"node {node.node_id}: {what}{where}{metrics}, process {_pid(node)}, log in {node.log}", err=True)

    @property
    def replication(self) -> str:
        """What a topic gets, in words, as the files of the nodes have it."""
        file = next(each.file for each in self.nodes if "broker" in each.roles)
        settings = BrokerSettings.load(load_properties_file(str(file)), {})
        copies = settings.default_replication_factor
        needed = min(settings.min_insync_replicas, copies)
        replicas = "replica" if copies == 1 else "replicas"
        return f"topics have {copies} {replicas} unless told otherwise, and acks=all waits for {needed} or more"

    @property
    def bootstrap(self) -> str:
        return ",".join(each.bootstrap for each in self.nodes if each.bootstrap)

    def watch(self) -> None:
        """Until a signal ends it, or all nodes have ended; tells of each that does."""
        with selectors.DefaultSelector() as outputs:
            self._listen(outputs)
            while outputs.get_map():
                for key, _ in outputs.select():
                    # What it says stands in its log, too; but a pipe that nobody empties would hold it up.
                    if not os.read(key.fd, 65536):
                        outputs.unregister(key.fileobj)
                        _tell_end(key.data)
        raise BarnabasError("all nodes have ended")

    def _listen(self, outputs: selectors.BaseSelector) -> None:
        for node in self.nodes:
            if node.process is not None and node.process.stdout is not None:
                outputs.register(node.process.stdout, selectors.EVENT_READ, node)

    def stop(self) -> None:
        """Tell all nodes to stop, and wait for them; one that does not is killed."""
        running = [each.process for each in self.nodes if each.process is not None and each.is_running]
        for process in running:
            process.send_signal(signal.SIGTERM)
        deadline_s = time.monotonic() + _STOP_TIMEOUT_S
        for process in running:
            try:
                process.wait(max(0.1, deadline_s - time.monotonic()))
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._ports.close()


def run_cluster(cluster: LocalCluster, overrides: Mapping[str, str], *, verbose: bool) -> None:
    """Run a cluster until Ctrl-C or SIGTERM."""
    cluster.prepare(overrides)
    metrics = overrides.get("metrics.listener")
    given = [
        part
        for name, value in overrides.items()
        if name != "metrics.listener"
        for part in ("--override", f"{name}={value}")
    ]

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    signal.signal(signal.SIGTERM, stop)
    try:
        cluster.start([*given, *([] if verbose else ["-q"])], metrics)
        say(f"ready: bootstrap {cluster.bootstrap}")
        say(f"data and logs: in {cluster.directory.absolute()}; Ctrl-C stops all nodes", err=True)
        say(f"{cluster.replication}; `barnabas why TOPIC` tells how a topic is", err=True)
        cluster.watch()
    except KeyboardInterrupt:
        say("stopping", err=True)
    finally:
        cluster.stop()
    say("stopped", err=True)


def _tell_end(node: _Node) -> None:
    """It has closed its output, so it has ended, or is about to."""
    code = None if node.process is None else node.process.wait()
    say(f"node {node.node_id} has ended with code {code}; see {node.log}", err=True)


def _pid(node: _Node) -> int:
    return -1 if node.process is None else node.process.pid
