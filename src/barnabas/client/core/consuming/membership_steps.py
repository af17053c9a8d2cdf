"""What a member of a group has to do next, as its `Membership` says it."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from barnabas.base.ids import TopicPartition
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest
from barnabas.wire.messages.sync_group import SyncGroupRequest


class MemberState(Enum):
    """How far a member is."""

    #: Not in the group, or about to join it again after something went wrong.
    UNJOINED = "unjoined"
    #: JoinGroup is under way.
    JOINING = "joining"
    #: In the new generation, as its leader, which has yet to assign.
    LEADING = "leading"
    #: Waiting for its part.
    SYNCING = "syncing"
    #: Its part has come, and the program does not know yet.
    TAKING = "taking"
    STABLE = "stable"


#: Phases in which the coordinator expects heartbeats.
IN_GENERATION = frozenset({MemberState.LEADING, MemberState.SYNCING, MemberState.TAKING, MemberState.STABLE})


@dataclass(frozen=True, slots=True, eq=False)
class GiveUp:
    """Tell the program that it loses partitions, then call `gave_up`.

    With `is_lost`, others may have them already and nothing can be committed. Otherwise commit first what is to be
    committed.
    """

    partitions: tuple[TopicPartition, ...]
    is_lost: bool
    #: Once per rebalance, before the member joins: also the moment for a last commit of everything.
    is_before_join: bool


@dataclass(frozen=True, slots=True, eq=False)
class Join:
    """Send it, then call `join_answered` or `exchange_failed`."""

    request: JoinGroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Lead:
    """See to it that the metadata of these topics is known, then call `lead`."""

    topics: frozenset[str]


@dataclass(frozen=True, slots=True, eq=False)
class Sync:
    """Send it, then call `sync_answered` or `exchange_failed`."""

    request: SyncGroupRequest
    timeout_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class Take:
    """Tell the program what it has from now on, then call `took`."""

    partitions: tuple[TopicPartition, ...]
    added: tuple[TopicPartition, ...]
    generation: int


@dataclass(frozen=True, slots=True, eq=False)
class Wait:
    """Something is under way (None), or nothing is to be done for so long."""

    ms: float | None


@dataclass(frozen=True, slots=True, eq=False)
class Idle:
    """All is well; only heartbeats are to be sent."""


Step = GiveUp | Join | Lead | Sync | Take | Wait | Idle


@dataclass(frozen=True, slots=True, eq=False)
class Heartbeat:
    """Send it, then call `heartbeat_answered` or `heartbeat_failed`."""

    request: HeartbeatRequest


@dataclass(frozen=True, slots=True)
class GroupMetadata:
    """Who a consumer is in its group, as transactions and commits need it."""

    group_id: str
    generation: int = -1
    member_id: str = ""
    instance_id: str | None = None
