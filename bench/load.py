"""The load generator in C (`load.c`): so what a client costs is not what is measured. Compiled when first used."""

from __future__ import annotations

import contextlib
import json
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

_SOURCE = Path(__file__).with_name("load.c")
_BUILT = Path(__file__).parents[1] / "build" / "bench" / "load"
_TIMEOUT_S = 300


class Exchange(NamedTuple):
    """What was asked and answered: how often, in which time, and what it cost who asked."""

    requests: int
    seconds: float
    load_cpu_s: float
    p50_s: float
    p99_s: float

    @property
    def rate(self) -> float:
        return self.requests / self.seconds


class FanOut(NamedTuple):
    """Until the last reader had all, and until the last batch was acknowledged."""

    seconds: float
    produced_s: float
    fetches: int
    load_cpu_s: float


class Feed(NamedTuple):
    """A partition that is written and read: its batches, and where readers begin and end."""

    produce: bytes
    first_offset: int
    last_offset: int


class Template(NamedTuple):
    """A request in which an offset for each partition is filled in, at these places."""

    frame: bytes
    places: tuple[int, ...]


def exchange(bootstrap: str, frames: Sequence[bytes], seconds: float) -> Exchange:
    """Each of the frames again and again on a connection of its own, with one request under way on each."""
    with _file(struct.pack(">i", len(frames)) + b"".join(map(_sized, frames))) as path:
        return Exchange(**_run("exchange", *_address(bootstrap), str(seconds), path))


def fan_out(
    bootstrap: str, feeds: Sequence[Feed], batches: int, fetch: Template, commits: Sequence[Template]
) -> FanOut:
    """One producer writes `batches` in turns to the partitions; a reader for each of `commits` reads them all."""
    plan = struct.pack(">iii", len(commits), len(feeds), batches)
    for feed, fetch_at, commit_at in zip(feeds, fetch.places, commits[0].places, strict=True):
        plan += struct.pack(">iiii", feed.first_offset, feed.last_offset, fetch_at, commit_at) + _sized(feed.produce)
    plan += b"".join(_sized(fetch.frame) + _sized(each.frame) for each in commits)
    with _file(plan) as path:
        return FanOut(**_run("fan-out", *_address(bootstrap), path))


def ceiling(frames: Sequence[bytes], answer_bytes: int, seconds: float) -> Exchange:
    """The same from a server that answers at once: no broker can be seen to be faster."""
    server = subprocess.Popen([_program(), "serve", str(answer_bytes)], stdout=subprocess.PIPE, text=True)
    try:
        assert server.stdout is not None
        return exchange(f"127.0.0.1:{server.stdout.readline().strip()}", frames, seconds)
    finally:
        server.kill()
        server.communicate()


@cache
def _program() -> str:
    if not _BUILT.exists() or _BUILT.stat().st_mtime < _SOURCE.stat().st_mtime:
        compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
        if compiler is None:
            raise RuntimeError("the load generator needs a C compiler, as the kernel does")
        _BUILT.parent.mkdir(parents=True, exist_ok=True)
        subprocess.run([compiler, "-O2", "-o", str(_BUILT), str(_SOURCE)], check=True)
    return str(_BUILT)


def _run(*arguments: str) -> dict[str, Any]:
    done = subprocess.run([_program(), *arguments], capture_output=True, text=True, check=False, timeout=_TIMEOUT_S)
    if done.returncode:
        raise RuntimeError(f"load {arguments[0]}: {done.stderr.strip()}")
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@contextlib.contextmanager
def _file(content: bytes) -> Iterator[str]:
    with tempfile.NamedTemporaryFile(prefix="barnabas-load-") as file:
        file.write(content)
        file.flush()
        yield file.name


def _sized(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


def _address(bootstrap: str) -> tuple[str, str]:
    host, _, port = bootstrap.rpartition(":")
    return socket.gethostbyname(host), port
