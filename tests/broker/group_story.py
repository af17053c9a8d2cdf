"""One story of groups, told to a coordinator through raw requests: to ours, and to Apache Kafka."""

from __future__ import annotations

import asyncio
import re
import struct
from collections.abc import Awaitable, Callable
from typing import Any

from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

Ask = Callable[[Any, int], Awaitable[Any]]

_UUID = re.compile(r"[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}")
SUBSCRIPTION = b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff"


class Teller:
    """Asks, and writes down each answer; random parts of ids are numbered in the order in which they appear."""

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.lines: list[str] = []
        self._ids: dict[str, str] = {}

    async def __call__(self, request: Any, version: int, *, shown: bool = True) -> Any:
        answer = await self._ask(request, version)
        if shown:
            self.note(f"{type(answer).__name__} v{version}", answer)
        return answer

    def note(self, label: str, answer: Any) -> None:
        self.lines.append(f"{label}: {self.without_ids(repr(answer))}")

    def without_ids(self, text: str) -> str:
        return _UUID.sub(lambda found: self._ids.setdefault(found[0], f"<{len(self._ids) + 1}>"), text)


def join(group: str, member: str = "", **fields: Any) -> JoinGroupRequest:
    given: dict[str, Any] = {
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 20_000,
        "protocol_type": "consumer",
        "protocols": [JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION)],
    }
    return JoinGroupRequest(group_id=group, member_id=member, **(given | fields))


def commit(group: str, *offsets: tuple[str, int, int], metadata: str | None = None, **fields: Any) -> Any:
    topics = [
        OffsetCommitRequestTopic(
            name=topic,
            partitions=[
                OffsetCommitRequestPartition(
                    partition_index=partition, committed_offset=offset, committed_metadata=metadata
                )
            ],
        )
        for topic, partition, offset in offsets
    ]
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


async def tell(ask: Ask) -> list[str]:
    """The story. The topic t has two partitions; members of a first generation are not waited for."""
    teller = Teller(ask)
    await _strangers(teller)
    await _dynamic_members(teller)
    await _static_members(teller)
    await _offsets(teller)
    await _end(teller)
    return teller.lines


async def _strangers(ask: Teller) -> None:
    for version in (0, 1, 3, 4, 6):
        keys = ["none", ""] if version >= 4 else []
        found = await ask(
            FindCoordinatorRequest(key="none" if version < 4 else "", coordinator_keys=keys), version, shown=False
        )
        for each in [found, *found.coordinators]:
            each.port = each.port > 0
        ask.note(f"found v{version}", found)
    for key_type, version in ((9, 1), (9, 4), (2, 3), (2, 5), (2, 6)):
        keys = ["none"] if version >= 4 else []
        request = FindCoordinatorRequest(key="none" if version < 4 else "", key_type=key_type, coordinator_keys=keys)
        found = await ask(request, version, shown=False)
        # The wording is each broker's own.
        for each in [found, *found.coordinators]:
            each.error_message = None
        ask.note(f"found v{version}", found)
    await ask(join("", ""), 9)
    await ask(join("none", session_timeout_ms=10), 9)
    await ask(join("none", session_timeout_ms=10), 3)
    await ask(join("none", "somebody"), 9)
    await ask(join("none", "somebody", group_instance_id="one"), 5)
    await ask(HeartbeatRequest(group_id="none", generation_id=1, member_id="m"), 4)
    await ask(HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 0)
    await ask(SyncGroupRequest(group_id="none", generation_id=1, member_id="m", assignments=[]), 3)
    await ask(SyncGroupRequest(group_id="", generation_id=1, member_id="m", assignments=[]), 3)
    await ask(SyncGroupRequest(group_id="none", generation_id=1, member_id="m", assignments=[]), 5)
    await ask(LeaveGroupRequest(group_id="none", member_id="m"), 1)
    await ask(LeaveGroupRequest(group_id="", member_id="m"), 2)
    await ask(LeaveGroupRequest(group_id="none", members=[MemberIdentity(member_id="m")]), 5)
    for version in (0, 4, 6):
        await ask(DescribeGroupsRequest(groups=["none", ""]), version)
    for group in ("none", ""):
        await ask(DeleteGroupsRequest(groups_names=[group, group]), 2)
    await ask(commit("none", ("t", 0, 1), generation_id_or_member_epoch=3, member_id="m"), 8)
    await ask(commit("none", ("t", 0, 1), generation_id_or_member_epoch=3, member_id="m"), 9)
    for version in (1, 5, 7):
        topics = [OffsetFetchRequestTopic(name="t", partition_indexes=[0])]
        await ask(OffsetFetchRequest(group_id="none", topics=topics, require_stable=version == 7), version)
    await ask(OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="none", topics=None)]), 8)
    await ask(_delete_offsets("none", "t"), 0)
    await ask(_delete_offsets("", "t"), 0)
    for states, types in ([], []), (["nonsense"], []), ([], ["nonsense"]), (["Stable"], ["Classic"]):
        await ask(ListGroupsRequest(states_filter=states, types_filter=types), 5)


