"""A node: its parts made in order, started, and stopped in reverse.

The order of the start is the order of trust. The directories are locked before anything in them is read; the metadata
log says which topics there are before their logs are opened; the logs are recovered before anybody may ask. The ports
are bound early, since one that the system chose must be known to be advertised, but requests wait until all is ready.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from ipaddress import ip_address
from typing import Final

from barnabas.base.errors import BarnabasError, BrokerError, SettingsError
from barnabas.base.log_context import logger, speak_as, speaking
from barnabas.base.metrics.registry import RecordingLevel
from barnabas.base.runtime import Runtime, SystemClock
from barnabas.broker.authorization import follow, make_authorizer
from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.configs.config_resources import effective_settings
from barnabas.broker.configs.part_options import (
    channel_limits,
    forwarding_limits,
    heartbeat_limits,
    listener_specs,
    server_limits,
)
from barnabas.broker.configs.sasl_options import SaslParts
from barnabas.broker.controller.controller_channel import NodeToControllerChannel
from barnabas.broker.controller_server import ControllerServer
from barnabas.broker.handlers import broker_handlers, controller_handlers
from barnabas.broker.lifecycle import BrokerState, advertised_listeners
from barnabas.broker.metrics.elections import ElectionWatch
from barnabas.broker.metrics.metrics_server import MetricsServer
from barnabas.broker.metrics.sources import NodeParts
from barnabas.broker.node_tls import METRICS_LISTENER, NodeTls
from barnabas.broker.quorum.formatting import NodeIdentity, check_features, read_bootstrap, read_identity
from barnabas.broker.quorum.quorum_addresses import bootstrap_addresses, quorum_voters
from barnabas.broker.quorum.quorum_transport import QuorumTransport
from barnabas.broker.quorum.quorum_watch import QuorumWatch
from barnabas.broker.quorum.raft_quorum import RaftQuorum, controller_addresses
from barnabas.broker.quorum.snapshot_generator import SnapshotGenerator
from barnabas.broker.quotas.connection_limits import ConnectionLimits
from barnabas.broker.request_log import RequestLog
from barnabas.broker.router import Interceptor, Router, is_urgent
from barnabas.broker.services import Services
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.state_lines import ControllerChanges
from barnabas.broker.turns import Turns
from barnabas.metadata.access_images import ClientQuotasImage, ScramCredentialData, ScramUser
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.net import RequestMeter, Server
from barnabas.net.security import ChannelSecurity
from barnabas.raft.types import LeaderAndEpoch
from barnabas.storage.files import FileSystem
from barnabas.wire.stored.cluster_metadata import UserScramCredentialRecord

_log = logger("barnabas.broker")

_DRAIN_TIMEOUT_MS: Final = 5000
_LOOK_S: Final = 0.005


class Node:
    """A broker and a controller in one process, on one event loop, over one replica of the metadata log.

    `start` raises one clear error or leaves a node that answers; `stop` may be called at any time, also during that.
    """

    def __init__(self, settings: BrokerSettings, *, files: FileSystem, runtime: Runtime) -> None:
        self._static_settings = settings
        self._name = f"node {settings.node_id}"
        self._files = files
        self._runtime = runtime
        self._tls = NodeTls(settings)
        # Where time is virtual, requests take what the loop says.
        meter = RequestMeter() if isinstance(runtime.clock, SystemClock) else None
        if meter is not None:
            meter.is_recording = settings.metrics_requests_enable
        self._server = Server(is_urgent, server_limits(settings), meter)
        self._request_log = RequestLog(self._server, settings.security_protocols)
        self._connection_limits = ConnectionLimits(self._server, settings)
        self._sasl = SaslParts(settings, runtime, lambda: self.loader.image, self._formatted_users)
        turns = Turns()
        self._broker_router = Router(broker_handlers(), turns)
        self._controller_router = Router(controller_handlers(), turns)
        #: What this node knows of the cluster.
        self.loader = MetadataLoader()
        self._started = AsyncExitStack()
        self._starting: asyncio.Task[None] | None = None
        self._stopping = asyncio.Lock()
        self._is_ready = False
        self._is_stopped = False
        self._cluster_id = ""
        self._quorum: RaftQuorum | None = None
        self._broker: BrokerServer | None = None
        self._controller: ControllerServer | None = None
        self._failure: asyncio.Future[BarnabasError] | None = None
        self._authorizer = make_authorizer(settings)
        self._elections = ElectionWatch(self.loader.image)
        self.metrics = MetricsServer(
            settings, self._parts, self._why_not_ready, self._tls.of_listener(METRICS_LISTENER)
        )

    @property
    def endpoints(self) -> dict[str, tuple[str, int]]:
        """Where each listener is bound: host as it was given, port as it is."""
        return self._server.endpoints

    @property
    def bootstrap(self) -> str:
        """What a client is to be given: what the first listener that is not a controller's advertises."""
        first = advertised_listeners(self._static_settings, self.endpoints)[0]
        return f"[{first.host}]:{first.port}" if ":" in first.host else f"{first.host}:{first.port}"

    @property
    def described(self) -> str:
        """What a person is told: where clients find it or, if it is no broker, where other nodes do."""
        if self._static_settings.is_broker:
            return f"bootstrap {self.bootstrap}"
        host, port = self.endpoints[self._static_settings.controller_listeners[0]]
        return f"controller {host or '*'}:{port}"

    @property
    def waits_for(self) -> str | None:
        """What keeps it from knowing what the cluster knows; None if nothing does, or it has not come so far."""
        quorum = self._quorum
        return quorum.waits_for() if quorum is not None and quorum.is_open and not quorum.is_caught_up else None

    @property
    def services(self) -> Services:
        if self._broker is None:
            raise BarnabasError("the node is not started")
        return self._broker.services

    @property
    def quorum(self) -> RaftQuorum:
        if self._quorum is None:
            raise BarnabasError("the node is not started")
        return self._quorum

    @property
    def interceptor(self) -> Interceptor | None:
        """Sees each request before its handler, and may answer in its place; for fault injection."""
        return self._broker_router.interceptor

    @interceptor.setter
    def interceptor(self, interceptor: Interceptor | None) -> None:
        self._broker_router.interceptor = self._controller_router.interceptor = interceptor

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
        # All that the node does follows from this task, and says whose it is.
        speak_as(self._name)
        loop = asyncio.get_running_loop()
        failed = self._failure = loop.create_future()
        starting = loop.create_task(self._start(), name="start the parts of the node")
        try:
            # A part that fails meanwhile may be what the others wait for.
            await asyncio.wait({starting, failed}, return_when=asyncio.FIRST_COMPLETED)
            if not starting.done():
                raise failed.result()
            starting.result()
        except BaseException as failure:
            starting.cancel()
            await asyncio.wait({starting})
            await self._started.aclose()
            if isinstance(failure, BrokerError) and self.failure is not None:
                # Who waited for the controller was told that it is gone; this is why.
                raise self.failure from None
            raise

    async def _start(self) -> None:
        settings, runtime, files = self._static_settings, self._runtime, self._files
        _log.info("Starting node %d with its data in %s", settings.node_id, ", ".join(settings.data_dirs))
        identity = read_identity(files, settings)
        self._cluster_id = identity.cluster_id
        loader = self.loader
        transport = QuorumTransport(
            runtime.randomness, f"raft-client-{settings.node_id}", channel_limits(settings), self._to_controllers
        )
        quorum = self._quorum = RaftQuorum(
            files,
            settings,
            identity,
            runtime,
            loader,
            self._fail,
            transport=transport,
            voters=quorum_voters(settings),
            bootstrap=bootstrap_addresses(settings),
            listeners=controller_addresses(settings),
        )
        broker = self._broker = self._make_broker(identity, loader) if settings.is_broker else None
        if self._authorizer is not None:
            self._started.callback(self._authorizer.close)
        if broker is not None:
            broker.open_directories()
            self._started.push_async_callback(broker.close)
        await self._sasl.start()
        self._started.push_async_callback(self._sasl.stop)
        # Before the slow part of the start, so that a port that is taken is told at once.
        self._started.push_async_callback(self._server.stop, 0)
        self._request_log.start(settings.logging_slow_request_ms)
        self._started.callback(self._request_log.stop)
        self._started.push_async_callback(self._connection_limits.stop)
        await self._connection_limits.start()
        await self._listen()
        await self.metrics.start(identity.node_id, identity.cluster_id)
        self._started.push_async_callback(self.metrics.stop)
        self._warn_of_open_listeners()
        await quorum.open()
        self._started.push_async_callback(quorum.stop)
        # All that may refuse the start comes before anything is written.
        check_features(loader.image.features, quorum.log.directory)
        if broker is not None and quorum.is_alone:
            await broker.refuse_unknown_partitions(quorum.history)
        follow(self._authorizer, loader, lambda: quorum.is_caught_up)
        controller = self._controller = (
            self._make_controller(identity, loader, quorum, transport) if settings.is_controller else None
        )
        if controller is not None:
            controller.start()
            self._started.push_async_callback(controller.stop)
        else:
            loader.publish_to(ControllerChanges())
        until_applied = _at_once if broker is None else broker.until_applied
        snapshots = SnapshotGenerator(quorum, loader, settings, runtime, until_applied)
        loader.publish_to(snapshots)
        loader.publish_to(_FeatureWatch(quorum.log.directory, self._fail))
        quotas = _QuotaWatch(self._apply_quotas)
        quotas.take(loader.publish_to(quotas))
        if self.metrics.is_wanted:
            loader.publish_to(self._elections)
        self._follow_security(loader)
        self._started.push_async_callback(snapshots.stop)
        await quorum.start()
        watch = None if quorum.is_alone else self._watch(quorum, identity)
        if controller is not None:
            controller.open()
            self._register(controller, quorum)
            if quorum.is_alone:
                await controller.controller.until_active()
        if broker is not None:
            await (self._catch_up(quorum) if watch is None else watch.done())
            await self._start_broker(broker, quorum, controller, loader)
        if self.failure is not None:
            raise self.failure
        # When the node stops: who waits for a group or for records is answered first, so that nobody waits for them.
        self._started.push_async_callback(self._server.stop, _DRAIN_TIMEOUT_MS)
        if broker is not None:
            self._started.push_async_callback(broker.stop_serving)
            if not quorum.is_alone:
                # Before anybody is turned away here, others lead what they can: clients are told whom to ask.
                self._started.push_async_callback(broker.hand_over)
        self._is_ready = True
        _log.info("Node %d of cluster %s started, %s", identity.node_id, identity.cluster_id, self.described)

    def _parts(self) -> NodeParts:
        settings = self._static_settings
        return NodeParts(
            node_id=settings.node_id,
            cluster_id=self._cluster_id,
            runtime=self._runtime,
            loader=self.loader,
            server=self._server,
            broker=self._broker,
            controller=self._controller,
            quorum=self._quorum,
            elections=self._elections,
            level=RecordingLevel[settings.metrics_recording_level],
        )

    def _why_not_ready(self) -> str | None:
        """What keeps clients, or other nodes, from being served; None if nothing does."""
        if self._is_stopped:
            return "the node is stopping"
        if self.failure is not None:
            return f"the node cannot go on: {self.failure}"
        if not self._is_ready:
            return self.waits_for or "the node starts"
        if self._broker is None:
            return self.waits_for
        state = self._broker.state
        if state is not BrokerState.RUNNING:
            return f"the broker is {state.name}"
        own = self.loader.image.brokers.get(self._static_settings.node_id)
        if own is None or own.is_fenced:
            return "the broker is fenced"
        return self.waits_for if self._static_settings.is_controller else None

    def _watch(self, quorum: RaftQuorum, identity: NodeIdentity) -> QuorumWatch:
        limits, randomness = channel_limits(self._static_settings), self._runtime.randomness
        watch = QuorumWatch(quorum, identity.cluster_id, randomness, limits, self._fail, self._to_controllers)
        self._started.push_async_callback(watch.stop)
        watch.start()
        return watch

    def _follow_security(self, loader: MetadataLoader) -> None:
        """Keys, certificates, users and mechanisms may change while the node runs: by settings in the metadata log, and
        the first two in their files."""
        if not (self._tls.is_used or self._sasl.is_used):
            return
        follower = _SecurityWatch(self._tls, self._sasl, self._static_settings)
        follower.take(loader.publish_to(follower))
        if not self._tls.is_used:
            return
        watching = asyncio.get_running_loop().create_task(self._tls.watch(), name="watch certificates")
        self._started.callback(watching.cancel)

    def _warn_of_open_listeners(self) -> None:
        for endpoint in self._static_settings.endpoints:
            name = endpoint.listener
            host, port = self.endpoints.get(name, ("127.0.0.1", 0))
            if _is_loopback(host) or self._static_settings.asks_for_sasl(name) or self._tls.knows_peers(name):
                continue
            if name in self._static_settings.controller_listeners:
                _log.warning(
                    "The controllers' listener %s at %s:%d can be reached from other machines, and believes whoever "
                    "connects: let nobody but the nodes of this cluster reach it",
                    name,
                    host or "*",
                    port,
                )
            if self._authorizer is not None:
                _log.warning(
                    "There is an authorizer, but on the listener %s at %s:%d, which can be reached from other "
                    "machines, everybody is User:ANONYMOUS: what that may do, anybody may",
                    name,
                    host or "*",
                    port,
                )

    def _apply_quotas(self, quotas: ClientQuotasImage) -> None:
        self._connection_limits.set_quotas(quotas)
        # Quotas go by what is counted of requests.
        self._server.meter.is_recording = self._static_settings.metrics_requests_enable or bool(quotas)

    def _make_broker(self, identity: NodeIdentity, loader: MetadataLoader) -> BrokerServer:
        return BrokerServer(
            self._static_settings,
            identity,
            loader,
            files=self._files,
            runtime=self._runtime,
            router=self._broker_router,
            response_room=self._server.room_for_responses,
            on_settings=self._follow_settings,
            on_failure=self._fail,
            kraft_version=lambda: self.quorum.kraft_version,
            authorizer=self._authorizer,
            security=self._way_to(self._static_settings.inter_broker_listener),
            tls=self._tls,
            sasl=self._sasl,
        )

    def _follow_settings(self, changed: BrokerSettings) -> None:
        self._connection_limits.set_settings(changed)
        self._request_log.set_slow_ms(changed.logging_slow_request_ms)

    @property
    def _to_controllers(self) -> ChannelSecurity:
        """How controllers are reached: all by the first of their listeners."""
        return self._way_to(self._static_settings.controller_listeners[0])

    def _way_to(self, listener: str) -> ChannelSecurity:
        """How nodes are reached that listen under a name."""
        return ChannelSecurity(self._sasl.login_to(listener), self._tls.way_to(listener))

    def _formatted_users(self) -> Mapping[ScramUser, ScramCredentialData]:
        """Whom the node was formatted with."""
        return {
            ScramUser(each.name, each.mechanism): ScramCredentialData(
                each.salt, each.stored_key, each.server_key, each.iterations
            )
            for each in read_bootstrap(self._files, self._static_settings.metadata_dir)
            if isinstance(each, UserScramCredentialRecord)
        }

    def _make_controller(
        self, identity: NodeIdentity, loader: MetadataLoader, quorum: RaftQuorum, transport: QuorumTransport
    ) -> ControllerServer:
        return ControllerServer(
            self._static_settings,
            identity,
            quorum,
            loader,
            files=self._files,
            runtime=self._runtime,
            router=self._controller_router,
            endpoints=self.endpoints,
            transport=transport,
            on_failure=self._fail,
            local_broker=identity.node_id if self._static_settings.is_broker else None,
            authorizer=self._authorizer,
        )

    def _register(self, controller: ControllerServer, quorum: RaftQuorum) -> None:
        """A way of its own to the active controller: that of the broker waits for what was applied."""
        channel = NodeToControllerChannel(
            quorum,
            controller.controller,
            _at_once,
            is_visible=lambda request, response: True,
            randomness=self._runtime.randomness,
            limits=channel_limits(self._static_settings),
            own_limits=heartbeat_limits(self._static_settings),
            is_alone=quorum.is_alone,
            security=self._to_controllers,
        )
        self._started.push_async_callback(channel.close)
        controller.register(channel)

    async def _start_broker(
        self, broker: BrokerServer, quorum: RaftQuorum, controller: ControllerServer | None, loader: MetadataLoader
    ) -> None:
        """Join the cluster; this node knows what the cluster knows."""
        if self.failure is not None:
            raise self.failure
        channel = NodeToControllerChannel(
            quorum,
            None if controller is None else controller.controller,
            broker.until_applied,
            is_visible=broker.is_visible,
            randomness=self._runtime.randomness,
            limits=forwarding_limits(self._static_settings),
            own_limits=heartbeat_limits(self._static_settings),
            is_alone=quorum.is_alone,
            security=self._to_controllers,
        )
        channel.on_lost = broker.nudge
        loader.publish_to(channel)
        broker.controller_versions = lambda: channel.controller_versions
        self._started.push_async_callback(channel.close)
        self._started.push_async_callback(broker.stop)
        await broker.start(channel, self.endpoints)
        if controller is not None:
            controller.controller.local_broker_lives()
        broker.open()

    async def _catch_up(self, quorum: RaftQuorum) -> None:
        """Wait until this replica has what is committed."""
        while not quorum.is_caught_up:
            if self.failure is not None:
                raise self.failure
            await asyncio.sleep(_LOOK_S)

    async def _listen(self) -> None:
        """Each listener is served by the role that it belongs to."""
        specs = listener_specs(self._static_settings, self._sasl, self._tls)
        controllers = self._static_settings.controller_listeners
        brokers = [spec for spec in specs if spec.name not in controllers]
        await self._server.start(brokers, self._broker_router.dispatch)
        await self._server.start([spec for spec in specs if spec.name in controllers], self._controller_router.dispatch)

    # While it runs

    def _fail(self, failure: BaseException) -> None:
        if self._failure is not None and not self._failure.done():
            known = failure if isinstance(failure, BarnabasError) else BarnabasError(f"the node failed: {failure!r}")
            self._failure.set_result(known)
            # What a disk refuses says where by itself.
            trace = None if known is failure or isinstance(failure, OSError) else failure
            _log.critical("the node cannot go on: %s", known, exc_info=trace)
            if self._controller is not None:
                self._controller.controller.close(f"the node cannot go on: {known}")

    # Stop

    async def stop(self) -> None:
        """Answer what was asked, hand over, bring everything to disk. Nothing happens if the node is not started."""
        self._is_stopped = True
        if self._starting is not None and not self._starting.done():
            self._starting.cancel()
            await asyncio.wait([self._starting])
        with speaking(self._name):
            await self._stop()

    async def _stop(self) -> None:
        # Who comes second waits for the first, and then finds nothing to do.
        async with self._stopping:
            if self._is_ready:
                _log.info("Node %d is shutting down", self._static_settings.node_id)
            await self._started.aclose()
            if self._is_ready:
                _log.info("Node %d: shut down completed", self._static_settings.node_id)
            self._is_ready = False


