"""`barnabas topics`: create, show, change and delete topics. Kafka's `kafka-topics`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.cli.admin_options import ClusterOptions
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, action, connection, flag
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown
from barnabas.cli.topic_filters import matching, topic_pattern

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

_ACTIONS: Final = ("--list", "--describe", "--create", "--alter", "--delete")
REPORTS: Final = (
    "--under-replicated-partitions",
    "--unavailable-partitions",
    "--under-min-isr-partitions",
    "--at-min-isr-partitions",
)
_MAX_REPLICATION: Final = 32767


@dataclass(frozen=True, slots=True)
class TopicsRequest:
    """What the options ask for."""

    given: GivenOptions
    topic: str | None
    topic_id: str | None
    partitions: int | None
    replication_factor: int | None
    replica_assignment: tuple[tuple[int, ...], ...]
    configs: dict[str, str]
    partitions_per_answer: int | None
    as_json: bool


@click.command(cls=KafkaTool)
@connection()
@action("--list", "List the topics.")
@action("--describe", "Show topics and their partitions.")
@action("--create", "Create a topic.")
@action("--alter", "Add partitions to topics. Settings are changed with `barnabas configs`.")
@action("--delete", "Delete topics.")
@click.option("--topic", metavar="NAME", help="The topic; for all but --create a regular expression.")
@click.option("--topic-id", metavar="ID", help="The topic to describe, by its id.")
@click.option("--partitions", type=int, metavar="N", help="How many partitions the topic gets; default: the cluster's.")
@click.option("--replication-factor", type=int, metavar="N", help="On how many brokers each partition is kept.")
@click.option(
    "--replica-assignment",
    metavar="ID:ID,ID:ID,…",
    help="The brokers of each partition, the preferred leader first: '1:2,2:3' for two partitions on two brokers each.",
)
@click.option(
    "--config", "configs", multiple=True, metavar="NAME=VALUE", help="A setting of the new topic; repeatable."
)
@click.option(
    "--delete-config", "delete_configs", multiple=True, metavar="NAME", help="Without effect since Kafka 4.0."
)
@flag("--if-exists", "No topic, no error: for --alter, --delete and --describe.")
@flag("--if-not-exists", "A topic that exists already is no error: for --create.")
@flag("--exclude-internal", "Leave out the cluster's own topics: for --list and --describe.")
@flag("--under-replicated-partitions", "Describe only partitions whose replicas are not all in sync.")
@flag("--unavailable-partitions", "Describe only partitions without a leader.")
@flag("--under-min-isr-partitions", "Describe only partitions with fewer replicas in sync than min.insync.replicas.")
@flag("--at-min-isr-partitions", "Describe only partitions with just as many replicas in sync as needed.")
@flag("--topics-with-overrides", "Describe only topics with settings of their own.")
@click.option(
    "--partition-size-limit-per-response", type=int, metavar="N", help="How many partitions the broker tells at a time."
)
@click.pass_context
def topics(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    topic: str | None,
    topic_id: str | None,
    partitions: int | None,
    replication_factor: int | None,
    replica_assignment: str | None,
    configs: tuple[str, ...],
    delete_configs: tuple[str, ...],
    partition_size_limit_per_response: int | None,
) -> None:
    """Create, show, change and delete topics.

    \b
    Examples:
      barnabas topics --bootstrap-server 127.0.0.1:9092 --create --topic clicks --partitions 6
      barnabas topics --bootstrap-server 127.0.0.1:9092 --describe --topic 'click.*'
    """
    given = GivenOptions(ctx)
    name = given.exactly_one(*_ACTIONS)
    _check(given, name)
    if delete_configs:
        say("--delete-config has no effect here; use `barnabas configs --alter --delete-config`.", err=True)
    wanted = TopicsRequest(
        given,
        topic,
        topic_id,
        _at_least_one(partitions, "--partitions"),
        _at_least_one(replication_factor, "--replication-factor", _MAX_REPLICATION),
        parse_assignment(replica_assignment) if replica_assignment else (),
        parse_configs(configs),
        _at_least_one(partition_size_limit_per_response, "--partition-size-limit-per-response"),
        as_json,
    )
    work = {"--list": _list, "--describe": _describe, "--create": _create, "--alter": _alter, "--delete": _delete}[name]
    ClusterOptions(bootstrap_server, command_config).run(lambda admin: work(admin, wanted))


def _check(given: GivenOptions, name: str) -> None:
    """Which options go with which, as Kafka's tool has it."""
    given.need("--bootstrap-server")
    if name in ("--create", "--alter", "--delete"):
        given.need("--topic", why=f"for {name}")
    if name == "--describe" and "--if-exists" in given:
        given.need_one_of("--topic", "--topic-id", why="for --describe --if-exists")
    if name == "--alter":
        given.exclude("--alter", "--config", hint=": settings are changed with `barnabas configs --alter`")
        given.need("--partitions", why="for --alter")
    if name == "--create":
        given.exclude("--replica-assignment", "--partitions", "--replication-factor")
    given.only_with("--config", "--create")
    given.only_with("--partitions", "--create", "--alter")
    given.only_with("--replica-assignment", "--create", "--alter")
    given.only_with("--replication-factor", "--create")
    for report in REPORTS:
        given.only_with(report, "--describe")
        given.exclude(report, "--topics-with-overrides")
    given.only_with("--topics-with-overrides", "--describe")
    given.only_with("--if-exists", "--alter", "--delete", "--describe")
    given.only_with("--if-not-exists", "--create")
    given.only_with("--exclude-internal", "--list", "--describe")


