"""Records whose value cannot be decoded, sent to a topic of their own with the reason in their headers.

At least once: Spark may read a range twice, and then the letters are written twice. They have the same key then, so
that a compacted dead-letter topic, or whoever reads it, keeps one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.client.errors import RecordTooLargeError
from barnabas.spark.client_settings import settings_for
from barnabas.spark.core.errors import OptionError, SparkConnectorError
from barnabas.spark.decoding.bad_records import BadValue
from barnabas.spark.pool import ClientPool
from barnabas.spark.producers import producers

if TYPE_CHECKING:
    from barnabas import Producer

_PREFIX: Final = "barnabas.error."

#: Just below what brokers take in one request, unless they are told otherwise.
_MOST_BYTES: Final = str(96 << 20)
_DEFAULTS: Final = {
    # Whatever could be read can be written, as far as a producer has a say in it.
    "max.request.size": _MOST_BYTES,
    "buffer.memory": _MOST_BYTES,
    # A letter is larger than its record. Compressed, most fit nevertheless where the record did.
    "compression.type": "lz4",
}
_REFUSED: Final = {
    "key.serializer": "keys are bytes",
    "value.serializer": "the value is the record's own",
    "partitioner.class": "each letter goes where its key belongs",
    "transactional.id": "they are written at least once",
}


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class DeadLetterError(SparkConnectorError):
    """A bad record could not be written to the dead-letter topic, so the task must not end well."""


def letter_settings(client: Mapping[str, str]) -> dict[str, str]:
    """Settings of the producer of letters, out of those that the source was given. Raises `OptionError`."""
    from barnabas.client.settings import PRODUCER_SETTINGS

    for name, reason in _REFUSED.items():
        if name in client:
            raise OptionError(f"Option kafka.{name} cannot be used with dead letters: {reason}. Leave it out.")
    return settings_for(client, PRODUCER_SETTINGS, _DEFAULTS)


def letter_key(record: SourceRecord) -> bytes:
    """The same however often the record is read."""
    return f"{record.topic}-{record.partition}-{record.offset}".encode()


def letter_headers(record: SourceRecord, bad: BadValue) -> list[tuple[str, bytes | None]]:
    """The record's own headers, then why it is here and where it came from."""
    facts: list[tuple[str, bytes | None]] = [
        ("class", bad.kind.encode()),
        ("message", bad.explanation.encode("utf-8", "backslashreplace")),
        ("topic", record.topic.encode()),
        ("partition", b"%d" % record.partition),
        ("offset", b"%d" % record.offset),
        ("timestamp", b"%d" % record.timestamp_ms),
    ]
    if bad.schema_id is not None:
        facts.append(("schema-id", b"%d" % bad.schema_id))
    if record.key is not None:
        facts.append(("key", record.key))
    return [*record.headers, *((_PREFIX + name, value) for name, value in facts)]


def write_letters(
    topic: str,
    settings: Mapping[str, str],
    letters: Iterable[tuple[SourceRecord, BadValue]],
    pool: ClientPool[Producer] = producers,
) -> None:
    """Write letters, and return once all are acknowledged. Raises DeadLetterError if one is not."""
    with pool.lend(settings) as producer:
        under_way = []
        for record, bad in letters:
            try:
                delivery = producer.send(
                    topic, record.value, key=letter_key(record), headers=letter_headers(record, bad)
                )
            except BarnabasError as error:
                raise _failure(topic, record, error) from error
            under_way.append((record, delivery))
        # Without it the last letters would wait for linger.ms to pass.
        producer.flush()
        for record, delivery in under_way:
            refusal = delivery.exception()
            if refusal is not None:
                raise _failure(topic, record, refusal) from refusal


def _failure(topic: str, record: SourceRecord, error: Exception) -> DeadLetterError:
    return DeadLetterError(
        f"The bad record at offset {record.offset} of {record.topic}-{record.partition} could not be written to the "
        f"dead-letter topic {topic!r}: {str(error).rstrip('.')}. Nothing is lost: the task fails and its records are "
        f"read again. {_advice(topic, error)}, or set badRecords to column or fail."
    )


def _advice(topic: str, error: Exception) -> str:
    larger = "A letter is larger than its record, by headers that tell why it is bad"
    if isinstance(error, BrokerError) and error.code is ErrorCode.MESSAGE_TOO_LARGE:
        return f"{larger}: raise max.message.bytes of the topic {topic!r}"
    if isinstance(error, RecordTooLargeError):
        return f"{larger}: raise the options kafka.max.request.size and kafka.buffer.memory"
    return "See that the topic exists and can be written"
