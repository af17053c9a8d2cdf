"""Every error as an answer to every request: what the program is told, and what it can do then.

The table is that of Java's client 4.3.1, read from its classes.
"""

from __future__ import annotations

from typing import Final

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import InvariantError
from barnabas.client.core.producing.transaction_manager import TransactionManager
from barnabas.client.core.producing.transaction_requests import Kind, TransactionRequest
from barnabas.client.core.producing.transaction_states import SOURCES, State
from tests.client.core.producing.transaction_stories import Player

FENCED: Final = {"PRODUCER_FENCED", "INVALID_PRODUCER_EPOCH"}
LOOKED_UP: Final = {"NOT_COORDINATOR", "COORDINATOR_NOT_AVAILABLE"}
GROUP_ERRORS: Final = {"FENCED_INSTANCE_ID", "UNKNOWN_MEMBER_ID", "ILLEGAL_GENERATION", "STALE_MEMBER_EPOCH"}

#: What leads to each request, and how its line begins.
WAYS: Final = {
    Kind.INIT_PRODUCER_ID: (["init", "found 1"], "> INIT"),
    Kind.ADD_PARTITIONS: (["init", "found 1", "reply NONE 7 0", "begin", "send 0 1"], "> ADD_PART"),
    Kind.ADD_OFFSETS: (["init", "found 1", "reply NONE 7 0", "begin", "offsets g 0=1"], "> ADD_OFF"),
    Kind.TXN_OFFSET_COMMIT: (
        ["init", "found 1", "reply NONE 7 0", "begin", "offsets g 0=1", "reply NONE", "found 1"],
        "> TXN",
    ),
    Kind.END: (
        ["init", "found 1", "reply NONE 7 0", "begin", "send 0 1", "reply NONE", "answer #1 0=NONE@0", "commit"],
        "> END",
    ),
}


def brought_to(kind: Kind) -> Player:
    player = Player()
    lines: list[str] = []
    words, begins = WAYS[kind]
    for each in words:
        lines = list(player.step(each.split()))
    assert lines[-1].startswith(begins), lines
    return player


def expected(kind: Kind, code: ErrorCode) -> State | str:
    """The state that an error leads to; or what happens with the request."""
    name = code.name
    if name in FENCED:
        return State.FATAL_ERROR
    if name in LOOKED_UP or (kind is Kind.TXN_OFFSET_COMMIT and name == "REQUEST_TIMED_OUT"):
        return "looked up"
    if code.retriable:
        return "again"
    if kind is Kind.INIT_PRODUCER_ID:
        allowed_later = (
            "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
            "CLUSTER_AUTHORIZATION_FAILED",
            "TRANSACTION_ABORTABLE",
        )
        return State.UNINITIALIZED if name in allowed_later else State.FATAL_ERROR
    if name == "TRANSACTION_ABORTABLE":
        return State.ABORTABLE_ERROR
    if kind is Kind.TXN_OFFSET_COMMIT:
        is_abortable = name in GROUP_ERRORS or name == "GROUP_AUTHORIZATION_FAILED"
        return State.ABORTABLE_ERROR if is_abortable else State.FATAL_ERROR
    if name == "UNKNOWN_PRODUCER_ID":
        return State.ABORTABLE_ERROR
    if kind is Kind.ADD_OFFSETS and name == "GROUP_AUTHORIZATION_FAILED":
        return State.ABORTABLE_ERROR
    always_fatal = ("TRANSACTIONAL_ID_AUTHORIZATION_FAILED", "INVALID_TXN_STATE", "INVALID_PRODUCER_ID_MAPPING")
    if kind is Kind.ADD_PARTITIONS and name not in always_fatal:
        return State.ABORTABLE_ERROR
    return State.FATAL_ERROR


@pytest.mark.parametrize("kind", WAYS, ids=lambda kind: kind.name)
def test_every_error(kind: Kind) -> None:
    for code in ErrorCode:
        if code is ErrorCode.NONE:
            continue
        player = brought_to(kind)
        before = player.manager.state
        lines = list(player.step(["reply", code.name]))
        wanted = expected(kind, code)
        if wanted == "looked up":
            assert lines[-1].startswith("> find"), (code, lines)
        elif wanted == "again":
            assert (player.manager.state, player.manager.has_requests) == (before, True), (code, lines)
            assert lines == [], (code, lines)
        else:
            assert player.manager.state is wanted, (code, lines)
            is_awaited = kind is not Kind.ADD_PARTITIONS
            assert any(line.startswith("= ") for line in lines) is True or not is_awaited, (code, lines)


@pytest.mark.parametrize("code", sorted(set(ErrorCode) - {ErrorCode.NONE}))
def test_an_abort_that_is_refused_for_good_is_the_end(code: ErrorCode) -> None:
    player = brought_to(Kind.ADD_PARTITIONS)
    for words in ("reply NONE", "answer #1 0=NONE@0", "abort"):
        lines = list(player.step(words.split()))
    assert lines[-1].startswith("> END abort")
    list(player.step(["reply", code.name]))
    assert (player.manager.state is State.FATAL_ERROR) is not code.retriable


def test_states_change_as_the_table_says() -> None:
    for target in State:
        for source in State:
            manager = TransactionManager("x", timeout_ms=1, retry_backoff_ms=1)
            manager.state = source
            if source in SOURCES[target]:
                manager._move(target)
                assert manager.state is target
            else:
                with pytest.raises(InvariantError):
                    manager._move(target)


def test_a_call_that_timed_out_is_made_again() -> None:
    manager = TransactionManager("x", timeout_ms=1, retry_backoff_ms=1)
    first = manager.init()
    assert manager.init() is first
    first.finish()
    assert manager.init() is first, "nobody has heard of the outcome yet"


def test_requests_go_by_their_kind() -> None:
    kinds = [Kind.BUMP_EPOCH, Kind.END, Kind.TXN_OFFSET_COMMIT, Kind.ADD_PARTITIONS, Kind.FIND_COORDINATOR]
    manager = TransactionManager("x", timeout_ms=1, retry_backoff_ms=1)
    manager._is_started = True
    manager._coordinators = {(coordinator, "x"): 1 for coordinator in (0, 1)}  # type: ignore[misc]
    for kind in kinds:
        manager._queue.append(TransactionRequest(kind, manager.pending, None, key="x"))
    went = []
    while (request := manager.next_request(0, has_incomplete=False)) is not None:
        went.append(request.kind)
        manager._in_flight = None
    assert went == sorted(kinds)
