"""ListGroups and DescribeGroups: what a shard tells about its groups.

Only of groups that are committed. What a record says of them is told as it is committed; what goes on in a rebalance is
in no record, and told as it is.
"""

from __future__ import annotations

from collections.abc import Collection, Generator, Iterator
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import Member
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import GroupMetadataManager
from barnabas.wire.messages.describe_groups import DescribedGroup, DescribedGroupMember
from barnabas.wire.messages.list_groups import ListedGroup

CLASSIC: Final = "classic"


#: Of memory for the answer that there is no such group.
_MISSING_BYTES: Final = 192
#: Of memory for a member that is described, beside what it says of itself.
_MEMBER_BYTES: Final = 512


def _shown(manager: GroupMetadataManager, group_id: str) -> ClassicGroup | None:
    """A group as others may see it; None if it may vanish again."""
    stored = manager.stored.committed.get(group_id)
    if stored is None:
        return None
    group = manager.active.get(group_id)
    if group is None or group.state is ClassicGroupState.STABLE:
        return ClassicGroup.restored(group_id, stored)
    return group


def list_groups(
    manager: GroupMetadataManager, states: Collection[str], types: Collection[str]
) -> Iterator[ListedGroup | None]:
    """The groups in one of these states and of one of these types; no filter passes all, an unknown one none.

    For a group that is passed over there is None, so that whoever lists very many knows what it costs.
    """
    if types and CLASSIC not in [each.lower() for each in types]:
        return
    wanted = {each.strip().lower() for each in states}
    for group_id in list(manager.stored.committed):
        group = _shown(manager, group_id)
        if group is None or (wanted and group.state.value.lower() not in wanted):
            yield None
            continue
        yield ListedGroup(
            group_id=group.group_id,
            protocol_type=group.protocol_type or "",
            group_state=group.state.value,
            group_type=CLASSIC,
        )


def described_bytes(manager: GroupMetadataManager, group_id: str) -> int:
    """About how much memory a description takes while it is sent."""
    group = _shown(manager, group_id)
    if group is None:
        return _MISSING_BYTES + len(group_id)
    return _MEMBER_BYTES + sum(
        _MEMBER_BYTES + len(member.metadata(group.protocol)) + len(member.assignment)
        for member in group.members.values()
    )


def describe_group(
    manager: GroupMetadataManager, group_id: str, *, tells_missing: bool
) -> Generator[None, None, DescribedGroup]:
    """One group with its members, a member a step. Older clients take a missing group for a dead one, which is no error
    to them."""
    group = _shown(manager, group_id)
    if group is None:
        return describe_failed(
            group_id,
            ErrorCode.GROUP_ID_NOT_FOUND if tells_missing else ErrorCode.NONE,
            f"Group {group_id} not found." if tells_missing else None,
            state=ClassicGroupState.DEAD.value,
        )
    is_stable = group.state is ClassicGroupState.STABLE
    described = DescribedGroup(
        group_id=group_id,
        group_state=group.state.value,
        protocol_type=group.protocol_type or "",
        protocol_data=(group.protocol or "") if is_stable else "",
        members=[],
    )
    for member in list(group.members.values()):
        described.members.append(_described(group, member, is_stable))
        yield
    return described


def describe_failed(group_id: str, error: ErrorCode, message: str | None = None, *, state: str = "") -> DescribedGroup:
    return DescribedGroup(
        error_code=error,
        error_message=message,
        group_id=group_id,
        group_state=state,
        protocol_type="",
        protocol_data="",
        members=[],
    )


def _described(group: ClassicGroup, member: Member, is_stable: bool) -> DescribedGroupMember:
    # Until a generation is stable, members may speak of different protocols.
    return DescribedGroupMember(
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        client_id=member.client.client_id,
        client_host=member.client.host,
        member_metadata=member.metadata(group.protocol) if is_stable else b"",
        member_assignment=member.assignment,
    )
