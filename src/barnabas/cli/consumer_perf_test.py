"""`barnabas consumer-perf-test`: measure how fast records are read. Kafka's `kafka-consumer-perf-test`."""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.cli.client_options import deprecated, file_settings, key_values, old_name
from barnabas.cli.java_dates import java_date_format
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, version_option
from barnabas.cli.output import print_json, say
from barnabas.cli.perf_shown import MIB, live_progress, print_metrics
from barnabas.cli.stopping import Stop
from barnabas.cli.topic_filters import topic_pattern
from barnabas.cli.warnings_shown import show_warnings
from barnabas.client.plugins import RebalanceListener

if TYPE_CHECKING:
    from barnabas import Consumer, ConsumerRecord, TopicPartition

_CLIENT_ID: Final = "perf-consumer-client"
_DATE_FORMAT: Final = "yyyy-MM-dd HH:mm:ss:SSS"
_POLL_S: Final = 0.1
_HEADER: Final = (
    "data.consumed.in.MB, MB.sec, data.consumed.in.nMsg, nMsg.sec, "
    "rebalance.time.ms, fetch.time.ms, fetch.MB.sec, fetch.nMsg.sec"
)


@click.command(cls=KafkaTool)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--topic", help="The topic to read.")
@click.option("--include", metavar="REGEX", help="Instead: all topics whose whole name matches.")
@click.option("--num-records", type=click.IntRange(min=1), help="How many.")
@old_name("--messages", "old_num_records", "--num-records", type=click.IntRange(min=1))
@click.option("--group", metavar="ID", help="Read as a member of this group. Default: a group of its own.")
@click.option("--fetch-size", type=int, default=MIB, help="Bytes of one partition per fetch.", show_default=True)
@click.option("--from-latest", is_flag=True, help="Only what is written from now on, if the group has no offsets.")
@click.option("--socket-buffer-size", type=int, default=2 * MIB, help="receive.buffer.bytes.", show_default=True)
@click.option("--command-property", multiple=True, metavar="NAME=VALUE", help="A setting of the consumer.")
@click.option("--command-config", metavar="FILE", help="A file of settings of the consumer.")
@old_name("--consumer.config", "old_config", "--command-config", metavar="FILE")
@click.option("--print-metrics", "with_metrics", is_flag=True, help="Show the consumer's metrics at the end.")
@click.option("--show-detailed-stats", is_flag=True, help="A line for each interval, instead of one at the end.")
@click.option(
    "--timeout",
    type=int,
    default=10_000,
    is_flag=False,
    flag_value=10_000,
    metavar="[MS]",
    help="End when nothing has come for so long.",
    show_default=True,
)
@click.option("--reporting-interval", type=int, default=5000, metavar="MS", help="Between lines.", show_default=True)
@click.option("--date-format", default=_DATE_FORMAT, help="As Java's SimpleDateFormat.", show_default=True)
@click.option("--hide-header", is_flag=True, help="Leave out the first line, which names the columns.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end, for programs.")
@version_option()
@click.pass_context
def consumer_perf_test(ctx: click.Context, /, **options: Any) -> int:
    """Read records and tell how fast that went.

    \b
    Example:
      barnabas consumer-perf-test --bootstrap-server 127.0.0.1:9092 --topic clicks --num-records 1000000
    """
    given = GivenOptions(ctx)
    given.need("--bootstrap-server")
    given.exactly_one("--topic", "--include")
    given.exactly_one("--num-records", "--messages")
    deprecated(given, "--messages", "--num-records")
    deprecated(given, "--consumer.config", "--command-config")
    if options["reporting_interval"] <= 0:
        raise click.UsageError("--reporting-interval must be greater than 0")
    show_time = java_date_format(options["date_format"], "--date-format")
    total: int = options["num_records"] or options["old_num_records"]
    settings = _consumer_settings(options)
    as_json: bool = options["as_json"]
    is_detailed: bool = options["show_detailed_stats"] and not as_json
    from barnabas import Consumer

    if not options["hide_header"] and not as_json:
        say(f"{'time, threadId' if is_detailed else 'start.time, end.time'}, {_HEADER}")
    show_warnings()
    with Stop() as stop:
        with Consumer(settings) as consumer:
            stop.react(consumer.wakeup)
            run = _Run(consumer, show_time, options["reporting_interval"] / 1000 if is_detailed else None)
            if options["topic"] is not None:
                consumer.subscribe([options["topic"]], listener=run.joining)
            else:
                consumer.subscribe(pattern=topic_pattern(options["include"], "--include"), listener=run.joining)
            with live_progress("reading", total, lambda: run.count):
                is_complete = run.read(total, options["timeout"] / 1000)
            metrics = consumer.metrics() if options["with_metrics"] else None
            run.finish()
        if not is_complete and not stop.is_asked_for:
            say(
                "WARNING: Exiting before consuming the expected number of records: timeout "
                f"({options['timeout']} ms) exceeded. You can use the --timeout option to increase the timeout.",
                err=as_json,
            )
        if as_json:
            print_json(run.totals() | ({"metrics": metrics} if metrics is not None else {}))
            return stop.exit_code
        if not is_detailed:
            run.show_total()
        if metrics is not None:
            print_metrics(metrics, settings["client.id"])
        return stop.exit_code


