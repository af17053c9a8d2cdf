"""`barnabas consumer-groups`: consumer groups and how far they are. Kafka's `kafka-consumer-groups`."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, action, connection, flag
from barnabas.cli.main import FAILED
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, GroupListing

_ACTIONS: Final = ("--list", "--describe", "--delete", "--reset-offsets", "--delete-offsets", "--validate-regex")
SCENARIOS: Final = (
    "--to-earliest",
    "--to-latest",
    "--to-current",
    "--to-offset",
    "--to-datetime",
    "--by-duration",
    "--shift-by",
    "--from-file",
)
_STATES: Final = ("PreparingRebalance", "CompletingRebalance", "Stable", "Dead", "Empty", "Assigning", "Reconciling")
_TYPES: Final = ("Classic", "Consumer")
_DEFAULT_TIMEOUT_MS: Final = 30_000
MIN_WIDTH: Final = 15


@dataclass(frozen=True, slots=True)
class GroupsRequest:
    """What the options ask for."""

    given: GivenOptions
    groups: tuple[str, ...]
    topics: tuple[str, ...]
    states: tuple[str, ...]
    types: tuple[str, ...]
    #: The value of each scenario of --reset-offsets that has one.
    scenarios: dict[str, Any]
    as_json: bool


@click.command(cls=KafkaTool)
@connection()
@action("--list", "List the groups.")
@action("--describe", "Show how far groups are, their members or their state.")
@action("--delete", "Delete groups.")
@action("--reset-offsets", "Set where groups go on reading. They must not be active.")
@action("--delete-offsets", "Forget how far a group is in some topics.")
@click.option("--validate-regex", metavar="REGEX", help="Tell whether brokers would take REGEX for a subscription.")
@click.option("--group", "groups", multiple=True, metavar="ID", help="The group; repeatable.")
@flag("--all-groups", "Every group.")
@click.option(
    "--topic", "topics", multiple=True, metavar="NAME[:N,N]", help="The topic, or some partitions; repeatable."
)
@flag("--all-topics", "Every topic for which the group has offsets.")
@flag("--offsets", "Describe how far the group is in each partition: the default.")
@flag("--members", "Describe the members.")
@click.option(
    "--state",
    is_flag=False,
    flag_value="",
    metavar="[STATE,…]",
    help="Describe the state; or list groups with their states, or those in some states.",
)
@click.option(
    "--type",
    "group_type",
    is_flag=False,
    flag_value="",
    metavar="[TYPE,…]",
    help="List groups with, or of some, types.",
)
@flag("--verbose", "Describe more: epochs, assignments.")
@flag("--dry-run", "Only show what --reset-offsets would do: the default.")
@flag("--execute", "Do what --reset-offsets shows.")
@flag("--export", "Show it as CSV, which --from-file understands.")
@flag("--to-earliest", "Reset to the first record.")
@flag("--to-latest", "Reset to the end.")
@flag("--to-current", "Reset to where the group is; where it has no offset, to the end.")
@click.option("--to-offset", type=int, metavar="N", help="Reset to an offset.")
@click.option(
    "--to-datetime", metavar="WHEN", help="Reset to a time: 2026-01-31T10:00:00.000, UTC unless a zone follows."
)
@click.option("--by-duration", metavar="P", help="Reset to a time that long ago: P7D, PT1H30M.")
@click.option("--shift-by", type=int, metavar="N", help="Reset by so many records ahead, or back if negative.")
@click.option("--from-file", metavar="FILE", help="Reset to what a CSV file says: [GROUP,]TOPIC,PARTITION,OFFSET.")
@click.option(
    "--timeout",
    type=int,
    default=_DEFAULT_TIMEOUT_MS,
    show_default=True,
    metavar="MS",
    help="How long to wait for answers.",
)
@click.pass_context
def consumer_groups(
    ctx: click.Context,
    /,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    validate_regex: str | None,
    groups: tuple[str, ...],
    topics: tuple[str, ...],
    state: str | None,
    group_type: str | None,
    timeout: int,
    **scenarios: Any,
) -> int:
    """Show consumer groups and how far they are; reset or delete them.

    \b
    Examples:
      barnabas consumer-groups --bootstrap-server 127.0.0.1:9092 --describe --group billing
      barnabas consumer-groups --bootstrap-server 127.0.0.1:9092 --reset-offsets --group billing
          --topic clicks:0,1 --to-datetime 2026-01-31T10:00:00.000 --dry-run
    """
    given = GivenOptions(ctx)
    name = given.exactly_one(*_ACTIONS)
    if validate_regex is not None:
        return _validate(validate_regex, as_json)
    check(given, name, state)
    values = {f"--{key.replace('_', '-')}": value for key, value in scenarios.items()}
    wanted = GroupsRequest(
        given,
        groups,
        topics,
        _chosen(state, _STATES, "--state"),
        _chosen(group_type, _TYPES, "--type"),
        values,
        as_json,
    )
    cluster = ClusterOptions(bootstrap_server, command_config)
    return cluster.run(lambda admin: _work(admin, name, wanted), {"default.api.timeout.ms": timeout})


def check(given: GivenOptions, name: str, state: str | None) -> None:
    """Which options go with which, as Kafka's tool has it."""
    given.need("--bootstrap-server")
    for option in ("--members", "--offsets", "--verbose"):
        given.only_with(option, "--describe")
    given.only_with("--state", "--describe", "--list")
    given.only_with("--type", "--list")
    if name in ("--describe", "--delete", "--reset-offsets"):
        given.need_one_of("--group", "--all-groups", why=f"for {name}")
    given.at_most_one("--group", "--all-groups")
    given.exclude("--group", "--list")
    given.exclude("--topic", "--list", "--describe")
    if name == "--describe":
        given.at_most_one("--members", "--offsets", "--state")
        if state:
            raise click.UsageError("--state takes no value with --describe")
    elif name == "--delete":
        given.exclude("--topic", "--delete", hint=": use --delete-offsets to forget topics of a group")
    elif name == "--delete-offsets":
        given.need("--group", "--topic", why="for --delete-offsets")
    elif name == "--reset-offsets":
        given.at_most_one("--dry-run", "--execute")
        given.exactly_one(*SCENARIOS)
        if "--from-file" not in given:
            given.need_one_of("--topic", "--all-topics", why="for --reset-offsets")


