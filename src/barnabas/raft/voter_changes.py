"""Changes of the voters while the quorum works (KIP-853): one voter at a time, by a record in the log.

A new set counts from the moment that it is in a log, committed or not; so a change begins only when the one before it
is committed, and when the leader has committed a record of its own epoch: else two sets without a common majority could
be in force at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.raft.batches import ControlRecord
from barnabas.raft.effects import VotersChanged
from barnabas.raft.states.leader import Leader, PendingVoterChange
from barnabas.raft.types import ReplicaKey
from barnabas.raft.voters import STATIC_VOTERS, VOTERS_IN_LOG, Voter, VoterSet
from barnabas.records.control import ControlType
from barnabas.wire.stored.control_records import KRaftVersionRecord

if TYPE_CHECKING:
    from barnabas.raft.machine import RaftMachine


class _RefusedError(Exception):
    """A change that is not begun."""

    def __init__(self, error: ErrorCode, reason: str) -> None:
        super().__init__(reason)
        self.error = error
        self.reason = reason


def add_voter(machine: RaftMachine, token: object, voter: Voter, now_ms: int) -> None:
    """Make a voter of an observer that has caught up. `token` is told the end by `VotersChanged`."""

    def change(leader: Leader) -> VoterSet:
        if machine.voters.get(voter.key.node_id) is not None:
            raise _RefusedError(ErrorCode.DUPLICATE_VOTER, f"{voter.key.node_id} is a voter already")
        if voter.key.directory_id == Uuid.ZERO:
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "a new voter is named with the id of its directory")
        progress = leader.progress.get(voter.key)
        if progress is None or progress.last_caught_up_ms < 0:
            why = f"{voter.key} does not fetch from this leader yet, or has not caught up"
            raise _RefusedError(ErrorCode.REQUEST_TIMED_OUT, why)
        return machine.voters.with_voter(voter)

    _change(machine, token, change)


def remove_voter(machine: RaftMachine, token: object, key: ReplicaKey, now_ms: int) -> None:
    """Make an observer of a voter. A leader may remove itself: it resigns when that is committed."""

    def change(_: Leader) -> VoterSet:
        _check_is_voter(machine, key)
        if len(machine.voters) == 1:
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "the last voter cannot be removed")
        return machine.voters.without(key.node_id)

    _change(machine, token, change)


def update_voter(machine: RaftMachine, token: object, voter: Voter, now_ms: int) -> None:
    """Say where a voter listens now. Where voters stand in the settings there is nothing to write: a voter that says
    it to its new leader all the same (as Apache Kafka's do) is told that this was noted."""

    def records(_: Leader) -> list[ControlRecord]:
        _check_is_voter(machine, voter.key)
        if machine.kraft_version < VOTERS_IN_LOG or machine.voters.get(voter.key.node_id) == voter:
            return []
        return [machine.voters.with_voter(voter).to_record()]

    _append(machine, token, records)


def put_voters_into_log(machine: RaftMachine, token: object, keys: Sequence[ReplicaKey], now_ms: int) -> None:
    """Raise kraft.version from 0 to 1: the voters of the settings come into the log, each with its directory, together
    with the version, in one batch: both are there or neither."""

    def records(_: Leader) -> list[ControlRecord]:
        if machine.kraft_version != STATIC_VOTERS:
            raise _RefusedError(ErrorCode.INVALID_UPDATE_VERSION, "the voters are in the log already")
        by_id = {key.node_id: key for key in keys}
        if set(by_id) != set(machine.voters.ids) or any(key.directory_id == Uuid.ZERO for key in keys):
            raise _RefusedError(ErrorCode.INVALID_REQUEST, "the directory of each voter must be known")
        voters = VoterSet(Voter(by_id[each.key.node_id], each.listeners) for each in machine.voters)
        version = KRaftVersionRecord(version=0, k_raft_version=VOTERS_IN_LOG)
        return [ControlRecord(ControlType.KRAFT_VERSION, version), voters.to_record()]

    _append(machine, token, records)


def _change(machine: RaftMachine, token: object, change: Callable[[Leader], VoterSet]) -> None:
    def records(leader: Leader) -> list[ControlRecord]:
        if machine.kraft_version < VOTERS_IN_LOG:
            why = "the voters stand in the settings of every node (kraft.version 0); raise kraft.version to 1 first"
            raise _RefusedError(ErrorCode.UNSUPPORTED_VERSION, why)
        return [change(leader).to_record()]

    _append(machine, token, records)


def _append(machine: RaftMachine, token: object, records: Callable[[Leader], list[ControlRecord]]) -> None:
    try:
        leader = _ready_leader(machine)
        to_append = records(leader)
    except _RefusedError as refused:
        machine.emit(VotersChanged(token, refused.error, refused.reason))
        return
    if not to_append:
        machine.emit(VotersChanged(token, ErrorCode.NONE))
        return
    leader.pending_change = PendingVoterChange(token, machine.log.end_offset + len(to_append) - 1)
    leader.append_control(to_append)


def _ready_leader(machine: RaftMachine) -> Leader:
    state = machine.state
    if not isinstance(state, Leader):
        raise _RefusedError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "only the leader changes the voters")
    if not state.is_ready:
        raise _RefusedError(ErrorCode.REQUEST_TIMED_OUT, "the leader has not committed anything in its epoch yet")
    if machine.history.voter_sets.newest_offset >= machine.high_watermark:
        raise _RefusedError(
            ErrorCode.REQUEST_TIMED_OUT, "the change of the voters before this one is not committed yet"
        )
    return state


def _check_is_voter(machine: RaftMachine, key: ReplicaKey) -> None:
    if machine.voters.get(key.node_id) is None or not machine.voters.is_voter(key):
        raise _RefusedError(ErrorCode.VOTER_NOT_FOUND, f"{key} is not a voter")
