"""DescribeQuorum: who leads the metadata log, and how far each replica of it is.

v1 adds timestamps; v2 messages, the listeners of the voters, and ids of directories: those of observers, and of voters
that the log names.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.metadata.quorum import QuorumDescription, ReplicaState
from barnabas.metadata.topic_names import CLUSTER_METADATA
from barnabas.wire.messages import describe_quorum as messages
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    Listener,
    Node,
    PartitionResult,
    TopicData,
    TopicResult,
)

_FIRST_WITH_NODES: Final = 2


def describe_quorum(
    request: DescribeQuorumRequest, version: int, quorum: QuorumDescription, own_listeners: Sequence[Listener] = ()
) -> DescribeQuorumResponse:
    """`own_listeners` are the leader's, for voters of settings that leave their port to the system."""
    asked = [(topic.topic_name, each.partition_index) for topic in request.topics for each in topic.partitions]
    if asked != [(CLUSTER_METADATA, 0)]:
        # As in Kafka, one wrong partition makes the whole request wrong.
        return DescribeQuorumResponse(topics=[_unknown(topic, version) for topic in request.topics])
    described = PartitionResult(
        partition_index=0,
        leader_id=quorum.leader.leader_id,
        leader_epoch=quorum.leader.epoch,
        high_watermark=quorum.high_watermark,
        current_voters=[_replica(each, version) for each in quorum.voters],
        observers=[_replica(each, version) for each in quorum.observers],
    )
    response = DescribeQuorumResponse(topics=[TopicResult(topic_name=CLUSTER_METADATA, partitions=[described])])
    if version >= _FIRST_WITH_NODES:
        response.nodes = [_node(node_id, quorum, own_listeners) for node_id in sorted(quorum.listeners)]
    return response


def _node(node_id: int, quorum: QuorumDescription, own_listeners: Sequence[Listener]) -> Node:
    known = quorum.listeners[node_id]
    if node_id == quorum.leader.leader_id and not all(address.port for address in known.values()):
        return Node(node_id=node_id, listeners=list(own_listeners))
    return Node(
        node_id=node_id,
        listeners=[Listener(name=name, host=address.host, port=address.port) for name, address in known.items()],
    )


def _replica(state: ReplicaState, version: int) -> messages.ReplicaState:
    return messages.ReplicaState(
        replica_id=state.replica_id,
        replica_directory_id=state.directory_id if version >= _FIRST_WITH_NODES else Uuid.ZERO,
        log_end_offset=state.log_end_offset,
        last_fetch_timestamp=state.last_fetch_ms,
        last_caught_up_timestamp=state.last_caught_up_ms,
    )


def _unknown(topic: TopicData, version: int) -> TopicResult:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    results = [
        PartitionResult(
            partition_index=each.partition_index,
            error_code=code,
            error_message=code.text if version >= _FIRST_WITH_NODES else "",
            leader_id=0,
            leader_epoch=0,
            high_watermark=0,
            current_voters=[],
            observers=[],
        )
        for each in topic.partitions
    ]
    return TopicResult(topic_name=topic.topic_name, partitions=results)
