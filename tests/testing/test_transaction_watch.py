"""What comes first in a transaction is looked at on the disks, and in those who lead."""

from __future__ import annotations

from enum import Enum
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.replication.leader_state import LeaderState
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.replica_log import ReplicaLog
from barnabas.testing.sim.transaction_checker import TransactionInvariant
from barnabas.testing.sim.transaction_log_checker import Status
from barnabas.testing.sim.transaction_watch import MarkerView, TransactionWatch
from barnabas.wire.stored.transaction_state import PartitionsSchema, TransactionLogKey, TransactionLogValue
from tests.testing.transaction_logs import TransactionalLog

TOTALS = TopicPartition("totals", 0)
STATES = TopicPartition("__transaction_state", 0)
NODES = (1, 2, 3)


def break_(invariant: Enum, text: str) -> NoReturn:
    raise InvariantBrokenError(invariant, text)


class Disks:
    """Three replicas of a partition and of the states, each with a log that a test writes to."""

    def __init__(self) -> None:
        self.disks = {node_id: SimulatedDisk(Random(1), now_ms=lambda: 0) for node_id in NODES}
        self.seen: dict[tuple[int, TopicPartition], ReplicaLog] = {}
        self.logs: dict[tuple[int, TopicPartition], TransactionalLog] = {}
        for node_id, disk in self.disks.items():
            for name in (TOTALS, STATES):
                disk.make_directory(self._directory(name))
                self.seen[node_id, name] = ReplicaLog(disk, self._directory(name))
                self.logs[node_id, name] = TransactionalLog()
        #: What the first node, which leads, says of its log.
        self.leader = SimpleNamespace(high_watermark=0, last_stable_offset=0)
        self.lost: set[str] = set()
        self.watch = TransactionWatch(
            [self._node(node_id) for node_id in NODES],
            {TOTALS: 2},
            [STATES],
            lambda node_id, name: self.seen[node_id, name],
            lambda: self.lost,
            break_,
        )

    def _directory(self, name: TopicPartition) -> str:
        return f"/data/{name.topic}-{name.partition}"

    def _node(self, node_id: int) -> Any:
        role = LeaderState.__new__(LeaderState) if node_id == 1 else None
        partition = SimpleNamespace(log=self.leader, role=role)
        manager = SimpleNamespace(get=lambda name: partition if name == TOTALS else None)
        return SimpleNamespace(
            host=SimpleNamespace(address=f"host-{node_id}", is_running=True),
            settings=SimpleNamespace(node_id=node_id),
            node=SimpleNamespace(services=SimpleNamespace(replica_manager=manager)),
        )

    def write(self, node_id: int, name: TopicPartition) -> None:
        """To the disk, all that the log has."""
        path = f"{self._directory(name)}/00000000000000000000.log"
        file = self.disks[node_id].open(path, create=True)
        file.truncate(0)
        file.write_at(0, self.logs[node_id, name].data)

    def state(self, status: Status, *nodes: int, epoch: int = 0) -> None:
        partitions = [PartitionsSchema(topic=TOTALS.topic, partition_ids=[TOTALS.partition])]
        value = TransactionLogValue(
            producer_id=7,
            producer_epoch=epoch,
            transaction_timeout_ms=1,
            transaction_status=status,
            transaction_partitions=partitions if status.is_prepared else [],
            transaction_last_update_timestamp_ms=0,
            transaction_start_timestamp_ms=0,
        )
        key = TransactionLogKey(transactional_id="w").encode_key()
        for node_id in nodes:
            log = self.logs[node_id, STATES]
            log.records([(key, value.encode_value(0))], producer_id=-1, epoch=-1, is_transactional=False)
            self.write(node_id, STATES)

    def records(self, *nodes: int) -> None:
        for node_id in nodes:
            self.logs[node_id, TOTALS].values(b"x", b"y")
            self.write(node_id, TOTALS)

    def marker(self, *nodes: int, is_commit: bool = True, epoch: int = 0) -> None:
        for node_id in nodes:
            self.logs[node_id, TOTALS].marker(is_commit=is_commit, epoch=epoch)
            self.write(node_id, TOTALS)

    def look(self, high_watermark: int, last_stable_offset: int) -> None:
        self.leader.high_watermark, self.leader.last_stable_offset = high_watermark, last_stable_offset
        self.watch.look()

    def broken(self, high_watermark: int = 0, last_stable_offset: int = 0) -> Enum:
        with pytest.raises(InvariantBrokenError) as caught:
            self.look(high_watermark, last_stable_offset)
        return caught.value.invariant


