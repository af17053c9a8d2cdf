"""JoinGroup: members come to the barrier."""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator import responses
from barnabas.coordinator.effects import Now, Token, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import NO_MEMBER_ID, Client, Member, Protocol
from barnabas.coordinator.pending import await_member, new_member_id
from barnabas.coordinator.rebalance import (
    answer_join,
    answer_sync,
    complete_if_everyone_joined,
    join_key,
    prepare_rebalance,
    rebalance_or_complete,
    restart_session,
    session_key,
    update_member,
)
from barnabas.coordinator.records import group_record, new_group_record
from barnabas.coordinator.state import NEW_MEMBER_JOIN_TIMEOUT_MS, GroupLimits, ShardState
from barnabas.coordinator.states import GroupState
from barnabas.wire.messages.join_group import JoinGroupRequest

#: From this version on a dynamic member gets its id first and joins with it, so that a lost answer leaves no ghost.
_FIRST_WITH_REQUIRED_ID: Final = 4
_FIRST_WITH_SKIPPED_ASSIGNMENT: Final = 9


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


def refusal(limits: GroupLimits, request: JoinGroupRequest) -> ErrorCode:
    """What is wrong with a request whatever the group."""
    if not request.group_id:
        return ErrorCode.INVALID_GROUP_ID
    if not limits.min_session_timeout_ms <= request.session_timeout_ms <= limits.max_session_timeout_ms:
        return ErrorCode.INVALID_SESSION_TIMEOUT
    return ErrorCode.NONE


def join(shard: ShardState, request: JoinGroupRequest, version: int, client: Client, token: Token, now: Now) -> None:
    """Take a member to the barrier; its token is answered when the barrier opens, or at once with an error."""
    error = refusal(shard.limits, request)
    if error is not ErrorCode.NONE:
        shard.reply(token, responses.join_failed(error, request.member_id))
        return
    protocols = {each.name: Protocol(each.name, bytes(each.metadata)) for each in reversed(request.protocols)}
    joining = Joining(request, version, client, tuple(reversed(protocols.values())), token)
    group = shard.groups.get(request.group_id)
    if group is not None:
        _join_group(shard, group, joining, now)
    elif request.member_id != NO_MEMBER_ID:
        shard.reply(token, responses.join_failed(ErrorCode.UNKNOWN_MEMBER_ID, request.member_id))
    else:
        group = shard.groups[request.group_id] = Group(request.group_id, now.wall_ms)
        _write_new_group(shard, group, now)
        _join_group(shard, group, joining, now)


def _write_new_group(shard: ShardState, group: Group, now: Now) -> None:
    def commit(_: Now) -> None:
        group.is_committed = True

    def fail(error: ErrorCode, is_in_log: bool, _: Now) -> None:
        if is_in_log or shard.groups.get(group.group_id) is not group:
            return
        del shard.groups[group.group_id]
        shard.timers.cancel(join_key(group.group_id))
        for member_id in [*group.members, *group.pending_join]:
            shard.timers.cancel(session_key(group.group_id, member_id))
        for member in group.members.values():
            answer_join(shard, member, responses.join_failed(error, NO_MEMBER_ID))

    shard.stage(Write([new_group_record(group)], on_commit=commit, on_failure=fail), now)


def _join_group(shard: ShardState, group: Group, joining: Joining, now: Now) -> None:
    request = joining.request
    if not _has_room(group, request.member_id, shard.limits.max_size):
        member = group.remove(request.member_id)
        if member is not None:
            shard.timers.cancel(session_key(group.group_id, member.member_id))
            answer_sync(shard, member, responses.sync_failed(ErrorCode.UNKNOWN_MEMBER_ID))
        shard.reply(joining.token, responses.join_failed(ErrorCode.GROUP_MAX_SIZE_REACHED, NO_MEMBER_ID))
        complete_if_everyone_joined(shard, group, now)
    elif not group.supports(request.protocol_type, joining.protocols):
        shard.reply(joining.token, responses.join_failed(ErrorCode.INCONSISTENT_GROUP_PROTOCOL, request.member_id))
    elif request.member_id == NO_MEMBER_ID:
        _join_as_new(shard, group, joining, now)
    elif request.member_id in group.pending_join and request.group_instance_id is not None:
        # The id was given to a dynamic member: whoever calls it static is confused.
        shard.reply(joining.token, responses.join_failed(ErrorCode.UNKNOWN_SERVER_ERROR, request.member_id))
    elif request.member_id in group.pending_join:
        _add_member(shard, group, joining, request.member_id, now)
    else:
        _rejoin(shard, group, joining, now)


def _has_room(group: Group, member_id: str, max_size: int) -> bool:
    """Whether the group may take the sender in.

    At the barrier those who are there count, not those who are known: when the limit was lowered, the last ones to
    come back have to go.
    """
    if len(group.members) < max_size or group.state is GroupState.EMPTY:
        return True
    member = group.members.get(member_id)
    if group.state is GroupState.PREPARING_REBALANCE:
        return (member is not None and member.join_token is not None) or group.waiting_to_join < max_size
    return member is not None


