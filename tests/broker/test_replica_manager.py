"""The replica manager: following the metadata log, the doors for coordinators, and logs that fail."""

from __future__ import annotations

import asyncio
import errno
from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage, ConfigResource, ConfigResourceType, PartitionImage, TopicImage
from barnabas.records import BatchView, iter_batches
from barnabas.storage.errors import CorruptLogError, LogError
from barnabas.testing.sim.disk import SimulatedDisk
from tests.broker.data_plane import DataPlane, batch, code_of, values_of, with_topic
from tests.metadata.images import topics_image

T0 = TopicPartition("t", 0)


@pytest.fixture
def plane() -> DataPlane:
    plane = DataPlane()
    plane.create_topic("t")
    return plane


def test_partitions_are_found_by_name_and_by_id(plane: DataPlane) -> None:
    topic_id = plane.image.topics["t"].topic_id
    assert plane.replica_manager.get(T0) is plane.replica_manager.by_id(topic_id, 0) is plane.partition("t")
    assert plane.replica_manager.get(TopicPartition("t", 1)) is None
    plane.delete_topic("t")
    assert plane.replica_manager.get(T0) is plane.replica_manager.by_id(topic_id, 0) is None
    assert plane.replica_manager.all == []


def test_a_deleted_topic_that_comes_again_begins_anew(plane: DataPlane) -> None:
    plane.append("t", b"old")
    plane.delete_topic("t")
    plane.create_topic("t")
    assert plane.fetch("t").high_watermark == 0
    names = [name for name in plane.files.names("/one") if name.startswith("t-0")]
    assert sorted(name.rpartition("-")[2] for name in names) == ["0", "delete"]


def test_deletion_and_creation_in_one_step(plane: DataPlane) -> None:
    plane.append("t", b"old")
    old = plane.image.topics["t"]
    new = TopicImage("t", Uuid(bytes(range(16))), old.partitions)
    image = ClusterImage(brokers=plane.image.brokers, topics=topics_image([new]))
    plane.apply(image, topics_deleted=(old,), topics_created=("t",), partitions_changed=(T0,))
    assert plane.fetch("t").high_watermark == 0
    assert plane.partition("t").topic_id == new.topic_id


def test_settings_of_topics_and_of_the_node_take_effect(plane: DataPlane) -> None:
    plane.create_topic("other", max_message_bytes="2000")
    log, other = plane.partition("t").led_log(), plane.partition("other").led_log()
    assert (log.settings.max_message_bytes, other.settings.max_message_bytes) == (1_048_588, 2000)
    topic = ConfigResource(ConfigResourceType.TOPIC, "t")
    configs = plane.image.configs.set(topic, {"max.message.bytes": "100"})
    plane.apply(with_topic(plane.image, plane.image.topics["t"], configs), configs_changed=(topic,))
    assert (log.settings.max_message_bytes, other.settings.max_message_bytes) == (100, 2000)
    plane.settings = plane.settings.load({**_given(plane), "message.max.bytes": 555})
    plane.apply(plane.image, configs_changed=(ConfigResource(ConfigResourceType.BROKER, ""),))
    assert (log.settings.max_message_bytes, other.settings.max_message_bytes) == (100, 2000)
    plane.create_topic("third")
    assert plane.partition("third").led_log().settings.max_message_bytes == 555


def _given(plane: DataPlane) -> dict[str, object]:
    return {
        "node.id": 1,
        "process.roles": "broker,controller",
        "controller.quorum.voters": "1@localhost:9093",
        "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
        "controller.listener.names": "CONTROLLER",
    }


def test_a_partition_that_moves_away_is_deleted_here(plane: DataPlane) -> None:
    plane.change_partition("t", replicas=(2,), isr=(2,), leader=2)
    assert plane.replica_manager.get(T0) is None
    assert code_of(plane.append("t", b"x")) == "NOT_LEADER_OR_FOLLOWER"
    assert plane.logs.get(T0) is None


