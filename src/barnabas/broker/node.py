"""A node: its parts made in order, started, and stopped in reverse.

The order of the start is the order of trust. The directories are locked before anything in them is read; the metadata
log says which topics there are before their logs are opened; the logs are recovered before anybody may ask. The ports
are bound early, since one that the system chose must be known to be advertised, but requests wait until all is ready.
"""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.base.runtime import Runtime
from barnabas.broker.config_resources import controller_options, effective_settings
from barnabas.broker.context import AllowEverything, NoQuotas
from barnabas.broker.controller_gateway import ControllerGateway
from barnabas.broker.formatting import NodeIdentity, read_identity, refuse_larger_quorums
from barnabas.broker.groups import GroupService
from barnabas.broker.handlers import all_handlers
from barnabas.broker.limits import cleaner_options, listener_specs, log_options, server_limits
from barnabas.broker.periodic import Scheduler
from barnabas.broker.producer_ids import ProducerIdPool
from barnabas.broker.publisher import MetadataPublisher
from barnabas.broker.quorum_of_one import QuorumOfOne
from barnabas.broker.registration import Registration
from barnabas.broker.replica_manager import ReplicaManager
from barnabas.broker.router import Interceptor, Router, is_urgent
from barnabas.broker.services import MetadataCache, Services
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.strays import NamedTopics, refuse_unknown
from barnabas.broker.topic_settings import effective_topic_settings
from barnabas.metadata.controller import Controller
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage, ResourceType
from barnabas.net import Server
from barnabas.replication.fetch_sessions import FetchSessionCache
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.directories import LogDirectory
from barnabas.storage.files import FileSystem
from barnabas.storage.manager import LogManager
from barnabas.storage.settings import TopicSettings

_log = logging.getLogger("barnabas.broker")

_DRAIN_TIMEOUT_MS: Final = 5000


