"""One partition of `__consumer_offsets`, and all groups that belong to it: the coordinator's face to the broker.

Whoever runs a shard
- calls an operation for each request, with a token for the answer;
- after each call, and after `tick`, takes `take_replies()` and `take_writes()`;
- appends the records of the writes, in order, and says what became of them: `placed` and later `committed`, or
  `rejected` if they are not in the log, or `waited_in_vain` (and perhaps `committed` after that);
- calls `tick` at `next_deadline_ms`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Iterator

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator import commits, deletion, describe, fetches, join, loading, membership, responses, sync
from barnabas.coordinator.effects import Now, Reply, Token, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import Client
from barnabas.coordinator.rebalance import answer_join, answer_sync
from barnabas.coordinator.state import GroupLimits, ShardState
from barnabas.wire.compiler import Buffer
from barnabas.wire.messages.describe_groups import DescribedGroup
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.list_groups import ListedGroup
from barnabas.wire.messages.offset_commit import OffsetCommitRequest
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from barnabas.wire.messages.sync_group import SyncGroupRequest


class GroupShard:
    """The groups of one partition. `new_uuid` gives the random part of member ids."""

    __slots__ = ("state",)

    def __init__(self, limits: GroupLimits, new_uuid: Callable[[], str]) -> None:
        self.state = ShardState(limits, new_uuid)

    @property
    def limits(self) -> GroupLimits:
        return self.state.limits

    @limits.setter
    def limits(self, limits: GroupLimits) -> None:
        self.state.limits = limits

    @property
    def groups(self) -> dict[str, Group]:
        return self.state.groups

    # Loading and unloading

    def load_batches(self, data: Buffer, now_ms: int) -> int | None:
        return loading.load_batches(self.state, data, now_ms)

    def finish_loading(self, now: Now) -> None:
        loading.finish_loading(self.state, now)
        deletion.schedule_sweep(self.state, now)

    def unload(self) -> list[Reply]:
        """Another broker coordinates these groups from now on: whoever waits here is sent away."""
        state = self.state
        error = ErrorCode.NOT_COORDINATOR
        for write in state.unfinished:
            for awaited in write.awaited:
                state.reply(awaited.token, awaited.if_failed(error))
        for group in state.groups.values():
            for member in group.members.values():
                answer_join(state, member, responses.join_failed(error, member.member_id))
                answer_sync(state, member, responses.sync_failed(error))
        replies = self.take_replies()
        self.state = ShardState(state.limits, state.new_uuid)
        return replies

    # Effects

    def take_replies(self) -> list[Reply]:
        replies, self.state.replies = self.state.replies, []
        return replies

    def take_writes(self) -> list[Write]:
        writes, self.state.writes = self.state.writes, []
        return writes

    def placed(self, writes: list[Write], first_offset: int) -> None:
        self.state.placed(writes, first_offset)

    def committed(self, writes: list[Write], now: Now) -> None:
        self.state.committed(writes, now)

    def rejected(self, writes: list[Write], error: ErrorCode, now: Now) -> None:
        self.state.rejected(writes, error, now)

    def waited_in_vain(self, writes: list[Write], error: ErrorCode, now: Now) -> None:
        self.state.waited_in_vain(writes, error, now)

    # Time

    @property
    def next_deadline_ms(self) -> int | None:
        """When `tick` has something to do, by the monotonic clock. It may be too early, never too late."""
        return self.state.timers.next_deadline_ms()

    def tick(self, now: Now) -> None:
        for action in self.state.timers.due(now.monotonic_ms):
            action(now)

    # Requests

    def join(self, request: JoinGroupRequest, version: int, client: Client, token: Token, now: Now) -> None:
        join.join(self.state, request, version, client, token, now)

    def sync(self, request: SyncGroupRequest, token: Token, now: Now) -> None:
        sync.sync(self.state, request, token, now)

    def heartbeat(self, request: HeartbeatRequest, now_ms: int) -> ErrorCode:
        return membership.heartbeat(
            self.state,
            request.group_id,
            request.generation_id,
            request.member_id,
            request.group_instance_id,
            now_ms,
        )

    def leave(self, group_id: str, leaving: list[MemberIdentity], token: Token, now: Now) -> None:
        membership.leave(self.state, group_id, leaving, token, now)

    def commit_offsets(self, request: OffsetCommitRequest, version: int, token: Token, now: Now) -> None:
        commits.commit(self.state, request, version, token, now)

    def delete_offsets(self, request: OffsetDeleteRequest, token: Token, now: Now) -> None:
        commits.delete(self.state, request, token, now)

    def fetched_bytes(self, group_id: str) -> Generator[None, None, int]:
        return fetches.fetched_bytes(self.state, group_id)

    def fetch_offsets(
        self, group_id: str, topics: list[OffsetFetchRequestTopics] | None
    ) -> Generator[None, None, OffsetFetchResponseGroup]:
        return fetches.fetch(self.state, group_id, topics)

    def fetch_stable_offsets(
        self, group_id: str, topics: list[OffsetFetchRequestTopics] | None, token: Token
    ) -> Generator[None, None, None]:
        return fetches.fetch_stable(self.state, group_id, topics, token)

    def list_groups(self, states: Collection[str], types: Collection[str]) -> Iterator[ListedGroup | None]:
        return describe.list_groups(self.state, states, types)

    def described_bytes(self, group_id: str) -> int:
        return describe.described_bytes(self.state, group_id)

    def describe_group(self, group_id: str, *, tells_missing: bool) -> Generator[None, None, DescribedGroup]:
        return describe.describe_group(self.state, group_id, tells_missing=tells_missing)

    def delete_group(self, group_id: str, token: Token, now: Now) -> None:
        deletion.delete_group(self.state, group_id, token, now)

    def forget_topic(self, topic: str, now: Now) -> None:
        deletion.forget_topic(self.state, topic, now)
