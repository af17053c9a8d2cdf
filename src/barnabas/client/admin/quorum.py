"""The metadata quorum: its leader, voters and observers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import Uuid
from barnabas.client.admin.driver import NOT_DONE, Part, raise_if_error
from barnabas.client.admin.routes import AnyNode
from barnabas.wire.messages.add_raft_voter import AddRaftVoterRequest, AddRaftVoterResponse, Listener
from barnabas.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    DescribeQuorumResponse,
    PartitionData,
    ReplicaState,
    TopicData,
)
from barnabas.wire.messages.remove_raft_voter import RemoveRaftVoterRequest, RemoveRaftVoterResponse

METADATA_TOPIC: Final = "__cluster_metadata"


class Endpoint(NamedTuple):
    """Where a controller listens, under the name of a listener."""

    name: str
    host: str
    port: int


@dataclass(frozen=True, slots=True)
class QuorumReplica:
    """How far a voter or observer is. Times are milliseconds since 1970, None where they are not known."""

    replica_id: int
    directory_id: Uuid
    log_end_offset: int
    last_fetch_ms: int | None
    last_caught_up_ms: int | None


@dataclass(frozen=True, slots=True)
class QuorumInfo:
    """The quorum. `endpoints` of each node are told from Kafka 3.9 on."""

    leader_id: int
    leader_epoch: int
    high_watermark: int
    voters: tuple[QuorumReplica, ...]
    observers: tuple[QuorumReplica, ...]
    endpoints: Mapping[int, tuple[Endpoint, ...]]


class QuorumCalls(Part):
    """Calls about the metadata quorum; clusters with ZooKeeper have none (`UnsupportedRequestError`)."""

    async def describe_metadata_quorum(self, *, timeout: float | None = None) -> QuorumInfo:
        """Leader, voters and observers, and how far each of them is. From Kafka 3.3 on."""
        call = await self._driver.begin("describe_metadata_quorum", timeout)
        request = DescribeQuorumRequest(
            topics=[TopicData(topic_name=METADATA_TOPIC, partitions=[PartitionData(partition_index=0)])]
        )
        return await self._driver.ask_one(call, AnyNode(), DescribeQuorumRequest, lambda spec: request, _quorum)

    async def add_raft_voter(
        self,
        voter_id: int,
        directory_id: Uuid,
        endpoints: Iterable[Endpoint],
        *,
        cluster_id: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Let a controller vote that follows the log already. DUPLICATE_VOTER if it does. From Kafka 3.9 on.

        With `cluster_id`, only in that cluster: INCONSISTENT_CLUSTER_ID otherwise.
        """
        call = await self._driver.begin("add_raft_voter", timeout)
        listeners = [Listener(name=each.name, host=each.host, port=each.port) for each in endpoints]

        def read(response: AddRaftVoterResponse) -> None:
            raise_if_error(response.error_code, response.error_message)

        await self._driver.ask_one(
            call,
            AnyNode(),
            AddRaftVoterRequest,
            lambda spec: AddRaftVoterRequest(
                cluster_id=cluster_id,
                timeout_ms=spec.timeout_ms,
                voter_id=voter_id,
                voter_directory_id=directory_id,
                listeners=listeners,
            ),
            read,
            may_pass=NOT_DONE,
        )

    async def remove_raft_voter(
        self, voter_id: int, directory_id: Uuid, *, cluster_id: str | None = None, timeout: float | None = None
    ) -> None:
        """Let a controller not vote any more. VOTER_NOT_FOUND if it does not. From Kafka 3.9 on."""
        call = await self._driver.begin("remove_raft_voter", timeout)
        request = RemoveRaftVoterRequest(cluster_id=cluster_id, voter_id=voter_id, voter_directory_id=directory_id)

        def read(response: RemoveRaftVoterResponse) -> None:
            raise_if_error(response.error_code, response.error_message)

        await self._driver.ask_one(
            call, AnyNode(), RemoveRaftVoterRequest, lambda spec: request, read, may_pass=NOT_DONE
        )


def _quorum(response: DescribeQuorumResponse) -> QuorumInfo:
    raise_if_error(response.error_code, response.error_message)
    if len(response.topics) != 1 or len(response.topics[0].partitions) != 1:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "the answer is not about the metadata log")
    partition = response.topics[0].partitions[0]
    raise_if_error(partition.error_code, partition.error_message)
    return QuorumInfo(
        leader_id=partition.leader_id,
        leader_epoch=partition.leader_epoch,
        high_watermark=partition.high_watermark,
        voters=tuple(_replica(each) for each in partition.current_voters),
        observers=tuple(_replica(each) for each in partition.observers),
        endpoints={
            node.node_id: tuple(Endpoint(each.name, each.host, each.port) for each in node.listeners)
            for node in response.nodes
        },
    )


def _replica(each: ReplicaState) -> QuorumReplica:
    return QuorumReplica(
        replica_id=each.replica_id,
        directory_id=each.replica_directory_id,
        log_end_offset=each.log_end_offset,
        last_fetch_ms=each.last_fetch_timestamp if each.last_fetch_timestamp >= 0 else None,
        last_caught_up_ms=each.last_caught_up_timestamp if each.last_caught_up_timestamp >= 0 else None,
    )
