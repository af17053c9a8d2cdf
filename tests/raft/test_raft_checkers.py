"""The checkers find what must never happen, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.raft.types import OffsetAndEpoch, SnapshotId
from barnabas.testing.sim.raft_checkers import BatchFact, Invariant, RaftChecker


def batch(base: int, epoch: int, checksum: int = 7, count: int = 1) -> BatchFact:
    return BatchFact(base, base + count - 1, epoch, checksum)


def make(*logs: list[BatchFact]) -> RaftChecker:
    checker = RaftChecker()
    for node_id, log in enumerate(logs, 1):
        checker.log_opened(node_id, 0, 0, log)
    return checker


def test_a_quorum_that_does_right_breaks_nothing() -> None:
    log = [batch(0, 1), batch(1, 1, 8, 3), batch(4, 2, 9)]
    checker = make(log, log[:2], [*log[:2], batch(4, 1, 10)])
    checker.leads_from(1, 2)
    checker.committed_up_to(1, 4, 1)
    checker.committed_up_to(1, 5, 2)
    checker.truncated(3, 4)
    checker.appended(3, [log[2]])
    checker.committed_up_to(3, 5, 2)
    checker.cleaned(3, 4)
    checker.started_anew(2, SnapshotId(5, 2))
    checker.voted(1, 2, 1)
    checker.voted(1, 2, 1)
    checker.voted(1, 3, 2)
    checker.granted(1, OffsetAndEpoch(5, 2), 2, OffsetAndEpoch(4, 3))
    for node_id in (1, 2):
        checker.applied(node_id, 5, 0xABC)
    assert checker.broken is None


A, B = batch(0, 1), batch(1, 1, 8)

Wrong = Callable[[RaftChecker], None]


def both(one: Wrong, other: Wrong) -> Wrong:
    def do(checker: RaftChecker) -> None:
        one(checker)
        other(checker)

    return do


def commits_both(checker: RaftChecker) -> None:
    checker.committed_up_to(1, 2, 1)


WRONGS: list[tuple[Invariant, Wrong]] = [
    (Invariant.LOG_MATCHING, lambda checker: checker.appended(3, [batch(2, 2)])),
    (Invariant.LOG_MATCHING, lambda checker: checker.appended(3, [batch(1, 1, 9)])),
    (Invariant.ONE_VOTE, both(lambda checker: checker.voted(1, 5, 2), lambda checker: checker.voted(1, 5, 3))),
    (Invariant.LEADER_COMPLETENESS, both(commits_both, lambda checker: checker.leads_from(3, 2))),
    (Invariant.COMMITTED_STAYS, both(commits_both, lambda checker: checker.truncated(1, 1))),
    (Invariant.COMMITTED_STAYS, lambda checker: checker.started_anew(3, SnapshotId(2, 1))),
    (Invariant.COMMIT_RULE, lambda checker: checker.committed_up_to(1, 2, 2)),
    (Invariant.HIGH_WATERMARK_GROWS, lambda checker: checker.committed_up_to(3, 2, 1)),
    (Invariant.SAME_STATE, both(lambda checker: checker.applied(1, 2, 5), lambda checker: checker.applied(2, 2, 6))),
    (
        Invariant.VOTES_FOR_COMPLETE_LOGS,
        lambda checker: checker.granted(1, OffsetAndEpoch(5, 2), 2, OffsetAndEpoch(9, 1)),
    ),
]


@pytest.mark.parametrize(("invariant", "wrong"), WRONGS, ids=[each[0].name.lower() for each in WRONGS])
def test_each_wrong_is_told_as_what_it_is(invariant: Invariant, wrong: Wrong) -> None:
    checker = make([A, B], [A, B], [A])
    wrong(checker)
    assert checker.broken is not None
    assert checker.broken.invariant is invariant
    assert "replica" in checker.broken.text or "that of" in checker.broken.text


def test_the_same_record_after_another_history_does_not_match() -> None:
    checker = make([A, B, batch(2, 3)], [A, batch(1, 2)])
    checker.appended(2, [batch(2, 3)])
    assert checker.broken is not None
    assert checker.broken.invariant is Invariant.LOG_MATCHING


def test_what_was_committed_must_be_committed_alike_everywhere() -> None:
    checker = make([A, B], [A, batch(1, 2, 9)])
    checker.committed_up_to(1, 2, 1)
    checker.committed_up_to(2, 2, 2)
    assert checker.broken is not None
    assert checker.broken.invariant is Invariant.COMMITTED_STAYS


def test_a_leader_of_an_older_epoch_need_not_have_what_a_newer_one_committed() -> None:
    """It was elected late, by votes that were given before the newer epoch began."""
    checker = make([A, batch(1, 3)], [A])
    checker.committed_up_to(1, 2, 3)
    checker.leads_from(2, 2)
    assert checker.broken is None


def test_what_too_few_have_synced_is_not_committed() -> None:
    checker = RaftChecker(count_safe=lambda node_id, batch: (1, 2))
    checker.log_opened(1, 0, 0, [A])
    checker.committed_up_to(1, 1, 1)
    assert checker.broken is not None
    assert checker.broken.invariant is Invariant.COMMITTED_IS_SAFE
