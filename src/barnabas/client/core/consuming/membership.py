"""A member of a classic group: joining, leading, heartbeats, giving up and taking partitions.

The machine says what is to be done (`next_step`, `heartbeat`, `overdue`), whoever runs it does that and tells it what
came of it. It knows no sockets and no clock. What the coordinator may answer to a request that was overtaken (the
member left meanwhile, or began anew) is told apart by the step that is handed back: only the latest one counts.

Eager members give everything up before they join. Cooperative ones keep what they have, give up afterwards what the
new assignment does not hold, and join once more, so that others can have it.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.client.core.consuming.assignors import (
    Assignment,
    Assignor,
    MemberSubscription,
    RebalanceProtocol,
    TopicsView,
    common_protocol,
)
from barnabas.client.core.consuming.assignors.protocol import (
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.core.consuming.heartbeats import Timers
from barnabas.client.core.consuming.leading import check_nothing_is_taken, layout_of
from barnabas.client.core.consuming.membership_policy import MembershipPolicy, refusal
from barnabas.client.core.consuming.membership_steps import (
    IN_GENERATION,
    GiveUp,
    GroupMetadata,
    Heartbeat,
    Idle,
    Join,
    Lead,
    MemberState,
    Step,
    Sync,
    Take,
    Wait,
)
from barnabas.client.errors import ClientError
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse

_log = logger("barnabas.client.group")

PROTOCOL_TYPE: Final = "consumer"
NO_GENERATION: Final = -1
NO_MEMBER_ID: Final = ""

#: A join is answered when all have come or their time is over; so much later, the answer is not coming.
_JOIN_GRACE_MS: Final = 5_000
#: Longer reasons are cut by brokers.
_MAX_REASON: Final = 255

#: Not the member's fault: it tries again, after a wait.
_COORDINATOR_LOST: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})


class Membership:
    """One member.

    Guarantees: the program is told of a partition before it counts as owned, and of its loss before anybody else can be
    given it (unless it is lost already: then it is told so); a cooperative member is never told to give up what it
    keeps; an answer that was overtaken changes nothing.
    """

    def __init__(
        self,
        policy: MembershipPolicy,
        assignors: Sequence[Assignor],
        *,
        backoff_ms: Callable[[int], float] = lambda failure_count: 100.0,
    ) -> None:
        self.policy = policy
        self.protocol = common_protocol(assignors)
        self.state = MemberState.UNJOINED
        self.member_id = NO_MEMBER_ID
        self.generation = NO_GENERATION
        #: As of the last generation that it was in, also when it has fallen out since: so a coordinator can tell that
        #: offsets of a transaction are those of a former member. From nobody in particular it would take them.
        self.metadata = GroupMetadata(policy.group_id, instance_id=policy.instance_id)
        #: What the program has been told that it has.
        self.owned: tuple[TopicPartition, ...] = ()
        #: Raised at every poll: nothing can be done about it.
        self.failure: Exception | None = None
        #: Raised at the next poll, once.
        self.error: Exception | None = None
        #: Why another coordinator is to be looked for; whoever runs the machine takes it and forgets the present one.
        self.coordinator_lost: str | None = None
        #: Called when the member has to join again, for whatever reason: the program should not go on for long with
        #: what others may have by now.
        self.on_rejoin: Callable[[], None] = lambda: None
        #: When the rebalance began that is going on, failed attempts included.
        self.rebalance_since_ms: int | None = None
        self._assignors = {each.name: each for each in assignors}
        self._backoff_ms = backoff_ms
        self._timers = Timers(policy.session_timeout_ms, policy.heartbeat_interval_ms, policy.max_poll_interval_ms)
        self._rejoin_reason: str | None = "first join"
        self._is_prepared = False
        self._in_flight: Step | None = None
        self._failure_count = 0
        self._retry_at_ms = 0
        #: In which generation `owned` was got.
        self._owned_generation = NO_GENERATION
        self._assignor: Assignor | None = None
        self._joined_topics: tuple[str, ...] = ()
        self._members: dict[str, MemberSubscription] = {}
        self._group_topics: frozenset[str] = frozenset()
        self._skips_assignment = False
        self._join_reason = ""
        self._sync: SyncGroupRequest | None = None
        self._assignment = Assignment()
        #: For the leader, what the topics of the group looked like when it assigned them.
        self._assigned_layout: dict[str, object] | None = None
        self._seen_view_version = -1

    # What others ask

    @property
    def is_leader(self) -> bool:
        return self._assigned_layout is not None

    @property
    def is_in_generation(self) -> bool:
        return self.state in IN_GENERATION

    @property
    def is_rebalancing(self) -> bool:
        return self.state in (MemberState.JOINING, MemberState.LEADING, MemberState.SYNCING)

    @property
    def may_commit(self) -> bool:
        """Whether the coordinator takes commits of this member."""
        return self.state in (MemberState.STABLE, MemberState.TAKING) and self.generation >= 0

    @property
    def is_polled_late(self) -> bool:
        """Whether the member left because the program did not come back in time."""
        return self._timers.has_missed_poll

    # What to do next, in the course of a poll

    def polled(self, now_ms: int) -> None:
        """The program has come back for more."""
        self._timers.polled(now_ms)

    def request_rejoin(self, reason: str) -> None:
        if self._rejoin_reason is None:
            self._log_news("rejoins", reason)
            self._rejoin_reason = reason
            self.on_rejoin()

    def _log_news(self, news: str, reason: str) -> None:
        _log.info("group %s: member %s %s: %s", self.policy.group_id, self.member_id or "(new)", news, reason)

    def wants_step(self, topics: tuple[str, ...], view_version: int) -> bool:
        """Whether `next_step` may be anything but `Idle`. Cheap: for every poll."""
        return (
            self.state is not MemberState.STABLE
            or self._rejoin_reason is not None
            or topics != self._joined_topics
            or (view_version != self._seen_view_version and self.is_leader)
        )

    def next_step(
        self, topics: tuple[str, ...], view: TopicsView, view_version: int, now_ms: int, *, with_program: bool = True
    ) -> Step:
        """What is to be done now. `topics` are those subscribed to, in order.

        Without the program, as between polls, nothing is said that the program must be told of.
        """
        if self._in_flight is not None:
            return Wait(None)
        if self.state is MemberState.LEADING:
            return self._begin(Lead(self._group_topics))
        if self.state is MemberState.SYNCING and self._sync is not None:
            return self._begin(Sync(self._sync, self._exchange_timeout_ms))
        if self.state is MemberState.TAKING:
            if not with_program:
                return Wait(None)
            step = self._take(topics)
            if step is not None:
                return step
        self._look_for_changes(topics, view, view_version)
        if self._rejoin_reason is None:
            return Idle()
        if not self._is_prepared:
            return self._begin(self._prepare(topics)) if with_program else Wait(None)
        if now_ms < self._retry_at_ms:
            return Wait(self._retry_at_ms - now_ms)
        return self._begin(self._join(topics, now_ms))

    def awaits(self, step: Step) -> bool:
        """Whether the step was not overtaken."""
        return self._in_flight is step

    def _begin(self, step: Step) -> Step:
        self._in_flight = step
        return step

    def _end(self, step: Step) -> bool:
        """Whether it was for this step that the machine waited."""
        if self._in_flight is not step:
            return False
        self._in_flight = None
        return True

    def _look_for_changes(self, topics: tuple[str, ...], view: TopicsView, view_version: int) -> None:
        if self.state is not MemberState.STABLE:
            self.request_rejoin("rejoin after a reset")
            return
        if topics != self._joined_topics:
            self.request_rejoin(f"the subscription has changed from {self._joined_topics} to {topics}")
        if self._assigned_layout is not None and view_version != self._seen_view_version:
            self._seen_view_version = view_version
            layout = layout_of(view, self._group_topics, self.policy.rack)
            changed = [topic for topic in layout if layout[topic] != self._assigned_layout[topic]]
            if changed:
                self.request_rejoin(f"the partitions of {', '.join(changed)} have changed")

    # Before joining

    def _prepare(self, topics: tuple[str, ...]) -> GiveUp:
        if self.generation == NO_GENERATION or self.member_id == NO_MEMBER_ID:
            return GiveUp(self.owned, is_lost=True, is_before_join=True)
        if self.protocol is RebalanceProtocol.EAGER:
            return GiveUp(self.owned, is_lost=False, is_before_join=True)
        unwanted = tuple(each for each in self.owned if each.topic not in topics)
        return GiveUp(unwanted, is_lost=False, is_before_join=True)

    def gave_up(self, step: GiveUp) -> None:
        """The program knows that it has lost these partitions."""
        # Also if the member fell out of the group meanwhile: what the program knows is what counts here.
        gone = {*step.partitions}
        self.owned = tuple(each for each in self.owned if each not in gone)
        if step.is_lost:
            self._owned_generation = NO_GENERATION
        if self._end(step) and step.is_before_join:
            self._is_prepared = True

    def _join(self, topics: tuple[str, ...], now_ms: int) -> Join:
        if self.rebalance_since_ms is None:
            self.rebalance_since_ms = now_ms
        reason, self._rejoin_reason = self._rejoin_reason or "", None
        self.state = MemberState.JOINING
        self._joined_topics = topics
        self._assigned_layout = None
        self._members = {}
        protocols = [
            JoinGroupRequestProtocol(name=each.name, metadata=encode_subscription(self._subscription(each, topics)))
            for each in self._assignors.values()
        ]
        request = JoinGroupRequest(
            group_id=self.policy.group_id,
            session_timeout_ms=self.policy.session_timeout_ms,
            rebalance_timeout_ms=self.policy.max_poll_interval_ms,
            member_id=self.member_id,
            group_instance_id=self.policy.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocols=protocols,
            reason=reason[:_MAX_REASON],
        )
        self._join_reason = reason
        return Join(request, self._exchange_timeout_ms)

    @property
    def _exchange_timeout_ms(self) -> int:
        """Both exchanges are answered when the last member has come."""
        return max(self.policy.request_timeout_ms, self.policy.max_poll_interval_ms + _JOIN_GRACE_MS)

    def _subscription(self, assignor: Assignor, topics: tuple[str, ...]) -> MemberSubscription:
        return MemberSubscription(
            topics=topics,
            user_data=assignor.subscription_user_data(topics),
            owned=self.owned,
            generation=self._owned_generation,
            rack=self.policy.rack,
        )

    # Joining

    def join_answered(self, step: Join, response: JoinGroupResponse, now_ms: int) -> None:
        if not self._end(step):
            return
        code = ErrorCode.of(response.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = response.member_id
            self.state = MemberState.UNJOINED
            self._rejoin_reason = self._join_reason
            return
        if code:
            self._exchange_refused(code, "rebalance failed while joining", now_ms)
            return
        if response.protocol_type not in (None, PROTOCOL_TYPE):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        assignor = self._assignors.get(response.protocol_name or "")
        if assignor is None:
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        self._assignor = assignor
        self.member_id = response.member_id
        self.generation = response.generation_id
        self._timers.joined(now_ms)
        if response.leader != response.member_id:
            self._sync_with([])
            return
        try:
            self._members = {
                each.member_id: decode_subscription(each.metadata, each.group_instance_id) for each in response.members
            }
        except Exception as failure:
            self._assigning_failed(failure)
            return
        # A leader that came back: the group goes on with what it has, and it only watches the topics again.
        self._skips_assignment = response.skip_assignment
        self._group_topics = frozenset(topic for each in self._members.values() for topic in each.topics)
        self.state = MemberState.LEADING

    def lead(self, step: Lead, view: TopicsView, view_version: int) -> None:
        """Share the partitions out among all members."""
        if not self._end(step):
            return
        assert self._assignor is not None
        try:
            shares = {} if self._skips_assignment else self._assignor.assign(view, self._members)
            if self.protocol is RebalanceProtocol.COOPERATIVE:
                check_nothing_is_taken(self._assignor, self._members, shares)
        except Exception as failure:
            self._assigning_failed(failure)
            return
        self._assigned_layout = layout_of(view, self._group_topics, self.policy.rack)
        self._seen_view_version = view_version
        self._sync_with(
            [
                SyncGroupRequestAssignment(member_id=member_id, assignment=encode_assignment(share))
                for member_id, share in shares.items()
            ]
        )

    def _assigning_failed(self, failure: Exception) -> None:
        name = self._assignor.name if self._assignor is not None else "?"
        self.error = ClientError(f"the assignor {name} could not assign the partitions of the group: {failure}")
        self.error.__cause__ = failure
        self._fall_back("the leader could not assign")

    def _sync_with(self, assignments: list[SyncGroupRequestAssignment]) -> None:
        assert self._assignor is not None
        self.state = MemberState.SYNCING
        self._sync = SyncGroupRequest(
            group_id=self.policy.group_id,
            generation_id=self.generation,
            member_id=self.member_id,
            group_instance_id=self.policy.instance_id,
            protocol_type=PROTOCOL_TYPE,
            protocol_name=self._assignor.name,
            assignments=assignments,
        )

    def sync_answered(self, step: Sync, response: SyncGroupResponse, now_ms: int) -> None:
        if not self._end(step):
            return
        code = ErrorCode.of(response.error_code)
        if code:
            self._exchange_refused(code, "rebalance failed while waiting for the assignment", now_ms)
            return
        name = self._assignor.name if self._assignor is not None else None
        if response.protocol_type not in (None, PROTOCOL_TYPE) or response.protocol_name not in (None, name):
            self._refuse(ErrorCode.INCONSISTENT_GROUP_PROTOCOL)
            return
        try:
            self._assignment = decode_assignment(response.assignment)
        except Exception as failure:
            self.error = ClientError(
                f"the leader of group {self.policy.group_id} sent what is not an assignment: {failure}"
            )
            self.error.__cause__ = failure
            self._fall_back("the assignment could not be read")
            return
        self._sync = None
        self._failure_count = 0
        self.state = MemberState.TAKING
        policy = self.policy
        self.metadata = GroupMetadata(policy.group_id, self.generation, self.member_id, policy.instance_id)

    def exchange_failed(self, step: Join | Lead | Sync, why: str, now_ms: int) -> None:
        """The coordinator could not be asked, or did not answer, or the metadata could not be had."""
        if self._end(step):
            if not isinstance(step, Lead):
                self.coordinator_lost = why
            self._fall_back(f"rebalance failed: {why}")
            self._wait(now_ms)

    def _exchange_refused(self, code: ErrorCode, what: str, now_ms: int) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(f"{what}: {code.text}")
        elif code is ErrorCode.ILLEGAL_GENERATION:
            self._reset(f"{what}: {code.text}", keeps_id=True)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._fall_back(f"{what}: {code.text}")
        elif code in _COORDINATOR_LOST:
            self.coordinator_lost = code.text
            self._fall_back(f"{what}: {code.text}")
            self._wait(now_ms)
        elif code.retriable:
            self._fall_back(f"{what}: {code.text}")
            self._wait(now_ms)
        else:
            self._refuse(code)

    def _refuse(self, code: ErrorCode) -> None:
        """The group does not take this member, and trying again would not help."""
        error = refusal(code, self.policy, self._assignors)
        if code is ErrorCode.FENCED_INSTANCE_ID:
            self.failure = error
            self._reset(error.message or code.text)
        else:
            self.error = error
            self._fall_back(f"refused: {code.text}")

    def _fall_back(self, reason: str) -> None:
        """Join again, with what the member is and has."""
        self._unjoin()
        self.request_rejoin(reason)

    def _unjoin(self) -> None:
        self.state = MemberState.UNJOINED
        self._sync = None
        self._members = {}
        self._assigned_layout = None

    def _wait(self, now_ms: int) -> None:
        self._retry_at_ms = now_ms + round(self._backoff_ms(self._failure_count))
        self._failure_count += 1

    def _reset(self, reason: str, *, keeps_id: bool = False, news: str | None = "is out and joins anew") -> None:
        """The member is out of the group: what it has is lost, and it joins as a new one, if it joins."""
        if news is not None:
            self._log_news(news, reason)
        self.generation = NO_GENERATION
        if not keeps_id:
            self.member_id = NO_MEMBER_ID
        self._in_flight = None
        self._is_prepared = False
        self._unjoin()
        self._rejoin_reason = reason
        self.on_rejoin()

    # Taking

    def _take(self, topics: tuple[str, ...]) -> Step | None:
        assigned = self._assignment.partitions
        if any(each.topic not in topics for each in assigned):
            self.state = MemberState.STABLE
            self._is_prepared = False
            self.request_rejoin("the assignment does not fit the subscription any more")
            return None
        new = {*assigned}
        gone = tuple(each for each in self.owned if each not in new)
        if gone:
            self.request_rejoin("partitions were given up, so that others can have them")
            return self._begin(GiveUp(gone, is_lost=False, is_before_join=False))
        had = {*self.owned}
        added = tuple(each for each in assigned if each not in had)
        assert self._assignor is not None
        self._assignor.on_assignment(self._assignment, self.generation)
        return self._begin(Take(assigned, added, self.generation))

    def took(self, step: Take) -> None:
        """The program knows what it has."""
        self.owned = step.partitions
        if not self._end(step):
            return  # fallen out of the group meanwhile: the program will be told that it has lost them
        self._owned_generation = step.generation
        self._is_prepared = False
        self.rebalance_since_ms = None
        self.state = MemberState.STABLE

    # Between polls

    def next_timer_ms(self, now_ms: int) -> float | None:
        """In how long `heartbeat` or `overdue` has something to say; None if not before something else happens."""
        return self._timers.next_ms(now_ms) if self.is_in_generation else None

    def heartbeat(self, now_ms: int) -> Heartbeat | None:
        """The heartbeat that is due, if one is."""
        if not self.is_in_generation or not self._timers.is_heartbeat_due(now_ms):
            return None
        self._timers.heartbeat_sent(now_ms)
        return Heartbeat(
            HeartbeatRequest(
                group_id=self.policy.group_id,
                generation_id=self.generation,
                member_id=self.member_id,
                group_instance_id=self.policy.instance_id,
            )
        )

    def heartbeat_answered(self, beat: Heartbeat, code: ErrorCode, now_ms: int) -> None:
        self._timers.heartbeat_answered()
        if code is ErrorCode.NONE:
            self._timers.heard(now_ms)
        elif code is ErrorCode.REBALANCE_IN_PROGRESS:
            self._timers.heard(now_ms)
            if self.state in (MemberState.STABLE, MemberState.TAKING) and self._is_current(beat.request):
                self.request_rejoin("the group is rebalancing")
        elif code in _COORDINATOR_LOST:
            self.coordinator_lost = code.text
            self._timers.heartbeat_failed(now_ms, self._backoff_ms(0))
        elif code.retriable:
            self._timers.heartbeat_failed(now_ms, self._backoff_ms(0))
        elif self._is_current(beat.request):
            self._fall_out(code)

    def heartbeat_failed(self, why: str | None, now_ms: int) -> None:
        """It was not answered, or not even sent, if no coordinator is known (None)."""
        self._timers.heartbeat_answered()
        self._timers.heartbeat_failed(now_ms, self._backoff_ms(0))
        if why is not None:
            self.coordinator_lost = why

    def commit_refused(self, code: ErrorCode, generation: int, member_id: str) -> None:
        """A commit was answered with an error that concerns the member as such."""
        if (generation, member_id) != (self.generation, self.member_id) or not self.is_in_generation:
            return
        if code is ErrorCode.REBALANCE_IN_PROGRESS:
            self.request_rejoin("the group is rebalancing")
        else:
            self._fall_out(code)

    def _is_current(self, request: HeartbeatRequest) -> bool:
        return self.is_in_generation and (request.generation_id, request.member_id) == (self.generation, self.member_id)

    def _fall_out(self, code: ErrorCode) -> None:
        if code is ErrorCode.ILLEGAL_GENERATION:
            self._reset(f"fallen out of the group: {code.text}", keeps_id=True)
        elif code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._reset(f"fallen out of the group: {code.text}")
        else:
            self._refuse(code)

    def overdue(self, now_ms: int) -> LeaveGroupRequest | None:
        """If the program has not come back in time: leave, so that others can have its partitions.

        Also notices a session that ended without an answer: the coordinator may be another one by now.
        """
        if not self.is_in_generation:
            return None
        if self._timers.is_session_over(now_ms):
            self.coordinator_lost = "no heartbeat was answered within session.timeout.ms"
            self._timers.heard(now_ms)
        if not self._timers.is_poll_overdue(now_ms):
            return None
        self._timers.has_missed_poll = True
        _log.warning(
            "group %s: the program has not polled for max.poll.interval.ms (%d ms), so member %s leaves; poll more "
            "often, take fewer records at a time (max.poll.records), or raise max.poll.interval.ms",
            self.policy.group_id,
            self.policy.max_poll_interval_ms,
            self.member_id,
        )
        return self.leave("the program took longer than max.poll.interval.ms between two polls")

    def leave(self, reason: str, *, tells: bool | None = None) -> LeaveGroupRequest | None:
        """Be out of the group. What is returned tells the coordinator, so that it need not wait for the session to end.

        A static member says nothing, unless it is to: it may come back and go on with what it had.
        """
        request = None
        if tells is None:
            tells = self.policy.instance_id is None
        if self.member_id != NO_MEMBER_ID and tells:
            identity = MemberIdentity(
                member_id=self.member_id, group_instance_id=self.policy.instance_id, reason=reason[:_MAX_REASON]
            )
            request = LeaveGroupRequest(group_id=self.policy.group_id, members=[identity])
        self._timers.left()
        self._reset(reason, news="leaves" if self.member_id != NO_MEMBER_ID else None)
        return request
