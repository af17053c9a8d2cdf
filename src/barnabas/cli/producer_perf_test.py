"""`barnabas producer-perf-test`: measure how fast records are sent. Kafka's `kafka-producer-perf-test`."""

from __future__ import annotations

import random
import time
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import accumulate, cycle, islice
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import reason
from barnabas.cli.client_options import ParserTool, deprecated, file_settings, old_name
from barnabas.cli.kafka_options import GivenOptions, version_option
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import print_json, say
from barnabas.cli.perf_shown import MIB, live_progress, print_metrics
from barnabas.cli.perf_transactions import PerfTransactions, transaction_duration_ms
from barnabas.cli.stopping import Stop, StoppedError, print_line
from barnabas.cli.throughput import ThroughputThrottler
from barnabas.cli.warnings_shown import show_warnings

if TYPE_CHECKING:
    from barnabas import Producer, RecordMetadata

_CLIENT_ID: Final = "perf-producer-client"
_PERCENTILES: Final = (0.5, 0.95, 0.99, 0.999)
#: Payloads are made beforehand, so many bytes and at least so many of them, and sent again and again: none comes back
#: within what a codec looks at.
_POOL_BYTES: Final = 4 * MIB
_POOL_COUNT: Final = 16
_CHUNK: Final = 1000
#: Where many records go out, one in so many is asked when it was acknowledged, and speaks for those before it. A call
#: for each would cost more than sending does.
_GROUP_SIZE: Final = 16
_MANY: Final = 50_000
_TOLD_ERRORS: Final = 10


class _Tool(ParserTool):
    greedy = frozenset({"--producer-props", "--command-property"})


@click.command(cls=_Tool)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--topic", required=True, help="Where the records go.")
@click.option("--num-records", type=int, required=True, help="How many.")
@click.option("--record-size", type=int, help="Random letters, so many for each record.")
@click.option("--payload-file", metavar="FILE", help="Or: texts from this file, in random order.")
@click.option("--payload-monotonic", is_flag=True, help="Or: the numbers from 0 on, as text.")
@click.option("--payload-delimiter", default="\\n", help="Between the texts of the file.", show_default=True)
@click.option("--throughput", type=float, required=True, help="Records per second; -1: as many as possible.")
@click.option("--command-property", multiple=True, metavar="NAME=VALUE …", help="Settings of the producer.")
@old_name("--producer-props", "old_property", "--command-property", multiple=True, metavar="NAME=VALUE …")
@click.option("--command-config", metavar="FILE", help="A file of settings of the producer.")
@old_name("--producer.config", "old_config", "--command-config", metavar="FILE")
@click.option("--print-metrics", "with_metrics", is_flag=True, help="Show the producer's metrics at the end.")
@click.option("--transactional-id", metavar="ID", help="Send in transactions, with this id; drawn, if it is not given.")
@click.option("--transaction-duration-ms", type=int, metavar="MS", help="How long each is open; 3000 with an id alone.")
@click.option("--warmup-records", type=int, default=0, help="Tell the rest apart from so many first ones.")
@click.option("--reporting-interval", type=int, default=5000, metavar="MS", help="Between lines.", show_default=True)
@click.option("--json", "as_json", is_flag=True, help="One JSON object at the end, for programs.")
@version_option()
@click.pass_context
def producer_perf_test(ctx: click.Context, /, **options: Any) -> int:
    """Send records and tell how fast that went, and how long it took until each was acknowledged.

    \b
    Example:
      barnabas producer-perf-test --bootstrap-server 127.0.0.1:9092 --topic clicks --num-records 1000000 \\
          --record-size 100 --throughput -1 --command-property linger.ms=5 compression.type=lz4
    """
    given = GivenOptions(ctx)
    _check(given, options)
    settings = _producer_settings(options)
    duration_ms = transaction_duration_ms(options, settings)
    payloads = _payloads(options)
    from barnabas import Producer

    as_json: bool = options["as_json"]
    if options["warmup_records"] > 0 and not as_json:
        say(
            f"Warmup first {options['warmup_records']} records. Steady state results will print after the complete "
            "test summary."
        )
    show_warnings()
    with Stop() as stop:
        with Producer(settings) as producer:
            transactions = PerfTransactions(producer, duration_ms)
            interval_ms = None if as_json else options["reporting_interval"]
            run = _Run(producer, stop, options["topic"], interval_ms, transactions)
            total: int = options["num_records"]
            with live_progress("sending", total, lambda: run.count):
                run.send(payloads, total, options["warmup_records"], options["throughput"])
                producer.flush()
                transactions.finish()
            end_ms = _now_ms()
            metrics = producer.metrics() if options["with_metrics"] else None
        if as_json:
            print_json(run.totals(end_ms) | ({"metrics": metrics} if metrics is not None else {}))
        else:
            run.show_total(end_ms)
            if metrics is not None:
                print_metrics(metrics, settings["client.id"])
        return FAILED if run.failed_count else stop.exit_code


