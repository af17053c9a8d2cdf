"""What the controller must know of the settings of its node."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from types import MappingProxyType
from typing import Final, NamedTuple

from barnabas.base.quotas import DEFAULT_WINDOW, QuotaWindow

#: The largest number of records that one request may lead to.
MAX_RECORDS_PER_REQUEST: Final = 10_000


class ConfigSource(IntEnum):
    """Where the value of a setting comes from; the numbers are the protocol's. The lower one wins."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    DYNAMIC_BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class TopicDefault(NamedTuple):
    """What a topic that says nothing gets for one of its settings, as text, and why."""

    value: str
    source: ConfigSource


@dataclass(frozen=True, slots=True)
class TokenOptions:
    """Settings of the controller's node. Without a key there are no tokens."""

    secret_key: str | None = field(default=None, repr=False)
    max_lifetime_ms: int = 7 * 24 * 3600 * 1000
    expiry_time_ms: int = 24 * 3600 * 1000


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerOptions:
    """Settings of the controller's node, by their names there. `topic_defaults` is keyed by the topic's setting."""

    cluster_id: str = ""
    num_partitions: int = 1
    default_replication_factor: int = 1
    delete_topic_enable: bool = True
    topic_defaults: Mapping[str, TopicDefault] = field(default_factory=lambda: MappingProxyType({}))
    broker_session_timeout_ms: int = 9_000
    #: As it stands in the node's file.
    min_insync_replicas: int = 1
    tokens: TokenOptions = TokenOptions()
    #: Over which the rate of changes is measured that clients ask for.
    quota_window: QuotaWindow = DEFAULT_WINDOW
