"""A classic group: its members, its generation, and what they agreed on."""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Iterable
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError, check
from barnabas.coordinator.classic.members import Client, Member, Protocol
from barnabas.coordinator.classic.states import NEXT_STATES, ClassicGroupState
from barnabas.wire.embedded.consumer_protocol import ConsumerProtocolSubscription
from barnabas.wire.stored.consumer_offsets import GroupMetadataValue

CONSUMER_PROTOCOL_TYPE: Final = "consumer"
_MAX_GENERATION: Final = 2**31 - 1
_NO_TIMESTAMP_MS: Final = -1
_NO_TIMEOUT_MS: Final = -1


class ClassicGroup:
    """What is going on in a group: soft state. The rules of rebalancing are in `rebalance`; here is only what holds at
    any time. What the log says of it is in `GroupMetadataManager.stored`; while the group is stable that is the same.

    Members stay in the order in which they came: the first becomes leader, and the next one after it leaves.
    """

    __slots__ = (
        "generation",
        "group_id",
        "leader_id",
        "members",
        "new_member_came",
        "pending_join",
        "pending_sync",
        "previous_state",
        "protocol",
        "protocol_type",
        "state",
        "state_since_ms",
        "static_ids",
        "subscribed_topics",
        "support",
    )

    def __init__(self, group_id: str, now_ms: int | None) -> None:
        self.group_id = group_id
        self.state = ClassicGroupState.EMPTY
        self.previous_state = ClassicGroupState.DEAD
        #: When it came into this state; None if the log was written by a broker that did not say.
        self.state_since_ms: int | None = now_ms
        self.generation = 0
        self.protocol_type: str | None = None
        self.protocol: str | None = None
        self.leader_id: str | None = None
        self.members: dict[str, Member] = {}
        self.static_ids: dict[str, str] = {}
        #: How many members support each protocol.
        self.support: Counter[str] = Counter()
        #: Were told to come back with the id that they were given (used as an ordered set).
        self.pending_join: dict[str, None] = {}
        #: Are in the generation and have not asked for their assignment (used as an ordered set).
        self.pending_sync: dict[str, None] = {}
        self.new_member_came = False
        #: None if it cannot be known: another protocol than the consumers', or a subscription that we cannot read.
        self.subscribed_topics: frozenset[str] | None = None

    @classmethod
    def restored(cls, group_id: str, stored: GroupMetadataValue) -> ClassicGroup:
        """A group as its record says: with members it is stable, without it is empty."""
        since_ms = stored.current_state_timestamp
        group = cls(group_id, None if since_ms == _NO_TIMESTAMP_MS else since_ms)
        group.generation = stored.generation
        group.protocol = stored.protocol
        group.leader_id = stored.leader
        for each in stored.members:
            member = Member(
                each.member_id,
                each.group_instance_id,
                Client(each.client_id, each.client_host),
                each.session_timeout if each.rebalance_timeout == _NO_TIMEOUT_MS else each.rebalance_timeout,
                each.session_timeout,
                # The log keeps only what was said for the protocol that was chosen.
                (Protocol(stored.protocol or "", each.subscription),),
                each.assignment,
            )
            group.add(member, stored.protocol_type)
        group.protocol_type = stored.protocol_type or None
        group.state = ClassicGroupState.STABLE if group.members else ClassicGroupState.EMPTY
        group.subscribed_topics = group.find_subscribed_topics()
        return group

    def move_to(self, state: ClassicGroupState, now_ms: int) -> None:
        check(
            state in NEXT_STATES[self.state],
            f"group {self.group_id}: from {self.state.value} it cannot move to {state.value}",
        )
        self.previous_state = self.state
        self.state = state
        self.state_since_ms = now_ms

    # Members

    def add(self, member: Member, protocol_type: str) -> None:
        if not self.members:
            # A group that everybody has left is of the type of whoever comes next.
            self.protocol_type = protocol_type
        if self.leader_id is None:
            self.leader_id = member.member_id
        self.members[member.member_id] = member
        self.support.update(each.name for each in member.protocols)
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = member.member_id
        self.pending_join.pop(member.member_id, None)

    def remove(self, member_id: str) -> Member | None:
        """Take a member, or somebody pending, out. Its parked requests are for the caller to answer."""
        member = self.members.pop(member_id, None)
        if member is not None:
            self.support.subtract(each.name for each in member.protocols)
            if member.instance_id is not None:
                self.static_ids.pop(member.instance_id, None)
        if self.leader_id == member_id:
            self.leader_id = next(iter(self.members), None)
        self.pending_join.pop(member_id, None)
        self.pending_sync.pop(member_id, None)
        return member

    def rename(self, old_id: str, new_id: str) -> Member:
        """Let a static member go on under another id, in its old place."""
        member = self.members[old_id]
        member.member_id = new_id
        self.members = {(new_id if key == old_id else key): each for key, each in self.members.items()}
        if self.leader_id == old_id:
            self.leader_id = new_id
        if member.instance_id is not None:
            self.static_ids[member.instance_id] = new_id
        return member

    def set_protocols(self, member: Member, protocols: tuple[Protocol, ...]) -> None:
        self.support.subtract(each.name for each in member.protocols)
        member.protocols = protocols
        self.support.update(each.name for each in protocols)

    def check_member(self, member_id: str, instance_id: str | None) -> ErrorCode:
        """Whether the sender of a request is who the group takes it for."""
        if instance_id is not None:
            current_id = self.static_ids.get(instance_id)
            if current_id is None:
                return ErrorCode.UNKNOWN_MEMBER_ID
            if current_id != member_id:
                return ErrorCode.FENCED_INSTANCE_ID
        return ErrorCode.NONE if member_id in self.members else ErrorCode.UNKNOWN_MEMBER_ID

    @property
    def waiting_to_join(self) -> int:
        return sum(member.join_token is not None for member in self.members.values())

    @property
    def everyone_joined(self) -> bool:
        return not self.pending_join and all(member.join_token is not None for member in self.members.values())

    @property
    def rebalance_timeout_ms(self) -> int:
        return max((member.rebalance_timeout_ms for member in self.members.values()), default=0)

    def elect_joined_leader(self) -> bool:
        """See to it that the leader is somebody who has joined; False if nobody has."""
        leader = self.members.get(self.leader_id or "")
        if leader is None:
            return False
        if leader.join_token is None:
            joined = next((each for each in self.members.values() if each.join_token is not None), None)
            if joined is None:
                return False
            self.leader_id = joined.member_id
        return True

    # Protocols

    @property
    def is_simple(self) -> bool:
        """Only keeps offsets for consumers that do not use groups otherwise."""
        return self.protocol_type is None and self.state is ClassicGroupState.EMPTY and not self.pending_join

    @property
    def uses_consumer_protocol(self) -> bool:
        return self.protocol_type == CONSUMER_PROTOCOL_TYPE

    def supports(self, protocol_type: str, protocols: Iterable[Protocol]) -> bool:
        """Whether somebody with these protocols can be in one generation with the present members."""
        names = [each.name for each in protocols]
        if self.state is ClassicGroupState.EMPTY:
            return bool(protocol_type and names)
        return self.protocol_type == protocol_type and any(self._is_common(name) for name in names)

    def select_protocol(self, changed: Member | None = None, protocols: tuple[Protocol, ...] = ()) -> str:
        """The protocol with the most votes among those that all support; the first one voted for wins a tie. Or what it
        would be if one member had other protocols."""
        support = self.support
        if changed is not None:
            support = support.copy()
            support.subtract(each.name for each in changed.protocols)
            support.update(each.name for each in protocols)
        votes = Counter(
            next(
                each.name
                for each in (protocols if member is changed else member.protocols)
                if support[each.name] == len(self.members)
            )
            for member in self.members.values()
        )
        return max(votes, key=lambda name: votes[name])

    def _is_common(self, name: str) -> bool:
        return self.support[name] == len(self.members)

    def begin_generation(self, now_ms: int) -> None:
        """The join barrier has opened: whoever is a member now is in the next generation."""
        # Whoever writes to the offsets topic by hand may have begun with the last one.
        self.generation = (self.generation + 1) & _MAX_GENERATION
        self.pending_sync.clear()
        self.protocol = self.select_protocol() if self.members else None
        self.subscribed_topics = self.find_subscribed_topics()
        self.move_to(ClassicGroupState.COMPLETING_REBALANCE if self.members else ClassicGroupState.EMPTY, now_ms)

    def find_subscribed_topics(self) -> frozenset[str] | None:
        if not self.uses_consumer_protocol or (self.members and self.protocol is None):
            return None
        topics: list[str] = []
        try:
            for member in self.members.values():
                topics += _topics_of(member.metadata(self.protocol))
        except RemoteProtocolError:
            return None
        return frozenset(topics)

    def is_subscribed_to(self, topic: str) -> bool:
        """Assumed of consumers whose subscription is not known: losing their offsets would be worse."""
        if self.subscribed_topics is None:
            return self.uses_consumer_protocol
        return topic in self.subscribed_topics


def _topics_of(subscription: bytes) -> list[str]:
    """Every version of a subscription begins as version 0 does."""
    if len(subscription) < 2:
        raise RemoteProtocolError("a subscription is cut short")
    (version,) = struct.unpack_from(">h", subscription)
    if version < 0:
        raise RemoteProtocolError(f"a subscription has the version {version}")
    return ConsumerProtocolSubscription.decode_prefix(subscription, 0, 2)[0].topics
