"""Snapshot files of producer state: exact bytes, no damage unseen, and no wrong state after a crash."""

from __future__ import annotations

import logging

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.storage.errors import CorruptLogError
from barnabas.storage.producer_snapshot import (
    ProducerSnapshots,
    decode_snapshot,
    encode_snapshot,
    snapshot_name,
    snapshot_offset,
)
from barnabas.storage.producer_state import LastBatch, ProducerStates
from barnabas.wire.stored.producer_snapshot import ProducerEntry
from tests.storage.producers import PARTITION, PID, Story, data, new_disk


class TestSnapshots:
    def test_bytes(self) -> None:
        story = Story()
        story.send(data(7, 3, pid=0x0102, epoch=5, timestamp_ms=0x1234, transactional=True))
        story.send(data(0, pid=0x0101, epoch=1, transactional=True))
        story.end_transaction(pid=0x0101, epoch=2, coordinator_epoch=8, timestamp_ms=0x99)
        content = encode_snapshot(story.states.entries())
        entries = (
            "0000000000000101 0002 ffffffff ffffffffffffffff 00000000 0000000000000099 00000008 ffffffffffffffff"
            "0000000000000102 0005 00000009 0000000000000002 00000002 0000000000001234 ffffffff 0000000000000000"
        )
        assert content[6:] == bytes.fromhex("00000002" + entries)
        assert content[:2] == b"\0\1"
        assert decode_snapshot(content, "x") == story.states.entries()

    def test_the_newest_batch_is_kept(self) -> None:
        story = Story()
        story.send(data(0, 4))
        story.send(data(4, 4))
        story.send(data(0, 2, pid=5, transactional=True))
        story.states.restore(decode_snapshot(encode_snapshot(story.states.entries()), "x"))
        assert story.send(data(4, 4)) == "duplicate of 4 to 7"
        assert story.send(data(0, 4)) == "OUT_OF_ORDER_SEQUENCE_NUMBER"
        assert story.send(data(8)) == "at 10"
        assert story.states.first_unstable_offset == 8
        assert story.end_transaction(pid=5) == "committed 8 to 11, stable to 12"

    def test_names(self) -> None:
        assert snapshot_name(42) == "00000000000000000042.snapshot"
        assert snapshot_offset("00000000000000000042.snapshot") == 42
        for other in ("00000000000000000042.log", "x.snapshot", ".snapshot", "00000000000000000042.snapshot.deleted"):
            assert snapshot_offset(other) is None

    @pytest.mark.parametrize(
        ("content", "message"),
        [
            (b"", "x.snapshot, byte 0: the file ends within its header"),
            (b"\0\1\0", "x.snapshot, byte 3: the file ends within its header"),
            (b"\0\2" + bytes(8), "x.snapshot, byte 0: version 2 is unknown; only 1 can be read"),
            (bytes(10), "x.snapshot, byte 0: version 0 is unknown; only 1 can be read"),
            (b"\0\1" + bytes(8), "x.snapshot, byte 2: the CRC is 0x48674bc7, not 0x00000000 as the file says"),
        ],
    )
    def test_a_bad_file_is_named(self, content: bytes, message: str) -> None:
        with pytest.raises(CorruptLogError) as caught:
            decode_snapshot(content, "x.snapshot")
        assert str(caught.value) == message
        assert caught.value.code is ErrorCode.KAFKA_STORAGE_ERROR

    def test_no_damage_goes_unseen(self) -> None:
        story = Story()
        story.send(data(0, transactional=True))
        content = encode_snapshot(story.states.entries())
        for position in range(len(content)):
            for damaged in (
                content[:position],
                content[:position] + bytes([content[position] ^ 1]) + content[position + 1 :],
            ):
                with pytest.raises(CorruptLogError):
                    decode_snapshot(damaged, "x")
        with pytest.raises(CorruptLogError):
            decode_snapshot(content + b"\0", "x")


