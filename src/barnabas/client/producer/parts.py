"""What a producer is made of, put together from its settings, and what both kinds of producer do with a record."""

from __future__ import annotations

import asyncio
import weakref
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import count
from random import Random
from typing import TYPE_CHECKING, Any, Final

from barnabas._version import package_build
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import speaking
from barnabas.base.runtime import Clock, SystemClock
from barnabas.client._kernel.sending import Home, RecordMetadata, partition_number, record_timestamp_ms, topic_name
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.metrics import (
    PRODUCER,
    MetricsRegistry,
    NetworkMetrics,
    ProducerMetrics,
    RecordingLevel,
    Windows,
    tell_app_info,
)
from barnabas.client.core.producing.accumulator import Accumulator
from barnabas.client.core.producing.batch_sizes import LARGEST_BYTES, LARGEST_COMPRESSED_BYTES
from barnabas.client.core.producing.buffer_pool import BufferPool
from barnabas.client.core.producing.filling import ANY_PARTITION, AccumulatorSettings
from barnabas.client.core.producing.partitioners import as_partitioner, checked_partition, partition_for_key
from barnabas.client.core.producing.sender import Sender
from barnabas.client.core.producing.sender_ports import SenderSettings
from barnabas.client.core.producing.transaction_manager import TransactionManager
from barnabas.client.errors import BufferFullError, ClientClosedError, UnknownPartitionError, WrongUseError
from barnabas.client.network_client import NetworkClient
from barnabas.client.plugins import (
    ClusterResourceListeners,
    MetricsReporter,
    PluginSettings,
    ProducerRecord,
    close_all,
    closed_on_failure,
    load_producer_interceptors,
    load_reporters,
)
from barnabas.client.producer.driver import SenderDriver
from barnabas.client.producer.serializing import Serializing
from barnabas.client.producer.transactions import TransactionDriver
from barnabas.client.settings import ProducerSettings
from barnabas.records import Codec
from barnabas.records.arrow import require_pyarrow

if TYPE_CHECKING:
    from barnabas.client._kernel.sending import OnDelivery
    from barnabas.client.core.producing.arrow_rows import ArrowRows
    from barnabas.client.core.producing.lanes import TopicLane

_numbers = count(1)

_NOT_FOR_ARROW: Final = (
    "send_arrow writes the columns as they are, bytes or text, and this producer has {part}_serializer={given}: make "
    "bytes of the column {part}, and send them with a producer without serializers"
)


@dataclass(frozen=True, slots=True)
class Prepared:
    """A record as it goes into a batch. The partition is `ANY_PARTITION` where the sticky partitioner chooses."""

    partition: int
    value: bytes | None
    key: bytes | None
    headers: list[tuple[str, bytes | None]]
    timestamp_ms: int
    on_delivery: OnDelivery | None


