"""What replicas forget of producers is found, and excuses only what follows from it."""

from __future__ import annotations

from enum import Enum
from random import Random
from types import SimpleNamespace
from typing import Any, NoReturn

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.metadata.image import PartitionImage
from barnabas.records.batch import BatchView
from barnabas.records.builder import BatchBuilder
from barnabas.records.reading import iter_entries
from barnabas.storage.producer_state import ProducerStates
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.producer_checker import ProducerChecker
from barnabas.testing.sim.raft_checkers import InvariantBrokenError
from barnabas.testing.sim.replica_log import ReplicaLog

NAME = TopicPartition("t", 0)
DIRECTORY = "/data/t-0"
FILE = f"{DIRECTORY}/00000000000000000000.log"
HOST = "host"


def break_(invariant: Enum, text: str) -> NoReturn:
    raise InvariantBrokenError(invariant, text)


class Replica:
    """One node whose log is a file, and what it remembers of producers."""

    def __init__(self) -> None:
        self.disk = SimulatedDisk(Random(1), now_ms=lambda: 0)
        self.disk.make_directory(DIRECTORY)
        self.seen = ReplicaLog(self.disk, DIRECTORY)
        self.log = SimpleNamespace(producers=ProducerStates(NAME))
        manager = SimpleNamespace(get=lambda name: SimpleNamespace(log=self.log))
        member: Any = SimpleNamespace(
            host=SimpleNamespace(address=HOST, is_running=True),
            settings=SimpleNamespace(node_id=1),
            node=SimpleNamespace(services=SimpleNamespace(replica_manager=manager)),
        )
        self.checker = ProducerChecker([member], [NAME], lambda node_id, name: self.seen, break_)
        self.lead(1, 1)
        self._sequences: dict[tuple[int, int], int] = {}

    def lead(self, node_id: int, epoch: int) -> None:
        self.checker.changed(NAME, PartitionImage((1, 2), (1, 2), node_id, epoch, epoch))

    def append(self, value: bytes, *, producer_id: int = 7, epoch: int = 0, leader_epoch: int = 1) -> None:
        sequence = self._sequences.get((producer_id, epoch), 0)
        self._sequences[producer_id, epoch] = sequence + 1
        self.seen.refresh()
        builder = BatchBuilder(
            1 << 20,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=sequence,
            base_offset=self.seen.end_offset,
            leader_epoch=leader_epoch,
        )
        builder.append(value, None, 0)
        file = self.disk.open(FILE, create=True)
        data = builder.build()
        file.write_at(file.size(), data)
        for entry in iter_entries(data):
            assert isinstance(entry, BatchView)
            self.log.producers.apply(entry)

    def start_again(self) -> None:
        """As from a snapshot, which has only the newest batch of each producer."""
        entries = self.log.producers.entries()
        self.log = SimpleNamespace(producers=ProducerStates(NAME))
        self.log.producers.restore(entries)

    def sent_again(self) -> set[bytes]:
        self.seen.refresh()
        return self.checker.sent_again(NAME, self.seen.data())


@pytest.fixture
def replica() -> Replica:
    """Two batches of one producer, which the node remembers."""
    made = Replica()
    made.append(b"a")
    made.append(b"b")
    made.checker.look()
    return made


def test_more_than_five_batches_need_not_be_remembered(replica: Replica) -> None:
    for number in range(9):
        replica.append(b"%d" % number)
        replica.append(b"other %d" % number, producer_id=8)
        replica.checker.look()
    replica.append(b"anew", epoch=1)
    replica.checker.look()


def test_a_replica_that_knows_only_the_newest_batch_is_as_in_kafka(replica: Replica) -> None:
    replica.start_again()
    replica.checker.look()


def test_a_replica_without_the_newest_batch_is_found(replica: Replica) -> None:
    replica.log.producers.clear()
    with pytest.raises(InvariantBrokenError, match="knows of producers"):
        replica.checker.look()


def test_a_replica_that_remembers_what_was_cut_off_is_found(replica: Replica) -> None:
    content = replica.disk.peek(FILE)
    assert content is not None
    replica.disk.open(FILE).truncate(len(content) // 2)
    with pytest.raises(InvariantBrokenError, match="knows of producers"):
        replica.checker.cut(HOST)


def test_what_was_forgotten_may_be_there_again_in_a_newer_epoch(replica: Replica) -> None:
    replica.start_again()
    replica.checker.look()
    replica.append(b"a", epoch=1)
    replica.append(b"b", epoch=1)
    replica.append(b"c", epoch=1)
    assert replica.sent_again() == {b"a", b"b"}


def test_what_no_leader_had_forgotten_may_not(replica: Replica) -> None:
    replica.append(b"a", epoch=1)
    assert replica.sent_again() == set(), "it was never started again"
    replica.start_again()
    replica.checker.look()
    replica.append(b"a", epoch=2, leader_epoch=3)
    assert replica.sent_again() == set(), "the first was written twice before"


def test_what_only_others_had_forgotten_may_not(replica: Replica) -> None:
    other = Replica()
    other.lead(2, 1)
    other.append(b"a")
    other.append(b"b")
    other.start_again()
    other.checker.look()
    other.append(b"a", epoch=1)
    assert other.sent_again() == set()


def test_within_an_epoch_or_by_another_producer_nothing_may_be_there_again(replica: Replica) -> None:
    replica.start_again()
    replica.checker.look()
    replica.append(b"a")
    replica.append(b"b", producer_id=8, epoch=1)
    assert replica.sent_again() == set()