def _chosen(text: str | None, known: tuple[str, ...], option: str) -> tuple[str, ...]:
    """The states or types in a list, in any case of letters; none if no list is given."""
    if not text:
        return ()
    names = {name.lower(): name for name in known}
    found = []
    for part in text.split(","):
        name = names.get(part.strip().lower())
        if name is None:
            raise click.UsageError(f"{option}: {part.strip()!r} is none of {', '.join(known)}")
        found.append(name)
    return tuple(found)


def _validate(regex: str, as_json: bool) -> int:
    from barnabas.cli.re2_syntax import problem_with

    problem = problem_with(regex)
    if as_json:
        print_json({"regex": regex, "valid": problem is None, "problem": problem})
    elif problem is None:
        say(f"The regular expression `{regex}` is valid.")
    else:
        say(f"The regular expression `{regex}` is invalid: {problem}.")
    return 0


async def _work(admin: Admin, name: str, wanted: GroupsRequest) -> int:
    if name == "--list":
        return await _list(admin, wanted)
    if name == "--describe":
        from barnabas.cli.consumer_groups_shown import describe

        return await describe(admin, wanted, await group_ids(admin, wanted))
    if name == "--reset-offsets":
        from barnabas.cli.consumer_groups_reset import reset

        return await reset(admin, wanted, await group_ids(admin, wanted))
    return await (_delete if name == "--delete" else _delete_offsets)(admin, wanted)


async def group_ids(admin: Admin, wanted: GroupsRequest) -> list[str]:
    """The groups that are meant, sorted and each once."""
    if "--all-groups" in wanted.given:
        return [each.group_id for each in await _listed(admin, (), ())]
    return sorted(set(wanted.groups))


async def _listed(admin: Admin, states: Iterable[str], types: Iterable[str]) -> list[GroupListing]:
    """The groups of consumers. Others, of Kafka Connect say, have protocols of their own and are not shown."""
    from barnabas.client.admin import GroupState, GroupType

    found = await admin.list_groups(
        states=[GroupState(each) for each in states] or None, types=[GroupType(each) for each in types] or None
    )
    ours = (GroupType.CLASSIC, GroupType.CONSUMER, GroupType.UNKNOWN)
    return sorted(
        (each for each in found if each.type in ours and each.protocol_type in ("", "consumer")),
        key=lambda each: each.group_id,
    )