class Node:
    """A broker and controller in one process, on one event loop.

    `start` raises one clear error or leaves a node that answers; `stop` may be called at any time, also during that.
    """

    def __init__(self, settings: BrokerSettings, *, files: FileSystem, runtime: Runtime) -> None:
        self._static_settings = settings
        self._files = files
        self._runtime = runtime
        self._router = Router(all_handlers(), settings.controller_listeners)
        self._server = Server(self._router.dispatch, is_urgent, server_limits(settings))
        self._started = AsyncExitStack()
        self._starting: asyncio.Task[None] | None = None
        self._stopping = asyncio.Lock()
        self._is_stopped = False
        self._services: Services | None = None
        self._failure: asyncio.Future[BarnabasError] | None = None
        self._broker_epoch = -1

    @property
    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Where each listener is bound: host as it was given, port as it is."""
        return self._server.endpoints

    @property
    def bootstrap(self) -> str:
        """What a client is to be given: the first listener that is not a controller's."""
        names = [each.listener for each in self._static_settings.endpoints]
        name = next(name for name in names if name not in self._static_settings.controller_listeners)
        host, port = self.endpoints[name]
        return f"[{host}]:{port}" if ":" in host else f"{host or 'localhost'}:{port}"

    @property
    def services(self) -> Services:
        if self._services is None:
            raise BarnabasError("the node is not started")
        return self._services

    @property
    def interceptor(self) -> Interceptor | None:
        """Sees each request before its handler, and may answer in its place; for fault injection."""
        return self._router.interceptor

    @interceptor.setter
    def interceptor(self, interceptor: Interceptor | None) -> None:
        self._router.interceptor = interceptor

    @property
    def failure(self) -> BarnabasError | None:
        """Why the node cannot go on; None while it can."""
        return self._failure.result() if self._failure is not None and self._failure.done() else None

    async def failed(self) -> BarnabasError:
        """Waits until the node cannot go on, and says why; the caller then stops it."""
        if self._failure is None:
            raise BarnabasError("the node is not started")
        return await asyncio.shield(self._failure)

    # Start

    async def start(self) -> None:
        if self._starting is not None or self._is_stopped:
            raise BarnabasError("a node is started once")
        self._starting = asyncio.get_running_loop().create_task(self._start_or_clean_up(), name="start the node")
        try:
            await self._starting
        except asyncio.CancelledError:
            if self._is_stopped:
                raise BarnabasError("the node was stopped before it was ready") from None
            raise

    async def _start_or_clean_up(self) -> None:
        try:
            await self._start()
        except BaseException:
            await self._started.aclose()
            raise

    async def _start(self) -> None:
        settings, runtime = self._static_settings, self._runtime
        refuse_larger_quorums(settings)
        self._failure = asyncio.get_running_loop().create_future()
        identity = read_identity(self._files, settings)
        logs = LogManager(
            self._files,
            settings.data_dirs,
            lambda topic: self._topic_settings(publisher.committed, topic),
            runtime,
            log_options(settings),
            LogCleaner(runtime, cleaner_options(settings)),
        )
        publisher = MetadataPublisher(self._apply, self._fail)
        quorum = QuorumOfOne(self._files, settings, identity, runtime)

        logs.on_directory_failed = self._on_directory_failed
        logs.open_directories()
        self._started.push_async_callback(self._stop_logs, logs)
        # Before the slow part of the start, so that a port that is taken is told at once.
        await self._server.start(listener_specs(settings))
        self._started.push_async_callback(self._server.stop, 0)
        await quorum.start(
            publisher.on_snapshot,
            publisher.on_commit,
            state_records=publisher.state_records,
            on_failure=self._fail,
            before_leading=lambda: self._refuse_unknown_partitions(logs, publisher, quorum),
            until_applied=publisher.until_applied,
        )
        self._started.push_async_callback(quorum.stop)
        self._started.push_async_callback(publisher.stop)
        await logs.load_logs()
        services = self._services = self._make_services(identity, publisher, quorum, logs)
        # Before the image is applied: from then on a snapshot may forget that they were deleted.
        services.replica_manager.set_aside_strays(publisher.committed)
        await publisher.start()
        await services.controller.activate()
        self._started.callback(services.controller.close)
        registration = Registration(services, identity, settings)
        await registration.join()
        self._started.push_async_callback(self._leave, registration)
        self._started.callback(services.producer_ids.close)
        scheduler = Scheduler(logs.tasks())
        self._started.push_async_callback(scheduler.stop)
        if self.failure is not None:
            raise self.failure
        self._router.open(services)
        # When the node stops: who waits for a group or for records is answered first, so that nobody waits for them.
        self._started.push_async_callback(self._server.stop, _DRAIN_TIMEOUT_MS)
        self._started.callback(services.replica_manager.close_purgatories)
        self._started.push_async_callback(services.groups.stop)
        _log.info("node %d of cluster %s is ready at %s", identity.node_id, identity.cluster_id, self.bootstrap)

    async def _refuse_unknown_partitions(
        self, logs: LogManager, publisher: MetadataPublisher, quorum: QuorumOfOne
    ) -> None:
        """Before logs are opened: the settings that they are opened by are in the metadata log, too."""
        found = await logs.found_partitions()
        refuse_unknown(found, publisher.committed, lambda: NamedTopics(*quorum.topics_named()))

    def _make_services(
        self, identity: NodeIdentity, publisher: MetadataPublisher, quorum: QuorumOfOne, logs: LogManager
    ) -> Services:
        settings, runtime = self._static_settings, self._runtime
        effective = effective_settings(settings, publisher.committed, identity.node_id)
        options = controller_options(settings, identity.cluster_id, publisher.committed)
        gateway = ControllerGateway(Controller(publisher.committed, options, runtime.randomness), quorum, runtime.clock)
        replica_manager = ReplicaManager(identity.node_id, logs, self._topic_settings)
        return Services(
            settings=effective,
            runtime=runtime,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            metadata=MetadataCache(),
            logs=logs,
            authorizer=AllowEverything(),
            quotas=NoQuotas(),
            controller=gateway,
            quorum=quorum,
            replica_manager=replica_manager,
            fetch_sessions=FetchSessionCache(settings.max_incremental_fetch_session_cache_slots, runtime.randomness),
            groups=GroupService(effective, runtime, identity.node_id, replica_manager),
            producer_ids=ProducerIdPool(gateway.allocate_producer_ids),
            turns=self._router.turns,
            endpoints=self.endpoints,
            advertised=self._router.advertised,
            response_room=self._server.room_for_responses,
        )

    def _topic_settings(self, image: ClusterImage, topic: str) -> TopicSettings:
        settings = self._static_settings if self._services is None else self._services.settings
        return effective_topic_settings(settings, image, topic)

    # While it runs

    async def _apply(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Bring all parts to an image; only then is it what requests are answered by."""
        services = self.services
        if any(each.type == ResourceType.BROKER for each in delta.configs_changed):
            self._apply_settings(services, image)
        await services.replica_manager.prepare(image, delta)
        services.replica_manager.apply(image, delta)
        services.metadata.image = image
        services.groups.apply(image, delta)
        services.controller.applied(image.offset)

    def _apply_settings(self, services: Services, image: ClusterImage) -> None:
        services.settings = effective_settings(self._static_settings, image, services.node_id)
        services.controller.set_options(controller_options(self._static_settings, services.cluster_id, image))
        services.groups.configure(services.settings)
        services.logs.configure(log_options(services.settings), cleaner_options(services.settings))
        self._server.set_limits(server_limits(services.settings))

    def _on_directory_failed(self, directory: LogDirectory, is_last: bool) -> None:
        """With one directory less the node serves what lies in the others, if it knows what to serve."""
        if directory.path == self._static_settings.metadata_dir:
            self._fail(BarnabasError(f"{directory.failure}; no node can do without the metadata log, which is there"))
        elif is_last:
            self._fail(BarnabasError(f"{directory.failure}; it was the last log directory that could be used"))

    def _fail(self, failure: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            known = failure if isinstance(failure, BarnabasError) else BarnabasError(f"the node failed: {failure!r}")
            self._failure.set_result(known)
            trace = None if known is failure else failure
            _log.critical("the node cannot go on: %s", known, exc_info=trace)
            if self._services is not None:
                self._services.controller.close(f"the node cannot go on: {known}")

    # Stop

    async def stop(self) -> None:
        """Answer what was asked, hand over, bring everything to disk. Nothing happens if the node is not started."""
        self._is_stopped = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        # Who comes second waits for the first, and then finds nothing to do.
        async with self._stopping:
            await self._started.aclose()

    async def _leave(self, registration: Registration) -> None:
        self._broker_epoch = registration.epoch
        if not self._static_settings.controlled_shutdown_enable:
            return
        try:
            await registration.leave()
        except BarnabasError as failure:
            _log.warning("the controller was not told that this broker stops: %s", failure)

    async def _stop_logs(self, logs: LogManager) -> None:
        await logs.stop(self._broker_epoch)
