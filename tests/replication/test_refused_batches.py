"""What is in flight behind a batch that was refused, or sent to another leader, does not get in before it."""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import PartitionImage
from barnabas.replication import refused_batches
from barnabas.replication.partition import Partition
from barnabas.replication.ports import NobodyElse
from barnabas.replication.refused_batches import KEPT_MS
from barnabas.storage.errors import LogError
from barnabas.testing.sim.disk import SimulatedDisk
from tests.replication.partitions import append, partition_on, state

PID = 7


class Ports(NobodyElse):
    def __init__(self) -> None:
        self.now_ms = 0

    def monotonic_ms(self) -> int:
        return self.now_ms


class Leader:
    """A partition on a disk that may be full."""

    def __init__(self, image: PartitionImage | None = None, **settings: Any) -> None:
        self.disk = SimulatedDisk(Random(1))
        self.ports = Ports()
        self.partition: Partition = partition_on(self.disk, image, self.ports, **settings)

    def send(self, sequence: int, *values: bytes, epoch: int = 0, pid: int = PID, acks_all: bool = True) -> str:
        """What a producer is told of a batch: where it is, or why not."""
        header = {"producer_id": pid, "producer_epoch": epoch, "base_sequence": sequence}
        try:
            appended = append(self.partition, *(values or (b"x",)), acks_all=acks_all, **header)
        except LogError as refusal:
            return refusal.code.name
        return f"{'duplicate of' if appended.is_duplicate else 'at'} {appended.first_offset}"

    def send_to_full_disk(self, sequence: int, *values: bytes, **how: Any) -> str:
        self.disk.capacity_bytes = self.disk.used_bytes
        try:
            return self.send(sequence, *values, **how)
        finally:
            self.disk.capacity_bytes = None


FULL = ErrorCode.KAFKA_STORAGE_ERROR.name
OUT_OF_ORDER = ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER.name


def test_what_was_in_flight_behind_it_is_not_out_of_order() -> None:
    """As librdkafka sends: five in flight, of which the first finds no room and the others do."""
    leader = Leader()
    assert leader.send(0) == "at 0"
    assert leader.send_to_full_disk(1) == FULL
    assert [leader.send(each) for each in (2, 3, 4, 5)] == [FULL] * 4
    assert [leader.send(each) for each in (1, 2, 3, 4, 5)] == [f"at {each}" for each in range(1, 6)]
    assert leader.send(3) == "duplicate of 3"
    assert leader.send(7) == OUT_OF_ORDER


def test_nothing_overtakes_the_first_batch_of_a_producer() -> None:
    """A log that does not know a producer takes any sequence; not if it has just refused an earlier one."""
    leader = Leader()
    assert leader.send_to_full_disk(0, b"a", b"b") == FULL
    assert leader.send(2) == FULL
    assert leader.send(0, b"a", b"b") == "at 0"
    assert leader.send(2) == "at 2"


def test_it_is_refused_for_as_long_as_it_takes() -> None:
    leader = Leader()
    for _ in range(3):
        leader.ports.now_ms += KEPT_MS - 1
        assert leader.send_to_full_disk(0) == FULL
        assert leader.send(1) == FULL
    assert leader.send(0) == "at 0"
    assert leader.send(1) == "at 1"


def test_too_few_in_sync_for_a_moment_is_such_a_reason() -> None:
    leader = Leader(image=state((1, 2), isr=(1,)), min_insync_replicas=2)
    assert leader.send(0) == "NOT_ENOUGH_REPLICAS"
    leader.partition.update(state((1, 2), partition_epoch=1))
    assert leader.send(1) == "NOT_ENOUGH_REPLICAS"
    assert [leader.send(each) for each in (0, 1)] == ["at 0", "at 1"]


def test_a_refused_retry_of_what_is_in_the_log_holds_nobody_up() -> None:
    """It may come late, over a connection that its producer has given up."""
    leader = Leader(image=state((1, 2)), min_insync_replicas=2)
    assert [leader.send(each) for each in (0, 1, 2)] == ["at 0", "at 1", "at 2"]
    leader.partition.update(state((1, 2), isr=(1,), partition_epoch=1))
    assert leader.send(1) == "NOT_ENOUGH_REPLICAS"
    leader.partition.update(state((1, 2), partition_epoch=2))
    assert leader.send(3) == "at 3"


def test_what_was_written_another_way_meanwhile_holds_nobody_up() -> None:
    leader = Leader(image=state((1, 2), isr=(1,)), min_insync_replicas=2)
    assert leader.send(0) == "NOT_ENOUGH_REPLICAS"
    assert leader.send(0, acks_all=False) == "at 0"
    leader.partition.update(state((1, 2), partition_epoch=1))
    assert [leader.send(each) for each in (1, 2)] == ["at 1", "at 2"]


def test_what_could_not_come_next_takes_no_place() -> None:
    """A producer that is fenced is refused like others while too few are in sync, and must not hide what is missing."""
    leader = Leader(image=state((1, 2)), min_insync_replicas=2)
    assert leader.send(0, epoch=1) == "at 0"
    leader.partition.update(state((1, 2), isr=(1,), partition_epoch=1))
    assert leader.send(1, epoch=1) == "NOT_ENOUGH_REPLICAS"
    assert leader.send(5, epoch=0) == "NOT_ENOUGH_REPLICAS"
    leader.partition.update(state((1, 2), partition_epoch=2))
    assert leader.send(2, epoch=1) == "NOT_ENOUGH_REPLICAS"
    assert [leader.send(each, epoch=1) for each in (1, 2)] == ["at 1", "at 2"]


