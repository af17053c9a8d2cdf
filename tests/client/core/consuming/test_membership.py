"""One member at a time: what it does next, step by step, on a clock that stands still until it is moved."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.assignors import ASSIGNORS, Assignment, MemberSubscription
from barnabas.client.core.consuming.assignors.protocol import (
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from barnabas.client.core.consuming.membership import Membership
from barnabas.client.core.consuming.membership_policy import MembershipPolicy
from barnabas.client.core.consuming.membership_steps import (
    GiveUp,
    GroupMetadata,
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
from barnabas.wire.messages.join_group import JoinGroupResponse, JoinGroupResponseMember
from barnabas.wire.messages.sync_group import SyncGroupResponse
from tests.client.core.consuming.assignors.topics import view_of
from tests.client.core.consuming.membership_world import World

T0, T1, T2 = (TopicPartition("t", number) for number in range(3))
COOPERATIVE = ("cooperative-sticky",)


class Stage:
    """A member, and the coordinator played by the test."""

    def __init__(self, *assignors: str, instance_id: str | None = None, rack: str | None = None) -> None:
        policy = MembershipPolicy("g", instance_id, rack)
        self.member = Membership(policy, [ASSIGNORS[each]() for each in assignors or ("range",)])
        self.now_ms = 0
        self.topics: tuple[str, ...] = ("t",)
        self.view = view_of({"t": 3})
        self.member.polled(0)

    def step(self, *, with_program: bool = True) -> Step:
        return self.member.next_step(self.topics, self.view, self.view.version, self.now_ms, with_program=with_program)

    def join_step(self) -> Join:
        """The next join; what is given up before it is given up."""
        step = self.step()
        while isinstance(step, GiveUp):
            self.member.gave_up(step)
            step = self.step()
        assert isinstance(step, Join)
        return step

    def join(self, step: Join, code: ErrorCode = ErrorCode.NONE, generation: int = 1, leader: str = "other") -> None:
        response = JoinGroupResponse(
            error_code=code,
            generation_id=generation,
            protocol_name=step.request.protocols[0].name,
            leader=leader,
            member_id="me" if code in (ErrorCode.NONE, ErrorCode.MEMBER_ID_REQUIRED) else "",
            members=[],
        )
        self.member.join_answered(step, response, self.now_ms)

    def sync(self, *partitions: TopicPartition, code: ErrorCode = ErrorCode.NONE) -> None:
        step = self.step()
        assert isinstance(step, Sync)
        data = encode_assignment(Assignment(partitions)) if not code else b""
        self.member.sync_answered(step, SyncGroupResponse(error_code=code, assignment=data), self.now_ms)

    def take(self) -> Take:
        step = self.step()
        assert isinstance(step, Take)
        self.member.took(step)
        return step

    def become_stable(self, *partitions: TopicPartition, generation: int = 1) -> None:
        self.join(self.join_step(), generation=generation)
        self.sync(*partitions)
        self.take()
        assert isinstance(self.step(), Idle)

    def beat(self, code: ErrorCode) -> None:
        self.now_ms += 3_000
        beat = self.member.heartbeat(self.now_ms)
        assert beat is not None
        self.member.heartbeat_answered(beat, code, self.now_ms)


def test_a_new_member_joins_in_two_steps() -> None:
    stage = Stage()
    first = stage.join_step()
    assert (first.request.member_id, first.request.reason) == ("", "first join")
    assert first.timeout_ms == 305_000
    assert isinstance(stage.step(), Wait)
    stage.join(first, ErrorCode.MEMBER_ID_REQUIRED)
    second = stage.join_step()
    assert (second.request.member_id, second.request.reason) == ("me", "first join")
    stage.join(second)
    stage.sync(T0)
    taken = stage.take()
    assert (taken.partitions, taken.added, taken.generation) == ((T0,), (T0,), 1)
    assert stage.member.metadata.generation == 1
    assert isinstance(stage.step(), Idle)


def test_an_eager_member_gives_everything_up_before_it_joins() -> None:
    stage = Stage("range")
    stage.become_stable(T0, T1)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    step = stage.step()
    assert isinstance(step, GiveUp)
    assert (step.partitions, step.is_lost, step.is_before_join) == ((T0, T1), False, True)
    could_commit = stage.member.may_commit
    stage.member.gave_up(step)
    joining = stage.join_step()
    assert decode_subscription(joining.request.protocols[0].metadata).owned == ()
    assert could_commit
    assert not stage.member.may_commit
    stage.join(joining, generation=2)
    stage.sync(T0)
    assert stage.take().added == (T0,)


def test_a_cooperative_member_keeps_what_it_has_and_joins_again_after_giving_up() -> None:
    stage = Stage(*COOPERATIVE)
    stage.become_stable(T0, T1)
    stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
    joining = stage.join_step()
    told = decode_subscription(joining.request.protocols[0].metadata)
    assert (told.owned, told.generation) == ((T0, T1), 1)
    stage.join(joining, generation=2)
    stage.sync(T0)
    step = stage.step()
    assert isinstance(step, GiveUp)
    assert (step.partitions, step.is_lost, step.is_before_join) == ((T1,), False, False)
    stage.member.gave_up(step)
    taken = stage.take()
    assert (taken.partitions, taken.added) == ((T0,), ())
    again = stage.join_step()
    assert again.request.reason == "partitions were given up, so that others can have them"
    told = decode_subscription(again.request.protocols[0].metadata)
    assert (told.owned, told.generation) == ((T0,), 2)


def test_between_polls_nothing_is_done_that_the_program_must_know() -> None:
    stage = Stage()
    assert isinstance(stage.step(with_program=False), Wait)
    stage.join(stage.join_step())
    step = stage.step(with_program=False)
    assert isinstance(step, Sync)
    stage.member.sync_answered(step, SyncGroupResponse(assignment=encode_assignment(Assignment((T0,)))), 0)
    assert isinstance(stage.step(with_program=False), Wait)
    assert stage.take().partitions == (T0,)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.UNKNOWN_MEMBER_ID, ""), (ErrorCode.ILLEGAL_GENERATION, "me")]
)
@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
@pytest.mark.parametrize("where", ["heartbeat", "sync", "commit"])
def test_who_is_out_of_the_group_has_lost_everything(
    assignor: str, code: ErrorCode, member_id: str, where: str
) -> None:
    stage = Stage(assignor)
    stage.become_stable(T0, T1)
    if where == "heartbeat":
        stage.beat(code)
    elif where == "commit":
        stage.member.commit_refused(code, 1, "me")
    else:
        stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        stage.join(stage.join_step(), generation=2)
        stage.sync(code=code)
    step = stage.step()
    assert isinstance(step, GiveUp)
    assert step.is_lost
    expected = () if where == "sync" and assignor == "range" else (T0, T1)
    assert step.partitions == expected
    stage.member.gave_up(step)
    joining = stage.join_step()
    assert joining.request.member_id == member_id
    told = decode_subscription(joining.request.protocols[0].metadata)
    assert (told.owned, told.generation) == ((), -1 if expected or assignor != "range" else told.generation)


@pytest.mark.parametrize("how", ["unknown", "late", "rebalance"])
def test_who_has_fallen_out_still_says_who_it_was(how: str) -> None:
    # Or offsets that it sends to a transaction would count as those of nobody in particular, and be taken.
    stage = Stage()
    assert stage.member.metadata == GroupMetadata("g")
    stage.become_stable(T0)
    assert stage.member.metadata == GroupMetadata("g", 1, "me")
    if how == "unknown":
        stage.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    elif how == "late":
        assert stage.member.overdue(300_001) is not None
    else:
        stage.beat(ErrorCode.REBALANCE_IN_PROGRESS)
        stage.join(stage.join_step(), generation=2)
    assert stage.member.metadata == GroupMetadata("g", 1, "me")


def news(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records]


def test_the_log_says_who_leaves_and_who_joins_again(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.become_stable(T0)
    caplog.set_level("INFO", "barnabas.client")
    caplog.clear()
    stage.member.leave("the consumer is being closed")
    assert news(caplog) == ["group g: member me leaves: the consumer is being closed"]

    stage = Stage()
    stage.become_stable(T0)
    caplog.clear()
    stage.beat(ErrorCode.UNKNOWN_MEMBER_ID)
    assert [each.partition(": ")[2].partition(":")[0] for each in news(caplog)] == ["member me is out and joins anew"]


def test_who_never_joined_leaves_without_a_word(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "barnabas.client")
    assert Stage().member.leave("the consumer is being closed") is None
    assert news(caplog) == []


def test_an_answer_to_what_is_over_changes_nothing() -> None:
    stage = Stage()
    stage.become_stable(T0)
    stage.now_ms += 3_000
    beat = stage.member.heartbeat(stage.now_ms)
    assert beat is not None
    stage.member.request_rejoin("a test")
    joining = stage.join_step()
    stage.join(joining, generation=2)
    stage.member.heartbeat_answered(beat, ErrorCode.ILLEGAL_GENERATION, stage.now_ms)  # of generation 1
    stage.member.commit_refused(ErrorCode.UNKNOWN_MEMBER_ID, 1, "me")
    assert stage.member.state is MemberState.SYNCING
    stage.join(joining, generation=7)
    assert stage.member.generation == 2


def test_what_is_lost_while_the_program_is_told_of_it_is_told_as_lost_later() -> None:
    stage = Stage()
    stage.join(stage.join_step())
    stage.sync(T0)
    step = stage.step()
    assert isinstance(step, Take)
    stage.beat(ErrorCode.UNKNOWN_MEMBER_ID)  # the listener is still at work
    stage.member.took(step)
    lost = stage.step()
    assert isinstance(lost, GiveUp)
    assert (lost.partitions, lost.is_lost) == ((T0,), True)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
    ],
)
def test_a_failed_join_is_tried_again(code: ErrorCode) -> None:
    stage = Stage()
    stage.join(stage.join_step(), code)
    waits = code is not ErrorCode.REBALANCE_IN_PROGRESS
    assert (stage.member.coordinator_lost is not None) == (waits and code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    if waits:
        step = stage.step()
        assert isinstance(step, Wait)
        assert step.ms == 100
        stage.now_ms += 100
    assert stage.join_step().request.reason == f"rebalance failed while joining: {code.text}"


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.INCONSISTENT_GROUP_PROTOCOL,
        ErrorCode.GROUP_MAX_SIZE_REACHED,
        ErrorCode.INVALID_SESSION_TIMEOUT,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
        ErrorCode.INVALID_GROUP_ID,
    ],
)
def test_what_does_not_get_better_is_raised(code: ErrorCode) -> None:
    stage = Stage()
    stage.join(stage.join_step(), code)
    assert isinstance(stage.member.error, BrokerError)
    assert stage.member.error.code is code
    assert stage.member.failure is None


@pytest.mark.parametrize("where", ["join", "sync", "heartbeat", "commit"])
def test_an_instance_that_was_replaced_never_comes_back(where: str) -> None:
    stage = Stage(instance_id="one")
    code = ErrorCode.FENCED_INSTANCE_ID
    if where == "join":
        stage.join(stage.join_step(), code)
    elif where == "sync":
        stage.join(stage.join_step())
        stage.sync(code=code)
    else:
        stage.become_stable(T0)
        if where == "heartbeat":
            stage.beat(code)
        else:
            stage.member.commit_refused(code, 1, "me")
    assert "another consumer with group.instance.id one" in str(stage.member.failure)


def test_heartbeats_are_due_from_the_join_on() -> None:
    stage = Stage()
    assert stage.member.next_timer_ms(0) is None
    stage.now_ms = 1_000
    stage.join(stage.join_step())
    assert stage.member.next_timer_ms(1_000) == 3_000
    assert stage.member.heartbeat(3_999) is None
    beat = stage.member.heartbeat(4_000)
    assert beat is not None
    assert stage.member.heartbeat(9_000) is None  # one at a time
    stage.member.heartbeat_failed("no answer", 9_000)
    assert stage.member.coordinator_lost == "no answer"
    assert stage.member.heartbeat(9_000) is not None


def test_a_session_without_answers_needs_another_coordinator() -> None:
    stage = Stage()
    stage.become_stable(T0)
    stage.member.polled(44_000)
    assert stage.member.overdue(45_000) is None
    assert stage.member.coordinator_lost is None
    assert stage.member.overdue(45_001) is None
    assert stage.member.coordinator_lost is not None


@pytest.mark.parametrize("instance_id", [None, "one"])
def test_who_does_not_poll_leaves(instance_id: str | None) -> None:
    stage = Stage(instance_id=instance_id)
    stage.become_stable(T0)
    assert stage.member.overdue(300_000) is None
    leave = stage.member.overdue(300_001)
    assert (leave is None) == (instance_id is not None)  # a static one only stops its heartbeats
    if leave is not None:
        assert leave.members[0].member_id == "me"
        assert leave.members[0].reason is not None
        assert "max.poll.interval.ms" in leave.members[0].reason
    assert stage.member.is_polled_late
    assert stage.member.heartbeat(400_000) is None
    step = stage.step()
    assert isinstance(step, GiveUp)
    assert (step.partitions, step.is_lost) == ((T0,), True)


class TestLeading:
    def lead(self, stage: Stage, *, skips: bool = False) -> Lead:
        joining = stage.join_step()
        members = [
            JoinGroupResponseMember(
                member_id=name, metadata=encode_subscription(MemberSubscription(topics)), group_instance_id=None
            )
            for name, topics in (("me", ("t",)), ("other", ("t", "u")))
        ]
        response = JoinGroupResponse(
            generation_id=1,
            protocol_name=joining.request.protocols[0].name,
            leader="me",
            member_id="me",
            members=members,
            skip_assignment=skips,
        )
        stage.member.join_answered(joining, response, stage.now_ms)
        step = stage.step()
        assert isinstance(step, Lead)
        return step

    def test_the_leader_assigns_and_watches_the_topics_of_all(self) -> None:
        stage = Stage()
        step = self.lead(stage)
        assert step.topics == {"t", "u"}
        stage.view = view_of({"t": 3, "u": 1}, 2)
        stage.member.lead(step, stage.view, 2)
        sync = stage.step()
        assert isinstance(sync, Sync)
        assert {each.member_id for each in sync.request.assignments} == {"me", "other"}
        mine = next(each.assignment for each in sync.request.assignments if each.member_id == "me")
        stage.member.sync_answered(sync, SyncGroupResponse(assignment=mine), 0)
        assert stage.take().partitions == (T0, T1)
        stage.view = view_of({"t": 3, "u": 1}, 3)
        assert isinstance(stage.step(), Idle)
        stage.view = view_of({"t": 3, "u": 2}, 4)
        assert stage.member.wants_step(stage.topics, 4)
        assert stage.join_step().request.reason == "the partitions of u have changed"

    def test_a_leader_that_came_back_assigns_nothing_and_watches(self) -> None:
        stage = Stage(instance_id="one")
        step = self.lead(stage, skips=True)
        stage.member.lead(step, stage.view, 1)
        sync = stage.step()
        assert isinstance(sync, Sync)
        assert sync.request.assignments == []
        stage.member.sync_answered(sync, SyncGroupResponse(assignment=encode_assignment(Assignment((T2,)))), 0)
        assert stage.take().partitions == (T2,)
        stage.view = view_of({"t": 4}, 2)
        assert "the partitions of t" in str(stage.join_step().request.reason)

    def test_an_assignor_that_fails_is_heard_of(self) -> None:
        stage = Stage()
        step = self.lead(stage)

        def fail(*_: object) -> None:
            raise KeyError("oops")

        stage.member._assignors["range"].assign = fail  # type: ignore[method-assign,assignment]
        stage.member.lead(step, stage.view, 1)
        assert isinstance(stage.member.error, ClientError)
        assert "the assignor range could not assign" in str(stage.member.error)
        assert isinstance(stage.join_step(), Join)

    def test_where_the_leader_has_a_rack_it_watches_racks_too(self) -> None:
        stage = Stage(rack="x")
        stage.view = view_of({"t": [["x"], ["y"]], "u": [["x"]]}, 1)
        stage.member.lead(self.lead(stage), stage.view, 1)
        stage.sync(T0)
        stage.take()
        stage.view = view_of({"t": [["x"], ["x", "y"]], "u": [["x"]]}, 2)
        assert "the partitions of t" in str(stage.join_step().request.reason)


def test_a_changed_subscription_leads_to_a_join() -> None:
    stage = Stage(*COOPERATIVE)
    stage.topics = ("t", "u")
    stage.become_stable(T0, TopicPartition("u", 0))
    stage.topics = ("u",)
    assert stage.member.wants_step(stage.topics, 1)
    step = stage.step()
    assert isinstance(step, GiveUp)
    assert (step.partitions, step.is_lost) == ((T0,), False)  # what is not subscribed to any more, and nothing else
    stage.member.gave_up(step)
    joining = stage.join_step()
    assert decode_subscription(joining.request.protocols[0].metadata).owned == (TopicPartition("u", 0),)
    # It changes again before the assignment comes.
    stage.topics = ("v",)
    stage.join(joining, generation=2)
    stage.sync(TopicPartition("u", 0))
    assert isinstance(stage.step(), GiveUp)
    assert stage.member.owned == (TopicPartition("u", 0),)


def test_a_story_of_three_in_one_group() -> None:
    world = World({"t": 4})
    a = world.join("a", "t")
    world.run(5_000)
    b = world.join("b", "t")
    world.run(10_000)
    world.check_quiet()
    b.is_alive = False  # it vanishes; its session ends
    world.run(15_000)
    world.check_quiet()
    c = world.join("c", "t", assignors=("range", "cooperative-sticky"))  # it can do both, so it is eager
    world.run(10_000)
    world.check_quiet()
    assert a.program.story == [
        "assigned t-0,t-1,t-2,t-3",
        "revoked t-2,t-3",
        "assigned -",
        "assigned -",
        "assigned t-2,t-3",
        "revoked t-2,t-3",
        "assigned -",
        "assigned -",
    ]
    assert b.program.story == ["assigned -", "assigned t-2,t-3"]
    assert c.program.story[-1] == "assigned t-2,t-3"
