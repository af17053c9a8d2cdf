"""A partition with a log on a simulated disk, as node 1 sees it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.image import PartitionImage
from barnabas.records import BatchBuilder, TransactionMarker, build_marker
from barnabas.replication.partition import Partition
from barnabas.replication.ports import LeaderPorts
from barnabas.storage.log import Appended
from barnabas.storage.recovery import load_log
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator
from barnabas.testing.sim.disk import SimulatedDisk

NOW_MS = 1_700_000_000_000
NAME = TopicPartition("t", 0)
TOPIC_ID = Uuid(bytes(range(16)))


def state(
    replicas: tuple[int, ...] = (1,),
    *,
    isr: tuple[int, ...] | None = None,
    leader: int = 1,
    epoch: int = 0,
    partition_epoch: int = 0,
    recovery: int = 0,
) -> PartitionImage:
    return PartitionImage(replicas, replicas if isr is None else isr, leader, epoch, partition_epoch, recovery)


def partition(image: PartitionImage | None = None, ports: LeaderPorts | None = None, **settings: Any) -> Partition:
    return partition_on(SimulatedDisk(Random(1)), image, ports, **settings)


def partition_on(
    disk: SimulatedDisk, image: PartitionImage | None = None, ports: LeaderPorts | None = None, **settings: Any
) -> Partition:
    disk.make_directory("/data")
    log = load_log(
        disk, "/data/t-0", NAME, TopicSettings(**settings), was_clean=True, now_ms=NOW_MS, randomness=Random(5)
    )
    made = Partition(NAME, TOPIC_ID, 1, ports)
    made.attach(log)
    made.update(image or state())
    return made


def batch(values: Iterable[bytes], *, timestamp_ms: int = NOW_MS, **header: Any) -> bytearray:
    builder = BatchBuilder(1_000_000, **header)
    for value in values:
        builder.append(value, b"key", timestamp_ms)
    return builder.build()


def append(to: Partition, *values: bytes, acks_all: bool = False, **how: Any) -> Appended:
    prepared = prepare_from_client(batch(values or (b"x",), **how), to.led_log().settings, NOW_MS)
    return to.leading().append(prepared, acks_all=acks_all, now_ms=NOW_MS)


def append_in_transaction(to: Partition, producer_id: int, *values: bytes) -> None:
    data = batch(values, producer_id=producer_id, producer_epoch=0, transactional=True)
    to.leading().append(prepare_from_coordinator(data, to.led_log().settings), acks_all=True, now_ms=NOW_MS)


def end_transaction(to: Partition, producer_id: int, *, committed: bool) -> None:
    data = build_marker(TransactionMarker(producer_id, 0, 0, committed), NOW_MS)
    to.leading().append(prepare_from_coordinator(data, to.led_log().settings), acks_all=True, now_ms=NOW_MS)
