"""The join barrier: how a generation comes about, and what the timers of a group do.

A rebalance begins when somebody joins, leaves or falls silent. Members gather at the barrier; it opens when all known
ones are there and nobody is on the way, or after the longest rebalance timeout among them. Whoever is there forms the
next generation; static members who are not there keep their place, the others lose it.
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator import responses
from barnabas.coordinator.effects import Now, Token, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import NO_ASSIGNMENT, NO_MEMBER_ID, Member, Protocol
from barnabas.coordinator.records import group_record
from barnabas.coordinator.state import ShardState
from barnabas.coordinator.states import GroupState
from barnabas.coordinator.timers import Key

#: Static members may ask for a rebalance timeout of 0. If none of them comes, the barrier, which is tried again after
#: that time, must not be tried again at the same moment, and so for ever.
_LEAST_WAIT_FOR_STATIC_MS: Final = 1000


def session_key(group_id: str, member_id: str) -> Key:
    return ("session", group_id, member_id)


def join_key(group_id: str) -> Key:
    return ("join", group_id)


def sync_key(group_id: str) -> Key:
    return ("sync", group_id)


# The barrier


def rebalance_or_complete(shard: ShardState, group: Group, now: Now) -> None:
    """Something about the members has changed: begin a rebalance, or see whether it let one go on."""
    if group.state is GroupState.PREPARING_REBALANCE:
        complete_if_everyone_joined(shard, group, now)
    else:
        prepare_rebalance(shard, group, now)


def prepare_rebalance(shard: ShardState, group: Group, now: Now) -> None:
    """Close the barrier. Members learn of it by their next heartbeat."""
    if group.state is GroupState.COMPLETING_REBALANCE:
        withdraw_assignment(shard, group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group.pending_sync.clear()
    shard.timers.cancel(sync_key(group.group_id))
    is_first = group.state is GroupState.EMPTY
    group.move_to(GroupState.PREPARING_REBALANCE, now.wall_ms)
    if is_first:
        _wait_for_first_members(shard, group, now)
    elif group.everyone_joined:
        complete_join(shard, group, now)
    else:
        _open_barrier_later(shard, group, now)


def _wait_for_first_members(shard: ShardState, group: Group, now: Now) -> None:
    """Members of a new group start one after the other: wait a little, so that they need only one rebalance."""
    delay_ms = shard.limits.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    _schedule_first_generation(shard, group.group_id, delay_ms, remaining_ms, now)


def _schedule_first_generation(shard: ShardState, group_id: str, delay_ms: int, remaining_ms: int, now: Now) -> None:
    def fire(then: Now) -> None:
        group = shard.groups.get(group_id)
        if group is None or group.state is not GroupState.PREPARING_REBALANCE:
            return
        if not group.new_member_came or remaining_ms == 0:
            complete_join(shard, group, then)
            return
        group.new_member_came = False
        next_delay_ms = min(shard.limits.initial_rebalance_delay_ms, remaining_ms)
        _schedule_first_generation(shard, group_id, next_delay_ms, max(remaining_ms - delay_ms, 0), then)

    shard.timers.schedule(join_key(group_id), now.monotonic_ms + delay_ms, fire)


def _open_barrier_later(shard: ShardState, group: Group, now: Now, least_ms: int = 0) -> None:
    def fire(then: Now) -> None:
        known = shard.groups.get(group.group_id)
        if known is not None and known.state is GroupState.PREPARING_REBALANCE:
            complete_join(shard, known, then)

    timeout_ms = max(group.rebalance_timeout_ms, least_ms)
    shard.timers.schedule(join_key(group.group_id), now.monotonic_ms + timeout_ms, fire)


def complete_if_everyone_joined(shard: ShardState, group: Group, now: Now) -> None:
    """Open the barrier early. The first generation of a group is not hurried: more members may be on their way."""
    if (
        group.state is GroupState.PREPARING_REBALANCE
        and group.previous_state is not GroupState.EMPTY
        and group.everyone_joined
    ):
        complete_join(shard, group, now)


def complete_join(shard: ShardState, group: Group, now: Now) -> None:
    """Open the barrier: whoever is there is in the next generation."""
    shard.timers.cancel(join_key(group.group_id))
    absent = [each for each in group.members.values() if each.join_token is None and not each.is_static]
    for member in absent:
        remove_member(shard, group, member)
    if group.members and not group.elect_joined_leader():
        # Only static members, and none of them came: wait until their sessions end, or until one comes.
        _open_barrier_later(shard, group, now, _LEAST_WAIT_FOR_STATIC_MS)
        return
    group.begin_generation(now.wall_ms)
    if group.state is GroupState.EMPTY:
        _write_empty_generation(shard, group, now)
        return
    for member in group.members.values():
        answer_join(shard, member, responses.joined(group, member))
        restart_session(shard, group, member, now)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    _expect_syncs(shard, group, now)


def _write_empty_generation(shard: ShardState, group: Group, now: Now) -> None:
    # Should this be lost, the generation before it comes back at a restart, and its members time out again.
    shard.stage(Write([group_record(group, {})]), now)


def _expect_syncs(shard: ShardState, group: Group, now: Now) -> None:
    generation = group.generation

    def fire(then: Now) -> None:
        known = shard.groups.get(group.group_id)
        if known is None or known.generation != generation or not known.pending_sync:
            return
        if known.state not in (GroupState.COMPLETING_REBALANCE, GroupState.STABLE):
            return
        for member_id in list(known.pending_sync):
            member = known.members.get(member_id)
            if member is not None:
                remove_member(shard, known, member)
        prepare_rebalance(shard, known, then)

    shard.timers.schedule(sync_key(group.group_id), now.monotonic_ms + group.rebalance_timeout_ms, fire)


# Members


def update_member(
    shard: ShardState,
    group: Group,
    member: Member,
    protocols: tuple[Protocol, ...],
    rebalance_timeout_ms: int,
    session_timeout_ms: int,
    token: Token,
) -> None:
    """A member has joined again, perhaps with other protocols; it now waits at the barrier."""
    group.set_protocols(member, protocols)
    member.rebalance_timeout_ms = rebalance_timeout_ms
    member.session_timeout_ms = session_timeout_ms
    if member.join_token is not None:
        # Its earlier request is still parked, most likely on a connection that it has given up.
        answer_join(shard, member, responses.join_failed(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.join_token = token


def remove_member(shard: ShardState, group: Group, member: Member) -> None:
    """Take a member out and answer what it has parked: if it still lives, it joins as a new one."""
    shard.timers.cancel(session_key(group.group_id, member.member_id))
    answer_join(shard, member, responses.join_failed(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
    answer_sync(shard, member, responses.sync_failed(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)


def answer_join(shard: ShardState, member: Member, response: responses.JoinGroupResponse) -> None:
    if member.join_token is not None:
        shard.reply(member.join_token, response)
        member.join_token = None


def answer_sync(shard: ShardState, member: Member, response: responses.SyncGroupResponse) -> bool:
    if member.sync_token is None:
        return False
    shard.reply(member.sync_token, response)
    member.sync_token = None
    return True


def withdraw_assignment(shard: ShardState, group: Group, error: ErrorCode, now: Now) -> None:
    """This generation gets no assignment: whoever waits for it is told why."""
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        if answer_sync(shard, member, responses.sync_failed(error)):
            restart_session(shard, group, member, now)


# Sessions


def restart_session(shard: ShardState, group: Group, member: Member, now: Now, timeout_ms: int | None = None) -> None:
    """Expect the next sign of life within the session timeout."""
    schedule_session(
        shard,
        group.group_id,
        member.member_id,
        now.monotonic_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms),
    )


def schedule_session(shard: ShardState, group_id: str, member_id: str, deadline_ms: int) -> None:
    def fire(then: Now) -> None:
        group = shard.groups.get(group_id)
        if group is not None:
            end_session(shard, group, member_id, then)

    shard.timers.schedule(session_key(group_id, member_id), deadline_ms, fire)


def end_session(shard: ShardState, group: Group, member_id: str, now: Now) -> None:
    """A member has fallen silent, or nobody waits any longer for one that was to come."""
    if member_id in group.pending_join:
        group.remove(member_id)
    else:
        member = group.members.get(member_id)
        if member is None or member.is_kept_waiting:
            return
        remove_member(shard, group, member)
        if group.state in (GroupState.STABLE, GroupState.COMPLETING_REBALANCE):
            prepare_rebalance(shard, group, now)
            return
    if group.state is GroupState.PREPARING_REBALANCE and group.everyone_joined:
        complete_join(shard, group, now)
