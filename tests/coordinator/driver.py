"""Runs a shard by hand: virtual time, a log in memory, and commits when the test says so."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import count

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.effects import Now, Record, Write
from barnabas.coordinator.group import Group
from barnabas.coordinator.members import Client
from barnabas.coordinator.shard import GroupShard
from barnabas.coordinator.state import GroupLimits
from barnabas.records.batch import BatchView
from barnabas.records.builder import BatchBuilder
from barnabas.records.compression import Codec
from barnabas.wire.schema import Struct

WALL_START_MS = 1_700_000_000_000


def batch_of(records: Iterable[Record], base_offset: int, *, codec: Codec = Codec.NONE, **producer: int) -> bytearray:
    builder = BatchBuilder(1 << 20, codec=codec, transactional=bool(producer), **producer)  # type: ignore[arg-type]
    for record in records:
        builder.append(record.value, record.key, WALL_START_MS)
    batch = builder.build()
    BatchView(batch).stamp(base_offset=base_offset, leader_epoch=0)
    return batch


class Bench:
    """A shard with its surroundings. `answers` has what each token was told; telling it twice is an error."""

    def __init__(self, **limits: int) -> None:
        self.limits = GroupLimits(**limits)
        self.now_ms = 0
        self._ids = count(1)
        self.shard = GroupShard(self.limits, self._new_id)
        self.shard.finish_loading(self.now)
        self.log = bytearray()
        self.next_offset = 0
        self.answers: dict[object, Struct] = {}
        self.asked: dict[object, None] = {}
        #: "commit" at once, "hold" until `commit_held`, or an error with which appends fail.
        self.appends: str | ErrorCode = "commit"
        self.held: list[list[Write]] = []

    def _new_id(self) -> str:
        return str(next(self._ids))

    @property
    def now(self) -> Now:
        return Now(self.now_ms, WALL_START_MS + self.now_ms)

    def client(self, name: str = "app") -> Client:
        return Client(name, "/127.0.0.1")

    def settle(self) -> list[tuple[object, Struct]]:
        """Write what is staged and collect the answers, until nothing more happens."""
        news: list[tuple[object, Struct]] = []
        while True:
            writes = self.shard.take_writes()
            if writes:
                self._write(writes)
            replies = self.shard.take_replies()
            for token, response in replies:
                assert token in self.asked, f"{token} was answered and had not asked"
                assert token not in self.answers, f"{token} was answered twice"
                self.answers[token] = response
                news.append((token, response))
            if not writes and not replies:
                return news

    def _write(self, writes: list[Write]) -> None:
        if isinstance(self.appends, ErrorCode):
            self.shard.rejected(writes, self.appends, self.now)
            return
        records = [record for write in writes for record in write.records]
        self.log += batch_of(records, self.next_offset)
        self.shard.placed(writes, self.next_offset)
        self.next_offset += len(records)
        if self.appends == "commit":
            self.shard.committed(writes, self.now)
        else:
            self.held.append(writes)

    def commit_held(self) -> None:
        while self.held:
            self.shard.committed(self.held.pop(0), self.now)

    def give_up_held(self, error: ErrorCode) -> None:
        for writes in self.held:
            self.shard.waited_in_vain(writes, error, self.now)

    def advance(self, to_ms: int) -> list[tuple[object, Struct]]:
        """Let time pass; timers fire at their moments."""
        news = self.settle()
        while True:
            deadline_ms = self.shard.next_deadline_ms
            if deadline_ms is None or deadline_ms > to_ms:
                break
            self.now_ms = max(self.now_ms, deadline_ms)
            self.shard.tick(self.now)
            following = self.shard.next_deadline_ms
            assert following is None or following > self.now_ms, "a timer that is due did not fire"
            news += self.settle()
        self.now_ms = to_ms
        return news

    def reload(self) -> None:
        """The node starts again and reads its log; whoever waited has lost the connection."""
        for token, response in self.shard.unload():
            self.answers[token] = response
        self.held.clear()
        self.shard = self.loaded()

    def loaded(self) -> GroupShard:
        shard = GroupShard(self.limits, self._new_id)
        shard.load_batches(bytes(self.log), self.now.wall_ms)
        shard.finish_loading(self.now)
        return shard


def durable(shard: GroupShard) -> dict[str, object]:
    """What must survive a restart, in a form that can be compared."""
    return {group_id: _durable_group(shard, group) for group_id, group in sorted(shard.groups.items())}


def _durable_group(shard: GroupShard, group: Group) -> object:
    offsets = {
        str(partition): (value.offset, value.leader_epoch, value.metadata, value.expire_timestamp_ms)
        for partition, value in sorted(shard.state.offsets.committed(group.group_id).items())
    }
    members = [
        (each.member_id, each.instance_id, each.client, each.assignment, each.session_timeout_ms)
        for each in group.members.values()
    ]
    return (group.state, group.generation, group.protocol_type, group.protocol, group.leader_id, members, offsets)
