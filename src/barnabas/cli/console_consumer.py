"""`barnabas console-consumer`: show the records of topics. Kafka's `kafka-console-consumer`."""

from __future__ import annotations

import random
import sys
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, BinaryIO, Final, cast

import click

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.cli.client_options import deprecated, file_settings, key_values, merged, old_name
from barnabas.cli.formatters import DefaultFormatter, Formatter, VisibleOutput, formatter
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, version_option
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import discard_output, is_terminal, is_watched, say
from barnabas.cli.stopping import Stop
from barnabas.cli.topic_filters import topic_pattern
from barnabas.cli.warnings_shown import show_warnings

if TYPE_CHECKING:
    from barnabas import Consumer, ConsumerRecord

_FORMATTER: Final = "org.apache.kafka.tools.consumer.DefaultMessageFormatter"
_CLIENT_ID: Final = "console-consumer"


@click.command(cls=KafkaTool)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--topic", help="The topic to show.")
@click.option("--include", metavar="REGEX", help="Instead: all topics whose whole name matches.")
@click.option("--partition", type=click.IntRange(min=0), help="Only this partition, without a group.")
@click.option("--offset", default="latest", metavar="WHERE", help="With --partition: earliest, latest or a number.")
@click.option("--from-beginning", is_flag=True, help="Begin with the first record, if the group has no offsets.")
@click.option("--max-messages", type=int, default=-1, help="End after so many.")
@click.option("--timeout-ms", type=int, help="End when nothing has come for so long.")
@click.option("--group", metavar="ID", help="Read as a member of this group. Default: a group of its own.")
@click.option("--isolation-level", default="read_uncommitted", help="Or read_committed.", show_default=True)
@click.option("--formatter", "formatter_name", default=_FORMATTER, metavar="CLASS", help="How records are shown.")
@click.option("--formatter-property", multiple=True, metavar="NAME=VALUE", help="See below; may be repeated.")
@old_name("--property", "old_formatter_property", "--formatter-property", multiple=True, metavar="NAME=VALUE")
@click.option("--formatter-config", metavar="FILE", help="A file of such settings.")
@click.option("--key-deserializer", metavar="CLASS", help="What keys are: string, long … or a class of Kafka's.")
@click.option("--value-deserializer", metavar="CLASS", help="What values are.")
@click.option("--skip-message-on-error", is_flag=True, help="Go on after a record that cannot be shown.")
@click.option("--enable-systest-events", is_flag=True, help="Print shutdown_complete at the end.")
@click.option("--command-property", multiple=True, metavar="NAME=VALUE", help="A setting of the consumer.")
@old_name("--consumer-property", "old_property", "--command-property", multiple=True, metavar="NAME=VALUE")
@click.option("--command-config", metavar="FILE", help="A file of settings of the consumer.")
@old_name("--consumer.config", "old_config", "--command-config", metavar="FILE")
@click.option("--json", "as_json", is_flag=True, help="Each record as a line of JSON.")
@click.option("--raw", is_flag=True, help="Send the bytes of records to a terminal as they are.")
@version_option()
@click.pass_context
def console_consumer(ctx: click.Context, /, **options: Any) -> int:
    """Show the records of topics, as they come, until Ctrl-C.

    \b
    --formatter: default, json, logging, noop; for the topics of coordinators offsets, group-metadata, transactions,
    share-groups, share-group-state; Kafka's names for these; or the dotted path of a Python class.

    \b
    --formatter-property, with what holds unless it is set:
      print.value=true, print.key=false, and print.timestamp, .partition, .offset, .epoch, .headers
      key.separator            between fields: a tab
      line.separator           after each record: a new line
      headers.separator=,
      null.literal=null        what is shown for null
      key.deserializer, value.deserializer, headers.deserializer

    A terminal obeys control characters, whoever wrote them. So there, those of records are shown as \\x1b; with --raw
    they are sent as they are. Into files and pipes the bytes always go unchanged, as Kafka's tool writes them.

    \b
    Examples:
      barnabas console-consumer --bootstrap-server 127.0.0.1:9092 --topic clicks --from-beginning
      barnabas console-consumer --bootstrap-server 127.0.0.1:9092 --topic clicks --partition 0 --offset 42 \\
          --max-messages 1 --formatter-property print.key=true --formatter-property print.timestamp=true
    """
    given = GivenOptions(ctx)
    where = _checked(given, options)
    settings = _consumer_settings(given, options)
    shown = _formatter(given, options)
    from barnabas import Consumer

    show_warnings()
    with Stop() as stop:
        # Closed in any case, but only after what was not shown has been given back.
        with Consumer(settings) as consumer:
            stop.react(consumer.wakeup)
            _begin(consumer, options, where)
            output = sys.stdout.buffer
            if _is_careful(options) and not isinstance(shown, DefaultFormatter):
                output = cast(BinaryIO, VisibleOutput(output))
            showing = _Showing(consumer, shown, stop, output, skips_errors=options["skip_message_on_error"])
            try:
                showing.run(options["max_messages"], options["timeout_ms"])
            except BarnabasError as problem:
                tell(str(problem))
                showing.has_failed = True
        if hasattr(shown, "close"):
            shown.close()
        say(f"Processed a total of {showing.count} messages", err=True)
        if options["enable_systest_events"]:
            say("shutdown_complete")
        return FAILED if showing.has_failed else stop.exit_code


