"""When `quorum-state` is written, and who waits for it.

An epoch and a vote are promises: what is said after them waits until they are safe. Who leads is a hint for the next
start, and nothing waits for that; a new leader and those who voted for it would lose seconds on a slow disk, and each
other. The file is written by one at a time, and what is older never comes after what is newer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from barnabas.raft.effects import SaveElection
from barnabas.raft.types import ElectionState, ReplicaKey


class Offload(Protocol):
    """Do something that blocks elsewhere. `then` is called if it succeeded, `finally_` in any case."""

    def __call__(
        self, work: Callable[[], None], then: Callable[[None], None], finally_: Callable[[], None], /
    ) -> None: ...


class ElectionSaver:
    """See the module. `write` blocks until what it was given is safe."""

    def __init__(self, key: ReplicaKey, write: Callable[[SaveElection], None], offload: Offload) -> None:
        self._key = key
        self._write = write
        self._offload = offload
        # What is safe: the epoch, and the vote in it.
        self._promised: tuple[int, ReplicaKey | None] | None = None
        self._is_writing = False
        self._next: SaveElection | None = None
        self._then: Callable[[], None] | None = None

    def found(self, state: ElectionState | None) -> None:
        self._promised = None if state is None else self._promise_in(state)

    @property
    def is_writing(self) -> bool:
        return self._is_writing

    def promises_more(self, state: ElectionState) -> bool:
        """Whether what is safe does not say as much."""
        return self._promise_in(state) != self._promised

    def save(self, effect: SaveElection, then: Callable[[], None] | None = None) -> None:
        """Write it, after what is being written; `then` is called when it is safe, or when that has failed. What waits
        its turn is superseded, unless somebody waits for it, who does not save anything else before."""
        self._next, self._then = effect, then
        if not self._is_writing:
            self._begin()

    def _begin(self) -> None:
        effect, self._next = self._next, None
        then, self._then = self._then, None
        if effect is None:
            return
        promise = self._promise_in(effect.state)

        def saved(_: None) -> None:
            self._promised = promise

        def ended() -> None:
            self._is_writing = False
            if then is not None:
                then()
            if not self._is_writing:
                self._begin()

        self._is_writing = True
        self._offload(lambda: self._write(effect), saved, ended)

    def _promise_in(self, state: ElectionState) -> tuple[int, ReplicaKey | None]:
        # Whoever leads has voted for itself.
        return state.epoch, self._key if state.leader_id == self._key.node_id else state.voted
