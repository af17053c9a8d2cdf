"""Commits of a replicated store on three processes, beside the disk's own syncs and beside pysyncobj."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import NamedTuple

from bench.measure import Result

MEMBERS = 3
CLIENTS = (1, 64)
SECONDS = 3.0
QUICK_SECONDS = 1.0
PATIENCE_S = 60.0
SYNC_BYTES = 200
ROUNDS = 3
#: How pysyncobj may send: each command at once, or what has come in so many milliseconds. It is judged by its best.
BATCHES_MS = (0.0, 1.0, 5.0)


class Speed(NamedTuple):
    per_s: float
    p99_ms: float

    def __str__(self) -> str:
        return f"{self.per_s:,.0f} commits/s, p99 {self.p99_ms:.1f} ms"


def run(seconds: float = SECONDS) -> Iterator[Result]:
    with tempfile.TemporaryDirectory() as folder:
        syncs_per_s = sync_rate(Path(folder), seconds)
    synced = speeds("ours", seconds, "--sync")
    for clients in CLIENTS:
        speed = synced[clients]
        yield Result(
            f"raft: synced commits, {_named(clients)} / syncs of the disk",
            speed.per_s / syncs_per_s,
            None,
            f"{speed}; the disk: {syncs_per_s:,.0f} syncs/s",
        )
    if not _has_peer():
        return
    ours: list[dict[int, Speed]] = []
    peers: list[dict[int, Speed]] = []
    for _ in range(ROUNDS):
        # By turns, and each is judged by its best: what else the machine does falls upon both.
        ours.append(speeds("ours", seconds))
        peers += [speeds("pysyncobj", seconds, "--batch-ms", str(each)) for each in BATCHES_MS]
    for clients in CLIENTS:
        own, best = (max((each[clients] for each in found), key=lambda speed: speed.per_s) for found in (ours, peers))
        detail = f"{own}; pysyncobj: {best}"
        yield Result(f"raft: commits without syncs, {_named(clients)} / pysyncobj", own.per_s / best.per_s, 1.5, detail)


def run_quickly() -> Iterator[Result]:
    return run(QUICK_SECONDS)


def _named(clients: int) -> str:
    return "1 client" if clients == 1 else f"{clients} clients"


def _has_peer() -> bool:
    return find_spec("pysyncobj") is not None


def sync_rate(folder: Path, seconds: float) -> float:
    """How often a second a small write can be made safe, as the log does it, by one who does nothing else."""
    sync = getattr(os, "fdatasync", os.fsync)
    descriptor = os.open(folder / "synced", os.O_CREAT | os.O_WRONLY)
    count, began_s = 0, time.perf_counter()
    try:
        while time.perf_counter() - began_s < seconds:
            os.write(descriptor, bytes(SYNC_BYTES))
            sync(descriptor)
            count += 1
    finally:
        os.close(descriptor)
    return count / (time.perf_counter() - began_s)


def speeds(who: str, seconds: float, *options: str) -> dict[int, Speed]:
    """By the number of clients. Three processes are started, and ended."""
    ports = ",".join(map(str, _free_ports(MEMBERS)))
    common = ["--clients", ",".join(map(str, CLIENTS)), "--seconds", str(seconds), *options]
    with tempfile.TemporaryDirectory() as folder, contextlib.ExitStack() as running:
        members = []
        for node_id in range(1, MEMBERS + 1):
            command = [sys.executable, "-m", "bench.raft_member", who, str(node_id), ports, f"{folder}/{node_id}"]
            with open(f"{folder}/{node_id}.out", "wb") as output:
                members.append(subprocess.Popen([*command, *common], stdout=output))
            running.callback(_end, members[-1])
        return _told(Path(folder), members)


def _end(member: subprocess.Popen[bytes]) -> None:
    member.kill()
    member.wait()


def _told(folder: Path, members: Sequence[subprocess.Popen[bytes]]) -> dict[int, Speed]:
    """What the one of them that leads has printed, once that is all."""
    end_s = time.monotonic() + PATIENCE_S
    while time.monotonic() < end_s:
        lines = [line for path in folder.glob("*.out") for line in path.read_text().splitlines()]
        found = {each["clients"]: Speed(each["per_s"], each["p99_ms"]) for each in map(json.loads, lines)}
        if len(found) == len(CLIENTS):
            return found
        if any(each.poll() is not None for each in members):
            raise RuntimeError("a member of the quorum has ended; what it said is above")
        time.sleep(0.1)
    raise TimeoutError(f"nobody has measured anything in {PATIENCE_S:.0f} s")


def _free_ports(count: int) -> list[int]:
    with contextlib.ExitStack() as held:
        probes = [held.enter_context(socket.socket()) for _ in range(count)]
        for each in probes:
            each.bind(("127.0.0.1", 0))
        return [each.getsockname()[1] for each in probes]