@pytest.fixture
def disks() -> Disks:
    """Records of a transaction, everywhere."""
    made = Disks()
    made.records(*NODES)
    made.look(2, 0)
    return made


def test_first_the_decision_then_the_markers_then_the_end(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    disks.look(2, 0)
    disks.marker(1, 2)
    disks.look(3, 3)
    disks.state(Status.PREPARE_COMMIT, 3)
    disks.state(Status.COMPLETE_COMMIT, 1, 3)
    disks.marker(3)
    disks.look(3, 3)
    assert disks.watch.hanging() == ""


@pytest.mark.parametrize(("status", "epoch"), [(Status.PREPARE_ABORT, 0), (Status.PREPARE_COMMIT, 1)])
def test_a_marker_that_was_decided_otherwise(disks: Disks, status: Status, epoch: int) -> None:
    disks.state(status, *NODES, epoch=epoch)
    disks.marker(1)
    assert disks.broken() is TransactionInvariant.DECIDED_FIRST


def test_a_marker_whose_decision_too_few_have(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1)
    disks.marker(2)
    assert disks.broken() is TransactionInvariant.DECIDED_FIRST


def test_a_machine_that_lost_power_may_have_had_it(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1)
    disks.marker(2)
    disks.lost.add("host-3")
    disks.look(2, 0)


def test_the_next_transaction_of_the_same_epoch_needs_a_decision_of_its_own(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    disks.marker(*NODES)
    disks.records(*NODES)
    disks.look(3, 3)
    disks.marker(*NODES)
    assert disks.broken() is TransactionInvariant.DECIDED_FIRST


def test_an_end_before_enough_have_the_markers(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    disks.marker(1)
    disks.state(Status.COMPLETE_COMMIT, 1)
    assert disks.broken() is TransactionInvariant.COMPLETE_LAST


@pytest.mark.parametrize(("high_watermark", "last_stable_offset"), [(2, 1), (2, 2), (1, 1)])
def test_a_last_stable_offset_within_what_is_open(disks: Disks, high_watermark: int, last_stable_offset: int) -> None:
    assert disks.broken(high_watermark, last_stable_offset) is TransactionInvariant.LAST_STABLE


def test_a_marker_decides_once_it_is_committed(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    disks.marker(1)
    disks.look(2, 0)
    assert disks.broken(2, 2) is TransactionInvariant.LAST_STABLE
    assert disks.broken(3, 0) is TransactionInvariant.LAST_STABLE
    assert "is stable up to 0" in disks.watch.hanging()


def test_who_was_started_again_does_not_know_which_markers_were_not_committed(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    disks.marker(1)
    disks.watch.cut("host-1")
    disks.look(2, 2)
    disks.look(2, 0)


def test_a_log_that_was_cut_is_read_again(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    view = MarkerView(TOTALS, disks.seen[2, TOTALS])
    disks.marker(2)
    view.refresh()
    assert sum(view.ended.values()) == 1
    disks.logs[2, TOTALS].batches.pop()
    disks.write(2, TOTALS)
    view.refresh()
    assert sum(view.ended.values()) == 0
    assert view.last_stable_offset(2) == 0


def test_a_batch_over_which_power_was_lost_is_not_read(disks: Disks) -> None:
    disks.state(Status.PREPARE_COMMIT, 1, 2)
    disks.marker(2)
    view = MarkerView(TOTALS, disks.seen[2, TOTALS])
    path = "/data/totals-0/00000000000000000000.log"
    marker = disks.logs[2, TOTALS].batches[-1]
    size = len(disks.logs[2, TOTALS].data)
    disks.disks[2].open(path).write_at(size - len(marker) + 61, bytes(len(marker) - 61))
    view.refresh()
    assert sum(view.found.values()) == 0
