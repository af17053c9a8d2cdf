"""What the node's settings mean for its parts."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from barnabas.base.quotas import QuotaWindow
from barnabas.broker.configs.sasl_options import SaslParts
from barnabas.broker.node_tls import NodeTls
from barnabas.broker.settings import BrokerSettings
from barnabas.net import ListenerLimits, ListenerSpec, ServerLimits
from barnabas.net.channel import ChannelLimits
from barnabas.net.host_names import address_of
from barnabas.storage.cleaner import CleanerOptions
from barnabas.storage.manager import LogManagerOptions

_BACKLOG: Final = 1024


def server_limits(settings: BrokerSettings, address_of_host: Callable[[str], str | None] = address_of) -> ServerLimits:
    """Limits of hosts hold for the addresses that are known to be theirs."""
    overrides = {address_of_host(host): count for host, count in settings.connection_limits.items()}
    return ServerLimits(
        socket_request_max_bytes=settings.socket_request_max_bytes,
        sasl_server_max_receive_size=settings.sasl_server_max_receive_size,
        connection_failed_authentication_delay_ms=settings.connection_failed_authentication_delay_ms,
        queued_max_requests=settings.queued_max_requests,
        queued_max_request_bytes=settings.queued_max_request_bytes,
        max_connections=settings.max_connections,
        max_connections_per_ip=settings.max_connections_per_ip,
        max_connections_per_ip_overrides={
            address: count for address, count in overrides.items() if address is not None
        },
        max_connection_creation_rate=settings.max_connection_creation_rate,
        connections_max_idle_ms=settings.connections_max_idle_ms,
        socket_listen_backlog_size=_backlog(settings),
        quota_window=QuotaWindow(settings.quota_window_num, settings.quota_window_size_seconds * 1000),
        listeners={each.listener: _listener_limits(settings, each.listener) for each in settings.endpoints},
    )


def _backlog(settings: BrokerSettings) -> int:
    """Kafka has threads that do nothing but accept; one event loop accepts between requests, so bursts must wait."""
    name = "socket.listen.backlog.size"
    return settings.socket_listen_backlog_size if settings.is_given(name) else _BACKLOG


def _listener_limits(settings: BrokerSettings, listener: str) -> ListenerLimits:
    own = settings.for_listener(listener)
    return ListenerLimits(
        max_connections=own.max_connections, max_connection_creation_rate=own.max_connection_creation_rate
    )


def listener_specs(settings: BrokerSettings, sasl: SaslParts, tls: NodeTls) -> list[ListenerSpec]:
    """The listeners of controllers are for nodes of the cluster, so clients must not keep them waiting."""
    return [
        ListenerSpec(
            each.listener,
            each.host,
            each.port,
            is_privileged=each.listener in settings.controller_listeners,
            sasl=sasl.listener(each.listener),
            tls=tls.of_listener(each.listener),
        )
        for each in settings.endpoints
    ]


def channel_limits(settings: BrokerSettings) -> ChannelLimits:
    """How patient the nodes of a cluster are with each other."""
    return ChannelLimits(
        request_timeout_ms=max(1, settings.controller_quorum_request_timeout_ms),
        socket_connection_setup_timeout_ms=settings.socket_connection_setup_timeout_ms,
        socket_connection_setup_timeout_max_ms=settings.socket_connection_setup_timeout_max_ms,
    )


def forwarding_limits(settings: BrokerSettings) -> ChannelLimits:
    """How long a broker waits for what it has forwarded: what is asked again may be refused, as it was done by then."""
    return replace(channel_limits(settings), request_timeout_ms=settings.controller_socket_timeout_ms)


def heartbeat_limits(settings: BrokerSettings) -> ChannelLimits:
    """How long a broker waits until it asks again for itself: once more before its session ends."""
    limits = channel_limits(settings)
    return replace(limits, request_timeout_ms=max(limits.request_timeout_ms, settings.broker_session_timeout_ms // 2))


def log_options(settings: BrokerSettings) -> LogManagerOptions:
    return LogManagerOptions(
        log_flush_offset_checkpoint_interval_ms=settings.log_flush_offset_checkpoint_interval_ms,
        log_flush_start_offset_checkpoint_interval_ms=settings.log_flush_start_offset_checkpoint_interval_ms,
        log_flush_scheduler_interval_ms=settings.log_flush_scheduler_interval_ms,
        replica_high_watermark_checkpoint_interval_ms=settings.replica_high_watermark_checkpoint_interval_ms,
        log_retention_check_interval_ms=settings.log_retention_check_interval_ms,
        producer_id_expiration_check_interval_ms=settings.producer_id_expiration_check_interval_ms,
        producer_id_expiration_ms=settings.producer_id_expiration_ms,
        log_cleaner_enable=settings.log_cleaner_enable,
        log_initial_task_delay_ms=settings.log_initial_task_delay_ms,
    )


def cleaner_options(settings: BrokerSettings) -> CleanerOptions:
    return CleanerOptions(
        log_cleaner_dedupe_buffer_size=settings.log_cleaner_dedupe_buffer_size,
        log_cleaner_io_buffer_load_factor=settings.log_cleaner_io_buffer_load_factor,
        log_cleaner_backoff_ms=settings.log_cleaner_backoff_ms,
    )