class ProducerParts:
    """Everything but the way in which a program waits: that is what the two kinds of producer differ in."""

    def __init__(
        self,
        settings: ProducerSettings,
        *,
        clock: Clock,
        randomness: Random,
        lock: AbstractContextManager[Any],
        is_shared: bool,
    ) -> None:
        self.settings = settings
        self.clock = clock
        self.client_id = settings.client_id or f"barnabas-producer-{next(_numbers)}"
        with closed_on_failure() as built:
            handed = PluginSettings(settings)
            self.key = Serializing.of(settings.key_serializer, is_key=True, settings=handed)
            built.append(self.key.plugin)
            self.value = Serializing.of(settings.value_serializer, is_key=False, settings=handed)
            built.append(self.value.plugin)
            self.partitioner = as_partitioner(settings.partitioner_class, handed)
            built.append(self.partitioner)
            self.interceptors = load_producer_interceptors(settings)
            built.extend(self.interceptors)
            self._plugins = list(built)
            reporters = load_reporters(settings, "kafka.producer")
            built.extend(reporters)
            self._assemble(reporters, randomness, lock)
            self._make_sender(randomness, is_shared=is_shared)
        #: Why tables cannot be sent, if they cannot.
        self._arrow_refusal = next(
            (
                _NOT_FOR_ARROW.format(part=part, given=given)
                for part, given, serializing in (
                    ("value", settings.value_serializer, self.value),
                    ("key", settings.key_serializer, self.key),
                )
                if not serializing.leaves_columns
            ),
            None,
        )
        self.is_closed = False
        self._is_shared = is_shared
        self._ending: asyncio.Task[None] | None = None

    def _assemble(
        self, reporters: list[MetricsReporter], randomness: Random, lock: AbstractContextManager[Any]
    ) -> None:
        settings, clock = self.settings, self.clock
        self.registry = MetricsRegistry(
            clock.monotonic_ms,
            client_id=self.client_id,
            windows=Windows(settings.metrics_num_samples, settings.metrics_sample_window_ms),
            reporters=reporters,
            level=RecordingLevel[settings.metrics_recording_level],
        )
        tell_app_info(self.registry, package_build(), clock.now_ms())
        network_metrics = NetworkMetrics(self.registry, PRODUCER)
        self.metrics = ProducerMetrics(self.registry, network_metrics)
        self.metadata = Metadata.of(settings, randomness=randomness)
        self.network = NetworkClient(
            settings,
            self.metadata,
            clock=clock,
            randomness=randomness,
            metrics=network_metrics,
            client_id=self.client_id,
            kind="producer",
            max_in_flight_requests=settings.max_in_flight_requests_per_connection,
        )
        self.network.on_cluster_id(ClusterResourceListeners([*self._plugins, *reporters]).tell)
        self.home = Home()
        self.pool = BufferPool(settings.buffer_memory, settings.batch_size)
        self.metrics.buffer(settings.buffer_memory, lambda: self.pool.available_bytes)
        self.accumulator = Accumulator(
            _accumulator_settings(settings), self.pool, randomness=randomness, lock=lock, home=self.home
        )

    def _make_transactions(self) -> None:
        """What a producer with a transactional.id has, and others have not."""
        settings = self.settings
        self.transactions: TransactionDriver | None = None
        if settings.transactional_id is None:
            return
        manager = TransactionManager(
            settings.transactional_id,
            timeout_ms=settings.transaction_timeout_ms,
            retry_backoff_ms=settings.retry_backoff_ms,
            finalized=lambda: self.network.finalized_feature("transaction.version"),
        )
        self.transactions = TransactionDriver(
            self.network,
            manager,
            now_ms=self.clock.monotonic_ms,
            request_timeout_ms=settings.request_timeout_ms,
            max_block_ms=settings.max_block_ms,
        )

    def _make_sender(self, randomness: Random, *, is_shared: bool) -> None:
        settings = self.settings
        self._make_transactions()
        self.sender = Sender(
            SenderSettings.of(settings),
            self.metadata,
            self.accumulator,
            self.network,
            randomness=randomness,
            metrics=self.metrics,
            transactions=None if self.transactions is None else self.transactions.manager,
        )
        self.driver = SenderDriver(
            self.network,
            self.accumulator,
            self.sender,
            clock=self.clock,
            request_timeout_ms=settings.request_timeout_ms,
            is_shared=is_shared,
            transactions=self.transactions,
        )
        self.metrics.watch(
            metadata_updated_ms=lambda: self.metadata.updated_at_ms,
            in_flight=lambda: sum(map(self.network.in_flight, self.network.view.nodes)),
        )

    @property
    def is_direct(self) -> bool:
        """Whether a record needs nothing of the program's but serializers."""
        return not (self.interceptors or self.partitioner)

    def send_path_options(self) -> dict[str, Any]:
        """What the compiled `send` needs to know."""
        return {
            "max_record_bytes": min(self.settings.max_request_size, self.settings.buffer_memory),
            "ignores_keys": self.settings.partitioner_ignore_keys,
            "key_serializer": self.key.serialize,
            "value_serializer": self.value.serialize,
            "now_ms": None if isinstance(self.clock, SystemClock) else self.clock.now_ms,
        }

    async def start(self) -> None:
        """Begin to work, on the running loop."""
        loop = asyncio.get_running_loop()
        # A thread of our own is not the program's to end. The program's loop is: it stops as by any other callback.
        self.home.settle(None if self._is_shared else lambda error: loop.call_soon(_raise, error))
        lost = weakref.WeakMethod(self._lose_loop)
        self.network.on_loop_end(lambda: (end := lost()) and end())
        await self.network.start()
        with speaking(self.network.who):
            self.driver.start()

    def _lose_loop(self) -> None:
        self.home.leave()
        self.driver.lose_loop()
        if self._is_shared:
            # A loop of our own waits for this. One of the program's closes its connections itself.
            self._ending = asyncio.get_running_loop().create_task(self.network.close())

    async def close(self, timeout_ms: float | None) -> None:
        """Send what is there, as long as that takes or as there is time for, and end."""
        try:
            with speaking(self.network.who):
                await self.driver.close(timeout_ms)
        finally:
            await self.network.close()
            self.home.leave()
            self.dispose()

    def dispose(self) -> None:
        """Close what the program plugged in; all there is to close where there is no loop, or none any more."""
        close_all(self._plugins)
        self.registry.close()

    def check_not_closed(self) -> None:
        if self.is_closed:
            raise ClientClosedError("the producer is closed")

    def check_open(self) -> None:
        self.check_not_closed()
        if self.driver.failure is not None:
            # It is raised again and again: each time it should tell of this time only.
            raise self.driver.failure.with_traceback(None)

    # One record

    def intercepted(self, record: ProducerRecord) -> ProducerRecord:
        return checked(self.interceptors.on_send(record)) if self.interceptors else record

    def prepared(self, record: ProducerRecord, view: ClusterView, on_delivery: OnDelivery | None) -> Prepared:
        """Serialize a record and choose its partition. Raises what the program did wrong."""
        topic = record.topic
        headers = list(record.headers or ())
        key = self.key.bytes_of(topic, headers, record.key)
        value = self.value.bytes_of(topic, headers, record.value)
        timestamp_ms = self.clock.now_ms() if record.timestamp_ms is None else record.timestamp_ms
        partition = self._partition_of(record, key, value, view)
        return Prepared(partition, value, key, headers, timestamp_ms, self._acknowledging(on_delivery))

    def _partition_of(self, record: ProducerRecord, key: bytes | None, value: bytes | None, view: ClusterView) -> int:
        topic, partition = record.topic, record.partition
        if partition is not None:
            return partition
        if self.partitioner is not None:
            chosen = self.partitioner.partition(topic, record.key, key, record.value, value, view)
            return checked_partition(chosen, topic, view)
        if key is not None and not self.settings.partitioner_ignore_keys:
            return partition_for_key(key, view.partition_count(topic) or 1)
        return ANY_PARTITION

    def _acknowledging(self, on_delivery: OnDelivery | None) -> OnDelivery | None:
        """Interceptors hear of a record before the program does."""
        if not self.interceptors:
            return on_delivery
        interceptors = self.interceptors

        def acknowledged(metadata: RecordMetadata, error: Exception | None) -> None:
            interceptors.on_acknowledgement(metadata, error)
            if on_delivery is not None:
                on_delivery(metadata, error)

        return acknowledged

    def check_arrow(self) -> None:
        """Before anything is waited for: can this producer send tables?"""
        if self._arrow_refusal is not None:
            raise WrongUseError(self._arrow_refusal)
        require_pyarrow()

    def arrow_rows(self, lane: TopicLane, data: Any, partition: int | None) -> ArrowRows:
        """A table on its way into batches."""
        from barnabas.client.core.producing.arrow_rows import ArrowRows

        return ArrowRows(
            self.accumulator,
            lane,
            data,
            default_timestamp_ms=self.clock.now_ms(),
            partition=partition,
            ignores_keys=self.settings.partitioner_ignore_keys,
        )

    # Waits

    def transaction_call_ended(self, which: str, took_ns: int) -> None:
        with self.accumulator.lock:
            self.metrics.transaction_call(which, took_ns)

    def flush_ended(self, took_s: float) -> None:
        with self.accumulator.lock:
            self.metrics.flush(int(took_s * 1e9))

    def memory_wait_began(self) -> None:
        with self.accumulator.lock:
            self.metrics.waiting(1)

    def memory_wait_ended(self, waited_s: float, is_exhausted: bool) -> None:
        with self.accumulator.lock:
            self.metrics.waiting(-1)
            self.metrics.waited(int(waited_s * 1e9))
            if is_exhausted:
                self.metrics.buffer_exhausted()

    def buffer_full(self) -> BufferFullError:
        return BufferFullError(
            f"buffer.memory = {self.settings.buffer_memory} was used up for max.block.ms = "
            f"{self.settings.max_block_ms}: records come faster than brokers take them, or no broker takes any"
        )


