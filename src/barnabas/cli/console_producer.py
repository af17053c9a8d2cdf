"""`barnabas console-producer`: send lines of standard input as records. Kafka's `kafka-console-producer`."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any, Final

import click

from barnabas.base.errors import BarnabasError
from barnabas.cli.admin_options import reason
from barnabas.cli.client_options import deprecated, file_settings, key_values, merged, old_name
from barnabas.cli.kafka_options import GivenOptions, KafkaTool, version_option
from barnabas.cli.line_readers import ReadRecord, RecordReader, StandardInput, record_reader
from barnabas.cli.main import FAILED, tell
from barnabas.cli.output import say
from barnabas.cli.stopping import Stop, StoppedError
from barnabas.cli.warnings_shown import show_warnings

if TYPE_CHECKING:
    from barnabas import Producer, RecordMetadata

_READER: Final = "org.apache.kafka.tools.LineMessageReader"
_CLIENT_ID: Final = "console-producer"


@click.command(cls=KafkaTool)
@click.option("--bootstrap-server", metavar="HOST:PORT", help="A broker to ask first; or several, by ','.")
@click.option("--topic", help="Where the records go.")
@click.option("--sync", is_flag=True, help="Send one record at a time, and end with the first that fails.")
@click.option(
    "--compression-codec",
    is_flag=False,
    flag_value="gzip",
    metavar="[CODEC]",
    help="none, gzip (also without a value), snappy, lz4 or zstd.",
)
@click.option("--batch-size", type=int, default=16384, help="Bytes of a batch (batch.size).", show_default=True)
@click.option("--message-send-max-retries", type=int, default=3, help="Retries (retries).", show_default=True)
@click.option("--retry-backoff-ms", type=int, default=100, help="Between retries.", show_default=True)
@click.option("--timeout", type=int, default=1000, help="How long a batch waits (linger.ms).", show_default=True)
@click.option("--request-required-acks", default="-1", help="Who must have a record (acks).", show_default=True)
@click.option("--request-timeout-ms", type=int, default=1500, help="For an answer of a broker.", show_default=True)
@click.option("--metadata-expiry-ms", type=int, default=300_000, help="metadata.max.age.ms.", show_default=True)
@click.option("--max-block-ms", type=int, default=60_000, help="How long a line may wait.", show_default=True)
@click.option("--max-memory-bytes", type=int, default=32 << 20, help="buffer.memory.", show_default=True)
@old_name("--max-partition-memory-bytes", "max_partition_memory_bytes", "--batch-size", type=int)
@click.option("--socket-buffer-size", type=int, default=102_400, help="send.buffer.bytes.", show_default=True)
@click.option("--line-reader", default=_READER, metavar="CLASS", help="Makes records of the input.")
@click.option("--reader-property", multiple=True, metavar="NAME=VALUE", help="See below; may be repeated.")
@old_name("--property", "old_reader_property", "--reader-property", multiple=True, metavar="NAME=VALUE")
@click.option("--reader-config", metavar="FILE", help="A file of such settings.")
@click.option("--command-property", multiple=True, metavar="NAME=VALUE", help="A setting of the producer.")
@old_name("--producer-property", "old_property", "--command-property", multiple=True, metavar="NAME=VALUE")
@click.option("--command-config", metavar="FILE", help="A file of settings of the producer.")
@old_name("--producer.config", "old_config", "--command-config", metavar="FILE")
@version_option()
@click.pass_context
def console_producer(ctx: click.Context, /, **options: Any) -> int:
    """Send each line of standard input as a record, until the input ends. Ctrl-C ends it too: what was read is sent.

    A record that could not be sent is told on standard error, and the exit code is 1.

    \b
    --reader-property, with what holds unless it is set:
      parse.key=false          lines are KEY, key.separator, VALUE
      key.separator            a tab
      parse.headers=false      lines begin with headers: NAME:VALUE,NAME:VALUE, headers.delimiter
      headers.delimiter        a tab
      headers.separator=,      between headers; a regular expression
      headers.key.separator=:  between the name of a header and its value
      null.marker              a key, value or header that is this becomes null; none
      ignore.error=false       take lines without separators as they are

    \b
    Examples:
      barnabas console-producer --bootstrap-server 127.0.0.1:9092 --topic clicks
      barnabas console-producer --bootstrap-server 127.0.0.1:9092 --topic clicks \\
          --reader-property parse.key=true --reader-property key.separator=: < clicks.txt
    """
    given = GivenOptions(ctx)
    given.need("--bootstrap-server", "--topic")
    deprecated(given, "--producer.config", "--command-config")
    deprecated(given, "--producer-property", "--command-property")
    deprecated(given, "--property", "--reader-property")
    if "--max-partition-memory-bytes" in given:
        say("Warning: --max-partition-memory-bytes is deprecated; use --batch-size", err=True)
    reader = record_reader(options["line_reader"], _reader_settings(options))
    from barnabas import Producer

    show_warnings()
    with Stop() as stop:
        with Producer(_producer_settings(given, options)) as producer:
            sending = _Sending(producer, stop, is_sync=options["sync"])
            try:
                sending.run(reader)
            finally:
                if hasattr(reader, "close"):
                    reader.close()
        return FAILED if sending.failed_count else stop.exit_code


def _reader_settings(options: dict[str, Any]) -> dict[str, str]:
    typed = options["reader_property"] or options["old_reader_property"]
    return file_settings(options["reader_config"]) | key_values(typed) | {"topic": options["topic"]}


def _producer_settings(given: GivenOptions, options: dict[str, Any]) -> dict[str, Any]:
    settings = file_settings(options["command_config"] or options["old_config"])
    settings |= key_values(options["command_property"] or options["old_property"])
    settings["bootstrap.servers"] = options["bootstrap_server"]
    settings["key.serializer"] = settings["value.serializer"] = "bytes"
    settings.setdefault("client.id", _CLIENT_ID)
    merged(
        settings,
        given,
        {
            "--compression-codec": ("compression.type", options["compression_codec"] or "none"),
            "--timeout": ("linger.ms", options["timeout"]),
            "--request-required-acks": ("acks", options["request_required_acks"]),
            "--request-timeout-ms": ("request.timeout.ms", options["request_timeout_ms"]),
            "--message-send-max-retries": ("retries", options["message_send_max_retries"]),
            "--retry-backoff-ms": ("retry.backoff.ms", options["retry_backoff_ms"]),
            "--socket-buffer-size": ("send.buffer.bytes", options["socket_buffer_size"]),
            "--max-memory-bytes": ("buffer.memory", options["max_memory_bytes"]),
            "--batch-size": ("batch.size", options["batch_size"]),
            "--metadata-expiry-ms": ("metadata.max.age.ms", options["metadata_expiry_ms"]),
            "--max-block-ms": ("max.block.ms", options["max_block_ms"]),
        },
    )
    if options["max_partition_memory_bytes"] is not None:
        settings["batch.size"] = options["max_partition_memory_bytes"]
    return settings


class _Sending:
    """Sends what a reader gives, and tells of each record that did not get through."""

    def __init__(self, producer: Producer, stop: Stop, *, is_sync: bool) -> None:
        self.failed_count = 0
        self._producer = producer
        self._stop = stop
        self._is_sync = is_sync

    def run(self, reader: RecordReader) -> None:
        source = StandardInput(self._stop)
        for number, record in enumerate(reader.read_records(source.stream), 1):
            if source.is_cut:
                return
            self._send(number, record)
            if self._stop.is_asked_for or (self._is_sync and self.failed_count):
                return

    def _send(self, number: int, record: ReadRecord) -> None:
        # A record that waits for a broker must not keep Ctrl-C waiting.
        self._stop.is_interruptible = True
        try:
            future = self._producer.send(
                record.topic,
                record.value,
                record.key,
                headers=record.headers,
                partition=record.partition,
                timestamp_ms=record.timestamp_ms,
                on_delivery=partial(self._delivered, number),
            )
            if self._is_sync:
                future.exception()
        except StoppedError:
            self._tell(number, f"for topic {record.topic} was broken off, and may not have been sent")
        except BarnabasError as problem:
            self._tell(number, f"was not sent to topic {record.topic}: {reason(problem)}")
        finally:
            self._stop.is_interruptible = False

    def _delivered(self, number: int, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is not None:
            self._tell(number, f"was not sent to {metadata.topic}-{metadata.partition}: {reason(error)}")

    def _tell(self, number: int, what: str) -> None:
        self.failed_count += 1
        sys.stdout.flush()
        tell(f"record {number} {what}")
