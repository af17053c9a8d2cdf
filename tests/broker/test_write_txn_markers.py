"""WriteTxnMarkers: outcomes of transactions, partition by partition, and who may not write them."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.records import iter_batches
from barnabas.records.control import read_marker
from barnabas.wire.messages.write_txn_markers import WriteTxnMarkersRequest
from tests.broker.transaction_plane import TransactionPlane


@pytest.fixture
def plane() -> TransactionPlane:
    return TransactionPlane()


def test_a_marker_ends_the_transaction_and_is_a_batch_of_its_own(plane: TransactionPlane) -> None:
    plane.send_one(b"a", epoch=1)
    log = plane.partition("t").led_log()
    assert log.last_stable_offset == 0
    outcome = plane.write_markers(plane.marker(epoch=1, coordinator_epoch=4))
    assert outcome == {(7, "t", 0): ErrorCode.NONE}
    assert log.last_stable_offset == log.log_end_offset == 2
    data = bytes(plane.fetch("t", 1).records or b"")
    [marker] = list(iter_batches(memoryview(data)))
    assert (marker.producer_id, marker.producer_epoch, marker.base_sequence, marker.is_transactional) == (
        7,
        1,
        -1,
        True,
    )
    found = read_marker(marker)
    assert found is not None
    assert (found.coordinator_epoch, found.committed) == (4, True)


def test_what_is_aborted_is_told_to_readers_of_committed_data(plane: TransactionPlane) -> None:
    plane.send_one(b"a")
    plane.end(committed=False)
    data = plane.fetch("t", isolation_level=1)
    assert [(each.producer_id, each.first_offset) for each in data.aborted_transactions or []] == [(7, 0)]


def test_each_marker_and_partition_is_answered(plane: TransactionPlane) -> None:
    plane.change_partition("t", 1, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
    plane.send_one()
    plane.send_one(number=2, producer_id=8)
    outcome = plane.write_markers(
        plane.marker([("t", 0), ("t", 1), ("t", 9), ("nowhere", 0)]),
        plane.marker([("t", 2)], producer_id=8, committed=False),
    )
    assert outcome == {
        (7, "t", 0): ErrorCode.NONE,
        (7, "t", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        (7, "t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (7, "nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        (8, "t", 2): ErrorCode.NONE,
    }
    assert plane.write_markers() == {}


def test_a_coordinator_that_was_replaced_is_fenced(plane: TransactionPlane) -> None:
    plane.send_one()
    plane.end(coordinator_epoch=5)
    plane.send_one(sequence=1)
    outcome = plane.write_markers(plane.marker(coordinator_epoch=4))
    assert outcome == {(7, "t", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}
    assert plane.partition("t").led_log().producers.first_open_offset == 2
    plane.end(coordinator_epoch=6)


@pytest.mark.parametrize("transaction_version", [0, 1, 2])
def test_a_marker_that_comes_again_is_a_success(plane: TransactionPlane, transaction_version: int) -> None:
    """KAFKA-19999: the answer to the first was lost, and the coordinator asks until it has one."""
    epoch = 1 if transaction_version == 2 else 0
    plane.send_one()
    for _ in range(3):
        plane.end(epoch=epoch, transaction_version=transaction_version)
    assert plane.partition("t").led_log().producers.first_open_offset is None


def test_with_transactions_v2_a_late_marker_does_not_end_the_next_transaction(plane: TransactionPlane) -> None:
    plane.send_one()
    plane.end(epoch=1, transaction_version=2)
    plane.send_one(epoch=1)  # the next one has the epoch of that marker
    late = plane.marker(epoch=1, transaction_version=2)
    assert plane.write_markers(late) == {(7, "t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert plane.partition("t").led_log().producers.first_open_offset == 2
    plane.end(epoch=2, transaction_version=2)


def test_before_v2_a_marker_has_the_epoch_of_its_records(plane: TransactionPlane) -> None:
    plane.send_one()
    # Version 1 of the request cannot say otherwise, so the older rule holds.
    assert plane.write_markers(plane.marker(epoch=0), version=1) == {(7, "t", 0): ErrorCode.NONE}
    plane.send_one(sequence=1)
    plane.end(epoch=0, transaction_version=1)


def test_an_older_epoch_is_refused(plane: TransactionPlane) -> None:
    plane.send_one(epoch=3)
    assert plane.write_markers(plane.marker(epoch=2)) == {(7, "t", 0): ErrorCode.INVALID_PRODUCER_EPOCH}


def test_the_answer_waits_until_markers_are_committed() -> None:
    plane = TransactionPlane()
    plane.create_topic("r", replicas=(1, 2))
    waiting = plane.begin(WriteTxnMarkersRequest(markers=[plane.marker([("r", 0)])]))
    plane.pass_ms(10)
    assert not waiting.done()
    plane.partition("r").leading().update_follower_fetch_state(2, 1)
    assert plane.run(waiting).markers[0].topics[0].partitions[0].error_code == 0


def test_what_is_not_committed_in_time_is_told() -> None:
    plane = TransactionPlane()
    plane.create_topic("r", replicas=(1, 2))
    started_ms = plane.now_ms
    assert plane.write_markers(plane.marker([("r", 0)])) == {(7, "r", 0): ErrorCode.REQUEST_TIMED_OUT}
    assert plane.now_ms - started_ms == 30_000
