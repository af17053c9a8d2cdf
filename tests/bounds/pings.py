"""How long others wait while somebody sends the worst that an API takes: `python -m tests.bounds.pings`.

A node runs in a process of its own. For each API one connection sends a request with very many elements, another asks
something small again and again; told are the longest wait for one of those small answers, the processor time of
the node, and the most memory that it held. `--against SRC` measures another checkout's sources in the same run, so
that the two can be compared.
"""

from __future__ import annotations

import argparse
import os
import select
import signal
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from barnabas.base.ids import Uuid
from barnabas.broker.handlers import broker_handlers
from barnabas.cli.output import say
from barnabas.wire import Request, api, decode_response, encode_request, frame_parts
from barnabas.wire.message import Listeners
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from tests.bounds.wide_requests import Known, array_paths, wide_request

_PATIENCE_S = 120.0
_SOURCES = str(Path(__file__).parents[2] / "src")


class Waited(NamedTuple):
    """What one request brought about."""

    longest_ms: float
    processor_s: float
    most_mb: float


class Peer:
    """A connection that asks and waits."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port), timeout=_PATIENCE_S)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)

    def ask(self, request: Request, version: int) -> Any:
        self.socket.sendall(frame_of(request, version))
        frame = self.receive()
        return decode_response(api(request.API_KEY).response, version, frame)[1]

    def receive(self) -> bytes:
        size = int.from_bytes(self._exactly(4), "big")
        return self._exactly(size)

    def _exactly(self, size: int) -> bytes:
        data = bytearray()
        while len(data) < size:
            piece = self.socket.recv(min(size - len(data), 1 << 20))
            if not piece:
                raise ConnectionError("the node hung up")
            data += piece
        return bytes(data)

    def close(self) -> None:
        self.socket.close()


def frame_of(request: Request, version: int) -> bytes:
    return b"".join(bytes(part) for part in frame_parts(encode_request(request, version, 1, "pings")))


class Pinger(threading.Thread):
    """Asks a heartbeat every few milliseconds, and knows the longest wait."""

    def __init__(self, port: int) -> None:
        super().__init__(daemon=True)
        self.peer = Peer(port)
        self.longest_s = 0.0
        self.is_over = threading.Event()

    def run(self) -> None:
        ping = HeartbeatRequest(group_id="nobody", generation_id=1, member_id="m")
        with closing(self.peer):
            while not self.is_over.wait(0.002):
                begun_s = time.perf_counter()
                self.peer.ask(ping, 4)
                self.longest_s = max(self.longest_s, time.perf_counter() - begun_s)


class Node:
    """A node in a process."""

    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process = process
        self.port = port
        peer = Peer(port)
        topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
        peer.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7)
        peer.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=["t"]), 4)
        time.sleep(1)
        metadata = peer.ask(MetadataRequest(topics=[MetadataRequestTopic(name="t")]), 12)
        self.known = Known("t", Uuid(metadata.topics[0].topic_id))
        peer.close()

    def processor_s(self) -> float:
        fields = Path(f"/proc/{self.process.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    def most_mb(self) -> float:
        status = Path(f"/proc/{self.process.pid}/status").read_text()
        return next(int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM"))


@contextmanager
def running_node(sources: str) -> Iterator[Node]:
    with tempfile.TemporaryDirectory() as folder:
        process = subprocess.Popen(
            [sys.executable, "-m", "barnabas", "up", "--listen", "127.0.0.1:0", "--data-dir", f"{folder}/data"],
            env={**os.environ, "PYTHONPATH": sources},
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        try:
            assert process.stdout is not None
            ready = next(line for line in process.stdout if "ready" in line)
            yield Node(process, int(ready.rpartition(":")[2]))
        finally:
            process.send_signal(signal.SIGKILL)
            process.wait()


def wait_beside(node: Node, frame: bytes) -> Waited:
    """Send the request, which is made already, and ping until it is answered, refused, or patience ends."""
    pinger = Pinger(node.port)
    pinger.start()
    time.sleep(0.05)
    before_s = node.processor_s()
    attacker = Peer(node.port)
    try:
        attacker.socket.sendall(frame)
        select.select([attacker.socket], [], [], _PATIENCE_S)
    except OSError:
        pass
    pinger.is_over.set()
    pinger.join(_PATIENCE_S)
    attacker.close()
    return Waited(1000 * pinger.longest_s, node.processor_s() - before_s, node.most_mb())


def worst_requests(known: Known, count: int) -> Iterator[tuple[str, Callable[[], Request], int]]:
    """For each API the request with the most elements in its outermost array; and one small one with a large answer."""
    for module in broker_handlers():
        served = api(module.API_KEY)
        version = served.served.high
        if served.listeners & Listeners.BROKER:
            for path in array_paths(served.request, version):
                if len(path) == 1:
                    # Made when it is its turn: all of them together are many.
                    make = partial(wide_request, served.request, version, path, count, "different", known)
                    yield f"{served.key.camel_name} {path[0]}", make, version
    broker = DescribeConfigsResource(resource_type=4, resource_name="1", configuration_keys=None)
    resources = [broker] * 9000
    often = DescribeConfigsRequest(resources=resources, include_synonyms=True, include_documentation=True)
    yield "one broker 9,000 times", lambda: often, 4


def measure(sources: str, count: int, only: str) -> dict[str, Waited]:
    waits = {}
    with running_node(sources) as first:
        names = [name for name, _, _ in worst_requests(first.known, 1) if only in name]
    for name in names:
        # A node for each, so that its memory is that of this request.
        with running_node(sources) as node:
            make, version = next(
                (make, version) for each, make, version in worst_requests(node.known, count) if each == name
            )
            waits[name] = wait_beside(node, frame_of(make(), version))
            say(f"{name}: {waits[name].longest_ms:.0f} ms", err=True)
    return waits


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--elements", type=int, default=300_000, help="in the array (default: 300000)")
    parser.add_argument("--only", default="", help="only APIs whose name contains this")
    parser.add_argument("--against", metavar="SRC", help="the src folder of another checkout, to compare with")
    given = parser.parse_args()
    here = measure(_SOURCES, given.elements, given.only)
    other = measure(given.against, given.elements, given.only) if given.against else {}
    say(f"{'':44}{'longest wait, ms':>24}{'processor, s':>20}{'most memory, MB':>22}")
    for name, waited in here.items():
        cells = []
        for place in range(3):
            figure = f"{waited[place]:.1f}"
            cells.append(f"{other[name][place]:.1f} -> {figure}" if name in other else figure)
        say(f"{name:44}{cells[0]:>24}{cells[1]:>20}{cells[2]:>22}")


if __name__ == "__main__":
    main()
