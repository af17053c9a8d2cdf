"""The groups of a shard: what the log says of them, and what is going on in them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic import responses
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import Member
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.results import Reply, Token
from barnabas.coordinator.timeline import SnapshotRegistry, TimelineDict
from barnabas.coordinator.timer import CoordinatorTimer, Key
from barnabas.wire.schema import Struct
from barnabas.wire.stored.consumer_offsets import GroupMetadataValue

#: Of a group that has no record of its own: it is there because its offsets are.
SIMPLE_GROUP: Final = GroupMetadataValue(protocol_type="", generation=0, protocol=None, leader=None, members=[])


def session_key(group_id: str, member_id: str) -> Key:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> Key:
    return ("join", group_id)


def sync_key(group_id: str) -> Key:
    return ("sync", group_id)


class GroupMetadataManager:
    """Replayed and soft state of groups. `new_uuid` gives the random part of member ids."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        new_uuid: Callable[[], str],
        snapshots: SnapshotRegistry,
        timer: CoordinatorTimer,
    ) -> None:
        self.config = config
        self.new_uuid = new_uuid
        #: Replayed: every group that is in the log, as its last record has it. It changes in `replay` only.
        self.stored: TimelineDict[str, GroupMetadataValue] = TimelineDict(snapshots)
        # Soft, from here on.
        self.timer = timer
        self.replies: list[Reply] = []
        #: Groups in which something is going on, and those that were asked for. The others are as `stored` says.
        self.active: dict[str, ClassicGroup] = {}
        #: Group and id of members that were told to come back, the oldest first; some may have come (see `pending`).
        self.pending: dict[tuple[str, str], None] = {}

    # Replay

    def replay(self, group_id: str, value: GroupMetadataValue | None) -> None:
        """Take in a record of a group."""
        if value is None:
            self.stored.delete(group_id)
        else:
            self.stored.set(group_id, value)

    def replay_offset(self, group_id: str) -> None:
        """Take in that a group has an offset."""
        if self.stored.get(group_id) is None:
            self.stored.set(group_id, SIMPLE_GROUP)

    # Finding

    def find(self, group_id: str) -> ClassicGroup | None:
        """A group to work on."""
        group = self.active.get(group_id)
        if group is None:
            group = self.peek(group_id)
            if group is not None:
                self.active[group_id] = group
        return group

    def peek(self, group_id: str) -> ClassicGroup | None:
        """A group to look at, and not to be changed."""
        group = self.active.get(group_id)
        if group is None:
            stored = self.stored.get(group_id)
            if stored is not None:
                group = ClassicGroup.restored(group_id, stored)
        return group

    def ids(self) -> list[str]:
        """Of all groups: those that are in the log, and those that are on their way into it."""
        return list(dict.fromkeys([*self.stored.latest(), *self.active]))

    def __len__(self) -> int:
        return max(len(self.stored), len(self.active))

    # Soft state

    def reply(self, token: Token, response: Struct) -> None:
        self.replies.append(Reply(token, response))

    def answer_join(self, member: Member, response: responses.JoinGroupResponse) -> None:
        if member.join_token is not None:
            self.reply(member.join_token, response)
            member.join_token = None

    def answer_sync(self, member: Member, response: responses.SyncGroupResponse) -> bool:
        if member.sync_token is None:
            return False
        self.reply(member.sync_token, response)
        member.sync_token = None
        return True

    def drop(self, group_id: str) -> ClassicGroup | None:
        """Forget what is going on in a group. Whatever is parked there is for the caller to answer."""
        group = self.active.pop(group_id, None)
        if group is not None:
            for key in (join_key(group_id), sync_key(group_id)):
                self.timer.cancel(key)
            for member_id in (*group.members, *group.pending_join):
                self.timer.cancel(session_key(group_id, member_id))
        return group

    def unloaded(self, error: ErrorCode) -> None:
        for group in self.active.values():
            for member in group.members.values():
                self.answer_join(member, responses.join_failed(error, member.member_id))
                self.answer_sync(member, responses.sync_failed(error))
