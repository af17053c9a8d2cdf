"""The group coordinator of a node: the shards that it leads, and which of them a request is for.

A connection that closes takes no member with it: a member leaves, or its session ends.
"""

from __future__ import annotations

import asyncio
from collections.abc import Generator, Iterator
from functools import partial
from random import Random
from typing import Final, TypeAlias, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Runtime
from barnabas.broker.configs.config_resources import effective_topic_settings
from barnabas.broker.groups.coordinator_runner import CoordinatorRunner, WriteSettings
from barnabas.broker.settings import BrokerSettings
from barnabas.coordinator import describe
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.offsets import fetches
from barnabas.coordinator.requests import Caller, GroupRequest
from barnabas.coordinator.results import CoordinatorResult, Operation
from barnabas.coordinator.routing import partition_for
from barnabas.coordinator.shard import GroupCoordinatorShard
from barnabas.coordinator.writer import PartitionWriter
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.records.compression import Codec
from barnabas.records.control import TransactionMarker
from barnabas.wire.messages.describe_groups import DescribedGroup
from barnabas.wire.messages.list_groups import ListedGroup
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from barnabas.wire.messages.write_txn_markers import WritableTxnMarkerPartitionResult
from barnabas.wire.schema import Struct

T = TypeVar("T")
Q = TypeVar("Q")
R = TypeVar("R", bound=Struct)
#: An answer that is there, or one that will be.
Answer: TypeAlias = T | asyncio.Future[T]
GroupRunner: TypeAlias = CoordinatorRunner[GroupCoordinatorShard]

#: For requests to which it makes no difference.
NOBODY: Final = Caller(0, Client("", ""))


