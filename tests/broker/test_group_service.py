"""The coordinator of a node: leadership, loading, writing, time, and the handlers over it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.handlers import (
    delete_groups,
    describe_groups,
    find_coordinator,
    heartbeat,
    join_group,
    leave_group,
    list_groups,
    offset_commit,
    offset_delete,
    offset_fetch,
    sync_group,
)
from barnabas.coordinator.results import Now, Operation
from barnabas.coordinator.routing import java_string_hash, partition_for
from barnabas.coordinator.shard import GroupCoordinatorShard
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.records.batch import BatchView
from barnabas.storage.errors import LogError
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.describe_groups import DescribeGroupsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.list_groups import ListGroupsRequest
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from tests.broker.group_bench import MemoryLog, ServiceBench, image_of, settle
from tests.virtual_time import virtual_loop

Story = Callable[[ServiceBench], Coroutine[Any, Any, None]]


def play(story: Story, log: MemoryLog | None = None, **settings: Any) -> MemoryLog:
    """Run a story on virtual time; the log that it leaves can be given to the next."""
    log = log or MemoryLog()
    with virtual_loop(seed=None) as loop:

        async def whole() -> None:
            bench = ServiceBench(loop, log, **settings)
            try:
                await story(bench)
            finally:
                await bench.groups.stop()

        loop.run_until_complete(whole())
    return log


def join(group: str = "g", member: str = "", **fields: Any) -> JoinGroupRequest:
    given = {"session_timeout_ms": 10_000, "rebalance_timeout_ms": 60_000} | fields
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\0\0\0\0\1\0\1t\xff\xff\xff\xff")]
    return JoinGroupRequest(group_id=group, member_id=member, protocol_type="consumer", protocols=protocols, **given)


def commit(group: str, *offsets: tuple[str, int, int], **fields: Any) -> OffsetCommitRequest:
    return OffsetCommitRequest(
        group_id=group,
        topics=[
            OffsetCommitRequestTopic(
                name=topic,
                partitions=[
                    OffsetCommitRequestPartition(
                        partition_index=partition, committed_offset=offset, committed_metadata=None
                    )
                ],
            )
            for topic, partition, offset in offsets
        ],
        **fields,
    )


async def stable_member(bench: ServiceBench, group: str = "g") -> str:
    """The id of the only member of a stable group of generation 1."""
    joined = await bench.call(join_group, join(group), 3)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assignments = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    request = SyncGroupRequest(group_id=group, generation_id=1, member_id=joined.member_id, assignments=assignments)
    assert (await bench.call(sync_group, request, 3)).assignment == b"all"
    return str(joined.member_id)


async def fetch(bench: ServiceBench, group: str = "g", version: int = 8, *, stable: bool = False) -> dict[str, int]:
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)], require_stable=stable)
    (answer,) = (await bench.call(offset_fetch, request, version)).groups
    assert answer.error_code == 0
    return {
        f"{topic.name}-{each.partition_index}": each.committed_offset
        for topic in answer.topics
        for each in topic.partitions
    }


def commit_codes(response: Any) -> list[int]:
    return [each.error_code for topic in response.topics for each in topic.partitions]


# Which shard


def test_java_hashes_are_over_utf_16_units() -> None:
    assert java_string_hash("") == 0
    assert java_string_hash("hello") == 99162322
    assert java_string_hash("Käfka") == 76157859
    assert java_string_hash("😀") == 1772899
    # The one string hash that has no absolute value.
    assert java_string_hash("polygenelubricants") == -(2**31)
    assert partition_for("polygenelubricants", 50) == 0


def test_the_first_search_for_a_coordinator_creates_the_topic() -> None:
    async def story(bench: ServiceBench) -> None:
        request = FindCoordinatorRequest(key="g", key_type=0, coordinator_keys=[])
        found = await bench.call(find_coordinator, request, 3)
        assert (found.error_code, found.node_id, found.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
        assert bench.to_create == [CONSUMER_OFFSETS]
        await bench.start()
        found = await bench.call(find_coordinator, request, 1)
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "127.0.0.1", 9092)
        assert found.error_message == "NONE"
        many = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
        found = await bench.call(find_coordinator, many, 6)
        assert [(each.key, each.node_id, each.error_code) for each in found.coordinators] == [("g", 1, 0), ("h", 1, 0)]
        refused = ErrorCode.INVALID_REQUEST
        for key_type, code in ((2, refused), (9, refused)):
            other = FindCoordinatorRequest(key="t", key_type=key_type)
            assert (await bench.call(find_coordinator, other, 2)).error_code == code

    play(story)


def test_who_does_not_lead_does_not_coordinate() -> None:
    async def story(bench: ServiceBench) -> None:
        assert (await bench.call(join_group, join(), 9)).error_code == ErrorCode.NOT_COORDINATOR
        await bench.start()
        member = await stable_member(bench)
        waiting = asyncio.ensure_future(bench.call(join_group, join(), 3))
        await asyncio.sleep(0)
        bench.apply(image_of({CONSUMER_OFFSETS: 2}, leader=2))
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert (await bench.call(heartbeat, beat, 4)).error_code == ErrorCode.NOT_COORDINATOR
        # It comes back and finds in the log what it left there.
        await bench.start()
        assert (await bench.call(heartbeat, beat, 4)).error_code == ErrorCode.NONE

    play(story)


def test_while_a_shard_loads_members_need_not_fear() -> None:
    async def first(bench: ServiceBench) -> None:
        await bench.start(t=1)
        await stable_member(bench)
        assert commit_codes(await bench.call(offset_commit, commit("simple", ("t", 0, 7)), 8)) == [0]

    async def second(bench: ServiceBench) -> None:
        bench.apply(image_of({CONSUMER_OFFSETS: 2, "t": 1}))
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
        assert (await bench.call(heartbeat, beat, 0)).error_code == ErrorCode.NONE
        assert (await bench.call(join_group, join(), 9)).error_code == loading
        assert commit_codes(await bench.call(offset_commit, commit("g", ("t", 0, 1)), 8)) == [loading]
        assert (await bench.call(list_groups, ListGroupsRequest(), 5)).error_code == loading
        (described,) = (await bench.call(describe_groups, DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert described.error_code == loading
        await bench.start(t=1)
        listed = (await bench.call(list_groups, ListGroupsRequest(), 5)).groups
        assert sorted((each.group_id, each.group_state) for each in listed) == [("g", "Stable"), ("simple", "Empty")]
        assert await fetch(bench, "simple") == {"t-0": 7}

    play(second, play(first))


def test_a_shard_that_must_wait_for_followers_keeps_no_other_from_being_loaded() -> None:
    """A new leader does not know yet what its predecessor had committed: a coordinator that went by its high watermark
    would have lost commits."""
    log = MemoryLog()

    async def story(bench: ServiceBench) -> None:
        groups = {bench.groups.partition_for(name): name for name in ("a", "b", "c", "d", "e")}
        log.behind[TopicPartition(CONSUMER_OFFSETS, 0)] = caught_up = asyncio.Event()
        bench.apply(image_of({CONSUMER_OFFSETS: 2}))
        await asyncio.sleep(60)
        loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        assert (await bench.call(join_group, join(groups[0]), 9)).error_code == loading
        assert (await bench.call(join_group, join(groups[1]), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED
        caught_up.set()
        await asyncio.sleep(1)
        assert (await bench.call(join_group, join(groups[0]), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    play(story, log, offsets_topic_num_partitions=2)


def test_who_leads_again_in_a_newer_epoch_reads_the_log_again() -> None:
    """In between another may have led, and written; who waits for the old epoch must look for the coordinator."""
    log = MemoryLog()

    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=1)
        member = await stable_member(bench)
        assert commit_codes(await bench.call(offset_commit, commit("simple", ("t", 0, 7)), 8)) == [0]
        log.commits_at_once = False
        lost = asyncio.ensure_future(bench.call(offset_commit, commit("simple", ("t", 0, 9)), 8))
        await asyncio.sleep(0.01)
        log.commits_at_once = True
        # The next leader did not have the last commit.
        log.batches[TopicPartition(CONSUMER_OFFSETS, 0)].pop()
        bench.apply(image_of({CONSUMER_OFFSETS: 1, "t": 1}, epoch=2))
        assert commit_codes(await lost) == [ErrorCode.NOT_COORDINATOR]
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert (await bench.call(join_group, join(), 9)).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
        await asyncio.sleep(1)
        assert (await bench.call(heartbeat, beat, 4)).error_code == ErrorCode.NONE
        assert await fetch(bench, "simple") == {"t-0": 7}

    play(story, log)


def test_an_epoch_that_changes_while_a_shard_is_loaded_begins_the_loading_anew() -> None:
    log = MemoryLog()

    async def first(bench: ServiceBench) -> None:
        await bench.start(1, t=1)
        assert commit_codes(await bench.call(offset_commit, commit("simple", ("t", 0, 7)), 8)) == [0]

    async def second(bench: ServiceBench) -> None:
        for epoch in range(4):
            bench.apply(image_of({CONSUMER_OFFSETS: 1, "t": 1}, epoch=epoch))
            await asyncio.sleep(0.001 * epoch)
        await asyncio.sleep(1)
        assert await fetch(bench, "simple") == {"t-0": 7}
        assert commit_codes(await bench.call(offset_commit, commit("simple", ("t", 0, 8)), 8)) == [0]
        assert await fetch(bench, "simple") == {"t-0": 8}

    play(second, play(first, log))


def test_a_partition_that_cannot_be_read_is_not_served() -> None:
    log = MemoryLog()
    log.load_failure = LogError(ErrorCode.KAFKA_STORAGE_ERROR, "a bad sector")

    async def story(bench: ServiceBench) -> None:
        bench.apply(image_of({CONSUMER_OFFSETS: 1}))
        await asyncio.sleep(1)
        assert (await bench.call(join_group, join(), 9)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await bench.call(list_groups, ListGroupsRequest(), 5)).groups == []

    play(story, log)


def test_a_shard_that_fails_at_the_end_of_its_loading_keeps_no_other_from_it(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    loaded = GroupCoordinatorShard.loaded

    def fail_once(shard: GroupCoordinatorShard, now: Now) -> list[Operation]:
        monkeypatch.setattr(GroupCoordinatorShard, "loaded", loaded)
        raise ZeroDivisionError

    monkeypatch.setattr(GroupCoordinatorShard, "loaded", fail_once)

    async def story(bench: ServiceBench) -> None:
        await bench.start(2)
        groups = {bench.groups.partition_for(name): name for name in ("a", "b", "c", "d", "e")}
        assert (await bench.call(join_group, join(groups[0]), 9)).error_code == ErrorCode.NOT_COORDINATOR
        assert (await bench.call(join_group, join(groups[1]), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    play(story)
    assert "ZeroDivisionError" in caplog.text


# Time


def test_sessions_end_without_anybody_asking() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(50)
        member = await stable_member(bench)
        await asyncio.sleep(9.9)
        beat = HeartbeatRequest(group_id="g", generation_id=1, member_id=member)
        assert (await bench.call(heartbeat, beat, 4)).error_code == ErrorCode.NONE
        await asyncio.sleep(9.9)
        assert (await bench.call(heartbeat, beat, 4)).error_code == ErrorCode.NONE
        await asyncio.sleep(10.1)
        assert (await bench.call(heartbeat, beat, 4)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        # At the next sweep nothing is left of it.
        assert len((await bench.call(list_groups, ListGroupsRequest(), 5)).groups) == 1
        await asyncio.sleep(700)
        assert (await bench.call(list_groups, ListGroupsRequest(), 5)).groups == []

    play(story)


def test_a_first_generation_waits_for_its_members() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start()
        begun = asyncio.get_running_loop().time()
        answers = await asyncio.gather(*(bench.call(join_group, join(), 3) for _ in range(20)))
        assert round(asyncio.get_running_loop().time() - begun) == 6
        assert {each.generation_id for each in answers} == {1}
        assert [len(each.members) for each in answers if each.members] == [20]

    play(story, group_initial_rebalance_delay_ms=3000)


# Writing


def test_commits_of_one_turn_share_a_batch() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=100)
        requests = [bench.call(offset_commit, commit("g", ("t", index, index)), 8) for index in range(100)]
        answers = await asyncio.gather(*requests)
        assert [commit_codes(each) for each in answers] == [[0]] * 100
        assert bench.log.batch_count == 1
        assert len(await fetch(bench)) == 100

    play(story)


@pytest.mark.parametrize(("linger_ms", "batches"), [(0, 10), (5, 1)])
def test_how_long_commits_gather_can_be_chosen(linger_ms: int, batches: int) -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=10)
        await asyncio.gather(*(bench.call(offset_commit, commit("g", ("t", index, index)), 8) for index in range(10)))
        assert bench.log.batch_count == batches

    play(story, group_coordinator_append_linger_ms=linger_ms)


def test_batches_stay_within_what_the_topic_takes() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=200)
        await asyncio.gather(
            *(bench.call(offset_commit, commit("g" * 50, ("t", index, index)), 8) for index in range(200))
        )
        (batches,) = bench.log.batches.values()
        assert len(batches) > 3
        assert max(map(len, batches)) <= 4096
        # One request is one write: it fits, or nothing of it is written.
        too_large = commit("h" * 50, *(("t", index, index) for index in range(200)))
        assert set(commit_codes(await bench.call(offset_commit, too_large, 8))) == {ErrorCode.UNKNOWN_SERVER_ERROR}
        assert await fetch(bench, "h" * 50) == {}

    play(story, message_max_bytes=4096)


def test_offsets_can_be_stored_compressed() -> None:
    async def first(bench: ServiceBench) -> None:
        await bench.start(1, t=50)
        await bench.call(offset_commit, commit("g", *(("t", index, 5) for index in range(50))), 8)
        ((batch,),) = bench.log.batches.values()
        assert BatchView(batch).attributes & 7 == 4

    async def second(bench: ServiceBench) -> None:
        await bench.start(1, t=50)
        assert set((await fetch(bench)).values()) == {5}

    play(second, play(first, offsets_topic_compression_codec=4))


def test_answers_wait_for_the_followers() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        bench.log.commits_at_once = False
        first = asyncio.ensure_future(bench.call(offset_commit, commit("g", ("t", 0, 1)), 8))
        await asyncio.sleep(0.1)
        second = asyncio.ensure_future(bench.call(offset_commit, commit("g", ("t", 0, 2)), 8))
        stable = asyncio.ensure_future(fetch(bench, stable=True))
        await asyncio.sleep(0.1)
        assert not any(each.done() for each in (first, second, stable))
        assert await fetch(bench) == {}
        bench.log.advance()
        assert (commit_codes(await first), commit_codes(await second)) == ([0], [0])
        assert await stable == {"t-0": 2}
        assert await fetch(bench) == {"t-0": 2}

    play(story)


def test_a_commit_that_followers_do_not_confirm_times_out_and_may_still_come() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        bench.log.commits_at_once = False
        begun = asyncio.get_running_loop().time()
        answer = await bench.call(offset_commit, commit("g", ("t", 0, 1)), 8)
        assert commit_codes(answer) == [ErrorCode.COORDINATOR_NOT_AVAILABLE]
        assert round(asyncio.get_running_loop().time() - begun) == 5
        assert await fetch(bench) == {}
        await asyncio.sleep(12)
        bench.log.advance()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await fetch(bench) == {"t-0": 1}

    play(story)


@pytest.mark.parametrize(
    ("failure", "told"),
    [
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.NOT_COORDINATOR),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_what_is_not_written_did_not_happen(failure: ErrorCode, told: ErrorCode) -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        await bench.call(offset_commit, commit("g", ("t", 0, 1)), 8)
        bench.log.failure = failure
        assert commit_codes(await bench.call(offset_commit, commit("g", ("t", 0, 2)), 8)) == [told]
        assert (await bench.call(join_group, join("new"), 3)).error_code == told
        bench.log.failure = None
        assert await fetch(bench, stable=True) == {"t-0": 1}
        assert [each.group_id for each in (await bench.call(list_groups, ListGroupsRequest(), 5)).groups] == ["g"]

    play(story)


def test_what_the_log_lost_before_it_was_committed_is_forgotten() -> None:
    """Another leader cut it off, and this node leads again before it knew."""

    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        await bench.call(offset_commit, commit("g", ("t", 0, 1)), 8)
        bench.log.commits_at_once = False
        lost = asyncio.ensure_future(bench.call(offset_commit, commit("g", ("t", 0, 2)), 8))
        parked = asyncio.ensure_future(bench.call(join_group, join("h"), 3))
        await asyncio.sleep(0.1)
        (batches,) = bench.log.batches.values()
        del batches[1:]
        for _, outcome in bench.log.waits:
            settle(outcome, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        bench.log.commits_at_once = True
        assert commit_codes(await lost) == [ErrorCode.NOT_COORDINATOR]
        assert (await parked).error_code == ErrorCode.NOT_COORDINATOR
        await asyncio.sleep(0.1)
        assert await fetch(bench, stable=True) == {"t-0": 1}
        assert [each.group_id for each in (await bench.call(list_groups, ListGroupsRequest(), 5)).groups] == ["g"]
        assert commit_codes(await bench.call(offset_commit, commit("g", ("t", 0, 3)), 8)) == [0]

    play(story, group_initial_rebalance_delay_ms=3000)


def test_a_shard_that_fails_to_replay_is_loaded_anew(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    replay = GroupCoordinatorShard.replay

    def fail_once(*_: Any) -> None:
        monkeypatch.setattr(GroupCoordinatorShard, "replay", replay)
        raise ZeroDivisionError

    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        monkeypatch.setattr(GroupCoordinatorShard, "replay", fail_once)
        answer = await bench.call(offset_commit, commit("g", ("t", 0, 1)), 8)
        assert commit_codes(answer) == [ErrorCode.NOT_COORDINATOR]
        await asyncio.sleep(0.1)
        assert await fetch(bench) == {"t-0": 1}, "it is in the log"

    play(story)
    assert "ZeroDivisionError" in caplog.text


def test_a_partition_that_could_not_be_read_is_tried_again_with_the_next_news_of_it() -> None:
    log = MemoryLog()
    log.load_failure = LogError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "not yet")

    async def story(bench: ServiceBench) -> None:
        bench.apply(image_of({CONSUMER_OFFSETS: 1}))
        await asyncio.sleep(1)
        assert (await bench.call(join_group, join(), 9)).error_code == ErrorCode.NOT_COORDINATOR
        log.load_failure = None
        await bench.start(1)
        assert (await bench.call(join_group, join(), 9)).error_code == ErrorCode.MEMBER_ID_REQUIRED

    play(story, log)


# Topics


def test_a_deleted_topic_takes_its_offsets_along() -> None:
    async def first(bench: ServiceBench) -> None:
        await bench.start(2, t=1, u=1)
        await bench.call(offset_commit, commit("g", ("t", 0, 1), ("u", 0, 2)), 8)
        topic = bench.metadata.image.topics["t"]
        bench.apply(image_of({CONSUMER_OFFSETS: 2, "u": 1}), topics_deleted=(topic,))
        await asyncio.sleep(0)
        assert await fetch(bench) == {"u-0": 2}

    async def second(bench: ServiceBench) -> None:
        await bench.start(2, t=1, u=1)
        assert await fetch(bench) == {"u-0": 2}

    play(second, play(first))


def test_only_partitions_that_exist_are_committed() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        answer = await bench.call(offset_commit, commit("g", ("t", 0, 1), ("t", 7, 1), ("none", 0, 1)), 8)
        assert {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        } == {("t", 0): 0, ("t", 7): 3, ("none", 0): 3}
        nowhere = await bench.call(offset_commit, commit("h", ("none", 0, 1)), 8)
        assert commit_codes(nowhere) == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
        by_id = commit("g", ("", 0, 5), ("", 1, 5))
        by_id.topics[0].topic_id = bench.metadata.image.topics["t"].topic_id
        by_id.topics[1].topic_id = Uuid(b"x" * 16)
        answer = await bench.call(offset_commit, by_id, 10)
        assert {each.topic_id: each.partitions[0].error_code for each in answer.topics} == {
            by_id.topics[0].topic_id: 0,
            by_id.topics[1].topic_id: ErrorCode.UNKNOWN_TOPIC_ID,
        }
        assert await fetch(bench) == {"t-0": 5}
        delete = OffsetDeleteRequest(
            group_id="g",
            topics=[
                OffsetDeleteRequestTopic(
                    name=name, partitions=[OffsetDeleteRequestPartition(partition_index=index) for index in (0, 9)]
                )
                for name in ("t", "none")
            ],
        )
        answer = await bench.call(offset_delete, delete, 0)
        assert {
            (topic.name, each.partition_index): each.error_code for topic in answer.topics for each in topic.partitions
        } == {("t", 0): 0, ("t", 9): 3, ("none", 0): 3, ("none", 9): 3}
        assert await fetch(bench) == {}

    play(story)


# The shapes of versions


def test_offset_fetch_in_all_its_shapes() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(1, t=2)
        await bench.call(offset_commit, commit("g", ("t", 0, 4)), 8)
        one = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
        for version in range(1, 8):
            answer = await bench.call(offset_fetch, one, version)
            assert [each.committed_offset for each in answer.topics[0].partitions] == [4, -1]
            assert [each.metadata for each in answer.topics[0].partitions] == ["", ""]
        everything = OffsetFetchRequest(group_id="g", topics=None)
        assert len((await bench.call(offset_fetch, everything, 2)).topics) == 1
        topic_id = bench.metadata.image.topics["t"].topic_id
        groups = [
            OffsetFetchRequestGroup(
                group_id=group_id,
                topics=[
                    OffsetFetchRequestTopics(topic_id=topic_id, partition_indexes=[0]),
                    OffsetFetchRequestTopics(topic_id=Uuid(b"x" * 16), partition_indexes=[3]),
                ],
            )
            for group_id in ("g", "unknown")
        ]
        answer = await bench.call(offset_fetch, OffsetFetchRequest(groups=groups), 10)
        assert [
            [
                (each.topic_id, each.partitions[0].committed_offset, each.partitions[0].error_code)
                for each in group.topics
            ]
            for group in answer.groups
        ] == [
            [(topic_id, 4, 0), (Uuid(b"x" * 16), -1, 100)],
            [(topic_id, -1, 0), (Uuid(b"x" * 16), -1, 100)],
        ]
        everything = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id="g", topics=None)])
        answer = await bench.call(offset_fetch, everything, 10)
        assert [each.topic_id for each in answer.groups[0].topics] == [topic_id]

    play(story)


def test_an_old_offset_fetch_tells_errors_with_each_partition() -> None:
    async def story(bench: ServiceBench) -> None:
        one = OffsetFetchRequest(group_id="g", topics=[OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])])
        answer = await bench.call(offset_fetch, one, 1)
        assert [each.error_code for each in answer.topics[0].partitions] == [ErrorCode.NOT_COORDINATOR] * 2
        assert (await bench.call(offset_fetch, one, 2)).error_code == ErrorCode.NOT_COORDINATOR

    play(story)


def test_leaving_in_both_shapes() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start()
        member = await stable_member(bench)
        request = LeaveGroupRequest(group_id="g", member_id="nobody")
        assert (await bench.call(leave_group, request, 1)).error_code == ErrorCode.UNKNOWN_MEMBER_ID
        request = LeaveGroupRequest(
            group_id="g", members=[MemberIdentity(member_id="nobody"), MemberIdentity(member_id=member)]
        )
        answer = await bench.call(leave_group, request, 5)
        assert answer.error_code == 0
        assert [each.error_code for each in answer.members] == [ErrorCode.UNKNOWN_MEMBER_ID, 0]
        (described,) = (await bench.call(describe_groups, DescribeGroupsRequest(groups=["g"]), 6)).groups
        assert described.group_state == "Empty"
        answer = await bench.call(delete_groups, DeleteGroupsRequest(groups_names=["g", "g", "h", ""]), 2)
        assert [(each.group_id, each.error_code) for each in answer.results] == [
            ("g", 0),
            ("h", ErrorCode.GROUP_ID_NOT_FOUND),
            ("", ErrorCode.GROUP_ID_NOT_FOUND),
        ]

    play(story)


def test_describing_in_old_and_new_versions() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start()
        member = await stable_member(bench)
        for version in range(7):
            request = DescribeGroupsRequest(groups=["g", "unknown"], include_authorized_operations=version >= 3)
            known, unknown = (await bench.call(describe_groups, request, version)).groups
            assert (known.group_state, known.protocol_type, known.protocol_data) == ("Stable", "consumer", "range")
            assert [(each.member_id, each.client_host) for each in known.members] == [(member, "/127.0.0.1")]
            assert known.members[0].member_assignment == b"all"
            assert unknown.group_state == "Dead"
            assert unknown.error_code == (ErrorCode.GROUP_ID_NOT_FOUND if version == 6 else 0)
            if version >= 3:
                assert known.authorized_operations == 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
        request = DescribeGroupsRequest(groups=["g"])
        (known,) = (await bench.call(describe_groups, request, 6)).groups
        assert known.authorized_operations == -(2**31)

    play(story)


def test_a_sync_must_name_its_protocol_from_version_5_on() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start()
        member = await stable_member(bench)
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=member, assignments=[])
        assert (await bench.call(sync_group, request, 5)).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
        request.protocol_type, request.protocol_name = "consumer", "range"
        answer = await bench.call(sync_group, request, 5)
        assert (answer.error_code, answer.protocol_name, answer.assignment) == (0, "range", b"all")

    play(story)


@pytest.mark.parametrize("version", range(10))
def test_every_version_of_join_has_its_answer(version: int) -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start()
        answer = await bench.call(join_group, join(), version)
        if version >= 4:
            assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
            assert answer.protocol_name == (None if version >= 7 else "")
            assert len(answer.member_id) == len("app-") + 36
            answer = await bench.call(join_group, join(member=answer.member_id), version)
        assert (answer.error_code, answer.generation_id, answer.leader) == (0, 1, answer.member_id)

    play(story)


def test_nothing_is_answered_after_the_stop() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start()
        await stable_member(bench)
        waiting = asyncio.ensure_future(bench.call(join_group, join(), 3))
        await asyncio.sleep(0)
        await bench.groups.stop()
        assert (await waiting).error_code == ErrorCode.NOT_COORDINATOR
        assert (await bench.call(join_group, join(), 3)).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE

    play(story)
