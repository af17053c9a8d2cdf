"""KRaft's Raft as a library: a log that a majority of replicas keeps, led by one of them at a time.

It knows nothing of topics. `RaftNode` replicates a state machine of yours; `docs/raft.md` teaches it. Below it,
`RaftDriver` runs `RaftMachine` over a `Transport` and a `LogStore`, for those who bring their own.
"""

from barnabas.raft.driver import RaftDriver
from barnabas.raft.machine import RaftMachine
from barnabas.raft.node import (
    NotLeaderError,
    OutcomeUnknownError,
    RaftNode,
    RaftOptions,
    StateMachine,
    parse_voters,
)
from barnabas.raft.options import QuorumOptions
from barnabas.raft.ports import LogStore, RaftListener, Transport
from barnabas.raft.raft_log import RaftLog
from barnabas.raft.socket_transport import SocketTransport
from barnabas.raft.types import Address, ReplicaKey
from barnabas.raft.voters import VoterSet

__all__ = [
    "Address",
    "LogStore",
    "NotLeaderError",
    "OutcomeUnknownError",
    "QuorumOptions",
    "RaftDriver",
    "RaftListener",
    "RaftLog",
    "RaftMachine",
    "RaftNode",
    "RaftOptions",
    "ReplicaKey",
    "SocketTransport",
    "StateMachine",
    "Transport",
    "VoterSet",
    "parse_voters",
]
