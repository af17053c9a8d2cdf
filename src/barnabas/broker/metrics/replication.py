"""Who is in sync, who waits, which sessions there are: what a broker counts about its replicas."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.metrics.exposition import Exposition, labels
from barnabas.broker.metrics.naming import of_mbean
from barnabas.broker.metrics.sources import NodeParts

_MANAGER: Final = "kafka.server:type=ReplicaManager,name="
_SESSIONS: Final = "kafka.server:type=FetchSessionCache,name="
_PURGATORY: Final = "kafka.server:type=DelayedOperationPurgatory,name={},delayedOperation=*"

EXPANDS: Final = of_mbean(f"{_MANAGER}IsrExpandsPerSec", "counter", "Times that a replica came into sync.")
SHRINKS: Final = of_mbean(f"{_MANAGER}IsrShrinksPerSec", "counter", "Times that replicas fell out of sync.")
FAILED_UPDATES: Final = of_mbean(f"{_MANAGER}FailedIsrUpdatesPerSec", "counter", "Such changes that were refused.")
WAITING: Final = of_mbean(_PURGATORY.format("PurgatorySize"), "gauge", "Requests that wait for partitions, by kind.")
DELAYED: Final = of_mbean(
    _PURGATORY.format("NumDelayedOperations"), "gauge", "The same: who is answered does not stay behind."
)
PRODUCE_EXPIRES: Final = of_mbean(
    "kafka.server:type=DelayedProduceMetrics,name=ExpiresPerSec", "counter", "Writers whose time was up."
)
FETCH_EXPIRES: Final = of_mbean(
    "kafka.server:type=DelayedFetchMetrics,name=ExpiresPerSec,fetcherType=*",
    "counter",
    "Readers whose time was up, followers and consumers together.",
)
SESSIONS: Final = of_mbean(f"{_SESSIONS}NumIncrementalFetchSessions", "gauge", "Fetch sessions.")
SESSION_PARTITIONS: Final = of_mbean(f"{_SESSIONS}NumIncrementalFetchPartitionsCached", "gauge", "Partitions in them.")
EVICTIONS: Final = of_mbean(
    f"{_SESSIONS}IncrementalFetchSessionEvictionsPerSec", "counter", "Sessions that gave way to others."
)
ASSIGNMENTS: Final = of_mbean(
    "kafka.server:type=AssignmentsManager,name=QueuedReplicaToDirAssignments",
    "gauge",
    "Replicas of which the controller does not know yet in which directory they lie.",
)
FAMILIES: Final = (
    *(EXPANDS, SHRINKS, FAILED_UPDATES, WAITING, DELAYED, PRODUCE_EXPIRES, FETCH_EXPIRES),
    *(SESSIONS, SESSION_PARTITIONS, EVICTIONS, ASSIGNMENTS),
)


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    services, broker = parts.services, parts.broker
    if services is None or broker is None:
        return
    changes, replicas, sessions = broker.isr_changes, services.replica_manager, services.fetch_sessions
    if changes is not None:
        out.add(EXPANDS, changes.expanded_count)
        out.add(SHRINKS, changes.shrunk_count)
        out.add(FAILED_UPDATES, changes.failed_count)
    for name, purgatory in (
        ("Produce", replicas.produce_purgatory),
        ("Fetch", replicas.fetch_purgatory),
        ("DeleteRecords", replicas.delete_records_purgatory),
    ):
        label = labels(delayedOperation=name)
        out.add(WAITING, len(purgatory), label)
        out.add(DELAYED, len(purgatory), label)
    out.add(PRODUCE_EXPIRES, replicas.produce_purgatory.expired_count)
    out.add(FETCH_EXPIRES, replicas.fetch_purgatory.expired_count)
    out.add(SESSIONS, len(sessions))
    out.add(SESSION_PARTITIONS, sessions.partition_count)
    out.add(EVICTIONS, sessions.evicted_count)
    out.add(ASSIGNMENTS, broker.queued_assignments)
    yield
