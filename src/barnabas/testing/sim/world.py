"""A world with hosts, disks and a network, in which nodes run, die and come back, all from one seed.

    with World(seed=7) as world:
        async def story() -> None:
            node = await world.start_node("10.0.0.1")
            client = await world.client(node.bootstrap)
            ...
            node.kill()
            await node.start()
        world.run(story())
        print(world.trace.hexdigest())

The story itself belongs to no process, so no crash touches it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import warnings
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextvars import Context
from random import Random
from typing import TYPE_CHECKING, Any, Self, TypeVar

from barnabas.base.log_context import said
from barnabas.broker.single_node import TEST_DEFAULTS, format_if_new, single_node_settings
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.loop import SimulationError, VirtualTimeLoop
from barnabas.testing.sim.network import Link, Network
from barnabas.testing.sim.process import HostClock, Process, ProcessState
from barnabas.testing.sim.runtime import SimulatedClock, SimulatedRuntime
from barnabas.testing.sim.trace import Trace

if TYPE_CHECKING:
    from barnabas.broker.node import Node
    from barnabas.broker.settings import BrokerSettings

__all__ = ["Host", "ProcessDiedError", "SimulatedNode", "World"]

T = TypeVar("T")

CLIENT_ADDRESS = "10.0.1.1"
BROKER_PORT = 9092
CONTROLLER_PORT = 9093
DATA_DIRECTORY = "/data"
MAX_OFFLOAD_DELAY_S = 0.005
COLD_READS = 0.2
"""How many reads find their data not in memory."""


class ProcessDiedError(SimulationError):
    """The process that was asked to do something was killed meanwhile."""


@contextlib.contextmanager
def unwarned() -> Iterator[None]:
    """For the end of a world: what is open or waits then, as after a kill, is nobody's mistake."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ResourceWarning)
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield


