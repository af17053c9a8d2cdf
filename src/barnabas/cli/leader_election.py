"""`barnabas leader-election`: let partitions elect leaders. Kafka's `kafka-leader-election`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, connection, flag
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import print_json, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin, ElectionType

_FROM = ("--topic", "--all-topic-partitions", "--path-to-json-file")
#: By partition: whether another leads now, or why nobody could be elected.
Elections = dict[TopicPartition, bool | Exception]


@click.command(cls=KafkaTool)
@connection()
@click.option(
    "--election-type",
    type=click.Choice(("preferred", "unclean"), case_sensitive=False),
    help="preferred: the first replica shall lead where another does. unclean: any replica shall lead where nobody "
    "does and none that is in sync is there; what it lacks is lost.",
)
@click.option("--topic", metavar="NAME", help="The topic; with --partition.")
@click.option("--partition", type=int, metavar="N", help="The partition of the topic.")
@click.option("--path-to-json-file", "path", metavar="FILE", help="A file with the partitions.")
@flag("--all-topic-partitions", "All partitions that such an election is for.")
@click.option("--admin.config", "admin_config", metavar="FILE", hidden=True)
@click.pass_context
def leader_election(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    as_json: bool,
    election_type: str | None,
    topic: str | None,
    partition: int | None,
    path: str | None,
    admin_config: str | None,
) -> int:
    """Let partitions elect leaders: the preferred ones, or any where all that were in sync are lost.

    \b
    The file: {"partitions": [{"topic": "clicks", "partition": 0}, {"topic": "clicks", "partition": 1}]}

    \b
    Examples:
      barnabas leader-election --bootstrap-server 127.0.0.1:9092 --election-type preferred --all-topic-partitions
      barnabas leader-election --bootstrap-server 127.0.0.1:9092 --election-type unclean --topic clicks --partition 0

    `barnabas why TOPIC` tells beforehand why a partition has no leader, and what an unclean election would cost.
    """
    given = GivenOptions(ctx)
    given.need("--bootstrap-server", "--election-type")
    given.exactly_one(*_FROM)
    if topic is not None:
        given.need("--partition", why="for --topic")
    given.only_with("--partition", "--topic")
    given.exclude("--admin.config", "--command-config", hint=": it is the older name for it")
    partitions: list[TopicPartition] | None = None
    if topic is not None and partition is not None:
        partitions = [TopicPartition(topic, partition)]
    elif path is not None:
        partitions = parse_partitions(Path(path).read_bytes(), path)
    from barnabas.client.admin import ElectionType

    kind = ElectionType[(election_type or "").upper()]
    outcome: Elections = {}
    if partitions is None or partitions:
        cluster = ClusterOptions(bootstrap_server, command_config or admin_config)
        outcome = cluster.run(lambda admin: _elect(admin, partitions, kind))
    _show(outcome, kind, as_json)
    failed = sum(isinstance(each, Exception) for each in outcome.values())
    if failed:
        tell(f"{failed} replica(s) could not be elected")
    return FAILED if failed else 0


def parse_partitions(data: bytes, path: str) -> list[TopicPartition]:
    """Read the file; `BarnabasError` says what is wrong with it."""
    if not data.strip():
        raise BarnabasError(f"{path}: the file is empty")
    try:
        document = json.loads(data)
    except ValueError as problem:
        raise BarnabasError(f"{path}: no JSON: {problem}") from None
    partitions = document.get("partitions") if isinstance(document, dict) else None
    if not isinstance(partitions, list):
        raise BarnabasError(f"{path}: a list named 'partitions' is missing")
    found: dict[TopicPartition, None] = {}
    for number, each in enumerate(partitions):
        match each:
            case {"topic": str(topic), "partition": int(partition)}:
                key = TopicPartition(topic, partition)
            case _:
                what = "a topic (text) and a partition (a number) are expected"
                raise BarnabasError(f"{path}: partitions[{number}]: {what}, not {json.dumps(each)}")
        if key in found:
            raise BarnabasError(f"{path}: {key} is there more than once")
        found[key] = None
    return list(found)


async def _elect(admin: Admin, partitions: list[TopicPartition] | None, kind: ElectionType) -> Elections:
    from barnabas.client.errors import KeyedError

    outcome: Elections
    try:
        outcome = dict(await admin.elect_leaders(partitions, election=kind))
    except KeyedError as problem:
        outcome = problem.results | problem.errors
    except BarnabasError as problem:
        if partitions is None or len(partitions) != 1:
            raise
        outcome = dict.fromkeys(partitions, problem)
    return outcome


def _show(outcome: Elections, kind: ElectionType, as_json: bool) -> None:
    if as_json:
        print_json([_values(*each) for each in outcome.items()])
        return
    elected = [str(key) for key, each in outcome.items() if each is True]
    not_needed = [str(key) for key, each in outcome.items() if each is False]
    if elected:
        names = shown(", ".join(elected))
        say(f"Successfully completed leader election ({kind.name}) for partitions {names}")
    if not_needed:
        say(f"Valid replica already elected for partitions {shown(', '.join(not_needed))}")
    for key, each in outcome.items():
        if isinstance(each, Exception):
            say(f"Error completing leader election ({kind.name}) for partition: {shown(key)}: {shown(reason(each))}")


def _values(key: TopicPartition, outcome: bool | Exception) -> dict[str, Any]:
    values: dict[str, Any] = {"topic": key.topic, "partition": key.partition}
    return values | ({"error": reason(outcome)} if isinstance(outcome, Exception) else {"elected": outcome})
