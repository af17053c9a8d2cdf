"""Stories of groups as text: what is asked stands after `>`, what comes of it follows.

    set initial_rebalance_delay_ms=0      a setting, before anything else
    at 3000                               time passes until then (ms)
    > a join g client=app protocols=range:x
    < a ...                               what token `a` was told
    appends hold                          from now on appends are not committed (or: commit, or an error)
    commit                                what was held is committed
    timeout                               nobody waits any longer for what was held
    reload                                the node starts again
    = g Stable generation=1 ...           the state of a group (`show g`)

A file has the whole dialogue. The test plays the lines that ask and compares everything.
"""

from __future__ import annotations

from collections.abc import Iterator

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.base.steps import at_once
from barnabas.coordinator.describe import describe_group, list_groups
from barnabas.coordinator.offsets.fetches import fetch
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupResponse, MemberIdentity
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
    OffsetDeleteResponse,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequestTopics, OffsetFetchResponseGroup
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment, SyncGroupResponse
from barnabas.wire.schema import Struct
from tests.coordinator.driver import Bench
from tests.stories import StoryPlayer, options


def play(script: str) -> str:
    """The dialogue that the asking lines of a script lead to; comments and blank lines stay."""
    return Player().played(script)


class Player(StoryPlayer):
    OUTPUT = ("<", "=")

    def __init__(self) -> None:
        self.bench = Bench()

    def step(self, words: list[str]) -> Iterator[str]:
        yield from self._step(words)
        yield from self._news()

    def _news(self) -> Iterator[str]:
        for token, response in self.bench.settle():
            yield f"< {token} {told(response)}"

    def _step(self, words: list[str]) -> Iterator[str]:
        bench = self.bench
        match words:
            case ["set", *pairs]:
                self.bench = Bench(**{name: int(value) for name, value in options(pairs).items()})
            case ["at", moment]:
                for token, response in bench.advance(int(moment)):
                    yield f"< {token} {told(response)}"
            case ["appends", how]:
                bench.appends = how if how in ("commit", "hold") else ErrorCode[how]
            case ["commit"]:
                bench.commit_held()
            case ["timeout"]:
                bench.give_up_held(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            case ["reload"]:
                bench.reload()
            case ["forget", topic]:
                bench.forget_topic(topic)
            case ["show", group_id]:
                yield "= " + self._shown(group_id)
            case ["list", *pairs]:
                wanted = options(pairs)
                listing = list_groups(bench.shard.groups, listed(wanted.get("states")), listed(wanted.get("types")))
                groups = [each for each in listing if each is not None]
                yield "= " + " ".join(
                    f"{each.group_id}:{each.group_state}:{each.protocol_type}:{each.group_type}" for each in groups
                )
            case [">", token, api, *rest]:
                bench.asked[token] = None
                answer = getattr(self, f"_{api}")(token, rest)
                if answer is not None:
                    bench.answers[token] = answer
                    yield f"< {token} {answer if isinstance(answer, str) else told(answer)}"
            case _:
                raise ValueError(f"not understood: {' '.join(words)}")

    # Requests

    def _join(self, token: str, words: list[str]) -> None:
        given = options(words[1:])
        request = JoinGroupRequest(
            group_id=group_id_of(words),
            session_timeout_ms=int(given.get("session", 10_000)),
            rebalance_timeout_ms=int(given.get("rebalance", 60_000)),
            member_id=given.get("member", ""),
            group_instance_id=given.get("instance"),
            protocol_type=given.get("type", "consumer"),
            protocols=[
                JoinGroupRequestProtocol(name=name, metadata=subscription(topics))
                for name, _, topics in (each.partition(":") for each in listed(given.get("protocols", "range:t")))
            ],
        )
        version = int(given.get("version", 9))
        self.bench.join(request, version, self.bench.client(given.get("client", "app")), token)

    def _sync(self, token: str, words: list[str]) -> None:
        given = options(words[1:])
        request = SyncGroupRequest(
            group_id=group_id_of(words),
            generation_id=int(given["generation"]),
            member_id=given.get("member", ""),
            group_instance_id=given.get("instance"),
            protocol_type=given.get("type"),
            protocol_name=given.get("protocol"),
            assignments=[
                SyncGroupRequestAssignment(member_id=member_id, assignment=assignment.encode())
                for member_id, _, assignment in (each.partition(":") for each in listed(given.get("assign")))
            ],
        )
        self.bench.sync(request, token)

    def _heartbeat(self, token: str, words: list[str]) -> str:
        given = options(words[1:])
        request = HeartbeatRequest(
            group_id=group_id_of(words),
            generation_id=int(given["generation"]),
            member_id=given.get("member", ""),
            group_instance_id=given.get("instance"),
        )
        return self.bench.heartbeat(request).name

    def _leave(self, token: str, words: list[str]) -> None:
        leaving = [
            MemberIdentity(member_id=member_id, group_instance_id=instance_id or None)
            for member_id, _, instance_id in (each.partition("/") for each in words[1:])
        ]
        self.bench.leave(group_id_of(words), leaving, token)

    def _commit(self, token: str, words: list[str]) -> None:
        given = options(words[1:])
        request = OffsetCommitRequest(
            group_id=group_id_of(words),
            generation_id_or_member_epoch=int(given.get("generation", -1)),
            member_id=given.get("member", ""),
            group_instance_id=given.get("instance"),
            retention_time_ms=int(given.get("retention", -1)),
            topics=[
                OffsetCommitRequestTopic(
                    name=topic,
                    topic_id=Uuid.ZERO,
                    partitions=[
                        OffsetCommitRequestPartition(
                            partition_index=int(partition),
                            committed_offset=int(offset),
                            committed_metadata="m" * int(given["metadata"]) if "metadata" in given else None,
                        )
                    ],
                )
                for topic, partition, offset in (each.split(":") for each in listed(given["offsets"]))
            ],
        )
        self.bench.commit_offsets(request, int(given.get("version", 9)), token)

    def _fetch(self, token: str, words: list[str]) -> OffsetFetchResponseGroup | None:
        given = options(words[1:])
        topics = None
        if "topics" in given:
            topics = [
                OffsetFetchRequestTopics(name=topic, partition_indexes=[int(partition)])
                for topic, partition in (each.split(":") for each in listed(given["topics"]))
            ]
        if "stable" in given:
            self.bench.fetch_stable_offsets(group_id_of(words), topics, token)
            return None
        return at_once(fetch(self.bench.shard.offsets, group_id_of(words), topics))

    def _forget(self, token: str, words: list[str]) -> None:
        request = OffsetDeleteRequest(
            group_id=group_id_of(words),
            topics=[
                OffsetDeleteRequestTopic(
                    name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=int(partition))]
                )
                for topic, partition in (each.split(":") for each in words[1:])
            ],
        )
        self.bench.delete_offsets(request, token)

    def _delete(self, token: str, words: list[str]) -> None:
        self.bench.delete_group(group_id_of(words), token)

    def _describe(self, token: str, words: list[str]) -> str:
        described = at_once(
            describe_group(self.bench.shard.groups, group_id_of(words), tells_missing="old" not in words)
        )
        members = ",".join(
            f"{each.member_id}@{each.client_id}{each.client_host}:{len(each.member_metadata)}b:"
            f"{each.member_assignment.decode()}"
            for each in described.members
        )
        return (
            f"{ErrorCode.of(described.error_code).name} state={described.group_state} type={described.protocol_type} "
            f"protocol={described.protocol_data} members={members}"
        ).strip()

    def _shown(self, group_id: str) -> str:
        group = self.bench.groups.get(group_id)
        offsets = " ".join(
            f"{partition}={value.offset}"
            for partition, value in sorted(self.bench.shard.offsets.committed(group_id).items())
        )
        if group is None:
            return f"{group_id} is not there {offsets}".strip()
        members = ",".join(
            f"{each.member_id}{'*' if each.member_id == group.leader_id else ''}" for each in group.members.values()
        )
        pending = ",".join(group.pending_join)
        return (
            f"{group_id} {group.state.value} generation={group.generation} members={members} "
            f"pending={pending} {offsets}"
        ).strip()


