"""The controller and the metadata that this node has (Kafka's KafkaController, ControllerStats, MetadataLoader)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.metadata.image import NO_LEADER, ClusterImage

_PER_STEP: Final = 100


def _controller(name: str, text: str, *, is_counter: bool = False) -> Family:
    return of_mbean(f"kafka.controller:type=KafkaController,name={name}", "counter" if is_counter else "gauge", text)


def _metadata(attribute: str, text: str) -> Family:
    return of_mbean(f"kafka.server:type=broker-metadata-metrics#{attribute}", "gauge", text)


ACTIVE: Final = _controller("ActiveControllerCount", "1 on the node that decides.")
BROKERS: Final = _controller("ActiveBrokerCount", "Brokers that are not fenced; told by the active controller.")
FENCED: Final = _controller("FencedBrokerCount", "Brokers that are fenced.")
STOPPING: Final = _controller("ControlledShutdownBrokerCount", "Brokers that stop.")
TOPICS: Final = _controller("GlobalTopicCount", "Topics of the cluster.")
PARTITIONS: Final = _controller("GlobalPartitionCount", "Partitions of the cluster.")
OFFLINE: Final = _controller("OfflinePartitionsCount", "Partitions without a leader.")
IMBALANCE: Final = _controller("PreferredReplicaImbalanceCount", "Partitions that others lead than should.")
ERRORS: Final = _controller("MetadataErrorCount", "Metadata that could not be applied.", is_counter=True)
APPLIED: Final = _controller("LastAppliedRecordOffset", "Up to where the metadata log is applied here.")
APPLIED_MS: Final = _controller("LastAppliedRecordTimestamp", "When that record was written.")
APPLIED_LAG: Final = _controller("LastAppliedRecordLagMs", "How long ago that was.")
COMMITTED: Final = _controller("LastCommittedRecordOffset", "Up to where it is committed.")
CHANGES: Final = _controller("NewActiveControllersCount", "Times that another one became active.", is_counter=True)
DECIDED: Final = _controller("EventQueueOperationsStartedCount", "Requests that it decided.", is_counter=True)
TIMED_OUT: Final = _controller(
    "EventQueueOperationsTimedOutCount", "Those that waited too long to be committed.", is_counter=True
)
FENCINGS: Final = _controller(
    "TimedOutBrokerHeartbeatCount", "Times that a broker was fenced, since nothing was heard of it.", is_counter=True
)
SILENT: Final = of_mbean(
    "kafka.controller:type=KafkaController,name=TimeSinceLastHeartbeatReceivedMs,broker=*",
    "gauge",
    "Since the last heartbeat of a broker; told by the active controller.",
)
REGISTRATION: Final = of_mbean(
    "kafka.controller:type=KafkaController,name=BrokerRegistrationState,broker=*",
    "gauge",
    "10 for a fenced broker, 20 for one that stops, 30 for one at work; told by the active controller.",
)
UNCLEAN: Final = of_mbean(
    "kafka.controller:type=ControllerStats,name=UncleanLeaderElectionsPerSec",
    "counter",
    "Leaders that were not in sync, as far as this node has seen them elected.",
)
FROM_ELR: Final = of_mbean(
    "kafka.controller:type=ControllerStats,name=ElectionFromEligibleLeaderReplicasPerSec",
    "counter",
    "Leaders from the eligible ones, as far as this node has seen them elected.",
)
QUEUE: Final = own("controller_waiting", "gauge", "Changes that are decided, and not committed yet.")
EARLY: Final = own(
    "controller_early_fencings_total",
    "counter",
    "Brokers that were fenced before their session ended, since their process was seen to die.",
)
B_OFFSET: Final = _metadata("last-applied-record-offset", "Up to where this broker acts by the metadata log.")
B_MS: Final = _metadata("last-applied-record-timestamp", "When that record was written.")
B_LAG: Final = _metadata("last-applied-record-lag-ms", "How long ago that was.")
LEADER: Final = of_mbean(
    "kafka.server:type=MetadataLoader,name=CurrentControllerId", "gauge", "Who decides, or -1 if that is not known."
)
METADATA_VERSION: Final = of_mbean(
    "kafka.server:type=MetadataLoader,name=CurrentMetadataVersion", "gauge", "The level of metadata.version."
)
FEATURES: Final = of_mbean(
    "kafka.server:type=MetadataLoader,name=FinalizedLevel,featureName=*", "gauge", "Levels of features."
)
FAMILIES: Final = (
    *(ACTIVE, BROKERS, FENCED, STOPPING, TOPICS, PARTITIONS, OFFLINE, IMBALANCE, ERRORS, APPLIED, APPLIED_MS),
    *(APPLIED_LAG, COMMITTED, CHANGES, DECIDED, TIMED_OUT, FENCINGS, SILENT, REGISTRATION, UNCLEAN, FROM_ELR, QUEUE),
    *(EARLY, B_OFFSET, B_MS, B_LAG, LEADER, METADATA_VERSION, FEATURES),
)
_FENCED, _STOPPING, _AT_WORK = 10, 20, 30


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    loader, now_ms = parts.loader, parts.runtime.clock.now_ms()
    image = loader.image
    services = parts.services
    if services is not None:
        out.add(B_OFFSET, services.metadata.image.offset)
        out.add(B_MS, loader.last_append_ms)
        out.add(B_LAG, max(0, now_ms - loader.last_append_ms) if loader.last_append_ms else 0)
    out.add(LEADER, -1 if parts.quorum is None or not parts.quorum.is_open else parts.quorum.leader.leader_id)
    out.add(METADATA_VERSION, image.features.metadata_version or 0)
    for name, level in image.features.items():
        out.add(FEATURES, level, labels(featureName=name))
    yield
    server = parts.controller
    if server is None:
        out.add(ACTIVE, 0)
        return
    controller = server.controller
    out.add(ACTIVE, int(controller.is_active))
    out.add(APPLIED, image.offset)
    out.add(APPLIED_MS, loader.last_append_ms)
    out.add(APPLIED_LAG, 0 if controller.is_active else max(0, now_ms - loader.last_append_ms))
    if parts.quorum is not None and parts.quorum.is_open:
        out.add(COMMITTED, parts.quorum.high_watermark - 1)
    for family, value in (
        (ERRORS, 0),
        (CHANGES, controller.leader_change_count),
        (DECIDED, controller.decided_count),
        (TIMED_OUT, controller.timed_out_count),
        (FENCINGS, controller.fenced_count),
        (QUEUE, controller.waiting_count),
        (EARLY, controller.early_fencing.count),
        (UNCLEAN, parts.elections.unclean_count),
        (FROM_ELR, parts.elections.eligible_count),
    ):
        out.add(family, value)
    if controller.is_active:
        yield from _whole_cluster(
            parts, out, image, controller.controller.sessions.silent_ms(parts.runtime.clock.monotonic_ms())
        )


def _whole_cluster(parts: NodeParts, out: Exposition, image: ClusterImage, silent_ms: dict[int, int]) -> Iterator[None]:
    """What only the active controller tells: all others would tell it again."""
    fenced = stopping = 0
    for broker_id, broker in image.brokers.items():
        fenced += broker.is_fenced
        stopping += broker.in_controlled_shutdown
        label = labels(broker=broker_id)
        state = _FENCED if broker.is_fenced else _STOPPING if broker.in_controlled_shutdown else _AT_WORK
        out.add(REGISTRATION, state, label)
        if broker_id in silent_ms:
            out.add(SILENT, silent_ms[broker_id], label)
    out.add(BROKERS, len(image.brokers) - fenced)
    out.add(FENCED, fenced)
    out.add(STOPPING, stopping)
    partitions = offline = imbalance = 0
    for number, topic in enumerate(image.topics.values()):
        partitions += len(topic.partitions)
        for each in topic.partitions:
            offline += each.leader == NO_LEADER
            imbalance += bool(each.replicas) and each.leader != each.replicas[0]
        if number % _PER_STEP == 0 or len(topic.partitions) > _PER_STEP:
            yield
    out.add(TOPICS, len(image.topics))
    out.add(PARTITIONS, partitions)
    out.add(OFFLINE, offline)
    out.add(IMBALANCE, imbalance)
