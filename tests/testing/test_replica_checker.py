"""Replicas that do not hold what they must are found, on their disks and in what their nodes say."""

from __future__ import annotations

from enum import Enum
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn
from unittest.mock import Mock

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import PartitionImage
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.remote_replica import RemoteReplica
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.replica_checker import ReplicaChecker
from barnabas.testing.sim.replica_log import ReplicaLog
from tests.client.core.consuming.logs import batch

NAME = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
FIRST = f"{DIRECTORY}/00000000000000000000.log"
SECOND = f"{DIRECTORY}/00000000000000000003.log"


class Member:
    """A node whose log is a file, and whose high watermark is what the test says."""

    def __init__(self, node_id: int) -> None:
        self.disk = SimulatedDisk(Random(node_id), now_ms=lambda: 0)
        self.disk.make_directory(DIRECTORY)
        self.host = SimpleNamespace(disk=self.disk, address=f"host-{node_id}", is_running=True)
        self.settings = SimpleNamespace(node_id=node_id)
        self.log = SimpleNamespace(high_watermark=0, log_end_offset=0)
        self.partition = SimpleNamespace(log=self.log, role=None)
        manager = SimpleNamespace(get=lambda name: self.partition)
        self.node = SimpleNamespace(services=SimpleNamespace(replica_manager=manager))

    def append(self, base_offset: int, *values: bytes, epoch: int = 1, path: str = FIRST) -> None:
        file = self.disk.open(path, create=True)
        file.write_at(file.size(), batch(base_offset, values, epoch=epoch))
        self.log.log_end_offset = base_offset + len(values)

    def truncate(self, size_bytes: int, end_offset: int) -> None:
        self.disk.open(FIRST).truncate(size_bytes)
        self.log.log_end_offset = end_offset

    def lead(self, epoch: int) -> None:
        self.partition.role = Mock(spec=LeaderState, leader_epoch=epoch, log=self.log, followers={2: RemoteReplica(2)})


def break_(invariant: Enum, text: str) -> NoReturn:
    raise InvariantBrokenError(invariant, text)


class Replicas:
    def __init__(self) -> None:
        self.members = [Member(each) for each in (1, 2, 3)]
        self.image = PartitionImage((1, 2, 3), (1, 2, 3), 1, 1, 1)
        self.lost: set[str] = set()
        self.absent: set[str] = set()
        members: Any = self.members
        self.checker = ReplicaChecker(
            members, {NAME: 2}, lambda name: self.image, lambda: self.lost, lambda: self.absent, break_
        )

    def append(self, base_offset: int, *values: bytes) -> None:
        for member in self.members:
            member.append(base_offset, *values)

    def commit(self, offset: int) -> None:
        for member in self.members:
            member.log.high_watermark = offset


@pytest.fixture
def replicas() -> Replicas:
    """Two batches that all have, the first of them committed; the first node leads."""
    made = Replicas()
    made.append(0, b"a", b"b")
    made.append(2, b"c")
    made.commit(2)
    made.members[0].lead(1)
    made.checker.look()
    return made


def broken_by(look: Any, *arguments: Any) -> str:
    with pytest.raises(InvariantBrokenError) as broken:
        look(*arguments)
    return str(broken.value.invariant.name)


def test_replicas_that_agree_are_accepted(replicas: Replicas) -> None:
    replicas.commit(3)
    replicas.checker.look()
    replicas.checker.acknowledged(NAME, 2)
    assert replicas.checker.lagging() == ""
    replicas.checker.compare_bytes()
    assert replicas.checker.values(NAME) == [b"a", b"b", b"c"]
    assert replicas.checker.ends([NAME]) == {NAME: 3}


def test_what_is_not_committed_may_differ_and_be_cut_off(replicas: Replicas) -> None:
    follower = replicas.members[2]
    size_bytes = len(batch(0, [b"a", b"b"], epoch=1))
    follower.append(3, b"other", epoch=1)
    replicas.checker.look()
    follower.truncate(size_bytes, 2)
    replicas.checker.look()
    follower.append(2, b"c")
    follower.append(3, b"d", epoch=2, path=SECOND)
    replicas.checker.look()
    assert [each.base_offset for each in replicas.checker.log_of(3, NAME).batches] == [0, 2, 3]


