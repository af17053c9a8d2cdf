"""A broker inside the process of a test.

    with EmbeddedBroker() as broker:
        broker.create_topic("orders", partitions=3)
        producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap_servers})

It is a whole node with a port of its own, so any client can use it, also one in another process. Without a directory it
lives in memory and leaves nothing behind.
"""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.runtime import Runtime
from barnabas.base.system_runtime import SystemRuntime
from barnabas.broker.controller.controller_channel import broker_caller
from barnabas.broker.node import Node
from barnabas.broker.single_node import TEST_DEFAULTS, format_if_new, single_node_settings
from barnabas.net.runtime import new_event_loop
from barnabas.storage.files import FileSystem
from barnabas.storage.real_files import RealFileSystem
from barnabas.testing.faults import Faults
from barnabas.testing.memory_files import MemoryFileSystem
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.security import Security
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.runtime import SimulatedRuntime
from barnabas.wire.apis import api
from barnabas.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)

if TYPE_CHECKING:
    from os import PathLike

__all__ = ["AsyncEmbeddedBroker", "EmbeddedBroker"]

T = TypeVar("T")

MEMORY_DIRECTORY = "/memory"


class AsyncEmbeddedBroker:
    """A broker on the running event loop: `async with AsyncEmbeddedBroker() as broker: …`. Where that has virtual time,
    so has the broker.

    - `data_dir`: where its files go; without one, they stay in memory.
    - `listen`: `host:port`; port 0 takes any that is free, and keeps it over restarts.
    - `overrides`: settings by Kafka's names; keywords are settings by ours (`num_partitions=3`).
    - `security`: who may log in; without it, everybody may do everything.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        overrides: Mapping[str, object] | None = None,
        security: Security | None = None,
        **settings: object,
    ) -> None:
        host, separator, port = listen.rpartition(":")
        if not separator or not port.isdigit():
            raise ValueError(f"listen = {listen!r}: host:port is expected, such as 127.0.0.1:9092")
        self.faults = Faults()
        self._host, self._port, self._controller_port = host, int(port), 0
        self._directory = MEMORY_DIRECTORY if data_dir is None else str(data_dir)
        self._files: FileSystem = MemoryFileSystem() if data_dir is None else RealFileSystem()
        self._overrides = overrides or {}
        self._security = security
        self._keywords = settings
        self._node: Node | None = None
        self._close_runtime: Callable[[], None] = lambda: None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as clients want it."""
        if self._port == 0:
            raise BarnabasError("the embedded broker has no port yet: it was not started")
        return f"{self._host}:{self._port}"

    @property
    def metrics_url(self) -> str:
        """Where its metrics are, if it has a `metrics.listener`."""
        address = None if self._node is None else self._node.metrics.address
        if address is None:
            raise BarnabasError("the embedded broker has no metrics.listener, or was not started")
        return f"http://{address[0]}:{address[1]}/metrics"

    @property
    def is_running(self) -> bool:
        return self._node is not None

    @property
    def node(self) -> Node:
        """What is inside, for tests that look there."""
        if self._node is None:
            raise BarnabasError("the embedded broker is not running")
        return self._node

    async def start(self) -> None:
        """Start, and return once it answers."""
        if self._node is not None:
            raise BarnabasError("the embedded broker is already running")
        if self._security is not None:
            self._security.start()
        try:
            await self._start()
        except BaseException:
            if self._security is not None:
                self._security.stop()
            raise

    async def _start(self) -> None:
        settings = single_node_settings(
            self._host,
            self._port,
            self._directory,
            TEST_DEFAULTS,
            {} if self._security is None else self._security.settings(self._host, self._port, *self._controller),
            self._overrides,
            controller_host=self._host,
            controller_port=self._controller_port,
            **self._keywords,
        )
        runtime, close_runtime = _runtime_of(asyncio.get_running_loop())
        try:
            users = [] if self._security is None else self._security.records(runtime.randomness)
            format_if_new(self._files, settings, runtime, users=users)
            node = Node(settings, files=self._files, runtime=runtime)
            node.interceptor = self.faults.intercept
            await node.start()
        except BaseException:
            close_runtime()
            raise
        self._node, self._close_runtime = node, close_runtime
        # What is advertised may lead through a proxy; here it matters where we listen.
        listeners = [name for name in node.endpoints if name not in settings.controller_listeners]
        self._port = node.endpoints[listeners[0]][1]
        self._controller_port = node.endpoints["CONTROLLER"][1]

    @property
    def _controller(self) -> tuple[str, int]:
        return self._host, self._controller_port

    @property
    def security(self) -> Security:
        """What it was given; with the settings for clients."""
        if self._security is None:
            raise BarnabasError("the embedded broker asks nobody who it is: give it security=Security(users={…})")
        return self._security

    async def stop(self) -> None:
        """Stop cleanly. Stopping again does nothing. Raises what made the node fail, if it did."""
        node, self._node = self._node, None
        close_runtime, self._close_runtime = self._close_runtime, lambda: None
        try:
            if node is not None:
                await node.stop()
        finally:
            close_runtime()
            if node is not None and self._security is not None:
                self._security.stop()
        if node is not None and node.failure is not None:
            raise node.failure

    async def restart(self) -> None:
        """Stop and start, on the same port and with the same data, also when they are in memory."""
        await self.stop()
        await self.start()

    async def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, **keywords: object
    ) -> None:
        """Create a topic. Its settings are given by Kafka's names in `config`, or as keywords: `retention_ms=1000`."""
        given = {**(config or {}), **{keyword.replace("_", "."): value for keyword, value in keywords.items()}}
        topic = CreatableTopic(
            name=name,
            num_partitions=partitions,
            replication_factor=1,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=_text(value)) for key, value in given.items()],
        )
        response = await self._ask(CreateTopicsRequest(topics=[topic]))
        result = response.topics[0]
        if result.error_code:
            if self._node is not None and self._node.failure is not None:
                raise self._node.failure
            told = result.error_message or ""
            # Most messages name the topic.
            raise BrokerError(ErrorCode.of(result.error_code), told if name in told else f"the topic {name}: {told}")

    async def _ask(self, request: CreateTopicsRequest) -> CreateTopicsResponse:
        if self._security is not None:
            # Within the process, where nobody has to show who it is.
            version, caller = api(request.API_KEY).served.high, broker_caller(self.node.services.node_id)
            return cast(CreateTopicsResponse, await self.node.services.controller.submit(request, version, caller))
        client = await ScriptedClient.connect(self.bootstrap_servers, "barnabas-testing")
        try:
            return cast(CreateTopicsResponse, await client.ask(request))
        finally:
            await client.close()

    def __repr__(self) -> str:
        return _shown("AsyncEmbeddedBroker", self)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.stop()