def unknown_partition(partition: TopicPartition, view: ClusterView) -> UnknownPartitionError:
    partition_count = view.partition_count(partition.topic) or 0
    return UnknownPartitionError(
        f"topic {partition.topic!r} has partitions 0 to {partition_count - 1}, and no {partition.partition}"
    )


def checked_target(topic: object, partition: object) -> tuple[str, int | None]:
    """What a record is for. Refuses what only a mistake can get wrong."""
    return topic_name(topic), None if partition is None else partition_number(partition)


def checked(record: ProducerRecord) -> ProducerRecord:
    """A record as the program gave it, or an interceptor made it, with plain text and numbers."""
    topic, partition = checked_target(record.topic, record.partition)
    timestamp_ms = None if record.timestamp_ms is None else record_timestamp_ms(record.timestamp_ms)
    if topic is record.topic and partition is record.partition and timestamp_ms is record.timestamp_ms:
        return record
    return replace(record, topic=topic, partition=partition, timestamp_ms=timestamp_ms)


def _raise(error: BaseException) -> None:
    raise error


def _accumulator_settings(settings: ProducerSettings) -> AccumulatorSettings:
    codec = Codec[settings.compression_type.upper()]
    levels = {
        Codec.GZIP: settings.compression_gzip_level if settings.compression_gzip_level != -1 else None,
        Codec.LZ4: settings.compression_lz4_level,
        Codec.ZSTD: settings.compression_zstd_level,
    }
    largest_bytes = LARGEST_BYTES if codec is Codec.NONE else LARGEST_COMPRESSED_BYTES
    return AccumulatorSettings(
        batch_bytes=settings.batch_size,
        largest_batch_bytes=0 if settings.is_given("batch.size") else largest_bytes,
        linger_ms=settings.linger_ms,
        delivery_timeout_ms=settings.delivery_timeout_ms,
        max_request_bytes=settings.max_request_size,
        retry_backoff_ms=settings.retry_backoff_ms,
        retry_backoff_max_ms=settings.retry_backoff_max_ms,
        codec=codec,
        level=levels.get(codec),
        is_adaptive=settings.partitioner_adaptive_partitioning_enable,
        availability_timeout_ms=settings.partitioner_availability_timeout_ms,
    )


def record_of(
    topic: str,
    value: Any,
    key: Any,
    headers: Iterable[tuple[str, bytes | None]] | None,
    partition: int | None,
    timestamp_ms: int | None,
) -> ProducerRecord:
    return checked(ProducerRecord(topic, value, key, tuple(headers or ()), partition, timestamp_ms))
