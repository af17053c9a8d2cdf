"""One partition of `__consumer_offsets`, and all groups that belong to it."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.coordinator import deletion
from barnabas.coordinator.classic.rebalance import prepare_rebalance, restart_session
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager
from barnabas.coordinator.offsets.manager import OffsetMetadataManager
from barnabas.coordinator.results import CoordinatorResult, Now, Operation, Reply
from barnabas.coordinator.skipped import Oddity, SkippedRecordError
from barnabas.coordinator.timeline import SnapshotRegistry
from barnabas.coordinator.timer import CoordinatorTimer
from barnabas.records.batch import NO_PRODUCER_ID
from barnabas.wire.schema import Struct
from barnabas.wire.stored.consumer_offsets import (
    GroupKey,
    GroupMetadataKey,
    GroupMetadataValue,
    GroupValue,
    LegacyOffsetCommitKey,
    OffsetCommitKey,
    OffsetCommitValue,
)


class GroupCoordinatorShard:
    """The groups of one partition, for `CoordinatorRuntime`. `requests` has what can be asked of it."""

    def __init__(self, config: GroupCoordinatorConfig, new_uuid: Callable[[], str]) -> None:
        self.snapshots = SnapshotRegistry()
        self.timer = CoordinatorTimer()
        self.groups = GroupMetadataManager(config, new_uuid, self.snapshots, self.timer)
        self.offsets = OffsetMetadataManager(self.snapshots)

    def __str__(self) -> str:
        return f"{len(self.groups)} groups"

    @property
    def replies(self) -> list[Reply]:
        return self.groups.replies

    # Replay

    def deserialize(self, key: bytes, value: bytes | None) -> tuple[Struct, Struct | None]:
        try:
            decoded = GroupKey.decode_key(key)
        except RemoteProtocolError as reason:
            raise SkippedRecordError(Oddity.KEY, reason) from None
        if decoded is None:
            raise SkippedRecordError(Oddity.TYPE, f"type {int.from_bytes(key[:2], 'big', signed=True)}")
        if not isinstance(decoded, OffsetCommitKey | LegacyOffsetCommitKey | GroupMetadataKey):
            raise SkippedRecordError(Oddity.KIND_OF_GROUP, type(decoded).__name__)
        if value is None:
            return decoded, None
        try:
            if isinstance(decoded, GroupMetadataKey):
                stored = GroupValue.decode_value(GroupMetadataKey.TYPE, value)
                _check_members(stored)
                return decoded, stored
            return decoded, GroupValue.decode_value(OffsetCommitKey.TYPE, value)
        except RemoteProtocolError as reason:
            raise SkippedRecordError(Oddity.VALUE, f"group {decoded.group!r:.40}: {reason}") from None

    def replay(self, key: Struct, value: Struct | None, offset: int, producer_id: int = NO_PRODUCER_ID) -> None:
        if isinstance(key, OffsetCommitKey | LegacyOffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            if value is not None:
                self.groups.replay_offset(key.group)
            partition = TopicPartition(key.topic, key.partition)
            self.offsets.replay(key.group, partition, value, offset, producer_id)
        else:
            assert isinstance(key, GroupMetadataKey)
            assert value is None or isinstance(value, GroupMetadataValue)
            self.groups.replay(key.group, value)

    def replay_end_transaction(self, producer_id: int, *, committed: bool) -> None:
        self.offsets.replay_end_transaction(producer_id, committed=committed)

    # Soft state

    def loaded(self, now: Now) -> list[Operation]:
        """Members have their session timeout to show that they live."""
        too_large = []
        for group_id, stored in self.groups.stored.latest().items():
            if not stored.members:
                continue
            group = self.groups.find(group_id)
            assert group is not None
            for member in group.members.values():
                restart_session(self.groups, group, member, now)
            if len(group.members) > self.groups.config.max_size:
                too_large.append(Operation(group_id, partial(self._rebalance, group_id)))
        deletion.schedule_sweep(self.groups, self.offsets, now)
        return too_large

    def _rebalance(self, group_id: str, now: Now) -> CoordinatorResult:
        """The limit was lowered. The members come back to the barrier, and the last ones find no room."""
        group = self.groups.find(group_id)
        return CoordinatorResult() if group is None else CoordinatorResult(prepare_rebalance(self.groups, group, now))

    def unloaded(self, error: ErrorCode) -> None:
        self.groups.unloaded(error)

    # What follows from the metadata of the cluster

    def forget_topic(self, topic: str) -> Operation:
        """A topic is deleted: one that comes after it under its name must not begin where others left it."""
        return Operation(None, partial(deletion.forget_topic, self.offsets, topic))


def _check_members(stored: GroupMetadataValue) -> None:
    known: set[str] = set()
    for each in stored.members:
        if each.member_id in known:
            raise RemoteProtocolError(f"it has the member {each.member_id!r:.40} twice")
        known.add(each.member_id)
