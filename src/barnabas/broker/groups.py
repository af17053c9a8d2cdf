"""The group coordinator of a node: the shards that it leads, and which of them a request is for.

A connection that closes takes no member with it: a member leaves, or its session ends.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Generator, Iterator
from random import Random
from typing import TypeAlias, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Runtime
from barnabas.broker.group_runner import GroupRunner, limits_of
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.topic_settings import effective_topic_settings
from barnabas.coordinator.commits import commit_failed
from barnabas.coordinator.describe import describe_failed
from barnabas.coordinator.fetches import fetch_failed
from barnabas.coordinator.join import refusal
from barnabas.coordinator.members import Client
from barnabas.coordinator.responses import join_failed, sync_failed
from barnabas.coordinator.routing import partition_for
from barnabas.coordinator.shard import GroupShard
from barnabas.coordinator.state import GroupLimits
from barnabas.coordinator.writer import PartitionWriter
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.wire.messages.delete_groups import DeletableGroupResult
from barnabas.wire.messages.describe_groups import DescribedGroup
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.list_groups import ListedGroup
from barnabas.wire.messages.offset_commit import OffsetCommitRequest, OffsetCommitResponse
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest, OffsetDeleteResponse
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupResponse

_log = logging.getLogger("barnabas.groups")

T = TypeVar("T")
#: An answer that is there, or one that will be.
Answer: TypeAlias = T | asyncio.Future[T]


def random_uuid(randomness: Random) -> str:
    """As Java prints a random one."""
    bits = randomness.getrandbits(128) & ~(0xF << 76) | (0x4 << 76)
    text = f"{bits & ~(0x3 << 62) | (0x2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class GroupService:
    """All groups that this node coordinates."""

    def __init__(self, settings: BrokerSettings, runtime: Runtime, node_id: int, writer: PartitionWriter) -> None:
        self._settings = settings
        self._runtime = runtime
        self._node_id = node_id
        self._writer = writer
        self._image = ClusterImage()
        self._runners: dict[int, GroupRunner] = {}
        self._partition_count = settings.offsets_topic_num_partitions
        self._limits = self._find_limits()
        self._to_load: list[GroupRunner] = []
        self._loader: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._is_started = False
        self._is_stopped = False

    # Following the cluster

    def configure(self, settings: BrokerSettings) -> None:
        """Settings of the node have changed."""
        self._settings = settings
        self._use_limits(self._find_limits())

    def _find_limits(self) -> GroupLimits:
        topic = effective_topic_settings(self._settings, self._image, CONSUMER_OFFSETS)
        return limits_of(self._settings, topic.max_message_bytes)

    def _use_limits(self, limits: GroupLimits) -> None:
        self._limits = limits
        for runner in self._runners.values():
            runner.settings = self._settings
            runner.shard.limits = limits

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
            self._use_limits(self._find_limits())
        for deleted in delta.topics_deleted:
            for index in list(self._runners):
                if deleted.name == CONSUMER_OFFSETS:
                    self._give_up(index)
                else:
                    self._runners[index].forget_topic(deleted.name)
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
                self._take_over(index)
            elif not is_led_here and index in self._runners:
                self._give_up(index)

    def _take_over(self, index: int) -> None:
        shard = GroupShard(self._limits, lambda: random_uuid(self._runtime.randomness))
        partition = TopicPartition(CONSUMER_OFFSETS, index)
        runner = GroupRunner(partition, shard, self._writer, self._runtime, self._settings, self._arm)
        self._runners[index] = runner
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
        self._to_load.clear()
        for index in list(self._runners):
            self._give_up(index)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loader, self._loader = self._loader, None
        if loader is not None:
            await loader

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

    # Members

    def join(self, request: JoinGroupRequest, version: int, client: Client) -> Answer[JoinGroupResponse]:
        error = refusal(self._limits, request)
        if error is not ErrorCode.NONE:
            return join_failed(error, request.member_id)
        runner = self._find(request.group_id)
        if isinstance(runner, ErrorCode):
            return join_failed(runner, request.member_id)
        token = runner.begin()
        runner.shard.join(request, version, client, token, runner.now())
        return runner.finish(token)

    def sync(self, request: SyncGroupRequest) -> Answer[SyncGroupResponse]:
        if not request.group_id:
            return sync_failed(ErrorCode.INVALID_GROUP_ID)
        runner = self._find(request.group_id)
        if isinstance(runner, ErrorCode):
            return sync_failed(runner)
        token = runner.begin()
        runner.shard.sync(request, token, runner.now())
        return runner.finish(token)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        if not request.group_id:
            return ErrorCode.INVALID_GROUP_ID
        runner = self._find(request.group_id)
        if isinstance(runner, ErrorCode):
            # While its group is loaded a member has nothing to fear.
            return ErrorCode.NONE if runner is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS else runner
        error = runner.shard.heartbeat(request, self._runtime.clock.monotonic_ms())
        runner.report_deadline()
        return error

    def leave(self, group_id: str, leaving: list[MemberIdentity]) -> Answer[LeaveGroupResponse]:
        if not group_id:
            return LeaveGroupResponse(error_code=ErrorCode.INVALID_GROUP_ID)
        runner = self._find(group_id)
        if isinstance(runner, ErrorCode):
            return LeaveGroupResponse(error_code=runner)
        token = runner.begin()
        runner.shard.leave(group_id, leaving, token, runner.now())
        return runner.finish(token)

    # Offsets

    def commit_offsets(self, request: OffsetCommitRequest, version: int) -> Answer[OffsetCommitResponse]:
        runner = self._find(request.group_id)
        if isinstance(runner, ErrorCode):
            return commit_failed(request.topics, runner)
        token = runner.begin()
        runner.shard.commit_offsets(request, version, token, runner.now())
        return runner.finish(token)

    def fetched_bytes(self, group_id: str) -> Generator[None, None, int]:
        """About how much memory all offsets of a group take in an answer."""
        runner = self._find(group_id)
        return 0 if isinstance(runner, ErrorCode) else (yield from runner.shard.fetched_bytes(group_id))

    def fetch_offsets(
        self, group_id: str, topics: list[OffsetFetchRequestTopics] | None, *, require_stable: bool
    ) -> Generator[None, None, Answer[OffsetFetchResponseGroup]]:
        runner = self._find(group_id)
        if isinstance(runner, ErrorCode):
            return fetch_failed(group_id, runner)
        if not require_stable:
            return (yield from runner.shard.fetch_offsets(group_id, topics))
        token = runner.begin()
        yield from runner.shard.fetch_stable_offsets(group_id, topics, token)
        return runner.finish(token)

    def delete_offsets(self, request: OffsetDeleteRequest) -> Answer[OffsetDeleteResponse]:
        if not request.group_id:
            return OffsetDeleteResponse(error_code=ErrorCode.INVALID_GROUP_ID, topics=[])
        runner = self._find(request.group_id)
        if isinstance(runner, ErrorCode):
            return OffsetDeleteResponse(error_code=runner, topics=[])
        token = runner.begin()
        runner.shard.delete_offsets(request, token, runner.now())
        return runner.finish(token)

    # Groups

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
                yield from runner.shard.list_groups(states, types)
            yield None

    def described_bytes(self, group_id: str) -> int:
        """About how much a description of a group has to say."""
        runner = self._find(group_id)
        return 0 if isinstance(runner, ErrorCode) else runner.shard.described_bytes(group_id)

    def describe_group(self, group_id: str, *, tells_missing: bool) -> Generator[None, None, DescribedGroup]:
        runner = self._find(group_id)
        if isinstance(runner, ErrorCode):
            return describe_failed(group_id, runner)
        return (yield from runner.shard.describe_group(group_id, tells_missing=tells_missing))

    def delete_group(self, group_id: str) -> Answer[DeletableGroupResult]:
        runner = self._find(group_id)
        if isinstance(runner, ErrorCode):
            return DeletableGroupResult(group_id=group_id, error_code=runner)
        token = runner.begin()
        runner.shard.delete_group(group_id, token, runner.now())
        return runner.finish(token)
