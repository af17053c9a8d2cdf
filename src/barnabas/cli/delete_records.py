"""`barnabas delete-records`: delete records before given offsets. Kafka's `kafka-delete-records`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, connection
from barnabas.cli.main import FAILED
from barnabas.cli.output import is_terminal, print_json, print_table, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

_VERSION: Final = 1


@click.command(cls=KafkaTool)
@connection()
@click.option("--offset-json-file", metavar="FILE", help="The partitions, and the offset before which each is emptied.")
@click.pass_context
def delete_records(
    ctx: click.Context, bootstrap_server: str | None, command_config: str | None, as_json: bool, offset_json_file: str
) -> int:
    """Delete the records of partitions that lie before given offsets; -1 stands for the end.

    \b
    The file: {"partitions": [{"topic": "clicks", "partition": 0, "offset": 100}], "version": 1}

    \b
    Example:
      barnabas delete-records --bootstrap-server 127.0.0.1:9092 --offset-json-file offsets.json
    """
    GivenOptions(ctx).need("--bootstrap-server", "--offset-json-file")
    wanted = parse_offsets(Path(offset_json_file).read_bytes(), offset_json_file)
    if not as_json:
        say("Executing records delete operation")
    outcome = ClusterOptions(bootstrap_server, command_config).run(lambda admin: _delete(admin, wanted))
    _show(outcome, as_json)
    return FAILED if any(isinstance(each, Exception) for each in outcome.values()) else 0


def parse_offsets(data: bytes, path: str) -> dict[TopicPartition, int]:
    """Read the file; `BarnabasError` says what is wrong with it."""
    try:
        document = json.loads(data)
    except ValueError as problem:
        raise BarnabasError(f"{path}: no JSON: {problem}") from None
    version = document.get("version", _VERSION) if isinstance(document, dict) else None
    if version != _VERSION:
        raise BarnabasError(f"{path}: an object with version {_VERSION} is expected, not {version}")
    partitions = document.get("partitions")
    if not isinstance(partitions, list):
        raise BarnabasError(f"{path}: a list named 'partitions' is missing")
    found: dict[TopicPartition, int] = {}
    for number, each in enumerate(partitions):
        match each:
            case {"topic": str(topic), "partition": int(partition), "offset": int(offset)}:
                key = TopicPartition(topic, partition)
            case _:
                what = "a topic (text), a partition and an offset (numbers) are expected"
                raise BarnabasError(f"{path}: partitions[{number}]: {what}, not {json.dumps(each)}")
        if key in found:
            raise BarnabasError(f"{path}: {key} is there more than once")
        found[key] = offset
    return found


async def _delete(admin: Admin, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, int | Exception]:
    """The new first offset of each partition, or what went wrong with it."""
    from barnabas.client.errors import KeyedError

    if not wanted:
        return {}
    outcome: dict[TopicPartition, int | Exception]
    try:
        outcome = dict(await admin.delete_records(wanted))
    except KeyedError as problem:
        outcome = problem.results | problem.errors
    except BarnabasError as problem:
        if len(wanted) != 1:
            raise
        outcome = dict.fromkeys(wanted, problem)
    return {partition: outcome[partition] for partition in wanted}


def _show(outcome: dict[TopicPartition, int | Exception], as_json: bool) -> None:
    if as_json:
        print_json([_values(*each) for each in outcome.items()])
        return
    say("Records delete operation completed:")
    if is_terminal():
        rows = [(*key, reason(each) if isinstance(each, Exception) else each) for key, each in outcome.items()]
        print_table(("topic", "partition", "first offset"), rows)
        return
    for key, each in outcome.items():
        told = f"error: {reason(each)}" if isinstance(each, Exception) else f"low_watermark: {each}"
        say(f"partition: {shown(key)}\t{shown(told)}")


def _values(key: TopicPartition, outcome: int | Exception) -> dict[str, Any]:
    values: dict[str, Any] = {"topic": key.topic, "partition": key.partition}
    return values | ({"error": reason(outcome)} if isinstance(outcome, Exception) else {"lowWatermark": outcome})
