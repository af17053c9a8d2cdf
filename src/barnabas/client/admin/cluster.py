"""The cluster as a whole: its brokers, their disks, its features."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.acls import AclOperation, authorized_operations
from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error
from barnabas.client.admin.offsets import by_topic
from barnabas.client.admin.routes import AnyNode, ControllerStrategy, TheseNodes, each_broker
from barnabas.client.core.cluster_view import Node
from barnabas.net.errors import UnsupportedRequestError
from barnabas.wire.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirsResponse,
    AlterReplicaLogDirTopic,
)
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from barnabas.wire.messages.describe_log_dirs import (
    DescribableLogDirTopic,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from barnabas.wire.messages.unregister_broker import UnregisterBrokerRequest, UnregisterBrokerResponse
from barnabas.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest, UpdateFeaturesResponse

_BROKERS = 1
_CONTROLLERS = 2


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster. `fenced` are the ids of brokers that are registered but not at work, if that was asked for."""

    cluster_id: str | None
    controller: Node | None
    nodes: tuple[Node, ...]
    fenced: frozenset[int] = frozenset()
    authorized_operations: frozenset[AclOperation] | None = None


class ReplicaInfo(NamedTuple):
    """A replica on a disk. `is_future` is a copy that will take its place once it has caught up."""

    size_bytes: int
    offset_lag: int
    is_future: bool


@dataclass(frozen=True, slots=True)
class LogDirDescription:
    """A log directory. `error` says why it is offline. Sizes of the disk are told from Kafka 3.3 on."""

    path: str
    error: BrokerError | None
    replicas: Mapping[TopicPartition, ReplicaInfo]
    total_bytes: int | None = None
    usable_bytes: int | None = None
    is_cordoned: bool = False


class BrokerReplica(NamedTuple):
    """The replica of a partition on a broker."""

    broker_id: int
    partition: TopicPartition

    def __str__(self) -> str:
        return f"{self.partition} on broker {self.broker_id}"


class FeatureRange(NamedTuple):
    """Levels of a feature."""

    min_level: int
    max_level: int


@dataclass(frozen=True, slots=True)
class FeaturesDescription:
    """What the cluster has agreed on, and what the broker that was asked could do."""

    finalized: Mapping[str, FeatureRange]
    supported: Mapping[str, FeatureRange]
    finalized_epoch: int | None


class FeatureUpgrade(IntEnum):
    """Which way a feature may go. An unsafe downgrade may lose metadata."""

    UPGRADE = 1
    SAFE_DOWNGRADE = 2
    UNSAFE_DOWNGRADE = 3


class FeatureUpdate(NamedTuple):
    """A new level of a feature; 0 turns it off."""

    max_level: int
    upgrade: FeatureUpgrade = FeatureUpgrade.UPGRADE