class World:
    """See the module. Everything random in it has a generator of its own, made of the seed and a name, so that one
    more draw in one place does not change all others.

    What a node logs as an error with a traceback ends the run, since it means that something failed which nobody had
    thought of; `tolerates_logged_errors` is for stories that provoke it.
    """

    def __init__(
        self,
        seed: int,
        *,
        link: Link | None = None,
        keep_trace: bool = False,
        tolerates_logged_errors: bool = False,
        max_idle_turns: int = 100_000,
    ) -> None:
        self.seed = seed
        self.loop = VirtualTimeLoop(self.random("scheduling"), max_idle_turns=max_idle_turns)
        self.trace = Trace(self.loop.world_time, keep_all=keep_trace)
        self.network = Network(self.loop, self.random("network"), link=link, trace=self.trace.record)
        self._hosts: dict[str, Host] = {}
        #: Told of each process that dies, by the address of its host, and whether the power was lost.
        self.on_death: Callable[[str, bool], None] = lambda address, power: None
        #: Told of each file that is about to be cut, by the address of its host.
        self.on_cut: Callable[[str, str], None] = lambda address, path: None
        self._log = _LogWatch(self, raises=not tolerates_logged_errors)
        logging.getLogger("barnabas").addHandler(self._log)

    def random(self, name: str) -> Random:
        """The generator of a concern. Strings seed alike in every process, whatever its hash seed."""
        return Random(f"{self.seed}/{name}")

    def host(self, address: str) -> Host:
        """The host with this address, made when first asked for."""
        host = self._hosts.get(address)
        if host is None:
            host = self._hosts[address] = Host(self, address)
        return host

    def run(self, story: Coroutine[Any, Any, T], *, limit_s: float = 86_400.0) -> T:
        """Run a story to its end; it may take a day of virtual time unless told otherwise."""
        try:
            return self.loop.run_until_complete(story, limit_s=limit_s)
        except BaseException as failure:
            lines = "\n".join(self.trace.tail)
            failure.add_note(f"seed {self.seed}, at {self.loop.world_time():.6f} s; the last events:\n{lines}")
            raise

    async def start_node(
        self, address: str = "10.0.0.1", overrides: Mapping[str, object] | None = None, **settings: object
    ) -> SimulatedNode:
        """Format a node's directory, start it, and wait until it answers."""
        node = SimulatedNode(self.host(address), overrides or {}, settings)
        await node.start()
        return node

    async def start_cluster(
        self, nodes: int = 3, overrides: Mapping[str, object] | None = None, *, brokers: int = 0
    ) -> list[SimulatedNode]:
        """Start nodes that are controller and broker in one, or, with `brokers`, so many of those beside controllers;
        wait until all answer."""
        # Late, because it knows this module.
        from barnabas.testing.sim.cluster import ClusterPlan

        members = ClusterPlan(nodes, brokers).members(self, overrides or {})
        await asyncio.gather(*(member.start() for member in members))
        return members

    async def client(
        self, bootstrap: str, client_id: str = "scripted", *, address: str = CLIENT_ADDRESS, timeout_s: float = 60.0
    ) -> ScriptedClient:
        """A connection from a host of its own."""
        return await ScriptedClient.connect(bootstrap, client_id, address=address, timeout_s=timeout_s)

    def close(self) -> None:
        """The end of the world: nothing runs any more."""
        logging.getLogger("barnabas").removeHandler(self._log)
        for host in self._hosts.values():
            host.end()
        with unwarned():
            self.loop.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class Host:
    """A machine: an address, a disk that outlives processes, a clock that may be wrong and run at a rate of its own,
    and at most one process."""

    def __init__(self, world: World, address: str) -> None:
        self.world = world
        self.address = address
        self.skew_ms = 0
        self.clock = HostClock(world.loop.world_time())
        self.max_offload_delay_s = MAX_OFFLOAD_DELAY_S
        self.process: Process | None = None
        self.is_powered = True
        self.disk = SimulatedDisk(
            world.random(f"{address}/disk"),
            now_ms=SimulatedClock(world.loop).now_ms,
            cold_reads=COLD_READS,
            hook=self._disk_operation,
        )
        self.disk.on_crash = self._died_in_operation
        self._start_count = 0
        self._dies_by_power = False
        self._died: asyncio.Future[None] | None = None
        self._runtime: SimulatedRuntime | None = None
        self._image: dict[str, bytes | None] | None = None

    @property
    def is_running(self) -> bool:
        return self.process is not None and not self.process.is_dead

    def start_process(self, name: str) -> Process:
        """Boot if need be, and begin a process."""
        if self.is_running:
            raise SimulationError(f"{self.address} already runs {self.process}")
        if not self.is_powered:
            self.is_powered = True
            self.world.network.power_on(self.address)
        self._start_count += 1
        self.process = Process(f"{name}.{self._start_count}", self.address, self.clock)
        self._died = self.world.loop.create_future()
        self.world.trace.record("start", self.process.name, self.address)
        return self.process

    def runtime(self) -> SimulatedRuntime:
        """Clock and randomness for the present process: another run draws other numbers."""
        random = self.world.random(f"{self.address}/{self._start_count}")
        self._runtime = SimulatedRuntime(
            self.world.loop, random, skew_ms=self.skew_ms, max_offload_delay_s=self.max_offload_delay_s
        )
        return self._runtime

    async def do(self, work: Coroutine[Any, Any, T]) -> T:
        """Let the process do something and wait for it; `ProcessDiedError` if it dies over it."""
        process, died = self.process, self._died
        if process is None or died is None or process.is_dead:
            work.close()
            raise ProcessDiedError(f"nothing runs on {self.address}")
        with process.enter():
            task = self.world.loop.create_task(work)
        either: list[asyncio.Future[Any]] = [task, died]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if died.done():
            raise ProcessDiedError(f"{process.name} was killed")
        return task.result()

    async def wait_until_dead(self) -> None:
        """Until the process dies, as planned with `die_at`."""
        if self.is_running and self._died is not None:
            await asyncio.wait([self._died])

    # Misfortune

    def kill(self) -> None:
        """Kill the process. What it wrote is in its files, synced or not."""
        self._die(power=False)
        self.disk.crash(power=False)

    def power_off(self) -> None:
        """Lose power. What was not synced may be gone; peers hear nothing."""
        self._die(power=True)
        self.disk.crash(power=True)

    def die_at(self, operations: int, *, power: bool = False) -> None:
        """Die in the disk operation that is so many from now."""
        self._dies_by_power = power
        self.disk.crash_at(self.disk.operations + operations)

    def pause(self) -> None:
        """Stop the process as SIGSTOP does: it neither runs nor goes away."""
        if self.process is not None and self.process.state is ProcessState.RUNNING:
            self.process.state = ProcessState.PAUSED
            self.world.trace.record("pause", self.process.name)

    def resume(self) -> None:
        if self.process is not None:
            self.world.trace.record("resume", self.process.name)
            self.world.loop.resume(self.process)

    def set_clock_rate(self, rate: float) -> None:
        """Let the clock and all timers of this host run faster or slower than the world's."""
        self.clock.set_rate(self.world.loop.world_time(), rate)
        self.world.trace.record("clock rate", self.address, rate)

    def jump_clock(self, by_ms: int) -> None:
        """Set the wall clock to another time. Timers and the monotonic reading do not care."""
        self.skew_ms += by_ms
        if self._runtime is not None:
            self._runtime.clock.skew_ms = self.skew_ms
        self.world.trace.record("clock jump", self.address, by_ms)

    def slow_disk(self, max_delay_s: float | None) -> None:
        """Let work that blocks, syncs above all, take up to this long; None for as long as usual."""
        self.max_offload_delay_s = MAX_OFFLOAD_DELAY_S if max_delay_s is None else max_delay_s
        if self._runtime is not None:
            self._runtime.max_offload_delay_s = self.max_offload_delay_s

    def set_disk_full(self, is_full: bool) -> None:
        """Leave no room for another byte, or all room."""
        self.disk.capacity_bytes = self.disk.used_bytes if is_full else None

    def keep_image(self) -> None:
        """Remember what the disk holds now, as a backup does."""
        self._image = self.disk.contents()

    def restore_image(self) -> None:
        """Come back with the disk as it was at `keep_image`; not while a process runs."""
        if self.is_running:
            raise SimulationError(f"{self.address} runs {self.process}: its disk cannot be changed under it")
        if self._image is not None:
            self.disk.restore(self._image)
            self.world.trace.record("old disk", self.address)

    def end(self) -> None:
        """The world is over: nothing reaches this disk any more."""
        if self.process is not None:
            self.process.state = ProcessState.DEAD
        self.disk.hook = None
        self.disk.on_crash = None
        self.disk.generation += 1

    def _die(self, *, power: bool) -> None:
        process = self.process
        if process is not None and not process.is_dead:
            process.state = ProcessState.DEAD
            self.world.trace.record("power loss" if power else "kill", process.name)
            self.world.on_death(self.address, power)
            if not power:
                self.world.network.kill(process)
            if self._died is not None and not self._died.done():
                self._died.set_result(None)
        if power:
            self.is_powered = False
            self.world.network.power_off(self.address)

    def _died_in_operation(self) -> None:
        """The disk settles once the operation, which is under way, has had its share of an effect."""
        self._die(power=self._dies_by_power)
        self.world.loop.call_soon(lambda: self.disk.crash(power=self._dies_by_power), context=Context())

    def _disk_operation(self, number: int, name: str, path: str) -> None:
        self.world.trace.record("disk", self.address, number, name, path)
        if name == "truncate":
            self.world.on_cut(self.address, path)