class _FeatureWatch:
    """Ends the node when the cluster is moved to a level that is not built, or turns out to be there."""

    def __init__(self, where: str, on_failure: Callable[[BaseException], None]) -> None:
        self._where = where
        self._on_failure = on_failure

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        if update.delta.features_changed:
            try:
                check_features(update.image.features, self._where)
            except BarnabasError as problem:
                self._on_failure(problem)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing: it does not matter who leads."""


class _QuotaWatch:
    """Tells the node which quotas there are, whatever its roles: those of addresses are of all its listeners."""

    def __init__(self, apply: Callable[[ClientQuotasImage], None]) -> None:
        self._apply = apply
        self._quotas = ClientQuotasImage()

    def take(self, image: ClusterImage) -> None:
        if image.client_quotas is not self._quotas:
            self._quotas = image.client_quotas
            self._apply(self._quotas)

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self.take(update.image)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing: it does not matter who leads."""


class _SecurityWatch:
    """Has TLS and SASL follow the settings that were changed at run time."""

    def __init__(self, tls: NodeTls, sasl: SaslParts, static: BrokerSettings) -> None:
        self._tls = tls
        self._sasl = sasl
        self._static = static

    def take(self, image: ClusterImage) -> None:
        settings = effective_settings(self._static, image, self._static.node_id)
        self._tls.apply(settings)
        try:
            self._sasl.check(settings)
        except SettingsError as problem:
            # What the file says may have changed since it was accepted.
            _log.error("SASL stays as it is: %s", problem)
        else:
            self._sasl.apply(settings)

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        if any(each.type == ConfigResourceType.BROKER for each in update.delta.configs_changed):
            self.take(update.image)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        """Nothing: it does not matter who leads."""


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


async def _at_once(_: int) -> bool:
    """Nothing has to be done for an offset where there is no broker."""
    return True
