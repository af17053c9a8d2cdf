"""`quorum-state` is waited for where it makes a promise, and written in order."""

from __future__ import annotations

from collections.abc import Callable

from barnabas.base.ids import Uuid
from barnabas.raft.effects import SaveElection
from barnabas.raft.election_saver import ElectionSaver
from barnabas.raft.types import ElectionState, ReplicaKey

ME, OTHER = ReplicaKey(1, Uuid.ZERO), ReplicaKey(2, Uuid.ZERO)


class SlowFile:
    """Writes one after the other, each when it is told to."""

    def __init__(self) -> None:
        self.written: list[ElectionState] = []
        self.under_way: list[Callable[[], None]] = []
        self.safe: list[str] = []
        self.saver = ElectionSaver(ME, lambda effect: self.written.append(effect.state), self._offload)

    def _offload(self, work: Callable[[], None], then: Callable[[None], None], finally_: Callable[[], None], /) -> None:
        def end() -> None:
            work()
            then(None)
            finally_()

        self.under_way.append(end)

    def save(self, state: ElectionState, name: str = "") -> None:
        self.saver.save(SaveElection(state, 0, (1, 2, 3)), (lambda: self.safe.append(name)) if name else None)

    def end_one(self) -> None:
        (end,) = self.under_way
        self.under_way.clear()
        end()


def test_an_epoch_and_a_vote_are_promises_and_who_leads_is_none() -> None:
    saver = SlowFile().saver
    assert saver.promises_more(ElectionState(0))
    saver.found(ElectionState(5, -1, OTHER))
    assert not saver.promises_more(ElectionState(5, -1, OTHER))
    assert not saver.promises_more(ElectionState(5, 3, OTHER))
    assert saver.promises_more(ElectionState(5))
    assert saver.promises_more(ElectionState(6, -1, OTHER))
    # Whoever leads has voted for itself, which its file does not say.
    assert saver.promises_more(ElectionState(5, 1))
    saver.found(ElectionState(5, -1, ME))
    assert not saver.promises_more(ElectionState(5, 1))


def test_one_is_written_at_a_time_and_only_the_newest_of_those_that_wait() -> None:
    file = SlowFile()
    hint, later, vote = ElectionState(5, 2), ElectionState(5, 3), ElectionState(6, -1, OTHER)
    file.save(hint)
    file.save(later)
    file.save(vote, "vote")
    assert file.written == []
    file.end_one()
    assert (file.written, file.safe) == ([hint], [])
    assert file.saver.promises_more(vote)
    file.end_one()
    assert (file.written, file.safe) == ([hint, vote], ["vote"])
    assert not file.saver.promises_more(vote)
    assert not file.saver.is_writing
