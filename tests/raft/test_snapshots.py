"""The files of snapshots."""

from __future__ import annotations

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.raft.snapshots import find_snapshots, read_header, read_snapshot_file, write_snapshot_file
from barnabas.raft.types import SnapshotId
from tests.raft.stores import NOW_MS, kraft_version, new_disk, snapshot_bytes, voters


def test_a_snapshot_file_is_read_back_and_leaves_no_other_name() -> None:
    disk = new_disk(1)
    path = f"/data/{SnapshotId(12, 4).file_name}"
    assert path == "/data/00000000000000000012-0000000004.checkpoint"
    size_bytes = write_snapshot_file(
        disk,
        path,
        [b"a", b"b"],
        epoch=4,
        timestamp_ms=NOW_MS,
        last_contained_ms=99,
        voters=[kraft_version(), voters(1)],
    )
    loaded = read_snapshot_file(disk, path)
    assert (loaded.values, loaded.last_contained_ms) == ((b"a", b"b"), 99)
    assert loaded.controls == read_header(disk, path).controls == (kraft_version(), voters(1))
    assert disk.size(path) == size_bytes
    assert disk.names("/data") == [SnapshotId(12, 4).file_name]
    assert find_snapshots(disk, "/data") == [SnapshotId(12, 4)]


@pytest.mark.parametrize("share", [0, 0.2, 0.5, 0.9, 0.99])
def test_a_snapshot_that_was_cut_is_not_used(share: float) -> None:
    disk = new_disk(1)
    whole = snapshot_bytes(4, [b"setting %d" % number for number in range(50)])
    disk.open("/data/cut", create=True).write_at(0, whole[: int(len(whole) * share)])
    with pytest.raises(BarnabasError, match="the snapshot /data/cut cannot be used"):
        read_snapshot_file(disk, "/data/cut")