class ClusterCalls(Part):
    """Calls about the cluster as a whole."""

    async def describe_cluster(
        self,
        *,
        include_authorized_operations: bool = False,
        include_fenced_brokers: bool = False,
        timeout: float | None = None,
    ) -> ClusterDescription:
        """The cluster's id, controller and brokers; connected to controllers, those in place of the brokers.

        Fenced brokers are told from Kafka 4.1 on (`UnsupportedRequestError`).
        """
        call = await self._driver.begin("describe_cluster", timeout)
        is_of_controllers = bool(self._driver.settings.bootstrap_controllers)

        def build(spec: RequestSpec[tuple[()]]) -> DescribeClusterRequest:
            return DescribeClusterRequest(
                include_cluster_authorized_operations=include_authorized_operations,
                endpoint_type=_CONTROLLERS if is_of_controllers else _BROKERS,
                include_fenced_brokers=include_fenced_brokers,
            )

        def read(response: DescribeClusterResponse) -> ClusterDescription:
            raise_if_error(response.error_code, response.error_message)
            nodes = {each.broker_id: Node(each.broker_id, each.host, each.port, each.rack) for each in response.brokers}
            return ClusterDescription(
                cluster_id=response.cluster_id,
                controller=nodes.get(response.controller_id),
                nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
                fenced=frozenset(each.broker_id for each in response.brokers if each.is_fenced),
                authorized_operations=authorized_operations(response.cluster_authorized_operations),
            )

        try:
            return await self._driver.ask_one(call, AnyNode(), DescribeClusterRequest, build, read)
        except UnsupportedRequestError:
            if include_fenced_brokers or is_of_controllers:
                raise
        # Brokers before 2.8 tell the same with their metadata.
        return await self._driver.ask_one(
            call,
            AnyNode(),
            MetadataRequest,
            lambda spec: MetadataRequest(
                topics=[],
                allow_auto_topic_creation=False,
                include_cluster_authorized_operations=include_authorized_operations and spec.version >= 8,
            ),
            _cluster_of_metadata,
        )

    async def describe_log_dirs(
        self,
        broker_ids: Iterable[int] | None = None,
        *,
        partitions: Iterable[TopicPartition] | None = None,
        timeout: float | None = None,
    ) -> dict[int, dict[str, LogDirDescription]]:
        """The log directories of each broker by path, with the replicas in them: all, or those of some partitions."""
        call = await self._driver.begin("describe_log_dirs", timeout)
        if broker_ids is None:
            broker_ids = sorted((await self._driver.newest_view(call, is_first=True)).nodes)
        brokers = list(broker_ids)
        topics = None
        if partitions is not None:
            topics = [
                DescribableLogDirTopic(topic=topic, partitions=[each.partition for each in those])
                for topic, those in by_topic(partitions).items()
            ]

        def read(
            spec: RequestSpec[int], response: DescribeLogDirsResponse
        ) -> Iterable[tuple[int, dict[str, LogDirDescription] | Exception]]:
            raise_if_error(response.error_code)
            if spec.version < 3 and not response.results:
                # A broker has at least one disk: before this version it could not say who may not see them.
                raise BrokerError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            yield spec.keys[0], {each.log_dir: _log_dir(each) for each in response.results}

        return await self._driver.ask_each(
            call,
            brokers,
            each_broker(),
            DescribeLogDirsRequest,
            lambda spec: DescribeLogDirsRequest(topics=topics),
            read,
        )

    async def alter_replica_log_dirs(
        self, moves: Mapping[BrokerReplica | tuple[int, TopicPartition], str], *, timeout: float | None = None
    ) -> None:
        """Move replicas to other log directories of their brokers. Returns when the moves have begun.

        REPLICA_NOT_AVAILABLE if the broker does not have the replica (yet: then it will be made in that directory),
        LOG_DIR_NOT_FOUND or KAFKA_STORAGE_ERROR for the directory.
        """
        call = await self._driver.begin("alter_replica_log_dirs", timeout)
        wanted = {BrokerReplica(*replica): path for replica, path in moves.items()}

        def build(spec: RequestSpec[BrokerReplica]) -> AlterReplicaLogDirsRequest:
            by_path: dict[str, list[TopicPartition]] = {}
            for replica in spec.keys:
                by_path.setdefault(wanted[replica], []).append(TopicPartition(*replica.partition))
            return AlterReplicaLogDirsRequest(
                dirs=[
                    AlterReplicaLogDir(
                        path=path,
                        topics=[
                            AlterReplicaLogDirTopic(name=topic, partitions=[each.partition for each in those])
                            for topic, those in by_topic(partitions).items()
                        ],
                    )
                    for path, partitions in by_path.items()
                ]
            )

        def read(
            spec: RequestSpec[BrokerReplica], response: AlterReplicaLogDirsResponse
        ) -> Iterable[tuple[BrokerReplica, Exception | None]]:
            broker_id = spec.keys[0].broker_id
            for topic in response.results:
                for each in topic.partitions:
                    error = broker_error(each.error_code) if each.error_code else None
                    yield BrokerReplica(broker_id, TopicPartition(topic.topic_name, each.partition_index)), error

        route: TheseNodes[BrokerReplica] = TheseNodes(lambda replica: replica.broker_id)
        await self._driver.ask_each(call, wanted, route, AlterReplicaLogDirsRequest, build, read, may_pass=NOT_DONE)

    async def describe_features(
        self, *, node_id: int | None = None, timeout: float | None = None
    ) -> FeaturesDescription:
        """The levels of features that the cluster has agreed on, as a node says: any, or a given one. Brokers before
        2.7 have none."""
        call = await self._driver.begin("describe_features", timeout)

        def read(response: ApiVersionsResponse) -> FeaturesDescription:
            raise_if_error(response.error_code)
            return FeaturesDescription(
                finalized={
                    each.name: FeatureRange(each.min_version_level, each.max_version_level)
                    for each in response.finalized_features
                },
                supported={
                    each.name: FeatureRange(each.min_version, each.max_version) for each in response.supported_features
                },
                finalized_epoch=response.finalized_features_epoch if response.finalized_features_epoch >= 0 else None,
            )

        request = ApiVersionsRequest(client_software_name="barnabas", client_software_version="admin")
        route: AnyNode[tuple[()]] | TheseNodes[tuple[()]] = AnyNode()
        if node_id is not None:
            route = TheseNodes(lambda _: node_id)
        return await self._driver.ask_one(call, route, ApiVersionsRequest, lambda spec: request, read)

    async def update_features(
        self,
        updates: Mapping[str, FeatureUpdate | int],
        *,
        validate_only: bool = False,
        timeout: float | None = None,
    ) -> None:
        """Raise or lower features. FEATURE_UPDATE_FAILED or INVALID_UPDATE_VERSION says why not, for all of them."""
        call = await self._driver.begin("update_features", timeout)
        wanted = {
            name: each if isinstance(each, FeatureUpdate) else FeatureUpdate(each) for name, each in updates.items()
        }

        def build(spec: RequestSpec[str]) -> UpdateFeaturesRequest:
            if spec.version == 0 and any(wanted[name].upgrade is FeatureUpgrade.UNSAFE_DOWNGRADE for name in spec.keys):
                raise spec.unsupported(UpdateFeaturesRequest, "that knows no unsafe downgrade")
            return UpdateFeaturesRequest(
                timeout_ms=spec.timeout_ms,
                feature_updates=[_feature_update(spec, name, wanted[name]) for name in spec.keys],
                validate_only=validate_only,
            )

        def read(spec: RequestSpec[str], response: UpdateFeaturesResponse) -> Iterable[tuple[str, Exception | None]]:
            raise_if_error(response.error_code, response.error_message)
            said = {each.feature: each for each in response.results}
            for name in spec.keys:
                each = said.get(name)  # Newer brokers tell one outcome for all.
                failed = each is not None and each.error_code
                yield name, broker_error(each.error_code, each.error_message) if each is not None and failed else None

        await self._driver.ask_each(
            call, wanted, ControllerStrategy(), UpdateFeaturesRequest, build, read, may_pass=NOT_DONE
        )

    async def unregister_broker(self, broker_id: int, *, timeout: float | None = None) -> None:
        """Forget a broker that will not come back. BROKER_ID_NOT_REGISTERED if there is none."""
        call = await self._driver.begin("unregister_broker", timeout)

        def read(response: UnregisterBrokerResponse) -> None:
            raise_if_error(response.error_code, response.error_message)

        request = UnregisterBrokerRequest(broker_id=broker_id)
        await self._driver.ask_one(
            call, AnyNode(), UnregisterBrokerRequest, lambda spec: request, read, may_pass=NOT_DONE
        )


