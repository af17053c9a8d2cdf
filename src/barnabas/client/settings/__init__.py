"""Settings of producers, consumers and admins."""

from __future__ import annotations

from barnabas.client.settings.admin import ADMIN_SETTINGS, AdminSettings
from barnabas.client.settings.common import ClientSettings
from barnabas.client.settings.consumer import CONSUMER_SETTINGS, ConsumerSettings
from barnabas.client.settings.producer import PRODUCER_SETTINGS, ProducerSettings

__all__ = [
    "ADMIN_SETTINGS",
    "CONSUMER_SETTINGS",
    "PRODUCER_SETTINGS",
    "AdminSettings",
    "ClientSettings",
    "ConsumerSettings",
    "ProducerSettings",
]