def _checked(given: GivenOptions, options: dict[str, Any]) -> str | int:
    """Where to begin in a partition, after a look at what does not go together."""
    deprecated(given, "--consumer-property", "--command-property")
    deprecated(given, "--consumer.config", "--command-config")
    deprecated(given, "--property", "--formatter-property")
    given.exactly_one("--topic", "--include")
    if "--partition" in given:
        given.need("--topic", why="for --partition")
        given.exclude("--from-beginning", "--offset")
    elif "--offset" in given:
        given.need("--partition", why="for --offset")
    given.need("--bootstrap-server")
    given.exclude("--json", "--formatter")
    if "--offset" not in given:
        return "earliest" if options["from_beginning"] else "latest"
    text: str = options["offset"]
    if text.lower() in ("earliest", "latest"):
        return text.lower()
    if not text.isascii() or not text.isdigit():
        raise click.UsageError(f"--offset: {text!r} is neither earliest nor latest nor a number from 0 on")
    return int(text)


def _consumer_settings(given: GivenOptions, options: dict[str, Any]) -> dict[str, Any]:
    from_file = file_settings(options["command_config"] or options["old_config"])
    typed = key_values(options["command_property"] or options["old_property"])
    settings: dict[str, Any] = from_file | typed
    named = [options["group"], typed.get("group.id"), from_file.get("group.id")]
    groups = list(dict.fromkeys(group for group in named if group is not None))
    if len(groups) > 1:
        names = " and ".join(map(repr, groups))
        raise click.UsageError(f"there can be one group only, and --group and settings name {names}")
    if groups and "--partition" in given:
        raise click.UsageError("--partition is read without a group, so --group and group.id do not go with it")
    reset = settings.get("auto.offset.reset")
    if options["from_beginning"] and reset not in (None, "earliest"):
        raise click.UsageError(f"--from-beginning does not go with auto.offset.reset={reset}: leave out one of them")
    settings.setdefault("auto.offset.reset", "earliest" if options["from_beginning"] else "latest")
    settings["bootstrap.servers"] = options["bootstrap_server"]
    settings["key.deserializer"] = settings["value.deserializer"] = "bytes"
    settings.setdefault("client.id", _CLIENT_ID)
    merged(settings, given, {"--isolation-level": ("isolation.level", options["isolation_level"])})
    if groups:
        settings["group.id"] = groups[0]
    else:
        settings["group.id"] = f"{_CLIENT_ID}-{random.randrange(100_000)}"
        # Nobody will come back to this group, so its offsets would only lie about.
        settings.setdefault("enable.auto.commit", "false")
    return settings


