"""What topics get when they say nothing: each topic setting knows the broker setting that it follows."""

from __future__ import annotations

from barnabas.broker.settings.broker import BrokerSettings
from barnabas.storage.settings import TOPIC_SETTINGS


def topic_defaults(broker: BrokerSettings) -> dict[str, object]:
    """The broker's defaults under the names of the topic settings, as the first source for `TopicSettings.load`."""
    joined = {
        "log.retention.ms": broker.retention_ms,
        "log.roll.ms": broker.roll_ms,
        "log.roll.jitter.ms": broker.roll_jitter_ms,
        "log.flush.interval.ms": broker.flush_interval_ms,
    }
    return {
        name: joined[server_name] if server_name in joined else broker.value_of(server_name)
        for name, setting in TOPIC_SETTINGS.items()
        if (server_name := setting.server_default) is not None
    }
