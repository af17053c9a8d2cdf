"""What the control topic holds, and what things are called."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.base.errors import RemoteProtocolError
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.spark.core.exactly_once import (
    Attempt,
    BatchDecision,
    Control,
    Receipt,
    Stream,
    TaskPart,
    Written,
    refusals,
)
from barnabas.spark.core.exactly_once.control import MOST_SUPERSEDED, decision_of, taken_over
from barnabas.spark.core.exactly_once.names import SLOTS, run_of

STREAM = Stream("q1", "orders")
HANDLE = TransactionHandle("barnabas-spark.q1.orders.task.r1.0.0.0.5", 7, 3, 2)
DECISION = BatchDecision(5, "r1", 12, 340, (TaskPart(0, 12, HANDLE),))


def test_a_control_record_is_read_as_it_was_written() -> None:
    for control in (Control("r1"), Control("r2", ("r1", "r0"), DECISION)):
        assert Control.decode(control.encode()) == control


@pytest.mark.parametrize("value", [b"", b"{}", b"[1]", b'{"owner":"r","superseded":[],"decision":{}}', b"\xff"])
def test_what_is_no_control_record_is_refused(value: bytes) -> None:
    with pytest.raises(RemoteProtocolError, match="no control record"):
        Control.decode(value)


def test_no_two_attempts_of_near_batches_share_an_id() -> None:
    ids = {
        Attempt(STREAM, run, batch, task, attempt, attempt_id).transactional_id
        for run in ("r1", "r2")
        for batch in range(SLOTS)
        for task in (0, 1, 11)
        for attempt in (0, 1, 11)
        for attempt_id in (1000, 1017)
    }
    assert len(ids) == 2 * SLOTS * 3 * 2 * 3
    assert all(run_of(each, STREAM) in ("r1", "r2") for each in ids)
    assert STREAM.driver_id not in ids


def test_a_task_without_rows_is_part_of_no_decision() -> None:
    written = [Written(Attempt(STREAM, "r1", 5, task, 0, 7)) for task in (0, 1)]
    assert decision_of(5, "r1", written) == BatchDecision(5, "r1", 0, 0, ())


def test_the_same_rows_are_known_in_whatever_tasks() -> None:
    def decided(*tasks: tuple[int, int, int]) -> BatchDecision:
        written = [
            Written(Attempt(STREAM, "r1", 5, task, 0, 7), rows, size_bytes, fingerprint=fingerprint)
            for task, (rows, size_bytes, fingerprint) in enumerate(tasks)
        ]
        return decision_of(5, "r1", written)

    largest = (1 << 64) - 1
    assert decided((1, 10, largest), (2, 5, 3)).has_rows_of(decided((3, 15, 2)))
    assert not decided((1, 10, largest), (2, 5, 3)).has_rows_of(decided((3, 15, 4)))
    assert not decided((1, 10, 1)).has_rows_of(decided((2, 10, 1)))
    # Of a decision that is older than fingerprints, number and size have to do.
    older = Control.decode(Control("r1", (), replace(decided((3, 15, 2)), fingerprint=None)).encode()).decision
    assert older is not None
    assert older.has_rows_of(decided((3, 15, 4)))
    assert not older.has_rows_of(decided((3, 14, 2)))


def test_who_takes_over_supersedes_everybody_but_himself() -> None:
    control = taken_over(Control("r1", ("r0",), DECISION), "r2", ["r9", "r2", "r1"])
    assert control == Control("r2", ("r0", "r1", "r9"), DECISION)
    assert taken_over(control, "r2", ["r3"]) is control
    assert len(taken_over(None, "r", map(str, range(200))).superseded) == MOST_SUPERSEDED


@pytest.mark.parametrize(
    ("receipt", "is_proof"),
    [
        (Receipt(5, HANDLE.transactional_id), True),
        (Receipt(5, "another"), False),
        (Receipt(4, HANDLE.transactional_id), False),
        # Batch 6 is decided when all of 5 is committed.
        (Receipt(6, "another"), True),
    ],
)
def test_what_a_receipt_proves(receipt: Receipt, is_proof: bool) -> None:
    assert receipt.proves(DECISION.parts[0], DECISION.batch) is is_proof


def test_a_torn_batch_is_told_with_tasks_and_rows() -> None:
    text = str(refusals.torn(STREAM, DECISION, [*DECISION.parts]))
    assert "Batch 5 of query q1 was decided by run r1" in text
    assert "task 0 (12 rows)" in text
