"""Asking brokers for offsets: by time, first, last, and where leader epochs ended."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Mapping
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Clock
from barnabas.client.core.consuming.offset_requests import (
    FIRST_FOR_CONSUMERS,
    NO_OFFSET,
    EpochQuestion,
    LeaderEpochEnd,
    ListOffsetData,
    PartitionResults,
    bundle,
    epoch_request,
    list_offsets_request,
    read_epochs,
    read_list_offsets,
)
from barnabas.client.core.consuming.offsets import (
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_EPOCH,
    OffsetAndTimestamp,
)
from barnabas.client.errors import ClientTimeoutError
from barnabas.client.network_client import NetworkClient
from barnabas.client.settings.consumer import ConsumerSettings
from barnabas.net.errors import ChannelError, RefusedError, UnsupportedRequestError
from barnabas.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

_EPOCHS_NOT_OFFERED: Final = LeaderEpochEnd(-2, -2)


class OffsetLookup:
    """One question per leader at a time; who is not answered is asked again, elsewhere if the leader has moved."""

    def __init__(self, network: NetworkClient, settings: ConsumerSettings, *, clock: Clock) -> None:
        self._network = network
        self._clock = clock
        self._is_read_committed = settings.isolation_level == "read_committed"
        self._request_timeout_ms = settings.request_timeout_ms
        self._retry_backoff_ms = settings.retry_backoff_ms
        self._retry_backoff_max_ms = settings.retry_backoff_max_ms

    # For programs: all, or an error

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: int
    ) -> dict[TopicPartition, int]:
        listed = await self.list_offsets(dict.fromkeys(partitions, EARLIEST_TIMESTAMP), timeout_ms)
        return {partition: each.offset for partition, each in listed.items()}

    async def end_offsets(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> dict[TopicPartition, int]:
        """With isolation.level=read_committed those behind the last record of a finished transaction."""
        listed = await self.list_offsets(dict.fromkeys(partitions, LATEST_TIMESTAMP), timeout_ms)
        return {partition: each.offset for partition, each in listed.items()}

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record that is not older, of each partition; None where all are."""
        for partition, timestamp_ms in timestamps_ms.items():
            if timestamp_ms < 0:
                raise ValueError(f"{partition}: a time must be 0 or more milliseconds since 1970, not {timestamp_ms}")
        listed = await self.list_offsets(timestamps_ms, timeout_ms)
        return {
            partition: None
            if each.offset == NO_OFFSET
            else OffsetAndTimestamp(
                each.offset, each.timestamp_ms, None if each.leader_epoch == NO_EPOCH else each.leader_epoch
            )
            for partition, each in listed.items()
        }

    async def list_offsets(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout_ms: int
    ) -> dict[TopicPartition, ListOffsetData]:
        """Ask until all have answered or the time is up."""
        wanted = {TopicPartition(*partition): timestamp_ms for partition, timestamp_ms in timestamps_ms.items()}
        found: dict[TopicPartition, ListOffsetData] = {}
        reasons: dict[TopicPartition, ErrorCode] = {}
        try:
            # What was asked goes on after that: to break it off would mean to close the connection.
            async with asyncio.timeout(timeout_ms / 1000):
                await self._know_topics(wanted, timeout_ms)
                await self._list_until_found(wanted, found, reasons)
        except TimeoutError as error:
            if isinstance(error, ClientTimeoutError):
                raise
            if not self._network.view.nodes:
                raise self._network.gave_up("offsets were to be looked up", timeout_ms) from None
            left = [partition for partition in wanted if partition not in found]
            told = ", ".join(f"{each} ({reasons[each].name})" if each in reasons else str(each) for each in left)
            raise ClientTimeoutError(f"no offsets within {timeout_ms} ms of {told}") from None
        return {partition: found[partition] for partition in wanted}

    async def _list_until_found(
        self,
        wanted: Mapping[TopicPartition, int],
        found: dict[TopicPartition, ListOffsetData],
        reasons: dict[TopicPartition, ErrorCode],
    ) -> None:
        attempt = 0
        while left := {partition: time for partition, time in wanted.items() if partition not in found}:
            outcome = await self.list_once(left)
            if outcome.failed:
                raise next(iter(outcome.failed.values()))
            found.update(outcome.found)
            reasons.update(outcome.retry)
            if outcome.retry:
                wait_ms = min(self._retry_backoff_ms * 2 ** min(attempt, 20), self._retry_backoff_max_ms)
                attempt += 1
                await asyncio.sleep(wait_ms / 1000)

    async def _know_topics(self, partitions: Iterable[TopicPartition], timeout_ms: int) -> None:
        network, clock = self._network, self._clock
        deadline_ms = clock.monotonic_ms() + timeout_ms
        for topic in dict.fromkeys(partition.topic for partition in partitions):
            if network.view.partition_count(topic) is None:
                await network.topic_metadata(topic, max(1, deadline_ms - clock.monotonic_ms()))
        beyond = self._beyond_the_last(partitions)
        if not beyond:
            return
        # Topics grow, and what is known of them may be minutes old.
        for partition in beyond:
            network.metadata.want(partition.topic, clock.monotonic_ms())
        await network.update_metadata(max(1, deadline_ms - clock.monotonic_ms()))
        for partition, count in self._beyond_the_last(beyond).items():
            raise BrokerError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                f"{partition}: the topic has the partitions 0 to {count - 1}",
            )

    def _beyond_the_last(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Those that their topics do not have, as far as that is known, with how many there are instead."""
        counts = {partition: self._network.view.partition_count(partition.topic) for partition in partitions}
        return {
            partition: count
            for partition, count in counts.items()
            if count is not None and not 0 <= partition.partition < count
        }

    # For those who keep positions up: one attempt

    async def list_once(self, timestamps_ms: Mapping[TopicPartition, int]) -> PartitionResults[ListOffsetData]:
        """Ask every leader once."""
        view = self._network.view
        bundled = bundle(view, timestamps_ms)
        total: PartitionResults[ListOffsetData] = PartitionResults()
        total.retry.update(dict.fromkeys(bundled.without_leader, ErrorCode.LEADER_NOT_AVAILABLE))

        async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
            request = list_offsets_request(
                view,
                {partition: timestamps_ms[partition] for partition in partitions},
                read_committed=self._is_read_committed,
                timeout_ms=self._request_timeout_ms,
            )
            try:
                response = await self._network.request(node_id, request)
            except RefusedError:
                raise
            except ChannelError:
                total.retry.update(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))
                return
            outcome = read_list_offsets(partitions, response)
            total.found.update(outcome.found)
            total.retry.update(outcome.retry)
            total.failed.update(outcome.failed)

        await _all(ask(node_id, partitions) for node_id, partitions in bundled.by_node.items())
        self._refresh_if(total)
        return total

    async def epoch_ends_once(
        self, questions: Mapping[TopicPartition, EpochQuestion]
    ) -> PartitionResults[LeaderEpochEnd]:
        """Ask every leader once. A broker that is too old for the question is taken to hold everything."""
        bundled = bundle(self._network.view, questions)
        total: PartitionResults[LeaderEpochEnd] = PartitionResults()
        total.retry.update(dict.fromkeys(bundled.without_leader, ErrorCode.LEADER_NOT_AVAILABLE))

        async def ask(node_id: int, partitions: list[TopicPartition]) -> None:
            request = epoch_request({partition: questions[partition] for partition in partitions})
            try:
                if self._network.version_of(node_id, OffsetForLeaderEpochRequest) is None:
                    await self._network.connect(node_id, self._request_timeout_ms)
                version = self._network.version_of(node_id, OffsetForLeaderEpochRequest)
                if version is not None and version < FIRST_FOR_CONSUMERS:
                    total.found.update(dict.fromkeys(partitions, _EPOCHS_NOT_OFFERED))
                    return
                response = await self._network.request(node_id, request)
            except UnsupportedRequestError:
                total.found.update(dict.fromkeys(partitions, _EPOCHS_NOT_OFFERED))
                return
            except RefusedError:
                raise
            except ChannelError:
                total.retry.update(dict.fromkeys(partitions, ErrorCode.NETWORK_EXCEPTION))
                return
            outcome = read_epochs(partitions, response)
            total.found.update(outcome.found)
            total.retry.update(outcome.retry)
            total.failed.update(outcome.failed)

        await _all(ask(node_id, partitions) for node_id, partitions in bundled.by_node.items())
        self._refresh_if(total)
        return total

    def _refresh_if(self, outcome: PartitionResults[ListOffsetData] | PartitionResults[LeaderEpochEnd]) -> None:
        if outcome.retry:
            self._network.metadata.request_update()


def is_not_offered(end: LeaderEpochEnd) -> bool:
    return end is _EPOCHS_NOT_OFFERED


async def _all(works: Iterable[Coroutine[object, object, None]]) -> None:
    await asyncio.gather(*works)
