"""Metadata records in batches, and the files of the metadata log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import RemoteProtocolError
from barnabas.metadata.batches import decode_values, encode_change
from barnabas.metadata.features import encode_record
from barnabas.metadata.image import ConfigResourceType
from barnabas.metadata.loader import MetadataLoader, MetadataUpdate
from barnabas.raft.batches import LogBatch, build_batches, read_batch
from barnabas.raft.snapshots import write_snapshot_file
from barnabas.raft.types import CommittedBatch, LeaderAndEpoch, SnapshotId
from barnabas.records.batch import BatchView
from barnabas.wire.stored.cluster_metadata import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    MetadataRecord,
)
from tests.broker.metadata_files import LOG_DIRECTORY, config, formatted_disk, started

NOW_MS = 1_700_000_000_000


def read(batches: Iterable[bytearray]) -> list[LogBatch]:
    return [read_batch(BatchView(batch)) for batch in batches]


def encoded(records: Iterable[MetadataRecord]) -> list[bytes]:
    return [encode_record(record) for record in records]


# Batches


def test_a_change_is_one_uncompressed_batch_without_keys() -> None:
    _, values = encode_change([config("a"), config("b")])
    (data,) = build_batches(values, base_offset=7, epoch=3, timestamp_ms=NOW_MS)
    batch = BatchView(data)
    assert (batch.base_offset, batch.last_offset, batch.leader_epoch, batch.attributes) == (7, 8, 3, 0)
    assert (batch.producer_id, batch.base_sequence, batch.max_timestamp_ms) == (-1, -1, NOW_MS)
    assert [record.key for record in batch] == [None, None]
    (told,) = read([data])
    assert list(decode_values(told.values)) == [config("a"), config("b")]


@given(st.lists(st.integers(1, 400), min_size=1, max_size=40), st.integers(500, 2000))
def test_a_change_of_any_size_is_read_back_whole(sizes: list[int], limit_bytes: int) -> None:
    records = [config(f"setting {number}", "x" * size) for number, size in enumerate(sizes)]
    written, values = encode_change(records, limit_bytes=limit_bytes)
    batches = list(build_batches(values, base_offset=100, epoch=1, timestamp_ms=NOW_MS, limit_bytes=limit_bytes))
    assert all(len(batch) <= limit_bytes for batch in batches)
    told = [record for each in read(batches) for record in decode_values(each.values)]
    assert told == list(written)
    assert [record for record in told if isinstance(record, ConfigRecord)] == records
    # No gaps: a record's offset is told by its place.
    assert [each.base_offset for each in read(batches)] == [100, *(each.last_offset + 1 for each in read(batches)[:-1])]
    assert read(batches)[-1].last_offset == 100 + len(told) - 1
    assert (len(batches) > 1) == (len(told) == len(records) + 2)


class Told:
    """A publisher that remembers what it was told."""

    def __init__(self) -> None:
        self.updates: list[MetadataUpdate] = []

    def on_metadata_update(self, update: MetadataUpdate) -> None:
        self.updates.append(update)

    def on_controller_change(self, leader: LeaderAndEpoch) -> None:
        pass


def loading() -> tuple[MetadataLoader, Told]:
    loader, told = MetadataLoader(), Told()
    loader.publish_to(told)
    return loader, told


def batch_of(offset: int, *records: MetadataRecord) -> CommittedBatch:
    return CommittedBatch(offset, offset + max(len(records), 1) - 1, 1, NOW_MS, 50, encoded(records))


def configs_in(update: MetadataUpdate) -> dict[str, str]:
    return dict(update.image.config(ConfigResourceType.BROKER, ""))


def test_an_aborted_transaction_is_told_of_as_nothing() -> None:
    loader, told = loading()
    loader.on_commit(batch_of(0, BeginTransactionRecord(), config("a")))
    assert told.updates == []
    assert loader.image.pending is not None
    loader.on_commit(batch_of(2, AbortTransactionRecord()))
    (update,) = told.updates
    assert (update.image.offset, update.size_bytes, configs_in(update)) == (2, 100, {})
    assert update.delta.configs_changed == ()
    loader.on_commit(batch_of(3, config("b")))
    assert configs_in(told.updates[-1]) == {"b": "1"}


def test_a_leader_change_within_a_transaction_waits_with_it() -> None:
    loader, told = loading()
    loader.on_commit(batch_of(0, BeginTransactionRecord(), config("a")))
    loader.on_commit(batch_of(2))
    assert told.updates == []
    loader.on_commit(batch_of(3, config("b"), EndTransactionRecord()))
    (update,) = told.updates
    assert update.image.offset == 4
    assert configs_in(update) == {"a": "1", "b": "1"}


def test_who_comes_within_a_transaction_is_told_of_what_it_brings_alone() -> None:
    loader = MetadataLoader()
    loader.on_commit(batch_of(0, config("before")))
    loader.on_commit(batch_of(1, BeginTransactionRecord(), config("within")))
    told = Told()
    assert dict(loader.publish_to(told).config(ConfigResourceType.BROKER, "")) == {"before": "1"}
    loader.on_commit(batch_of(3, config("later"), EndTransactionRecord()))
    (update,) = told.updates
    assert configs_in(update) == {"before": "1", "within": "1", "later": "1"}
    assert update.image.pending is None


def test_an_unknown_record_says_where_it_is() -> None:
    with pytest.raises(RemoteProtocolError, match="offset 42"):
        MetadataLoader().on_commit(CommittedBatch(42, 42, 1, NOW_MS, 50, [b"\x01\x7f\x00"]))


# Snapshots


def test_what_a_stop_left_of_snapshots_is_removed_and_strangers_stay() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        await running.stop()
        left = [
            "00000000000000000003-0000000001-77.checkpoint.part",
            "00000000000000000003-0000000001.checkpoint.deleted",
            "notes.txt",
        ]
        for name in left:
            disk.open(f"{LOG_DIRECTORY}/{name}", create=True)
        again = await started(disk)
        assert [name for name in disk.names(LOG_DIRECTORY) if name in left] == ["notes.txt"]
        await again.stop()

    asyncio.run(story())


def test_a_snapshot_beyond_the_log_replaces_it() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        await running.stop()
        path = f"{LOG_DIRECTORY}/{SnapshotId(1000, 5).file_name}"
        level = FeatureLevelRecord(name="metadata.version", feature_level=25)
        write_snapshot_file(
            disk, path, encoded([level, config("a")]), epoch=5, timestamp_ms=NOW_MS, last_contained_ms=NOW_MS
        )
        again = await started(disk)
        assert again.owner.configs == {"a": "1"}
        assert again.quorum.epoch == 6
        assert again.quorum.log_start_offset == 1000
        assert again.quorum.high_watermark == 1001
        await again.stop()

    asyncio.run(story())
