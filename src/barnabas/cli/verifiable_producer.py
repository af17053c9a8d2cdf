"""`barnabas verifiable-producer`: send numbers and tell of each. Kafka's `kafka-verifiable-producer`."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import reason
from barnabas.cli.client_options import ParserTool, deprecated, file_settings, old_name
from barnabas.cli.kafka_options import GivenOptions, version_option
from barnabas.cli.output import compact_json
from barnabas.cli.stopping import Stop, StoppedError, print_line
from barnabas.cli.throughput import ThroughputThrottler
from barnabas.cli.warnings_shown import show_warnings

if TYPE_CHECKING:
    from barnabas import Producer, RecordMetadata

_CHUNK: Final = 100


@click.command(cls=ParserTool)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--topic", required=True, help="Where the records go.")
@click.option("--max-messages", type=int, default=-1, help="How many; -1: until a signal comes.", show_default=True)
@click.option("--throughput", type=int, default=-1, help="Records per second; -1: all it can.", show_default=True)
@click.option("--acks", type=click.Choice(["0", "1", "-1"]), default="-1", help="Who must have it.", show_default=True)
@click.option("--message-create-time", type=int, default=-1, help="The timestamp to begin with, in ms since 1970.")
@click.option("--value-prefix", type=int, help="Values are PREFIX.NUMBER.")
@click.option("--repeating-keys", type=click.IntRange(min=1), help="Keys are 0 to this, without it, over and over.")
@click.option("--command-config", metavar="FILE", help="A file of settings of the producer; they win over options.")
@old_name("--producer.config", "old_config", "--command-config", metavar="FILE")
@version_option()
@click.pass_context
def verifiable_producer(ctx: click.Context, /, **options: Any) -> int:
    """Send the numbers from 0 on, and print a line of JSON for each that was acknowledged or failed.

    \b
    Example:
      barnabas verifiable-producer --bootstrap-server 127.0.0.1:9092 --topic numbers --max-messages 100
    """
    given = GivenOptions(ctx)
    given.need("--bootstrap-server")
    deprecated(given, "--producer.config", "--command-config")
    settings: dict[str, Any] = {
        "bootstrap.servers": options["bootstrap_server"],
        "acks": options["acks"],
        # Each failure is to be seen.
        "retries": 0,
    }
    settings |= file_settings(options["command_config"] or options["old_config"])
    settings["key.serializer"] = settings["value.serializer"] = "string"
    from barnabas import Producer

    start = time.monotonic()
    show_warnings()
    with Stop() as stop:
        with Producer(settings) as producer:
            sending = _Sending(producer, stop, options)
            sending.run(options["max_messages"], options["throughput"])
        sending.tell("shutdown_complete")
        sending.tell(
            "tool_data",
            sent=sending.sent,
            acked=sending.acked,
            target_throughput=options["throughput"],
            avg_throughput=sending.acked / max(time.monotonic() - start, 0.001),
        )
        return stop.exit_code


class _Sending:
    """Sends and tells. Acknowledgements come on the producer's own thread, so lines must not run into each other."""

    def __init__(self, producer: Producer, stop: Stop, options: dict[str, Any]) -> None:
        self.sent = 0
        self.acked = 0
        self._producer = producer
        self._stop = stop
        self._topic: str = options["topic"]
        self._prefix = "" if options["value_prefix"] is None else f"{options['value_prefix']}."
        self._key_count: int | None = options["repeating_keys"]
        created: int = options["message_create_time"]
        self._create_ms = None if created == -1 else created
        self._start_ms = _now_ms()
        self._lock = threading.Lock()

    def run(self, limit: int, per_second: int) -> None:
        self.tell("startup_complete")
        pace = ThroughputThrottler(per_second, self._stop.wait)
        while (limit < 0 or self.sent < limit) and not self._stop.is_asked_for:
            self._send_some(pace.due(self.sent, _CHUNK if limit < 0 else min(_CHUNK, limit - self.sent)))

    def _send_some(self, count: int) -> None:
        for _ in range(count):
            if self._stop.is_asked_for:
                return
            self._send()

    def _send(self) -> None:
        key = None if self._key_count is None else str(self.sent % self._key_count)
        value = f"{self._prefix}{self.sent}"
        self.sent += 1
        timestamp_ms = self._create_ms
        if timestamp_ms is not None:
            self._create_ms = timestamp_ms + _now_ms() - self._start_ms
        on_delivery = partial(self._delivered, key, value)
        self._stop.is_interruptible = True
        try:
            self._producer.send(self._topic, value, key, timestamp_ms=timestamp_ms, on_delivery=on_delivery)
        except StoppedError:
            self._tell_failure(key, value, BarnabasError("broken off by a signal"))
        except BarnabasError as problem:
            self._tell_failure(key, value, problem)
        finally:
            self._stop.is_interruptible = False

    def _delivered(self, key: str | None, value: str, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is not None:
            self._tell_failure(key, value, error)
            return
        self.acked += 1
        place = {"offset": metadata.offset, "topic": metadata.topic, "partition": metadata.partition}
        self.tell("producer_send_success", key=key, value=value, **place)

    def _tell_failure(self, key: str | None, value: str, error: Exception) -> None:
        self.tell(
            "producer_send_error",
            key=key,
            value=value,
            topic=self._topic,
            exception=f"class {type(error).__module__}.{type(error).__qualname__}",
            message=reason(error),
        )

    def tell(self, name: str, **more: Any) -> None:
        line = compact_json({"timestamp": _now_ms(), "name": name, **more})
        with self._lock:
            print_line(line, self._stop)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
