"""Questions about offsets, bundled by leader, and what their answers mean: ListOffsets and OffsetForLeaderEpoch."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final, Generic, NamedTuple, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.cluster_view import ClusterView
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderEpochResponse,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

CONSUMER_REPLICA_ID: Final = -1
NO_OFFSET: Final = -1
#: OffsetForLeaderEpoch asked for more rights before.
FIRST_FOR_CONSUMERS: Final = 3

T = TypeVar("T")


class ListOffsetData(NamedTuple):
    """-1 where there is nothing."""

    offset: int
    timestamp_ms: int
    leader_epoch: int


class LeaderEpochEnd(NamedTuple):
    """Where the log of a leader epoch ended, and the highest epoch not above the one asked for; -1 if none."""

    leader_epoch: int
    end_offset: int


class EpochQuestion(NamedTuple):
    """The epoch of the last record read, and that of the leader that is asked."""

    epoch: int
    current_leader_epoch: int


@dataclass(slots=True)
class Bundled:
    """Partitions by the leader to be asked."""

    by_node: dict[int, list[TopicPartition]] = field(default_factory=dict)
    without_leader: list[TopicPartition] = field(default_factory=list)


@dataclass(slots=True)
class PartitionResults(Generic[T]):
    """What an answer says of the partitions that were asked for."""

    found: dict[TopicPartition, T] = field(default_factory=dict)
    #: To be asked again, perhaps elsewhere; the last error of each.
    retry: dict[TopicPartition, ErrorCode] = field(default_factory=dict)
    failed: dict[TopicPartition, BrokerError] = field(default_factory=dict)

    def fail(self, partition: TopicPartition, code: ErrorCode, what: str) -> None:
        if code.retriable:
            self.retry[partition] = code
        else:
            self.failed[partition] = BrokerError(code, f"{what} of {partition}: {code.text}")

    def retry_unanswered(self, asked: Iterable[TopicPartition]) -> None:
        for partition in asked:
            if partition not in self.found and partition not in self.failed:
                self.retry.setdefault(partition, ErrorCode.UNKNOWN_SERVER_ERROR)


def bundle(view: ClusterView, partitions: Iterable[TopicPartition]) -> Bundled:
    bundled = Bundled()
    for partition in partitions:
        leader = view.leader_of(partition)
        if leader is None:
            bundled.without_leader.append(partition)
        else:
            bundled.by_node.setdefault(leader.node_id, []).append(partition)
    return bundled


def list_offsets_request(
    view: ClusterView, timestamps_ms: Mapping[TopicPartition, int], *, read_committed: bool, timeout_ms: int
) -> ListOffsetsRequest:
    topics: dict[str, ListOffsetsTopic] = {}
    for partition, timestamp_ms in timestamps_ms.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = ListOffsetsTopic(name=partition.topic, partitions=[])
        topic.partitions.append(
            ListOffsetsPartition(
                partition_index=partition.partition,
                current_leader_epoch=view.leader_epoch(partition),
                timestamp=timestamp_ms,
            )
        )
    return ListOffsetsRequest(
        replica_id=CONSUMER_REPLICA_ID,
        isolation_level=int(read_committed),
        topics=list(topics.values()),
        timeout_ms=timeout_ms,
    )


def read_list_offsets(
    asked: Iterable[TopicPartition], response: ListOffsetsResponse
) -> PartitionResults[ListOffsetData]:
    outcome: PartitionResults[ListOffsetData] = PartitionResults()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.name, answer.partition_index)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                outcome.found[partition] = ListOffsetData(answer.offset, answer.timestamp, answer.leader_epoch)
            elif code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT:
                # Messages without timestamps: no time can be found among them.
                outcome.found[partition] = ListOffsetData(NO_OFFSET, -1, -1)
            else:
                outcome.fail(partition, code, "the offsets")
    outcome.retry_unanswered(asked)
    return outcome


def epoch_request(questions: Mapping[TopicPartition, EpochQuestion]) -> OffsetForLeaderEpochRequest:
    topics: dict[str, OffsetForLeaderTopic] = {}
    for partition, question in questions.items():
        topic = topics.get(partition.topic)
        if topic is None:
            topic = topics[partition.topic] = OffsetForLeaderTopic(topic=partition.topic, partitions=[])
        topic.partitions.append(
            OffsetForLeaderPartition(
                partition=partition.partition,
                current_leader_epoch=question.current_leader_epoch,
                leader_epoch=question.epoch,
            )
        )
    return OffsetForLeaderEpochRequest(replica_id=CONSUMER_REPLICA_ID, topics=list(topics.values()))


def read_epochs(
    asked: Iterable[TopicPartition], response: OffsetForLeaderEpochResponse
) -> PartitionResults[LeaderEpochEnd]:
    outcome: PartitionResults[LeaderEpochEnd] = PartitionResults()
    for topic in response.topics:
        for answer in topic.partitions:
            partition = TopicPartition(topic.topic, answer.partition)
            code = ErrorCode.of(answer.error_code)
            if code is ErrorCode.NONE:
                outcome.found[partition] = LeaderEpochEnd(answer.leader_epoch, answer.end_offset)
            else:
                outcome.fail(partition, code, "the leader epochs")
    outcome.retry_unanswered(asked)
    return outcome
