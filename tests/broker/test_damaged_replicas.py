"""Replicas whose logs are damaged: who fetches them anew, and who must not be emptied."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.image import ClusterImage
from barnabas.replication.follower_state import FollowerState
from barnabas.storage.errors import LogError
from barnabas.testing.sim.disk import SimulatedDisk
from tests.broker.data_plane import NODE, DataPlane

T0 = TopicPartition("t", 0)
FILE = "/one/t-0/00000000000000000000.log"


def restarted(*, is_missing: bool = False) -> DataPlane:
    """A node that stopped cleanly in broker epoch 5; then its log lost its end, or its directory."""
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("t", replicas=(1,))
    plane.append("t", b"a", b"b")
    plane.append("t", b"c")
    plane.run(plane.logs.stop(5))
    if is_missing:
        for name in disk.names("/one/t-0"):
            disk.remove(f"/one/t-0/{name}")
        disk.remove_directory("/one/t-0")
    else:
        file = disk.open(FILE)
        file.truncate(disk.size(FILE) - 1)
        file.close()
    image = plane.image
    plane = DataPlane(disk)
    plane.image = image
    return plane


def follow(plane: DataPlane, **state: Any) -> None:
    usual: dict[str, Any] = {"replicas": (1, 2), "leader": 2, "leader_epoch": 1, "isr": (2,)}
    plane.change_partition("t", **usual | state)


def strays(plane: DataPlane) -> list[str]:
    return [name for name in plane.files.names("/one") if name.endswith("-stray")]


def test_whoever_is_damaged_was_not_stopped_cleanly() -> None:
    assert restarted().logs.previous_broker_epoch == -1
    assert restarted(is_missing=True).logs.previous_broker_epoch == -1


def test_a_node_with_whole_logs_was() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("t")
    plane.run(plane.logs.stop(5))
    assert DataPlane(disk).logs.previous_broker_epoch == 5


@pytest.mark.parametrize("is_missing", [False, True])
def test_what_another_node_leads_is_fetched_anew(is_missing: bool, caplog: pytest.LogCaptureFixture) -> None:
    plane = restarted(is_missing=is_missing)
    follow(plane)
    partition = plane.partition("t")
    assert isinstance(partition.role, FollowerState)
    assert partition.role.next_fetch(1).fetch_offset == 0
    assert partition.role.next_fetch(1).last_fetched_epoch == -1
    assert len(strays(plane)) == (0 if is_missing else 1)
    assert "t-0 is damaged here, node 2 has it; it is fetched anew, and was set aside" in caplog.text


@pytest.mark.parametrize(
    "state",
    [
        {"isr": (1, 2)},
        {"isr": (1,), "leader": -1},
        {"eligible_leader_replicas": (1,)},
        {"isr": (1,), "leader": 1},
        {"isr": (), "leader": -1, "last_known_elr": (1,)},
    ],
    ids=["in sync", "the last in sync", "eligible", "leader", "the last that is known"],
)
def test_who_is_counted_on_is_not_emptied(state: dict[str, Any]) -> None:
    plane = restarted()
    before = plane.files.size(FILE)
    follow(plane, **state)
    assert plane.partition("t").role is None
    assert plane.files.size(FILE) == before
    assert strays(plane) == []
    with pytest.raises(LogError, match="accept-loss") as refused:
        plane.partition("t").leading()
    assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


def test_once_the_controller_counts_on_others_it_is_fetched_anew() -> None:
    plane = restarted()
    follow(plane, isr=(1, 2))
    assert plane.partition("t").role is None
    follow(plane, isr=(2,))
    assert isinstance(plane.partition("t").role, FollowerState)
    assert plane.partition("t").node_id == NODE
    assert len(strays(plane)) == 1


def test_a_log_whose_topic_cannot_be_read_is_not_taken_for_that_of_another() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("t", replicas=(1,))
    plane.append("t", b"a")
    plane.run(plane.logs.stop(5))
    file = disk.open("/one/t-0/partition.metadata")
    file.write_at(0, b"garbage")
    file.close()
    image = plane.image
    plane = DataPlane(disk)
    plane.apply(image, partitions_changed=(T0,))
    assert plane.partition("t").role is None
    assert strays(plane) == []


def test_a_log_that_cannot_be_read_for_another_reason_stays() -> None:
    plane = DataPlane()
    plane.create_topic("t", replicas=(1,))
    plane.append("t", b"a")
    plane.logs.partition_failed(T0, LogError(ErrorCode.KAFKA_STORAGE_ERROR, "a bad sector"))
    follow(plane)
    assert plane.partition("t").role is None
    assert strays(plane) == []


def test_a_damaged_log_of_a_topic_that_was_deleted_is_in_nobodys_way() -> None:
    """While the node was away its topic was deleted, and another was made that this node leads."""
    plane = restarted()
    plane.image = ClusterImage(brokers=plane.image.brokers)
    Uuid.random(plane.services.runtime.randomness)  # the one that the old topic had
    plane.create_topic("t", replicas=(1, 2))
    plane.append("t", b"new")
    assert plane.partition("t").led_log().log_end_offset == 1
    assert len(strays(plane)) == 1