@pytest.mark.parametrize(("base_offset", "values", "epoch"), [(2, [b"x"], 1), (2, [b"c"], 2), (2, [b"c", b"d"], 1)])
def test_a_replica_with_something_else_below_its_high_watermark_is_found(
    replicas: Replicas, base_offset: int, values: list[bytes], epoch: int
) -> None:
    replicas.commit(3)
    replicas.checker.look()
    follower = replicas.members[2]
    follower.truncate(len(batch(0, [b"a", b"b"], epoch=1)), 2)
    follower.append(base_offset, *values, epoch=epoch)
    follower.log.high_watermark = 4
    assert broken_by(replicas.checker.look) == "COMMITTED_IS_IDENTICAL"


def test_a_batch_that_begins_within_a_committed_one_is_found(replicas: Replicas) -> None:
    follower = replicas.members[1]
    follower.truncate(0, 0)
    follower.append(0, b"a")
    follower.append(1, b"b")
    assert broken_by(replicas.checker.look) == "COMMITTED_IS_IDENTICAL"


def test_a_new_leader_without_all_that_was_committed_is_found(replicas: Replicas) -> None:
    replicas.commit(3)
    replicas.checker.look()
    new = replicas.members[1]
    new.truncate(len(batch(0, [b"a", b"b"], epoch=1)), 2)
    new.log.high_watermark = 2
    new.lead(2)
    replicas.checker.look()  # the metadata does not say so yet
    replicas.image = PartitionImage((1, 2, 3), (2, 3), 2, 2, 2)
    assert broken_by(replicas.checker.look) == "LEADER_HAS_ALL"


@pytest.mark.parametrize("where", ["isr", "elr", "neither"])
def test_who_is_in_sync_or_eligible_without_all_that_was_committed_is_found(replicas: Replicas, where: str) -> None:
    replicas.commit(3)
    replicas.checker.look()
    behind = replicas.members[2]
    behind.truncate(len(batch(0, [b"a", b"b"], epoch=1)), 2)
    behind.log.high_watermark = 2
    elr = (3,) if where == "elr" else ()
    isr = (1, 2, 3) if where == "isr" else (1, 2)
    replicas.image = PartitionImage((1, 2, 3), isr, 1, 1, 2, eligible_leader_replicas=elr)
    replicas.lost = replicas.absent = {"host-3"}
    for _ in range(2):
        replicas.checker.look()  # it has lost power
    replicas.absent = set()  # and has registered since: whoever counts on it now knows of the loss
    replicas.checker.look()  # the leader may know more than we do
    if where == "neither":
        replicas.checker.look()
    else:
        assert broken_by(replicas.checker.look) == "IN_SYNC_HAVE_ALL"


def test_who_is_in_sync_with_something_else_in_place_of_what_was_committed_is_found(replicas: Replicas) -> None:
    replicas.commit(3)
    replicas.checker.look()
    other = replicas.members[2]
    other.truncate(len(batch(0, [b"a", b"b"], epoch=1)), 2)
    other.append(2, b"x")
    other.log.high_watermark = 2
    replicas.checker.look()
    assert broken_by(replicas.checker.look) == "IN_SYNC_HAVE_ALL"


def test_who_joins_those_in_sync_has_all_that_was_committed_at_once(replicas: Replicas) -> None:
    behind = replicas.members[2]
    behind.truncate(0, 0)
    behind.log.high_watermark = 0
    before, replicas.image = PartitionImage((1, 2, 3), (1, 2), 1, 1, 1), PartitionImage((1, 2, 3), (1, 2, 3), 1, 1, 2)
    assert broken_by(replicas.checker.changed, NAME, before, replicas.image) == "JOINS_WITH_ALL"
    replicas.checker.changed(NAME, replicas.image, before)  # who leaves need not have anything
    replicas.absent = {"host-3"}
    replicas.checker.changed(NAME, before, replicas.image)
    replicas.absent = set()
    behind.append(0, b"a", b"b")
    replicas.checker.changed(NAME, before, replicas.image)


