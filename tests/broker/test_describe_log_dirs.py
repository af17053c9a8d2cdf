"""DescribeLogDirs: disks, what lies on them, and which have failed."""

from __future__ import annotations

import errno
from random import Random
from typing import Any

import pytest

from barnabas.storage.real_files import RealFileSystem
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.messages.describe_log_dirs import DescribableLogDirTopic, DescribeLogDirsRequest
from tests.broker.data_plane import DataPlane, batch, code_of


def describe(plane: DataPlane, version: int = 5, topics: Any = None) -> dict[str, Any]:
    response = plane.ask(DescribeLogDirsRequest(topics=topics), version)
    assert code_of(response) == "NONE"
    return {each.log_dir: each for each in response.results}


def sizes(result: Any) -> dict[tuple[str, int], int]:
    return {
        (topic.name, each.partition_index): each.partition_size for topic in result.topics for each in topic.partitions
    }


@pytest.mark.parametrize("version", range(1, 6))
def test_partitions_and_their_sizes(version: int) -> None:
    plane = DataPlane(SimulatedDisk(Random(1), capacity_bytes=100_000))
    plane.create_topic("t", 2)
    plane.create_topic("u")
    data = batch([b"x" * 100])
    plane.produce({("t", 1): data})
    [result] = describe(plane, version).values()
    assert (result.log_dir, code_of(result)) == ("/one", "NONE")
    assert sizes(result) == {("t", 0): 0, ("t", 1): len(data), ("u", 0): 0}
    assert (result.total_bytes, 0 < result.usable_bytes < 100_000) == ((100_000, True) if version >= 4 else (-1, False))


def test_only_what_was_asked_for() -> None:
    plane = DataPlane()
    plane.create_topic("t", 3)
    plane.create_topic("u")
    [result] = describe(plane, topics=[DescribableLogDirTopic(topic="t", partitions=[2, 9])]).values()
    assert sizes(result) == {("t", 2): 0}
    assert (result.total_bytes, result.usable_bytes) == (-1, -1)


def test_a_failed_disk_is_told() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk, log_dirs="/one,/two")
    plane.create_topic("t", 2)
    disk.fail_next(errno.EIO, path="/one/t", name="write_at")
    plane.produce({("t", number): batch([b"x"]) for number in range(2)})
    results = describe(plane)
    assert {path: code_of(each) for path, each in results.items()} == {"/one": "KAFKA_STORAGE_ERROR", "/two": "NONE"}
    assert (results["/one"].topics, len(sizes(results["/two"]))) == ([], 1)


def test_a_real_disk_has_a_size(tmp_path: Any) -> None:
    plane = DataPlane(RealFileSystem(), log_dirs=str(tmp_path))
    [result] = describe(plane).values()
    assert 0 < result.usable_bytes <= result.total_bytes
    plane.run(plane.logs.stop())
