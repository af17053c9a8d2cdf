"""What handlers work with: the parts of a running node, by role."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.base.runtime import Runtime
from barnabas.broker.context import Quotas
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.authorizer import Authorizer
from barnabas.metadata.image import ClusterImage
from barnabas.storage.manager import LogManager
from barnabas.wire.messages.api_versions import ApiVersion

if TYPE_CHECKING:
    from barnabas.broker.broker_channels import BrokerChannels
    from barnabas.broker.configs.sasl_options import SaslParts
    from barnabas.broker.controller.auto_topic_creation import AutoTopicCreationManager
    from barnabas.broker.controller.controller_channel import ControllerChannel
    from barnabas.broker.controller.early_fencing import EarlyFencing
    from barnabas.broker.data.add_partitions_to_txn_manager import AddPartitionsToTxnManager
    from barnabas.broker.data.producer_ids import ProducerIdPool
    from barnabas.broker.data.replica_manager import ReplicaManager
    from barnabas.broker.groups.group_coordinator import GroupCoordinatorService
    from barnabas.broker.node_tls import NodeTls
    from barnabas.broker.quorum.quorum_transport import QuorumTransport
    from barnabas.broker.transactions.transaction_coordinator import TransactionCoordinatorService
    from barnabas.broker.turns import Turns
    from barnabas.replication.fetch_sessions import FetchSessionCache


class MetadataCache:
    """The image that a role has applied: of a broker, its partitions exist, its settings hold."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = ClusterImage()


@dataclass(slots=True, kw_only=True)
class CommonServices:
    """What brokers and controllers have: whoever is asked on their listeners works with this."""

    settings: BrokerSettings
    runtime: Runtime
    node_id: int
    cluster_id: str
    metadata: MetadataCache
    authorizer: Authorizer
    quotas: Quotas
    controller: ControllerChannel
    #: Work on requests that takes longer than a turn.
    turns: Turns
    #: Where each listener is bound.
    endpoints: dict[str, tuple[str, int]]
    #: What ApiVersions tells.
    advertised: Callable[[], list[ApiVersion]]
    #: The level of kraft.version, which is not in the image.
    kraft_version: Callable[[], int] = lambda: 0
    #: Keys and certificates, which a change of settings may replace.
    tls: NodeTls | None = None
    #: Users and mechanisms, likewise.
    sasl: SaslParts | None = None


@dataclass(slots=True, kw_only=True)
class ControllerServices(CommonServices):
    """A controller's parts."""

    #: Where requests of other replicas of the metadata log go.
    transport: QuorumTransport
    early_fencing: EarlyFencing
    #: Who leads the quorum, or -1.
    leader_id: Callable[[], int]


@dataclass(slots=True, kw_only=True)
class Services(CommonServices):
    """A broker's parts, made in order of their dependencies."""

    logs: LogManager
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    groups: GroupCoordinatorService
    transactions: TransactionCoordinatorService
    producer_ids: ProducerIdPool
    auto_topic_creation: AutoTopicCreationManager
    #: The way to other brokers, and to this one as if it were another.
    brokers: BrokerChannels
    #: What transaction coordinators say of partitions.
    transaction_partitions: AddPartitionsToTxnManager
    #: How many bytes may still be put into answers, over all connections.
    response_room: Callable[[], int]
