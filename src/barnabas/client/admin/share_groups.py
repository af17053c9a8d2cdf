"""Where the partitions of share groups begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error, settled
from barnabas.client.admin.offsets import by_topic
from barnabas.client.admin.routes import group_coordinator, group_coordinators
from barnabas.wire.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
    AlterShareGroupOffsetsResponse,
)
from barnabas.wire.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsRequestTopic,
    DeleteShareGroupOffsetsResponse,
)
from barnabas.wire.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
    DescribeShareGroupOffsetsRequestTopic,
    DescribeShareGroupOffsetsResponse,
    DescribeShareGroupOffsetsResponseGroup,
)


@dataclass(frozen=True, slots=True)
class SharePartitionOffset:
    """Where a partition begins for a share group: what lies before was acknowledged. `lag` from Kafka 4.2 on."""

    start_offset: int
    leader_epoch: int | None
    lag: int | None


ShareOffsets = dict[TopicPartition, SharePartitionOffset]


class ShareGroupCalls(Part):
    """Calls about share groups, from Kafka 4.1 on."""

    async def list_share_group_offsets(
        self,
        groups: Mapping[str, Iterable[TopicPartition] | None],
        *,
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, SharePartitionOffset]]:
        """Where the partitions of share groups begin; None in place of partitions means all that have an offset."""
        call = await self._driver.begin("list_share_group_offsets", timeout)
        wanted = {group_id: _topics(partitions) for group_id, partitions in groups.items()}

        def build(spec: RequestSpec[str]) -> DescribeShareGroupOffsetsRequest:
            return DescribeShareGroupOffsetsRequest(
                groups=[
                    DescribeShareGroupOffsetsRequestGroup(group_id=group_id, topics=wanted[group_id])
                    for group_id in spec.keys
                ]
            )

        def read(
            spec: RequestSpec[str], response: DescribeShareGroupOffsetsResponse
        ) -> Iterable[tuple[str, ShareOffsets | Exception]]:
            for group in response.groups:
                if group.error_code:
                    yield group.group_id, broker_error(group.error_code, group.error_message)
                else:
                    yield group.group_id, _offsets(group)

        return await self._driver.ask_each(
            call, wanted, group_coordinators(), DescribeShareGroupOffsetsRequest, build, read
        )

    async def alter_share_group_offsets(
        self, group_id: str, offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> None:
        """Move where partitions begin, for a group without members: NON_EMPTY_GROUP otherwise."""
        call = await self._driver.begin("alter_share_group_offsets", timeout)
        wanted = {TopicPartition(*partition): offset for partition, offset in offsets.items()}

        def build(spec: RequestSpec[TopicPartition]) -> AlterShareGroupOffsetsRequest:
            return AlterShareGroupOffsetsRequest(
                group_id=group_id,
                topics=[
                    AlterShareGroupOffsetsRequestTopic(
                        topic_name=topic,
                        partitions=[
                            AlterShareGroupOffsetsRequestPartition(
                                partition_index=each.partition, start_offset=wanted[each]
                            )
                            for each in those
                        ],
                    )
                    for topic, those in by_topic(spec.keys).items()
                ],
            )

        def read(
            spec: RequestSpec[TopicPartition], response: AlterShareGroupOffsetsResponse
        ) -> Iterable[tuple[TopicPartition, Exception | None]]:
            raise_if_error(response.error_code, response.error_message)
            for topic in response.responses:
                for each in topic.partitions:
                    error = broker_error(each.error_code, each.error_message) if each.error_code else None
                    yield TopicPartition(topic.topic_name, each.partition_index), error

        await self._driver.ask_each(
            call,
            wanted,
            group_coordinator(group_id),
            AlterShareGroupOffsetsRequest,
            build,
            read,
            may_pass=NOT_DONE,
        )

    async def delete_share_group_offsets(
        self, group_id: str, topics: Iterable[str], *, timeout: float | None = None
    ) -> None:
        """Forget topics of a share group without members: NON_EMPTY_GROUP otherwise."""
        call = await self._driver.begin("delete_share_group_offsets", timeout)

        def build(spec: RequestSpec[str]) -> DeleteShareGroupOffsetsRequest:
            return DeleteShareGroupOffsetsRequest(
                group_id=group_id, topics=[DeleteShareGroupOffsetsRequestTopic(topic_name=topic) for topic in spec.keys]
            )

        def read(
            spec: RequestSpec[str], response: DeleteShareGroupOffsetsResponse
        ) -> Iterable[tuple[str, Exception | None]]:
            raise_if_error(response.error_code, response.error_message)
            for each in response.responses:
                yield each.topic_name, broker_error(each.error_code, each.error_message) if each.error_code else None

        await self._driver.ask_each(
            call,
            topics,
            group_coordinator(group_id),
            DeleteShareGroupOffsetsRequest,
            build,
            read,
            may_pass=NOT_DONE,
        )


def _topics(partitions: Iterable[TopicPartition] | None) -> list[DescribeShareGroupOffsetsRequestTopic] | None:
    if partitions is None:
        return None
    return [
        DescribeShareGroupOffsetsRequestTopic(topic_name=topic, partitions=[each.partition for each in those])
        for topic, those in by_topic(partitions).items()
    ]


def _offsets(group: DescribeShareGroupOffsetsResponseGroup) -> ShareOffsets:
    results: ShareOffsets = {}
    errors: dict[TopicPartition, Exception] = {}
    for topic in group.topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.topic_name, each.partition_index)
            if each.error_code:
                errors[partition] = broker_error(each.error_code, each.error_message)
            elif each.start_offset >= 0:
                results[partition] = SharePartitionOffset(
                    each.start_offset,
                    each.leader_epoch if each.leader_epoch >= 0 else None,
                    each.lag if each.lag >= 0 else None,
                )
    return settled([*errors, *results], results, errors)