def _cluster_of_metadata(response: MetadataResponse) -> ClusterDescription:
    nodes = {each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers}
    return ClusterDescription(
        cluster_id=response.cluster_id,
        controller=nodes.get(response.controller_id),
        nodes=tuple(nodes[node_id] for node_id in sorted(nodes)),
        authorized_operations=authorized_operations(response.cluster_authorized_operations),
    )


def _log_dir(each: DescribeLogDirsResult) -> LogDirDescription:
    return LogDirDescription(
        path=each.log_dir,
        error=broker_error(each.error_code) if each.error_code else None,
        replicas={
            TopicPartition(topic.name, one.partition_index): ReplicaInfo(
                one.partition_size, one.offset_lag, one.is_future_key
            )
            for topic in each.topics
            for one in topic.partitions
        },
        total_bytes=each.total_bytes if each.total_bytes >= 0 else None,
        usable_bytes=each.usable_bytes if each.usable_bytes >= 0 else None,
        is_cordoned=each.is_cordoned,
    )


def _feature_update(spec: RequestSpec[str], name: str, update: FeatureUpdate) -> FeatureUpdateKey:
    if spec.version == 0:
        is_down = update.upgrade is not FeatureUpgrade.UPGRADE
        return FeatureUpdateKey(feature=name, max_version_level=update.max_level, allow_downgrade=is_down)
    return FeatureUpdateKey(feature=name, max_version_level=update.max_level, upgrade_type=update.upgrade)
