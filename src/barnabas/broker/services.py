"""What handlers work with: the parts of a running node."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from barnabas.base.runtime import Runtime
from barnabas.broker.context import Authorizer, Quotas
from barnabas.broker.refused_transactions import RefusedTransactions
from barnabas.broker.settings import BrokerSettings
from barnabas.metadata.image import ClusterImage
from barnabas.storage.manager import LogManager
from barnabas.wire.messages.api_versions import ApiVersion

if TYPE_CHECKING:
    from barnabas.broker.controller_gateway import ControllerGateway
    from barnabas.broker.groups import GroupService
    from barnabas.broker.producer_ids import ProducerIdPool
    from barnabas.broker.quorum_of_one import QuorumOfOne
    from barnabas.broker.replica_manager import ReplicaManager
    from barnabas.broker.turns import Turns
    from barnabas.replication.fetch_sessions import FetchSessionCache


class MetadataCache:
    """The image that this node has applied: its partitions exist, its settings hold."""

    __slots__ = ("image",)

    def __init__(self) -> None:
        self.image = ClusterImage()


@dataclass(slots=True, kw_only=True)
class Services:
    """One node's parts. The node makes them in order of their dependencies."""

    settings: BrokerSettings
    runtime: Runtime
    node_id: int
    cluster_id: str
    metadata: MetadataCache
    logs: LogManager
    authorizer: Authorizer
    quotas: Quotas
    controller: ControllerGateway
    quorum: QuorumOfOne
    replica_manager: ReplicaManager
    fetch_sessions: FetchSessionCache
    groups: GroupService
    producer_ids: ProducerIdPool
    #: Work on requests that takes longer than a turn.
    turns: Turns
    #: Where each listener is bound.
    endpoints: dict[str, tuple[str, int]]
    #: What ApiVersions tells on a listener.
    advertised: Callable[[str], list[ApiVersion]]
    #: How many bytes may still be put into answers, over all connections.
    response_room: Callable[[], int]
    refused_transactions: RefusedTransactions = field(default_factory=RefusedTransactions)