def _check(given: GivenOptions, options: dict[str, Any]) -> None:
    deprecated(given, "--producer-props", "--command-property")
    deprecated(given, "--producer.config", "--command-config")
    given.exactly_one("--record-size", "--payload-file", "--payload-monotonic")
    given.need_one_of(
        "--bootstrap-server", "--command-property", "--producer-props", "--command-config", "--producer.config"
    )
    for option in ("num_records", "record_size", "reporting_interval", "transaction_duration_ms"):
        if options[option] is not None and options[option] <= 0:
            raise click.UsageError(f"--{option.replace('_', '-')} must be greater than 0")
    if options["throughput"] == 0:
        raise click.UsageError("--throughput 0 would never send anything; -1 sends as fast as possible")
    if options["warmup_records"] < 0:
        raise click.UsageError("--warmup-records cannot be negative")
    if options["transactional_id"] == "":
        raise click.UsageError("--transactional-id is empty")


def _producer_settings(options: dict[str, Any]) -> dict[str, Any]:
    settings = file_settings(options["command_config"] or options["old_config"])
    for pair in options["command_property"] or options["old_property"]:
        name, found, value = pair.partition("=")
        if not found:
            raise click.UsageError(f"--command-property: {pair!r} is not of the form name=value")
        settings[name] = value
    if options["bootstrap_server"] is not None:
        settings["bootstrap.servers"] = options["bootstrap_server"]
    settings["key.serializer"] = settings["value.serializer"] = "bytes"
    settings.setdefault("client.id", _CLIENT_ID)
    return settings


def _payloads(options: dict[str, Any]) -> Iterator[bytes]:
    if options["payload_monotonic"]:
        return (b"%d" % number for number in range(options["num_records"]))
    chance = random.Random(0)
    if options["payload_file"] is None:
        return cycle(random_payloads(chance, options["record_size"]))
    return cycle(_file_payloads(chance, Path(options["payload_file"]), options["payload_delimiter"]))


