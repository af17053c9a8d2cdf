"""One node of an embedded cluster: a thread that stands for its process, and files that outlive it."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
from collections.abc import Callable, Coroutine, Sequence
from concurrent.futures import Future
from typing import Any, Final, TypeVar

from barnabas.base.errors import BarnabasError
from barnabas.base.system_runtime import SystemRuntime
from barnabas.broker.node import Node
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.single_node import format_if_new
from barnabas.metadata.image import ClusterImage
from barnabas.raft.types import LeaderAndEpoch
from barnabas.testing.memory_files import MemoryFileSystem
from barnabas.testing.node_loop import EmbeddedNetwork, NodeLoop
from barnabas.wire.stored.cluster_metadata import UserScramCredentialRecord

__all__ = ["EmbeddedNode"]

T = TypeVar("T")

_START_S: Final = 30.0
#: How long what is left of a killed node may take to unwind, unseen by anybody.
_UNWIND_S: Final = 2.0


class EmbeddedNode:
    """It may be started many times, each time as a new process. All methods are called from other threads."""

    def __init__(
        self,
        settings: BrokerSettings,
        bootstrap: str,
        cluster_id: str,
        network: EmbeddedNetwork,
        users: Sequence[UserScramCredentialRecord] = (),
    ) -> None:
        self.node_id = settings.node_id
        self.bootstrap = bootstrap
        self._settings = settings
        self._cluster_id = cluster_id
        self._network = network
        self._users = users
        self._files = MemoryFileSystem()
        self._process: _NodeThread | None = None
        self._ghosts: list[tuple[int, socket.socket]] = []

    @property
    def is_running(self) -> bool:
        return self._process is not None

    @property
    def is_paused(self) -> bool:
        return self._process is not None and self._process.is_paused

    @property
    def failure(self) -> BarnabasError | None:
        """Why the node could not go on, if so."""
        return None if self._process is None else self._process.node.failure

    @property
    def state(self) -> str:
        if self._process is None:
            return "not running"
        if self.failure is not None:
            return "failed"
        return "paused" if self.is_paused else "running"

    # Life

    def start(self) -> None:
        if self._process is not None:
            raise BarnabasError(f"node {self.node_id} is already running")
        process = _NodeThread(self._settings, self._files, self._cluster_id, self._network, self._users)
        self._process = process
        try:
            process.do(_in_time(process.node))
        except BaseException:
            self.kill()
            raise

    def stop(self) -> None:
        """Cleanly, as `server stop` does. Nothing happens if it does not run."""
        process = self._process
        if process is not None:
            process.resume()
            try:
                process.do(process.node.stop())
            finally:
                self._process = None
                process.end()

    def kill(self) -> None:
        """See `EmbeddedCluster.kill`. Nothing happens if it does not run."""
        process, self._process = self._process, None
        if process is not None:
            self._files, ghosts = process.kill()
            self._ghosts += ghosts
            process.end()

    def pause(self) -> None:
        if self._process is None:
            raise BarnabasError(f"node {self.node_id} does not run")
        self._process.pause()

    def resume(self) -> None:
        if self._process is not None:
            self._process.resume()

    def rewire(self) -> None:
        """Act on what the network is now; a paused node does when it goes on."""
        kept = [each for each in self._ghosts if self._network.is_cut(self.node_id, each[0])]
        for each in self._ghosts:
            if each not in kept:
                each[1].close()
        self._ghosts = kept
        if self._process is not None and not self._process.is_paused:
            self._process.call(self._process.loop.rewire)

    # What it knows

    def image(self) -> ClusterImage:
        """The cluster as its broker tells it."""
        process = self._process
        return ClusterImage() if process is None else process.call(lambda: process.node.services.metadata.image)

    def quorum_leader(self) -> LeaderAndEpoch | None:
        """Whom it takes for the leader of the quorum."""
        process = self._process
        return None if process is None else process.call(lambda: process.node.quorum.leader)


class _NodeThread:
    """One run of a node. Its thread runs from the beginning until `end`."""

    def __init__(
        self,
        settings: BrokerSettings,
        files: MemoryFileSystem,
        cluster_id: str,
        network: EmbeddedNetwork,
        users: Sequence[UserScramCredentialRecord],
    ) -> None:
        self._files = files
        self._users = users
        self.loop = NodeLoop(settings.node_id, network)
        self._runtime = SystemRuntime()
        self._resumed = threading.Event()
        self._resumed.set()
        # A daemon, so that a test that forgets to stop its cluster does not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._run, name=f"embedded-node-{settings.node_id}", daemon=True)
        self._thread.start()
        try:
            self.node = self.call(lambda: self._made(settings, cluster_id))
        except BaseException:
            self.end()
            raise

    def _made(self, settings: BrokerSettings, cluster_id: str) -> Node:
        format_if_new(self._files, settings, self._runtime, cluster_id=cluster_id, users=self._users)
        return Node(settings, files=self._files, runtime=self._runtime)

    def _run(self) -> None:
        try:
            self.loop.run_forever()
        finally:
            self._runtime.close()
            self.loop.close()

    def do(self, work: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(work, self.loop).result()

    def call(self, work: Callable[[], T]) -> T:
        """Do something on the node's thread, and wait for it."""
        done: Future[T] = Future()

        def called() -> None:
            try:
                done.set_result(work())
            except BaseException as failure:
                done.set_exception(failure)

        self.loop.call_soon_threadsafe(called)
        return done.result()

    # Faults

    @property
    def is_paused(self) -> bool:
        return not self._resumed.is_set()

    def pause(self) -> None:
        """The thread waits; the system goes on to take connections and bytes for it, as for a stopped process."""
        if self.is_paused:
            return
        stopped = threading.Event()
        self._resumed.clear()

        def wait() -> None:
            stopped.set()
            self._resumed.wait()
            # Before anything that came meanwhile is looked at.
            if not self.loop.is_dead:
                self.loop.rewire()

        self.loop.call_soon_threadsafe(wait)
        stopped.wait()

    def resume(self) -> None:
        self._resumed.set()

    def kill(self) -> tuple[MemoryFileSystem, list[tuple[int, socket.socket]]]:
        """The files as they are at this moment, for the next process: what still runs of this one writes to others,
        that nobody will read."""
        self.loop.is_dead = True
        self._resumed.set()
        return self.call(lambda: (self._files.copy(), self.loop.close_sockets()))

    def end(self) -> None:
        """Unwind what is left, and end the thread."""
        self.loop.call_soon_threadsafe(lambda: self.loop.set_exception_handler(lambda *_: None))
        with contextlib.suppress(TimeoutError):
            self.do(_unwind())
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()


async def _in_time(node: Node) -> None:
    """Start a node; one that waits for others in vain says for whom."""
    starting = asyncio.ensure_future(node.start())
    done, _ = await asyncio.wait([starting], timeout=_START_S)
    if not done:
        raise BarnabasError(
            f"the node did not start within {_START_S:.0f} s: {node.waits_for or 'it does not say why'}"
        )
    starting.result()


async def _unwind() -> None:
    """Cancel all tasks, and those that they begin. What they do about it reaches neither files nor sockets that anybody
    has."""
    loop, this = asyncio.get_running_loop(), asyncio.current_task()
    async with asyncio.timeout(_UNWIND_S):
        while left := asyncio.all_tasks(loop) - {this}:
            for task in left:
                task.cancel()
            await asyncio.wait(left)
    await loop.shutdown_asyncgens()
