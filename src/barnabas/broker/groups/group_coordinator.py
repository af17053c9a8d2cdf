"""The group coordinator of a node: the shards that it leads, and which of them a request is for.

A connection that closes takes no member with it: a member leaves, or its session ends.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from functools import partial
from random import Random
from typing import Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.configs.config_resources import effective_topic_settings
from barnabas.broker.coordinators.coordinator_runner import Words, WriteSettings
from barnabas.broker.coordinators.coordinator_service import Answer, CoordinatorService
from barnabas.broker.settings import BrokerSettings
from barnabas.coordinator import describe
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.offsets import fetches
from barnabas.coordinator.requests import Caller, GroupRequest
from barnabas.coordinator.results import CoordinatorResult, Operation
from barnabas.coordinator.shard import GroupCoordinatorShard
from barnabas.coordinator.writer import PartitionWriter
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

_WORDS: Final = Words(logger("barnabas.groups"), "groups", "group metadata")

#: For requests to which it makes no difference.
NOBODY: Final = Caller(0, Client("", ""))


def random_uuid(randomness: Random) -> str:
    """As Java prints a random one."""
    bits = randomness.getrandbits(128) & ~(0xF << 76) | (0x4 << 76)
    text = f"{bits & ~(0x3 << 62) | (0x2 << 62):032x}"
    return f"{text[:8]}-{text[8:12]}-{text[12:16]}-{text[16:20]}-{text[20:]}"


class GroupCoordinatorService(CoordinatorService[GroupCoordinatorShard]):
    """All groups that this node coordinates."""

    def __init__(self, settings: BrokerSettings, runtime: Runtime, node_id: int, writer: PartitionWriter) -> None:
        super().__init__(CONSUMER_OFFSETS, _WORDS, runtime, node_id, writer, settings.offsets_topic_num_partitions)
        self._settings = settings
        self._config = config_of(settings)

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

    def _new_shard(self, index: int) -> GroupCoordinatorShard:
        return GroupCoordinatorShard(self._config, lambda: random_uuid(self._runtime.randomness))

    def _reconfigure_shard(self, shard: GroupCoordinatorShard) -> None:
        shard.groups.config = self._config

    def _topics_deleted(self, names: list[str]) -> None:
        """Forget their offsets."""
        for name in names:
            for runner in list(self._runners.values()):
                runner.submit_when_loaded(partial(_forget_topic, name))

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
        for shard in self._serving():
            if isinstance(shard, ErrorCode):
                yield shard
                return
            yield from describe.list_groups(shard.groups, states, types)
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
