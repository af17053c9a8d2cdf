"""Apache Kafka itself as a broker of one node, so that what a test claims of ours can be checked on the original.

It runs from the jars that `make oracles` fetched: in a process of its own, on free loopback ports, in a given folder.
"""

from __future__ import annotations

import signal
import socket
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

from tests.oracles import CURRENT, end_process, java, missing
from tests.ports import free_ports

_CLUSTER_ID = "4L6g3nShT-eMCtK--X86sw"
_START_TIMEOUT_S = 60

#: The features that our node finalises: metadata.version 25, with the transactions that it brings, and no new consumer
#: groups.
_LEVELS = ("--release-version", "4.0-IV3", "--feature", "group.version=0")
#: The levels that our own formatting has, and the same without eligible leader replicas.
FORMAT = (*_LEVELS, "--feature", "eligible.leader.replicas.version=1")
FORMAT_WITHOUT_ELR = (*_LEVELS, "--feature", "eligible.leader.replicas.version=0")

_JVM = ("-Xmx512m", "-Dorg.slf4j.simpleLogger.defaultLogLevel=info")


class KafkaServer:
    """A running Apache Kafka; `bootstrap` is its address, `log_path` what it has to say.

    >>> with KafkaServer(tmp_path, {"num.partitions": "4"}) as server:
    ...     connect(server.bootstrap)
    """

    def __init__(
        self,
        folder: Path,
        overrides: Mapping[str, str] | None = None,
        format_options: tuple[str, ...] = FORMAT,
        release: str = CURRENT,
        jvm: tuple[str, ...] = (),
    ) -> None:
        reason = missing(release)
        if reason is not None:
            raise RuntimeError(reason)
        self._release = release
        self._jvm = (*_JVM, *jvm)
        self._folder = folder
        self._overrides = dict(overrides or {})
        self._format_options = format_options
        self._process: subprocess.Popen[bytes] | None = None
        self._port, self._controller_port = free_ports(2)
        self.log_path = folder / "kafka.log"

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self._port}"

    @property
    def controller(self) -> str:
        return f"127.0.0.1:{self._controller_port}"

    @property
    def pid(self) -> int:
        assert self._process is not None, "the server was not started"
        return self._process.pid

    def __enter__(self) -> KafkaServer:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def start(self) -> None:
        """Format the folder if it is new, start, and wait until requests are answered."""
        properties = self.format()
        with self.log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                cwd=self._folder,
            )
        try:
            self._wait_until_it_answers()
        except BaseException:
            self.stop()
            raise

    def _java(self) -> list[str]:
        """What runs it; whoever measures it wants all of its compiler."""
        return java(*self._jvm, release=self._release, logs=True)

    def format(self) -> Path:
        """Make the folder that of a new cluster, unless it is one; returns its server.properties."""
        properties = self.write_properties()
        if not (self._folder / "data" / "meta.properties").exists():
            self._run(
                "kafka.tools.StorageTool", "format", "-t", _CLUSTER_ID, "-c", str(properties), *self._format_options
            )
        return properties

    def write_properties(self) -> Path:
        """Its server.properties, with which somebody else may format the folder before it starts."""
        self._folder.mkdir(parents=True, exist_ok=True)
        properties = self._folder / "server.properties"
        properties.write_text("".join(f"{name}={value}\n" for name, value in self._settings().items()))
        return properties

    def stop(self) -> None:
        """Stop cleanly; a server that does not stop in time is killed."""
        self._end(signal.SIGTERM)

    def kill(self) -> None:
        """Stop as a crash would; `start` starts it again in the same folder, on the same port."""
        self._end(signal.SIGKILL)

    def log_tail(self, size: int = 4000) -> str:
        return self.log_path.read_text(errors="replace")[-size:] if self.log_path.exists() else ""

    def _end(self, how: signal.Signals) -> None:
        process, self._process = self._process, None
        end_process(process, how)

    def _settings(self) -> dict[str, str]:
        return {
            "process.roles": "broker,controller",
            "node.id": "1",
            "controller.listener.names": "CONTROLLER",
            "listeners": f"PLAINTEXT://127.0.0.1:{self._port},CONTROLLER://127.0.0.1:{self._controller_port}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{self._port}",
            "controller.quorum.voters": f"{self._overrides.get('node.id', '1')}@127.0.0.1:{self._controller_port}",
            "log.dirs": str(self._folder / "data"),
            "offsets.topic.replication.factor": "1",
            "transaction.state.log.replication.factor": "1",
            "transaction.state.log.min.isr": "1",
        } | self._overrides

    def _run(self, *arguments: str) -> None:
        done = subprocess.run(
            [*java(*self._jvm, release=self._release, logs=True), *arguments],
            capture_output=True,
            text=True,
            check=False,
            timeout=120,
        )
        if done.returncode != 0:
            raise RuntimeError(f"Kafka's {arguments[0]} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")

    def _wait_until_it_answers(self) -> None:
        deadline = time.monotonic() + _START_TIMEOUT_S
        assert self._process is not None
        while not answers(self.bootstrap):
            if self._process.poll() is not None:
                raise RuntimeError(f"Kafka ended with code {self._process.returncode}:\n{self.log_tail()}")
            if time.monotonic() > deadline:
                raise RuntimeError(f"Kafka did not answer within {_START_TIMEOUT_S} s:\n{self.log_tail()}")
            time.sleep(0.05)


def answers(address: str) -> bool:
    """Whether a broker at this address answers an ApiVersions request, version 0."""
    host, _, port = address.rpartition(":")
    request = struct.pack(">hhih", 18, 0, 1, -1)
    try:
        with socket.create_connection((host, int(port)), timeout=2) as connection:
            connection.sendall(struct.pack(">i", len(request)) + request)
            return len(connection.recv(4)) == 4
    except OSError:
        return False
