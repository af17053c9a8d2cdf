"""Unattached: no leader is known. The replica looks for one and, if it is a voter, asks for votes after a while."""

from __future__ import annotations

from math import inf
from typing import TYPE_CHECKING

from barnabas.raft.messages import FetchLog, FetchResult, RaftRequest, Vote
from barnabas.raft.states.base import RaftState
from barnabas.raft.transitions import Role

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine

_FIRST_SEARCH_BACKOFF_MS = 50
_LAST_SEARCH_BACKOFF_MS = 1000


class Unattached(RaftState):
    """See the module. It asks all voters and bootstrap addresses in turn: one that is dead must not keep it."""

    role = Role.UNATTACHED

    def __init__(self, machine: RaftMachine, now_ms: int, *, election_in_ms: float | None = None) -> None:
        super().__init__(machine)
        timeout_ms = machine.random_election_timeout_ms() if election_in_ms is None else election_in_ms
        self._election_at_ms = now_ms + timeout_ms
        self._search_at_ms: float = now_ms
        self._search_backoff_ms = _FIRST_SEARCH_BACKOFF_MS
        self._asked: RaftRequest | None = None

    @property
    def deadline_ms(self) -> float:
        return min(self._election_at_ms if self.machine.may_lead else inf, self._search_at_ms)

    def grants(self, vote: Vote, *, is_up_to_date: bool) -> bool:
        if vote.pre_vote:
            return is_up_to_date
        return is_up_to_date and self.machine.voted in (None, vote.candidate)

    def prolong(self, by_ms: int) -> None:
        self._election_at_ms += by_ms

    def tick(self, now_ms: int) -> None:
        if self.machine.may_lead and now_ms >= self._election_at_ms:
            self.machine.become_prospective(now_ms)
        elif now_ms >= self._search_at_ms:
            self._search(now_ms)

    def _search(self, now_ms: int) -> None:
        address = self.machine.next_search_address()
        if address is None:
            self._search_at_ms = inf
            return
        self._asked = self.machine.sign_of_life()
        self._search_at_ms = inf
        self.machine.send(address, self._asked)

    def on_fetch_result(self, fetch: FetchLog, result: FetchResult, now_ms: int) -> None:
        # If it told of a leader we would not be here any more.
        self._ask_another(fetch, now_ms)

    def on_no_result(self, request: RaftRequest, now_ms: int) -> None:
        self._ask_another(request, now_ms)

    def _ask_another(self, request: RaftRequest, now_ms: int) -> None:
        if request is self._asked:
            self._asked = None
            self._search_at_ms = now_ms + self._search_backoff_ms
            self._search_backoff_ms = min(2 * self._search_backoff_ms, _LAST_SEARCH_BACKOFF_MS)
