"""All settings of a node in one class, with the rules that hold between them."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Self

from barnabas.base.settings import GivenValue, Problem, Registry, Setting, SettingsWarning, rule
from barnabas.base.settings.units import HOUR_MS, MIB, MINUTE_MS
from barnabas.broker.settings.endpoints import parse_pairs
from barnabas.broker.settings.groups import ConsumerGroupSettings, GroupSettings
from barnabas.broker.settings.listeners import ListenerSettings, NetworkSettings, NodeSettings
from barnabas.broker.settings.log import CleanerSettings, LogDirectorySettings, LogSettings, TopicCreationSettings
from barnabas.broker.settings.metrics import BrokerMetricsSettings
from barnabas.broker.settings.newer_groups import ShareCoordinatorSettings, ShareGroupSettings, StreamsGroupSettings
from barnabas.broker.settings.process_log import ProcessLogSettings
from barnabas.broker.settings.quorum import MetadataLogSettings, QuorumSettings
from barnabas.broker.settings.quotas import QuotaSettings
from barnabas.broker.settings.replication import ReplicationSettings
from barnabas.broker.settings.roles import NO_ROLES, RoleRules
from barnabas.broker.settings.sasl import SaslRules
from barnabas.broker.settings.security import AuthorizationSettings, BrokerSaslSettings, BrokerTlsSettings
from barnabas.broker.settings.tiered import TieredStorageSettings
from barnabas.broker.settings.transactions import TransactionSettings

_LISTENER_PREFIX = re.compile(r"listener\.name\.([^.]+)\.(.+)")
# Settings that each SASL mechanism of a listener may have for itself: listener.name.internal.scram-sha-256.NAME
_PER_MECHANISM = (
    "connections.max.reauth.ms",
    "sasl.jaas.config",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
    "sasl.server.callback.handler.class",
)


class BrokerSettings(
    SaslRules,
    RoleRules,
    NodeSettings,
    ListenerSettings,
    NetworkSettings,
    LogDirectorySettings,
    LogSettings,
    CleanerSettings,
    TopicCreationSettings,
    ReplicationSettings,
    QuorumSettings,
    MetadataLogSettings,
    GroupSettings,
    ConsumerGroupSettings,
    TransactionSettings,
    QuotaSettings,
    BrokerMetricsSettings,
    ProcessLogSettings,
    BrokerTlsSettings,
    BrokerSaslSettings,
    AuthorizationSettings,
    TieredStorageSettings,
    ShareGroupSettings,
    ShareCoordinatorSettings,
    StreamsGroupSettings,
):
    """The settings of a node, be it broker, controller or both.

    Where Kafka lets several settings say one thing, a property tells the outcome: `retention_ms` of the three
    `log.retention.*`, `data_dirs` of `log.dirs` and `log.dir`.
    """

    @property
    def data_dirs(self) -> tuple[str, ...]:
        return self.log_dir if self.log_dirs is None else self.log_dirs

    @property
    def metadata_dir(self) -> str:
        return self.metadata_log_dir or self.data_dirs[0]

    @property
    def retention_ms(self) -> int:
        """How long data is kept: the finest unit that is given wins, any negative value means for ever."""
        if self.log_retention_ms is not None:
            kept_ms = self.log_retention_ms
        elif self.log_retention_minutes is not None:
            kept_ms = self.log_retention_minutes * MINUTE_MS
        else:
            kept_ms = self.log_retention_hours * HOUR_MS
        return max(kept_ms, -1)

    @property
    def roll_ms(self) -> int:
        return self.log_roll_hours * HOUR_MS if self.log_roll_ms is None else self.log_roll_ms

    @property
    def roll_jitter_ms(self) -> int:
        return self.log_roll_jitter_hours * HOUR_MS if self.log_roll_jitter_ms is None else self.log_roll_jitter_ms

    @property
    def flush_interval_ms(self) -> int:
        return (
            self.log_flush_scheduler_interval_ms if self.log_flush_interval_ms is None else self.log_flush_interval_ms
        )

    @property
    def connection_limits(self) -> Mapping[str, int]:
        """How many connections single hosts and addresses may open."""
        pairs = parse_pairs(self.max_connections_per_ip_overrides, "host:count")
        return {host: int(count) for host, count in pairs.items()}

    def for_listener(self, listener: str) -> Self:
        """The settings as they hold for one listener: `listener.name.<name>.x` stands in for `x`."""
        own = type(self).__new__(type(self))
        own.__dict__.update(self.__dict__)
        own.__dict__.pop("_last_changed", None)  # not of these
        prefix = f"listener.name.{listener.lower()}."
        for name, value in self.__dict__["_prefixed"].items():
            plain = self._declared.get(name.removeprefix(prefix))
            if name.startswith(prefix) and plain is not None:
                own.__dict__[plain.attribute] = value
        return own

    @classmethod
    def _setting_for(cls, name: str) -> Setting | None:
        match = _LISTENER_PREFIX.fullmatch(name) if name.startswith("listener.name.") else None
        if match is None:
            return cls._declared.get(name)
        plain = match[2]
        _, _, without_mechanism = plain.partition(".")
        if without_mechanism in _PER_MECHANISM and plain not in cls._declared:
            plain = without_mechanism
        return cls._declared.get(plain)

    @classmethod
    def _adjust(cls, values: dict[str, Any], given: Mapping[str, GivenValue]) -> Iterator[SettingsWarning]:
        """node.id and broker.id are two names of one number."""
        yield from super()._adjust(values, given)
        if "node_id" not in values and values["broker_id"] >= 0:
            values["node_id"] = values["broker_id"]
        elif "broker.id" not in given and "node_id" in values:
            values["broker_id"] = values["node_id"]

    @classmethod
    def _missing(cls, settings: list[Setting]) -> list[Problem]:
        """Without roles a file is one for another kind of Kafka, and whatever else it lacks follows from that."""
        if any(each.name == "process.roles" for each in settings):
            return [Problem(("process.roles",), NO_ROLES)]
        return super()._missing(settings)

    @rule("node_id", "broker_id")
    def _ids_agree(self) -> str | None:
        return "both name this node, so they must be equal" if self.node_id != self.broker_id else None

    @rule("max_connections_per_ip", "max_connections_per_ip_overrides")
    def _somebody_may_connect(self) -> str | None:
        try:
            limits = self.connection_limits
        except ValueError as error:
            return f"the limits must look like host:count ({error})"
        return "nobody could connect: allow some addresses" if self.max_connections_per_ip == 0 and not limits else None

    @rule("queued_max_request_bytes", "socket_request_max_bytes")
    def _one_request_fits_the_queue(self) -> str | None:
        if 0 < self.queued_max_request_bytes < self.socket_request_max_bytes:
            return "the queue must have room for the largest request"
        return None

    @rule("connection_failed_authentication_delay_ms", "connections_max_idle_ms")
    def _refusals_are_sent_in_time(self) -> str | None:
        if 0 <= self.connections_max_idle_ms <= self.connection_failed_authentication_delay_ms:
            return "the delay must be shorter than the time after which an idle connection is closed"
        return None

    @rule("log_retention_ms", "log_retention_minutes", "log_retention_hours")
    def _retention_is_not_zero(self) -> str | None:
        return "the time must be -1, for ever, or at least 1" if self.retention_ms == 0 else None

    @rule("log_roll_ms", "log_roll_hours")
    def _segments_live(self) -> str | None:
        return "the time must be at least 1" if self.roll_ms < 1 else None

    @rule("log_roll_jitter_ms", "log_roll_jitter_hours")
    def _jitter_is_not_negative(self) -> str | None:
        return "the time must be at least 0" if self.roll_jitter_ms < 0 else None

    @rule("offsets_topic_segment_bytes", "transaction_state_log_segment_bytes")
    def _internal_topics_can_be_created(self) -> str | None:
        if min(self.offsets_topic_segment_bytes, self.transaction_state_log_segment_bytes) < MIB:
            return f"no topic may have segments of less than {MIB} bytes, so these could never be created"
        return None

    @rule("cordoned_log_dirs", "log_dirs", "log_dir")
    def _cordoned_dirs_exist(self) -> str | None:
        cordoned = set(self.cordoned_log_dirs or ())
        if "*" in cordoned:
            return "* already means all directories: give it alone" if len(cordoned) > 1 else None
        missing = sorted(cordoned.difference(self.data_dirs))
        return f"{', '.join(missing)} is not a directory of this node" if missing else None

    @rule("log_cleaner_dedupe_buffer_size", "log_cleaner_threads")
    def _cleaner_has_memory(self) -> str | None:
        if self.log_cleaner_dedupe_buffer_size // max(self.log_cleaner_threads, 1) <= MIB:
            return "the cleaner needs more than 1 MiB per thread"
        return None

    @rule("replica_fetch_wait_max_ms", "replica_socket_timeout_ms")
    def _fetches_end_before_the_socket(self) -> str | None:
        if self.replica_fetch_wait_max_ms > self.replica_socket_timeout_ms:
            return "the wait must not be longer than the timeout of the socket"
        return None

    @rule("replica_fetch_wait_max_ms", "replica_lag_time_max_ms")
    def _waiting_is_not_lagging(self) -> str | None:
        if self.replica_fetch_wait_max_ms > self.replica_lag_time_max_ms:
            return "the wait must not be longer than the lag that is tolerated, or replicas leave for waiting"
        return None

    @rule("broker_heartbeat_interval_ms", "broker_session_timeout_ms")
    def _heartbeats_fit_into_a_session(self) -> str | None:
        if self.broker_heartbeat_interval_ms >= self.broker_session_timeout_ms:
            return "heartbeats must come more often than the session times out"
        return None


BROKER_SETTINGS = Registry("broker", BrokerSettings)
