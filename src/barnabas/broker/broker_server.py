"""The broker role of a node: logs and partitions, groups, and what clients ask.

It knows the cluster by the images of its loader, and asks the controller by message. Whether that is in this process,
and who keeps the metadata log, makes no difference to it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from typing import Final

from barnabas.base.errors import BarnabasError, known
from barnabas.base.quotas import QuotaWindow
from barnabas.base.runtime import Runtime
from barnabas.broker.broker_channels import BrokerChannels
from barnabas.broker.broker_publisher import BrokerMetadataPublisher
from barnabas.broker.change_lines import tell_changes
from barnabas.broker.configs.config_resources import (
    TopicSettingsCache,
    effective_settings,
    tell_unused_min_isr,
)
from barnabas.broker.configs.part_options import channel_limits, cleaner_options, log_options
from barnabas.broker.configs.sasl_options import SaslParts
from barnabas.broker.context import OwnRequestContext
from barnabas.broker.controller.api_versions import common_versions
from barnabas.broker.controller.auto_topic_creation import AutoTopicCreationManager
from barnabas.broker.controller.controller_channel import ControllerChannel, broker_caller
from barnabas.broker.controller.forwarding import FORWARDED
from barnabas.broker.data.add_partitions_to_txn_manager import AddPartitionsToTxnManager
from barnabas.broker.data.alter_partition_manager import AlterPartitionManager, BrokerLeaderPorts
from barnabas.broker.data.directory_assignments import AssignmentsManager
from barnabas.broker.data.producer_ids import ProducerIdPool
from barnabas.broker.data.replica_fetcher import FollowerParts
from barnabas.broker.data.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.broker.data.replica_manager import ReplicaManager
from barnabas.broker.data.strays import named_topics, refuse_unknown
from barnabas.broker.groups.group_coordinator import GroupCoordinatorService
from barnabas.broker.lifecycle import BrokerLifecycle, BrokerState
from barnabas.broker.node_tls import NodeTls
from barnabas.broker.periodic import Scheduler
from barnabas.broker.quorum.formatting import NodeIdentity
from barnabas.broker.quotas.broker_quotas import BrokerQuotas
from barnabas.broker.router import Router
from barnabas.broker.services import MetadataCache, Services
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.state_lines import tell_states
from barnabas.broker.transactions.marker_sender import MarkerSender
from barnabas.broker.transactions.transaction_coordinator import TransactionCoordinatorService
from barnabas.metadata.authorizer import AllowEverything, Authorizer
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import BrokerImage, ClusterImage, ConfigResourceType
from barnabas.metadata.loader import MetadataLoader
from barnabas.net.security import PLAINTEXT, ChannelSecurity
from barnabas.raft.types import CommittedBatch
from barnabas.replication.fetch_sessions import FetchSessionCache
from barnabas.storage.cleaner import LogCleaner
from barnabas.storage.directories import LogDirectory
from barnabas.storage.files import FileSystem
from barnabas.storage.manager import LogManager, PeriodicTask
from barnabas.storage.settings import TopicSettings
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.create_topics import CreateTopicsResponse
from barnabas.wire.messages.delete_topics import DeleteTopicsResponse

#: How often a broker that starts looks whether its registration is in the log that it reads.
_LOOK_S: Final = 0.005
#: How often a disk that was full is tried again.
_ROOM_S: Final = 1.0


class BrokerServer:
    """`on_failure` is told when it cannot go on, `on_settings` of what changed while it runs."""

    def __init__(
        self,
        settings: BrokerSettings,
        identity: NodeIdentity,
        loader: MetadataLoader,
        *,
        files: FileSystem,
        runtime: Runtime,
        router: Router,
        response_room: Callable[[], int],
        on_settings: Callable[[BrokerSettings], None],
        on_failure: Callable[[BaseException], None],
        kraft_version: Callable[[], int] = lambda: 0,
        authorizer: Authorizer | None = None,
        security: ChannelSecurity = PLAINTEXT,
        tls: NodeTls | None = None,
        sasl: SaslParts | None = None,
    ) -> None:
        self._tls = tls
        self._sasl = sasl
        #: How other brokers are reached.
        self._security = security
        self._static_settings = settings
        self._authorizer = authorizer or AllowEverything()
        self._identity = identity
        self._loader = loader
        self._runtime = runtime
        self._response_room = response_room
        self._on_settings = on_settings
        self._on_failure = on_failure
        self._router = router
        self._kraft_version = kraft_version
        #: What the active controller understands, where that is another node.
        self.controller_versions: Callable[[], Mapping[int, tuple[int, int]] | None] = lambda: None
        window = QuotaWindow(settings.quota_window_num, settings.quota_window_size_seconds * 1000)
        self.quotas = BrokerQuotas(window, runtime.clock)
        self._assignments: AssignmentsManager | None = None
        self._alter_partition: AlterPartitionManager | None = None
        self._publisher = BrokerMetadataPublisher(loader, self._apply, on_failure)
        self._services: Services | None = None
        self._topic_settings_cache = TopicSettingsCache()
        self._lifecycle: BrokerLifecycle | None = None
        self._applying_again: asyncio.TimerHandle | None = None
        self._started = AsyncExitStack()
        self.logs = LogManager(
            files,
            settings.data_dirs,
            lambda topic: self._topic_settings(loader.image, topic),
            runtime,
            log_options(settings),
            LogCleaner(runtime, cleaner_options(settings)),
        )
        self.logs.on_directory_failed = self._on_directory_failed

    @property
    def services(self) -> Services:
        if self._services is None:
            raise BarnabasError("the node is not started")
        return self._services

    @property
    def has_services(self) -> bool:
        return self._services is not None

    @property
    def isr_changes(self) -> AlterPartitionManager | None:
        """Who takes them to the controller."""
        return self._alter_partition

    @property
    def queued_assignments(self) -> int:
        """Replicas of which the controller has not been told yet in which directory they lie."""
        return 0 if self._assignments is None else self._assignments.queued_count

    @property
    def state(self) -> BrokerState:
        return BrokerState.NOT_RUNNING if self._lifecycle is None else self._lifecycle.state

    @property
    def broker_epoch(self) -> int:
        return -1 if self._lifecycle is None else self._lifecycle.epoch

    def nudge(self) -> None:
        """The connection to the active controller was lost: say at once that this broker lives."""
        if self._lifecycle is not None:
            self._lifecycle.nudge()

    async def until_applied(self, offset: int) -> bool:
        """Wait until what the log says up to `offset` was done here; False if it will not be."""
        return await self._publisher.until_applied(offset)

    def is_visible(self, request: Request, response: Response) -> bool:
        """Whether this broker acts by what a controller elsewhere has decided."""
        image = self.services.metadata.image
        if isinstance(response, CreateTopicsResponse):
            return all(each.error_code or each.name in image.topics for each in response.topics)
        if isinstance(response, DeleteTopicsResponse):
            return all(
                each.error_code or each.name is None or each.name not in image.topics for each in response.responses
            )
        return True

    # Start, in this order

    def open_directories(self) -> None:
        """Lock the log directories, before anything in them is read."""
        self.logs.open_directories()

    async def refuse_unknown_partitions(self, log: Callable[[], Iterable[CommittedBatch]]) -> None:
        """Before logs are opened: the settings that they are opened by are in the metadata log, too."""
        found = await self.logs.found_partitions()
        refuse_unknown(found, self._loader.image, lambda: named_topics(log()))

    async def start(self, controller: ControllerChannel, endpoints: dict[str, tuple[str, int]]) -> None:
        """Recover the logs, bring everything to the newest image, and join the cluster; `endpoints` are bound."""
        # First, so that whoever waits for something to be applied is told if it never will be.
        self._started.push_async_callback(self._publisher.stop)
        await self.logs.load_logs()
        services = self._services = self._make_services(controller, endpoints)
        self._started.push_async_callback(known(self._alter_partition, "it was just made").stop)
        assignments = self._assignments = AssignmentsManager(
            controller, self._identity.node_id, lambda: self.broker_epoch, self.logs, self._identity.directory_ids
        )
        self._started.push_async_callback(assignments.stop)
        services.replica_manager.on_corrupt = lambda name: assignments.apply(services.metadata.image, [name])
        fetchers = services.replica_manager.fetchers = self._make_fetchers(services)
        self._started.push_async_callback(fetchers.stop)
        self._started.callback(services.auto_topic_creation.close)
        self._started.push_async_callback(services.brokers.close)
        self._started.push_async_callback(services.transaction_partitions.close)
        lifecycle = self._lifecycle = BrokerLifecycle(
            services, self._identity, self._static_settings, lambda: self._loader.image, self._on_failure
        )
        self._started.push_async_callback(lifecycle.leave)
        await lifecycle.register()
        await self._until_loaded(lifecycle.epoch)
        # Before the image is applied: from then on a snapshot may forget that they were deleted.
        services.replica_manager.set_aside_strays(self._loader.image)
        await self._publisher.start()
        tell_unused_min_isr(self._static_settings, self._loader.image)
        await lifecycle.join()
        self._started.callback(services.producer_ids.close)
        scheduler = Scheduler([*self.logs.tasks(), self._isr_expiration(services.replica_manager)])
        self._started.push_async_callback(scheduler.stop)

    async def _until_loaded(self, broker_epoch: int) -> None:
        """Wait for the record of this broker's registration, whose offset is its epoch.

        What the log says before that is of this broker's last life: it would lead by it, although it may have lost
        records since that others wait for.
        """
        while self._loader.offset < broker_epoch:  # noqa: ASYNC110
            await asyncio.sleep(_LOOK_S)

    def _isr_expiration(self, replica_manager: ReplicaManager) -> PeriodicTask:
        interval_ms = max(1, self._static_settings.replica_lag_time_max_ms // 2)
        return PeriodicTask("isr-expiration", interval_ms, replica_manager.maybe_shrink_isrs)

    def open(self) -> None:
        """Answer requests."""
        self.services.groups.start()
        self.services.transactions.start()
        self._router.open(self.services)

    def _make_services(self, controller: ControllerChannel, endpoints: dict[str, tuple[str, int]]) -> Services:
        settings, runtime, node_id = self._static_settings, self._runtime, self._identity.node_id
        effective = effective_settings(settings, self._loader.image, node_id)
        metadata = MetadataCache()
        self._alter_partition = AlterPartitionManager(controller, node_id, lambda: self.broker_epoch)
        leader_ports = BrokerLeaderPorts(
            metadata,
            runtime.clock,
            lambda: self.broker_epoch,
            settings.replica_lag_time_max_ms,
            self._alter_partition.submit,
        )
        replica_manager = ReplicaManager(node_id, self.logs, self._topic_settings, leader_ports)
        replica_manager.must_be_verified = lambda: self.services.settings.transaction_partition_verification_enable
        producer_ids = ProducerIdPool(controller, node_id, lambda: self.broker_epoch)
        brokers = BrokerChannels(
            node_id,
            settings.inter_broker_listener,
            runtime.randomness,
            channel_limits(settings),
            self._call,
            self._security,
        )
        markers = MarkerSender(brokers, lambda: metadata.image, settings.request_timeout_ms)
        return Services(
            settings=effective,
            runtime=runtime,
            node_id=node_id,
            cluster_id=self._identity.cluster_id,
            metadata=metadata,
            authorizer=self._authorizer,
            quotas=self.quotas,
            controller=controller,
            turns=self._router.turns,
            endpoints=endpoints,
            advertised=lambda: common_versions(self._router.advertised(), FORWARDED, self.controller_versions()),
            kraft_version=self._kraft_version,
            logs=self.logs,
            replica_manager=replica_manager,
            fetch_sessions=FetchSessionCache(settings.max_incremental_fetch_session_cache_slots, runtime.randomness),
            groups=GroupCoordinatorService(effective, runtime, node_id, replica_manager),
            transactions=TransactionCoordinatorService(
                effective, runtime, node_id, replica_manager, producer_ids.take, markers
            ),
            producer_ids=producer_ids,
            auto_topic_creation=AutoTopicCreationManager(controller, lambda: self.services.settings),
            response_room=self._response_room,
            tls=self._tls,
            sasl=self._sasl,
            brokers=brokers,
            transaction_partitions=AddPartitionsToTxnManager(brokers, metadata, lambda: self.services.settings),
        )

    async def _call(self, request: Request, version: int) -> Response:
        """Answer what this broker asks of itself."""
        caller = broker_caller(self._identity.node_id)
        context = OwnRequestContext(
            ApiKey(request.API_KEY),
            version,
            0,
            caller.client_id,
            self._static_settings.inter_broker_listener,
            caller.principal,
            caller.client_host,
        )
        return await self._router.call(context, request)

    def _make_fetchers(self, services: Services) -> ReplicaFetcherManager:
        return ReplicaFetcherManager(
            FollowerParts(
                node_id=services.node_id,
                logs=self.logs,
                runtime=self._runtime,
                settings=services.settings,
                broker_epoch=lambda: self.broker_epoch,
                log_failed=services.replica_manager.log_failed,
                security=self._security,
            )
        )

    def _topic_settings(self, image: ClusterImage, topic: str) -> TopicSettings:
        settings = self._static_settings if self._services is None else self._services.settings
        return self._topic_settings_cache.find(settings, image, topic)

    # While it runs

    async def _apply(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Bring all parts to an image; only then is it what requests are answered by."""
        services = self.services
        before = services.metadata.image
        if any(each.type == ConfigResourceType.BROKER for each in delta.configs_changed):
            self._apply_settings(services, image)
        await services.replica_manager.prepare(image, delta)
        services.replica_manager.apply(image, delta)
        if self._assignments is not None:
            self._assignments.apply(image, delta.partitions_changed)
        services.metadata.image = image
        if image.client_quotas is not before.client_quotas:
            self.quotas.set_quotas(image.client_quotas)
        if delta.brokers_changed:
            services.brokers.apply(image, delta.brokers_changed)
            services.replica_manager.brokers_changed()
            if any(self._is_waited_for_by(image.brokers.get(each)) for each in delta.brokers_changed):
                self.nudge()
        services.groups.apply(image, delta)
        services.transactions.apply(image, delta)
        tell_changes(before, image, delta)
        tell_states(before, image, delta, services.node_id)
        self._apply_again_later()

    def _apply_again_later(self) -> None:
        """What the disk had no room for is tried again until it has."""
        if self.services.replica_manager.without_room and self._applying_again is None:
            self._applying_again = asyncio.get_running_loop().call_later(_ROOM_S, self._apply_again)

    def _apply_again(self) -> None:
        self._applying_again = None
        self._publisher.apply_again(self.services.replica_manager.without_room)

    def _is_waited_for_by(self, broker: BrokerImage | None) -> bool:
        """Whether a broker stops: it ends when all others have said, with their next heartbeats, that they know who
        leads in its place."""
        return broker is not None and broker.in_controlled_shutdown and broker.broker_id != self._identity.node_id

    def _apply_settings(self, services: Services, image: ClusterImage) -> None:
        services.settings = effective_settings(self._static_settings, image, services.node_id)
        services.groups.configure(services.settings)
        services.transactions.configure(services.settings)
        if services.replica_manager.fetchers is not None:
            services.replica_manager.fetchers.configure(services.settings.num_replica_fetchers)
        services.logs.configure(log_options(services.settings), cleaner_options(services.settings))
        self._on_settings(services.settings)

    def _on_directory_failed(self, directory: LogDirectory, is_last: bool) -> None:
        """With one directory less the node serves what lies in the others, if it knows what to serve."""
        if directory.path == self._static_settings.metadata_dir:
            self._on_failure(
                BarnabasError(f"{directory.failure}; no node can do without the metadata log, which is there")
            )
        elif is_last:
            self._on_failure(BarnabasError(f"{directory.failure}; it was the last log directory that could be used"))
        else:
            self.nudge()  # the next heartbeat says so

    # Stop

    async def hand_over(self) -> None:
        """Let others lead what this broker leads, while it still answers."""
        if self._lifecycle is not None:
            await self._lifecycle.leave()

    async def stop_serving(self) -> None:
        """Answer those who wait for a group or for records, so that nobody waits for them."""
        if self._services is not None:
            await self._services.groups.stop()
            await self._services.transactions.stop()
            self._services.replica_manager.close_purgatories()

    async def stop(self) -> None:
        """Hand over; the logs stay open until `close`."""
        if self._applying_again is not None:
            self._applying_again.cancel()
        await self._started.aclose()

    async def close(self) -> None:
        # One that never joined leaves the logs as its former self did: they are as good as they were.
        epoch = self.broker_epoch
        await self.logs.stop(epoch if epoch >= 0 else self.logs.previous_broker_epoch)
