"""The join barrier: how a generation comes about, and what the timers of a group do.

A rebalance begins when somebody joins, leaves or falls silent. Members gather at the barrier; it opens when all known
ones are there and nobody is on the way, or after the longest rebalance timeout among them. Whoever is there forms the
next generation; static members who are not there keep their place, the others lose it.

All of this is soft state, and the functions change it as they go. What they return is to be written: the record of a
generation that nobody is in. That of a generation with members is written once its leader has assigned (`sync`).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic import responses
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import NO_ASSIGNMENT, NO_MEMBER_ID, Member, Protocol
from barnabas.coordinator.classic.records import group_record
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager, join_key, session_key, sync_key
from barnabas.coordinator.results import NO_RECORDS, CoordinatorResult, Now, Operation, Records, Token
from barnabas.coordinator.timer import Key

#: Static members may ask for a rebalance timeout of 0. If none of them comes, the barrier, which is tried again after
#: that time, must not be tried again at the same moment, and so for ever.
_LEAST_WAIT_FOR_STATIC_MS: Final = 1000


def schedule(
    manager: GroupMetadataManager, key: Key, group_id: str, deadline_ms: int, run: Callable[[Now], Records]
) -> None:
    """Let something happen to a group at a time; replaces the timer with this key."""
    manager.timer.schedule(key, deadline_ms, Operation(group_id, lambda now: CoordinatorResult(run(now))))


# The barrier


def rebalance_or_complete(manager: GroupMetadataManager, group: ClassicGroup, now: Now) -> Records:
    """Something about the members has changed: begin a rebalance, or see whether it let one go on."""
    if group.state is ClassicGroupState.PREPARING_REBALANCE:
        return complete_if_everyone_joined(manager, group, now)
    return prepare_rebalance(manager, group, now)


def prepare_rebalance(manager: GroupMetadataManager, group: ClassicGroup, now: Now) -> Records:
    """Close the barrier. Members learn of it by their next heartbeat."""
    if group.state is ClassicGroupState.COMPLETING_REBALANCE:
        withdraw_assignment(manager, group, ErrorCode.REBALANCE_IN_PROGRESS, now)
    group.pending_sync.clear()
    manager.timer.cancel(sync_key(group.group_id))
    is_first = group.state is ClassicGroupState.EMPTY
    group.move_to(ClassicGroupState.PREPARING_REBALANCE, now.wall_ms)
    if is_first:
        _wait_for_first_members(manager, group, now)
    elif group.everyone_joined:
        return complete_join(manager, group, now)
    else:
        _open_barrier_later(manager, group, now)
    return NO_RECORDS


def _wait_for_first_members(manager: GroupMetadataManager, group: ClassicGroup, now: Now) -> None:
    """Members of a new group start one after the other: wait a little, so that they need only one rebalance."""
    delay_ms = manager.config.initial_rebalance_delay_ms
    remaining_ms = max(group.rebalance_timeout_ms - delay_ms, 0)
    _schedule_first_generation(manager, group.group_id, delay_ms, remaining_ms, now)


def _schedule_first_generation(
    manager: GroupMetadataManager, group_id: str, delay_ms: int, remaining_ms: int, now: Now
) -> None:
    def fire(then: Now) -> Records:
        group = manager.active.get(group_id)
        if group is None or group.state is not ClassicGroupState.PREPARING_REBALANCE:
            return NO_RECORDS
        if not group.new_member_came or remaining_ms == 0:
            return complete_join(manager, group, then)
        group.new_member_came = False
        next_delay_ms = min(manager.config.initial_rebalance_delay_ms, remaining_ms)
        _schedule_first_generation(manager, group_id, next_delay_ms, max(remaining_ms - delay_ms, 0), then)
        return NO_RECORDS

    schedule(manager, join_key(group_id), group_id, now.monotonic_ms + delay_ms, fire)


def _open_barrier_later(manager: GroupMetadataManager, group: ClassicGroup, now: Now, least_ms: int = 0) -> None:
    def fire(then: Now) -> Records:
        known = manager.active.get(group.group_id)
        if known is None or known.state is not ClassicGroupState.PREPARING_REBALANCE:
            return NO_RECORDS
        return complete_join(manager, known, then)

    timeout_ms = max(group.rebalance_timeout_ms, least_ms)
    schedule(manager, join_key(group.group_id), group.group_id, now.monotonic_ms + timeout_ms, fire)


def complete_if_everyone_joined(manager: GroupMetadataManager, group: ClassicGroup, now: Now) -> Records:
    """Open the barrier early. The first generation of a group is not hurried: more members may be on their way."""
    if (
        group.state is ClassicGroupState.PREPARING_REBALANCE
        and group.previous_state is not ClassicGroupState.EMPTY
        and group.everyone_joined
    ):
        return complete_join(manager, group, now)
    return NO_RECORDS


def complete_join(manager: GroupMetadataManager, group: ClassicGroup, now: Now) -> Records:
    """Open the barrier: whoever is there is in the next generation."""
    manager.timer.cancel(join_key(group.group_id))
    absent = [each for each in group.members.values() if each.join_token is None and not each.is_static]
    for member in absent:
        remove_member(manager, group, member)
    if group.members and not group.elect_joined_leader():
        # Only static members, and none of them came: wait until their sessions end, or until one comes.
        _open_barrier_later(manager, group, now, _LEAST_WAIT_FOR_STATIC_MS)
        return NO_RECORDS
    group.begin_generation(now.wall_ms)
    if group.state is ClassicGroupState.EMPTY:
        # Should this be lost, the generation before it comes back at a restart, and its members time out again.
        return [group_record(group, (), None, {})]
    for member in group.members.values():
        manager.answer_join(member, responses.joined(group, member))
        restart_session(manager, group, member, now)
        member.is_new = False
        group.pending_sync[member.member_id] = None
    _expect_syncs(manager, group, now)
    return NO_RECORDS


def _expect_syncs(manager: GroupMetadataManager, group: ClassicGroup, now: Now) -> None:
    generation = group.generation

    def fire(then: Now) -> Records:
        known = manager.active.get(group.group_id)
        if known is None or known.generation != generation or not known.pending_sync:
            return NO_RECORDS
        if known.state not in (ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.STABLE):
            return NO_RECORDS
        for member_id in list(known.pending_sync):
            member = known.members.get(member_id)
            if member is not None:
                remove_member(manager, known, member)
        return prepare_rebalance(manager, known, then)

    deadline_ms = now.monotonic_ms + group.rebalance_timeout_ms
    schedule(manager, sync_key(group.group_id), group.group_id, deadline_ms, fire)


# Members


def update_member(
    manager: GroupMetadataManager,
    group: ClassicGroup,
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
        manager.answer_join(member, responses.join_failed(ErrorCode.REBALANCE_IN_PROGRESS, member.member_id))
    member.join_token = token


def remove_member(manager: GroupMetadataManager, group: ClassicGroup, member: Member) -> None:
    """Take a member out and answer what it has parked: if it still lives, it joins as a new one."""
    manager.timer.cancel(session_key(group.group_id, member.member_id))
    manager.answer_join(member, responses.join_failed(ErrorCode.UNKNOWN_MEMBER_ID, NO_MEMBER_ID))
    manager.answer_sync(member, responses.sync_failed(ErrorCode.UNKNOWN_MEMBER_ID))
    group.remove(member.member_id)


def withdraw_assignment(manager: GroupMetadataManager, group: ClassicGroup, error: ErrorCode, now: Now) -> None:
    """This generation gets no assignment: whoever waits for it is told why."""
    for member in group.members.values():
        member.assignment = NO_ASSIGNMENT
        if manager.answer_sync(member, responses.sync_failed(error)):
            restart_session(manager, group, member, now)


# Sessions


def restart_session(
    manager: GroupMetadataManager, group: ClassicGroup, member: Member, now: Now, timeout_ms: int | None = None
) -> None:
    """Expect the next sign of life within the session timeout."""
    schedule_session(
        manager,
        group.group_id,
        member.member_id,
        now.monotonic_ms + (member.session_timeout_ms if timeout_ms is None else timeout_ms),
    )


def schedule_session(manager: GroupMetadataManager, group_id: str, member_id: str, deadline_ms: int) -> None:
    def fire(then: Now) -> Records:
        return end_session(manager, group_id, member_id, then)

    schedule(manager, session_key(group_id, member_id), group_id, deadline_ms, fire)


def end_session(manager: GroupMetadataManager, group_id: str, member_id: str, now: Now) -> Records:
    """A member has fallen silent, or nobody waits any longer for one that was to come."""
    group = manager.active.get(group_id)
    if group is None:
        return NO_RECORDS
    if member_id in group.pending_join:
        group.remove(member_id)
    else:
        member = group.members.get(member_id)
        if member is None or member.is_kept_waiting:
            return NO_RECORDS
        remove_member(manager, group, member)
        if group.state in (ClassicGroupState.STABLE, ClassicGroupState.COMPLETING_REBALANCE):
            return prepare_rebalance(manager, group, now)
    if group.state is ClassicGroupState.PREPARING_REBALANCE and group.everyone_joined:
        return complete_join(manager, group, now)
    return NO_RECORDS
