"""Members that do as they please, against what must hold for every group at any time."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.group_metadata_manager import join_key, session_key, sync_key
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.schema import Struct
from tests.coordinator.driver import Bench, durable, replayed
from tests.coordinator.transcripts import subscription

GROUP = "g"
#: Two dynamic members, two static ones.
INSTANCES = (None, None, "one", "two")
SLOTS = st.integers(0, len(INSTANCES) - 1)
PROTOCOLS = st.sampled_from([("range",), ("range", "sticky"), ("sticky", "range")])


class Client:
    """What a consumer knows: its id, its generation, and what it was told last."""

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.members: list[str] = []


class GroupMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.tokens = count(1)
        self.bench = Bench()
        self.clients = [Client() for _ in INSTANCES]
        self.asked_by: dict[object, int] = {}
        #: Offsets whose commit was answered, or is in the log whatever the answer was.
        self.offsets: dict[int, int] = {}
        self.commits: dict[object, tuple[int, int]] = {}
        #: Generation to what everyone who joined it must have been told.
        self.generations: dict[int, tuple[str | None, str]] = {}
        self.assigned: dict[tuple[int, str], bytes] = {}
        self.group: ClassicGroup | None = None

    @initialize(delay_ms=st.sampled_from([0, 3000]), max_size=st.sampled_from([2, 100]))
    def begin(self, delay_ms: int, max_size: int) -> None:
        self.bench = Bench(initial_rebalance_delay_ms=delay_ms, max_size=max_size)

    # What members do

    @rule(slot=SLOTS, protocols=PROTOCOLS, version=st.sampled_from([3, 5, 9]), forgets=st.booleans())
    def join(self, slot: int, protocols: tuple[str, ...], version: int, forgets: bool) -> None:
        client = self.clients[slot]
        if forgets:
            client.member_id = ""
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=30_000,
            member_id=client.member_id,
            group_instance_id=INSTANCES[slot],
            protocol_type="consumer",
            protocols=[JoinGroupRequestProtocol(name=name, metadata=subscription("t")) for name in protocols],
        )
        token = self.ask(slot)
        self.bench.join(request, version, self.bench.client(), token)
        self.hear()

    @rule(slot=SLOTS, is_stale=st.booleans())
    def sync(self, slot: int, is_stale: bool) -> None:
        client = self.clients[slot]
        assignments = [
            SyncGroupRequestAssignment(member_id=member_id, assignment=f"{client.generation}:{member_id}".encode())
            for member_id in client.members
        ]
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=client.generation - is_stale,
            member_id=client.member_id,
            group_instance_id=INSTANCES[slot],
            assignments=assignments,
        )
        token = self.ask(slot)
        self.bench.sync(request, token)
        self.hear()

    @rule(slot=SLOTS)
    def heartbeat(self, slot: int) -> None:
        client = self.clients[slot]
        group = self.bench.groups.get(GROUP)
        request = HeartbeatRequest(
            group_id=GROUP,
            generation_id=client.generation,
            member_id=client.member_id,
            group_instance_id=INSTANCES[slot],
        )
        told = self.bench.heartbeat(request)
        is_in = group is not None and client.member_id in group.members and client.generation == group.generation
        assert (told in (ErrorCode.NONE, ErrorCode.REBALANCE_IN_PROGRESS)) == is_in
        if group is not None and is_in:
            assert (told is ErrorCode.REBALANCE_IN_PROGRESS) == (group.state is ClassicGroupState.PREPARING_REBALANCE)

    @rule(slot=SLOTS)
    def leave(self, slot: int) -> None:
        leaving = MemberIdentity(member_id=self.clients[slot].member_id, group_instance_id=INSTANCES[slot])
        self.bench.leave(GROUP, [leaving], self.ask(slot))
        self.hear()
        group = self.bench.groups.get(GROUP)
        assert group is None or leaving.member_id not in group.members

    @rule(slot=SLOTS, partition=st.integers(0, 1), takes_part=st.booleans())
    def commit(self, slot: int, partition: int, takes_part: bool) -> None:
        client = self.clients[slot]
        token = self.ask(slot)
        request = OffsetCommitRequest(
            group_id=GROUP,
            generation_id_or_member_epoch=client.generation if takes_part else -1,
            member_id=client.member_id if takes_part else "",
            group_instance_id=INSTANCES[slot] if takes_part else None,
            topics=[
                OffsetCommitRequestTopic(
                    name="t",
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=partition, committed_offset=token, committed_metadata=None
                        )
                    ],
                )
            ],
        )
        self.commits[token] = (partition, token)
        self.bench.commit_offsets(request, 9, token)
        self.hear()

    # What the world does

    @rule(by_ms=st.sampled_from([0, 1, 3_000, 9_999, 10_000, 30_000, 300_000]))
    def time_passes(self, by_ms: int) -> None:
        self.hear(self.bench.advance(self.bench.now_ms + by_ms))

    @rule(how=st.sampled_from(["commit", "hold", ErrorCode.NOT_COORDINATOR]))
    def appends_change(self, how: str | ErrorCode) -> None:
        self.bench.appends = how
        if how != "hold":
            self.bench.commit_held()
            self.hear()

    @rule()
    def replicas_are_slow(self) -> None:
        self.bench.give_up_held(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.hear()

    @rule()
    def node_restarts(self) -> None:
        self.bench.commit_held()
        self.hear()
        self.bench.reload()
        group = self.bench.groups.get(GROUP)
        known = group.generation if group is not None else 0
        # What was not in the log may be numbered again.
        self.generations = {number: told for number, told in self.generations.items() if number <= known}
        self.group = group

    # What must hold

    @invariant()
    def every_request_is_parked_once_or_answered(self) -> None:
        bench = self.bench
        parked = list(self._parked())
        assert len(parked) == len(set(parked))
        assert {*parked} == {token for token in bench.asked if token not in bench.answers}

    def _parked(self) -> Iterator[object]:
        for group in self.bench.groups.values():
            for member in group.members.values():
                yield from (token for token in (member.join_token, member.sync_token) if token is not None)
        yield from self.bench.runtime.waiting_tokens

    @invariant()
    def a_group_has_one_leader_who_is_a_member(self) -> None:
        for group in self.bench.groups.values():
            assert (group.leader_id in group.members) if group.members else group.leader_id is None
            assert (group.state is ClassicGroupState.EMPTY) <= (not group.members)
            assert {*group.pending_sync} <= {*group.members}
            assert not {*group.pending_join} & {*group.members}
            assert group.static_ids == {
                each.instance_id: each.member_id for each in group.members.values() if each.instance_id is not None
            }

    @invariant()
    def nothing_stalls(self) -> None:
        """Whatever a group waits for, there is a timer that ends the waiting."""
        timers = self.bench.shard.timer
        for group in self.bench.groups.values():
            if group.state is ClassicGroupState.PREPARING_REBALANCE:
                assert join_key(group.group_id) in timers
            if group.pending_sync:
                assert sync_key(group.group_id) in timers
            for member in group.members.values():
                assert member.is_kept_waiting or session_key(group.group_id, member.member_id) in timers
            for member_id in group.pending_join:
                assert session_key(group.group_id, member_id) in timers

    @invariant()
    def who_is_stable_has_what_the_leader_assigned(self) -> None:
        group = self.bench.groups.get(GROUP)
        if group is None or group.state is not ClassicGroupState.STABLE:
            return
        for member in group.members.values():
            assert member.join_token is None or self.bench.held  # a static member whose new id is on its way
            assert member.sync_token is None

    @invariant()
    def offsets_are_those_that_were_committed(self) -> None:
        if not self.bench.held:
            found = self.bench.shard.offsets.latest(GROUP)
            assert {each.partition: value.offset for each, value in found.items()} == self.offsets

    @invariant()
    def what_is_in_records_changes_by_replay_alone(self) -> None:
        """Whatever failed, and whether or not it is committed: the log, replayed from its start, says the same."""
        assert replayed(self.bench.shard) == replayed(self.bench.loaded().shard)

    @invariant()
    def a_restart_finds_the_same(self) -> None:
        if self.bench.held:
            return
        live, loaded = durable(self.bench.shard), durable(self.bench.loaded().shard)
        group = self.bench.groups.get(GROUP)
        if group is not None and group.state is ClassicGroupState.STABLE:
            assert live == loaded

    def teardown(self) -> None:
        """When the disk works again and time passes, nobody is left waiting and nobody is left over."""
        self.bench.appends = "commit"
        self.bench.commit_held()
        self.hear()
        self.hear(self.bench.advance(self.bench.now_ms + 7_200_000))
        assert not [token for token in self.bench.asked if token not in self.bench.answers]
        group = self.bench.groups.get(GROUP)
        assert group is None or group.state is ClassicGroupState.EMPTY

    # Hearing answers

    def ask(self, slot: int) -> int:
        token = next(self.tokens)
        self.bench.asked[token] = None
        self.asked_by[token] = slot
        return token

    def hear(self, news: list[tuple[object, Struct]] | None = None) -> None:
        for token, response in [*(news or []), *self.bench.settle()]:
            client = self.clients[self.asked_by[token]]
            match response:
                case JoinGroupResponse():
                    self.hear_join(client, response)
                case SyncGroupResponse(error_code=0):
                    known = self.assigned.setdefault((client.generation, client.member_id), response.assignment)
                    assert known == response.assignment
                case OffsetCommitResponse():
                    partition, offset = self.commits[token]
                    error = response.topics[0].partitions[0].error_code
                    if error in (ErrorCode.NONE, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                        self.offsets[partition] = offset

    def hear_join(self, client: Client, response: JoinGroupResponse) -> None:
        group = self.bench.groups.get(GROUP)
        if group is not self.group:
            # Deleted when it was empty, and begun anew since: its generations are numbered from the beginning.
            self.group = group
            self.generations = {}
            self.assigned = {}
        error = ErrorCode.of(response.error_code)
        if error is ErrorCode.MEMBER_ID_REQUIRED:
            client.member_id = response.member_id
        elif error in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID):
            client.member_id = ""
        elif error is ErrorCode.NONE:
            client.member_id = response.member_id
            client.generation = response.generation_id
            client.members = [each.member_id for each in response.members]
            told = self.generations.setdefault(response.generation_id, (response.protocol_name, response.leader))
            assert told[0] == response.protocol_name
            assert response.generation_id == max(self.generations)
            assert bool(client.members) == (response.leader == response.member_id)


GroupMachine.TestCase.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.filter_too_much],
)
TestGroupMachine = GroupMachine.TestCase
