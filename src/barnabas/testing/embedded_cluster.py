"""A cluster inside the process of a test, whose nodes are killed, paused and cut off by calling a method.

    with EmbeddedCluster(nodes=3) as cluster:
        cluster.create_topic("orders", partitions=3, replication_factor=3)
        cluster.kill(cluster.leader("orders"))

Each node is a whole one, broker and controller, on a thread and an event loop of its own, with ports of its own and its
files in memory. Any client can use them.
"""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Final, ParamSpec, Self, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.base.system_runtime import new_randomness
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.single_node import TEST_DEFAULTS, replication_for, single_node_settings
from barnabas.metadata.image import ClusterImage
from barnabas.net.sockets import reserved_ports
from barnabas.testing.embedded_node import EmbeddedNode
from barnabas.testing.node_loop import EmbeddedNetwork
from barnabas.testing.security import Security
from barnabas.testing.sim.loop import VirtualTimeLoop

__all__ = ["AsyncEmbeddedCluster", "EmbeddedCluster"]

P = ParamSpec("P")
T = TypeVar("T")

_HOST: Final = "127.0.0.1"
_LOOK_S: Final = 0.01
_PATIENCE_S: Final = 30.0
#: A test does not want to wait as long as an operator does until a node counts as gone.
CLUSTER_TEST_DEFAULTS: Final[Mapping[str, object]] = {
    **TEST_DEFAULTS,
    "broker.heartbeat.interval.ms": 500,
    "broker.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 3000,
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.election.backoff.max.ms": 300,
}


