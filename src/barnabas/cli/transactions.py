"""`barnabas transactions`: look at transactions and producers, and end those that hang. Kafka's `kafka-transactions`,
with its output."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import ClusterOptions, reason
from barnabas.cli.argument_groups import SERVER, Action, Actions
from barnabas.cli.hanging_transactions import OpenTransaction, find_hanging_transactions
from barnabas.cli.output import print_json, say, shown

if TYPE_CHECKING:
    from barnabas.client.admin import Admin

#: What `transaction.max.timeout.ms` is by default, as Kafka's tool has it.
_LONGEST_MIN: Final = 15
_NONE: Final = "None"
_MIN_MS: Final = 60_000

_JSON: Final = click.option("--json", "as_json", is_flag=True, help="JSON for programs.")
_TOPIC: Final = click.option("--topic", required=True, help="The topic.")
_PARTITION: Final = click.option("--partition", type=int, required=True, help="The number of the partition.")


@click.group(cls=Actions, invoke_without_command=True, no_args_is_help=True)
@click.option(SERVER, metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--command-config", metavar="FILE", help="Settings of the client, as in client.properties.")
@click.option(
    "--from-checkpoint", metavar="DIR", help="Show what a Spark query that writes exactly once has left open."
)
@click.option("--finish", is_flag=True, help="With it: commit what is decided, abort the rest.")
@click.option("--control-topic", metavar="TOPIC", help="With it: where the query keeps its decisions.")
@click.pass_context
def transactions(
    ctx: click.Context,
    bootstrap_server: str | None,
    command_config: str | None,
    from_checkpoint: str | None,
    finish: bool,
    control_topic: str | None,
) -> int | None:
    """Look at transactions and at the producers that partitions know; end those that hang.

    \b
    Examples:
      barnabas transactions --bootstrap-server 127.0.0.1:9092 list
      barnabas transactions --bootstrap-server 127.0.0.1:9092 find-hanging --broker-id 1
      barnabas transactions --bootstrap-server 127.0.0.1:9092 abort --topic clicks --partition 0 --start-offset 42
      barnabas transactions --bootstrap-server 127.0.0.1:9092 --from-checkpoint /data/checkpoint --finish
    """
    ctx.obj = cluster = ClusterOptions(bootstrap_server, command_config)
    if from_checkpoint is None:
        if finish or control_topic is not None:
            ctx.fail("--finish and --control-topic go with --from-checkpoint")
        if ctx.invoked_subcommand is None:
            ctx.fail("Missing command.")
        return None
    if ctx.invoked_subcommand is not None:
        ctx.fail(f"--from-checkpoint goes without {ctx.invoked_subcommand}")
    from barnabas.cli.checkpoint_transactions import show_checkpoint

    return show_checkpoint(cluster.settings(), from_checkpoint, control_topic, is_finishing=finish)


@transactions.command("list", cls=Action)
@click.option("--duration-filter", type=int, metavar="MS", help="Only those that are open for longer.")
@click.option("--transactional-id-pattern", metavar="REGEX", help="Only ids that match.")
@_JSON
@click.pass_context
def list_(ctx: click.Context, duration_filter: int | None, transactional_id_pattern: str | None, as_json: bool) -> int:
    """All transactional ids, with their producers and states."""
    # Below 0 Kafka's tool does not filter, nor with an empty pattern.
    longer_ms = None if duration_filter is None or duration_filter < 0 else duration_filter
    found = ctx.obj.run(
        lambda admin: admin.list_transactions(min_duration_ms=longer_ms, pattern=transactional_id_pattern or None)
    )
    _show(
        ("TransactionalId", "Coordinator", "ProducerId", "TransactionState"),
        [(each.transactional_id, each.coordinator_id, each.producer_id, str(each.state)) for each in found],
        as_json,
    )
    return 0


@transactions.command(cls=Action)
@click.option("--transactional-id", required=True, metavar="ID", help="The transactional id.")
@_JSON
@click.pass_context
def describe(ctx: click.Context, transactional_id: str, as_json: bool) -> int:
    """The state of one transactional id."""
    try:
        found = ctx.obj.run(lambda admin: admin.describe_transactions([transactional_id]))[transactional_id]
    except BarnabasError as problem:
        raise _failed(f"describe transactional id {transactional_id}", problem) from problem
    duration_ms = None if found.started_ms is None else max(0, _now_ms() - found.started_ms)
    row = (
        found.coordinator_id,
        found.transactional_id,
        found.producer_id,
        found.producer_epoch,
        str(found.state),
        found.timeout_ms,
        found.started_ms,
        duration_ms,
        [_name(each) for each in found.partitions] if as_json else ",".join(map(_name, found.partitions)),
    )
    _show(_DESCRIBED, [row], as_json)
    return 0


_DESCRIBED: Final = (
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
)


@transactions.command("describe-producers", cls=Action)
@click.option("--broker-id", type=int, help="The broker to ask; the leader, if it is not given.")
@_TOPIC
@_PARTITION
@_JSON
@click.pass_context
def describe_producers(ctx: click.Context, broker_id: int | None, topic: str, partition: int, as_json: bool) -> int:
    """The producers that a partition knows."""
    place = TopicPartition(topic, partition)
    try:
        found = ctx.obj.run(lambda admin: admin.describe_producers([place], broker_id=broker_id))[place]
    except BarnabasError as problem:
        where = "the leader" if broker_id is None else f"broker {broker_id}"
        raise _failed(f"describe the producers of {_name(place)} on {where}", problem) from problem
    rows = [
        (
            each.producer_id,
            each.producer_epoch,
            -1 if each.coordinator_epoch is None else each.coordinator_epoch,
            each.last_sequence,
            each.last_timestamp_ms,
            each.transaction_start_offset,
        )
        for each in found
    ]
    _show(_PRODUCERS, rows, as_json)
    return 0


_PRODUCERS: Final = (
    "ProducerId",
    "ProducerEpoch",
    "LatestCoordinatorEpoch",
    "LastSequence",
    "LastTimestamp",
    "CurrentTransactionStartOffset",
)


# Ending transactions


@transactions.command(cls=Action)
@_TOPIC
@_PARTITION
@click.option("--start-offset", type=int, metavar="OFFSET", help="Where the transaction begins.")
@click.option("--producer-id", type=int, help="Instead, for brokers older than 3.0: its producer,")
@click.option("--producer-epoch", type=int, help="the epoch of that,")
@click.option("--coordinator-epoch", type=int, help="and the epoch of the coordinator.")
@_JSON
@click.pass_context
def abort(ctx: click.Context, /, as_json: bool, **given: Any) -> int:
    """Write the end of a transaction that hangs into one partition: its coordinator knows nothing of it any more.

    What was written in it is never seen by read_committed. One that the coordinator knows, forceTerminateTransaction
    ends.
    """
    place = TopicPartition(given["topic"], given["partition"])
    numbers = {name: given[name] for name in ("producer_id", "producer_epoch", "coordinator_epoch")}
    if given["start_offset"] is None and numbers["producer_id"] is None:
        raise click.UsageError(
            "say which transaction: --start-offset, or --producer-id, --producer-epoch and --coordinator-epoch for "
            "brokers older than 3.0"
        )
    if given["start_offset"] is None:
        for name in ("producer_epoch", "coordinator_epoch"):
            if numbers[name] is None:
                raise click.UsageError(f"--{name.replace('_', '-')} is missing beside --producer-id")

    async def end(admin: Admin) -> dict[str, int]:
        which = numbers
        if given["start_offset"] is not None:
            which = await _open_transaction(admin, place, given["start_offset"])
        # The broker takes any number for a producer that it does not know, but none below 0.
        which["coordinator_epoch"] = max(0, which["coordinator_epoch"])
        try:
            await admin.abort_transaction(place, **which)
        except BrokerError as problem:
            raise _failed(f"abort the transaction of producer {which['producer_id']} on {_name(place)}", problem) from (
                problem
            )
        return which

    ended = ctx.obj.run(end)
    if as_json:
        print_json({"topic": place.topic, "partition": place.partition} | _camel(ended))
    return 0


async def _open_transaction(admin: Admin, place: TopicPartition, start_offset: int) -> dict[str, int]:
    for each in (await admin.describe_producers([place]))[place]:
        if each.transaction_start_offset == start_offset:
            return {
                "producer_id": each.producer_id,
                "producer_epoch": each.producer_epoch,
                "coordinator_epoch": each.coordinator_epoch or 0,
            }
    raise BarnabasError(f"no open transaction of {_name(place)} begins at offset {start_offset}")


@transactions.command("forceTerminateTransaction", cls=Action)
@click.option("--transactionalId", "transactional_id", required=True, metavar="ID", help="The transactional id.")
@_JSON
@click.pass_context
def force_terminate_transaction(ctx: click.Context, transactional_id: str, as_json: bool) -> int:
    """Abort the open transaction of an id, also a prepared one, and lock out the producer that has it."""
    try:
        ended = ctx.obj.run(lambda admin: admin.fence_producers([transactional_id]))[transactional_id]
    except BrokerError as problem:
        raise _failed(f"terminate the transaction of {transactional_id}", problem) from problem
    if as_json:
        print_json({"transactionalId": transactional_id} | _camel(asdict(ended)))
    return 0


# Those that hang


@transactions.command("find-hanging", cls=Action)
@click.option("--broker-id", type=int, help="Look at the partitions of this broker.")
@click.option(
    "--max-transaction-timeout",
    type=int,
    default=_LONGEST_MIN,
    metavar="MINUTES",
    show_default=True,
    help="Look at transactions in which nothing was written for longer.",
)
@click.option("--topic", help="Look at this topic.")
@click.option("--partition", type=int, help="And at this partition alone.")
@_JSON
@click.pass_context
def find_hanging(
    ctx: click.Context,
    broker_id: int | None,
    max_transaction_timeout: int,
    topic: str | None,
    partition: int | None,
    as_json: bool,
) -> int:
    """Find open transactions of which no coordinator knows: nobody will ever end them."""
    if topic is None and broker_id is None:
        raise click.UsageError("give --topic or --broker-id, which say where to look")
    if partition is not None and topic is None:
        raise click.UsageError("--partition goes only with --topic")
    longest_ms = max_transaction_timeout * _MIN_MS
    found = ctx.obj.run(
        lambda admin: find_hanging_transactions(admin, broker_id, topic, partition, longest_ms, _now_ms())
    )
    _show(_HANGING, [_hanging_row(each) for each in found], as_json)
    return 0


_HANGING: Final = (
    "Topic",
    "Partition",
    "ProducerId",
    "ProducerEpoch",
    "CoordinatorEpoch",
    "StartOffset",
    "LastTimestamp",
    "Duration(min)",
)


def _hanging_row(each: OpenTransaction) -> tuple[object, ...]:
    state = each.producer
    return (
        *each.place,
        state.producer_id,
        state.producer_epoch,
        -1 if state.coordinator_epoch is None else state.coordinator_epoch,
        state.transaction_start_offset,
        state.last_timestamp_ms,
        (_now_ms() - state.last_timestamp_ms) // _MIN_MS,
    )


# Showing


def _show(headings: Sequence[str], rows: Sequence[Sequence[object]], as_json: bool) -> None:
    """A tab behind every column, as Kafka's tools write tables."""
    if as_json:
        print_json([dict(zip(headings, row, strict=True)) for row in rows])
        return
    texts = [tuple(headings), *(tuple(_NONE if cell is None else shown(cell) for cell in row) for row in rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    for text in texts:
        say("".join(f"{cell:<{width}}\t" for cell, width in zip(text, widths, strict=True)))


def _failed(what: str, problem: BarnabasError) -> BarnabasError:
    """Said in words, and with the name that Kafka has for it."""
    if not isinstance(problem, BrokerError):
        return problem
    if problem.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return BarnabasError(f"cannot {shown(what)}: there is no such id")
    return BarnabasError(f"cannot {shown(what)}: {problem.code.name}: {shown(reason(problem))}")


def _camel(values: dict[str, Any]) -> dict[str, Any]:
    return {
        name.partition("_")[0] + name.partition("_")[2].title().replace("_", ""): each for name, each in values.items()
    }


def _name(place: TopicPartition) -> str:
    return f"{place.topic}-{place.partition}"


def _now_ms() -> int:
    return int(time.time() * 1000)
