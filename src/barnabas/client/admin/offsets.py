"""Offsets that partitions hold, and records that are deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, Self

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.driver import Part, RequestSpec, broker_error
from barnabas.client.admin.routes import each_leader
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

ISOLATION_LEVELS: Final = {"read_uncommitted": 0, "read_committed": 1}


@dataclass(frozen=True, slots=True)
class OffsetSpec:
    """Which offset of a partition is meant: `OffsetSpec.latest()`, `OffsetSpec.at(timestamp_ms)` …"""

    timestamp: int
    #: The version of ListOffsets that knows this one, and the Kafka that brought it.
    needs: tuple[int, str] = (0, "")

    @classmethod
    def earliest(cls) -> Self:
        """The first offset that is there, also if it lies in remote storage."""
        return cls(-2)

    @classmethod
    def latest(cls) -> Self:
        """The offset of the next record. With `read_committed`, the first one that an open transaction holds back."""
        return cls(-1)

    @classmethod
    def max_timestamp(cls) -> Self:
        """The record with the largest timestamp. From Kafka 3.0 on."""
        return cls(-3, (7, "3.0"))

    @classmethod
    def earliest_local(cls) -> Self:
        """The first offset on the broker's own disk. From Kafka 3.4 on."""
        return cls(-4, (8, "3.4"))

    @classmethod
    def latest_tiered(cls) -> Self:
        """The last offset in remote storage. From Kafka 3.6 on."""
        return cls(-5, (9, "3.6"))

    @classmethod
    def earliest_pending_upload(cls) -> Self:
        """The first offset that is not yet in remote storage. From Kafka 4.2 on."""
        return cls(-6, (11, "4.2"))

    @classmethod
    def at(cls, timestamp_ms: int) -> Self:
        """The first record that is not older."""
        if timestamp_ms < 0:
            raise ValueError(f"a time cannot be negative: {timestamp_ms} ms")
        return cls(timestamp_ms)


@dataclass(frozen=True, slots=True)
class ListedOffset:
    """An offset, with the timestamp of its record where that was looked up. -1 stands for none."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


class OffsetCalls(Part):
    """Calls about offsets of partitions."""

    async def list_offsets(
        self,
        specs: Mapping[TopicPartition, OffsetSpec],
        *,
        isolation_level: str = "read_uncommitted",
        timeout: float | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """An offset of each partition. `offset` is -1 if no record is as the spec asks.

        A kind of offset that a broker does not know is `UnsupportedRequestError`.
        """
        if isolation_level not in ISOLATION_LEVELS:
            raise ValueError(f"isolation_level = {isolation_level!r}: read_uncommitted or read_committed is expected")
        call = await self._driver.begin("list_offsets", timeout)
        wanted = {TopicPartition(*partition): spec for partition, spec in specs.items()}
        route = each_leader()

        def build(spec: RequestSpec[TopicPartition]) -> ListOffsetsRequest:
            for partition in spec.keys:
                version, release = wanted[partition].needs
                if spec.version < version:
                    raise spec.unsupported(
                        ListOffsetsRequest,
                        f"this kind of offset came with {version}, that is Kafka {release}",
                    )
            return ListOffsetsRequest(
                replica_id=-1,
                isolation_level=ISOLATION_LEVELS[isolation_level],
                topics=[
                    ListOffsetsTopic(
                        name=topic,
                        partitions=[
                            ListOffsetsPartition(
                                partition_index=each.partition,
                                current_leader_epoch=route.epochs.get(each, -1),
                                timestamp=wanted[each].timestamp,
                            )
                            for each in partitions
                        ],
                    )
                    for topic, partitions in by_topic(spec.keys).items()
                ],
                timeout_ms=spec.timeout_ms,
            )

        def read(
            spec: RequestSpec[TopicPartition], response: ListOffsetsResponse
        ) -> Iterable[tuple[TopicPartition, ListedOffset | Exception]]:
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    if each.error_code:
                        yield partition, broker_error(each.error_code)
                    else:
                        epoch = each.leader_epoch if each.leader_epoch >= 0 else None
                        yield partition, ListedOffset(each.offset, each.timestamp, epoch)

        return await self._driver.ask_each(call, wanted, route, ListOffsetsRequest, build, read)

    async def delete_records(
        self, before_offsets: Mapping[TopicPartition, int], *, timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """Delete the records before an offset of each partition (-1: all), and return where each begins now.

        OFFSET_OUT_OF_RANGE for an offset beyond the high watermark, POLICY_VIOLATION where only compaction may delete.
        """
        call = await self._driver.begin("delete_records", timeout)
        wanted = {TopicPartition(*partition): offset for partition, offset in before_offsets.items()}

        def build(spec: RequestSpec[TopicPartition]) -> DeleteRecordsRequest:
            return DeleteRecordsRequest(
                topics=[
                    DeleteRecordsTopic(
                        name=topic,
                        partitions=[
                            DeleteRecordsPartition(partition_index=each.partition, offset=wanted[each])
                            for each in partitions
                        ],
                    )
                    for topic, partitions in by_topic(spec.keys).items()
                ],
                timeout_ms=spec.timeout_ms,
            )

        def read(
            spec: RequestSpec[TopicPartition], response: DeleteRecordsResponse
        ) -> Iterable[tuple[TopicPartition, int | Exception]]:
            for topic in response.topics:
                for each in topic.partitions:
                    partition = TopicPartition(topic.name, each.partition_index)
                    yield partition, broker_error(each.error_code) if each.error_code else each.low_watermark

        # Asking again is harmless: what lies before the offset is gone, or goes now.
        return await self._driver.ask_each(call, wanted, each_leader(), DeleteRecordsRequest, build, read)


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[TopicPartition]]:
    """Partitions under their topics, as most requests have them."""
    grouped: dict[str, list[TopicPartition]] = {}
    for each in partitions:
        grouped.setdefault(each.topic, []).append(each)
    return grouped