class EmbeddedCluster:
    """A cluster of nodes 1, 2, … in the process of a test.

    - `nodes`: how many; each is broker and controller.
    - `overrides`: settings of all nodes by Kafka's names; keywords are settings by ours (`num_partitions=3`).
    - `security`: who may log in, also of the nodes among themselves; without it, everybody may do everything.

    `async with EmbeddedCluster() as cluster` gives an `AsyncEmbeddedCluster`, whose methods are awaited.
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        overrides: Mapping[str, object] | None = None,
        security: Security | None = None,
        **settings: object,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"nodes = {nodes}: a cluster has at least one")
        self._count = nodes
        self._overrides = overrides or {}
        self._security = security
        self._keywords = settings
        self._nodes: dict[int, EmbeddedNode] = {}
        self._network = EmbeddedNetwork({})
        self._ports = contextlib.ExitStack()

    # What it is

    @property
    def security(self) -> Security:
        """What it was given; with the settings for clients."""
        if self._security is None:
            raise BarnabasError("the embedded cluster asks nobody who it is: give it security=Security(users={…})")
        return self._security

    def _stop_security(self) -> None:
        if self._security is not None:
            self._security.stop()

    @property
    def nodes(self) -> list[int]:
        """The ids of all nodes, running or not."""
        return list(range(1, self._count + 1))

    @property
    def running(self) -> list[int]:
        """The ids of nodes that run, and are not paused."""
        return [each.node_id for each in self._nodes.values() if each.is_running and not each.is_paused]

    @property
    def is_running(self) -> bool:
        return any(each.is_running for each in self._nodes.values())

    @property
    def bootstrap_servers(self) -> str:
        """All nodes, also those that do not run: as clients want it."""
        if not self._nodes:
            raise BarnabasError("the embedded cluster has no ports yet: it was not started")
        return ",".join(each.bootstrap for each in self._nodes.values())

    def bootstrap_of(self, node: int) -> str:
        """`host:port` of one node."""
        return self._node(node).bootstrap

    @property
    def controller(self) -> int:
        """The node that is the active controller; waits for one."""
        return self._wait("an active controller", self._active_controller)

    def leader(self, topic: str, partition: int = 0) -> int:
        """The node that leads a partition; waits for one that runs."""

        def found() -> int | None:
            image = self._newest_image()
            known = image.topics.get(topic)
            if known is None or not 0 <= partition < len(known.partitions):
                return None
            leader = known.partitions[partition].leader
            return leader if leader in self.running else None

        return self._wait(f"a leader of {topic}-{partition}", found)

    def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        """The nodes that are in sync, as the cluster knows now."""
        return sorted(self._newest_image().topics[topic].partitions[partition].isr)

    # Life

    def start(self) -> None:
        """Start all nodes, and return once they answer. What keeps one from starting is raised here."""
        if self.is_running:
            raise BarnabasError("the embedded cluster is already running")
        if self._security is not None:
            self._security.start()
        try:
            self._start()
        except BaseException:
            self._ports.close()
            self._stop_security()
            raise

    def _start(self) -> None:
        if not self._nodes:
            self._make_nodes()
        self._all(self._nodes.values(), EmbeddedNode.start)
        self._wait("all nodes at work", self._are_all_at_work)

    def stop(self, node: int | None = None) -> None:
        """Stop a node cleanly: it hands over what it leads, then ends. Without a number: end the whole cluster."""
        if node is not None:
            self._node(node).stop()
            return
        failures = [each.failure for each in self._nodes.values() if each.failure is not None]
        self._all(self._nodes.values(), EmbeddedNode.kill)
        self._network.cut = frozenset()
        self._all(self._nodes.values(), EmbeddedNode.rewire)
        self._ports.close()
        self._stop_security()
        if failures:
            raise failures[0]

    def restart(self, *nodes: int) -> None:
        """Start nodes that were killed or stopped, all at once, on their ports, with what their files hold; those that
        run are stopped first. Returns once they are at work; `until_in_sync` waits until their replicas have caught up.
        """
        found = [self._node(each) for each in nodes]
        for each in found:
            each.stop()
        self._all(found, EmbeddedNode.start)
        names = ", ".join(map(str, nodes))
        self._wait(f"node {names} at work", lambda: all(map(self._is_at_work, nodes)) or None)

    # Faults

    def kill(self, node: int) -> None:
        """Kill a node as `kill -9` does: its sockets are closed, and nothing more is written. What it has written stays
        in its files."""
        self._node(node).kill()

    def pause(self, node: int) -> None:
        """Stop a node as SIGSTOP does: its connections stay open, and nobody answers."""
        self._node(node).pause()

    def resume(self, node: int) -> None:
        """Let a paused node go on; it does not know that time has passed."""
        self._node(node).resume()

    def cut(self, node: int, other: int | None = None) -> None:
        """Cut the wire between two nodes, or between one and all others: what they send each other waits, and nobody is
        told. Clients still reach all nodes."""
        ends = [self._node(node)] + ([] if other is None else [self._node(other)])
        others = [other] if other is not None else [each for each in self.nodes if each != node]
        pairs = {(min(node, each), max(node, each)) for each in others}
        self._rewire(self._network.cut | pairs, self._nodes.values() if other is None else ends)

    def heal(self) -> None:
        """Mend all wires. What waited arrives."""
        self._rewire(frozenset(), self._nodes.values())

    def _rewire(self, cut: frozenset[tuple[int, int]], nodes: Iterable[EmbeddedNode]) -> None:
        self._network.cut = cut
        for each in nodes:
            each.rewire()

    # Topics

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        **keywords: object,
    ) -> None:
        """Create a topic, and return once all nodes that run know it and all its replicas are in sync.

        Without a `replication_factor` it is `default.replication.factor`: 3, or as many as there are nodes. Settings
        are given by Kafka's names in `config`, or as keywords: `retention_ms=1000`.
        """
        from barnabas.client.admin import NewTopic
        from barnabas.client.admin.sync_admin import Admin

        given = {**(config or {}), **{keyword.replace("_", "."): value for keyword, value in keywords.items()}}
        configs = {key: str(value).lower() if isinstance(value, bool) else str(value) for key, value in given.items()}
        running = ",".join(self._node(each).bootstrap for each in self.running)
        known = {} if self._security is None else self._security.node_settings()
        with Admin(running, client_id="barnabas-testing", **known) as admin:
            admin.create_topics([NewTopic(name, partitions, replication_factor or -1, None, configs)])
        self._wait(f"the topic {name} on all nodes", lambda: self._all_know(name) or None)

    def until_in_sync(self, timeout: float = _PATIENCE_S) -> None:
        """Wait until all nodes that run know that all replicas of all topics are in sync, and each partition is led."""

        def done() -> bool | None:
            images = self._images()
            states = [state for image in images for topic in image.topics.values() for state in topic.partitions]
            return all(state.leader >= 0 and len(state.isr) == len(state.replicas) for state in states) or None

        self._wait("all replicas in sync", done, timeout)

    # What these are made of

    def _make_nodes(self) -> None:
        randomness = new_randomness()
        cluster_id = str(Uuid.random(randomness))
        ports = self._ports.enter_context(reserved_ports(_HOST, 2 * self._count))
        places = {each: (ports[2 * each - 2], ports[2 * each - 1]) for each in self.nodes}
        self._network = EmbeddedNetwork({port: each for each, place in places.items() for port in place})
        voters = ",".join(f"{each}@{_HOST}:{place[1]}" for each, place in places.items())
        users = [] if self._security is None else self._security.records(randomness)
        for each, (port, controller_port) in places.items():
            settings = self._settings(each, port, controller_port, voters)
            self._nodes[each] = EmbeddedNode(settings, f"{_HOST}:{port}", cluster_id, self._network, users)

    def _settings(self, node: int, port: int, controller_port: int, voters: str) -> BrokerSettings:
        return single_node_settings(
            _HOST,
            port,
            "/memory",
            {"node.id": node, "controller.quorum.voters": voters, **replication_for(self._count)},
            CLUSTER_TEST_DEFAULTS,
            {} if self._security is None else self._security.settings(_HOST, port, _HOST, controller_port),
            self._overrides,
            controller_host=_HOST,
            controller_port=controller_port,
            **self._keywords,
        )

    def _node(self, node: int) -> EmbeddedNode:
        if node not in self.nodes:
            raise ValueError(f"there is no node {node}: the nodes are {', '.join(map(str, self.nodes))}")
        if not self._nodes:
            raise BarnabasError("the embedded cluster was not started")
        return self._nodes[node]

    def _all(self, nodes: Iterable[EmbeddedNode], work: Callable[[EmbeddedNode], None]) -> None:
        """With all at once; the first failure is raised once all have ended, and then nothing is left running."""
        with ThreadPoolExecutor(self._count) as pool:
            begun = [pool.submit(work, each) for each in nodes]
        failures = [failure for each in begun if (failure := each.exception()) is not None]
        if failures:
            for each in nodes:
                each.kill()
            raise failures[0]

    # What the nodes know

    def _images(self) -> list[ClusterImage]:
        return [self._nodes[each].image() for each in self.running]

    def _newest_image(self) -> ClusterImage:
        return max(self._images(), key=lambda image: image.offset, default=ClusterImage())

    def _active_controller(self) -> int | None:
        told = {each: self._nodes[each].quorum_leader() for each in self.running}
        leading = [(leader.epoch, each) for each, leader in told.items() if leader and leader.leader_id == each]
        # One that is cut off may not know yet that another was elected.
        return max(leading)[1] if leading else None

    def _is_at_work(self, node: int) -> bool:
        """Whether all that run know that it is not fenced."""
        return all(node in image.brokers and not image.brokers[node].is_fenced for image in self._images())

    def _are_all_at_work(self) -> bool | None:
        return all(self._is_at_work(each) for each in self.nodes) or None

    def _all_know(self, name: str) -> bool:
        images = self._images()
        alive = set(self.running)
        return all(
            name in image.topics
            and all(
                state.leader in alive and alive.intersection(state.replicas) <= set(state.isr)
                for state in image.topics[name].partitions
            )
            for image in images
        )

    def _wait(self, what: str, look: Callable[[], T | None], timeout: float = _PATIENCE_S) -> T:
        deadline_s = time.monotonic() + timeout
        while (found := look()) is None:
            failed = next((each.failure for each in self._nodes.values() if each.failure is not None), None)
            if failed is not None:
                raise failed
            if time.monotonic() > deadline_s:
                raise BarnabasError(f"the embedded cluster waited {timeout:.0f} s for {what}; {self!r}")
            time.sleep(_LOOK_S)
        return found

    def __repr__(self) -> str:
        states = ", ".join(f"{each} {self._state(each)}" for each in self.nodes)
        cut = ", ".join(f"{one}-{other}" for one, other in sorted(self._network.cut))
        return f"<EmbeddedCluster: {states}{f'; cut: {cut}' if cut else ''}>"

    def _state(self, node: int) -> str:
        found = self._nodes.get(node)
        return "not running" if found is None else found.state

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncEmbeddedCluster:
        made = AsyncEmbeddedCluster(self._count, overrides=self._overrides, security=self._security, **self._keywords)
        await made.start()
        self._async = made
        return made

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._async.stop()


class AsyncEmbeddedCluster:
    """An `EmbeddedCluster` for code that runs on asyncio: the same methods, awaited. The nodes have threads and loops
    of their own here, too, so that one can be paused while the test goes on."""

    def __init__(
        self,
        nodes: int = 3,
        *,
        overrides: Mapping[str, object] | None = None,
        security: Security | None = None,
        **settings: object,
    ) -> None:
        self._cluster = EmbeddedCluster(nodes, overrides=overrides, security=security, **settings)

    @property
    def security(self) -> Security:
        return self._cluster.security

    @property
    def nodes(self) -> list[int]:
        return self._cluster.nodes

    @property
    def running(self) -> list[int]:
        return self._cluster.running

    @property
    def is_running(self) -> bool:
        return self._cluster.is_running

    @property
    def bootstrap_servers(self) -> str:
        return self._cluster.bootstrap_servers

    def bootstrap_of(self, node: int) -> str:
        return self._cluster.bootstrap_of(node)

    async def controller(self) -> int:
        return await asyncio.to_thread(lambda: self._cluster.controller)

    async def leader(self, topic: str, partition: int = 0) -> int:
        return await self._do(self._cluster.leader, topic, partition)

    async def in_sync(self, topic: str, partition: int = 0) -> list[int]:
        return await self._do(self._cluster.in_sync, topic, partition)

    async def start(self) -> None:
        if isinstance(asyncio.get_running_loop(), VirtualTimeLoop):
            raise BarnabasError("an embedded cluster lives in real time; in virtual time, use sim.World.start_cluster")
        await self._do(self._cluster.start)

    async def stop(self, node: int | None = None) -> None:
        await self._do(self._cluster.stop, node)

    async def restart(self, *nodes: int) -> None:
        await self._do(self._cluster.restart, *nodes)

    async def kill(self, node: int) -> None:
        await self._do(self._cluster.kill, node)

    async def pause(self, node: int) -> None:
        await self._do(self._cluster.pause, node)

    async def resume(self, node: int) -> None:
        await self._do(self._cluster.resume, node)

    async def cut(self, node: int, other: int | None = None) -> None:
        await self._do(self._cluster.cut, node, other)

    async def heal(self) -> None:
        await self._do(self._cluster.heal)

    async def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int | None = None,
        config: Mapping[str, object] | None = None,
        **keywords: object,
    ) -> None:
        await self._do(self._cluster.create_topic, name, partitions, replication_factor, config, **keywords)

    async def until_in_sync(self, timeout: float = _PATIENCE_S) -> None:
        await self._do(self._cluster.until_in_sync, timeout)

    async def _do(self, work: Callable[P, T], *arguments: P.args, **keywords: P.kwargs) -> T:
        return await asyncio.to_thread(work, *arguments, **keywords)

    def __repr__(self) -> str:
        return repr(self._cluster).replace("<", "<Async", 1)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()
