"""The controller role of a node: the controller, and what is asked on the controllers' listener."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from barnabas.base.runtime import Runtime
from barnabas.broker.configs.config_resources import BrokerRules, controller_options, effective_settings
from barnabas.broker.context import NoQuotas
from barnabas.broker.controller.controller_channel import ControllerChannel
from barnabas.broker.controller.controller_registration import ControllerRegistrationManager
from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.broker.quorum.formatting import NodeIdentity, check_features, read_bootstrap
from barnabas.broker.quorum.quorum_transport import QuorumTransport
from barnabas.broker.router import Router
from barnabas.broker.services import ControllerServices, MetadataCache
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.settings.endpoints import parse_endpoint
from barnabas.broker.state_lines import tell_states_as_controller
from barnabas.metadata.authorizer import AllowEverything, Authorizer
from barnabas.metadata.controller import Controller
from barnabas.metadata.controller_apis import ControllerApis
from barnabas.metadata.feature_control import elr_safety_records
from barnabas.metadata.features import ELR_VERSION
from barnabas.metadata.image import ClusterImage, ConfigResourceType
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.metadata.quorum import Quorum
from barnabas.net.host_names import HostNames
from barnabas.raft.types import LeaderAndEpoch
from barnabas.storage.files import FileSystem
from barnabas.wire.messages import controller_registration
from barnabas.wire.messages.describe_quorum import Listener
from barnabas.wire.stored.cluster_metadata import (
    BeginTransactionRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)


class ControllerServer:
    """Decides about the cluster while this node leads the quorum. `local_broker` is the broker in the same process, if
    there is one; `on_failure` is told of what cannot become better by waiting."""

    def __init__(
        self,
        settings: BrokerSettings,
        identity: NodeIdentity,
        quorum: Quorum,
        loader: MetadataLoader,
        *,
        files: FileSystem,
        runtime: Runtime,
        router: Router,
        endpoints: dict[str, tuple[str, int]],
        transport: QuorumTransport,
        on_failure: Callable[[BaseException], None],
        local_broker: int | None = None,
        authorizer: Authorizer | None = None,
    ) -> None:
        self._settings = settings
        self._identity = identity
        self._files = files
        self._loader = loader
        self._endpoints = endpoints
        self._own_broker = local_broker
        self._router = router
        image = loader.image
        authorizer = authorizer or AllowEverything()
        controller = Controller(image, controller_options(settings, identity.cluster_id, image), runtime.randomness)
        rules = BrokerRules(settings, identity.node_id)
        hosts = HostNames()
        self.controller = QuorumController(
            controller,
            ControllerApis(controller, quorum, authorizer, rules, self._listeners(), hosts.is_known),
            quorum,
            loader,
            runtime,
            hosts=hosts,
            bootstrap=self._bootstrap,
            local_broker=local_broker,
            no_op_interval_ms=settings.metadata_max_idle_interval_ms,
            # Who has nobody to tell that it is still there should not sync its disk for it, unless it is told to.
            says_nothing_alone=settings.is_given("metadata.max.idle.interval.ms"),
            heartbeat_interval_ms=settings.broker_heartbeat_interval_ms,
            balance_interval_ms=_balance_interval_ms(settings),
            unclean_interval_ms=settings.unclean_leader_election_interval_ms,
            token_interval_ms=_token_interval_ms(settings),
        )
        self._services = ControllerServices(
            settings=effective_settings(settings, image, identity.node_id),
            runtime=runtime,
            node_id=identity.node_id,
            cluster_id=identity.cluster_id,
            metadata=MetadataCache(),
            authorizer=authorizer,
            quotas=NoQuotas(),
            controller=self.controller,
            turns=router.turns,
            endpoints=endpoints,
            advertised=router.advertised,
            transport=transport,
            early_fencing=self.controller.early_fencing,
            leader_id=lambda: quorum.describe().leader.leader_id,
            kraft_version=lambda: quorum.kraft_version,
        )
        self._registration = ControllerRegistrationManager(
            identity.node_id, registered_listeners(settings, endpoints), runtime.randomness, on_failure
        )

    def _bootstrap(self) -> list[MetadataRecord]:
        """The first records of the cluster: one transaction, as Kafka's controller writes them, under this name."""
        directory = self._settings.metadata_dir
        records = read_bootstrap(self._files, directory)
        levels = {each.name: each.feature_level for each in records if isinstance(each, FeatureLevelRecord)}
        check_features(levels, directory)
        if levels.get(ELR_VERSION, 0) > 0:
            records += elr_safety_records(ClusterImage(), self._settings.min_insync_replicas)
        return [BeginTransactionRecord(name="Bootstrap records"), *records, EndTransactionRecord()]

    def _listeners(self) -> list[Listener]:
        return [
            Listener(name=name, host=self._endpoints[name][0], port=self._endpoints[name][1])
            for name in self._settings.controller_listeners
            if name in self._endpoints
        ]

    # What the loader calls

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        services, image = self._services, update.image
        if any(each.type == ConfigResourceType.BROKER for each in update.delta.configs_changed):
            services.settings = effective_settings(self._settings, image, services.node_id)
            self.controller.set_options(controller_options(self._settings, services.cluster_id, image))
        if self.controller.is_active:
            tell_states_as_controller(services.metadata.image, image, update.delta, self._own_broker)
        services.metadata.image = image
        self.controller.on_metadata_update(update)
        self._registration.on_metadata_update(image)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        self.controller.on_controller_change(leader)

    # Start and stop

    def start(self) -> None:
        """Follow what is committed; from here on this node may become the active controller."""
        self._services.metadata.image = self._loader.publish_to(self)

    def open(self) -> None:
        """Answer requests."""
        self._router.open(self._services)

    def register(self, channel: ControllerChannel) -> None:
        """Say on this way to the active controller that this one is there."""
        self._registration.on_metadata_update(self._services.metadata.image)
        self._registration.start(channel)

    async def stop(self) -> None:
        await self._registration.stop()
        await self.controller.stop()


def _balance_interval_ms(settings: BrokerSettings) -> int:
    """How often leaders are given back to preferred replicas; 0 for never."""
    return settings.leader_imbalance_check_interval_seconds * 1000 if settings.auto_leader_rebalance_enable else 0


def _token_interval_ms(settings: BrokerSettings) -> int:
    """How often delegation tokens are forgotten whose time is over; 0 where there are none."""
    has_tokens = settings.delegation_token_secret_key is not None
    return settings.delegation_token_expiry_check_interval_ms if has_tokens else 0


def registered_listeners(
    settings: BrokerSettings, bound: Mapping[str, tuple[str, int]]
) -> list[controller_registration.Listener]:
    """Where clients and other nodes find this controller: as it is advertised, or else as it is bound."""
    given = {each.listener: each for each in map(parse_endpoint, settings.advertised_listeners or ())}
    found = []
    for name in settings.controller_listeners:
        if name not in bound:
            continue
        host, port = (given[name].host, given[name].port) if name in given else bound[name]
        found.append(
            controller_registration.Listener(
                name=name,
                host=host or "localhost",
                port=port or bound[name][1],
                security_protocol=settings.security_protocol_id(name),
            )
        )
    return found
