"""Records whose value cannot be decoded, sent to a topic of their own with the reason in their headers.

At least once: Spark may read a range twice, and then the letters are written twice. They have the same key then, so
that a compacted dead-letter topic, or whoever reads it, keeps one. All are acknowledged before the task ends.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.spark.core.errors import SparkConnectorError
from barnabas.spark.decoding.bad_records import BadValue

if TYPE_CHECKING:
    from barnabas import RecordMetadata

_PREFIX: Final = "barnabas.error."


@dataclass(frozen=True, slots=True)
class SourceRecord:
    """The record as it was read."""

    topic: str
    partition: int
    offset: int
    timestamp_ms: int | None
    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[str, bytes | None]]


class DeadLetterError(SparkConnectorError):
    """A bad record could not be written to the dead-letter topic, so the task must not end well."""


class LetterProducer(Protocol):
    """What is needed of `barnabas.Producer`."""

    def send(
        self,
        topic: str,
        value: bytes | None,
        /,
        *,
        key: bytes,
        headers: list[tuple[str, bytes | None]],
        on_delivery: Callable[[RecordMetadata, Exception | None], None],
    ) -> object: ...

    def flush(self) -> None: ...

    def close(self, timeout: float | None = None) -> None: ...


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
    ]
    if record.timestamp_ms is not None:
        facts.append(("timestamp", b"%d" % record.timestamp_ms))
    if bad.schema_id is not None:
        facts.append(("schema-id", b"%d" % bad.schema_id))
    if record.key is not None:
        facts.append(("key", record.key))
    return [*record.headers, *((_PREFIX + name, value) for name, value in facts)]


class DeadLetters:
    """Writes the letters of one task. The producer is made for the first of them: most tasks have none."""

    def __init__(self, topic: str, make_producer: Callable[[], LetterProducer]) -> None:
        self._topic = topic
        self._make_producer = make_producer
        self._producer: LetterProducer | None = None
        self._lock = threading.Lock()
        self._failure: Exception | None = None

    def send(self, record: SourceRecord, bad: BadValue) -> None:
        """Put a letter into a batch. Raises what went wrong with an earlier one, if that is known already."""
        self._check()
        try:
            if self._producer is None:
                self._producer = self._make_producer()
            self._producer.send(
                self._topic,
                record.value,
                key=letter_key(record),
                headers=letter_headers(record, bad),
                on_delivery=self._delivered,
            )
        except Exception as error:
            raise self._error(error) from error

    def flush(self) -> None:
        """Wait until every letter is acknowledged."""
        if self._producer is None:
            return
        try:
            self._producer.flush()
        except Exception as error:
            raise self._error(error) from error
        self._check()

    def close(self) -> None:
        """Let the producer go, without waiting: what was not flushed belongs to a task that failed."""
        if self._producer is not None:
            self._producer.close(timeout=0)
            self._producer = None

    def _delivered(self, metadata: RecordMetadata, error: Exception | None) -> None:
        if error is not None:
            with self._lock:
                self._failure = self._failure or error

    def _check(self) -> None:
        with self._lock:
            failure = self._failure
        if failure is not None:
            raise self._error(failure) from failure

    def _error(self, error: Exception) -> DeadLetterError:
        return DeadLetterError(
            f"A bad record could not be written to the dead-letter topic {self._topic!r}: {error}. "
            "Nothing is lost: the task fails and its records are read again. See that the topic exists and can be "
            "written, or set badRecords to column or fail."
        )


def producer_maker(client: Mapping[str, str]) -> Callable[[], LetterProducer]:
    """Makes a producer for the cluster that is read from: of the source's settings, those that a producer knows."""

    def make() -> LetterProducer:
        from barnabas import Producer
        from barnabas.client.settings import PRODUCER_SETTINGS
        from barnabas.spark.core.options import client_settings

        settings, _ = client_settings(client, PRODUCER_SETTINGS)
        return Producer(settings)

    return make