def _join_as_new(shard: ShardState, group: Group, joining: Joining, now: Now) -> None:
    request = joining.request
    if request.group_instance_id is not None:
        new_id = new_member_id(shard, request.group_instance_id)
        old_id = group.static_ids.get(request.group_instance_id)
        if old_id is not None:
            _replace_static_member(shard, group, joining, old_id, new_id, now)
        else:
            _add_member(shard, group, joining, new_id, now)
        return
    new_id = new_member_id(shard, joining.client.client_id)
    if joining.version < _FIRST_WITH_REQUIRED_ID:
        _add_member(shard, group, joining, new_id, now)
        return
    shard.reply(joining.token, responses.join_failed(ErrorCode.MEMBER_ID_REQUIRED, new_id))
    await_member(shard, group, new_id, request.session_timeout_ms, now)


def _add_member(shard: ShardState, group: Group, joining: Joining, member_id: str, now: Now) -> None:
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
    if group.state is GroupState.PREPARING_REBALANCE and group.previous_state is GroupState.EMPTY:
        group.new_member_came = True
    group.add(member, request.protocol_type)
    restart_session(shard, group, member, now, NEW_MEMBER_JOIN_TIMEOUT_MS)
    rebalance_or_complete(shard, group, now)


def _rejoin(shard: ShardState, group: Group, joining: Joining, now: Now) -> None:
    request = joining.request
    error = group.check_member(request.member_id, request.group_instance_id)
    if error is ErrorCode.NONE and group.state is GroupState.EMPTY:
        error = ErrorCode.UNKNOWN_MEMBER_ID
    if error is not ErrorCode.NONE:
        shard.reply(joining.token, responses.join_failed(error, request.member_id))
        return
    member = group.members[request.member_id]
    is_unchanged = member.protocols == joining.protocols
    if is_unchanged and (
        group.state is GroupState.COMPLETING_REBALANCE
        # The leader rejoins when something has changed that only it sees, as the partitions of a topic.
        or (group.state is GroupState.STABLE and group.leader_id != member.member_id)
    ):
        shard.reply(joining.token, responses.joined(group, member))
        return
    _update(shard, group, member, joining)
    rebalance_or_complete(shard, group, now)


def _update(shard: ShardState, group: Group, member: Member, joining: Joining) -> None:
    update_member(
        shard,
        group,
        member,
        joining.protocols,
        joining.rebalance_timeout_ms,
        joining.request.session_timeout_ms,
        joining.token,
    )


def _replace_static_member(
    shard: ShardState, group: Group, joining: Joining, old_id: str, new_id: str, now: Now
) -> None:
    """A static member has started again: it takes its old place under a new id, and the old id is shut out."""
    member = group.members[old_id]
    old_leader_id = group.leader_id
    before = (member.protocols, member.rebalance_timeout_ms, member.session_timeout_ms)
    answer_join(shard, member, responses.join_failed(ErrorCode.FENCED_INSTANCE_ID, old_id))
    answer_sync(shard, member, responses.sync_failed(ErrorCode.FENCED_INSTANCE_ID))
    shard.timers.cancel(session_key(group.group_id, old_id))
    group.rename(old_id, new_id)
    # It has an id that its client will learn of; if not, the next start replaces it again.
    member.is_new = False
    _update(shard, group, member, joining)
    restart_session(shard, group, member, now)
    if group.state is not GroupState.STABLE:
        if group.state is GroupState.COMPLETING_REBALANCE:
            # The leader may be assigning to the old id right now.
            prepare_rebalance(shard, group, now)
        else:
            complete_if_everyone_joined(shard, group, now)
        return
    if group.select_protocol() != group.protocol:
        prepare_rebalance(shard, group, now)
        return

    generation = group.generation

    def is_still_so() -> bool:
        return (
            shard.groups.get(group.group_id) is group
            and group.state is GroupState.STABLE
            and group.generation == generation
            and group.members.get(new_id) is member
        )

    def commit(then: Now) -> None:
        if not is_still_so():
            return  # A rebalance began meanwhile: it answers.
        if joining.version >= _FIRST_WITH_SKIPPED_ASSIGNMENT:
            is_leader = group.leader_id == new_id
            answer_join(shard, member, responses.joined(group, member, skip_assignment=is_leader))
        else:
            # Such a client would assign anew if it saw itself as leader.
            answer_join(shard, member, responses.joined(group, member, leader_id=old_leader_id))
        restart_session(shard, group, member, then)

    def fail(error: ErrorCode, is_in_log: bool, then: Now) -> None:
        if not is_still_so():
            return
        answer_join(shard, member, responses.join_failed(error, NO_MEMBER_ID))
        if is_in_log:
            # It will join once more, and be replaced once more.
            restart_session(shard, group, member, then)
            return
        protocols, member.rebalance_timeout_ms, member.session_timeout_ms = before
        group.set_protocols(member, protocols)
        shard.timers.cancel(session_key(group.group_id, new_id))
        group.rename(new_id, old_id)
        restart_session(shard, group, member, then)

    assignments = {each.member_id: each.assignment for each in group.members.values()}
    shard.stage(Write([group_record(group, assignments)], on_commit=commit, on_failure=fail), now)
