"""Hosts that exchange messages and keep logs in memory: as much of a world as Raft needs, and no more, so that it is
fast. It suffers the faults of `nemesis`, as a `World` does.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextvars import Context, copy_context
from hashlib import blake2b
from random import Random
from struct import Struct

from barnabas.raft.types import Address
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.model_log import BatchCache, ModelDisk
from barnabas.testing.sim.model_network import ModelNetwork, ModelTransport
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.process import HostClock, Process, ProcessState
from barnabas.testing.sim.runtime import SimulatedRuntime

__all__ = ["ModelHost", "ModelWorld"]

MAX_OFFLOAD_DELAY_S = 0.005
_SENT = Struct(">dd")


class ModelHost:
    """A machine of a `ModelWorld`."""

    def __init__(self, world: ModelWorld, name: str) -> None:
        self.world = world
        self.name = name
        self.disk = ModelDisk(world.random(f"{name}/disk"), world.cache)
        self.clock = HostClock(world.loop.world_time())
        self.skew_ms = 0
        self.max_offload_delay_s = MAX_OFFLOAD_DELAY_S
        self.process: Process | None = None
        self.context: Context = copy_context()
        self._start_count = 0
        self._runtime: SimulatedRuntime | None = None
        self._transports: list[ModelTransport] = []
        self._image: ModelDisk | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def start_process(self) -> Process:
        """Boot if need be, and begin a process."""
        self.world.network.power_on(self.name)
        self._start_count += 1
        self.process = Process(f"{self.name}.{self._start_count}", self.name, self.clock)
        self._transports.clear()
        with self.process.enter():
            self.context = copy_context()
        return self.process

    def runtime(self) -> SimulatedRuntime:
        random = self.world.random(f"{self.name}/{self._start_count}")
        self._runtime = SimulatedRuntime(
            self.world.loop, random, skew_ms=self.skew_ms, max_offload_delay_s=self.max_offload_delay_s
        )
        return self._runtime

    def transport(self, port: int) -> ModelTransport:
        transport = ModelTransport(self.world.network, Address(self.name, port), self.context)
        self._transports.append(transport)
        return transport

    # Misfortune

    def kill(self) -> None:
        if self._die():
            for transport in self._transports:
                self.world.network.close(transport)

    def power_off(self) -> None:
        self._die()
        self.world.network.power_off(self.name)
        self.disk.lose_power()

    def die_at(self, operations: int, *, power: bool) -> None:
        if self.is_running:
            self.disk.die_at(operations, lambda: self._die_in_operation(power))

    def _die_in_operation(self, power: bool) -> None:
        if power:
            self.power_off()
        else:
            self.kill()

    def _die(self) -> bool:
        self.disk.die_at(0, lambda: None)
        if self.process is None or self.process.is_dead:
            return False
        self.process.state = ProcessState.DEAD
        self.process.held.clear()
        return True

    def pause(self) -> None:
        if self.process is not None and self.process.state is ProcessState.RUNNING:
            self.process.state = ProcessState.PAUSED

    def resume(self) -> None:
        if self.process is not None:
            self.world.loop.resume(self.process)

    def set_clock_rate(self, rate: float) -> None:
        self.clock.set_rate(self.world.loop.world_time(), rate)

    def jump_clock(self, by_ms: int) -> None:
        self.skew_ms += by_ms
        if self._runtime is not None:
            self._runtime.clock.skew_ms = self.skew_ms

    def slow_disk(self, max_delay_s: float | None) -> None:
        self.max_offload_delay_s = MAX_OFFLOAD_DELAY_S if max_delay_s is None else max_delay_s
        if self._runtime is not None:
            self._runtime.max_offload_delay_s = self.max_offload_delay_s

    def set_disk_full(self, is_full: bool) -> None:
        self.disk.is_full = is_full

    def keep_image(self) -> None:
        self._image = self.disk.image()

    def restore_image(self) -> None:
        if self._image is not None:
            is_full, self.disk = self.disk.is_full, self._image.image()
            self.disk.is_full = is_full


class ModelWorld:
    """See the module. Everything random in it has a generator of its own, made of the seed and a name."""

    def __init__(self, seed: int, *, link: Link | None = None) -> None:
        self.seed = seed
        self.cache = BatchCache()
        self.loop = VirtualTimeLoop(self.random("scheduling"))
        self._hash = blake2b(digest_size=16)
        self.network = ModelNetwork(self.loop, self.random("network"), link=link, trace=self._trace)
        self._hosts: dict[str, ModelHost] = {}

    def random(self, name: str) -> Random:
        return Random(f"{self.seed}/{name}")

    def host(self, name: str) -> ModelHost:
        host = self._hosts.get(name)
        if host is None:
            host = self._hosts[name] = ModelHost(self, name)
        return host

    def hosts(self) -> Sequence[str]:
        return list(self._hosts)

    def _trace(self, source: str, target: str, data: bytes, arrives_s: float) -> None:
        self._hash.update(_SENT.pack(self.loop.world_time(), arrives_s))
        self._hash.update(data)

    def note(self, text: str) -> None:
        """Something that belongs to the trace besides messages."""
        self._hash.update(f"{self.loop.world_time():.9f} {text}\n".encode())

    def hexdigest(self) -> str:
        return self._hash.hexdigest()

    def close(self) -> None:
        for host in self._hosts.values():
            if host.process is not None:
                host.process.state = ProcessState.DEAD
        self.loop.close()
