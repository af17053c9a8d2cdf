"""How much a server takes on, and how patient a channel is.

Plain values: whoever knows the node's settings fills them in, also while it runs.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.quotas import DEFAULT_WINDOW, QuotaWindow
from barnabas.wire.frames import MAX_FRAME_BYTES

INT_MAX: Final = 2**31 - 1
KIB: Final = 1024
MIB: Final = 1024 * KIB

#: What is received at once, and the largest frame of the small ones (see `memory`).
SMALL_FRAME_BYTES: Final = 64 * KIB
#: Frames up to this size never wait for memory: heartbeats live when it is short.
TINY_FRAME_BYTES: Final = 4 * KIB
#: The largest frame of the ordinary ones, and how far the memory of a frame may be ahead of what arrived of it.
ORDINARY_FRAME_BYTES: Final = MIB
#: Responses up to this size are put in one piece and leave together at the end of a turn; larger ones are not copied.
JOINED_BYTES: Final = 16 * KIB
#: What may be read of later requests while one is in process.
READ_AHEAD_BYTES: Final = 16 * KIB
#: Whoever takes less of a response than this between two looks is idle.
PROGRESS_BYTES: Final = 64 * KIB


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerLimits:
    """What one listener takes, within what the node takes."""

    max_connections: int = INT_MAX
    max_connection_creation_rate: int = INT_MAX


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerLimits:
    """Kafka's limits under Kafka's names, and a few of our own.

    `queued_max_request_bytes` is -1 for "no limit" in Kafka, which then takes as much as its heap; here it means the
    larger of 512 MiB and twice the largest request. Overrides are by address: `host_names` finds that of a host.
    """

    socket_request_max_bytes: int = 100 * MIB
    sasl_server_max_receive_size: int = 512 * KIB
    connection_failed_authentication_delay_ms: int = 100
    queued_max_requests: int = 500
    queued_max_request_bytes: int = -1
    max_connections: int = INT_MAX
    max_connections_per_ip: int = INT_MAX
    max_connections_per_ip_overrides: Mapping[str, int] = field(default_factory=dict)
    max_connection_creation_rate: int = INT_MAX
    connections_max_idle_ms: int = 600_000
    socket_listen_backlog_size: int = 50
    listeners: Mapping[str, ListenerLimits] = field(default_factory=dict)
    #: Over which the pace of new connections is measured; it stays as it was at the start.
    quota_window: QuotaWindow = DEFAULT_WINDOW

    #: Responses that are being made or that peers have not taken yet, over all connections.
    outgoing_max_bytes: int = 256 * MIB
    #: Over how long the pace of peers is measured who hold memory that others wait for: so long others wait.
    stall_timeout_ms: int = 3000
    #: How long requests are dispatched before sockets are looked at again.
    dispatch_budget_ms: float = 2.0
    #: How long a TLS handshake may take.
    handshake_timeout_ms: int = 10_000
    #: Connections that wait for a free place or their turn; more are closed. Nodes of the cluster, and those who came
    #: too fast and are kept until they are closed, are as many by themselves.
    max_waiting_connections: int = 1000

    @property
    def request_memory_bytes(self) -> int:
        """The bound over all requests that are being received or processed."""
        if self.queued_max_request_bytes > 0:
            return self.queued_max_request_bytes
        return max(512 * MIB, 2 * self.socket_request_max_bytes)

    @property
    def cluster_memory_bytes(self) -> int:
        """The same for nodes of the cluster, who have a bound of their own: large requests come one at a time."""
        return self.socket_request_max_bytes

    def for_listener(self, name: str) -> ListenerLimits:
        return self.listeners.get(name, _NO_LISTENER_LIMITS)

    def connections_of(self, address: str) -> int:
        """How many connections one address may have."""
        return self.max_connections_per_ip_overrides.get(address, self.max_connections_per_ip)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChannelLimits:
    """Under Kafka's names, with the defaults of its clients, and two of our own.

    Responses up to `trusted_response_bytes` get their memory at once when they are announced; of larger ones only a
    mebibyte more than what arrived. `connections_max_idle_ms` below 0 means that silence is never too long; buffers of
    -1 bytes are what the system makes them.
    """

    request_timeout_ms: int = 30_000
    max_in_flight_requests: int = 5
    reconnect_backoff_ms: int = 50
    reconnect_backoff_max_ms: int = 1000
    socket_connection_setup_timeout_ms: int = 10_000
    socket_connection_setup_timeout_max_ms: int = 30_000
    connections_max_idle_ms: int = -1
    send_buffer_bytes: int = -1
    receive_buffer_bytes: int = -1
    max_response_bytes: int = MAX_FRAME_BYTES
    trusted_response_bytes: int = 0


_NO_LISTENER_LIMITS: Final = ListenerLimits()