def test_logs_may_be_made_beforehand_away_from_the_loop() -> None:
    plane = DataPlane(log_dirs="/one,/two")
    topic = TopicImage("t", Uuid(bytes(range(16))), (PartitionImage((1,), (1,), 1, 0, 0),) * 6)
    image = with_topic(plane.image, topic)
    delta = ClusterDelta(
        topics_created=("t",), partitions_changed=tuple(TopicPartition("t", number) for number in range(6))
    )
    plane.run(plane.replica_manager.prepare(image, delta))
    assert sorted(len(directory.logs) for directory in plane.logs.directories) == [3, 3]
    plane.apply(image, topics_created=delta.topics_created, partitions_changed=delta.partitions_changed)
    assert all(each.led_log().topic_id == topic.topic_id for each in plane.replica_manager.all)
    assert plane.append("t", b"x", number=5).base_offset == 0
    # What exists already is left alone.
    plane.run(plane.replica_manager.prepare(image, delta))
    assert values_of(plane.fetch("t", number=5)) == [b"x"]


def test_a_log_that_cannot_be_made_is_told_by_the_partition() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk, log_dirs="/one,/two")
    disk.fail_next(errno.EIO, path="/one/t-0")
    plane.create_topic("t", 2)
    assert code_of(plane.append("t", b"x")) == "KAFKA_STORAGE_ERROR"
    assert code_of(plane.append("t", b"x", number=1)) == "NONE"


