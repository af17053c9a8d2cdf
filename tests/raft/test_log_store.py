"""What every `LogStore` promises."""

from __future__ import annotations

import pytest

from barnabas.base.errors import BarnabasError, InvariantError, RemoteProtocolError
from barnabas.base.ids import Uuid
from barnabas.raft.ports import FoundReplica
from barnabas.raft.types import ElectionState, ReplicaKey, SnapshotId
from barnabas.records.batch import iter_batches
from barnabas.records.builder import BatchBuilder
from barnabas.records.control import ControlType, control_key
from tests.raft.stores import (
    MakeStore,
    commit,
    fetched,
    fetched_control,
    kraft_version,
    leader_change,
    opened,
    receive,
    snapshot_bytes,
    snapshot_of,
    sync,
    take_snapshot,
    values_of,
    voters,
)

VALUES = [b"value %d" % number for number in range(30)]


def test_a_new_one_is_empty(make_store: MakeStore) -> None:
    store, found = opened(make_store)
    assert found == FoundReplica(None, 0, 0, (), (), ())
    assert (store.end_offset, store.synced_offset, store.begin_sync()) == (0, 0, None)
    assert bytes(store.read(0, 1000)) == b""
    store.close()


# The log


def test_a_leader_writes_records_and_reads_them_back(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    first = store.append_control([leader_change()], 1)
    second = store.append([b"a", b"b"], 1)
    third = store.append([b"c"], 2)
    assert [(each.first_offset, each.last_offset) for each in (first, second, third)] == [(0, 0), (1, 2), (3, 3)]
    told = [(each.base_offset, each.last_offset, each.epoch, each.values) for each in store.batches(0, 4)]
    assert told == [(0, 0, 1, ()), (1, 2, 1, (b"a", b"b")), (3, 3, 2, (b"c",))]
    assert [each.base_offset for each in store.batches(1, 3)] == [1]
    assert [each.base_offset for each in store.batches(2, 4)] == [3]
    assert store.end_offset == 4
    assert second.size_bytes == len(store.read(1, 1))
    store.close()


def test_an_earlier_leader_writes_nothing_more(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a"], 2)
    with pytest.raises(InvariantError, match="epoch 1"):
        store.append([b"b"], 1)
    assert store.end_offset == 1
    store.close()


def test_reading_gives_whole_batches_from_the_one_with_the_offset_on(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    sizes = [store.append([b"a", b"b"], 1).size_bytes for _ in range(3)]
    assert len(set(sizes)) == 1
    for max_bytes, count in [(1, 1), (sizes[0], 1), (sizes[0] * 2 - 1, 1), (sizes[0] * 2, 2), (10_000, 3)]:
        walk = iter_batches(store.read(1, max_bytes))
        assert [batch.base_offset for batch in walk] == [0, 2, 4][:count]
        assert not walk.truncated
    assert [batch.base_offset for batch in iter_batches(store.read(4, 10_000))] == [4]
    assert bytes(store.read(6, 10_000)) == b""
    store.close()


def test_a_follower_writes_what_it_fetched_as_it_came(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    first = fetched(0, 1, *VALUES) + fetched_control(30, 2, leader_change())
    second = fetched(31, 4, b"later")
    store.append_fetched(first)
    store.append_fetched(memoryview(bytearray(second)))
    assert store.end_offset == 32
    assert values_of(store) == [*VALUES, b"later"]
    copied, offset = b"", 0
    while offset < store.end_offset:
        piece = bytes(store.read(offset, 300))
        copied += piece
        offset = list(iter_batches(piece))[-1].next_offset
    assert copied == first + second
    store.close()


def test_what_was_cut_off_of_a_fetch_is_left_out(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    whole = fetched(0, 1, b"a")
    for cut in (1, 30, 70):
        store.append_fetched(whole + fetched(1, 1, b"x" * 100)[:cut])
        assert store.end_offset == 1
        store.truncate(0)
    store.close()


def without_its_crc(data: bytes) -> bytes:
    changed = bytearray(data)
    changed[-1] ^= 1
    return bytes(changed)


def with_count(data: bytes, count: int) -> bytes:
    """The number of offsets that a batch takes; its CRC is made right again."""
    (batch,) = iter_batches(bytearray(data))
    batch.data[23:27] = (count - 1).to_bytes(4, "big")
    batch.data[17:21] = batch.computed_crc().to_bytes(4, "big")
    return bytes(batch.data)


def unreadable_control() -> bytes:
    builder = BatchBuilder(400, control=True, base_offset=2, leader_epoch=3)
    builder.append((9).to_bytes(2, "big"), control_key(ControlType.KRAFT_VERSION), 0)
    return bytes(builder.build())


BAD_FETCHES = {
    "nothing": b"",
    "no whole batch": fetched(2, 3, b"a")[:-1],
    "a gap": fetched(3, 3, b"a"),
    "what is there": fetched(1, 3, b"a"),
    "a gap between batches": fetched(2, 3, b"a") + fetched(4, 3, b"b"),
    "an earlier epoch": fetched(2, 2, b"a"),
    "an earlier epoch in the second": fetched(2, 5, b"a") + fetched(3, 4, b"b"),
    "no epoch": fetched(2, -1, b"a"),
    "a wrong CRC": without_its_crc(fetched(2, 3, b"a")),
    "a wrong CRC in the second": fetched(2, 3, b"a") + without_its_crc(fetched(3, 3, b"b")),
    "offsets without records": with_count(fetched(2, 3, b"a"), 5),
    "a control record of an unknown version": unreadable_control(),
    "no batches at all": b"\x00" * 100,
    "nonsense": bytes(range(200)),
}


@pytest.mark.parametrize("data", BAD_FETCHES.values(), ids=BAD_FETCHES.keys())
def test_nothing_is_written_of_a_fetch_that_does_not_fit(make_store: MakeStore, data: bytes) -> None:
    store, _ = opened(make_store)
    store.append_fetched(fetched(0, 3, b"first", b"second"))
    with pytest.raises(RemoteProtocolError):
        store.append_fetched(data)
    assert (store.end_offset, values_of(store)) == (2, [b"first", b"second"])
    store.append_fetched(fetched(2, 3, b"third"))
    make_store.kill()
    store, found = opened(make_store)
    assert (found.end_offset, found.epochs) == (3, ((3, 0),))
    store.close()


def test_the_log_is_cut_where_the_quorum_went_another_way(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    for epoch in (1, 2, 4):
        store.append([b"%d" % epoch] * 2, epoch)
    sync(store)
    store.truncate(6)
    assert store.synced_offset == 6
    store.truncate(2)
    assert (store.end_offset, store.synced_offset, values_of(store)) == (2, 2, [b"1", b"1"])
    store.append_fetched(fetched(2, 3, b"other"))
    assert store.synced_offset == 2
    make_store.kill()
    store, found = opened(make_store)
    assert found.epochs == ((1, 0), (3, 2))
    assert values_of(store) == [b"1", b"1", b"other"]
    store.close()


def test_what_was_cut_does_not_come_back(make_store: MakeStore) -> None:
    for round_number in range(10):
        store, found = opened(make_store)
        epoch = 2 * round_number + 1
        kept = found.end_offset
        for _ in range(20):
            store.append([b"to be cut"] * 3, epoch)
        sync(store)
        store.truncate(kept)
        store.append([b"kept %d" % round_number], epoch + 1)
        sync(store)
        make_store.lose_power()
    store, found = opened(make_store)
    assert values_of(store) == [b"kept %d" % number for number in range(10)]
    assert [epoch for epoch, _ in found.epochs] == list(range(2, 22, 2))
    store.close()


def test_what_is_committed_is_not_cut(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    for _ in range(3):
        store.append([b"a", b"b"], 1)
    sync(store)
    store.set_high_watermark(4)
    for offset in (0, 2, 3):
        with pytest.raises(InvariantError, match="committed up to 4"):
            store.truncate(offset)
    assert store.end_offset == 6
    store.truncate(4)
    assert store.end_offset == 4
    # Nor does anybody take back that it is.
    store.set_high_watermark(2)
    with pytest.raises(InvariantError, match="committed up to 4"):
        store.truncate(2)
    store.close()


def test_what_is_committed_is_known_after_a_start(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    for _ in range(3):
        store.append([b"a", b"b"], 1)
    sync(store)
    store.set_high_watermark(100)
    store.append([b"c"], 1)
    make_store.kill()
    store, found = opened(make_store)
    assert found.end_offset == 7
    store.truncate(6)
    with pytest.raises(InvariantError, match="committed up to 6"):
        store.truncate(4)
    store.close()


# Syncs


def test_a_sync_covers_what_was_written_when_it_began(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a"], 1)
    job = store.begin_sync()
    assert job is not None
    store.append([b"b"], 1)
    job.run()
    assert store.synced_offset == 0
    store.finish_sync(job)
    assert store.synced_offset == 1
    sync(store)
    assert (store.synced_offset, store.begin_sync()) == (2, None)
    store.close()


def test_a_sync_says_nothing_of_what_was_written_after_a_cut(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a"], 1)
    sync(store)
    store.append([b"b"], 1)
    job = store.begin_sync()
    assert job is not None
    job.run()
    store.truncate(1)
    store.append_fetched(fetched(1, 2, b"other"))
    store.finish_sync(job)
    assert store.synced_offset == 1
    sync(store)
    assert store.synced_offset == 2
    store.close()


def test_a_killed_process_loses_nothing_and_finds_it_synced(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a"], 1)
    make_store.kill()
    store, found = opened(make_store)
    assert (found.end_offset, store.synced_offset) == (1, 1)
    make_store.lose_power()
    store, found = opened(make_store)
    assert (found.end_offset, values_of(store)) == (1, [b"a"])
    store.close()


def test_a_machine_that_loses_power_keeps_what_was_synced(make_store: MakeStore) -> None:
    for number in range(20):
        store, found = opened(make_store)
        store.append([b"synced %d" % number] * 5, 1)
        sync(store)
        end_offset = store.end_offset
        store.append([b"perhaps"], 1)
        make_store.lose_power()
        store, found = opened(make_store)
        assert found.end_offset in (end_offset, end_offset + 1)
        assert values_of(store).count(b"synced %d" % number) == 5
        store.close()


def test_a_stop_keeps_everything(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append(VALUES, 1)
    store.close()
    make_store.lose_power()
    store, found = opened(make_store)
    assert (found.end_offset, store.synced_offset, values_of(store)) == (30, 30, VALUES)
    store.abandon()
    store, found = opened(make_store)
    assert found.end_offset == 30
    store.close()


# The election


@pytest.mark.parametrize("level", [0, 1])
@pytest.mark.parametrize("voted", [None, 3])
def test_an_election_is_not_taken_back(make_store: MakeStore, level: int, voted: int | None) -> None:
    directory = Uuid(bytes(range(16))) if level else Uuid.ZERO
    state = ElectionState(7, -1 if voted else 2, ReplicaKey(voted, directory) if voted else None)
    store, found = opened(make_store)
    assert found.election is None
    store.save_election(ElectionState(6), kraft_version=level, voter_ids=[1, 2, 3])
    store.save_election(state, kraft_version=level, voter_ids=[1, 2, 3])
    make_store.lose_power()
    store, found = opened(make_store)
    assert found.election == state
    store.close()


# Voters


def test_the_records_of_voters_are_found_in_snapshot_and_log(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append_control([leader_change(), kraft_version(), voters(1)], 1)
    store.append([b"a", b"b"], 1)
    commit(store)
    take_snapshot(store, snapshot_of(5, 1, b"state"), kraft_version(), voters(1, 2))
    store.append_control([leader_change()], 2)
    store.append_control([voters(1, 2, 3)], 2)
    store.close()
    store, found = opened(make_store)
    assert found.controls == ((4, kraft_version()), (4, voters(1, 2)), (6, voters(1, 2, 3)))
    assert found.snapshots == (SnapshotId(5, 1),)
    store.close()


def test_the_bootstrap_snapshot_of_a_dynamic_quorum_is_one_of_nothing_but_voters(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    first = SnapshotId(0, 0)
    receive(store, first, snapshot_bytes(0, [], [kraft_version(), voters(1)]))
    store.close()
    store, found = opened(make_store)
    assert (found.start_offset, found.end_offset, found.snapshots) == (0, 0, (first,))
    assert found.controls == ((-1, kraft_version()), (-1, voters(1)))
    store.append_control([voters(1, 2)], 1)
    commit(store)
    store.close()
    store, found = opened(make_store)
    assert found.controls[2:] == ((0, voters(1, 2)),)
    snapshot, controls = store.read_snapshot(first)
    assert (list(snapshot.values), list(controls)) == ([], [kraft_version(), voters(1)])
    store.close()


# Snapshots


def test_a_snapshot_is_read_back_whole_and_in_pieces(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a", b"b"], 1)
    commit(store)
    snapshot_id = SnapshotId(2, 1)
    assert store.read_snapshot_bytes(snapshot_id, 0, 10) is None
    take_snapshot(store, snapshot_of(2, 1, *VALUES), kraft_version(), voters(1))
    snapshot, controls = store.read_snapshot(snapshot_id)
    assert (snapshot.snapshot_id, list(snapshot.values)) == (snapshot_id, VALUES)
    assert list(controls) == [kraft_version(), voters(1)]
    content, size_bytes = b"", 1
    while len(content) < size_bytes:
        found = store.read_snapshot_bytes(snapshot_id, len(content), 100)
        assert found is not None
        piece, size_bytes = found
        assert 0 < len(piece) <= 100
        content += piece
    assert store.read_snapshot_bytes(snapshot_id, size_bytes, 100) == (b"", size_bytes)
    assert store.read_snapshot_bytes(snapshot_id, -1, 100) == (b"", size_bytes)
    assert store.read_snapshot_bytes(SnapshotId(2, 2), 0, 10) is None
    assert [batch.is_control for batch in iter_batches(content)] == [True, False, True]
    store.close()


def test_there_are_no_snapshots_of_what_is_not_committed(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a", b"b"], 1)
    sync(store)
    store.set_high_watermark(1)
    with pytest.raises(InvariantError, match="holds what is not committed"):
        store.begin_snapshot(snapshot_of(2, 1, b"state"), ())
    store.close()


def test_a_follower_that_fell_behind_goes_on_from_a_snapshot(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"old"] * 20, 1)
    commit(store)
    take_snapshot(store, snapshot_of(20, 1, b"old state"))
    snapshot_id = SnapshotId(1000, 5)
    receive(store, snapshot_id, snapshot_bytes(5, [b"state"], [kraft_version(), voters(1, 2)]))
    store.start_anew(snapshot_id)
    assert (store.end_offset, store.synced_offset) == (1000, 1000)
    assert bytes(store.read(1000, 100)) == b""
    assert store.read_snapshot_bytes(SnapshotId(20, 1), 0, 100) is None
    piece = store.read_snapshot_bytes(snapshot_id, 0, 100)
    assert piece is not None
    store.append_fetched(fetched(1000, 5, b"next"))
    with pytest.raises(InvariantError):
        store.truncate(999)
    make_store.kill()
    store, found = opened(make_store)
    assert (found.start_offset, found.end_offset, found.epochs) == (1000, 1001, ((5, 1000),))
    assert (found.snapshots, found.controls) == ((snapshot_id,), ((999, kraft_version()), (999, voters(1, 2))))
    assert values_of(store, 1000) == [b"next"]
    store.close()


@pytest.mark.parametrize("is_killed_between", [True, False])
def test_a_log_that_the_quorum_left_behind_gives_way_to_a_snapshot(
    make_store: MakeStore, is_killed_between: bool
) -> None:
    """It is longer than the snapshot, but what it holds before the snapshot's end is not what was committed."""
    store, _ = opened(make_store)
    store.append([b"committed"] * 2, 1)
    commit(store)
    for _ in range(30):
        store.append([b"left behind"], 2)
    sync(store)
    snapshot_id = SnapshotId(20, 3)
    receive(store, snapshot_id, snapshot_bytes(3, [b"state"]))
    if is_killed_between:
        make_store.kill()
        store, _ = opened(make_store)
    else:
        store.start_anew(snapshot_id)
    assert (store.end_offset, values_of(store, 20)) == (20, [])
    store.close()
    store, found = opened(make_store)
    assert (found.start_offset, found.end_offset, found.snapshots) == (20, 20, (snapshot_id,))
    store.close()


def test_nobody_goes_back_to_a_snapshot_of_what_was_committed_before(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    store.append([b"a"] * 20, 1)
    commit(store)
    receive(store, SnapshotId(10, 1), snapshot_bytes(1, [b"state"]))
    with pytest.raises(InvariantError, match="older than what is committed"):
        store.start_anew(SnapshotId(10, 1))
    assert store.end_offset == 20
    store.abandon()


def test_pieces_of_a_snapshot_come_in_their_order(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    content = snapshot_bytes(5, [b"state"])
    receiver = store.receive_snapshot(SnapshotId(10, 5))
    receiver.write(0, content[:50])
    for position in (0, 49, 51):
        with pytest.raises(RemoteProtocolError, match="50 bytes are there"):
            receiver.write(position, content[position:])
    assert receiver.size_bytes == 50
    receiver.write(50, content[50:])
    receiver.finish()
    receiver.abandon()
    assert list(store.read_snapshot(SnapshotId(10, 5))[0].values) == [b"state"]
    store.close()


def cut_snapshots() -> dict[str, bytes]:
    content = snapshot_bytes(5, VALUES)
    footer = list(iter_batches(content))[-1]
    return {
        "nothing": b"",
        "half of it": content[: len(content) // 2],
        "no footer": content[: -footer.size_bytes],
        "a flipped bit": without_its_crc(content),
        "more than it": content + content,
        "no header": content[next(iter_batches(content)).size_bytes :],
    }


@pytest.mark.parametrize("content", cut_snapshots().values(), ids=cut_snapshots().keys())
def test_a_snapshot_that_did_not_come_whole_never_gets_its_name(make_store: MakeStore, content: bytes) -> None:
    store, _ = opened(make_store)
    receiver = store.receive_snapshot(SnapshotId(10, 5))
    if content:
        receiver.write(0, content)
    with pytest.raises(BarnabasError):
        receiver.finish()
    receiver.abandon()
    store.close()
    store, found = opened(make_store)
    assert found == FoundReplica(None, 0, 0, (), (), ())
    store.close()


def test_old_snapshots_and_the_log_before_them_go(make_store: MakeStore) -> None:
    store, _ = opened(make_store)
    start_offset = 0
    for number in range(60):
        store.append([b"%d" % number] * 10, 1)
        commit(store)
        if number % 10 == 9:
            take_snapshot(store, snapshot_of(store.end_offset, 1, b"up to %d" % number))
            new_start = store.clean()
            assert new_start >= start_offset
            start_offset = new_start
    assert start_offset > 0
    newest = SnapshotId(store.end_offset, 1)
    store.close()
    store, found = opened(make_store)
    assert found.snapshots[-1] == newest
    assert 0 < found.start_offset <= found.snapshots[0].end_offset
    assert found.end_offset == 600
    store.close()
