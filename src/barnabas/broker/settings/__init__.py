"""Settings of a node, one file per concern, joined in `BrokerSettings`."""

from __future__ import annotations

from barnabas.broker.settings.broker import BROKER_SETTINGS, BrokerSettings
from barnabas.broker.settings.endpoints import Endpoint
from barnabas.broker.settings.topic_defaults import topic_defaults

__all__ = ["BROKER_SETTINGS", "BrokerSettings", "Endpoint", "topic_defaults"]
