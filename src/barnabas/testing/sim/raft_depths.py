"""The worlds in which a Raft quorum is simulated: a model of messages and logs, and one of sockets and files.

Both give a replica its parts, and both are struck by the same faults.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from random import Random
from typing import Final, NamedTuple, Protocol

from barnabas.base.runtime import Runtime
from barnabas.raft.ports import LogStore, Transport
from barnabas.raft.types import Address
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.model_log import ModelLog
from barnabas.testing.sim.model_world import ModelWorld
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.process import Process
from barnabas.testing.sim.world import World

__all__ = ["Depth", "DepthTarget", "ModelDepth", "ReplicaParts", "WholeDepth"]

PORT: Final = 9093
_DIRECTORY: Final = "/data/__cluster_metadata-0"
_SEGMENT_BYTES: Final = 2_000


class ReplicaParts(NamedTuple):
    """What a driver is handed."""

    transport: Transport
    store: LogStore
    runtime: Runtime


class SimHost(Protocol):
    """A host of either world."""

    process: Process | None

    @property
    def is_running(self) -> bool: ...

    def kill(self) -> None: ...

    def power_off(self) -> None: ...

    def die_at(self, operations: int, *, power: bool) -> None: ...

    def pause(self) -> None: ...

    def resume(self) -> None: ...

    def slow_disk(self, max_delay_s: float | None) -> None: ...

    def set_disk_full(self, is_full: bool) -> None: ...

    def set_clock_rate(self, rate: float) -> None: ...

    def jump_clock(self, by_ms: int) -> None: ...

    def keep_image(self) -> None: ...

    def restore_image(self) -> None: ...


class SimNetwork(Protocol):
    """The network of either world."""

    def cut(self, source: str, target: str) -> None: ...

    def mend(self, source: str, target: str) -> None: ...

    def set_link(self, source: str, target: str, link: Link | None) -> None: ...

    def reset(self, one: str, other: str) -> None: ...


class Strikable(Protocol):
    """Hosts and a network, which faults can strike."""

    @property
    def network(self) -> SimNetwork: ...

    def host(self, name: str, /) -> SimHost: ...


class Depth(Strikable, Protocol):
    """A world, and how replicas run in it."""

    @property
    def loop(self) -> VirtualTimeLoop: ...

    def random(self, name: str) -> Random: ...

    def start_process(self, host: str) -> Process: ...

    def parts(self, host: str) -> ReplicaParts:
        """What the present process of a host works with; called in it."""
        ...

    def is_safe(self, host: str, base_offset: int, epoch: int) -> bool | None:
        """Whether a batch would survive a power loss there; None if that cannot be told."""
        ...

    def note(self, text: str) -> None:
        """Let something be part of the trace."""
        ...

    def trace(self) -> str: ...

    def close(self) -> None: ...


class ModelDepth:
    """Messages and logs in memory: fast."""

    def __init__(self, seed: int, *, link: Link | None = None, kept_snapshots: int = 1) -> None:
        self._world = ModelWorld(seed, link=link)
        self._kept_snapshots = kept_snapshots
        self.loop = self._world.loop
        self.network: SimNetwork = self._world.network
        self.random = self._world.random
        self.host = self._world.host
        self.note = self._world.note
        self.trace = self._world.hexdigest
        self.close = self._world.close

    def start_process(self, host: str) -> Process:
        self._world.note(f"start {host}")
        return self._world.host(host).start_process()

    def parts(self, host: str) -> ReplicaParts:
        found = self._world.host(host)
        runtime = found.runtime()
        store = ModelLog(found.disk, runtime.clock.now_ms, kept_snapshots=self._kept_snapshots)
        return ReplicaParts(found.transport(PORT), store, runtime)

    def is_safe(self, host: str, base_offset: int, epoch: int) -> bool | None:
        return self._world.host(host).disk.is_safe(base_offset, epoch)


class WholeDepth:
    """The real transport over simulated sockets, the real log on simulated disks."""

    def __init__(self, seed: int, *, link: Link | None = None, kept_snapshots: int = 1) -> None:
        self._world = World(seed, link=link, tolerates_logged_errors=True)
        self._retention_bytes = 1 if kept_snapshots == 1 else -1
        self.loop = self._world.loop
        self.network: SimNetwork = self._world.network
        self.random = self._world.random
        self.host = self._world.host
        self.trace = self._world.trace.hexdigest
        self.close = self._world.close

    def note(self, text: str) -> None:
        self._world.trace.record("note", text)

    def start_process(self, host: str) -> Process:
        return self._world.host(host).start_process("raft")

    def parts(self, host: str) -> ReplicaParts:
        # Late, because the model needs neither.
        from barnabas.raft.log_options import RaftLogOptions
        from barnabas.raft.raft_log import RaftLog
        from barnabas.raft.socket_transport import SocketTransport

        found = self._world.host(host)
        runtime = found.runtime()
        options = RaftLogOptions(segment_bytes=_SEGMENT_BYTES, retention_bytes=self._retention_bytes, delete_delay_ms=0)
        found.disk.make_directory("/data")
        found.disk.sync_directory("/")
        store = RaftLog(found.disk, _DIRECTORY, options, runtime)
        return ReplicaParts(SocketTransport(Address(host, PORT), randomness=runtime.randomness), store, runtime)

    def is_safe(self, host: str, base_offset: int, epoch: int) -> bool | None:
        return None


class DepthTarget:
    """A `FaultTarget` of either world; who leads and how a host is started is up to the scenario."""

    def __init__(
        self,
        depth: Strikable,
        hosts: Sequence[str],
        leader: Callable[[], str | None],
        start: Callable[[str], None],
        on_old_disk: Callable[[str], None],
        stop: Callable[[str], None] | None = None,
        stop_and_restore: Callable[[str], None] | None = None,
    ) -> None:
        """Without `stop`, a process that an operator stops is killed: it has nothing to do before."""
        self.stop = stop or self.kill
        self.stop_and_restore = stop_and_restore or self._kill_and_restore
        self._hosts = hosts
        self._on_old_disk = on_old_disk
        self._host = depth.host
        self.leader = leader
        self.start = start
        self.cut = depth.network.cut
        self.mend = depth.network.mend
        self.set_link = depth.network.set_link
        self.reset = depth.network.reset

    def hosts(self) -> Sequence[str]:
        return self._hosts

    def pause(self, host: str) -> None:
        self._host(host).pause()

    def resume(self, host: str) -> None:
        self._host(host).resume()

    def kill(self, host: str) -> None:
        self._host(host).kill()

    def power_off(self, host: str) -> None:
        self._host(host).power_off()

    def die_at(self, host: str, operations: int, *, power: bool) -> None:
        self._host(host).die_at(operations, power=power)

    def slow_disk(self, host: str, max_delay_s: float | None) -> None:
        self._host(host).slow_disk(max_delay_s)

    def set_disk_full(self, host: str, is_full: bool) -> None:
        self._host(host).set_disk_full(is_full)

    def set_clock_rate(self, host: str, rate: float) -> None:
        self._host(host).set_clock_rate(rate)

    def jump_clock(self, host: str, by_ms: int) -> None:
        self._host(host).jump_clock(by_ms)

    def keep_image(self, host: str) -> None:
        self._host(host).keep_image()

    def restore_image(self, host: str) -> None:
        self._host(host).restore_image()
        self._on_old_disk(host)

    def _kill_and_restore(self, host: str) -> None:
        self.kill(host)
        self.restore_image(host)
        self.start(host)
