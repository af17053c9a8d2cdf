"""Connections, what waits, how busy the event loop is, and the node as a whole."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterator
from typing import Final

from barnabas._version import package_build
from barnabas.base.metrics.exposition import Exposition, labels
from barnabas.broker.lifecycle import BrokerState
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.broker.request_names import FETCH_FOLLOWER_SLOT
from barnabas.net import Server

_SOCKETS: Final = "kafka.server:type=socket-server-metrics,listener=*,networkProcessor=*#"
_SERVER: Final = "kafka.network:type=SocketServer,name="
_CHANNEL: Final = "kafka.network:type=RequestChannel,name="
#: So many client libraries are told apart; the rest are together.
_MOST_SOFTWARE: Final = 50
_CONNECTIONS_PER_STEP: Final = 200
#: Each may have many connections that wait.
_CLIENTS_PER_STEP: Final = 10
#: What stands in front of each request.
_SIZE_BYTES: Final = 4

CONNECTIONS: Final = of_mbean(f"{_SOCKETS}connection-count", "gauge", "Open connections.")
CREATED: Final = of_mbean(f"{_SOCKETS}connection-creation-total", "counter", "Connections that came.")
CLOSED: Final = of_mbean(f"{_SOCKETS}connection-close-total", "counter", "Connections that have ended.")
REFUSED_CONNECTIONS: Final = own(
    "connections_refused_total",
    "counter",
    "Those that were not let in: over a limit (max.connections…), or by the quota of their address.",
)
EXPIRED: Final = of_mbean(
    f"{_SOCKETS}expired-connections-killed-count", "counter", "Those closed because nothing happened on them."
)
INCOMING: Final = of_mbean(f"{_SOCKETS}incoming-byte-total", "counter", "Bytes of requests that were answered.")
OUTGOING: Final = of_mbean(f"{_SOCKETS}outgoing-byte-total", "counter", "Bytes of their answers.")
REQUESTS: Final = of_mbean(f"{_SOCKETS}request-total", "counter", "Requests that were answered.")
AUTHENTICATED: Final = of_mbean(f"{_SOCKETS}successful-authentication-total", "counter", "Peers that are known.")
REFUSED: Final = of_mbean(f"{_SOCKETS}failed-authentication-total", "counter", "Peers that failed to be.")
SOFTWARE: Final = of_mbean(
    "kafka.server:type=socket-server-metrics,clientSoftwareName=*,clientSoftwareVersion=*,listener=*,"
    "networkProcessor=*#connections",
    "gauge",
    "Open connections by the client's library.",
)
QUEUE: Final = of_mbean(f"{_CHANNEL}RequestQueueSize", "gauge", "Requests that were not taken up yet.")
MEMORY: Final = of_mbean(f"{_SERVER}MemoryPoolUsed", "gauge", "Memory of requests on their way in or in process.")
MEMORY_LEFT: Final = of_mbean(f"{_SERVER}MemoryPoolAvailable", "gauge", "What is left of it.")
THROTTLED: Final = own(
    "throttled_ms_total",
    "counter",
    "How long quotas had a client wait until now, all its connections together; of the clients that waited last.",
)
THROTTLE_LEFT: Final = own(
    "throttle_left_ms",
    "gauge",
    "How long a client waits yet for its quota, with the last of its connections; 0 when those have ended.",
)
OUTGOING_HELD: Final = own("answers_bytes", "gauge", "Memory of answers that were not taken yet.")
STATE: Final = of_mbean("kafka.server:type=KafkaServer,name=BrokerState", "gauge", "3 is running, as Kafka counts.")
CLUSTER: Final = of_mbean("kafka.server:type=KafkaServer,name=ClusterId", "gauge", "1, with the id as a label.")
INFO: Final = of_mbean("kafka.server:type=app-info#version", "gauge", "1, with the version as a label.")
COMMIT: Final = of_mbean(
    "kafka.server:type=app-info#commit-id",
    "gauge",
    "1, with the commit of the build as a label; unknown unless it was installed from a repository.",
)
FAMILIES: Final = (
    *(
        CONNECTIONS,
        CREATED,
        CLOSED,
        REFUSED_CONNECTIONS,
        EXPIRED,
        INCOMING,
        OUTGOING,
        REQUESTS,
        AUTHENTICATED,
        REFUSED,
        SOFTWARE,
    ),
    *(QUEUE, MEMORY, MEMORY_LEFT, OUTGOING_HELD, THROTTLED, THROTTLE_LEFT, STATE, CLUSTER, INFO, COMMIT),
)


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    server = parts.server
    created, closed = server.connection_counts
    for listener, count in created.items():
        label = labels(listener=listener)
        ended = closed.get(listener, 0)
        out.add(CONNECTIONS, count - ended, label)
        out.add(CREATED, count, label)
        out.add(CLOSED, ended, label)
    for reason, count in server.refused_counts.items():
        out.add(REFUSED_CONNECTIONS, count, labels(reason=reason))
    out.add(EXPIRED, server.expired_count)
    out.add(AUTHENTICATED, server.authentications.succeeded_count)
    out.add(REFUSED, server.authentications.failed_count)
    _add_traffic(parts, out)
    out.add(QUEUE, server.waiting_count)
    out.add(MEMORY, server.request_bytes)
    out.add(MEMORY_LEFT, max(0, server.limits.request_memory_bytes - server.request_bytes))
    out.add(OUTGOING_HELD, server.outgoing_bytes)
    yield
    yield from _add_software(server, out)
    yield from _add_throttled(server, out)
    state = BrokerState.NOT_RUNNING if parts.broker is None else parts.broker.state
    out.add(STATE, state)
    out.add(CLUSTER, 1, labels(cluster_id=parts.cluster_id))
    build = package_build()
    out.add(INFO, 1, labels(version=build.version, node_id=parts.node_id))
    out.add(COMMIT, 1, labels(commit_id=build.commit))
    yield


def _add_software(server: Server, out: Exposition) -> Iterator[None]:
    software: Counter[tuple[str, str, str]] = Counter()
    for number, each in enumerate(server.connections, 1):
        if not each.is_closed:  # while others had a turn
            software[each.listener, *each.client_software] += 1
        if number % _CONNECTIONS_PER_STEP == 0:
            yield
    for (listener, name, version), count in software.most_common(_MOST_SOFTWARE):
        out.add(SOFTWARE, count, labels(clientSoftwareName=name, clientSoftwareVersion=version, listener=listener))
    yield


def _add_throttled(server: Server, out: Exposition) -> Iterator[None]:
    clock = asyncio.get_running_loop().time
    for number, client in enumerate(server.throttled.clients(), 1):
        told = server.throttled.told(client, clock())
        if told is not None:
            label = labels(principal=told.principal, client_id=told.client_id)
            out.add(THROTTLED, told.total_ms, label)
            out.add(THROTTLE_LEFT, round(told.left_ms), label)
        if number % _CLIENTS_PER_STEP == 0:
            yield


def _add_traffic(parts: NodeParts, out: Exposition) -> None:
    meter = parts.server.meter
    requests = incoming = outgoing = 0
    for key in meter.keys:
        counts = meter.counts_of(key)
        if counts is not None and key < FETCH_FOLLOWER_SLOT:
            requests += counts[0]
            incoming += counts[1] + _SIZE_BYTES * counts[0]
            outgoing += counts[3]
    out.add(REQUESTS, requests)
    out.add(INCOMING, incoming)
    out.add(OUTGOING, outgoing)
