"""Runs a shard by hand: virtual time, a log in memory, and commits when the test says so."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count
from typing import TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.steps import at_once
from barnabas.coordinator.classic.group import ClassicGroup
from barnabas.coordinator.classic.members import Client
from barnabas.coordinator.config import GroupCoordinatorConfig
from barnabas.coordinator.offsets.fetches import fetch_stable, stable_fetch_failed
from barnabas.coordinator.requests import (
    DELETE_GROUP,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
    OFFSET_DELETE,
    SYNC_GROUP,
    Caller,
    GroupRequest,
)
from barnabas.coordinator.results import CoordinatorRecord, CoordinatorResult, Now, Operation, Record
from barnabas.coordinator.runtime import CoordinatorRuntime
from barnabas.coordinator.shard import GroupCoordinatorShard
from barnabas.records.batch import BatchView
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.join_group import JoinGroupRequest
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.offset_commit import OffsetCommitRequest
from barnabas.wire.messages.offset_delete import OffsetDeleteRequest
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics
from barnabas.wire.messages.sync_group import SyncGroupRequest
from barnabas.wire.schema import Struct

WALL_START_MS = 1_700_000_000_000
MAX_WRITE_BYTES = 1_048_588
NOBODY = Client("", "")

Q = TypeVar("Q")
R = TypeVar("R", bound=Struct)


def batch_of(
    records: Iterable[Record | CoordinatorRecord], base_offset: int, *, codec: Codec = Codec.NONE, **producer: int
) -> bytearray:
    builder = BatchBuilder(1 << 20, codec=codec, transactional=bool(producer), **producer)  # type: ignore[arg-type]
    for each in records:
        record = each.data if isinstance(each, CoordinatorRecord) else each
        builder.append(record.value, record.key, WALL_START_MS)
    batch = builder.build()
    BatchView(batch).stamp(base_offset=base_offset, leader_epoch=0)
    return batch


def groups_of(shard: GroupCoordinatorShard) -> dict[str, ClassicGroup]:
    """All groups of a shard, whether something is going on in them or not."""
    found = {group_id: shard.groups.find(group_id) for group_id in shard.groups.ids()}
    return {group_id: group for group_id, group in found.items() if group is not None}


class Bench:
    """A shard with its surroundings. `answers` has what each token was told; telling it twice is an error."""

    def __init__(self, **limits: int) -> None:
        self.config = GroupCoordinatorConfig(**limits)
        self.now_ms = 0
        self._ids = count(1)
        self.log = bytearray()
        self.next_offset = 0
        self.answers: dict[object, Struct] = {}
        self.asked: dict[object, None] = {}
        #: "commit" at once, "hold" until `commit_held`, or an error with which appends fail.
        self.appends: str | ErrorCode = "commit"
        self.runtime = self.loaded()

    def _new_id(self) -> str:
        return str(next(self._ids))

    @property
    def shard(self) -> GroupCoordinatorShard:
        return self.runtime.shard

    @property
    def groups(self) -> dict[str, ClassicGroup]:
        return groups_of(self.shard)

    @property
    def held(self) -> bool:
        """Whether the log is ahead of what is committed."""
        return self.runtime.has_uncommitted

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_START_MS + self.now_ms)

    def client(self, name: str = "app") -> Client:
        return Client(name, "/127.0.0.1")

    # Asking

    def run(self, operation: Operation) -> None:
        if self.runtime.must_append_before(operation):
            self.append()
        for following in self.runtime.run(operation, self.now):
            self.run(following)

    def submit(
        self, kind: GroupRequest[Q, R], request: Q, token: object, version: int = 9, client: Client = NOBODY
    ) -> None:
        error = kind.refusal(self.config, request)
        if error is ErrorCode.NONE:
            self.run(kind.operation(request, Caller(version, client), self.shard, token))
        else:
            refused = CoordinatorResult(response=kind.failed(request, error))
            self.run(Operation(None, lambda _: refused, token))

    def join(self, request: JoinGroupRequest, version: int, client: Client, token: object) -> None:
        self.submit(JOIN_GROUP, request, token, version, client)

    def sync(self, request: SyncGroupRequest, token: object) -> None:
        self.submit(SYNC_GROUP, request, token)

    def heartbeat(self, request: HeartbeatRequest) -> ErrorCode:
        token = object()
        self.submit(HEARTBEAT, request, token)
        told = {reply.token: reply.response for reply in self.runtime.take_replies()}
        response = told.pop(token)
        assert not told
        assert isinstance(response, HeartbeatResponse)
        if request.group_id and not self.runtime.has_unappended:
            # As the broker asks where nothing waits to be appended.
            assert HEARTBEAT.answer is not None
            assert HEARTBEAT.answer(self.shard, request, self.now_ms).error_code == response.error_code
        return ErrorCode.of(response.error_code)

    def leave(self, group_id: str, leaving: list[MemberIdentity], token: object) -> None:
        self.submit(LEAVE_GROUP, LeaveGroupRequest(group_id=group_id, members=leaving), token)

    def commit_offsets(self, request: OffsetCommitRequest, version: int, token: object) -> None:
        self.submit(OFFSET_COMMIT, request, token, version)

    def delete_offsets(self, request: OffsetDeleteRequest, token: object) -> None:
        self.submit(OFFSET_DELETE, request, token)

    def delete_group(self, group_id: str, token: object) -> None:
        self.submit(DELETE_GROUP, group_id, token)

    def fetch_stable_offsets(self, group_id: str, topics: list[OffsetFetchRequestTopics] | None, token: object) -> None:
        response = at_once(fetch_stable(self.shard.offsets, group_id, topics))
        result = CoordinatorResult(response=response, after_writes=True)
        self.run(Operation(group_id, lambda _: result, token, lambda error: stable_fetch_failed(group_id, error)))

    def forget_topic(self, topic: str) -> None:
        self.run(self.shard.forget_topic(topic))

    # What becomes of it

    def settle(self) -> list[tuple[object, Struct]]:
        """Write what is staged and collect the answers, until nothing more happens."""
        news: list[tuple[object, Struct]] = []
        while True:
            has_written = self.append()
            replies = self.runtime.take_replies()
            for token, response in replies:
                assert token in self.asked, f"{token} was answered and had not asked"
                assert token not in self.answers, f"{token} was answered twice"
                self.answers[token] = response
                news.append((token, response))
            if not has_written and not replies:
                return news

    def append(self) -> bool:
        """Append all that waits for it; whether there was something."""
        if not self.runtime.has_unappended:
            return False
        writes = self.runtime.next_batch()
        if isinstance(self.appends, ErrorCode):
            self.runtime.append_failed(self.appends, self.now)
            return True
        records = [record for write in writes for record in write.records]
        self.log += batch_of(records, self.next_offset)
        first_offset, self.next_offset = self.next_offset, self.next_offset + len(records)
        self.runtime.appended(first_offset, self.now)
        if self.appends == "commit":
            self.commit_held()
        return True

    def commit_held(self) -> None:
        self.runtime.committed(self.next_offset, self.now)

    def give_up_held(self, error: ErrorCode) -> None:
        for offset in range(self.next_offset + 1):
            self.runtime.not_committed(offset, error, self.now)

    def advance(self, to_ms: int) -> list[tuple[object, Struct]]:
        """Let time pass; timers fire at their moments."""
        news = self.settle()
        while True:
            deadline_ms = self.runtime.next_deadline_ms
            if deadline_ms is None or deadline_ms > to_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            for operation in self.runtime.due(self.now):
                self.run(operation)
            following = self.runtime.next_deadline_ms
            assert following is None or following > self.now_ms, "a timer that is due did not fire"
            news += self.settle()
        self.now_ms = to_ms
        return news

    def reload(self) -> None:
        """The node starts again and reads its log; whoever waited has lost the connection."""
        for token, response in self.runtime.unload(ErrorCode.NOT_COORDINATOR):
            self.answers[token] = response
        self.runtime = self.loaded()

    def loaded(self) -> CoordinatorRuntime[GroupCoordinatorShard]:
        """Another one, which has read the log."""
        runtime = CoordinatorRuntime(GroupCoordinatorShard(self.config, self._new_id), MAX_WRITE_BYTES)
        runtime.load(bytes(self.log))
        for operation in runtime.finish_loading(self.now):
            runtime.run(operation, self.now)
        return runtime


def replayed(shard: GroupCoordinatorShard) -> dict[str, object]:
    """All that changes by replay alone, as far as the log goes."""
    return {
        group_id: (stored, dict(shard.offsets.latest(group_id)))
        for group_id, stored in sorted(shard.groups.stored.latest().items())
    }


def durable(shard: GroupCoordinatorShard) -> dict[str, object]:
    """What must survive a restart, in a form that can be compared."""
    return {group_id: _durable_group(shard, group) for group_id, group in sorted(groups_of(shard).items())}


def _durable_group(shard: GroupCoordinatorShard, group: ClassicGroup) -> object:
    offsets = {
        str(partition): (value.offset, value.leader_epoch, value.metadata, value.expire_timestamp_ms)
        for partition, value in sorted(shard.offsets.committed(group.group_id).items())
    }
    members = [
        (each.member_id, each.instance_id, each.client, each.assignment, each.session_timeout_ms)
        for each in group.members.values()
    ]
    return (group.state, group.generation, group.protocol_type, group.protocol, group.leader_id, members, offsets)
