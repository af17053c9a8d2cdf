"""Replicas whose logs are damaged: who fetches them anew, and who must not be emptied."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from random import Random
from typing import Any, cast

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.data.directory_assignments import AssignmentsManager
from barnabas.metadata.features import METADATA_VERSION
from barnabas.metadata.image import LOST_DIRECTORY, ClusterImage, FeaturesImage
from barnabas.replication.follower_state import FollowerState
from barnabas.storage.errors import CorruptLogError, LogError
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
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


# While the node runs

ONE = Uuid(bytes(15) + b"\x09")


class Assigned:
    """A controller that takes note of where replicas lie."""

    def __init__(self, plane: DataPlane) -> None:
        self.directories: list[Uuid] = []
        self._manager = AssignmentsManager(cast(Any, self), NODE, lambda: 1, plane.logs, {"/one": ONE})
        self._plane = plane
        plane.replica_manager.on_corrupt = lambda name: self._apply()

    def _apply(self) -> None:
        features = FeaturesImage({METADATA_VERSION: 25})
        self._manager.apply(replace(self._plane.image, features=features), [T0])

    async def submit(self, request: AssignReplicasToDirsRequest, *_: object) -> AssignReplicasToDirsResponse:
        self.directories += [each.id for each in request.directories]
        return AssignReplicasToDirsResponse(directories=[])

    def told(self) -> Uuid:
        """The directory of the replica, as the controller heard it last."""
        self._plane.run(self._look())
        (*_, last), self.directories = self.directories, []
        return last

    async def _look(self) -> None:
        self._apply()
        await asyncio.sleep(0.01)


def corrupted() -> tuple[DataPlane, Assigned]:
    """A leader whose log turns out to have lost its end when somebody reads it."""
    plane = DataPlane()
    plane.create_topic("t", replicas=(1,))
    plane.append("t", b"a", b"b")
    plane.append("t", b"c")
    plane.run(plane.logs.stop(5))
    plane, image = DataPlane(plane.files), plane.image
    plane.image = image
    plane.change_partition("t", replicas=(1, 2, 3), isr=(1, 2, 3))
    assigned = Assigned(plane)
    file = plane.files.open(FILE)
    file.truncate(plane.files.size(FILE) - 1)
    file.close()
    assert plane.fetch("t").error_code == ErrorCode.KAFKA_STORAGE_ERROR
    plane.pass_ms(1)
    assert assigned.directories == [LOST_DIRECTORY]
    assigned.directories.clear()
    return plane, assigned


def lost(plane: DataPlane, **state: Any) -> None:
    """The controller has heard that the replica is lost."""
    follow(plane, **{"replicas": (1, 2, 3), "isr": (2, 3), "directories": (LOST_DIRECTORY, ONE, ONE)} | state)


def test_a_leader_whose_log_is_corrupt_gives_up_and_fetches_anew(caplog: pytest.LogCaptureFixture) -> None:
    plane, assigned = corrupted()
    assert f"t-0 is offline: {FILE}, byte " in caplog.text
    assert "restore the partition from a copy" in caplog.text
    assert plane.partition("t").role is None
    lost(plane)
    role = plane.partition("t").role
    assert isinstance(role, FollowerState)
    assert role.next_fetch(1).fetch_offset == 0
    assert len(strays(plane)) == 1
    assert assigned.told() == ONE


def test_a_corrupt_follower_is_fetched_anew() -> None:
    plane, assigned = corrupted()
    lost(plane)
    follow(plane, replicas=(1, 2, 3), isr=(1, 2, 3), directories=(ONE, ONE, ONE))

    async def fail() -> None:
        plane.logs.partition_failed(T0, CorruptLogError(FILE, 7, "a batch ends there"))

    plane.run(fail())
    assert plane.partition("t").role is None
    assert assigned.told() == LOST_DIRECTORY
    lost(plane, leader=3, leader_epoch=2)
    assert isinstance(plane.partition("t").role, FollowerState)
    assert len(strays(plane)) == 2


def test_a_corrupt_log_is_not_emptied_before_the_controller_has_heard_of_it() -> None:
    """Not in sync, as far as is known here; but the leader may have asked for it, by a fetch from before."""
    plane, _ = corrupted()
    lost(plane, directories=(ONE, ONE, ONE))
    assert plane.partition("t").role is None
    assert strays(plane) == []


@pytest.mark.parametrize(
    "state",
    [{"isr": (1,), "leader": -1}, {"isr": (), "leader": -1, "eligible_leader_replicas": (1,)}],
    ids=["the last in sync", "eligible"],
)
def test_a_corrupt_log_that_is_counted_on_stays(state: dict[str, Any]) -> None:
    plane, assigned = corrupted()
    lost(plane, **state)
    assert plane.partition("t").role is None
    assert strays(plane) == []
    assert assigned.directories == [], "that is known"


def test_the_only_replica_is_not_told_as_lost() -> None:
    """There is nobody else to lead, and who asks is told what is wrong."""
    plane = DataPlane()
    plane.create_topic("t", replicas=(1,))
    plane.append("t", b"a")
    assigned = Assigned(plane)
    plane.logs.partition_failed(T0, CorruptLogError(FILE, 7, "a batch ends there"))
    plane.pass_ms(1000)
    assert assigned.directories == []


def test_whoever_stops_with_a_corrupt_log_was_not_stopped_cleanly() -> None:
    plane, _ = corrupted()
    plane.run(plane.logs.stop(5))
    assert DataPlane(plane.files).logs.previous_broker_epoch == -1
