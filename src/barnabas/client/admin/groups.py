"""Groups, their members, and how far they have read."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import overload

from barnabas.base.ids import TopicPartition
from barnabas.client.admin.driver import NOT_DONE, Part, RequestSpec, broker_error, raise_if_error, several
from barnabas.client.admin.group_descriptions import GroupDescription, GroupState, GroupType, describe
from barnabas.client.admin.group_offsets import delete_offsets, fetch_offsets, fetch_pending, store_offsets
from barnabas.client.admin.routes import each_broker, group_coordinator, group_coordinators
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest, DeleteGroupsResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.list_groups import ListGroupsRequest, ListGroupsResponse


@dataclass(frozen=True, slots=True)
class GroupListing:
    """A group of the cluster. State and type are UNKNOWN where the broker is too old to tell (2.6, 3.8)."""

    group_id: str
    protocol_type: str
    state: GroupState
    type: GroupType

    @property
    def is_simple(self) -> bool:
        """Whether nobody joins this group: it only keeps offsets."""
        return not self.protocol_type


class GroupCalls(Part):
    """Calls about groups."""

    async def list_groups(
        self,
        *,
        states: Iterable[GroupState | str] | None = None,
        types: Iterable[GroupType | str] | None = None,
        protocol_types: Iterable[str] | None = None,
        timeout: float | None = None,
    ) -> list[GroupListing]:
        """All groups, sorted, or those in some states, of some types, or with some protocol types ("" for simple ones).

        Every broker is asked; if one cannot be reached, `KeyedError` says which, by broker id. Filters by state need
        Kafka 2.6, by type 3.8: `UnsupportedRequestError`.
        """
        call = await self._driver.begin("list_groups", timeout)
        wanted_states = [str(GroupState(each)) for each in states or ()]
        wanted_types = [str(GroupType(each)) for each in types or ()]
        wanted_protocols = None if protocol_types is None else set(protocol_types)

        def build(spec: RequestSpec[int]) -> ListGroupsRequest:
            asked_types = wanted_types
            if spec.version < 5 and set(wanted_types) == {str(GroupType.CLASSIC)}:
                asked_types = []  # There were no others.
            return ListGroupsRequest(states_filter=wanted_states, types_filter=asked_types)

        def read(
            spec: RequestSpec[int], response: ListGroupsResponse
        ) -> Iterable[tuple[int, list[GroupListing] | Exception]]:
            raise_if_error(response.error_code)
            yield (
                spec.keys[0],
                [
                    GroupListing(
                        each.group_id, each.protocol_type, GroupState(each.group_state), GroupType(each.group_type)
                    )
                    for each in response.groups
                    if wanted_protocols is None or each.protocol_type in wanted_protocols
                ],
            )

        brokers = sorted((await self._driver.newest_view(call, is_first=True)).nodes)
        found = await self._driver.ask_each(call, brokers, each_broker(), ListGroupsRequest, build, read)
        # While a coordinator moves, two brokers may both tell of a group.
        groups = {each.group_id: each for listed in found.values() for each in listed}
        return [groups[group_id] for group_id in sorted(groups)]

    async def describe_groups(
        self,
        group_ids: Iterable[str],
        *,
        include_authorized_operations: bool = False,
        timeout: float | None = None,
    ) -> dict[str, GroupDescription]:
        """Groups with their members, whichever protocol they follow. GROUP_ID_NOT_FOUND for one that does not exist."""
        call = await self._driver.begin("describe_groups", timeout)
        return await describe(self._driver, call, list(several(group_ids)), include_authorized_operations)

    async def delete_groups(self, group_ids: Iterable[str], *, timeout: float | None = None) -> None:
        """Delete groups and their offsets. NON_EMPTY_GROUP for one with members, GROUP_ID_NOT_FOUND for none."""
        call = await self._driver.begin("delete_groups", timeout)

        def build(spec: RequestSpec[str]) -> DeleteGroupsRequest:
            return DeleteGroupsRequest(groups_names=spec.keys)

        def read(spec: RequestSpec[str], response: DeleteGroupsResponse) -> Iterable[tuple[str, Exception | None]]:
            for each in response.results:
                yield each.group_id, broker_error(each.error_code) if each.error_code else None

        await self._driver.ask_each(
            call,
            group_ids,
            group_coordinators(),
            DeleteGroupsRequest,
            build,
            read,
            may_pass=NOT_DONE,
        )

    @overload
    async def list_group_offsets(
        self, groups: str, *, require_stable: bool = False, timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata]: ...

    @overload
    async def list_group_offsets(
        self,
        groups: Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[str, dict[TopicPartition, OffsetAndMetadata]]: ...

    @overload
    async def list_group_offsets(
        self,
        groups: str | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata] | dict[str, dict[TopicPartition, OffsetAndMetadata]]: ...

    async def list_group_offsets(
        self,
        groups: str | Mapping[str, Iterable[TopicPartition] | None],
        *,
        require_stable: bool = False,
        timeout: float | None = None,
    ) -> dict[TopicPartition, OffsetAndMetadata] | dict[str, dict[TopicPartition, OffsetAndMetadata]]:
        """What a group has committed, by partition; or, for a mapping from groups to partitions, that by group.

        None in place of partitions means all. Partitions that nothing is committed for are not in the result. With
        `require_stable`, offsets that an open transaction is about to change are waited for.
        """
        call = await self._driver.begin("list_group_offsets", timeout)
        if isinstance(groups, str):
            return (await fetch_offsets(self._driver, call, {groups: None}, require_stable))[groups]
        return await fetch_offsets(self._driver, call, groups, require_stable)

    async def pending_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> set[TopicPartition]:
        """Those of the partitions whose offsets an open transaction is about to change. From Kafka 2.5 on."""
        call = await self._driver.begin("pending_group_offsets", timeout)
        return await fetch_pending(self._driver, call, group_id, partitions)

    async def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int],
        *,
        timeout: float | None = None,
    ) -> None:
        """Commit for a group that has no members; it comes to be if it does not exist. UNKNOWN_MEMBER_ID if it has."""
        call = await self._driver.begin("alter_group_offsets", timeout)
        await store_offsets(self._driver, call, group_id, offsets)

    async def delete_group_offsets(
        self, group_id: str, partitions: Iterable[TopicPartition], *, timeout: float | None = None
    ) -> None:
        """Forget what a group committed. GROUP_SUBSCRIBED_TO_TOPIC if a member reads the topic. From Kafka 2.4 on."""
        call = await self._driver.begin("delete_group_offsets", timeout)
        await delete_offsets(self._driver, call, group_id, partitions)

    async def remove_group_members(
        self,
        group_id: str,
        *,
        instance_ids: Iterable[str] | None = None,
        member_ids: Iterable[str] | None = None,
        reason: str | None = None,
        timeout: float | None = None,
    ) -> None:
        """Remove members, static ones by their instance id; all if none are given. A member that lives joins again.

        UNKNOWN_MEMBER_ID for one that is not in the group. From Kafka 2.4 on.
        """
        call = await self._driver.begin("remove_group_members", timeout)
        if instance_ids is None and member_ids is None:
            group = (await describe(self._driver, call, [group_id], False))[group_id]
            chosen = [(each.member_id, each.group_instance_id) for each in group.members]
        else:
            chosen = [("", each) for each in instance_ids or ()] + [(each, None) for each in member_ids or ()]
        identities = {instance_id or member_id: (member_id, instance_id) for member_id, instance_id in chosen}

        def build(spec: RequestSpec[str]) -> LeaveGroupRequest:
            if spec.version < 3:
                raise spec.unsupported(LeaveGroupRequest, "others can be removed from 3 on, that is Kafka 2.4")
            members = [
                MemberIdentity(
                    # A static member goes by its instance id alone: its member id changes when it comes back.
                    member_id=identities[each][0] if identities[each][1] is None else "",
                    group_instance_id=identities[each][1],
                    reason=reason or "removed by an administrator",
                )
                for each in spec.keys
            ]
            return LeaveGroupRequest(group_id=group_id, members=members)

        def read(spec: RequestSpec[str], response: LeaveGroupResponse) -> Iterable[tuple[str, Exception | None]]:
            raise_if_error(response.error_code)
            for each in response.members:
                key = each.group_instance_id or each.member_id
                yield key, broker_error(each.error_code) if each.error_code else None

        await self._driver.ask_each(
            call,
            identities,
            group_coordinator(group_id),
            LeaveGroupRequest,
            build,
            read,
            may_pass=NOT_DONE,
        )
