"""Batches as producers and coordinators send them, and a log reduced to what it decides about them."""

from __future__ import annotations

import random

from barnabas.base.ids import TopicPartition
from barnabas.records.batch import HEADER, TRANSACTIONAL_BIT, BatchView
from barnabas.records.control import TransactionMarker, build_marker
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.producer_state import ProducerStates
from barnabas.testing.sim.disk import SimulatedDisk

PARTITION = TopicPartition("t", 0)
MAX = 2**31 - 1
PID = 1000


def data(
    sequence: int,
    count: int = 1,
    *,
    pid: int = PID,
    epoch: int = 0,
    offset: int = 0,
    timestamp_ms: int = 5000,
    transactional: bool = False,
) -> BatchView:
    """A batch of which only the header matters here."""
    attributes = TRANSACTIONAL_BIT if transactional else 0
    size_bytes = HEADER.size - 12
    fields = (
        offset,
        size_bytes,
        0,
        2,
        0,
        attributes,
        count - 1,
        timestamp_ms,
        timestamp_ms,
        pid,
        epoch,
        sequence,
        count,
    )
    return BatchView(bytearray(HEADER.pack(*fields)))


def marker(
    *,
    commit: bool = True,
    pid: int = PID,
    epoch: int = 0,
    coordinator_epoch: int = 0,
    offset: int = 0,
    timestamp_ms: int = 6000,
) -> BatchView:
    batch = BatchView(build_marker(TransactionMarker(pid, epoch, coordinator_epoch, commit), timestamp_ms))
    batch.stamp(base_offset=offset, leader_epoch=0)
    return batch


class Story:
    """A leader's log reduced to what these tests look at: it gives offsets, and answers in one line."""

    def __init__(self) -> None:
        self.states = ProducerStates(PARTITION)
        self.end = 0

    def send(self, batch: BatchView, *, coordinator: bool = False, transaction_version: int = 0) -> str:
        try:
            if coordinator:
                self.states.check_from_coordinator(batch, transaction_version)
                duplicate = None
            else:
                duplicate = self.states.check(batch)
        except AppendRefusedError as refusal:
            return refusal.code.name
        if duplicate is not None:
            return f"duplicate of {duplicate.first_offset} to {duplicate.last_offset}"
        return self.take(batch)

    def take(self, batch: BatchView) -> str:
        batch.stamp(base_offset=self.end, leader_epoch=0)
        ended = self.states.apply(batch)
        self.end = batch.next_offset
        if ended is None:
            return f"at {batch.base_offset}"
        outcome = "aborted" if ended.is_aborted else "committed"
        return f"{outcome} {ended.first_offset} to {ended.last_offset}, stable to {ended.last_stable_offset}"

    def end_transaction(self, transaction_version: int = 0, **fields: int | bool) -> str:
        return self.send(marker(**fields), coordinator=True, transaction_version=transaction_version)  # type: ignore[arg-type]


def refusal_of(states: ProducerStates, batch: BatchView, *, coordinator: bool = False, version: int = 0) -> str:
    """The code and the text with which a batch is refused."""
    try:
        if coordinator:
            states.check_from_coordinator(batch, version)
        else:
            states.check(batch)
    except AppendRefusedError as refusal:
        return f"{refusal.code.name}: {refusal}"
    raise AssertionError(f"{batch} was accepted")


def new_disk(seed: int = 1) -> SimulatedDisk:
    disk = SimulatedDisk(random.Random(seed))
    disk.make_directory("t-0")
    disk.sync_directory("")
    return disk
