"""A coordinator reads its partition back: records that make no sense are passed over, damage is refused."""

from __future__ import annotations

import logging
from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.steps import at_once
from barnabas.broker.groups.group_coordinator import GroupCoordinatorService
from barnabas.coordinator.offsets.records import offset_record
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.messages.describe_groups import DescribedGroup
from barnabas.wire.stored.consumer_offsets import OffsetCommitValue
from tests.broker.data_plane import DataPlane, answers_of, batch, produce_request

PARTITION = TopicPartition(CONSUMER_OFFSETS, 0)
LOG = f"/one/{PARTITION}/00000000000000000000.log"
GROUPS = ("a", "b", "c")


@pytest.fixture
def plane() -> DataPlane:
    return with_commits()


def with_commits(**settings: Any) -> DataPlane:
    """A node whose offsets topic has a commit of each group, in batches of their own."""
    plane = DataPlane(SimulatedDisk(Random(1)), **settings)
    plane.create_topic(CONSUMER_OFFSETS, cleanup_policy="compact")
    for number, group in enumerate(GROUPS):
        record = offset_record(
            group,
            TopicPartition("t", 0),
            OffsetCommitValue(offset=number, leader_epoch=-1, metadata="", commit_timestamp=plane.now_ms),
        )
        plane.replica_manager.append_as_coordinator(
            PARTITION, batch([record.data.value], key=record.data.key), plane.now_ms
        )
    return plane


def loaded(plane: DataPlane) -> GroupCoordinatorService:
    service = GroupCoordinatorService(plane.settings, plane.services.runtime, 1, plane.replica_manager)

    async def load() -> None:
        service.start()
        service.apply(plane.image, ClusterDelta(partitions_changed=(PARTITION,)))

    plane.run(load())
    plane.pass_ms(1000)
    return service


def described(service: GroupCoordinatorService) -> dict[str, DescribedGroup]:
    return {group: at_once(service.describe_group(group, tells_missing=True)) for group in GROUPS}


def offsets(service: GroupCoordinatorService) -> dict[str, list[int]]:
    found: dict[str, Any] = {
        group: at_once(service.fetch_offsets(group, None, require_stable=False)) for group in GROUPS
    }
    return {
        group: [part.committed_offset for topic in each.topics for part in topic.partitions]
        for group, each in found.items()
    }


RIGHT = {"a": [0], "b": [1], "c": [2]}


def test_a_record_without_sense_is_told_and_keeps_nobody_from_the_coordinator(
    plane: DataPlane, caplog: pytest.LogCaptureFixture
) -> None:
    pill = batch([b"value"] * 7, key=b"\x00\x01")
    answer = plane.ask(produce_request({(CONSUMER_OFFSETS, 0): pill}), 12, client_id="__admin_client")
    assert answers_of(answer)[CONSUMER_OFFSETS, 0].error_code == ErrorCode.NONE
    assert offsets(loaded(plane)) == RIGHT
    [warning] = [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]
    assert warning.startswith(f"{PARTITION}: records of groups that are not understood: 7 skipped")
    assert "at the offsets 3, 4, 5, 6, 7, …: their key cannot be read" in warning


def flip(plane: DataPlane, position: int) -> None:
    file = plane.files.open(LOG)
    file.write_at(position, bytes([file.read_at(position, 1)[0] ^ 1 << position % 8]))


def test_a_flipped_bit_hides_no_commit() -> None:
    """In the second of three batches, in each of its bytes."""
    size_bytes = with_commits().files.size(LOG) // 3
    wrong = []
    for position in range(size_bytes, 2 * size_bytes):
        plane = with_commits()
        flip(plane, position)
        service = loaded(plane)
        is_refused = {each.error_code for each in described(service).values()} == {ErrorCode.NOT_COORDINATOR}
        # The leader epoch of a batch is not under its checksum, and says nothing to groups.
        is_of_no_account = position - size_bytes in range(12, 16) and offsets(service) == RIGHT
        if not (is_refused or is_of_no_account):
            wrong.append((position - size_bytes, offsets(service)))
    assert wrong == []


def test_damage_is_told_once_with_file_offset_and_remedy(plane: DataPlane, caplog: pytest.LogCaptureFixture) -> None:
    size_bytes = plane.files.size(LOG) // 3
    flip(plane, 2 * size_bytes - 1)
    loaded(plane)
    [error] = [each.getMessage() for each in caplog.records if each.levelno == logging.ERROR]
    assert f"{PARTITION} is offline: {LOG}, byte {size_bytes}: damaged at offset 1: " in error
    assert "restore the partition from a copy" in error
    assert plane.partition(CONSUMER_OFFSETS).log is None
    assert plane.fetch(CONSUMER_OFFSETS).error_code == ErrorCode.KAFKA_STORAGE_ERROR


def test_whole_batches_are_taken_in_buffers_that_are_smaller_than_they_are() -> None:
    assert offsets(loaded(with_commits(offsets_load_buffer_size="1"))) == RIGHT
