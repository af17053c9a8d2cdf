"""Partitions and their logs, one by one and counted (Kafka's ReplicaManager, Partition and Log)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from barnabas.base.metrics.exposition import Exposition, Family, escaped
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.replication.follower_state import FollowerState
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.storage.log import PartitionLog

#: How many partitions are told of before others have a turn.
_PER_STEP: Final = 50


def _of_partition(name: str, text: str) -> Family:
    return of_mbean(f"kafka.cluster:type=Partition,name={name},topic=*,partition=*", "gauge", text)


def _of_log(name: str, text: str) -> Family:
    return of_mbean(f"kafka.log:type=Log,name={name},topic=*,partition=*", "gauge", text)


def _of_manager(name: str, text: str) -> Family:
    return of_mbean(f"kafka.server:type=ReplicaManager,name={name}", "gauge", text)


UNDER_REPLICATED: Final = _of_partition("UnderReplicated", "1 where a replica is not in sync; told by leaders.")
UNDER_MIN_ISR: Final = _of_partition("UnderMinIsr", "1 where too few are in sync to write with acks=all.")
AT_MIN_ISR: Final = _of_partition("AtMinIsr", "1 where just enough are in sync.")
IN_SYNC: Final = _of_partition("InSyncReplicasCount", "Replicas in sync; told by leaders.")
REPLICAS: Final = _of_partition("ReplicasCount", "Replicas; told by leaders.")
STABLE_LAG: Final = _of_partition("LastStableOffsetLag", "Records that open transactions hold back.")
SIZE: Final = _of_log("Size", "Bytes on the disk.")
SEGMENTS: Final = _of_log("NumLogSegments", "Files of records.")
START: Final = _of_log("LogStartOffset", "The first offset.")
END: Final = _of_log("LogEndOffset", "The offset of the next record.")
RETENTION: Final = _of_log("RetentionSizeInPercent", "How much of retention.bytes is used; 0 without one.")

PARTITION_COUNT: Final = _of_manager("PartitionCount", "Partitions with a replica on this node.")
LEADER_COUNT: Final = _of_manager("LeaderCount", "Partitions that this node leads.")
OFFLINE_COUNT: Final = _of_manager("OfflineReplicaCount", "Replicas here whose log cannot be used.")
UNDER_REPLICATED_COUNT: Final = _of_manager("UnderReplicatedPartitions", "Led here, with a replica not in sync.")
UNDER_MIN_ISR_COUNT: Final = _of_manager("UnderMinIsrPartitionCount", "Led here, with too few in sync for acks=all.")
AT_MIN_ISR_COUNT: Final = _of_manager("AtMinIsrPartitionCount", "Led here, with just enough in sync.")
REASSIGNING: Final = _of_manager("ReassigningPartitions", "Led here, on their way to other brokers.")
PRODUCER_IDS: Final = _of_manager("ProducerIdCount", "Idempotent producers that logs here remember.")
LATE: Final = _of_manager(
    "PartitionsWithLateTransactionsCount", "Partitions with a transaction that is open for longer than it may be."
)
FOLLOWER_LAG: Final = of_mbean(
    "kafka.server:type=ReplicaFetcherManager,name=MaxLag,clientId=*",
    "gauge",
    "How many committed records the replica lacks that follows furthest behind its leader; told by followers.",
)
FAILED: Final = of_mbean(
    "kafka.server:type=ReplicaFetcherManager,name=FailedPartitionsCount,clientId=*",
    "gauge",
    "Partitions followed here whose log cannot be used.",
)
LAG: Final = of_mbean(
    "kafka.server:type=FetcherLagMetrics,name=ConsumerLag,clientId=*,topic=*,partition=*",
    "gauge",
    "How many committed records the replica here lacks, as far as the leader has said; told by followers.",
)
HIGH_WATERMARK: Final = own("log_highwatermark", "gauge", "All before this offset is committed.")
FAMILIES: Final = (
    *(UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR, IN_SYNC, REPLICAS, STABLE_LAG),
    *(SIZE, SEGMENTS, START, END, RETENTION, HIGH_WATERMARK),
    *(PARTITION_COUNT, LEADER_COUNT, OFFLINE_COUNT, UNDER_REPLICATED_COUNT, UNDER_MIN_ISR_COUNT, AT_MIN_ISR_COUNT),
    *(REASSIGNING, PRODUCER_IDS, LATE, FOLLOWER_LAG, LAG, FAILED),
)
#: How long after its time-out a transaction is called late, as in Kafka.
_LATE_MS: Final = 5 * 60 * 1000


class _Counts:
    __slots__ = (
        "at_min_isr",
        "failed",
        "furthest_behind",
        "late",
        "led",
        "offline",
        "producers",
        "reassigning",
        "under_min_isr",
        "under_replicated",
    )

    def __init__(self) -> None:
        self.led = self.offline = self.under_replicated = self.under_min_isr = self.at_min_isr = 0
        self.reassigning = self.producers = self.late = self.furthest_behind = self.failed = 0


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    services = parts.services
    if services is None:
        return
    counts = _Counts()
    partitions = services.replica_manager.all
    writers = _Writers(out)
    late_before_ms = parts.runtime.clock.now_ms() - services.settings.transaction_max_timeout_ms - _LATE_MS
    image = services.metadata.image
    for start in range(0, len(partitions), _PER_STEP):
        for partition in partitions[start : start + _PER_STEP]:
            if partition.is_deleted:
                continue
            label = writers.label(partition)
            role, log = partition.role, partition.log
            if isinstance(role, LeaderState):
                writers.leader(label, role, counts)
                state = image.partition(*partition.name)
                counts.reassigning += state is not None and bool(state.adding_replicas or state.removing_replicas)
            elif isinstance(role, FollowerState):
                writers.follower(label, role, counts)
            if log is None:
                counts.offline += 1
                counts.failed += partition.failure is not None and partition.leader_id != services.node_id
            else:
                writers.log(label, log)
                counts.producers += log.producers.count
                counts.late += log.producers.has_open_since(late_before_ms)
        yield
    _add_counts(out, len(partitions), counts)


class _Writers:
    """The families that have a sample for each partition."""

    def __init__(self, out: Exposition) -> None:
        self._leaders = [out.lines_of(each) for each in (UNDER_REPLICATED, UNDER_MIN_ISR, AT_MIN_ISR)]
        self._isr, self._replicas = out.lines_of(IN_SYNC), out.lines_of(REPLICAS)
        self._stable = out.lines_of(STABLE_LAG)
        self._size, self._segments = out.lines_of(SIZE), out.lines_of(SEGMENTS)
        self._start, self._end, self._hw = out.lines_of(START), out.lines_of(END), out.lines_of(HIGH_WATERMARK)
        self._retention = out.lines_of(RETENTION)
        self._lag = out.lines_of(LAG)
        self._topic = ""
        self._prefix = ""

    def label(self, partition: Partition) -> str:
        topic, number = partition.name
        if topic != self._topic:
            self._topic, self._prefix = topic, f'{{topic="{escaped(topic)}",partition="'
        return f'{self._prefix}{number}"}}'

    def leader(self, label: str, role: LeaderState, counts: _Counts) -> None:
        isr, replicas = len(role.isr), len(role.replicas)
        if role.is_alone:
            lacks = is_under = is_at = 0
            is_at = role.effective_min_isr >= 1
        else:
            needed = role.effective_min_isr
            lacks, is_under, is_at = isr < replicas, isr < needed, isr == needed
        counts.led += 1
        counts.under_replicated += lacks
        counts.under_min_isr += is_under
        counts.at_min_isr += is_at
        under_replicated, under_min, at_min = self._leaders
        under_replicated.append(f"{UNDER_REPLICATED.name}{label} {lacks:d}")
        under_min.append(f"{UNDER_MIN_ISR.name}{label} {is_under:d}")
        at_min.append(f"{AT_MIN_ISR.name}{label} {is_at:d}")
        self._isr.append(f"{IN_SYNC.name}{label} {isr}")
        self._replicas.append(f"{REPLICAS.name}{label} {replicas}")
        log = role.log
        self._stable.append(f"{STABLE_LAG.name}{label} {log.high_watermark - log.last_stable_offset}")

    def follower(self, label: str, role: FollowerState, counts: _Counts) -> None:
        lag = role.lag
        counts.furthest_behind = max(counts.furthest_behind, lag)
        self._lag.append(f"{LAG.name}{label} {lag}")

    def log(self, label: str, log: PartitionLog) -> None:
        size = log.size_bytes
        limit = log.settings.retention_bytes
        self._size.append(f"{SIZE.name}{label} {size}")
        self._segments.append(f"{SEGMENTS.name}{label} {log.segment_count}")
        self._start.append(f"{START.name}{label} {log.log_start_offset}")
        self._end.append(f"{END.name}{label} {log.log_end_offset}")
        self._hw.append(f"{HIGH_WATERMARK.name}{label} {log.high_watermark}")
        self._retention.append(f"{RETENTION.name}{label} {100 * size // limit if limit > 0 else 0}")


def _add_counts(out: Exposition, partition_count: int, counts: _Counts) -> None:
    for family, value in (
        (PARTITION_COUNT, partition_count),
        (LEADER_COUNT, counts.led),
        (OFFLINE_COUNT, counts.offline),
        (UNDER_REPLICATED_COUNT, counts.under_replicated),
        (UNDER_MIN_ISR_COUNT, counts.under_min_isr),
        (AT_MIN_ISR_COUNT, counts.at_min_isr),
        (REASSIGNING, counts.reassigning),
        (PRODUCER_IDS, counts.producers),
        (LATE, counts.late),
        (FOLLOWER_LAG, counts.furthest_behind),
        (FAILED, counts.failed),
    ):
        out.add(family, value)