class SimulatedNode:
    """A node on a host. It may be started and stopped many times; each start is a new process on the same disk."""

    def __init__(
        self,
        host: Host,
        overrides: Mapping[str, object],
        keywords: Mapping[str, object],
        *,
        cluster_id: str | None = None,
        levels: Mapping[str, int] | None = None,
        on_made: Callable[[Node], None] | None = None,
    ) -> None:
        """With a `cluster_id` it belongs to that cluster, else to one of its own; it is formatted with these `levels`
        of features, by the names that `format_if_new` has. `on_made` sees each node before it is started."""
        self.host = host
        self.settings: BrokerSettings = single_node_settings(
            host.address,
            BROKER_PORT,
            DATA_DIRECTORY,
            TEST_DEFAULTS,
            overrides,
            controller_host=host.address,
            controller_port=CONTROLLER_PORT,
            **keywords,
        )
        self.node: Node | None = None
        self._cluster_id = cluster_id
        self._levels = levels or {}
        self._on_made = on_made

    @property
    def bootstrap(self) -> str:
        return f"{self.host.address}:{BROKER_PORT}"

    async def start(self) -> None:
        """Start a process and wait until the node is ready."""
        self.host.start_process("node")
        await self.host.do(self._start())

    async def _start(self) -> None:
        # Late, because a world without nodes does not need them.
        from barnabas.broker.node import Node

        files, runtime = self.host.disk, self.host.runtime()
        format_if_new(files, self.settings, runtime, cluster_id=self._cluster_id, **self._levels)  # type: ignore[arg-type]
        self.node = Node(self.settings, files=files, runtime=runtime)
        if self._on_made is not None:
            self._on_made(self.node)
        await self.node.start()

    async def start_if_dead(self) -> None:
        """Start again, and again should it die over that, as a supervisor does."""
        while not self.host.is_running:
            with contextlib.suppress(ProcessDiedError):
                await self.start()

    async def stop(self) -> None:
        """Stop as an operator does."""
        if self.node is not None:
            await self.host.do(self.node.stop())
        self.host.kill()

    def kill(self) -> None:
        self.host.kill()

    def power_off(self) -> None:
        self.host.power_off()


class _LogWatch(logging.Handler):
    """Takes note of what nodes log: it is observable, so it belongs to the trace."""

    def __init__(self, world: World, *, raises: bool) -> None:
        super().__init__(logging.INFO)
        self._world = world
        self._raises = raises

    def emit(self, record: logging.LogRecord) -> None:
        if asyncio._get_running_loop() is not self._world.loop:
            return
        # Clients number themselves in a process, so their names may differ from run to run.
        text = said(record)
        self._world.trace.record("log", record.levelname, text)
        if self._raises and record.levelno >= logging.ERROR and record.exc_info:
            error = record.exc_info[1]
            if isinstance(error, Exception):
                self._world.loop.call_exception_handler({"message": text, "exception": error})
