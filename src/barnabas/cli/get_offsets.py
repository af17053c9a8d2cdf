"""`barnabas get-offsets`: the first, last or other offsets of partitions. Kafka's `kafka-get-offsets`."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, NamedTuple

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, connection, flag
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown
from barnabas.cli.topic_filters import topic_pattern

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ListedOffset, OffsetSpec

_RULE: Final = re.compile(r"([^:,]*)(?::(?:([0-9]*)|(?:([0-9]*)-([0-9]*))))?")
_SPECIAL_TIMES: Final = {
    "-1": "latest",
    "-2": "earliest",
    "-3": "max-timestamp",
    "-4": "earliest-local",
    "-5": "latest-tiered",
    "-6": "earliest-pending-upload",
}
_UNKNOWN_OFFSET: Final = -1


class Rule(NamedTuple):
    """Some partitions of the topics that match."""

    topics: re.Pattern[str]
    has_partition: Callable[[int], bool]

    def allows(self, partition: TopicPartition) -> bool:
        return self.topics.fullmatch(partition.topic) is not None and self.has_partition(partition.partition)


@click.command(cls=KafkaTool)
@connection()
@click.option("--topic", metavar="REGEX", help="Topics whose whole name matches; default: all.")
@click.option("--partitions", metavar="N,N,…", help="Only these partitions of each topic.")
@click.option(
    "--topic-partitions",
    metavar="RULE,RULE,…",
    help="Instead of the two above: 'clicks:1', 'clicks:0-3' (without 3), 'clicks:5-', 'clicks:-3', 'clicks', ':0'.",
)
@click.option(
    "--time",
    "at",
    default="latest",
    metavar="WHEN",
    show_default=True,
    help="latest (-1), earliest (-2), max-timestamp (-3), earliest-local (-4), latest-tiered (-5), "
    "earliest-pending-upload (-6), or the first record since a time, in ms since 1970.",
)
@flag("--exclude-internal-topics", "Leave out the cluster's own topics.")
@click.pass_context
def get_offsets(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    topic: str | None,
    partitions: str | None,
    topic_partitions: str | None,
    at: str,
) -> None:
    """Show one offset of each partition: TOPIC:PARTITION:OFFSET. A partition that has none is left out.

    \b
    Examples:
      barnabas get-offsets --bootstrap-server 127.0.0.1:9092 --topic clicks
      barnabas get-offsets --bootstrap-server 127.0.0.1:9092 --topic-partitions clicks:0-3 --time earliest
    """
    given = GivenOptions(ctx)
    given.need("--bootstrap-server")
    given.exclude("--topic-partitions", "--topic", "--partitions")
    if topic_partitions is not None:
        rules = [parse_rule(text) for text in topic_partitions.split(",")]
    else:
        rules = [Rule(topic_pattern(".*" if topic is None else topic), _partition_set(partitions))]
    time = parse_time(at)
    with_internal = "--exclude-internal-topics" not in given
    cluster = ClusterOptions(bootstrap_server, command_config)
    offsets = cluster.run(lambda admin: _ask(admin, rules, time, with_internal))
    _show(offsets, as_json)


def parse_rule(text: str) -> Rule:
    match = _RULE.fullmatch(text)
    if match is None:
        raise click.UsageError(
            f"--topic-partitions: {text!r} is not of the form TOPIC, TOPIC:N, TOPIC:N-M, TOPIC:N- or TOPIC:-M"
        )
    name, one, low, high = match.groups()
    topics = topic_pattern(name or ".*", "--topic-partitions")
    if one:
        return Rule(topics, int(one).__eq__)
    # The upper bound does not belong to the range.
    first, end = int(low or 0), int(high) if high else None
    return Rule(topics, lambda partition: partition >= first and (end is None or partition < end))


def _partition_set(text: str | None) -> Callable[[int], bool]:
    if not text:
        return lambda _: True
    try:
        return frozenset(int(part) for part in text.split(",")).__contains__
    except ValueError:
        raise click.UsageError(f"--partitions: {text!r} is no list of numbers like '0,1,2'") from None


def parse_time(text: str) -> str | int:
    """One of the special times by its name, or milliseconds."""
    name = _SPECIAL_TIMES.get(text, text)
    if name in _SPECIAL_TIMES.values():
        return name
    try:
        timestamp_ms = int(name)
        if timestamp_ms < 0:
            raise ValueError
        return timestamp_ms
    except ValueError:
        known = ", ".join(_SPECIAL_TIMES.values())
        raise click.UsageError(f"--time: {text!r} is neither a number of milliseconds nor one of {known}") from None


def _spec(time: str | int) -> OffsetSpec:
    from barnabas.client.admin import OffsetSpec

    if isinstance(time, int):
        return OffsetSpec.at(time)
    spec: OffsetSpec = getattr(OffsetSpec, time.replace("-", "_"))()
    return spec


async def _ask(
    admin: Admin, rules: list[Rule], time: str | int, with_internal: bool
) -> dict[TopicPartition, ListedOffset]:
    from barnabas.client.errors import KeyedError

    listed = await admin.list_topics(include_internal=with_internal)
    names = sorted(name for name in listed if any(rule.topics.fullmatch(name) for rule in rules))
    described = await admin.describe_topics(names) if names else {}
    everything = (TopicPartition(name, each.partition) for name in names for each in described[name].partitions)
    partitions = [partition for partition in everything if any(rule.allows(partition) for rule in rules)]
    if not partitions:
        raise BarnabasError("no partition matches what was asked for")
    spec = _spec(time)
    try:
        return await admin.list_offsets(dict.fromkeys(partitions, spec))
    except KeyedError as problem:
        for partition, error in sorted(problem.errors.items()):
            say(shown(f"{partition} is left out: {reason(error)}"), err=True)
        return problem.results


def _show(offsets: dict[TopicPartition, ListedOffset], as_json: bool) -> None:
    # As text, so 10 stands before 2: Kafka's order, which scripts may have come to rely on.
    known = sorted((key for key, found in offsets.items() if found.offset != _UNKNOWN_OFFSET), key=str)
    rows = [(each.topic, each.partition, offsets[each].offset) for each in known]
    if as_json:
        print_json([{"topic": topic, "partition": number, "offset": offset} for topic, number, offset in sorted(rows)])
    elif is_terminal():
        print_table(("topic", "partition", "offset"), sorted(rows))
    else:
        for row in rows:
            say(":".join(map(shown, row)))
