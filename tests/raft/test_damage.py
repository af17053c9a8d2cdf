"""A replica that lost what was committed, or cannot tell: the start is refused by name, and nothing is changed."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.raft.damage import BadPlace, Condition, FoundLog, RaftLogDamagedError, judge
from barnabas.raft.types import ElectionState, SnapshotId
from barnabas.records.batch import iter_batches
from barnabas.storage.files import read_file
from tests.raft.stores import (
    DIRECTORY,
    OnSimulatedDisk,
    commit,
    fetched,
    opened,
    receive,
    snapshot_bytes,
    snapshot_of,
    sync,
    take_snapshot,
)

FIRST_SEGMENT = f"{DIRECTORY}/00000000000000000000.log"


def a_voter(make_store: OnSimulatedDisk) -> None:
    """Two leaders; of what the second wrote one half is committed, all is synced."""
    store, _ = opened(make_store)
    store.append_fetched(fetched(0, 1, b"a", b"b"))
    commit(store)
    for number in range(4):
        store.append_fetched(fetched(2 + number, 2, b"%d" % number))
    sync(store)
    store.set_high_watermark(4)
    store.save_election(ElectionState(2, 1), kraft_version=0, voter_ids=[1, 2, 3])
    make_store.kill()


def rewrite(make_store: OnSimulatedDisk, path: str, change: Callable[[bytes], bytes]) -> None:
    content = change(read_file(make_store.disk, path))
    file = make_store.disk.open(path)
    file.truncate(0)
    file.write_at(0, content)
    file.close()


def batch_at(content: bytes, offset: int) -> tuple[int, int]:
    """Where the batch with this offset lies, from and to."""
    position = 0
    for batch in iter_batches(content):
        if batch.base_offset == offset:
            return position, position + batch.size_bytes
        position += batch.size_bytes
    raise AssertionError(f"there is no batch at offset {offset}")


def cut_before(offset: int) -> Callable[[bytes], bytes]:
    return lambda content: content[: batch_at(content, offset)[0]]


def hole_at(offset: int) -> Callable[[bytes], bytes]:
    def without(content: bytes) -> bytes:
        start, end = batch_at(content, offset)
        return content[:start] + content[end:]

    return without


def flipped_at(offset: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[batch_at(content, offset)[1] - 1] ^= 1
        return bytes(changed)

    return flip


@pytest.mark.parametrize("damage", [cut_before, hole_at, flipped_at])
@pytest.mark.parametrize("offset", [0, 2, 3])
def test_a_voter_without_what_was_committed_is_refused(
    damage: Callable[[int], Callable[[bytes], bytes]], offset: int
) -> None:
    make_store = OnSimulatedDisk()
    a_voter(make_store)
    rewrite(make_store, FIRST_SEGMENT, damage(offset))
    before = make_store.disk.contents()
    for _ in range(2):
        with pytest.raises(
            RaftLogDamagedError,
            match=rf"the log of __cluster_metadata-0 has lost what was committed: {DIRECTORY}.*; restore /data from",
        ):
            make_store().open()
        assert make_store.disk.contents() == before


@pytest.mark.parametrize("damage", [cut_before, hole_at, flipped_at])
@pytest.mark.parametrize("offset", [4, 5])
def test_what_was_only_synced_may_be_missing(
    damage: Callable[[int], Callable[[bytes], bytes]], offset: int, caplog: pytest.LogCaptureFixture
) -> None:
    make_store = OnSimulatedDisk()
    a_voter(make_store)
    rewrite(make_store, FIRST_SEGMENT, damage(offset))
    store, found = opened(make_store)
    assert found.end_offset == offset
    assert [each.base_offset for each in store.batches(0, 10)] == [0, 2, 3, 4, 5][: offset - 1]
    assert ("never committed" in caplog.text) == (damage is not cut_before and (damage, offset) != (hole_at, 5))
    store.close()


def test_a_quorum_state_that_makes_no_sense_stops_the_start_and_nothing_is_changed() -> None:
    make_store = OnSimulatedDisk()
    a_voter(make_store)
    rewrite(make_store, f"{DIRECTORY}/quorum-state", lambda content: content[:-5])
    before = make_store.disk.contents()
    with pytest.raises(BarnabasError, match=f"{DIRECTORY}/quorum-state cannot be read: .* Restore it from a backup"):
        make_store().open()
    assert make_store.disk.contents() == before


@pytest.mark.parametrize("keeps", [0, 60, 150])
def test_a_snapshot_that_was_cut_short_cannot_be_used(keeps: int) -> None:
    make_store = OnSimulatedDisk()
    store, _ = opened(make_store)
    receive(store, SnapshotId(1000, 5), snapshot_bytes(5, [b"state"] * 20))
    store.start_anew(SnapshotId(1000, 5))
    store.close()
    path = f"{DIRECTORY}/{SnapshotId(1000, 5).file_name}"
    rewrite(make_store, path, lambda content: content[:keeps])
    with pytest.raises(BarnabasError, match=f"the snapshot {path} cannot be used"):
        # Whoever starts needs its voters, and its state.
        opened(make_store)[0].read_snapshot(SnapshotId(1000, 5))


def test_a_missing_snapshot_is_told_of() -> None:
    make_store = OnSimulatedDisk()
    store, _ = opened(make_store)
    receive(store, SnapshotId(1000, 5), snapshot_bytes(5, [b"state"]))
    store.start_anew(SnapshotId(1000, 5))
    store.append([b"a"], 5)
    commit(store)
    store.close()
    make_store.disk.remove(f"{DIRECTORY}/{SnapshotId(1000, 5).file_name}")
    with pytest.raises(BarnabasError, match="there is no snapshot of what came before; restore the missing"):
        make_store().open()


def test_a_log_that_contradicts_a_snapshot_is_kept_if_it_was_committed_further() -> None:
    """A log is given up for a snapshot of the leader; not for a file with a wrong name."""
    make_store = OnSimulatedDisk()
    store, _ = opened(make_store)
    for _ in range(4):
        store.append([b"a"], 1)
    commit(store)
    take_snapshot(store, snapshot_of(2, 1, b"state"))
    store.close()
    directory = DIRECTORY
    make_store.disk.rename(f"{directory}/{SnapshotId(2, 1).file_name}", f"{directory}/{SnapshotId(2, 3).file_name}")
    before = {path: content for path, content in make_store.disk.contents().items() if path.endswith(".log")}
    with pytest.raises(RaftLogDamagedError, match="the log has other records before the end of snapshot"):
        make_store().open()
    after = {path: content for path, content in make_store.disk.contents().items() if path.endswith(".log")}
    assert after == before


# The verdict


def found_bad(offset: int, epochs: dict[int, int] | None = None) -> FoundLog:
    return FoundLog("/log", 0, offset, BadPlace("/log/0.log", 7, offset, "it is torn", 100, epochs or {}))


@pytest.mark.parametrize(
    ("bad_offset", "behind", "committed", "snapshot", "condition"),
    [
        (50, {3: 60}, 50, None, Condition.TORN),
        (49, {3: 60}, 50, None, Condition.DAMAGED),
        (49, {}, None, None, Condition.TORN),
        (49, {3: 50, 4: 60}, None, None, Condition.DAMAGED),
        # A snapshot of the leader makes the log superfluous.
        (20, {}, 50, SnapshotId(100, 4), Condition.TORN),
        (20, {3: 90}, 50, SnapshotId(100, 4), Condition.TORN),
        (20, {3: 50, 4: 90}, None, SnapshotId(100, 4), Condition.TORN),
        # The quorum left behind what is beyond it.
        (20, {3: 200}, 50, SnapshotId(100, 4), Condition.TORN),
        # What follows a snapshot that was taken here would be lost.
        (20, {4: 200}, 50, SnapshotId(100, 4), Condition.DAMAGED),
        (20, {4: 100}, 100, SnapshotId(100, 4), Condition.TORN),
        (120, {4: 200}, 110, SnapshotId(100, 4), Condition.TORN),
        (105, {4: 200}, 110, SnapshotId(100, 4), Condition.DAMAGED),
        (20, {}, 110, SnapshotId(100, 4), Condition.DAMAGED),
    ],
)
def test_the_verdict(
    bad_offset: int, behind: dict[int, int], committed: int | None, snapshot: SnapshotId | None, condition: Condition
) -> None:
    assert judge(found_bad(bad_offset, behind), committed, snapshot).condition is condition
