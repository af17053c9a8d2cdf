"""What a consumer is made of, put together from its settings."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from itertools import count
from random import Random
from typing import Any, Final

from barnabas._version import package_build
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import speaking
from barnabas.base.runtime import Clock
from barnabas.client.consumer.committing import Invoke
from barnabas.client.consumer.fetcher import Fetcher
from barnabas.client.consumer.group import GroupDriver
from barnabas.client.consumer.subscribed_topics import SubscribedTopics
from barnabas.client.core.consuming.offsets import OffsetAndMetadata, ResetStrategy
from barnabas.client.core.consuming.reading_troubles import ReadingTroubles
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.metrics import (
    CONSUMER,
    ConsumerMetrics,
    FetchMetrics,
    GroupMetrics,
    MetricsRegistry,
    NetworkMetrics,
    RecordingLevel,
    Windows,
    tell_app_info,
)
from barnabas.client.network_client import NetworkClient
from barnabas.client.plugins import (
    ClusterResourceListeners,
    MetricsReporter,
    PluginSettings,
    close_all,
    closed_on_failure,
    load_consumer_interceptors,
    load_reporters,
)
from barnabas.client.serialization import deserialize_with, load
from barnabas.client.settings import ConsumerSettings

_numbers = count(1)

_NOT_IN_ARROW: Final = (
    "poll_arrow gives keys and values as bytes, and this consumer has {part}_deserializer={given}: take poll, or a "
    'consumer without deserializers, and decode the column, as in batch.column("{part}").cast("string")'
)


async def invoke_here(function: Callable[..., Any], *arguments: Any) -> None:
    """Run a function of the program on the loop; a coroutine is awaited."""
    outcome = function(*arguments)
    if inspect.isawaitable(outcome):
        await outcome


class ConsumerParts:
    """Everything that works in the background for one consumer."""

    def __init__(self, settings: ConsumerSettings, *, clock: Clock, randomness: Random, invoke: Invoke) -> None:
        self.settings = settings
        self.clock = clock
        group = f"-{settings.group_id}" if settings.group_id else ""
        self.client_id = settings.client_id or f"barnabas-consumer{group}-{next(_numbers)}"
        with closed_on_failure() as built:
            handed = PluginSettings(settings)
            key = load(settings.key_deserializer, is_key=True, settings=handed, for_reading=True)
            built.append(key)
            value = load(settings.value_deserializer, is_key=False, settings=handed, for_reading=True)
            built.append(value)
            self.interceptors = load_consumer_interceptors(settings)
            built.extend(self.interceptors)
            self._plugins = list(built)
            reporters = load_reporters(settings, "kafka.consumer")
            built.extend(reporters)
            network_metrics = self._assemble(reporters, randomness)
            self._make_drivers(key, value, network_metrics, randomness, invoke)
        #: Why records cannot be had as Arrow, if they cannot.
        self.arrow_refusal = next(
            (
                _NOT_IN_ARROW.format(part=part, given=given)
                for part, given, loaded in (
                    ("value", settings.value_deserializer, value),
                    ("key", settings.key_deserializer, key),
                )
                if loaded is not None
            ),
            None,
        )

    def _assemble(self, reporters: list[MetricsReporter], randomness: Random) -> NetworkMetrics:
        settings, clock = self.settings, self.clock
        self.registry = MetricsRegistry(
            clock.monotonic_ms,
            client_id=self.client_id,
            windows=Windows(settings.metrics_num_samples, settings.metrics_sample_window_ms),
            reporters=reporters,
            level=RecordingLevel[settings.metrics_recording_level],
        )
        tell_app_info(self.registry, package_build(), clock.now_ms())
        self.metrics = ConsumerMetrics(self.registry)
        network_metrics = NetworkMetrics(self.registry, CONSUMER)
        self.metadata = Metadata.of(settings, randomness=randomness)
        self.network = NetworkClient(
            settings,
            self.metadata,
            clock=clock,
            randomness=randomness,
            metrics=network_metrics,
            client_id=self.client_id,
            kind="consumer",
        )
        self.network.on_cluster_id(ClusterResourceListeners([*self._plugins, *reporters]).tell)
        return network_metrics

    def _make_drivers(
        self, key: Any, value: Any, network_metrics: NetworkMetrics, randomness: Random, invoke: Invoke
    ) -> None:
        settings, clock = self.settings, self.clock
        self.subscription = Subscription(ResetStrategy.parse(settings.auto_offset_reset))
        self.topics = SubscribedTopics(
            self.subscription, self.network, exclude_internal=settings.exclude_internal_topics
        )
        reading = ReadingTroubles(self.subscription, self.metadata)
        self.network.cluster_troubles.chosen_topics = reading.topics
        self.network.watch.add(reading)
        self.group: GroupDriver | None = None
        if settings.group_id is not None:
            self.group = GroupDriver(
                self.network,
                self.subscription,
                settings,
                clock=clock,
                randomness=randomness,
                invoke=invoke,
                metrics=GroupMetrics(self.registry),
                on_commit=self.interceptors.on_commit if self.interceptors else None,
            )
        self.fetcher = Fetcher(
            self.network,
            self.subscription,
            settings,
            clock=clock,
            randomness=randomness,
            key_deserializer=None if key is None else deserialize_with(key),
            value_deserializer=None if value is None else deserialize_with(value),
            metrics=FetchMetrics(self.registry, network_metrics),
            committed=self._committed if self.group is not None else None,
        )

    async def _committed(
        self, partitions: Iterable[TopicPartition]
    ) -> Mapping[TopicPartition, OffsetAndMetadata | None]:
        assert self.group is not None
        return await self.group.committed(list(partitions))

    async def start(self) -> None:
        """Begin to work, on the running loop."""
        await self.network.start()
        with speaking(self.network.who):
            self.fetcher.start()

    async def close(self, timeout_ms: float, *, leave_group: bool | None = None) -> None:
        """Commit, leave the group, end the fetches and the connections."""
        with speaking(self.network.who):
            try:
                if self.group is not None:
                    await self.group.close(timeout_ms, leave_group=leave_group)
            finally:
                await self.fetcher.close(int(min(timeout_ms, self.settings.request_timeout_ms)))
                await self.network.close()
                self.dispose()

    def dispose(self) -> None:
        """Close what the program plugged in; all there is to close where there is no loop."""
        close_all(self._plugins)
        self.registry.close()