class TestSnapshotFiles:
    def test_the_newest_within_the_log_is_used(self) -> None:
        disk, story = new_disk(), Story()
        snapshots = ProducerSnapshots(disk, "t-0")
        for sequence in range(3):
            story.send(data(sequence))
            assert snapshots.take(story.states, story.end)
            assert not snapshots.take(story.states, story.end)
        assert disk.names("t-0") == [snapshot_name(offset) for offset in (1, 2, 3)]
        states = ProducerStates(PARTITION)
        snapshots = ProducerSnapshots(disk, "t-0")
        assert snapshots.restore(states, 0, 2) == 2
        assert states.last_batches() == {PID: LastBatch(1, 0)}
        assert snapshots.offsets == [1, 2]
        assert snapshots.restore(states, 2, 2) == 2  # nothing within: the log is to be read from its start
        assert len(states) == 0
        assert disk.names("t-0") == []

    def test_what_cannot_be_read_is_passed_over(self, caplog: pytest.LogCaptureFixture) -> None:
        disk, story = new_disk(), Story()
        snapshots = ProducerSnapshots(disk, "t-0")
        for sequence in range(3):
            story.send(data(sequence))
            snapshots.take(story.states, story.end)
        disk.open(snapshots.path(3)).truncate(8)
        disk.remove(snapshots.path(2))
        with caplog.at_level(logging.WARNING, "barnabas.storage"):
            assert snapshots.restore(story.states, 0, 3) == 1
        assert "older snapshot: t-0/00000000000000000003.snapshot, byte 2: the CRC is" in caplog.text
        assert disk.names("t-0") == [snapshot_name(1)]

    def test_strays_go_but_the_one_of_the_clean_stop_stays(self) -> None:
        disk, states = new_disk(), ProducerStates(PARTITION)
        snapshots = ProducerSnapshots(disk, "t-0")
        for offset in (5, 10, 12, 20, 25, 30):
            snapshots.take(states, offset)
        snapshots.remove_strays([0, 10, 20])
        assert snapshots.offsets == [10, 20, 30]
        snapshots.remove_strays([0, 10, 40])
        assert snapshots.offsets == [10]
        snapshots.forget(10)
        snapshots.forget(10)
        assert disk.names("t-0") == []

    def test_a_forgotten_snapshot_can_be_taken_again(self) -> None:
        disk, story = new_disk(), Story()
        snapshots = ProducerSnapshots(disk, "t-0")
        story.send(data(0))
        snapshots.take(story.states, 1)
        snapshots.truncate(0, 0)
        assert snapshots.take(story.states, 1)
        assert snapshots.offsets == [1]

    def test_a_directory_may_move(self) -> None:
        disk, states = new_disk(), ProducerStates(PARTITION)
        snapshots = ProducerSnapshots(disk, "t-0", names=[])
        disk.rename("t-0", "t-0.x-delete")
        snapshots.moved_to("t-0.x-delete")
        snapshots.take(states, 5, sync=False)
        snapshots.sync(5)
        snapshots.sync(6)
        assert disk.names("t-0.x-delete") == [snapshot_name(5)]

    @pytest.mark.parametrize("seed", range(30))
    def test_after_a_power_loss_no_wrong_state_is_read(self, seed: int) -> None:
        disk, story = new_disk(seed), Story()
        snapshots = ProducerSnapshots(disk, "t-0")
        for sequence in range(4):
            story.send(data(sequence))
            snapshots.take(story.states, story.end, sync=sequence < 2)
        # The log loses its end, and goes on differently.
        story.end = snapshots.restore(story.states, 0, 2)
        assert story.end == 2
        for pid in (7, 8):
            story.send(data(0, pid=pid))
        right = {2: {PID}, 1: {PID}, 0: set()}
        disk.crash()
        states = ProducerStates(PARTITION)
        start = ProducerSnapshots(disk, "t-0").restore(states, 0, 4)
        assert set(states.last_batches()) == right[start]


def test_entries_are_what_describe_producers_needs() -> None:
    story = Story()
    story.send(data(0, 2, transactional=True))
    assert story.states.entries() == [
        ProducerEntry(
            producer_id=PID,
            epoch=0,
            last_sequence=1,
            last_offset=1,
            offset_delta=1,
            timestamp=5000,
            coordinator_epoch=-1,
            current_txn_first_offset=0,
        )
    ]