async def _dynamic_members(ask: Teller) -> None:
    required = await ask(join("dynamic", protocols=[]), 9)
    required = await ask(join("dynamic"), 4)
    await ask(DescribeGroupsRequest(groups=["dynamic"]), 6)
    await ask(ListGroupsRequest(), 5)
    first = await ask(join("dynamic", required.member_id), 5)
    await ask(DescribeGroupsRequest(groups=["dynamic"]), 6)
    await ask(join("dynamic", protocols=[JoinGroupRequestProtocol(name="other", metadata=b"")]), 5)
    await ask(join("dynamic", protocol_type="connect"), 5)
    await ask(commit("dynamic", ("t", 0, 1), generation_id_or_member_epoch=1, member_id=first.member_id), 8)
    await ask(join("dynamic", first.member_id), 9)
    assignments = [
        SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"a"),
        SyncGroupRequestAssignment(member_id="stranger", assignment=b"b"),
    ]
    sync = SyncGroupRequest(group_id="dynamic", generation_id=1, member_id=first.member_id, assignments=assignments)
    await ask(SyncGroupRequest(group_id="dynamic", generation_id=2, member_id=first.member_id, assignments=[]), 3)
    sync.protocol_type, sync.protocol_name = "consumer", "other"
    await ask(sync, 5)
    sync.protocol_name = "range"
    await ask(sync, 5)
    sync.protocol_type = sync.protocol_name = None
    await ask(sync, 0)
    await ask(DescribeGroupsRequest(groups=["dynamic"], include_authorized_operations=True), 5)
    await ask(ListGroupsRequest(states_filter=["stable"], types_filter=["CLASSIC"]), 5)
    await ask(commit("dynamic", ("t", 0, 5), generation_id_or_member_epoch=1, member_id=first.member_id), 8)
    await ask(commit("dynamic", ("t", 0, 5), generation_id_or_member_epoch=2, member_id=first.member_id), 8)
    await ask(commit("dynamic", ("t", 0, 5), generation_id_or_member_epoch=-1, member_id=first.member_id), 8)
    await ask(commit("dynamic", ("t", 0, 5)), 8)
    await ask(_delete_offsets("dynamic", "t"), 0)
    await ask(DeleteGroupsRequest(groups_names=["dynamic"]), 2)
    for generation in (0, 1, 2):
        await ask(HeartbeatRequest(group_id="dynamic", generation_id=generation, member_id=first.member_id), 4)
    # A second one comes; the first rejoins, both get the next generation.
    second_required = await ask(join("dynamic"), 9)
    parked = asyncio.ensure_future(ask(join("dynamic", second_required.member_id), 9, shown=False))
    beat = HeartbeatRequest(group_id="dynamic", generation_id=1, member_id=first.member_id)
    async with asyncio.timeout(10):
        while not (await ask(beat, 4, shown=False)).error_code:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
    await ask(beat, 4)
    await ask(sync, 3)
    await ask(commit("dynamic", ("t", 1, 6), generation_id_or_member_epoch=1, member_id=first.member_id), 8)
    described = await ask(DescribeGroupsRequest(groups=["dynamic"]), 6, shown=False)
    # Who leads a group depends on nothing but who came first; the order of its members is not promised.
    described.groups[0].members.sort(key=lambda each: each.member_id != first.member_id)
    ask.note("described", described)
    again = await ask(join("dynamic", first.member_id), 9, shown=False)
    again.members.sort(key=lambda each: each.member_id != first.member_id)
    ask.note("first", again)
    ask.note("second", await parked)
    await ask(commit("dynamic", ("t", 0, 7), generation_id_or_member_epoch=2, member_id=first.member_id), 8)
    leaving = [MemberIdentity(member_id="who"), MemberIdentity(member_id=first.member_id)]
    await ask(LeaveGroupRequest(group_id="dynamic", members=leaving), 5)
    await ask(LeaveGroupRequest(group_id="dynamic", member_id=second_required.member_id), 2)
    await ask(DescribeGroupsRequest(groups=["dynamic"]), 6)
    await ask(ListGroupsRequest(), 4)


