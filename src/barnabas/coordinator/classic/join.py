"""JoinGroup: members come to the barrier."""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic import responses
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import NO_MEMBER_ID, Client, Member, Protocol
from barnabas.coordinator.classic.pending import await_member, new_member_id
from barnabas.coordinator.classic.rebalance import (
    complete_if_everyone_joined,
    prepare_rebalance,
    rebalance_or_complete,
    restart_session,
    update_member,
)
from barnabas.coordinator.classic.records import group_record, new_group_record
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager, session_key
from barnabas.coordinator.results import NO_RECORDS, CoordinatorResult, Now, Records, Token, WriteCallback
from barnabas.wire.messages.join_group import JoinGroupRequest

#: From this version on a dynamic member gets its id first and joins with it, so that a lost answer leaves no ghost.
_FIRST_WITH_REQUIRED_ID: Final = 4
_FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9
#: How long a new member may wait at the join barrier. It cannot send heartbeats, since it does not know its id, and a
#: client that gave up comes back as another member: without a limit its ghosts would hold up the group for ever.
_NEW_MEMBER_JOIN_TIMEOUT_MS: Final = 300_000


class Joining(NamedTuple):
    """A join request with all that its answer depends on."""

    request: JoinGroupRequest
    version: int
    client: Client
    protocols: tuple[Protocol, ...]
    token: Token

    @property
    def rebalance_timeout_ms(self) -> int:
        # Version 0 had one timeout for both.
        return self.request.rebalance_timeout_ms if self.version else self.request.session_timeout_ms


