"""Metrics at work in a node: its listener for programs that watch it, its reporters, and what both are told."""

from __future__ import annotations

import re
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Final

from barnabas.base.errors import known
from barnabas.base.log_context import logger
from barnabas.base.metrics.registry import MetricsRegistry, RecordingLevel
from barnabas.base.metrics.reporters import JMX, MetricsContext, load_reporters
from barnabas.base.metrics.samples import Windows
from barnabas.base.plugins import ClusterResourceListeners
from barnabas.broker.metrics.node_metrics import NodeMetrics
from barnabas.broker.metrics.reporting import Reporting
from barnabas.broker.metrics.sources import NodeParts
from barnabas.broker.settings import BrokerSettings
from barnabas.net.errors import address_text
from barnabas.net.http_listener import HttpAnswer, HttpListener
from barnabas.net.tls.listening import ListenerTls

_log = logger("barnabas.broker")

_ADDRESS: Final = re.compile(r"(?:SSL://)?\[?([^\]]*?)\]?:([0-9]+)")
_HEALTH, _READY, _METRICS = "/healthz", "/readyz", "/metrics"


class MetricsServer:
    """`parts` tells what there is of the node now, `waits_for` what keeps it from serving, None if nothing does."""

    def __init__(
        self,
        settings: BrokerSettings,
        parts: Callable[[], NodeParts],
        waits_for: Callable[[], str | None],
        tls: ListenerTls | None,
    ) -> None:
        self._settings = settings
        self._parts = parts
        self._waits_for = waits_for
        self._tls = tls
        self._started = AsyncExitStack()
        self._metrics: NodeMetrics | None = None
        self.registry: MetricsRegistry | None = None
        #: Where it listens, once it does.
        self.address: tuple[str, int] | None = None

    @property
    def node_metrics(self) -> NodeMetrics:
        return known(self._metrics, "it was asked for, and started")

    @property
    def is_wanted(self) -> bool:
        """Whether anybody asked for metrics: without, nothing is measured but what is counted anyway."""
        return self._settings.metrics_listener is not None or any(
            each.name not in JMX for each in self._settings.metric_reporters
        )

    @property
    def url(self) -> str | None:
        """Where it listens, as a person is told."""
        if self.address is None:
            return None
        scheme, (host, port) = "http" if self._tls is None else "https", self.address
        return f"{scheme}://{address_text(host, port)}{_METRICS}"

    async def start(self, node_id: int, cluster_id: str) -> None:
        if not self.is_wanted:
            return
        try:
            await self._start(node_id, cluster_id)
        except BaseException:
            await self.stop()
            raise

    async def _start(self, node_id: int, cluster_id: str) -> None:
        settings, parts = self._settings, self._parts()
        names = {"kafka.cluster.id": cluster_id, "kafka.node.id": str(node_id)}
        context = MetricsContext.of("kafka.server", settings.extras, names)
        reporters = load_reporters(settings, settings.metric_reporters, context)
        ClusterResourceListeners(reporters).tell(cluster_id)
        registry = self.registry = MetricsRegistry(
            parts.runtime.clock.monotonic_ms,
            client_id=None,
            windows=Windows(settings.metrics_num_samples, settings.metrics_sample_window_ms),
            level=RecordingLevel[settings.metrics_recording_level],
        )
        self._started.callback(registry.close)
        self._metrics = NodeMetrics(self._parts, registry)
        self._started.callback(self._metrics.stop)
        if reporters:
            interval_s = settings.kafka_metrics_polling_interval_secs
            reporting = Reporting(self._metrics, registry, reporters, interval_s)
            self._started.push_async_callback(reporting.stop)
            await reporting.start()
        if settings.metrics_listener is not None:
            await self._listen(settings.metrics_listener, self._metrics)

    async def _listen(self, address: str, metrics: NodeMetrics) -> None:
        found = known(_ADDRESS.fullmatch(address), "the setting was checked")
        host, port = found[1], int(found[2])
        password = self._settings.metrics_listener_password
        listener = HttpListener(
            {_METRICS: metrics.page, _HEALTH: self._health, _READY: self._ready},
            user=self._settings.metrics_listener_user,
            password=None if password is None else password.reveal(),
            open_paths=frozenset({_HEALTH, _READY}),
            tls=self._tls,
        )
        self._started.push_async_callback(listener.stop)
        self.address = (host, await listener.start(host, port))
        _log.info("Metrics are at %s", self.url)

    async def _health(self) -> HttpAnswer:
        return HttpAnswer(200, b"alive\n")

    async def _ready(self) -> HttpAnswer:
        waits_for = self._waits_for()
        return HttpAnswer(200, b"ready\n") if waits_for is None else HttpAnswer(503, f"{waits_for}\n".encode())

    async def stop(self) -> None:
        await self._started.aclose()
