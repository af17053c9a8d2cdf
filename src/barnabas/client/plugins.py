"""What a program can plug into a client: interceptors, listeners, reporters, partitioners; and how they are loaded.

A plug-in is named by a setting: the class itself, an object, or the dotted path of a class. A class is made without
arguments. If it has `configure(settings)` it is handed the settings of the client, unknown ones included, before its
first use. A plug-in that fails is logged and does not stop the client, as with Java's.
"""

from __future__ import annotations

from collections.abc import Awaitable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from barnabas.base.ids import TopicPartition
from barnabas.base.metrics import reporters
from barnabas.base.metrics.reporters import MetricsContext, MetricsReporter
from barnabas.base.plugins import (
    ClusterResourceListener,
    ClusterResourceListeners,
    close_all,
    load_plugins,
    log_failure,
)
from barnabas.base.settings.plugin_settings import PluginSettings
from barnabas.client.core.producing.partitioners import Partitioner
from barnabas.client.settings.common import ClientSettings

if TYPE_CHECKING:
    from barnabas.client._kernel.receiving import ConsumerRecord
    from barnabas.client._kernel.sending import RecordMetadata
    from barnabas.client.core.consuming.offsets import OffsetAndMetadata
    from barnabas.client.settings import ConsumerSettings, ProducerSettings

__all__ = [
    "ClusterResourceListener",
    "ClusterResourceListeners",
    "ConsumerInterceptor",
    "ConsumerInterceptors",
    "MetricsReporter",
    "Partitioner",
    "PluginSettings",
    "ProducerInterceptor",
    "ProducerInterceptors",
    "ProducerRecord",
    "RebalanceListener",
    "close_all",
    "load_consumer_interceptors",
    "load_plugins",
    "load_producer_interceptors",
    "load_reporters",
]


@dataclass(frozen=True, slots=True)
class ProducerRecord:
    """A record on its way to a topic, as the program gave it: key and value are not serialized yet.

    `dataclasses.replace` makes another of it, which is how an interceptor changes a record.
    """

    topic: str
    value: Any = None
    key: Any = None
    headers: Sequence[tuple[str, bytes | None]] = ()
    partition: int | None = None
    timestamp_ms: int | None = None


class ProducerInterceptor(Protocol):
    """Sees every record before it is serialized and when it is acknowledged. Both hold the producer up: be quick."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record, or another in its place. Runs in the thread that called send."""
        ...

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """The record was written, or failed. Partition and offset are -1 if it failed before it had them."""
        ...

    def close(self) -> None: ...


class ConsumerInterceptor(Protocol):
    """Sees records before the program does, and offsets after they are committed."""

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Return the records, or others in their place."""
        ...

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None: ...

    def close(self) -> None: ...


class RebalanceListener:
    """Told when a group gives partitions to this consumer or takes them away. Derive from it and fill in what you need.

    The methods run inside a poll, in the program's own thread. In asyncio they may be coroutines.
    """

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """These are new; reading has not begun. The place to seek."""
        return None

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """These go to another member after this returns. The place to commit."""
        return None

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> Awaitable[None] | None:
        """These may already be read by another member: it is too late to commit. Does what a revocation does."""
        return self.on_partitions_revoked(partitions)


def load_reporters(settings: ClientSettings, namespace: str = "kafka.client") -> list[MetricsReporter]:
    """The reporters that metric.reporters lists. The namespace is Kafka's, such as kafka.producer."""
    context = MetricsContext.of(namespace, settings.extras)
    return reporters.load_reporters(settings, settings.metric_reporters, context)


def load_producer_interceptors(settings: ProducerSettings) -> ProducerInterceptors:
    """The interceptors that interceptor.classes of a producer lists."""
    methods = ("on_send", "on_acknowledgement")
    return ProducerInterceptors(load_plugins("interceptor.classes", settings.interceptor_classes, methods, settings))


def load_consumer_interceptors(settings: ConsumerSettings) -> ConsumerInterceptors:
    """The interceptors that interceptor.classes of a consumer lists."""
    methods = ("on_consume", "on_commit")
    return ConsumerInterceptors(load_plugins("interceptor.classes", settings.interceptor_classes, methods, settings))


@contextmanager
def closed_on_failure() -> Iterator[list[object]]:
    """For the constructors of clients: what is put into the list is closed if a later part cannot be made.

    The program has no client then that it could close, and what it plugged in may hold connections or files.
    """
    built: list[object] = []
    try:
        yield built
    except BaseException:
        close_all(built)
        raise


class ProducerInterceptors:
    """The interceptors of a producer, one after the other. Falsy if there are none, so that sending can pass it by."""

    __slots__ = ("_interceptors",)

    def __init__(self, interceptors: Iterable[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def __iter__(self) -> Iterator[ProducerInterceptor]:
        return iter(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Each gets what the one before returned; one that fails is passed over."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_send(record)
                if not isinstance(changed, ProducerRecord):
                    raise TypeError(f"on_send must return a ProducerRecord, not {type(changed).__name__}")
                record = changed
            except Exception:
                log_failure(interceptor, f"on_send of a record for topic {record.topic}")
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None = None) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_acknowledgement(metadata, error)
            except Exception:
                log_failure(interceptor, f"on_acknowledgement of a record for topic {metadata.topic}")

    def on_send_error(self, record: ProducerRecord, error: Exception, partition: int | None = None) -> None:
        """A record failed before it was in a batch: there is no offset, and perhaps no partition."""
        # Here, because an admin loads its reporters with this module and has no use for the kernel of a producer.
        from barnabas.client._kernel.sending import RecordMetadata

        number = record.partition if partition is None else partition
        timestamp_ms = -1 if record.timestamp_ms is None else record.timestamp_ms
        metadata = RecordMetadata(record.topic, -1 if number is None else number, -1, timestamp_ms)
        self.on_acknowledgement(metadata, error)

    def close(self) -> None:
        close_all(self._interceptors)


class ConsumerInterceptors:
    """The interceptors of a consumer, one after the other. Falsy if there are none, so that reading can pass it by."""

    __slots__ = ("_interceptors",)

    def __init__(self, interceptors: Iterable[ConsumerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def __iter__(self) -> Iterator[ConsumerInterceptor]:
        return iter(self._interceptors)

    def on_consume(self, records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        """Each gets what the one before returned; one that fails is passed over."""
        for interceptor in self._interceptors:
            try:
                changed = interceptor.on_consume(records)
                if changed is None:
                    raise TypeError("on_consume must return records, not None")
                records = changed
            except Exception:
                log_failure(interceptor, "on_consume")
        return records

    def on_commit(self, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        for interceptor in self._interceptors:
            try:
                interceptor.on_commit(offsets)
            except Exception:
                log_failure(interceptor, "on_commit")

    def close(self) -> None:
        close_all(self._interceptors)