def random_uuid(randomness: Random) -> str:
    """As Java prints a random one."""
    bits = randomness.getrandbits(128) & ~(0xF << 76) | (0x4 << 76)
    text = f"{bits & ~(0x3 << 62) | (0x2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class GroupCoordinatorService:
    """All groups that this node coordinates."""

    def __init__(self, settings: BrokerSettings, runtime: Runtime, node_id: int, writer: PartitionWriter) -> None:
        self._settings = settings
        self._runtime = runtime
        self._node_id = node_id
        self._writer = writer
        self._image = ClusterImage()
        self._runners: dict[int, GroupRunner] = {}
        self._partition_count = settings.offsets_topic_num_partitions
        self._config = config_of(settings)
        self._to_load: list[GroupRunner] = []
        self._loader: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._is_started = False
        self._is_stopped = False

    # Following the cluster

    def configure(self, settings: BrokerSettings) -> None:
        """Settings of the node have changed."""
        self._settings = settings
        self._config = config_of(settings)
        self._reconfigure()

    def _write_settings(self) -> WriteSettings:
        settings = self._settings
        return WriteSettings(
            append_linger_ms=settings.group_coordinator_append_linger_ms,
            commit_timeout_ms=settings.offsets_commit_timeout_ms,
            load_buffer_bytes=settings.offsets_load_buffer_size,
            codec=Codec(settings.offsets_topic_compression_codec),
            max_batch_bytes=effective_topic_settings(settings, self._image, CONSUMER_OFFSETS).max_message_bytes,
        )

    def _reconfigure(self) -> None:
        write_settings = self._write_settings()
        for runner in self._runners.values():
            runner.settings = write_settings
            runner.shard.groups.config = self._config

    def start(self) -> None:
        """Load what this node leads. Until it has joined the cluster it leads what a former life of it led, and that is
        taken from it when it joins: all groups would be loaded twice."""
        self._is_started = True
        self._follow_leaders()

    def apply(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Take over what this node leads now, give up what it does not, forget offsets of topics that are gone."""
        if self._is_stopped:
            return
        self._image = image
        if any(each.name == CONSUMER_OFFSETS for each in delta.configs_changed):
            self._reconfigure()
        for deleted in delta.topics_deleted:
            for index in list(self._runners):
                if deleted.name == CONSUMER_OFFSETS:
                    self._give_up(index)
                else:
                    self._runners[index].submit_when_loaded(partial(_forget_topic, deleted.name))
        if self._is_started and any(each.topic == CONSUMER_OFFSETS for each in delta.partitions_changed):
            self._follow_leaders()

    def _follow_leaders(self) -> None:
        topic = self._image.topics.get(CONSUMER_OFFSETS)
        partitions = topic.partitions if topic is not None else ()
        if partitions:
            self._partition_count = len(partitions)
        for index, partition in enumerate(partitions):
            is_led_here = partition.leader == self._node_id
            if is_led_here and index not in self._runners:
                self._take_over(index, partition.leader_epoch)
            elif is_led_here:
                runner = self._runners[index]
                # In another epoch what was in memory may not be what the log has; and what kept it from being loaded
                # may be over.
                if runner.leader_epoch != partition.leader_epoch or runner.has_failed:
                    runner.leader_epoch = partition.leader_epoch
                    runner.reload()
            elif not is_led_here and index in self._runners:
                self._give_up(index)

    def _take_over(self, index: int, leader_epoch: int) -> None:
        runner: GroupRunner = CoordinatorRunner(
            TopicPartition(CONSUMER_OFFSETS, index),
            lambda: GroupCoordinatorShard(self._config, lambda: random_uuid(self._runtime.randomness)),
            self._writer,
            self._runtime,
            self._write_settings(),
            on_deadline=self._arm,
            on_reload=self._load_later,
            leader_epoch=leader_epoch,
        )
        self._runners[index] = runner
        self._load_later(runner)

    def _load_later(self, runner: GroupRunner) -> None:
        """As soon as it can be told what its partition holds: that may take until followers are heard of, and others
        must not wait for it."""
        waiting = asyncio.get_running_loop().create_task(self._load_when_readable(runner))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _load_when_readable(self, runner: GroupRunner) -> None:
        # Why it is not readable, if it is not, is told when it is read.
        await runner.until_readable()
        self._to_load.append(runner)
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        """One after the other: together they would be no faster, and the first groups would wait for the last."""
        try:
            while self._to_load:
                await self._to_load.pop(0).load()
        finally:
            self._loader = None

    def _give_up(self, index: int) -> None:
        self._runners.pop(index).close()

    async def stop(self) -> None:
        """Whoever waits is sent away; what was committed is in the log."""
        self._is_stopped = True
        for waiting in self._waiting:
            waiting.cancel()
        self._to_load.clear()
        for index in list(self._runners):
            self._give_up(index)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loader, self._loader = self._loader, None
        if loader is not None:
            await loader
        await asyncio.gather(*self._waiting, return_exceptions=True)

    # Time: one timer for all shards

    def _arm(self, deadline_ms: int) -> None:
        if self._timer_deadline_ms is not None and self._timer_deadline_ms <= deadline_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline_ms = deadline_ms
        delay_ms = max(deadline_ms - self._runtime.clock.monotonic_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_deadline_ms = None
        for runner in list(self._runners.values()):
            # Also those that have nothing to do yet: each tells its next deadline again.
            runner.tick()

    # Finding the shard

    def partition_for(self, group_id: str) -> int:
        return partition_for(group_id, self._partition_count)

    def _find(self, group_id: str) -> GroupRunner | ErrorCode:
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        runner = self._runners.get(partition_for(group_id, self._partition_count))
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        error = runner.error
        return runner if error is ErrorCode.NONE else error

    # Requests

    def submit(self, kind: GroupRequest[Q, R], request: Q, caller: Caller = NOBODY) -> Answer[R]:
        """Ask the coordinator of a group for something that may change the group."""
        error = kind.refusal(self._config, request)
        if error is not ErrorCode.NONE:
            return kind.failed(request, error)
        runner = self._find(kind.group_id(request))
        if isinstance(runner, ErrorCode):
            return kind.failed(request, runner)
        if kind.answer is not None and not runner.has_unappended:
            return runner.answer(kind.answer, request)
        return runner.submit(partial(kind.operation, request, caller))

    def complete_transaction(
        self, partition: int, marker: TransactionMarker, transaction_version: int
    ) -> Answer[WritableTxnMarkerPartitionResult]:
        """Write the marker of a transaction into a partition of groups, so that its offsets count, or do not."""
        runner = self._runners.get(partition)
        error = ErrorCode.NOT_COORDINATOR if runner is None or self._is_stopped else runner.error
        if runner is None or error is not ErrorCode.NONE:
            return WritableTxnMarkerPartitionResult(partition_index=partition, error_code=error)
        return runner.complete_transaction(marker, transaction_version)

    # Reading: what is committed, in steps

    def fetched_bytes(self, group_id: str) -> Generator[None, None, int]:
        """About how much memory all offsets of a group take in an answer."""
        runner = self._find(group_id)
        return (
            0 if isinstance(runner, ErrorCode) else (yield from fetches.fetched_bytes(runner.shard.offsets, group_id))
        )

    def fetch_offsets(
        self, group_id: str, topics: list[OffsetFetchRequestTopics] | None, *, require_stable: bool
    ) -> Generator[None, None, Answer[OffsetFetchResponseGroup]]:
        runner = self._find(group_id)
        if isinstance(runner, ErrorCode):
            return fetches.fetch_failed(group_id, runner)
        if not require_stable:
            return (yield from fetches.fetch(runner.shard.offsets, group_id, topics))
        # The latest offsets, which are told once they are committed.
        runner.append_now()
        response = yield from fetches.fetch_stable(runner.shard.offsets, group_id, topics)
        if runner.error is not ErrorCode.NONE:
            return fetches.fetch_failed(group_id, runner.error)
        result = CoordinatorResult(response=response, after_writes=True)
        if_failed = partial(fetches.stable_fetch_failed, group_id)
        return runner.submit(lambda _, token: Operation(group_id, lambda _: result, token, if_failed, is_blind=True))

    @property
    def group_count(self) -> int:
        return sum(len(runner.shard.groups) for runner in self._runners.values())

    def list_groups(self, states: list[str], types: list[str]) -> Iterator[ListedGroup | ErrorCode | None]:
        """The groups one after the other, None for each that was not asked for, or an error and no more."""
        if self._is_stopped:
            yield ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        for runner in list(self._runners.values()):
            if runner.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                # A list with holes would look like deleted groups.
                yield runner.error
                return
            if runner.error is ErrorCode.NONE:
                yield from describe.list_groups(runner.shard.groups, states, types)
            yield None

    def described_bytes(self, group_id: str) -> int:
        """About how much a description of a group has to say."""
        runner = self._find(group_id)
        return 0 if isinstance(runner, ErrorCode) else describe.described_bytes(runner.shard.groups, group_id)

    def describe_group(self, group_id: str, *, tells_missing: bool) -> Generator[None, None, DescribedGroup]:
        runner = self._find(group_id)
        if isinstance(runner, ErrorCode):
            return describe.describe_failed(group_id, runner)
        return (yield from describe.describe_group(runner.shard.groups, group_id, tells_missing=tells_missing))


def _forget_topic(topic: str, shard: GroupCoordinatorShard) -> Operation:
    return shard.forget_topic(topic)


def config_of(settings: BrokerSettings) -> GroupCoordinatorConfig:
    """The settings that groups live by."""
    return GroupCoordinatorConfig(
        min_session_timeout_ms=settings.group_min_session_timeout_ms,
        max_session_timeout_ms=settings.group_max_session_timeout_ms,
        initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
        max_size=settings.group_max_size,
        offset_metadata_max_chars=settings.offset_metadata_max_bytes,
        offsets_retention_ms=settings.offsets_retention_minutes * 60_000,
        retention_check_interval_ms=settings.offsets_retention_check_interval_ms,
    )
