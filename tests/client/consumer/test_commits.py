"""Offsets that members commit, against a node: waited for, in the background, by themselves, and refused."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.errors import ClientTimeoutError, CommitFailedError
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.consumer.players import Member, at, member_of
from tests.virtual_time import on_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MANUAL: dict[str, object] = {"enable_auto_commit": False, "retry_backoff_ms": 10}


async def joined(member: Member) -> Member:
    member.subscribe("t")
    await member.join()
    return member


@on_virtual_time
async def test_what_was_committed_is_found() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            assert await member.group.committed([T0, T1]) == {T0: None, T1: None}
            await member.group.commit({T0: OffsetAndMetadata(5, "a note", 0)})
            assert await member.group.committed([T0, T1]) == {T0: OffsetAndMetadata(5, "a note", 0), T1: None}
            member.read(T1, 9)
            await member.group.commit()  # all that was handed out
            assert (await member.group.committed([T1]))[T1] == at(9)


@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        None,
    ],
)
@on_virtual_time
async def test_a_commit_is_tried_until_it_succeeds(fault: ErrorCode | None) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            for api in (ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH):
                if fault is None:
                    broker.faults.fail_next(api, close=True, times=2)
                else:
                    broker.faults.fail_next(api, error=fault, times=2)
            await member.group.commit({T0: at(3)})
            assert await member.group.committed([T0]) == {T0: at(3)}
            assert not broker.faults.pending


@on_virtual_time
async def test_a_commit_that_takes_too_long_says_what_came_last() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, times=1000)
            with pytest.raises(ClientTimeoutError, match=r"group g were not committed within 200 ms: COORDINATOR_LOAD"):
                await member.group.commit({T0: at(3)}, 200)


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID])
@on_virtual_time
async def test_a_member_of_a_past_generation_cannot_commit_and_joins_again(code: ErrorCode) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=code)
            with pytest.raises(CommitFailedError, match=r"not in group g at present.*max\.poll\.interval\.ms"):
                await member.group.commit({T0: at(3)})
            # Also before it has joined again, without asking the broker.
            with pytest.raises(CommitFailedError, match="not in group g at present"):
                await member.group.commit({T0: at(3)})
            assert member.group.needs_poll()
            await member.group.poll(0)
            assert member.listener.words[:2] == ["assigned", "lost"]


@on_virtual_time
async def test_a_rebalance_is_not_the_moment_to_commit() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.REBALANCE_IN_PROGRESS)
            with pytest.raises(CommitFailedError, match="is rebalancing; poll"):
                await member.group.commit({T0: at(3)})
            await member.join()
            await member.group.commit({T0: at(3)})
            assert member.listener.words == ["assigned", "revoked", "assigned"]


@on_virtual_time
async def test_what_cannot_be_helped_is_raised() -> None:
    async with AsyncEmbeddedBroker(offset_metadata_max_bytes=10) as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            with pytest.raises(BrokerError, match=r"t-0 is longer than offset\.metadata\.max\.bytes"):
                await member.group.commit({T0: at(1, "a long story")})
            broker.faults.fail_next(ApiKey.OFFSET_FETCH, error=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            with pytest.raises(BrokerError, match="not allowed to read offsets of group g"):
                await member.group.committed([T0])


@on_virtual_time
async def test_callbacks_run_in_the_order_of_commits() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)
            broker.faults.fail_next(ApiKey.OFFSET_COMMIT, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            heard: list[tuple[int, type[Exception] | None]] = []

            def callback(offsets: dict[TopicPartition, OffsetAndMetadata], error: Exception | None) -> None:
                heard.append((offsets[T0].offset, None if error is None else type(error)))

            for offset in range(1, 5):
                member.group.commit_soon({T0: at(offset)}, callback)
            assert not heard
            await member.group.commit({T1: at(9)})
            assert heard == [(1, CommitFailedError), (2, None), (3, None), (4, None)]
            assert await member.group.committed([T0]) == {T0: at(4)}
            member.group.commit_soon({T0: at(5)}, callback)
            while len(heard) < 5:
                await member.group.poll(0)
                await asyncio.sleep(0.005)
            assert heard[-1] == (5, None)


@on_virtual_time
async def test_offsets_are_committed_by_themselves() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with (
            member_of(broker.bootstrap_servers, auto_commit_interval_ms=50) as member,
            member_of(broker.bootstrap_servers, "other", **MANUAL) as witness,
        ):
            await joined(member)
            member.read(T0, 11)
            seen = broker.faults.seen
            await member.poll_until(lambda: seen[ApiKey.OFFSET_COMMIT] >= 2)
            assert (await member.group.committed([T0]))[T0] == at(11)
            assert await witness.group.committed([T0]) == {T0: None}


@on_virtual_time
async def test_offsets_are_committed_before_a_rebalance_and_at_the_end() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, "g", **MANUAL) as witness:
            async with member_of(broker.bootstrap_servers, auto_commit_interval_ms=60_000) as member:
                await joined(member)
                member.read(T0, 21)
                found: dict[TopicPartition, OffsetAndMetadata | None] = {}

                async def look(what: str) -> None:
                    if what == "revoked":
                        found.update(await witness.group.committed([T0]))

                member.listener.before = look
                member.group.request_rejoin("the test wants it")
                await member.join()
                assert found == {T0: at(21)}
                member.listener.before = None
                member.read(T0, 33)
            assert (await witness.group.committed([T0]))[T0] == at(33)


@on_virtual_time
async def test_the_listener_may_commit_what_it_loses() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, **MANUAL) as member:
            await joined(member)

            async def save(what: str) -> None:
                if what == "revoked":
                    await member.group.commit({T0: at(77)})

            member.listener.before = save
            member.group.request_rejoin("the test wants it")
            await member.join()
            assert (await member.group.committed([T0]))[T0] == at(77)


@on_virtual_time
async def test_a_consumer_that_assigns_by_hand_commits_to_a_group_of_its_own() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with (
            member_of(broker.bootstrap_servers, "mine", auto_commit_interval_ms=20) as alone,
            member_of(broker.bootstrap_servers, "theirs", **MANUAL) as intruder,
            member_of(broker.bootstrap_servers, "theirs", **MANUAL) as member,
        ):
            alone.subscription.assign([T0])
            alone.read(T0, 4)
            await alone.poll_until(lambda: broker.faults.seen[ApiKey.OFFSET_COMMIT] >= 1)
            assert (await alone.group.committed([T0]))[T0] == at(4)
            await joined(member)
            intruder.subscription.assign([T0])
            with pytest.raises(CommitFailedError, match=r"needs a group\.id of its own"):
                await intruder.group.commit({T0: at(1)})
