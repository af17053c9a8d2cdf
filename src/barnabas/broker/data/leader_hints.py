"""Where a client should have gone: told with the error, it saves a round of metadata."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.metadata.image import BrokerEndpointImage, ClusterImage
from barnabas.replication.fetch_sessions import PartitionKey

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
    broker = image.brokers.get(state.leader)
    endpoint = None if broker is None else broker.endpoint(listener)
    return LeaderHint(state.leader, state.leader_epoch, endpoint, None if broker is None else broker.rack)
