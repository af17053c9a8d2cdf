"""Where a client should have gone: told with the error, it saves a round of metadata."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.metadata.image import BrokerEndpointImage, ClusterImage
from barnabas.replication.fetch_sessions import PartitionKey
from barnabas.replication.partition import Partition

#: The errors after which a client looks for the leader.
MISSED_LEADER: Final = frozenset({ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.FENCED_LEADER_EPOCH})


class LeaderHint(NamedTuple):
    """The present leader, and where it listens under the name that the client has used."""

    leader_id: int
    leader_epoch: int
    endpoint: BrokerEndpointImage | None
    rack: str | None


def leader_hint(image: ClusterImage, key: PartitionKey, listener: str) -> LeaderHint | None:
    """What is known of a partition's leader; None if there is no such partition."""
    topic = image.topic_by_id(key[0]) if isinstance(key[0], Uuid) else image.topics.get(key[0])
    state = None if topic is None else image.partition(topic.name, key[1])
    if state is None:
        return None
    return _hint(image, state.leader, state.leader_epoch, listener)


def hint_of(partition: Partition, image: ClusterImage, listener: str) -> LeaderHint | None:
    """The same by what a partition knows: who waits there hears of another leader before the image is that far."""
    if partition.is_deleted:
        return None
    return _hint(image, partition.leader_id, partition.leader_epoch, listener)


def _hint(image: ClusterImage, leader_id: int, leader_epoch: int, listener: str) -> LeaderHint:
    broker = image.brokers.get(leader_id)
    endpoint = None if broker is None else broker.endpoint(listener)
    return LeaderHint(leader_id, leader_epoch, endpoint, None if broker is None else broker.rack)