def test_a_log_that_a_full_disk_had_no_room_for_is_made_when_it_has(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    disk.capacity_bytes = disk.used_bytes
    plane.create_topic("t", 2)
    names = TopicPartition("t", 0), TopicPartition("t", 1)

    def apply_again() -> None:
        delta = ClusterDelta(partitions_changed=plane.replica_manager.without_room)
        plane.run(plane.replica_manager.prepare(plane.image, delta))
        plane.replica_manager.apply(plane.image, delta)

    assert code_of(plane.append("t", b"x")) == "KAFKA_STORAGE_ERROR"
    for _ in range(3):
        apply_again()
        assert plane.replica_manager.without_room == names
    disk.capacity_bytes = None
    apply_again()
    assert plane.replica_manager.without_room == ()
    assert plane.append("t", b"x").base_offset == 0
    assert [each for each in caplog.messages if "t-1" in each] == [
        "t-1 has no log; it is made when there is room",
        "t-1 has its log now",
    ]


def test_what_is_deleted_needs_no_room() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    disk.capacity_bytes = disk.used_bytes
    plane.create_topic("t")
    assert plane.replica_manager.without_room
    plane.delete_topic("t")
    assert not plane.replica_manager.without_room


def test_a_log_without_an_id_is_adopted() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    log = plane.logs.create(T0)
    topic = plane.create_topic("t")
    assert (plane.partition("t").log is log, log.topic_id) == (True, topic.topic_id)
    plane.run(plane.logs.stop())
    again = DataPlane(disk)
    found = again.logs.get(T0)
    assert found is not None
    assert found.topic_id == topic.topic_id


def test_periodic_work_that_meets_a_failed_disk_takes_partitions_offline() -> None:
    disk = SimulatedDisk(Random(1))
    plane = DataPlane(disk)
    plane.create_topic("t")
    plane.append("t", b"x")
    plane.partition("t").led_log().roll(plane.now_ms)
    disk.fail_next(errno.EIO, name="sync")
    plane.run(plane.logs.flush_due_logs())
    assert code_of(plane.fetch("t")) == "KAFKA_STORAGE_ERROR"


# Coordinators


async def everything_in(plane: DataPlane, name: TopicPartition, max_bytes: int = 1 << 20) -> list[BatchView]:
    pieces = plane.replica_manager.read_all(name, max_bytes, plane.services.runtime)
    return [each async for data in pieces for each in iter_batches(data)]


def test_coordinators_append_wait_and_read(plane: DataPlane) -> None:
    offset = plane.replica_manager.append_as_coordinator(T0, batch([b"a", b"b"]), plane.now_ms)
    assert offset == 2

    async def wait() -> ErrorCode:
        return await plane.replica_manager.wait_for_high_watermark(T0, offset, 100)

    assert plane.run(wait()) is ErrorCode.NONE
    plane.replica_manager.append_as_coordinator(T0, batch([b"c"]), plane.now_ms)
    batches = plane.run(everything_in(plane, T0))
    assert [record.value for each in batches for record in each] == [b"a", b"b", b"c"]
    with pytest.raises(LogError, match="nope-0 has no replica on node 1") as refused:
        plane.replica_manager.append_as_coordinator(TopicPartition("nope", 0), batch([b"a"]), plane.now_ms)
    assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_coordinators_wait_for_replicas_and_hear_of_time_and_leaders(plane: DataPlane) -> None:
    plane.create_topic("r", replicas=(1, 2))
    name = TopicPartition("r", 0)
    offset = plane.replica_manager.append_as_coordinator(name, batch([b"a"]), plane.now_ms)

    async def wait(timeout_ms: int) -> ErrorCode:
        return await plane.replica_manager.wait_for_high_watermark(name, offset, timeout_ms)

    assert plane.run(wait(50)) is ErrorCode.REQUEST_TIMED_OUT
    waiting = plane.loop.create_task(wait(5000))
    plane.pass_ms(1)
    plane.partition("r").leading().update_follower_fetch_state(2, 1)
    assert plane.run(waiting) is ErrorCode.NONE
    offset = plane.replica_manager.append_as_coordinator(name, batch([b"b"]), plane.now_ms)
    waiting = plane.loop.create_task(wait(5000))
    plane.pass_ms(1)
    leading = plane.partition("r").leading()
    plane.change_partition("r", leader=2, leader_epoch=1)
    assert plane.run(waiting) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert leading.delayed_count == 0
    assert plane.run(wait(5)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_coordinators_read_on_when_retention_or_compaction_takes_files_away(plane: DataPlane) -> None:
    plane.create_topic("s", segment_bytes="1048576", file_delete_delay_ms="0", cleanup_policy="compact,delete")
    for each in range(30):
        plane.append("s", b"%d" % each * 50_000)
    log = plane.partition("s").led_log()
    reading = plane.loop.create_task(everything_in(plane, TopicPartition("s", 0), max_bytes=200_000))
    plane.pass_ms(1)
    assert not reading.done()
    log.advance_log_start(25)
    log.delete_old_segments(plane.now_ms)
    log.remove_deleted(plane.now_ms)
    found = [batch.base_offset for batch in plane.run(reading)]
    assert found[-5:] == [25, 26, 27, 28, 29]
    assert plane.logs.directories[0].is_online


def test_coordinators_read_away_from_the_loop(plane: DataPlane) -> None:
    plane.append("t", b"a")
    disk = plane.files
    assert isinstance(disk, SimulatedDisk)
    disk.fail_next(errno.EIO, name="read_at", path="/one/t-0/00000000000000000000.log")
    plane.partition("t").led_log().read(0, 1000, end_offset=1)
    with pytest.raises(LogError, match="log directory /one"):
        plane.run(everything_in(plane, T0))
    assert not plane.logs.directories[0].is_online


def test_topics_are_deleted_beforehand_away_from_the_loop(plane: DataPlane) -> None:
    plane.append("t", b"old")
    old = plane.image.topics["t"]
    new = TopicImage("t", Uuid(bytes(range(16))), old.partitions)
    image = ClusterImage(brokers=plane.image.brokers, topics=topics_image([new]))
    delta = ClusterDelta(topics_deleted=(old,), topics_created=("t",), partitions_changed=(T0,))
    plane.run(plane.replica_manager.prepare(image, delta))
    made = plane.logs.get(T0)
    assert made is not None
    assert (made.topic_id, made.log_end_offset) == (new.topic_id, 0)
    plane.apply(image, topics_deleted=(old,), topics_created=("t",), partitions_changed=(T0,))
    assert plane.partition("t").log is made
    assert plane.append("t", b"new").base_offset == 0
    names = [name for name in plane.files.names("/one") if name.startswith("t-0")]
    assert sorted(name.rpartition("-")[2] for name in names) == ["0", "delete"]


def test_a_topic_that_is_deleted_while_it_is_offline_begins_anew(plane: DataPlane) -> None:
    plane.append("t", b"old")
    plane.logs.partition_failed(T0, CorruptLogError("/one/t-0/x", 0, "torn"))
    plane.delete_topic("t")
    plane.create_topic("t")
    assert plane.append("t", b"new").base_offset == 0
    assert values_of(plane.fetch("t")) == [b"new"]


# Damage


def restarted(plane: DataPlane) -> DataPlane:
    """Another node on the disk of one that was stopped, told of all topics at once as at a start."""
    again = DataPlane(plane.files)
    partitions = [
        TopicPartition(name, number)
        for name, topic in plane.image.topics.items()
        for number in range(len(topic.partitions))
    ]
    again.apply(plane.image, topics_created=tuple(plane.image.topics), partitions_changed=tuple(partitions))
    again.replica_manager.set_aside_strays(plane.image)
    return again


@pytest.mark.parametrize("is_gone", [True, False], ids=["the directory is gone", "the last file is empty"])
def test_a_partition_that_lost_records_answers_with_a_storage_error_over_restarts(
    plane: DataPlane, is_gone: bool, caplog: pytest.LogCaptureFixture
) -> None:
    plane.create_topic("other")
    for number in range(3):
        plane.append("t", b"%d" % number)
        plane.append("other", b"%d" % number)
    plane.run(plane.logs.stop())
    if is_gone:
        plane.files.rename("/one/t-0", "/elsewhere")
    else:
        file = plane.files.open(f"/one/t-0/{0:020d}.log")
        file.truncate(0)
        file.close()
    for _ in range(3):
        caplog.clear()
        plane = restarted(plane)
        assert code_of(plane.append("t", b"new")) == "KAFKA_STORAGE_ERROR"
        assert code_of(plane.fetch("t")) == "KAFKA_STORAGE_ERROR"
        assert code_of(plane.append("other", b"new")) == "NONE"
        assert "t-0 cannot be used" in caplog.text
        assert "accept-loss --directory /one t-0" in caplog.text
        plane.run(plane.logs.stop())


def test_a_topic_that_lost_its_directory_can_be_deleted_and_created_again(plane: DataPlane) -> None:
    plane.append("t", b"old")
    plane.run(plane.logs.stop())
    plane.files.rename("/one/t-0", "/elsewhere")
    plane = restarted(plane)
    plane.delete_topic("t")
    plane.create_topic("t")
    assert plane.append("t", b"new").base_offset == 0
    plane.run(plane.logs.stop())
    assert values_of(restarted(plane).fetch("t")) == [b"new"]


def test_checkpoints_of_a_topic_that_is_no_more_are_forgotten_at_the_start(plane: DataPlane) -> None:
    plane.append("t", b"old")
    plane.run(plane.logs.stop())
    plane.files.rename("/one/t-0", "/elsewhere")
    plane.image = ClusterImage(brokers=plane.image.brokers)
    plane = restarted(plane)
    plane.create_topic("t")
    assert plane.append("t", b"new").base_offset == 0


def test_a_new_leader_is_readable_once_its_followers_have_what_it_had() -> None:
    """Of what its predecessor wrote it does not know what was committed; a coordinator must have all of that."""
    plane = DataPlane()
    plane.create_topic("t", replicas=(1, 2))
    plane.append("t", b"a")
    plane.change_partition("t", leader=2, leader_epoch=1)
    plane.change_partition("t", leader=1, leader_epoch=2)
    waiting = asyncio.ensure_future(plane.replica_manager.until_readable(T0), loop=plane.loop)
    plane.pass_ms(200_000)
    assert not waiting.done()
    plane.change_partition("t", isr=(1,))
    assert plane.run(waiting) is ErrorCode.NONE
    plane.change_partition("t", leader=2, leader_epoch=3)
    assert plane.run(plane.replica_manager.until_readable(T0)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_reading_all_ends_when_the_lead_is_lost() -> None:
    plane = DataPlane()
    plane.create_topic("t", replicas=(1, 2))
    plane.append("t", b"a")
    plane.append("t", b"b")
    plane.change_partition("t", isr=(1,))

    async def read() -> None:
        pieces = plane.replica_manager.read_all(T0, 80, plane.services.runtime)
        await anext(pieces)
        plane.change_partition("t", leader=2, leader_epoch=1)
        with pytest.raises(LogError) as refused:
            await anext(pieces)
        assert refused.value.code is ErrorCode.NOT_LEADER_OR_FOLLOWER

    plane.run(read())
