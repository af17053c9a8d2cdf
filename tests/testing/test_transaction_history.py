"""What a log tells of its transactions, read without asking a node."""

from __future__ import annotations

from barnabas.testing.sim.transaction_history import LoggedMarker, Outcome, read_history
from tests.testing.transaction_logs import TransactionalLog


def outcomes(log: TransactionalLog) -> list[tuple[int, bytes | None, Outcome]]:
    return [(each.offset, each.value, each.outcome) for each in read_history(log.data).records]


def test_a_marker_decides_about_all_that_its_producer_has_open() -> None:
    log = TransactionalLog()
    log.values(b"a", b"b", producer_id=1)
    log.values(b"plain", producer_id=-1, is_transactional=False)
    log.values(b"c", producer_id=2)
    log.values(b"d", producer_id=1)
    log.marker(is_commit=True, producer_id=1)
    log.marker(is_commit=False, producer_id=2)
    log.values(b"e", producer_id=1)
    assert outcomes(log) == [
        (0, b"a", Outcome.COMMITTED),
        (1, b"b", Outcome.COMMITTED),
        (2, b"plain", Outcome.PLAIN),
        (3, b"c", Outcome.ABORTED),
        (4, b"d", Outcome.COMMITTED),
        (7, b"e", Outcome.OPEN),
    ]
    history = read_history(log.data)
    assert [each.value for each in history.seen_by(read_committed=True)] == [b"a", b"b", b"plain", b"d"]
    assert len(history.seen_by(read_committed=False)) == 6
    assert [each.ended_at for each in history.records] == [5, 5, None, 6, 5, None]


def test_a_marker_that_comes_again_ends_nothing() -> None:
    log = TransactionalLog()
    log.values(b"a")
    log.marker(is_commit=True, epoch=1, coordinator_epoch=3)
    log.marker(is_commit=True, epoch=1, coordinator_epoch=4)
    assert read_history(log.data).markers == [
        LoggedMarker(1, 7, 1, 3, is_commit=True, has_ended=True),
        LoggedMarker(2, 7, 1, 4, is_commit=True, has_ended=False),
    ]
