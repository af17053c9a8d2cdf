"""Metrics: what is measured, who is told, and where they can be read."""

from __future__ import annotations

import re
from typing import Final

from barnabas.base.settings import (
    LOW,
    MEDIUM,
    NO_EFFECT,
    NOT_BUILT,
    Int,
    Long,
    Names,
    Password,
    Plugin,
    Settings,
    setting,
)
from barnabas.base.settings.allowed import Allowed, at_least, items, one_of
from barnabas.base.settings.units import MIB

#: Told as Kafka tells it.
_JMX: Final = "org.apache.kafka.common.metrics.JmxReporter"
_ADDRESS: Final = re.compile(r"(?:SSL://)?(?:\[[0-9a-fA-F:%.]+\]|[^:\[\]/]*):([0-9]{1,5})")
_HIGHEST_PORT: Final = 65535


def _is_address(text: str) -> bool:
    found = _ADDRESS.fullmatch(text)
    return found is not None and int(found[1]) <= _HIGHEST_PORT


class BrokerMetricsSettings(Settings, title="Metrics", importance=LOW):
    """Metrics are offered to Prometheus, and to plug-ins. What begins with metrics.listener is ours."""

    metrics_listener: str | None = setting(
        "HOST:PORT at which /metrics, /healthz and /readyz are, over HTTP; SSL://HOST:PORT for HTTPS, with ssl.* or "
        "listener.name.metrics.ssl.*. Null for none.",
        default=None,
        allowed=Allowed(f"HOST:PORT or SSL://HOST:PORT, with a port of 0 to {_HIGHEST_PORT}", _is_address),
        importance=MEDIUM,
    )
    metrics_listener_user: str = setting("Who may read /metrics, where there is a password.", default="metrics")
    metrics_listener_password: Password | None = setting(
        "With it /metrics asks for it (basic authentication); /healthz and /readyz tell everybody.", default=None
    )
    metrics_requests_enable: bool = setting(
        "Whether requests are counted and timed; without, what that costs can be measured.", default=True, internal=True
    )
    metrics_num_samples: Int = setting("How many samples a rate is computed from.", default=2, allowed=at_least(1))
    metrics_sample_window_ms: Long = setting("How long one sample is.", default=30_000, allowed=at_least(1))
    metrics_recording_level: str = setting(
        "From which level on metrics are recorded: with DEBUG also how each part of the time of requests is "
        "distributed.",
        default="INFO",
        allowed=one_of("INFO", "DEBUG", "TRACE"),
    )
    metric_reporters: tuple[Plugin, ...] = setting(
        "Plug-ins that report metrics; Java's own does nothing here.",
        default=(_JMX,),
        builtin={_JMX: _JMX},
        allowed=items(),
    )
    kafka_metrics_reporters: Names = setting(
        "Java classes that report the older metrics.", default=(), allowed=items(), state=NO_EFFECT
    )
    kafka_metrics_polling_interval_secs: Int = setting(
        "How often metrics are collected for reporters, where there are any.", default=10, allowed=at_least(1)
    )
    telemetry_max_bytes: Int = setting(
        "How much a client may push in one telemetry request.",
        default=MIB,
        allowed=at_least(1),
        state=NOT_BUILT,
        refused=False,
    )