async def _list(admin: Admin, wanted: GroupsRequest) -> int:
    listings = await _listed(admin, wanted.states, wanted.types)
    columns = [("GROUP", [each.group_id for each in listings])]
    if "--type" in wanted.given:
        columns.append(("TYPE", [str(each.type) for each in listings]))
    if "--state" in wanted.given:
        columns.append(("STATE", [str(each.state) for each in listings]))
    headings = [heading for heading, _ in columns]
    rows = list(zip(*(map(shown, cells) for _, cells in columns), strict=True))
    if wanted.as_json:
        plain = [(each.group_id, str(each.type), str(each.state)) for each in listings]
        print_json([{"group": group, "type": kind, "state": state} for group, kind, state in plain])
    elif is_terminal():
        print_table(headings, rows)
    elif len(columns) == 1:
        for (group,) in rows:
            say(group)
    else:
        first = max([MIN_WIDTH, *(len(row[0]) for row in rows)]) + 10
        for row in (headings, *rows):
            say(" ".join([row[0].ljust(first), *(cell.ljust(20) for cell in row[1:])]))
    return 0


async def _delete(admin: Admin, wanted: GroupsRequest) -> int:
    from barnabas.client.errors import KeyedError

    ids = await group_ids(admin, wanted)
    failed: dict[str, Exception] = {}
    try:
        if ids:
            await admin.delete_groups(ids)
    except KeyedError as problem:
        failed = problem.errors
    except BrokerError as problem:
        failed = dict.fromkeys(ids, problem)
    deleted = [each for each in ids if each not in failed]
    names = ", ".join(f"'{shown(each)}'" for each in deleted)
    if wanted.as_json:
        print_json(
            [{"group": each, "deleted": True} for each in deleted]
            + [{"group": each, "deleted": False, "error": reason(error)} for each, error in failed.items()]
        )
    elif not failed:
        say(f"Deletion of requested consumer groups ({names}) was successful.")
    else:
        say("\nError: Deletion of some consumer groups failed:")
        for each, error in failed.items():
            say(f"* Group '{shown(each)}' could not be deleted due to: {reason(error)}")
        if deleted:
            say(f"\nThese consumer groups were deleted successfully: {names}")
    return FAILED if failed else 0


async def _delete_offsets(admin: Admin, wanted: GroupsRequest) -> int:
    from barnabas.cli.partitions import parse_partitions
    from barnabas.client.errors import KeyedError

    if len(set(wanted.groups)) != 1:
        raise click.UsageError("--delete-offsets takes one --group at a time")
    group = wanted.groups[0]
    named = parse_partitions(wanted.topics)
    outcome: dict[TopicPartition, Exception | None] = dict.fromkeys(named.partitions)
    for topic in named.topics:
        try:
            described = await admin.describe_topics([topic])
            outcome |= {TopicPartition(topic, each.partition): None for each in described[topic].partitions}
        except BrokerError as problem:
            outcome[TopicPartition(topic, -1)] = problem
    partitions = [each for each in outcome if each.partition >= 0]
    whole: Exception | None = None
    try:
        if partitions:
            await admin.delete_group_offsets(group, partitions)
    except KeyedError as problem:
        outcome |= problem.errors
        whole = BarnabasError("Encountered some partition-level error, see the follow-up details.")
    except BrokerError as problem:
        whole = problem
        outcome |= dict.fromkeys(partitions, problem)
    _show_deleted_offsets(group, outcome, whole, wanted.as_json)
    return FAILED if any(outcome.values()) else 0


def _show_deleted_offsets(
    group: str, outcome: dict[TopicPartition, Exception | None], whole: Exception | None, as_json: bool
) -> None:
    if as_json:
        print_json(
            [
                {
                    "topic": each.topic,
                    "partition": each.partition if each.partition >= 0 else None,
                    "deleted": not error,
                }
                | ({"error": reason(error)} if error else {})
                for each, error in sorted(outcome.items(), key=lambda item: item[0])
            ]
        )
        return
    if whole is None:
        say(f"Request succeeded for deleting offsets from group {shown(group)}.")
    else:
        say(f"\nError: {reason(whole)}")
    rows = [
        (
            shown(each.topic),
            str(each.partition) if each.partition >= 0 else "-",
            "Successful" if error is None else shown(f"Error: {reason(error)}"),
        )
        for each, error in sorted(outcome.items(), key=lambda item: item[0])
    ]
    headings = ("TOPIC", "PARTITION", "STATUS")
    if is_terminal():
        print_table(headings, rows)
        return
    width = max(MIN_WIDTH, *(len(row[0]) for row in rows))
    say()
    for topic, partition, status in (headings, *rows):
        say(f"{topic.ljust(width)} {partition.ljust(10)} {status.ljust(15)}")