async def _static_members(ask: Teller) -> None:
    first = await ask(join("static", group_instance_id="one"), 9)
    sync = SyncGroupRequest(
        group_id="static",
        generation_id=1,
        member_id=first.member_id,
        group_instance_id="one",
        assignments=[SyncGroupRequestAssignment(member_id=first.member_id, assignment=b"a")],
    )
    await ask(sync, 3)
    again = await ask(join("static", group_instance_id="one"), 9)
    await ask(join("static", first.member_id, group_instance_id="one"), 9)
    await ask(
        HeartbeatRequest(group_id="static", generation_id=1, member_id=first.member_id, group_instance_id="one"), 4
    )
    await ask(
        HeartbeatRequest(group_id="static", generation_id=1, member_id=again.member_id, group_instance_id="two"), 4
    )
    fenced = {"member_id": first.member_id, "group_instance_id": "one", "generation_id_or_member_epoch": 1}
    await ask(commit("static", ("t", 0, 1), **fenced), 8)
    old = await ask(join("static", group_instance_id="one"), 7)
    sync.member_id = old.member_id
    await ask(sync, 3)
    await ask(DescribeGroupsRequest(groups=["static"]), 6)
    leaving = [
        MemberIdentity(member_id="who", group_instance_id="one"),
        MemberIdentity(member_id="", group_instance_id="two"),
        MemberIdentity(member_id="", group_instance_id="one"),
    ]
    await ask(LeaveGroupRequest(group_id="static", members=leaving), 5)


async def _offsets(ask: Teller) -> None:
    await ask(commit("simple", ("t", 0, 1), ("t", 9, 1), ("missing", 0, 1)), 8)
    await ask(commit("simple", ("t", 1, 2), retention_time_ms=3_600_000), 3)
    await ask(commit("simple", ("t", 0, 3), metadata="x" * 4097), 8)
    await ask(commit("simple", ("t", 0, 4), metadata="x" * 4096), 8)
    await ask(commit("", ("t", 0, 4)), 8)
    everything = await ask(OffsetFetchRequest(group_id="simple", topics=None), 6, shown=False)
    for topic in everything.topics:
        topic.partitions.sort(key=lambda each: each.partition_index)
    ask.note("all", everything)
    topics = [
        OffsetFetchRequestTopic(name="t", partition_indexes=[1, 7]),
        OffsetFetchRequestTopic(name="x", partition_indexes=[0]),
    ]
    for version in (1, 2, 5, 7):
        await ask(OffsetFetchRequest(group_id="simple", topics=topics, require_stable=version == 7), version)
    await ask(DescribeGroupsRequest(groups=["simple"]), 6)
    await ask(HeartbeatRequest(group_id="simple", generation_id=0, member_id=""), 4)
    await ask(SyncGroupRequest(group_id="simple", generation_id=0, member_id="", assignments=[]), 3)
    await ask(join("simple", "somebody"), 9)
    await ask(_delete_offsets("simple", "t", "missing"), 0)
    await ask(_delete_offsets("dynamic", "t"), 0)


async def _end(ask: Teller) -> None:
    await ask(DeleteGroupsRequest(groups_names=["simple"]), 1)
    await ask(
        OffsetFetchRequest(group_id="simple", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[1])]), 5
    )
    await ask(DescribeGroupsRequest(groups=["simple"]), 6)
    listed = await ask(ListGroupsRequest(), 5, shown=False)
    listed.groups.sort(key=lambda each: each.group_id)
    ask.note("groups", listed)


def _delete_offsets(group: str, *topics: str) -> OffsetDeleteRequest:
    return OffsetDeleteRequest(
        group_id=group,
        topics=[
            OffsetDeleteRequestTopic(
                name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
            )
            for topic in topics
        ],
    )


async def ask_over_tcp(address: str, request: Any, version: int) -> Any:
    """Ask a broker over a connection of its own, so that a parked request holds up nobody."""
    host, _, port = address.rpartition(":")
    wanted = api(ApiKey(request.API_KEY))
    header = RequestHeader(
        request_api_key=request.API_KEY, request_api_version=version, correlation_id=7, client_id="app"
    )
    message = header.encode(wanted.request_header_version(version)) + request.encode(version)
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(struct.pack(">i", len(message)) + message)
        (size,) = struct.unpack(">i", await reader.readexactly(4))
        answer = await reader.readexactly(size)
    finally:
        writer.close()
    start = 4 + wanted.response_header_version(version)
    return wanted.response.decode(answer[start:], version)