def _formatter(given: GivenOptions, options: dict[str, Any]) -> Formatter:
    settings = file_settings(options["formatter_config"])
    for option, name in (("key_deserializer", "key.deserializer"), ("value_deserializer", "value.deserializer")):
        if options[option]:
            settings[name] = options[option]
    settings |= key_values(options["formatter_property"] or options["old_formatter_property"])
    shown = formatter("json" if options["as_json"] else options["formatter_name"], settings)
    if isinstance(shown, DefaultFormatter):
        shown.is_coloured = is_terminal()
        shown.is_careful = _is_careful(options)
    return shown


def _is_careful(options: dict[str, Any]) -> bool:
    return is_watched() and not options["raw"]


def _begin(consumer: Consumer, options: dict[str, Any], where: str | int) -> None:
    if options["partition"] is None:
        if options["topic"] is not None:
            consumer.subscribe([options["topic"]])
        else:
            consumer.subscribe(pattern=topic_pattern(options["include"], "--include"))
        return
    partition = TopicPartition(options["topic"], options["partition"])
    consumer.assign([partition])
    if isinstance(where, int):
        consumer.seek(partition, where)
    elif where == "earliest":
        consumer.seek_to_beginning([partition])
    else:
        consumer.seek_to_end([partition])


class _Showing:
    """Shows records until there were enough of them, none come any more, or somebody wants it to end."""

    def __init__(
        self, consumer: Consumer, shown: Formatter, stop: Stop, output: BinaryIO, *, skips_errors: bool
    ) -> None:
        self.count = 0
        self.has_failed = False
        self._consumer = consumer
        self._formatter = shown
        self._stop = stop
        self._skips_errors = skips_errors
        self._output = output

    def run(self, limit: int, timeout_ms: int | None) -> None:
        from barnabas.client.errors import WakeupError

        timeout = None if timeout_ms is None or timeout_ms < 0 else timeout_ms / 1000
        with suppress(WakeupError):
            while (limit < 0 or self.count < limit) and not self._stop.is_asked_for:
                records = self._poll(timeout, limit)
                if not records or not self._show_all(records):
                    return

    def _poll(self, timeout: float | None, limit: int) -> list[ConsumerRecord]:
        """Some records; none when the time is over."""
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            left = None if deadline is None else max(0.0, deadline - time.monotonic())
            records = self._consumer.poll(left, max_records=limit - self.count if limit >= 0 else None)
            if records or left == 0.0:
                return records

    def _show_all(self, records: list[ConsumerRecord]) -> bool:
        """Whether the output goes on."""
        done = 0
        try:
            for record in records:
                self.count += 1
                self._show(record)
                done += 1
            self._output.flush()
        except BrokenPipeError:
            # Nobody knows how much of this was still read, so all of it is given back.
            self._give_back(records)
            say("nobody reads standard output any more: the consumer ends", err=True)
            discard_output()
            return False
        except BaseException:
            self._output.flush()
            self._give_back(records[done:])
            raise
        return True

    def _show(self, record: ConsumerRecord) -> None:
        try:
            self._formatter.write_to(record, self._output)
        except OSError:
            raise
        except Exception as problem:
            where = f"{record.topic}-{record.partition} at offset {record.offset}"
            text = f"the record of {where} cannot be shown: {type(problem).__name__}: {problem}"
            if not self._skips_errors:
                raise BarnabasError(f"{text}; --skip-message-on-error goes on after it") from problem
            tell(text)

    def _give_back(self, records: list[ConsumerRecord]) -> None:
        """Records that were not shown must not be committed."""
        first: dict[TopicPartition, int] = {}
        for record in records:
            first.setdefault(TopicPartition(record.topic, record.partition), record.offset)
        for partition, offset in first.items():
            self._consumer.seek(partition, offset)