def random_payloads(chance: random.Random, size_bytes: int) -> list[bytes]:
    """Texts of random capital letters."""
    count = max(_POOL_BYTES // size_bytes, _POOL_COUNT)
    letters = bytes(65 + value % 26 for value in range(256))
    pool = chance.randbytes(count * size_bytes).translate(letters)
    return [pool[start : start + size_bytes] for start in range(0, len(pool), size_bytes)]


def _file_payloads(chance: random.Random, path: Path, delimiter: str) -> Sequence[bytes]:
    say(f"Reading payloads from: {path.absolute()}")
    data = path.read_bytes()
    if not data:
        raise BarnabasError(f"{path}: the file is empty, so there is nothing to send")
    texts = data.split(b"\n" if delimiter == "\\n" else delimiter.encode())
    while len(texts) > 1 and not texts[-1]:
        texts.pop()
    say(f"Number of records read: {len(texts)}")
    return chance.choices(texts, k=max(10_000, len(texts)))


class Latencies:
    """How many records took how long, in milliseconds, and how many bytes they had."""

    def __init__(self, counts: Mapping[int, int] | None = None, size_bytes: int = 0) -> None:
        self.counts: dict[int, int] = defaultdict(int, counts or {})
        self.size_bytes = size_bytes

    @property
    def count(self) -> int:
        # Taken at once, as others may add meanwhile.
        return sum(list(self.counts.values()))

    @property
    def average_ms(self) -> float:
        return sum(latency * count for latency, count in self.counts.items()) / (self.count or 1)

    @property
    def highest_ms(self) -> int:
        return max(self.counts, default=0)

    def percentiles(self, fractions: Sequence[float]) -> list[int]:
        """For each: the latency of the record that has this part of all before it, when they are sorted."""
        latencies = sorted(self.counts)
        reached = list(accumulate(self.counts[latency] for latency in latencies))
        count = self.count
        return [latencies[bisect_right(reached, int(part * count))] if count else 0 for part in fractions]

    def rates(self, elapsed_ms: int) -> tuple[float, float]:
        """Records and megabytes per second."""
        elapsed_s = max(elapsed_ms, 1) / 1000
        return self.count / elapsed_s, self.size_bytes / MIB / elapsed_s

    def copy(self) -> Latencies:
        return Latencies(self.counts, self.size_bytes)

    def without(self, earlier: Latencies) -> Latencies:
        """What came since then."""
        added = {each: count - earlier.counts.get(each, 0) for each, count in self.counts.items()}
        new = {each: count for each, count in added.items() if count}
        return Latencies(new, self.size_bytes - earlier.size_bytes)

    def with_all(self, others: Latencies) -> Latencies:
        sums = {
            each: self.counts.get(each, 0) + others.counts.get(each, 0) for each in {**self.counts, **others.counts}
        }
        return Latencies(sums, self.size_bytes + others.size_bytes)


class _Stage:
    """Records before or after the warm-up: each is counted in one of them."""

    def __init__(self, *, is_steady: bool) -> None:
        self.is_steady = is_steady
        self.latencies = Latencies()
        self.start_ms = self.window_ms = _now_ms()
        self._told = Latencies()

    def window_lines(self, now_ms: int) -> Iterator[str]:
        """A line about what came since the last one."""
        if self.is_steady and not self._told.counts:
            yield "In steady state."
        window = self.latencies.without(self._told)
        records, megabytes = window.rates(now_ms - self.window_ms)
        yield (
            f"{window.count} records sent, {records:.1f} records/sec ({megabytes:.2f} MB/sec), "
            f"{window.average_ms:.1f} ms avg latency, {window.highest_ms:.1f} ms max latency."
        )
        self._told = self.latencies.copy()
        self.window_ms = now_ms


class _Run:
    """Sends, and counts what is acknowledged. Acknowledgements come on the producer's own thread."""

    def __init__(
        self, producer: Producer, stop: Stop, topic: str, interval_ms: int | None, transactions: PerfTransactions
    ) -> None:
        self.failed_count = 0
        self._transactions = transactions
        self._producer = producer
        self._stop = stop
        self._topic = topic
        self._interval_ms = interval_ms
        self._phases = [_Stage(is_steady=False)]
        self._group_size = 1
        self._told_errors = 0

    @property
    def count(self) -> int:
        return sum(phase.latencies.count for phase in self._phases)

    def send(self, payloads: Iterator[bytes], total: int, warmup: int, per_second: float) -> None:
        pace = ThroughputThrottler(per_second, self._stop.wait)
        if total >= _MANY and not 0 <= per_second < _MANY:
            self._group_size = _GROUP_SIZE
        sent = 0
        # A record that waits for a broker must not keep Ctrl-C waiting.
        self._stop.is_interruptible = True
        with suppress(StoppedError):
            while sent < total and not self._stop.is_asked_for:
                if warmup and sent == warmup and len(self._phases) == 1:
                    self._phases.append(_Stage(is_steady=True))
                end = warmup if sent < warmup < total else total
                count = pace.due(sent, min(_CHUNK, end - sent))
                self._transactions.before_records()
                self._send_some(list(islice(payloads, count)))
                self._transactions.after_records()
                sent += count
        self._stop.is_interruptible = False

    def _send_some(self, payloads: list[bytes]) -> None:
        send, topic, phase = self._producer.send, self._topic, self._phases[-1]
        group: list[bytes] = []
        for left, payload in zip(range(len(payloads) - 1, -1, -1), payloads, strict=True):
            group.append(payload)
            try:
                if left and len(group) < self._group_size:
                    send(topic, payload)
                else:
                    send(topic, payload, on_delivery=partial(self._delivered, phase, group, _now_ms()))
                    group = []
            except BarnabasError as problem:
                group.pop()
                self._failed(problem, 1)

    def _delivered(
        self, phase: _Stage, group: list[bytes], start_ms: int, metadata: RecordMetadata, error: Exception | None
    ) -> None:
        """The last record of a group was written, or not: it speaks for the others, which lie beside it."""
        if error is not None:
            self._failed(error, len(group))
            return
        now_ms = _now_ms()
        phase.latencies.counts[now_ms - start_ms] += len(group)
        phase.latencies.size_bytes += sum(map(len, group))
        interval_ms = self._interval_ms
        if interval_ms is not None and now_ms - phase.window_ms >= interval_ms and phase is self._phases[-1]:
            for line in phase.window_lines(now_ms):
                print_line(line, self._stop)

    def _failed(self, error: Exception, count: int) -> None:
        # From here on each is looked at by itself.
        self._group_size = 1
        self.failed_count += count
        self._told_errors += 1
        if self._told_errors <= _TOLD_ERRORS:
            tell(
                f"{f'{count} records were' if count > 1 else 'a record was'} not sent to {self._topic}: {reason(error)}"
            )

    def totals(self, now_ms: int) -> dict[str, Any]:
        """All that was measured, for programs."""
        first, *steady = self._phases
        told = _values(self._everything(), now_ms - first.start_ms) | {"failed": self.failed_count}
        for phase in steady:
            told["steadyState"] = _values(phase.latencies, now_ms - phase.start_ms)
        return told

    def _everything(self) -> Latencies:
        first, *steady = self._phases
        everything = first.latencies
        for phase in steady:
            everything = everything.with_all(phase.latencies)
        return everything

    def show_total(self, now_ms: int) -> None:
        first, *steady = self._phases
        _show_total(self._everything(), now_ms - first.start_ms, "")
        for phase in steady:
            _show_total(phase.latencies, now_ms - phase.start_ms, " steady state")
        if self._told_errors > _TOLD_ERRORS:
            tell(f"{self.failed_count} records were not sent in all; only the first failures are told above")


def _show_total(latencies: Latencies, elapsed_ms: int, kind: str) -> None:
    records, megabytes = latencies.rates(elapsed_ms)
    half, most, nearly, all_but = latencies.percentiles(_PERCENTILES)
    say(
        f"{latencies.count}{kind} records sent, {records:f} records/sec ({megabytes:.2f} MB/sec), "
        f"{latencies.average_ms:.2f} ms avg latency, {latencies.highest_ms:.2f} ms max latency, "
        f"{half} ms 50th, {most} ms 95th, {nearly} ms 99th, {all_but} ms 99.9th."
    )


def _values(latencies: Latencies, elapsed_ms: int) -> dict[str, Any]:
    records, megabytes = latencies.rates(elapsed_ms)
    percentiles = zip(("p50", "p95", "p99", "p99.9"), latencies.percentiles(_PERCENTILES), strict=True)
    return {
        "records": latencies.count,
        "recordsPerSecond": round(records, 3),
        "megabytesPerSecond": round(megabytes, 3),
        "latencyMs": {"average": round(latencies.average_ms, 3), "max": latencies.highest_ms, **dict(percentiles)},
    }


def _now_ms() -> int:
    return time.perf_counter_ns() // 1_000_000
