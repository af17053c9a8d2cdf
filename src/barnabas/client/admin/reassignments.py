"""Where the replicas of partitions are, and which of them lead."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import IntEnum

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client.admin.driver import NOT_DONE, Outcomes, Part, RequestSpec, broker_error, raise_if_error, settled
from barnabas.client.admin.offsets import by_topic
from barnabas.client.admin.routes import ControllerStrategy
from barnabas.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)
from barnabas.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions
from barnabas.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
)


@dataclass(frozen=True, slots=True)
class PartitionReassignment:
    """A move that is going on: all replicas, those that come and those that go."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


class ElectionType(IntEnum):
    """PREFERRED makes the first replica lead; UNCLEAN takes any where none is in sync, and may lose records."""

    PREFERRED = 0
    UNCLEAN = 1


class ReassignmentCalls(Part):
    """Calls about replicas and leaders."""

    async def alter_partition_reassignments(
        self,
        replicas: Mapping[TopicPartition, Sequence[int] | None],
        *,
        allow_replication_factor_change: bool = True,
        timeout: float | None = None,
    ) -> None:
        """Begin to move partitions to other brokers; None ends a move that is going on. From Kafka 2.4 on.

        INVALID_REPLICA_ASSIGNMENT for brokers that there are not, NO_REASSIGNMENT_IN_PROGRESS where there is nothing to
        end. That the replication factor shall stay as it is can be asked of Kafka 4.1 and later.
        """
        call = await self._driver.begin("alter_partition_reassignments", timeout)
        wanted = {TopicPartition(*partition): each for partition, each in replicas.items()}

        def one(partition: TopicPartition) -> ReassignablePartition:
            chosen = wanted[partition]
            return ReassignablePartition(
                partition_index=partition.partition, replicas=None if chosen is None else list(chosen)
            )

        def build(spec: RequestSpec[TopicPartition]) -> AlterPartitionReassignmentsRequest:
            return AlterPartitionReassignmentsRequest(
                timeout_ms=spec.timeout_ms,
                allow_replication_factor_change=allow_replication_factor_change,
                topics=[
                    ReassignableTopic(name=topic, partitions=[one(each) for each in those])
                    for topic, those in by_topic(spec.keys).items()
                ],
            )

        def read(
            spec: RequestSpec[TopicPartition], response: AlterPartitionReassignmentsResponse
        ) -> Iterable[tuple[TopicPartition, Exception | None]]:
            raise_if_error(response.error_code, response.error_message)
            for topic in response.responses:
                for each in topic.partitions:
                    error = broker_error(each.error_code, each.error_message) if each.error_code else None
                    yield TopicPartition(topic.name, each.partition_index), error

        await self._driver.ask_each(
            call, wanted, ControllerStrategy(), AlterPartitionReassignmentsRequest, build, read, may_pass=NOT_DONE
        )

    async def list_partition_reassignments(
        self, partitions: Iterable[TopicPartition] | None = None, *, timeout: float | None = None
    ) -> dict[TopicPartition, PartitionReassignment]:
        """The moves that are going on, of some partitions or of all."""
        call = await self._driver.begin("list_partition_reassignments", timeout)
        topics = None
        if partitions is not None:
            topics = [
                ListPartitionReassignmentsTopics(name=topic, partition_indexes=[each.partition for each in those])
                for topic, those in by_topic(partitions).items()
            ]

        def read(response: ListPartitionReassignmentsResponse) -> dict[TopicPartition, PartitionReassignment]:
            raise_if_error(response.error_code, response.error_message)
            return {
                TopicPartition(topic.name, each.partition_index): PartitionReassignment(
                    tuple(each.replicas), tuple(each.adding_replicas), tuple(each.removing_replicas)
                )
                for topic in response.topics
                for each in topic.partitions
            }

        return await self._driver.ask_one(
            call,
            ControllerStrategy(),
            ListPartitionReassignmentsRequest,
            lambda spec: ListPartitionReassignmentsRequest(timeout_ms=spec.timeout_ms, topics=topics),
            read,
        )

    async def elect_leaders(
        self,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        election: ElectionType = ElectionType.PREFERRED,
        timeout: float | None = None,
    ) -> dict[TopicPartition, bool]:
        """Elect leaders of some partitions, or of all; by partition, whether that changed anything.

        PREFERRED_LEADER_NOT_AVAILABLE or ELIGIBLE_LEADERS_NOT_AVAILABLE where nobody can lead. Unclean elections need
        Kafka 2.4.
        """
        call = await self._driver.begin("elect_leaders", timeout)
        wanted = None if partitions is None else list(dict.fromkeys(TopicPartition(*each) for each in partitions))

        def build(spec: RequestSpec[tuple[()]]) -> ElectLeadersRequest:
            topics = None
            if wanted is not None:
                topics = [
                    TopicPartitions(topic=topic, partitions=[each.partition for each in those])
                    for topic, those in by_topic(wanted).items()
                ]
            return ElectLeadersRequest(election_type=election, topic_partitions=topics, timeout_ms=spec.timeout_ms)

        outcomes = await self._driver.ask_one(
            call, ControllerStrategy(), ElectLeadersRequest, build, _elections, may_pass=NOT_DONE
        )
        results, errors = outcomes
        return settled(wanted if wanted is not None else sorted({*results, *errors}), results, errors)


def _elections(response: ElectLeadersResponse) -> Outcomes[TopicPartition, bool]:
    raise_if_error(response.error_code)
    results: dict[TopicPartition, bool] = {}
    errors: dict[TopicPartition, Exception] = {}
    for topic in response.replica_election_results:
        for each in topic.partition_result:
            partition = TopicPartition(topic.topic, each.partition_id)
            if each.error_code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED):
                results[partition] = each.error_code == ErrorCode.NONE
            else:
                errors[partition] = broker_error(each.error_code, each.error_message)
    return Outcomes(results, errors)
