"""Logs to test with: small segments, producers of every kind, and what must hold of a log whatever happened to it."""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

from barnabas.base.ids import TopicPartition
from barnabas.records import BatchBuilder, BatchView, Codec, TransactionMarker, build_marker, iter_batches
from barnabas.storage.files import FileSystem
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.log import Appended, PartitionLog, aborted_entry
from barnabas.storage.producer_state import ProducerStates
from barnabas.storage.recovery import load_log
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import prepare_from_client, prepare_from_coordinator, prepare_from_leader
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.stored.producer_snapshot import ProducerEntry

PARTITION = TopicPartition("clicks", 3)
DIRECTORY = "/data/clicks-3"
NOW_MS = 1_700_000_000_000


def topic_settings(**changes: Any) -> TopicSettings:
    small: dict[str, Any] = {"internal_segment_bytes": 2000, "index_interval_bytes": 200, "max_message_bytes": 1500}
    return TopicSettings(**{**small, **changes})


def new_disk(**how: Any) -> SimulatedDisk:
    """An empty disk with the directory in which nodes keep their logs."""
    disk = SimulatedDisk(Random(1), **how)
    disk.make_directory("/data")
    disk.sync_directory("/")
    return disk


def open_log(files: FileSystem, settings: TopicSettings | None = None, **how: Any) -> PartitionLog:
    arguments: dict[str, Any] = {"was_clean": True, "now_ms": NOW_MS, "randomness": Random(5)} | how
    return load_log(files, DIRECTORY, PARTITION, settings or topic_settings(), **arguments)


def batch(
    values: Iterable[bytes | None],
    *,
    key: bytes | None = b"key",
    timestamp_ms: int = NOW_MS,
    codec: Codec = Codec.NONE,
    **header: Any,
) -> bytearray:
    builder = BatchBuilder(100_000, codec=codec, **header)
    for value in values:
        assert builder.append(value, key, timestamp_ms) is not None
    return builder.build()


def marker(producer_id: int, epoch: int, *, committed: bool, coordinator_epoch: int = 0) -> bytearray:
    return build_marker(TransactionMarker(producer_id, epoch, coordinator_epoch, committed), NOW_MS)


def read_all(log: PartitionLog, max_bytes: int = 700) -> list[bytes]:
    """Every batch of a log, fetched piece by piece as a consumer would."""
    found: list[bytes] = []
    offset = log.log_start_offset
    while True:
        read = log.read(offset, max_bytes, end_offset=log.log_end_offset)
        if read.range is None:
            return found
        batches = list(iter_batches(read.range.read()))
        assert batches, "the first batch is always whole"
        for each in batches:
            each.check_crc()
            assert each.last_offset >= offset
            found.append(bytes(each.data))
            offset = each.next_offset


def _without_transaction(entry: ProducerEntry) -> tuple[int, ...]:
    return entry.epoch, entry.last_sequence, entry.last_offset, entry.offset_delta


def check_consistency(log: PartitionLog, *, deleted_below: int = 0) -> None:
    """What a log says of itself equals what a reading of all its batches says.

    `deleted_below`: where the log once began, if the node that deleted its beginning died before it noted that.
    """
    producers, epochs = ProducerStates(log.partition), LeaderEpochs()
    aborted = []
    next_offset = log.log_start_offset
    for segment in log.segments:
        for entry in segment.entries():
            assert isinstance(entry, BatchView)
            assert entry.base_offset >= next_offset or next_offset == log.log_start_offset
            next_offset = entry.next_offset
            epochs.assign(entry.leader_epoch, max(entry.base_offset, log.log_start_offset))
            ended = producers.apply(entry)
            if ended is not None and ended.is_aborted:
                aborted.append(aborted_entry(ended))
            located = segment.locate(entry.last_offset)
            assert located is not None
            assert located.last_offset == entry.last_offset
    assert next_offset <= log.log_end_offset
    noted = [entry for segment in log.segments for entry in segment.aborted.entries]
    first_offset = max(deleted_below, log.segments[0].base_offset)
    if first_offset == 0:
        assert log.producers.entries() == producers.entries()
        assert noted == aborted
    else:
        # Of producers and transactions whose beginning was deleted the log knows more than its batches tell.
        known = {entry.producer_id: _without_transaction(entry) for entry in log.producers.entries()}
        told = {
            entry.producer_id: _without_transaction(entry)
            for entry in producers.entries()
            if entry.last_offset >= first_offset
        }
        assert known | told == known
        assert {(entry.producer_id, entry.last_offset) for entry in aborted} <= {
            (entry.producer_id, entry.last_offset) for entry in noted
        }
    if log.epochs.earliest is not None:
        # The epochs may have been told of a later start than the node, which died before it noted it.
        epochs.truncate_from_start(max(log.log_start_offset, log.epochs.earliest.start_offset))
    assert [entry for entry in log.epochs.entries if entry.start_offset < next_offset] == epochs.entries


def lead(log: PartitionLog, data: bytes | bytearray, *, epoch: int = 0, now_ms: int = NOW_MS) -> Appended:
    """Append what a client sent, and let it count as replicated."""
    prepared = prepare_from_client(data, log.settings, now_ms)
    appended = log.append(prepared, leader_epoch=epoch, now_ms=now_ms)
    log.set_high_watermark(log.log_end_offset)
    return appended


def follow(log: PartitionLog, *batches: bytearray) -> None:
    """Append what was fetched from the leader."""
    log.append_as_follower(prepare_from_leader(b"".join(batches)), now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def end_transaction(log: PartitionLog, producer_id: int, *, committed: bool, epoch: int = 0) -> None:
    prepared = prepare_from_coordinator(marker(producer_id, epoch, committed=committed), log.settings)
    log.append(prepared, leader_epoch=0, now_ms=NOW_MS)
    log.set_high_watermark(log.log_end_offset)


def segment_starts(log: PartitionLog) -> list[int]:
    return [segment.base_offset for segment in log.segments]