def _at_least_one(number: int | None, option: str, most: int | None = None) -> int | None:
    if number is not None and (number < 1 or (most is not None and number > most)):
        raise click.UsageError(
            f"{option} is {number}, but must be at least 1" + (f" and at most {most}" if most else "")
        )
    return number


def parse_assignment(text: str) -> tuple[tuple[int, ...], ...]:
    """'1:2,2:3' to the brokers of each partition."""
    found: list[tuple[int, ...]] = []
    for number, part in enumerate(text.split(",")):
        try:
            brokers = tuple(int(each) for each in part.split(":"))
        except ValueError:
            raise click.UsageError(f"--replica-assignment: {part!r} is no list of broker ids like '1:2'") from None
        if len(set(brokers)) != len(brokers):
            raise click.UsageError(f"--replica-assignment: partition {number} names a broker twice: {part}")
        if len(brokers) != len(found[0] if found else brokers):
            raise click.UsageError(
                f"--replica-assignment: partition {number} has {len(brokers)} replicas, but partition 0 {len(found[0])}"
            )
        found.append(brokers)
    return tuple(found)


def parse_configs(texts: Sequence[str]) -> dict[str, str]:
    found = {}
    for text in texts:
        name, equals, value = (part.strip() for part in text.partition("="))
        if not (name and equals and value):
            raise click.UsageError(f"--config: {text!r} is not of the form name=value")
        found[name] = value
    return found


async def find_topics(admin: Admin, wanted: TopicsRequest, *, must_exist: bool) -> list[str]:
    """The topics that are meant, sorted."""
    listed = await admin.list_topics(include_internal="--exclude-internal" not in wanted.given)
    names = matching(listed, topic_pattern(wanted.topic) if wanted.topic is not None else None)
    if must_exist and wanted.topic and not names and "--if-exists" not in wanted.given:
        raise BarnabasError(f"no topic matches {wanted.topic!r} (with --if-exists this is no error)")
    return names


async def _list(admin: Admin, wanted: TopicsRequest) -> None:
    names = await find_topics(admin, wanted, must_exist=False)
    if wanted.as_json:
        print_json(names)
    elif is_terminal():
        print_table(("topic",), [(name,) for name in names])
    else:
        say("\n".join(map(shown, names)))


async def _describe(admin: Admin, wanted: TopicsRequest) -> None:
    from barnabas.cli.topics_shown import describe

    await describe(admin, wanted)


async def _create(admin: Admin, wanted: TopicsRequest) -> None:
    from barnabas.base.error_codes import ErrorCode
    from barnabas.client.admin import NewTopic

    assert wanted.topic is not None
    if "." in wanted.topic or "_" in wanted.topic:
        say(
            "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could "
            "collide. To avoid issues it is best to use either, but not both.",
            err=wanted.as_json,
        )
    topic = NewTopic(
        wanted.topic,
        wanted.partitions or -1,
        wanted.replication_factor or -1,
        dict(enumerate(wanted.replica_assignment)) or None,
        wanted.configs,
    )
    try:
        created = (await admin.create_topics([topic]))[wanted.topic]
    except BrokerError as problem:
        if problem.code is not ErrorCode.TOPIC_ALREADY_EXISTS or "--if-not-exists" not in wanted.given:
            raise
        if wanted.as_json:
            print_json({"topic": wanted.topic, "created": False})
        return
    if wanted.as_json:
        values: dict[str, Any] = {"topic": created.name, "created": True, "topicId": str(created.topic_id)}
        print_json(values | {"partitions": created.num_partitions, "replicationFactor": created.replication_factor})
    else:
        say(f"Created topic {wanted.topic}.")


async def _alter(admin: Admin, wanted: TopicsRequest) -> None:
    from barnabas.client.admin import NewPartitions

    assert wanted.partitions is not None
    names = await find_topics(admin, wanted, must_exist=True)
    if not names:
        return
    counts = {}
    if wanted.replica_assignment:
        counts = {name: len(each.partitions) for name, each in (await admin.describe_topics(names)).items()}
    changes = {}
    for name in names:
        added = wanted.replica_assignment[counts[name] :] if wanted.replica_assignment else None
        changes[name] = NewPartitions(wanted.partitions, added)
    await admin.create_partitions(changes)
    if wanted.as_json:
        print_json([{"topic": name, "partitions": wanted.partitions} for name in names])


async def _delete(admin: Admin, wanted: TopicsRequest) -> None:
    names = await find_topics(admin, wanted, must_exist=True)
    if names:
        await admin.delete_topics(names)
    if wanted.as_json:
        print_json([{"topic": name, "deleted": True} for name in names])
