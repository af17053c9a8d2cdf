"""What `barnabas consumer-groups --describe` shows: offsets, members or state, in Kafka's columns."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import reason
from barnabas.cli.consumer_groups import MIN_WIDTH, GroupsRequest
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown
from barnabas.cli.progress import progress

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, GroupDescription, MemberDescription

NONE: Final = "-"

_REBALANCING: Final = frozenset({"PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling"})


class Column(NamedTuple):
    """A heading, and how wide the column is at least in plain text; 0 for the last one, which is not filled up."""

    heading: str
    width: int = MIN_WIDTH
    #: Whether it grows with its cells. Kafka lets some overflow instead.
    grows: bool = False


class Row(NamedTuple):
    """How far a group is in one partition, and who reads it."""

    partition: TopicPartition
    leader_epoch: int | None
    offset: int | None
    end_offset: int | None
    member: MemberDescription | None
    #: Whether a transaction that has not ended holds another offset.
    is_pending: bool

    @property
    def lag(self) -> int | None:
        return None if self.offset is None or self.end_offset is None else self.end_offset - self.offset


async def describe(admin: Admin, wanted: GroupsRequest, groups: Sequence[str]) -> int:
    """Describe each group; those that cannot be are told at the end."""
    described, failed = await describe_groups(admin, groups)
    found: list[dict[str, Any]] = []
    with progress("describing groups", len(described)) as step:
        for group in described.values():
            if "--members" in wanted.given:
                values = _members(group, wanted)
            elif "--state" in wanted.given:
                values = _state(group, wanted)
            else:
                values = await _offsets(admin, group, wanted)
            found.append(values)
            step()
    if wanted.as_json:
        print_json(found)
    for group_id, error in failed.items():
        tell(group_failure(group_id, error))
    return FAILED if failed else 0


async def describe_groups(
    admin: Admin, groups: Sequence[str]
) -> tuple[dict[str, GroupDescription], dict[str, Exception]]:
    """What could be found out, and what went wrong with the others. A group that is dead is one that does not exist."""
    from barnabas.client.admin import GroupState
    from barnabas.client.errors import KeyedError

    failed: dict[str, Exception] = {}
    described: Mapping[str, GroupDescription] = {}
    try:
        described = await admin.describe_groups(groups) if groups else {}
    except KeyedError as problem:
        described, failed = problem.results, problem.errors
    except BrokerError as problem:
        failed = {groups[0]: problem}
    alive = {name: described[name] for name in groups if name in described}
    for name in [name for name, group in alive.items() if group.state is GroupState.DEAD]:
        del alive[name]
        failed[name] = BrokerError(ErrorCode.GROUP_ID_NOT_FOUND)
    return alive, failed


def group_failure(group_id: str, error: Exception) -> str:
    if isinstance(error, BrokerError) and error.code is ErrorCode.GROUP_ID_NOT_FOUND:
        return f"consumer group '{shown(group_id)}' does not exist"
    return f"consumer group '{shown(group_id)}': {reason(error)}"


def _warn(group: GroupDescription) -> None:
    if group.state == "Empty":
        say(f"\nConsumer group '{shown(group.group_id)}' has no active members.", err=True)
    elif group.state in _REBALANCING:
        say(f"\nWarning: Consumer group '{shown(group.group_id)}' is rebalancing.", err=True)


async def _offsets(admin: Admin, group: GroupDescription, wanted: GroupsRequest) -> dict[str, Any]:
    rows = await _rows(admin, group)
    values = [
        {"topic": row.partition.topic, "partition": row.partition.partition, "leaderEpoch": row.leader_epoch}
        | {"currentOffset": row.offset, "logEndOffset": row.end_offset, "lag": row.lag}
        | {"pending": row.is_pending}
        | (_member_values(row.member) if row.member is not None else {"consumerId": None})
        for row in rows
    ]
    if wanted.as_json:
        return {"group": group.group_id, "state": str(group.state), "offsets": values}
    _warn(group)
    columns = [Column("GROUP", grows=True), Column("TOPIC", grows=True), Column("PARTITION", 10)]
    if "--verbose" in wanted.given:
        columns.append(Column("LEADER-EPOCH"))
    columns += [Column("CURRENT-OFFSET"), Column("LOG-END-OFFSET"), Column("LAG")]
    columns += [Column("CONSUMER-ID", grows=True), Column("HOST", grows=True), Column("CLIENT-ID", 0)]
    cells = []
    for row in rows:
        member = row.member
        who = (member.member_id, member.host, member.client_id) if member is not None else (NONE, NONE, NONE)
        epoch = [row.leader_epoch] if "--verbose" in wanted.given else []
        cells.append([group.group_id, *row.partition, *epoch, row.offset, row.end_offset, row.lag, *who])
    if cells:
        show(columns, cells)
    pending = [row.partition for row in rows if row.is_pending]
    if pending:
        about = f"Consumer group '{shown(group.group_id)}' has offsets in transactions that have not ended"
        say(f"\n{about}: {shown(_assignment(pending))}", err=True)
    return {}


async def _rows(admin: Admin, group: GroupDescription) -> list[Row]:
    """What members read, those with most partitions first; then what is committed and nobody reads."""
    committed = await admin.list_group_offsets(group.group_id)
    owners: dict[TopicPartition, MemberDescription | None] = {}
    for member in sorted(group.members, key=lambda each: -len(each.assignment)):
        owners |= dict.fromkeys(sorted(member.assignment), member)
    owners |= dict.fromkeys(sorted(each for each in committed if each not in owners))
    ends = await end_offsets(admin, owners)
    pending = await _pending(admin, group, owners)
    rows = []
    for partition, owner in owners.items():
        found = committed.get(partition)
        epoch, offset = (None, None) if found is None else (found.leader_epoch, found.offset)
        rows.append(Row(partition, epoch, offset, ends.get(partition), owner, partition in pending))
    return rows


async def _pending(
    admin: Admin, group: GroupDescription, partitions: Collection[TopicPartition]
) -> Collection[TopicPartition]:
    from barnabas.net.errors import UnsupportedRequestError

    try:
        return await admin.pending_group_offsets(group.group_id, partitions) if partitions else ()
    except UnsupportedRequestError:
        return ()  # Brokers before Kafka 2.5 do not tell.


async def end_offsets(admin: Admin, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
    """The end of each partition that has a leader now: nobody waits here for one that may come."""
    from barnabas.client.admin import OffsetSpec
    from barnabas.client.errors import KeyedError

    wanted = set(partitions)
    topics = sorted({each.topic for each in wanted})
    try:
        described = await admin.describe_topics(topics) if topics else {}
    except KeyedError as problem:
        described = problem.results
    except BrokerError:
        described = {}
    led = [
        TopicPartition(topic, each.partition)
        for topic, found in described.items()
        for each in found.partitions
        if each.leader is not None
    ]
    asked = [each for each in led if each in wanted]
    try:
        found = await admin.list_offsets(dict.fromkeys(asked, OffsetSpec.latest())) if asked else {}
    except KeyedError as problem:
        found = problem.results
    return {partition: each.offset for partition, each in found.items()}


def _member_values(member: MemberDescription) -> dict[str, Any]:
    return {
        "consumerId": member.member_id,
        "groupInstanceId": member.group_instance_id,
        "host": member.host,
        "clientId": member.client_id,
    }


def _members(group: GroupDescription, wanted: GroupsRequest) -> dict[str, Any]:
    if wanted.as_json:
        members = [
            _member_values(each)
            | {"partitions": len(each.assignment), "epoch": each.member_epoch}
            | {"assignment": _by_topic(each.assignment), "targetAssignment": _by_topic(each.target_assignment)}
            for each in group.members
        ]
        return {"group": group.group_id, "state": str(group.state), "members": members}
    _warn(group)
    is_verbose = "--verbose" in wanted.given
    has_instances = any(each.group_instance_id for each in group.members)
    has_both = {each.is_classic for each in group.members} >= {True, False}
    columns = [Column("GROUP", grows=True), Column("CONSUMER-ID", grows=True)]
    if has_instances:
        columns.append(Column("GROUP-INSTANCE-ID", 17, grows=True))
    columns += [Column("HOST", grows=True), Column("CLIENT-ID", grows=True), Column("#PARTITIONS")]
    if is_verbose:
        columns += [Column("CURRENT-EPOCH"), Column("CURRENT-ASSIGNMENT", 20, grows=True)]
        columns += [Column("TARGET-EPOCH"), Column("TARGET-ASSIGNMENT", 20, grows=True)]
        if has_both:
            columns.append(Column("UPGRADED", 0))
    cells = []
    for each in group.members:
        instance = [each.group_instance_id or ""] if has_instances else []
        row = [group.group_id, each.member_id, *instance, each.host, each.client_id, len(each.assignment)]
        if is_verbose:
            target_epoch = None if each.target_assignment is None else group.assignment_epoch
            row += [each.member_epoch, _assignment(each.assignment), target_epoch, _assignment(each.target_assignment)]
            if has_both:
                row.append("true" if each.is_classic is False else "false")
        cells.append(row)
    # Kafka ends the rows of members, and only those, with a blank.
    show(columns, cells, end=" " if not is_verbose else "")
    return {}


def _by_topic(partitions: Iterable[TopicPartition] | None) -> dict[str, list[int]] | None:
    if partitions is None:
        return None
    found: dict[str, list[int]] = {}
    for topic, number in sorted(partitions):
        found.setdefault(topic, []).append(number)
    return found


def _assignment(partitions: Iterable[TopicPartition] | None) -> str:
    """`clicks:0,1;views:2`."""
    found = _by_topic(partitions) or {}
    return ";".join(f"{topic}:{','.join(map(str, numbers))}" for topic, numbers in found.items()) or NONE


def _state(group: GroupDescription, wanted: GroupsRequest) -> dict[str, Any]:
    node = group.coordinator
    if wanted.as_json:
        return {
            "group": group.group_id,
            "type": str(group.type),
            "state": str(group.state),
            "coordinator": {"id": node.node_id, "host": node.host, "port": node.port},
            "assignmentStrategy": group.protocol or None,
            "groupEpoch": group.group_epoch,
            "targetAssignmentEpoch": group.assignment_epoch,
            "members": len(group.members),
        }
    _warn(group)
    columns = [Column("GROUP", grows=True), Column("COORDINATOR (ID)", 25, grows=True)]
    columns += [Column("ASSIGNMENT-STRATEGY", 20), Column("STATE", 20)]
    coordinator = f"{node.host}:{node.port}  ({node.node_id})"
    row: list[object] = [group.group_id, coordinator, group.protocol or NONE, str(group.state)]
    if "--verbose" in wanted.given:
        columns += [Column("GROUP-EPOCH"), Column("TARGET-ASSIGNMENT-EPOCH", 25)]
        row += [group.group_epoch, group.assignment_epoch]
    show([*columns, Column("#MEMBERS", 0)], [[*row, len(group.members)]])
    return {}


def show(columns: Sequence[Column], rows: Sequence[Sequence[object]], *, end: str = "") -> None:
    """A table; in plain text with the widths that Kafka's tool has, after an empty line."""
    cells = [[NONE if cell is None else shown(cell) for cell in row] for row in rows]
    headings = [column.heading for column in columns]
    if is_terminal():
        print_table(headings, cells)
        return
    widths = [
        max([column.width, *(len(row[index]) for row in cells)]) if column.grows else column.width
        for index, column in enumerate(columns)
    ]
    say()
    for row in (headings, *cells):
        say(" ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)) + end)
