"""The parts of a node that collectors look at."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.base.metrics.exposition import Exposition
from barnabas.base.metrics.registry import RecordingLevel
from barnabas.base.runtime import Runtime
from barnabas.broker.metrics.elections import ElectionWatch
from barnabas.broker.services import Services
from barnabas.metadata.loader import MetadataLoader
from barnabas.net import Server

if TYPE_CHECKING:
    from barnabas.broker.broker_server import BrokerServer
    from barnabas.broker.controller_server import ControllerServer
    from barnabas.broker.quorum.raft_quorum import RaftQuorum


@dataclass(slots=True, kw_only=True)
class NodeParts:
    """What is there of a node by now; a role that it does not have, or that has not come so far, is None."""

    node_id: int
    cluster_id: str
    runtime: Runtime
    loader: MetadataLoader
    server: Server
    broker: BrokerServer | None
    controller: ControllerServer | None
    quorum: RaftQuorum | None
    elections: ElectionWatch
    level: RecordingLevel = RecordingLevel.INFO

    @property
    def services(self) -> Services | None:
        """The broker's, once it has them."""
        return self.broker.services if self.broker is not None and self.broker.has_services else None


#: Writes samples, and pauses after every few.
Collector = Callable[[NodeParts, Exposition], Iterator[None]]
