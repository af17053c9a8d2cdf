"""How much memory the metadata of very many partitions takes, and how long they take to write down and to load."""

from __future__ import annotations

import gc
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from barnabas.broker.quorum.snapshot_generator import snapshot_of
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.metadata.replay import ImageBuilder
from barnabas.raft.snapshots import read_snapshot_file, write_snapshot_file
from barnabas.raft.types import Snapshot, SnapshotId
from barnabas.storage.real_files import RealFileSystem
from bench.measure import Result
from bench.metadata import cluster
from bench.node_brokers import resident_bytes

PARTITIONS: Final = 1_000_000
QUICK_PARTITIONS: Final = 10_000
_MIB: Final = 2**20


def results(is_quick: bool) -> Iterator[Result]:
    """Each half in a process of its own: what one freed must not help the other."""
    partitions = QUICK_PARTITIONS if is_quick else PARTITIONS
    with tempfile.TemporaryDirectory() as folder:
        for what in ("write", "load"):
            done = subprocess.run(
                [sys.executable, "-m", "bench.cluster_image", what, folder, str(partitions)],
                capture_output=True,
                text=True,
                check=True,
            )
            yield Result(
                f"cluster: an image of {partitions:,} partitions, {what}", float("nan"), None, done.stdout.strip()
            )


def _write(folder: Path, partitions: int) -> str:
    files, snapshot_id = RealFileSystem(), SnapshotId(partitions, 1)
    before = resident_bytes(os.getpid())
    began_s = time.monotonic()
    builder = ImageBuilder(ClusterImage())
    for record in cluster(partitions):
        builder.replay(record)
    image = builder.build(partitions - 1, 1)
    built_s = time.monotonic() - began_s
    gc.collect()
    held = resident_bytes(os.getpid()) - before
    snapshot = snapshot_of(image, 0)
    began_s = time.monotonic()
    size = write_snapshot_file(
        files,
        str(folder / snapshot_id.file_name),
        snapshot.values,
        epoch=1,
        timestamp_ms=0,
        last_contained_ms=0,
        voters=(),
        part_name=f"{random.getrandbits(32)}.part",
    )
    taken_s = time.monotonic() - began_s
    return f"from records {built_s:.1f} s, {held / _MIB:,.0f} MiB; snapshot {taken_s:.1f} s, {size / _MIB:,.0f} MiB"


def _load(folder: Path, partitions: int) -> str:
    snapshot_id = SnapshotId(partitions, 1)
    before = resident_bytes(os.getpid())
    began_s = time.monotonic()
    loader = MetadataLoader()
    found = read_snapshot_file(RealFileSystem(), str(folder / snapshot_id.file_name))
    loader.on_snapshot(Snapshot(snapshot_id, found.last_contained_ms, found.values))
    took_s = time.monotonic() - began_s
    del found
    gc.collect()
    held = resident_bytes(os.getpid()) - before
    assert sum(len(each.partitions) for each in loader.image.topics.values()) == partitions
    return f"from a snapshot {took_s:.1f} s, {held / _MIB:,.0f} MiB"


if __name__ == "__main__":
    print((_write if sys.argv[1] == "write" else _load)(Path(sys.argv[2]), int(sys.argv[3])))