def test_who_joins_those_in_sync_has_all_that_its_leader_had_when_it_began(replicas: Replicas) -> None:
    """What the leader found may have been committed by its predecessor."""
    behind = replicas.members[2]
    behind.truncate(len(batch(0, [b"a", b"b"], epoch=1)), 2)
    before, after = PartitionImage((1, 2, 3), (1, 2), 1, 2, 3), PartitionImage((1, 2, 3), (1, 2, 3), 1, 2, 4)
    assert broken_by(replicas.checker.changed, NAME, before, after) == "JOINS_WITH_ALL"
    behind.append(2, b"c")
    replicas.members[0].append(3, b"of its own epoch", epoch=2)
    replicas.checker.changed(NAME, before, after)


def test_a_high_watermark_that_falls_is_found(replicas: Replicas) -> None:
    replicas.members[0].log.high_watermark = 1
    assert broken_by(replicas.checker.look) == "HIGH_WATERMARK_RISES"


def test_a_leader_that_goes_by_a_fetch_of_a_former_life_is_found(replicas: Replicas) -> None:
    follower = replicas.members[0].partition.role.followers[2]
    for broker_epoch in (7, 9):
        follower.fetched(3, 0, 3, broker_epoch, 0)
        replicas.checker.look()
    follower.fetched(3, 0, 3, 7, 0)
    assert broken_by(replicas.checker.look) == "NEWEST_LIVES"
    replicas.members[0].lead(2)
    replicas.members[0].partition.role.followers[2].fetched(3, 0, 3, 7, 0)
    replicas.checker.look()  # a new leader may not have heard of the newest


def test_a_high_watermark_may_be_lower_in_another_epoch(replicas: Replicas) -> None:
    replicas.members[0].log.high_watermark = 1
    replicas.members[0].lead(2)
    replicas.checker.look()


def test_an_acknowledgement_of_what_too_few_have_is_found(replicas: Replicas) -> None:
    leader = replicas.members[0]
    leader.append(3, b"d")
    assert broken_by(replicas.checker.acknowledged, NAME, 3) == "ENOUGH_HAVE_IT"
    replicas.members[1].append(3, b"another")
    assert broken_by(replicas.checker.acknowledged, NAME, 3) == "ENOUGH_HAVE_IT"
    replicas.members[2].append(3, b"d")
    replicas.checker.acknowledged(NAME, 3)


def test_who_has_lost_power_may_have_had_it(replicas: Replicas) -> None:
    replicas.members[0].append(3, b"d")
    replicas.lost = {"host-2"}
    replicas.checker.acknowledged(NAME, 3)
    replicas.lost = {"host-1"}
    assert broken_by(replicas.checker.acknowledged, NAME, 3) == "ENOUGH_HAVE_IT"


def test_replicas_that_lag_or_differ_at_the_end_are_told_apart(replicas: Replicas) -> None:
    assert "high watermarks" in replicas.checker.lagging()
    replicas.commit(3)
    replicas.members[2].truncate(0, 0)
    replicas.members[2].append(0, b"a", b"b")
    replicas.members[2].append(2, b"x")
    assert replicas.checker.lagging() == ""
    assert broken_by(replicas.checker.compare_bytes) == "CAUGHT_UP"


def test_a_log_is_read_up_to_what_a_power_loss_left_of_it() -> None:
    member = Member(1)
    member.append(0, b"a")
    whole = ReplicaLog(member.disk, DIRECTORY)
    whole.refresh()
    file = member.disk.open(FIRST)
    file.write_at(file.size(), bytes(100))
    file.write_at(file.size(), bytes(batch(1, [b"b"]))[:70])
    seen = ReplicaLog(member.disk, DIRECTORY)
    seen.refresh()
    assert (seen.batches, seen.end_offset) == (whole.batches, 1)
    assert (seen.find(0), seen.find(1)) == (whole.batches[0], None)
