"""`barnabas verifiable-consumer`: read in a group and tell of all that happens. Kafka's `kafka-verifiable-consumer`."""

from __future__ import annotations

import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.admin_options import reason
from barnabas.cli.client_options import ParserTool, deprecated, file_settings, old_name
from barnabas.cli.kafka_options import GivenOptions, version_option
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import compact_json
from barnabas.cli.stopping import Stop, print_line
from barnabas.cli.warnings_shown import show_warnings
from barnabas.client.plugins import RebalanceListener

if TYPE_CHECKING:
    from barnabas import Consumer, ConsumerRecord

_RANGE: Final = "org.apache.kafka.clients.consumer.RangeAssignor"


@click.command(cls=ParserTool)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--topic", required=True, help="The topic to read.")
@click.option("--group-id", required=True, metavar="ID", help="The group to be a member of.")
@click.option("--group-instance-id", metavar="ID", help="A name to come back under.")
@click.option("--group-protocol", default="classic", help="classic or consumer.", show_default=True)
@click.option("--group-remote-assignor", help="The broker's assignor, for --group-protocol consumer.")
@click.option("--max-messages", type=int, default=-1, help="How many; -1: until a signal comes.", show_default=True)
@click.option("--session-timeout", type=int, metavar="MS", help="After how much silence a member counts as dead.")
@click.option("--verbose", is_flag=True, help="A line for each record.")
@click.option("--enable-autocommit", is_flag=True, help="Commit in the background rather than after each poll.")
@click.option(
    "--reset-policy",
    type=click.Choice(["earliest", "latest", "none"]),
    default="earliest",
    help="Where to begin without offsets.",
    show_default=True,
)
@click.option("--assignment-strategy", default=_RANGE, help="How partitions are shared out: a name or a class.")
@click.option("--command-config", metavar="FILE", help="A file of settings of the consumer; options win over them.")
@old_name("--consumer.config", "old_config", "--command-config", metavar="FILE")
@version_option()
@click.pass_context
def verifiable_consumer(ctx: click.Context, /, **options: Any) -> int:
    """Read a topic in a group, and print a line of JSON for all that happens: partitions, records, commits.

    \b
    Example:
      barnabas verifiable-consumer --bootstrap-server 127.0.0.1:9092 --topic numbers --group-id g --max-messages 100
    """
    given = GivenOptions(ctx)
    given.need("--bootstrap-server")
    deprecated(given, "--consumer.config", "--command-config")
    settings = _consumer_settings(options)
    from barnabas import Consumer
    from barnabas.client.errors import WakeupError

    has_failed = False
    show_warnings()
    with Stop() as stop:
        with Consumer(settings) as consumer:
            stop.react(consumer.wakeup)
            reading = _Reading(consumer, stop, options)
            try:
                with suppress(WakeupError):
                    reading.run()
            except BarnabasError as problem:
                tell(str(problem))
                has_failed = True
            if stop.is_asked_for:
                reading.tell("shutdown_requested")
        reading.tell("shutdown_complete")
        return FAILED if has_failed else stop.exit_code


def _consumer_settings(options: dict[str, Any]) -> dict[str, Any]:
    settings = file_settings(options["command_config"] or options["old_config"])
    if options["group_protocol"].lower() == "consumer":
        settings["group.protocol"] = options["group_protocol"]
        if options["group_remote_assignor"] is not None:
            settings["group.remote.assignor"] = options["group_remote_assignor"]
    else:
        settings["partition.assignment.strategy"] = options["assignment_strategy"]
    for option, name in (("session_timeout", "session.timeout.ms"), ("group_instance_id", "group.instance.id")):
        if options[option] is not None:
            settings[name] = options[option]
    return settings | {
        "group.id": options["group_id"],
        "bootstrap.servers": options["bootstrap_server"],
        "enable.auto.commit": options["enable_autocommit"],
        "auto.offset.reset": options["reset_policy"],
        "key.deserializer": "string",
        "value.deserializer": "string",
    }


class _Reading(RebalanceListener):
    """Reads, commits and tells."""

    def __init__(self, consumer: Consumer, stop: Stop, options: dict[str, Any]) -> None:
        self._consumer = consumer
        self._stop = stop
        self._topic: str = options["topic"]
        self._limit: int = options["max_messages"]
        self._is_verbose: bool = options["verbose"]
        self._commits: bool = not options["enable_autocommit"]
        self._count = 0

    def run(self) -> None:
        self.tell("startup_complete")
        self._consumer.subscribe([self._topic], listener=self)
        while (self._limit < 0 or self._count < self._limit) and not self._stop.is_asked_for:
            left = None if self._limit < 0 else self._limit - self._count
            records = self._consumer.poll(max_records=left)
            self._count += len(records)
            offsets = self._tell_records(records)
            if self._commits and offsets:
                self._commit(offsets)

    def _tell_records(self, records: list[ConsumerRecord]) -> dict[TopicPartition, int]:
        """What is to be committed after these."""
        by_partition: dict[TopicPartition, list[ConsumerRecord]] = {}
        for record in records:
            by_partition.setdefault(TopicPartition(record.topic, record.partition), []).append(record)
        summaries = []
        for partition, own in by_partition.items():
            bounds = {"count": len(own), "minOffset": own[0].offset, "maxOffset": own[-1].offset}
            summaries.append(_named(partition) | bounds)
            for record in own if self._is_verbose else ():
                self.tell("record_data", key=record.key, value=record.value, **_named(partition), offset=record.offset)
        self.tell("records_consumed", count=len(records), partitions=summaries)
        return {partition: own[-1].offset + 1 for partition, own in by_partition.items()}

    def _commit(self, offsets: dict[TopicPartition, int]) -> None:
        from barnabas.client.errors import WakeupError

        told = [_named(partition) | {"offset": offset} for partition, offset in offsets.items()]
        try:
            self._consumer.commit(offsets)
        except WakeupError:
            # It ends, and this is the last that is to be done.
            self._commit(offsets)
            raise
        except BarnabasError as problem:
            self.tell("offsets_committed", offsets=told, error=reason(problem), success=False)
        else:
            self.tell("offsets_committed", offsets=told, success=True)

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.tell("partitions_assigned", partitions=[_named(each) for each in partitions])

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.tell("partitions_revoked", partitions=[_named(each) for each in partitions])

    def tell(self, name: str, **more: Any) -> None:
        """A line of JSON that somebody may be waiting for."""
        print_line(compact_json({"timestamp": time.time_ns() // 1_000_000, "name": name, **more}), self._stop)


def _named(partition: TopicPartition) -> dict[str, Any]:
    return {"topic": partition.topic, "partition": partition.partition}
