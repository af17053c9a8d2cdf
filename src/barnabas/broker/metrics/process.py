"""The process and its event loop: memory, files, processor time, and how well the loop keeps up.

A timer that should fire every 50 ms measures by how much it is late: that is how long something kept the loop, but for
what passed before it was due. Turns with requests are measured as they are. The time of the loop's thread that was
spent working, and not waiting for sockets, is its busy share.
"""

from __future__ import annotations

import asyncio
import gc
import os
import sys
import time
from collections.abc import Iterator
from typing import Final

from barnabas.base.metrics.exposition import Exposition
from barnabas.base.metrics.registry import MetricsRegistry
from barnabas.base.metrics.samples import MAX, RATIO_OF_NS
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.net import RequestMeter

#: A shorter one would cost an idle node more than all the rest that it does: at 20 ms, half a percent of a core.
_TICK_S: Final = 0.05
_POOL: Final = "kafka.server:type=KafkaRequestHandlerPool,name="

HANDLER_IDLE: Final = of_mbean(
    f"{_POOL}RequestHandlerAvgIdlePercent", "gauge", "The share of its time that the event loop was idle, 0 to 1."
)
NETWORK_IDLE: Final = of_mbean(
    "kafka.network:type=SocketServer,name=NetworkProcessorAvgIdlePercent",
    "gauge",
    "The same: requests are received and handled by one loop.",
)
IDLE: Final = own(
    "loop_idle_ratio",
    "gauge",
    "The share of the last minute or so in which the loop's thread used no processor, 0 to 1. While it waits for a "
    "disk, it uses none: that the longest stall tells of.",
)
STALL: Final = own(
    "loop_longest_stall_seconds",
    "gauge",
    "How long something kept the event loop, at most, lately. Exact for requests; of all else up to 50 ms are missed.",
)
TURN: Final = own("loop_longest_turn_seconds", "gauge", "The longest turn with requests, since the start.")
REQUESTS_BUSY: Final = own("loop_requests_seconds_total", "counter", "Time in which requests were handled.")
CPU: Final = own("loop_cpu_seconds_total", "counter", "Processor time of the thread with the event loop.")
LIFETIME: Final = own(
    "loop_seconds_total", "counter", "For how long the loop was there when its processor time was read."
)
STARTED: Final = of_mbean("kafka.server:type=app-info#start-time-ms", "gauge", "When the node started.")
#: As Prometheus's own libraries call them.
_PROCESS: Final = (
    own("process_cpu_seconds_total", "counter", "Processor time of the process."),
    own("process_resident_memory_bytes", "gauge", "Memory of the process."),
    own("process_open_fds", "gauge", "Open files."),
    own("process_start_time_seconds", "gauge", "When it started."),
    own("process_gc_collections_total", "counter", "Garbage collections of all generations."),
    own("process_threads", "gauge", "Threads."),
)
DISK_READ: Final = of_mbean(
    "kafka.server:type=KafkaServer,name=linux-disk-read-bytes", "counter", "Bytes that the process had read from disks."
)
DISK_WRITTEN: Final = of_mbean(
    "kafka.server:type=KafkaServer,name=linux-disk-write-bytes", "counter", "Bytes that it had written to them."
)
FAMILIES: Final = (
    *(HANDLER_IDLE, NETWORK_IDLE, IDLE, STALL, TURN, REQUESTS_BUSY, CPU, LIFETIME, STARTED),
    *(*_PROCESS, DISK_READ, DISK_WRITTEN),
)


class LoopWatch:
    """How well an event loop keeps up, and its `meter` with it. It is told to reporters, too."""

    def __init__(self, registry: MetricsRegistry, meter: RequestMeter) -> None:
        self._loop = asyncio.get_running_loop()
        self._meter = meter
        self._longest_turn_ns = 0
        self._registry = registry
        self._busy = registry.sampled("loop-metrics", (RATIO_OF_NS, "busy-ratio", "The share of time at work."))
        self._stall = registry.sampled("loop-metrics", (MAX, "longest-stall-ms", "How long something kept the loop."))
        self.started_ms = time.time_ns() // 1_000_000
        self._began_ns = time.monotonic_ns()
        self._cpu_ns = time.thread_time_ns()
        self._timer: asyncio.TimerHandle | None = None
        self._wait()

    def _wait(self) -> None:
        self._due_s = self._loop.time() + _TICK_S
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        now_ms = self._registry.now_ms()
        cpu_ns, self._cpu_ns = self._cpu_ns, time.thread_time_ns()
        self._busy.record(self._cpu_ns - cpu_ns, now_ms)
        turn_ns = self._meter.take_longest_turn_ns()
        self._longest_turn_ns = max(self._longest_turn_ns, turn_ns)
        self._stall.record(max(0.0, (self._loop.time() - self._due_s) * 1000, turn_ns / 1e6), now_ms)
        self._wait()

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()

    def idle_ratio(self, now_ms: int) -> float:
        return max(0.0, 1.0 - RATIO_OF_NS.measure(self._busy, now_ms))

    def longest_stall_s(self, now_ms: int) -> float:
        longest_ms = self._stall.largest(now_ms)
        return 0.0 if longest_ms != longest_ms else longest_ms / 1000  # nothing was measured yet

    @property
    def longest_turn_ns(self) -> int:
        """Since the start."""
        return max(self._longest_turn_ns, self._meter.longest_turn_ns)

    def collect(self, parts: NodeParts, out: Exposition) -> Iterator[None]:
        now_ms = self._registry.now_ms()
        idle = self.idle_ratio(now_ms)
        for family, value in (
            (HANDLER_IDLE, idle),
            (NETWORK_IDLE, idle),
            (IDLE, idle),
            (STALL, self.longest_stall_s(now_ms)),
            (TURN, self.longest_turn_ns / 1e9),
            (REQUESTS_BUSY, self._meter.busy_ns / 1e9),
            (CPU, time.thread_time()),
            (LIFETIME, (time.monotonic_ns() - self._began_ns) / 1e9),
            (STARTED, self.started_ms),
        ):
            out.add(family, value)
        for family, found in zip(_PROCESS, _process(self.started_ms), strict=True):
            if found is not None:
                out.add(family, found)
        for family, disk_bytes in zip((DISK_READ, DISK_WRITTEN), _disk_bytes(), strict=False):
            out.add(family, disk_bytes)
        yield


def _process(started_ms: int) -> tuple[float | None, ...]:
    collections = sum(each["collections"] for each in gc.get_stats())
    return time.process_time(), _resident_bytes(), _open_files(), started_ms / 1000, collections, _threads()


def _told_by_the_kernel(name: str) -> str:
    """Nothing of this lies on a disk."""
    descriptor = os.open(f"/proc/self/{name}", os.O_RDONLY)
    try:
        return os.read(descriptor, 4096).decode("ascii")
    finally:
        os.close(descriptor)


def _resident_bytes() -> int | None:
    if sys.platform != "linux":
        return None
    return int(_told_by_the_kernel("statm").split()[1]) * os.sysconf("SC_PAGE_SIZE")


def _open_files() -> int | None:
    return len(os.listdir("/proc/self/fd")) if sys.platform == "linux" else None


def _threads() -> int | None:
    return len(os.listdir("/proc/self/task")) if sys.platform == "linux" else None


def _disk_bytes() -> tuple[int, ...]:
    try:
        counted = dict(line.split(": ") for line in _told_by_the_kernel("io").splitlines())
    except OSError:  # elsewhere, or where it may not be read
        return ()
    return int(counted["read_bytes"]), int(counted["write_bytes"])