def _runtime_of(loop: asyncio.AbstractEventLoop) -> tuple[Runtime, Callable[[], None]]:
    """What a node on this loop is handed for time, chance and work that blocks, and how that ends."""
    if isinstance(loop, VirtualTimeLoop):
        # Each start draws numbers of its own: a broker that came back with the same ones would be the same incarnation.
        return SimulatedRuntime(loop, Random(loop.next_number())), lambda: None
    runtime = SystemRuntime()
    return runtime, runtime.close


class EmbeddedBroker:
    """A broker in a thread of its own, for code without an event loop; see `AsyncEmbeddedBroker` for the arguments.

    `async with EmbeddedBroker() as broker` gives an `AsyncEmbeddedBroker` on the running loop instead.
    """

    def __init__(
        self,
        data_dir: str | PathLike[str] | None = None,
        *,
        listen: str = "127.0.0.1:0",
        overrides: Mapping[str, object] | None = None,
        security: Security | None = None,
        **settings: object,
    ) -> None:
        self._broker = AsyncEmbeddedBroker(data_dir, listen=listen, overrides=overrides, security=security, **settings)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._thread: threading.Thread | None = None

    @property
    def bootstrap_servers(self) -> str:
        """`host:port`, as clients want it."""
        return self._broker.bootstrap_servers

    @property
    def metrics_url(self) -> str:
        """Where its metrics are, if it has a `metrics.listener`."""
        return self._broker.metrics_url

    @property
    def is_running(self) -> bool:
        return self._broker.is_running

    @property
    def security(self) -> Security:
        """What it was given; with the settings for clients."""
        return self._broker.security

    @property
    def faults(self) -> Faults:
        """What shall go wrong next."""
        return self._broker.faults

    def start(self) -> None:
        """Start, and return once it answers. What keeps it from starting is raised here."""
        if self._thread is not None:
            raise BarnabasError("the embedded broker is already running")
        self._loop = new_event_loop()
        # A daemon, so that a test that forgets to stop its broker does not keep the interpreter from ending.
        self._thread = threading.Thread(target=self._loop.run_forever, name="embedded-broker", daemon=True)
        self._thread.start()
        try:
            self._do(self._broker.start())
        except BaseException:
            self._end_thread()
            raise

    def stop(self) -> None:
        """Stop cleanly. Stopping again does nothing."""
        if self._thread is not None:
            try:
                self._do(self._broker.stop())
            finally:
                self._end_thread()

    def restart(self) -> None:
        """Stop and start, on the same port and with the same data, also when they are in memory."""
        self._do(self._broker.restart())

    def create_topic(
        self, name: str, partitions: int = 1, config: Mapping[str, object] | None = None, **keywords: object
    ) -> None:
        """Create a topic. Its settings are given by Kafka's names in `config`, or as keywords: `retention_ms=1000`."""
        self._do(self._broker.create_topic(name, partitions, config, **keywords))

    def _do(self, work: Coroutine[Any, Any, T]) -> T:
        if self._loop is None:
            work.close()
            raise BarnabasError("the embedded broker is not running")
        return asyncio.run_coroutine_threadsafe(work, self._loop).result()

    def _end_thread(self) -> None:
        loop, thread = self._loop, self._thread
        self._loop = self._thread = None
        if loop is not None and thread is not None:
            loop.call_soon_threadsafe(loop.stop)
            thread.join()
            loop.close()

    def __repr__(self) -> str:
        return _shown("EmbeddedBroker", self._broker)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.stop()

    async def __aenter__(self) -> AsyncEmbeddedBroker:
        await self._broker.start()
        return self._broker

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self._broker.stop()


def _shown(kind: str, broker: AsyncEmbeddedBroker) -> str:
    """`<EmbeddedBroker 127.0.0.1:41234, running>`; without an address where it has none yet."""
    address = f" {broker.bootstrap_servers}" if broker._port else ""
    if not broker.is_running:
        return f"<{kind}{address}, not running>"
    return f"<{kind}{address}, {'failed' if broker.node.failure is not None else 'running'}>"


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