def refusal(config: GroupCoordinatorConfig, request: JoinGroupRequest) -> ErrorCode:
    """What is wrong with a request whatever the group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not config.min_session_timeout_ms <= request.session_timeout_ms <= config.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(
    manager: GroupMetadataManager, request: JoinGroupRequest, version: int, client: Client, token: Token, now: Now
) -> CoordinatorResult:
    """Take a member to the barrier; its token is answered when the barrier opens, or at once with an error."""
    protocols = {each.name: Protocol(each.name, bytes(each.metadata)) for each in reversed(request.protocols)}
    joining = Joining(request, version, client, tuple(reversed(protocols.values())), token)
    group = manager.find(request.group_id)
    if group is not None:
        return _join_group(manager, group, joining, now)
    if request.member_id != NO_MEMBER_ID:
        return _refused(joining, ErrorCode.UNKNOWN_MEMBER_ID)
    group = manager.active[request.group_id] = ClassicGroup(request.group_id, now.wall_ms)
    created = new_group_record(group)
    result = _join_group(manager, group, joining, now)
    if result.response is not None:
        # That it was refused, or told to come back, has nothing to do with the record of the group.
        manager.reply(token, result.response)
    return CoordinatorResult([created, *result.records], callback=_GroupCreated(manager, group), then=result.then)


def _refused(joining: Joining, error: ErrorCode) -> CoordinatorResult:
    return CoordinatorResult(response=responses.join_failed(error, joining.request.member_id))


class _GroupCreated(WriteCallback):
    """Nobody waits in a group that is not in the log."""

    __slots__ = ("_group", "_manager")

    def __init__(self, manager: GroupMetadataManager, group: ClassicGroup) -> None:
        self._manager = manager
        self._group = group

    def failed(self, error: ErrorCode, now: Now) -> Records:
        manager, group_id = self._manager, self._group.group_id
        if manager.active.get(group_id) is self._group and group_id not in manager.stored:
            manager.drop(group_id)
            for member in self._group.members.values():
                manager.answer_join(member, responses.join_failed(error, NO_MEMBER_ID))
        return NO_RECORDS


def _join_group(manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, now: Now) -> CoordinatorResult:
    request = joining.request
    if not _has_room(group, request.member_id, manager.config.max_size):
        return _send_away(manager, group, joining, now)
    if not group.supports(request.protocol_type, joining.protocols):
        return _refused(joining, ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
    if request.member_id == NO_MEMBER_ID:
        return _join_as_new(manager, group, joining, now)
    if request.member_id not in group.pending_join:
        return _rejoin(manager, group, joining, now)
    if request.group_instance_id is not None:
        # The id was given to a dynamic member: whoever calls it static is confused.
        return _refused(joining, ErrorCode.UNKNOWN_SERVER_ERROR)
    return _add_member(manager, group, joining, request.member_id, now)


def _has_room(group: ClassicGroup, member_id: str, max_size: int) -> bool:
    """Whether the group may take the sender in.

    At the barrier those who are there count, not those who are known: when the limit was lowered, the last ones to
    come back have to go.
    """
    if len(group.members) < max_size or group.state is ClassicGroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_token is not None) or group.waiting_to_join < max_size
    return member is not None


def _send_away(manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, now: Now) -> CoordinatorResult:
    member = group.remove(joining.request.member_id)
    if member is not None:
        manager.timer.cancel(session_key(group.group_id, member.member_id))
        manager.answer_sync(member, responses.sync_failed(ErrorCode.UNKNOWN_MEMBER_ID))
    manager.reply(joining.token, responses.join_failed(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
    return CoordinatorResult(complete_if_everyone_joined(manager, group, now))


def _join_as_new(manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, now: Now) -> CoordinatorResult:
    request = joining.request
    if request.group_instance_id is not None:
        new_id = new_member_id(manager, request.group_instance_id)
        old_id = group.static_ids.get(request.group_instance_id)
        if old_id is not None:
            return _replace_static_member(manager, group, joining, old_id, new_id, now)
        return _add_member(manager, group, joining, new_id, now)
    new_id = new_member_id(manager, joining.client.client_id)
    if joining.version < _FIRST_WITH_REQUIRED_ID:
        return _add_member(manager, group, joining, new_id, now)
    make_way = await_member(manager, group, new_id, request.session_timeout_ms, now)
    response = responses.join_failed(ErrorCode.MEMBER_ID_REQUIRED, new_id)
    return CoordinatorResult(response=response, then=make_way)


def _add_member(
    manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, member_id: str, now: Now
) -> CoordinatorResult:
    request = joining.request
    member = Member(
        member_id,
        request.group_instance_id,
        joining.client,
        joining.rebalance_timeout_ms,
        request.session_timeout_ms,
        joining.protocols,
        join_token=joining.token,
        is_new=True,
    )
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.previous_state is ClassicGroupState.EMPTY:
        group.new_member_came = True
    group.add(member, request.protocol_type)
    restart_session(manager, group, member, now, _NEW_MEMBER_JOIN_TIMEOUT_MS)
    return CoordinatorResult(rebalance_or_complete(manager, group, now))


def _rejoin(manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, now: Now) -> CoordinatorResult:
    request = joining.request
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and group.state is ClassicGroupState.EMPTY:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error is not ErrorCode.NONE:
        return _refused(joining, error)
    member = group.members[request.member_id]
    is_unchanged = member.protocols == joining.protocols
    if is_unchanged and (
        group.state is ClassicGroupState.COMPLETING_REBALANCE
        # The leader rejoins when something has changed that only it sees, as the partitions of a topic.
        or (group.state is ClassicGroupState.STABLE and group.leader_id != member.member_id)
    ):
        return CoordinatorResult(response=responses.joined(group, member))
    _update(manager, group, member, joining)
    return CoordinatorResult(rebalance_or_complete(manager, group, now))


def _update(manager: GroupMetadataManager, group: ClassicGroup, member: Member, joining: Joining) -> None:
    update_member(
        manager,
        group,
        member,
        joining.protocols,
        joining.rebalance_timeout_ms,
        joining.request.session_timeout_ms,
        joining.token,
    )


# Static members


def _replace_static_member(
    manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, old_id: str, new_id: str, now: Now
) -> CoordinatorResult:
    """A static member has started again: it takes its old place under a new id, and the old id is shut out."""
    member = group.members[old_id]
    manager.answer_join(member, responses.join_failed(ErrorCode.FENCED_INSTANCE_ID, old_id))
    manager.answer_sync(member, responses.sync_failed(ErrorCode.FENCED_INSTANCE_ID))
    if group.state is ClassicGroupState.STABLE and group.select_protocol(member, joining.protocols) == group.protocol:
        return _write_replacement(manager, group, joining, member, new_id)
    # It has an id that its client will learn of; if not, the next start replaces it again.
    member.is_new = False
    _update(manager, group, member, joining)
    _rename(manager, group, member, new_id, now)
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return CoordinatorResult(complete_if_everyone_joined(manager, group, now))
    # While it completes: the leader may be assigning to the old id right now.
    return CoordinatorResult(prepare_rebalance(manager, group, now))


def _rename(manager: GroupMetadataManager, group: ClassicGroup, member: Member, new_id: str, now: Now) -> None:
    manager.timer.cancel(session_key(group.group_id, member.member_id))
    group.rename(member.member_id, new_id)
    restart_session(manager, group, member, now)


def _write_replacement(
    manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, member: Member, new_id: str
) -> CoordinatorResult:
    """The generation goes on with the new id, once that is in the log."""
    replaced = replace(
        member,
        member_id=new_id,
        protocols=joining.protocols,
        rebalance_timeout_ms=joining.rebalance_timeout_ms,
        session_timeout_ms=joining.request.session_timeout_ms,
    )
    members = [replaced if each is member else each for each in group.members.values()]
    leader_id = new_id if group.leader_id == member.member_id else group.leader_id
    record = group_record(group, members, leader_id, {each.member_id: each.assignment for each in members})
    member.join_token = joining.token
    callback = _StaticMemberReplaced(manager, group, joining, member, replaced)
    return CoordinatorResult([record], callback=callback)


class _StaticMemberReplaced(WriteCallback):
    """The member has its new id when that is in the log, and its client learns of it when it is committed."""

    __slots__ = ("_generation", "_group", "_joining", "_manager", "_member", "_old_leader_id", "_replaced")

    def __init__(
        self, manager: GroupMetadataManager, group: ClassicGroup, joining: Joining, member: Member, replaced: Member
    ) -> None:
        self._manager = manager
        self._group = group
        self._generation = group.generation
        self._joining = joining
        self._member = member
        self._replaced = replaced
        self._old_leader_id = group.leader_id

    def appended(self, now: Now) -> Records:
        member, replaced = self._member, self._replaced
        self._group.set_protocols(member, replaced.protocols)
        member.rebalance_timeout_ms = replaced.rebalance_timeout_ms
        member.session_timeout_ms = replaced.session_timeout_ms
        _rename(self._manager, self._group, member, replaced.member_id, now)
        return NO_RECORDS

    def committed(self, now: Now) -> Records:
        if not self._is_still_there():
            return NO_RECORDS  # A rebalance began meanwhile: it answers.
        manager, group, member = self._manager, self._group, self._member
        if self._joining.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT:
            is_leader = group.leader_id == member.member_id
            manager.answer_join(member, responses.joined(group, member, skip_assignment=is_leader))
        else:
            # Such a client would assign anew if it saw itself as leader.
            manager.answer_join(member, responses.joined(group, member, leader_id=self._old_leader_id))
        restart_session(manager, group, member, now)
        return NO_RECORDS

    def failed(self, error: ErrorCode, now: Now) -> Records:
        # It will join once more, and be replaced then, or once more.
        if self._is_still_there():
            self._manager.answer_join(self._member, responses.join_failed(error, NO_MEMBER_ID))
            restart_session(self._manager, self._group, self._member, now)
        return NO_RECORDS

    def _is_still_there(self) -> bool:
        group, member = self._group, self._member
        return (
            self._manager.active.get(group.group_id) is group
            and group.state is ClassicGroupState.STABLE
            and group.generation == self._generation
            and group.members.get(member.member_id) is member
            and member.join_token is self._joining.token
        )