def _consumer_settings(options: dict[str, Any]) -> dict[str, Any]:
    settings = file_settings(options["command_config"] or options["old_config"])
    settings |= key_values(options["command_property"])
    settings |= {
        "bootstrap.servers": options["bootstrap_server"],
        "group.id": options["group"] or f"perf-consumer-{random.randrange(100_000)}",
        "receive.buffer.bytes": options["socket_buffer_size"],
        "max.partition.fetch.bytes": options["fetch_size"],
        "auto.offset.reset": "latest" if options["from_latest"] else "earliest",
        "key.deserializer": "bytes",
        "value.deserializer": "bytes",
        "check.crcs": "false",
    }
    settings.setdefault("client.id", _CLIENT_ID)
    return settings


class _Joining(RebalanceListener):
    """How long the consumer waited for its group, in all and since the last line."""

    def __init__(self) -> None:
        self.total_s = self.window_s = 0.0
        self._start = time.monotonic()

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self._start = time.monotonic()

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        elapsed = time.monotonic() - self._start
        self.total_s += elapsed
        self.window_s += elapsed


class _Run:
    """Reads, counts and tells."""

    def __init__(self, consumer: Consumer, show_time: Callable[[float], str], interval_s: float | None) -> None:
        self.count = 0
        self.size_bytes = 0
        self.joining = _Joining()
        self._consumer = consumer
        self._show_time = show_time
        self._interval_s = interval_s
        self._start = self._end = self._window = time.monotonic()
        self._wall_start = time.time()
        self._told_count = self._told_bytes = 0

    def read(self, total: int, timeout_s: float) -> bool:
        """Whether there were so many."""
        from barnabas.client.errors import WakeupError

        last = time.monotonic()
        with suppress(WakeupError):
            while self.count < total and time.monotonic() - last <= timeout_s:
                records = self._consumer.poll(_POLL_S)
                if records:
                    self._add(records)
                    last = time.monotonic()
                    if self._interval_s is not None and last - self._window >= self._interval_s:
                        self._tell_window(last)
        return self.count >= total

    def finish(self) -> None:
        """The measurement is over; closing the consumer does not count."""
        self._end = time.monotonic()

    def _add(self, records: list[ConsumerRecord]) -> None:
        self.count += len(records)
        # A part that is null has the size -1.
        self.size_bytes += sum([max(0, each.serialized_value_size) for each in records])
        self.size_bytes += sum([max(0, each.serialized_key_size) for each in records])

    def _tell_window(self, now: float) -> None:
        count, size_bytes = self.count - self._told_count, self.size_bytes - self._told_bytes
        elapsed, joining = now - self._window, self.joining.window_s
        total_mib = self.size_bytes / MIB
        say(
            f"{self._show_time(self._wall_start + now - self._start)}, 0, {total_mib:.4f}, "
            f"{size_bytes / MIB / elapsed:.4f}, {self.count}, {count / elapsed:.4f}, "
            + _fetching(size_bytes, count, elapsed, joining)
        )
        self.joining.window_s = 0.0
        self._window, self._told_count, self._told_bytes = now, self.count, self.size_bytes

    def totals(self) -> dict[str, Any]:
        """All that was measured, for programs."""
        elapsed = max(self._end - self._start, 0.001)
        return {
            "records": self.count,
            "bytes": self.size_bytes,
            "seconds": round(elapsed, 3),
            "recordsPerSecond": round(self.count / elapsed, 3),
            "megabytesPerSecond": round(self.size_bytes / MIB / elapsed, 3),
            "rebalanceSeconds": round(self.joining.total_s, 3),
        }

    def show_total(self) -> None:
        elapsed = max(self._end - self._start, 0.001)
        total_mib = self.size_bytes / MIB
        times = (self._show_time(each) for each in (self._wall_start, self._wall_start + elapsed))
        say(
            f"{', '.join(times)}, {total_mib:.4f}, {total_mib / elapsed:.4f}, {self.count}, "
            f"{self.count / elapsed:.4f}, " + _fetching(self.size_bytes, self.count, elapsed, self.joining.total_s)
        )


def _fetching(size_bytes: int, count: int, elapsed: float, joining: float) -> str:
    """How fast it was apart from waiting for the group."""
    fetching = max(elapsed - joining, 0.0)
    rates = (size_bytes / MIB / fetching, count / fetching) if fetching >= 0.001 else (0.0, 0.0)
    return f"{joining * 1000:.0f}, {fetching * 1000:.0f}, {rates[0]:.4f}, {rates[1]:.4f}"
