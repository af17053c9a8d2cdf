"""Simulated processes: which process a callback belongs to, and what becomes of it when the process dies or is paused.

A process is a context variable. Whatever a process starts (tasks, timers, transports) inherits its context, so the
loop can tell for each callback whose it is, and run no more of a process that was killed: not its `finally` blocks, not
its done callbacks, nothing, as with a real `kill -9`.
"""

from __future__ import annotations

from asyncio import Handle
from contextvars import ContextVar
from enum import Enum
from typing import Final

__all__ = ["HostClock", "Process", "ProcessState", "current_process"]


class ProcessState(Enum):
    """Whether callbacks of a process run, wait, or are dropped."""

    RUNNING = "running"
    PAUSED = "paused"
    DEAD = "dead"


class HostClock:
    """How fast time passes on one host: `rate` seconds there for each second of the world.

    A change of the rate bends the line and does not break it, so readings never jump. Timers that are set already stay
    where they are in the world's time, as if the kernel had computed them before.
    """

    __slots__ = ("_local_s", "_world_s", "rate")

    def __init__(self, world_s: float) -> None:
        self.rate = 1.0
        self._world_s = self._local_s = world_s

    def set_rate(self, world_s: float, rate: float) -> None:
        self._local_s = self.local_s(world_s)
        self._world_s = world_s
        self.rate = rate

    def local_s(self, world_s: float) -> float:
        return self._local_s + (world_s - self._world_s) * self.rate

    def world_s(self, local_s: float) -> float:
        return self._world_s + (local_s - self._local_s) / self.rate


class Process:
    """One run of a program on a simulated host. Without a `clock` its time is the world's."""

    __slots__ = ("address", "clock", "held", "name", "state")

    def __init__(self, name: str, address: str, clock: HostClock | None = None) -> None:
        self.name = name
        self.address = address
        self.clock = clock
        self.state = ProcessState.RUNNING
        #: Callbacks that became due during a pause.
        self.held: list[Handle] = []

    @property
    def is_dead(self) -> bool:
        return self.state is ProcessState.DEAD

    def __repr__(self) -> str:
        return f"<{self.name} on {self.address}, {self.state.value}>"

    def enter(self) -> PinnedContext:
        """`with process.enter():` what is started inside belongs to the process."""
        return PinnedContext(self)


class PinnedContext:
    """Makes a process the current one for a block."""

    __slots__ = ("_process", "_token")

    def __init__(self, process: Process) -> None:
        self._process = process

    def __enter__(self) -> Process:
        self._token = current_process.set(self._process)
        return self._process

    def __exit__(self, *_: object) -> None:
        current_process.reset(self._token)


#: The process that the running code belongs to; None for the test itself, which no crash touches.
current_process: Final[ContextVar[Process | None]] = ContextVar("current_process", default=None)
