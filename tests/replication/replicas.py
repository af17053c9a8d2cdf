"""Replicas of one partition, each with a log of its own on a simulated disk, that fetch from each other without a
network: what a follower asks is answered by the leader's log, as wire messages."""

from __future__ import annotations

from random import Random
from typing import Any

from barnabas.metadata.image import PartitionImage
from barnabas.replication.follower_state import Cut, FollowerPhase, FollowerState
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.roles import Isolation
from barnabas.storage.errors import LogError
from barnabas.storage.log import PartitionLog
from barnabas.storage.recovery import load_log
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.messages.fetch import EpochEndOffset, FetchPartition, PartitionData
from tests.replication.partitions import NAME, NOW_MS, TOPIC_ID, batch

BACKOFF_MS = 1000


class Replica:
    """One node's replica."""

    def __init__(self, node_id: int, **settings: Any) -> None:
        self.disk = SimulatedDisk(Random(node_id))
        self.disk.make_directory("/data")
        log = load_log(
            self.disk,
            "/data/t-0",
            NAME,
            TopicSettings(**settings),
            was_clean=True,
            now_ms=NOW_MS,
            randomness=Random(node_id),
        )
        self.partition = Partition(NAME, TOPIC_ID, node_id)
        self.partition.attach(log)

    @property
    def log(self) -> PartitionLog:
        assert self.partition.log is not None
        return self.partition.log

    @property
    def following(self) -> FollowerState:
        assert isinstance(self.partition.role, FollowerState)
        return self.partition.role

    @property
    def leading(self) -> LeaderState:
        assert isinstance(self.partition.role, LeaderState)
        return self.partition.role

    @property
    def values(self) -> list[tuple[int, int, bytes]]:
        """Offset, epoch and value of every record."""
        return [
            (record.offset, each.leader_epoch, bytes(record.value or b""))
            for each in self.log.batches(self.log.log_start_offset)
            for record in each
            if record.offset >= self.log.log_start_offset
        ]

    @property
    def written(self) -> bytes:
        """The batches as they lie in the files."""
        return b"".join(bytes(each.data) for each in self.log.batches(self.log.log_start_offset))

    def restart(self) -> None:
        """Close the log and open it again; what the metadata log says is told anew."""
        log, partition = self.log, self.partition
        high_watermark, log_start_offset = log.high_watermark, log.log_start_offset
        log.close()
        again = load_log(
            self.disk,
            log.directory,
            NAME,
            log.settings,
            was_clean=True,
            recovery_point=log.log_end_offset,
            log_start_offset=log_start_offset,
            now_ms=NOW_MS,
            randomness=Random(partition.node_id),
        )
        again.set_high_watermark(high_watermark)
        self.partition = Partition(NAME, TOPIC_ID, partition.node_id)
        self.partition.attach(again)
        self.partition.update(partition._image)

    def append(self, *values: bytes, **how: Any) -> None:
        prepared = prepare_from_client(batch(values, **how), self.log.settings, NOW_MS)
        self.leading.append(prepared, acks_all=False, now_ms=NOW_MS)

    def answer(self, asked: FetchPartition) -> PartitionData:
        """What the leader says to a follower."""
        try:
            read = self.partition.leading(asked.current_leader_epoch).read(
                asked.fetch_offset,
                asked.partition_max_bytes,
                Isolation.LOG_END,
                last_fetched_epoch=asked.last_fetched_epoch,
            )
        except LogError as failure:
            return PartitionData(partition_index=0, error_code=failure.code, high_watermark=-1, records=b"")
        data = PartitionData(
            partition_index=0,
            high_watermark=read.high_watermark,
            log_start_offset=read.log_start_offset,
            records=b"" if read.range is None else read.range.read(),
        )
        if read.diverging is not None:
            data.diverging_epoch = EpochEndOffset(epoch=read.diverging.epoch, end_offset=read.diverging.end_offset)
        return data

    def cut(self, cut: Cut) -> None:
        if cut.is_anew:
            self.log.start_anew_at(cut.offset, NOW_MS)
        else:
            self.log.truncate_to(cut.offset, NOW_MS)

    def fetch_from(self, leader: Replica, max_bytes: int = 1_000_000) -> Cut | None:
        """One fetch, and what it means; what was cut."""
        role = self.following
        asked = role.next_fetch(max_bytes)
        data = leader.answer(asked)
        cut = role.take(asked, data, NOW_MS, BACKOFF_MS)
        if cut is not None:
            self.cut(cut)
            if cut.then_append:
                role.append(data, NOW_MS)
        if role.phase is FollowerPhase.LOOKING_UP:
            cut = role.take_leader_end(leader.log.log_end_offset)
            if cut is None:
                cut = role.take_leader_start(leader.log.log_start_offset)
            if cut is not None:
                self.cut(cut)
        return cut

    def catch_up(self, leader: Replica, max_bytes: int = 1_000_000) -> list[Cut]:
        """Fetch until there is nothing more; what was cut on the way."""
        cuts = []
        for _ in range(1000):
            before = self.log.log_end_offset, self.log.epochs.latest_epoch
            cut = self.fetch_from(leader, max_bytes)
            if cut is not None:
                cuts.append(cut)
            elif before == (self.log.log_end_offset, self.log.epochs.latest_epoch):
                return cuts
        raise AssertionError("it never ends")


def elect(leader: Replica, epoch: int, *others: Replica, isr: tuple[int, ...] | None = None) -> None:
    """All hear that `leader` leads in `epoch`."""
    ids = tuple(sorted(each.partition.node_id for each in (leader, *others)))
    image = PartitionImage(ids, ids if isr is None else isr, leader.partition.node_id, epoch, epoch)
    for each in (leader, *others):
        each.partition.update(image)
