"""The admin for asyncio: all calls in one class."""

from __future__ import annotations

import warnings
from itertools import count
from random import Random
from types import TracebackType
from typing import Self, Unpack

from barnabas._version import package_build
from barnabas.base.runtime import Clock, SystemClock
from barnabas.base.system_runtime import new_randomness
from barnabas.client.admin.acls import AclCalls
from barnabas.client.admin.cluster import ClusterCalls
from barnabas.client.admin.configs import ConfigCalls
from barnabas.client.admin.driver import AdminApiDriver
from barnabas.client.admin.groups import GroupCalls
from barnabas.client.admin.offsets import OffsetCalls
from barnabas.client.admin.quorum import QuorumCalls
from barnabas.client.admin.quotas import QuotaCalls
from barnabas.client.admin.reassignments import ReassignmentCalls
from barnabas.client.admin.scram import ScramCalls
from barnabas.client.admin.share_groups import ShareGroupCalls
from barnabas.client.admin.tokens import TokenCalls
from barnabas.client.admin.topics import TopicCalls
from barnabas.client.admin.transactions import TransactionCalls
from barnabas.client.arguments import ConfigOrServers, settings_sources
from barnabas.client.core.metadata import Metadata
from barnabas.client.core.metrics import (
    ADMIN,
    MetricsRegistry,
    NetworkMetrics,
    RecordingLevel,
    Windows,
    prometheus_text,
    tell_app_info,
)
from barnabas.client.network_client import NetworkClient
from barnabas.client.other_methods import ADMIN_METHODS, ExplainsOtherMethods
from barnabas.client.plugins import ClusterResourceListeners, closed_on_failure, load_reporters
from barnabas.client.settings import AdminSettings
from barnabas.client.settings.keywords import AdminKeywords

_numbers = count(1)


class Admin(
    TopicCalls,
    ConfigCalls,
    GroupCalls,
    ShareGroupCalls,
    OffsetCalls,
    ClusterCalls,
    ReassignmentCalls,
    AclCalls,
    QuotaCalls,
    ScramCalls,
    TransactionCalls,
    QuorumCalls,
    TokenCalls,
    ExplainsOtherMethods,
):
    """Administration of a cluster.

        async with Admin(bootstrap_servers="127.0.0.1:9092") as admin:
            await admin.create_topics([NewTopic("clicks", num_partitions=6, configs={"retention.ms": 3_600_000})])
            described = await admin.describe_topics(["clicks"])
            offsets = await admin.list_offsets({TopicPartition("clicks", 0): OffsetSpec.latest()})

    Settings go by Kafka's names: as keywords with underscores, or in a dict with dots. The first use connects.

    A call about one thing raises the error of that thing: `BrokerError` with the code that the broker answered,
    `UnsupportedRequestError` where the broker is too old, `ClientTimeoutError` where trying again did not help within
    `timeout` seconds (`default.api.timeout.ms` if that is not given), `NoBrokersError` where nobody answers. A call
    about several things returns results by key, or raises `KeyedError` with errors and results by key.

    What has changed hands (controllers, coordinators, leaders) is followed. A change whose connection broke is asked
    for again; it may have been made the first time, and if the second fails, its error says so.
    """

    _other_methods = ADMIN_METHODS

    def __init__(
        self,
        config: ConfigOrServers | None = None,
        /,
        *,
        clock: Clock | None = None,
        randomness: Random | None = None,
        **settings: Unpack[AdminKeywords],
    ) -> None:
        """`clock` and `randomness` are for simulations."""
        self.settings = AdminSettings.load(*settings_sources(config, settings, "Admin"), **settings)
        self.client_id = self.settings.client_id or f"barnabas-admin-{next(_numbers)}"
        clock, randomness = clock or SystemClock(), randomness or new_randomness()
        with closed_on_failure() as built:
            reporters = load_reporters(self.settings, "kafka.admin.client")
            built.extend(reporters)
            self._registry = MetricsRegistry(
                clock.monotonic_ms,
                client_id=self.client_id,
                windows=Windows(self.settings.metrics_num_samples, self.settings.metrics_sample_window_ms),
                reporters=reporters,
                level=RecordingLevel[self.settings.metrics_recording_level],
            )
            tell_app_info(self._registry, package_build(), clock.now_ms())
            network = NetworkClient(
                self.settings,
                Metadata.of(self.settings, randomness=randomness),
                clock=clock,
                randomness=randomness,
                metrics=NetworkMetrics(self._registry, ADMIN),
                client_id=self.client_id,
                kind="admin",
            )
            network.on_cluster_id(ClusterResourceListeners(reporters).tell)
            self._driver = AdminApiDriver(self.settings, network, randomness, network.watch)
            network.watch.add(self._driver)

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the admin tells about itself, under Kafka's names: by group, then by metric with its tags."""
        return self._registry.as_dict()

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return prometheus_text(self._registry.metrics())

    async def start(self) -> None:
        """Begin to connect; the first call does this by itself. Nobody is waited for."""
        await self._driver.start()

    async def close(self) -> None:
        """Close all connections. Calls that are under way end with an error. Closing again does nothing."""
        try:
            await self._driver.close()
        finally:
            self._registry.close()

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.close()

    def __del__(self) -> None:
        driver = getattr(self, "_driver", None)
        if driver is not None and driver.is_open:
            warnings.warn(f"{self.client_id} was not closed", ResourceWarning, source=self, stacklevel=2)