def group_id_of(words: list[str]) -> str:
    return "" if words[0] == "-" else words[0]


def listed(text: str | None) -> list[str]:
    return [each for each in (text or "").split(",") if each]


def subscription(topics: str) -> bytes:
    """What a consumer says to the leader: version 0, the topics, no data of its own."""
    names = [each.encode() for each in topics.split("+") if each]
    body = b"".join(len(name).to_bytes(2, "big") + name for name in names)
    return b"\0\0" + len(names).to_bytes(4, "big") + body + b"\xff\xff\xff\xff"


def told(response: Struct) -> str:
    """A response in one line."""
    error = ErrorCode.of(getattr(response, "error_code", 0))
    match response:
        case JoinGroupResponse() if error is ErrorCode.NONE:
            members = ",".join(each.member_id for each in response.members)
            skipped = " skip_assignment" if response.skip_assignment else ""
            return (
                f"joined generation={response.generation_id} protocol={response.protocol_name} "
                f"member={response.member_id} leader={response.leader} members={members}{skipped}"
            )
        case JoinGroupResponse():
            return f"{error.name} member={response.member_id}"
        case SyncGroupResponse() if error is ErrorCode.NONE:
            return f"synced {response.assignment.decode()!r}"
        case LeaveGroupResponse() if error is ErrorCode.NONE:
            return "left " + ", ".join(
                f"{each.member_id}/{each.group_instance_id or ''} {ErrorCode.of(each.error_code).name}"
                for each in response.members
            )
        case OffsetCommitResponse() | OffsetDeleteResponse() if error is ErrorCode.NONE:
            return ", ".join(
                f"{topic.name}-{each.partition_index} {ErrorCode.of(each.error_code).name}"
                for topic in response.topics
                for each in topic.partitions
            )
        case OffsetFetchResponseGroup() if error is ErrorCode.NONE:
            return "offsets " + ", ".join(
                f"{topic.name}-{each.partition_index}={each.committed_offset}"
                + (f" {ErrorCode.of(each.error_code).name}" if each.error_code else "")
                for topic in response.topics
                for each in topic.partitions
            )
    return error.name