@pytest.mark.parametrize("sequence", [2**31 - 2, 2**31 - 1])
def test_sequences_begin_again_at_zero(sequence: int) -> None:
    leader = Leader()
    assert leader.send(sequence - 1) == "at 0"
    assert leader.send_to_full_disk(sequence) == FULL
    assert leader.send((sequence + 1) % 2**31) == FULL
    assert leader.send(sequence - 1) == "duplicate of 0"
    assert leader.send(sequence) == "at 1"


def test_a_new_epoch_begins_anew_and_an_old_one_changes_nothing() -> None:
    leader = Leader()
    assert leader.send(0, epoch=1) == "at 0"
    assert leader.send_to_full_disk(1, epoch=1) == FULL
    assert leader.send(9, epoch=0) == "INVALID_PRODUCER_EPOCH"
    assert leader.send(2, epoch=1) == FULL
    assert leader.send(0, epoch=2) == "at 1"
    assert leader.send(2, epoch=2) == OUT_OF_ORDER


def test_whoever_leaves_it_out_is_told_in_the_end() -> None:
    leader = Leader()
    assert leader.send(0) == "at 0"
    assert leader.send_to_full_disk(1) == FULL
    leader.ports.now_ms += KEPT_MS
    assert leader.send(2) == OUT_OF_ORDER


# New leaders


NEW = state((1, 2), epoch=1, partition_epoch=1)


def test_at_a_new_leader_nothing_overtakes_the_first_batch_of_a_producer() -> None:
    """As Java sends: the first to a leader that does not answer any more, the second to its successor meanwhile."""
    leader = Leader(image=state((1, 2), leader=2))
    leader.partition.update(NEW)
    assert leader.send(926) == "LEADER_NOT_AVAILABLE"
    leader.ports.now_ms += 30_000
    assert leader.send(927) == "LEADER_NOT_AVAILABLE"
    assert leader.send(0, *[b"x"] * 926) == "at 0"
    assert [leader.send(each) for each in (926, 927)] == ["at 926", "at 927"]


def test_at_a_new_leader_known_producers_go_on() -> None:
    leader = Leader()
    assert leader.send(5) == "at 0"
    leader.partition.update(state((1, 2), leader=2, epoch=1, partition_epoch=1))
    leader.partition.update(state((1, 2), epoch=2, partition_epoch=2))
    assert [leader.send(each) for each in (6, 5, 7)] == ["at 1", "duplicate of 0", "at 2"]
    assert leader.send(0, pid=PID + 1) == "at 3"
    append(leader.partition, b"from nobody")
    assert leader.send(0, epoch=1) == "at 5"
    assert leader.send(8) == "INVALID_PRODUCER_EPOCH"


@pytest.mark.parametrize(("sequence", "epoch"), [(6, 0), (0, 1)])
def test_at_a_new_leader_a_gap_may_be_filled(sequence: int, epoch: int) -> None:
    """The missing batch may have come here when this node did not know yet that it leads."""
    leader = Leader()
    assert leader.send(5) == "at 0"
    leader.partition.update(state((1, 2), leader=2, epoch=1, partition_epoch=1))
    leader.partition.update(state((1, 2), epoch=2, partition_epoch=2))
    assert leader.send(sequence + 1, epoch=epoch) == "LEADER_NOT_AVAILABLE"
    assert [leader.send(sequence + each, epoch=epoch) for each in (0, 1)] == ["at 1", "at 2"]
    leader.ports.now_ms += KEPT_MS
    assert leader.send(sequence + 3, epoch=epoch) == OUT_OF_ORDER


def test_a_producer_whose_trace_has_expired_waits_once() -> None:
    leader = Leader(image=state((1, 2), leader=2))
    leader.partition.update(NEW)
    assert leader.send(926) == "LEADER_NOT_AVAILABLE"
    leader.ports.now_ms += KEPT_MS - 1
    assert leader.send(926) == "LEADER_NOT_AVAILABLE"
    leader.ports.now_ms += 1
    assert leader.send(926) == "at 0"
    assert leader.send(17, pid=PID + 1) == "at 1"


def test_who_led_just_before_is_no_new_leader() -> None:
    leader = Leader(image=state((1, 2), leader=2))
    leader.partition.update(NEW)
    leader.ports.now_ms += KEPT_MS
    leader.partition.update(state((1, 2), epoch=2, partition_epoch=2))
    assert leader.send(926) == "at 0"


@pytest.mark.parametrize("image", [state((1, 2), epoch=0), state((1,), epoch=3)])
def test_where_nobody_else_has_led_any_sequence_will_do(image: PartitionImage) -> None:
    assert Leader(image=image).send(926) == "at 0"


# Bounds


def test_others_are_not_concerned() -> None:
    leader = Leader()
    assert leader.send_to_full_disk(0) == FULL
    assert leader.send(5, pid=PID + 1) == "at 0"
    append(leader.partition, b"from nobody")
    assert leader.send(1) == FULL


def test_what_is_kept_is_bounded() -> None:
    leader = Leader()
    role = leader.partition.leading()
    for each in range(20):
        assert leader.send_to_full_disk(0, pid=each) == FULL
        leader.ports.now_ms += KEPT_MS // 10
    assert len(role._refused) == 10


def test_of_very_many_producers_the_newest_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(refused_batches, "_MOST", 5)
    leader = Leader()
    for each in range(20):
        assert leader.send_to_full_disk(0, pid=each) == FULL
    assert len(leader.partition.leading()._refused) == 5
    assert leader.send(1, pid=19) == FULL
    assert leader.send(1, pid=0) == "at 0"
