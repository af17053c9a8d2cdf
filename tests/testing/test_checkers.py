"""The checker finds what was planted, says what it is, and accuses nobody else."""

from __future__ import annotations

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.checkers import GroupCommits, LogChecker

A = TopicPartition("a", 0)
B = TopicPartition("b", 1)


def good_history(**options: bool) -> LogChecker:
    """Two acknowledged batches, one of unknown fate that was written, one reader."""
    checker = LogChecker(**options)
    checker.sent(A, [b"1", b"2"], "p")
    checker.acknowledged(A, 0, [b"1", b"2"])
    checker.sent(A, [b"3"], "p")
    checker.sent(A, [b"4"], "p")
    checker.acknowledged(A, 3, [b"4"])
    checker.read(A, 0, [b"1"], "r")
    checker.read(A, 1, [b"2", b"3"], "r")
    return checker


def kinds(checker: LogChecker) -> list[str]:
    return [violation.kind.value for violation in checker.violations]


def test_a_good_history_is_accepted() -> None:
    checker = good_history()
    checker.finish(A, [b"1", b"2", b"3", b"4"])
    checker.check()
    assert checker.acknowledged_count == 3


def test_records_of_unknown_fate_may_be_missing_or_come_late() -> None:
    checker = LogChecker()
    checker.sent(A, [b"1"], "p")
    checker.sent(A, [b"2"], "p")
    checker.acknowledged(A, 0, [b"2"])
    checker.finish(A, [b"2", b"1"])
    checker.check()
    other = LogChecker()
    other.sent(A, [b"1"], "p")
    other.finish(A, [])
    other.check()


def test_a_lost_acknowledged_record_is_found() -> None:
    checker = good_history()
    checker.finish(A, [b"1", b"2", b"3"])
    assert kinds(checker) == ["an acknowledged record is lost"]
    with pytest.raises(AssertionError, match=r"lost in a-0: b'4' at 3"):
        checker.check()


def test_a_lost_record_that_was_only_read_is_found() -> None:
    checker = LogChecker()
    checker.sent(A, [b"1"])
    checker.read(A, 0, [b"1"], "r")
    checker.finish(A, [])
    assert kinds(checker) == ["a record that was read is lost"]


def test_an_offset_that_changes_is_found() -> None:
    checker = good_history()
    checker.finish(A, [b"1", b"3", b"2", b"4"])
    assert "an offset changed" in kinds(checker)


def test_an_offset_acknowledged_twice_is_found() -> None:
    checker = good_history()
    checker.sent(A, [b"5"], "q")
    checker.acknowledged(A, 3, [b"5"])
    assert kinds(checker) == ["one offset acknowledged twice", "an offset changed"]


def test_a_record_from_nowhere_is_found() -> None:
    checker = good_history()
    checker.read(B, 0, [b"ghost"], "r")
    assert kinds(checker) == ["a record that nobody sent"]


def test_a_record_that_was_refused_and_is_there_is_found() -> None:
    checker = LogChecker()
    checker.sent(A, [b"1"])
    checker.refused(A, [b"1"])
    checker.finish(A, [b"1"])
    assert kinds(checker) == ["a refused record is there"]


@pytest.mark.parametrize(("offset", "kind"), [(1, "a reader went back"), (3, "a reader missed records")])
def test_readers_that_jump_are_found(offset: int, kind: str) -> None:
    checker = LogChecker()
    values = [b"0", b"1", b"2", b"3"]
    checker.sent(A, values)
    checker.read(A, 0, values[:2], "r")
    checker.read(A, offset, values[offset : offset + 1], "r")
    assert kinds(checker) == [kind]


def test_readers_may_seek() -> None:
    checker = good_history()
    checker.seek(A, "r", 1)
    checker.read(A, 1, [b"2"], "r")
    checker.seek(A, "r")
    checker.read(A, 3, [b"4"], "r")
    checker.check()


def test_disorder_among_acknowledged_records_of_one_producer_is_found() -> None:
    checker = LogChecker()
    checker.sent(A, [b"1"], "p")
    checker.sent(A, [b"2"], "p")
    checker.sent(A, [b"3"], "q")
    checker.acknowledged(A, 2, [b"1"])
    checker.acknowledged(A, 1, [b"2"])
    checker.acknowledged(A, 0, [b"3"])
    checker.finish(A, [b"3", b"2", b"1"])
    assert kinds(checker) == ["records are out of order"]


def test_duplicates_are_found_unless_allowed() -> None:
    for allow_duplicates in (False, True):
        checker = good_history(allow_duplicates=allow_duplicates)
        checker.finish(A, [b"1", b"2", b"3", b"4", b"3"])
        assert kinds(checker) == ([] if allow_duplicates else ["a record is there twice"])
    checker = good_history()
    checker.finish(A, [b"1", b"2", b"3", b"4", b"3"], may_be_twice={b"3"})
    checker.check()


def group_history() -> tuple[LogChecker, GroupCommits]:
    """One member has read and committed up to 5, then tried 8 without an answer."""
    checker = LogChecker()
    commits = GroupCommits(checker)
    commits.assigned(A, "first")
    commits.began(A, "first", 0)
    commits.trying(A, 5)
    commits.committed(A, "first", 5)
    commits.trying(A, 8)
    return checker, commits


@pytest.mark.parametrize("offset", [5, 8])
def test_a_group_goes_on_at_what_was_committed_or_tried_since(offset: int) -> None:
    checker, commits = group_history()
    commits.assigned(A, "second")
    commits.began(A, "second", offset)
    commits.found(A, offset)
    checker.check()
    assert commits.acknowledged_count == 1


@pytest.mark.parametrize("offset", [0, 4, 6, 9])
def test_a_group_that_goes_on_elsewhere_is_found(offset: int) -> None:
    checker, commits = group_history()
    commits.assigned(A, "second")
    commits.began(A, "second", offset)
    assert kinds(checker) == ["a group is not where it has committed"]


def test_once_another_owner_has_begun_what_was_tried_before_is_settled() -> None:
    checker, commits = group_history()
    commits.assigned(A, "second")
    commits.began(A, "second", 5)
    commits.assigned(A, "third")
    commits.began(A, "third", 8)
    assert kinds(checker) == ["a group is not where it has committed"]


def test_who_is_not_the_owner_any_more_settles_nothing() -> None:
    checker, commits = group_history()
    commits.assigned(A, "second")
    commits.began(A, "first", 0)  # it still thinks that it is
    commits.began(A, "second", 8)
    commits.trying(A, 12)
    commits.committed(A, "second", 12)
    commits.committed(A, "first", 8)  # its answer comes late
    commits.found(A, 12)
    checker.check()
