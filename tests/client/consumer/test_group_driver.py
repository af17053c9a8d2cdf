"""Members of groups against a node, in real time: joining, sharing, committing, leaving."""

from __future__ import annotations

import asyncio
import re

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.membership_steps import MemberState
from barnabas.client.errors import ClientClosedError
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.consumer.players import at, member_of
from tests.virtual_time import on_virtual_time

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


@on_virtual_time
async def test_one_member_gets_everything_and_leaves() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers) as member:
            member.subscribe("t")
            assert member.group.needs_poll()
            await member.join()
            assert not member.group.needs_poll()
            assert member.assigned == [T0, T1]
            assert member.listener.story == [("assigned", [T0, T1])]
            told = member.group.group_metadata()
            assert (told.group_id, told.generation, bool(told.member_id)) == ("g", 1, True)
            await member.group.leave("the program has enough")
            assert member.listener.words == ["assigned", "revoked"]
            assert member.assigned == []
            assert broker.faults.seen[ApiKey.LEAVE_GROUP] == 1


@pytest.mark.parametrize("strategy", ["range", "sticky", "cooperative-sticky"])
@on_virtual_time
async def test_two_members_share(strategy: str) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        settings = {"partition_assignment_strategy": strategy}
        async with (
            member_of(broker.bootstrap_servers, **settings) as first,
            member_of(broker.bootstrap_servers, **settings) as second,
        ):
            first.subscribe("t")
            await first.join()
            second.subscribe("t")
            joining = asyncio.create_task(second.poll_until(lambda: len(second.assigned) == 1))
            await first.poll_until(lambda: len(first.assigned) == 1)
            await joining
            assert sorted(first.assigned + second.assigned) == [T0, T1]
            if strategy == "cooperative-sticky":
                assert [what for what in first.listener.story if what[0] == "revoked"] == [("revoked", second.assigned)]
            else:
                assert first.listener.story[:2] == [("assigned", [T0, T1]), ("revoked", [T0, T1])]
            # The one who is left gets everything again.
            await second.group.close(1_000)
            await first.poll_until(lambda: first.assigned == [T0, T1])


@on_virtual_time
async def test_heartbeats_go_on_while_the_program_works() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers) as member:
            member.subscribe("t")
            await member.join()
            before = broker.faults.seen[ApiKey.HEARTBEAT]
            await asyncio.sleep(0.4)
            assert broker.faults.seen[ApiKey.HEARTBEAT] - before >= 4


@on_virtual_time
async def test_who_waits_for_records_is_called_when_the_group_rebalances() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with (
            member_of(broker.bootstrap_servers) as first,
            member_of(broker.bootstrap_servers) as second,
        ):
            first.subscribe("t")
            await first.join()
            needed = asyncio.Event()
            first.group.on_attention = needed.set
            second.subscribe("t")
            joining = asyncio.create_task(second.poll_until(lambda: len(second.assigned) == 1))
            await needed.wait()
            assert first.group.needs_poll()
            await first.poll_until(lambda: len(first.assigned) == 1)
            await joining


@on_virtual_time
async def test_who_does_not_poll_leaves_and_loses_its_partitions(caplog: pytest.LogCaptureFixture) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, max_poll_interval_ms=300) as member:
            member.subscribe("t")
            await member.join()
            await asyncio.sleep(0.6)
            assert broker.faults.seen[ApiKey.LEAVE_GROUP] == 1
            assert "max.poll.interval.ms (300 ms)" in caplog.text
            with pytest.raises(Exception, match=re.escape("max.poll.interval.ms = 300")):
                await member.group.commit({T0: at(1)})
            await member.poll_until(lambda: len(member.listener.story) == 3)
            assert member.listener.words == ["assigned", "lost", "assigned"]


@on_virtual_time
async def test_who_takes_records_without_polling_is_not_late() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, max_poll_interval_ms=300) as member:
            member.subscribe("t")
            await member.join()
            taken = iter(range(1_000_000))
            member.group.progress = lambda: next(taken)
            await asyncio.sleep(0.6)
            assert broker.faults.seen[ApiKey.LEAVE_GROUP] == 0
            assert await member.group.poll(0)


@on_virtual_time
async def test_a_static_member_comes_back_without_a_rebalance() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        for _ in range(2):
            async with member_of(broker.bootstrap_servers, group_instance_id="one") as member:
                member.subscribe("t")
                await member.join()
                assert member.assigned == [T0, T1]
                assert member.group.group_metadata().generation == 1
        assert broker.faults.seen[ApiKey.LEAVE_GROUP] == 0


@on_virtual_time
async def test_a_second_static_member_of_the_same_name_ends_the_first() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with (
            member_of(broker.bootstrap_servers, group_instance_id="one") as first,
            member_of(broker.bootstrap_servers, group_instance_id="one") as second,
        ):
            first.subscribe("t")
            await first.join()
            second.subscribe("t")
            await second.join()
            with pytest.raises(BrokerError, match=r"another consumer with group.instance.id one has joined group g"):
                await first.poll_until(lambda: False)
            with pytest.raises(BrokerError, match="FENCED_INSTANCE_ID"):
                await first.group.poll(0)


@on_virtual_time
async def test_topics_that_match_a_pattern_are_read_as_they_come() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("clicks-a")
        await broker.create_topic("other")
        async with member_of(broker.bootstrap_servers, metadata_max_age_ms=100) as member:
            member.subscription.subscribe_pattern("clicks-.*", member.listener)
            await member.join()
            assert member.assigned == [TopicPartition("clicks-a", 0)]
            await broker.create_topic("clicks-b")
            await member.poll_until(lambda: len(member.assigned) == 2)
            assert member.assigned == [TopicPartition("clicks-a", 0), TopicPartition("clicks-b", 0)]


@on_virtual_time
async def test_new_topics_of_a_subscription_and_new_partitions_are_assigned() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        settings = {"metadata_max_age_ms": 100, "allow_auto_create_topics": False}
        async with member_of(broker.bootstrap_servers, **settings) as member:
            member.subscribe("later", "t")
            await member.join()
            assert member.assigned == [T0, T1]
            await broker.create_topic("later")
            await member.poll_until(lambda: len(member.assigned) == 3)
            member.subscribe("later")
            await member.poll_until(lambda: member.assigned == [TopicPartition("later", 0)])


@on_virtual_time
async def test_a_listener_that_raises_is_heard_and_the_rebalance_goes_on() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers) as member:
            member.subscribe("t")

            def fail(what: str) -> None:
                raise ValueError(f"no room for what is {what}")

            member.listener.before = fail
            with pytest.raises(ValueError, match="no room for what is assigned"):
                await member.group.poll(5_000)
            assert member.assigned == [T0, T1]
            assert await member.group.poll(0)
            member.listener.before = None


@pytest.mark.parametrize("api", [ApiKey.JOIN_GROUP, ApiKey.SYNC_GROUP, ApiKey.HEARTBEAT])
@pytest.mark.parametrize(
    "fault",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        None,
    ],
)
@on_virtual_time
async def test_a_member_gets_over_a_fault(api: ApiKey, fault: ErrorCode | None) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, retry_backoff_ms=10) as member:
            if fault is None:
                broker.faults.fail_next(api, close=True)
            else:
                broker.faults.fail_next(api, error=fault)
            member.subscribe("t")
            await member.join()
            await member.poll_until(
                lambda: not broker.faults.pending and member.group.membership.state is MemberState.STABLE
            )
            await member.join()
            assert member.assigned == [T0, T1]


@on_virtual_time
async def test_what_the_group_refuses_is_raised_with_advice() -> None:
    async with AsyncEmbeddedBroker(group_max_size=1) as broker:
        await broker.create_topic("t", 2)
        async with (
            member_of(broker.bootstrap_servers) as first,
            member_of(broker.bootstrap_servers) as second,
            member_of(broker.bootstrap_servers, session_timeout_ms=100) as hasty,
        ):
            for member in (first, second, hasty):
                member.subscribe("t")
            await first.join()
            with pytest.raises(BrokerError, match=r"as many members as group\.max\.size"):
                await second.group.poll(2_000)
            with pytest.raises(BrokerError, match=r"session\.timeout\.ms = 100"):
                await hasty.group.poll(2_000)


@on_virtual_time
async def test_a_member_that_shares_no_assignor_with_the_others_is_told() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with (
            member_of(broker.bootstrap_servers) as first,
            member_of(broker.bootstrap_servers, partition_assignment_strategy="roundrobin") as other,
        ):
            first.subscribe("t")
            other.subscribe("t")
            await first.join()
            with pytest.raises(BrokerError, match=r"know none of our assignors \(roundrobin\)"):
                await other.group.poll(2_000)


@on_virtual_time
async def test_a_poll_without_time_joins_step_by_step() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers) as member:
            member.subscribe("t")
            assert not await member.group.poll(0)
            await member.poll_until(lambda: member.assigned == [T0, T1], poll_ms=0)


@on_virtual_time
async def test_the_node_restarts_and_the_group_goes_on() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, retry_backoff_ms=10) as member:
            member.subscribe("t")
            await member.join()
            await member.group.commit({T0: at(7)})
            await broker.restart()
            await member.group.commit({T0: at(8)}, 10_000)
            await member.join()
            assert (await member.group.committed([T0]))[T0] == at(8)
            assert member.assigned == [T0, T1]


@on_virtual_time
async def test_a_closed_group_says_so() -> None:
    async with AsyncEmbeddedBroker() as broker, member_of(broker.bootstrap_servers) as member:
        await member.group.close(1_000)
        with pytest.raises(ClientClosedError):
            await member.group.poll(0)
        with pytest.raises(ClientClosedError):
            await member.group.commit({T0: at(1)})


@on_virtual_time
async def test_what_a_member_does_is_counted() -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 2)
        async with member_of(broker.bootstrap_servers, retry_backoff_ms=10) as member:
            broker.faults.fail_next(ApiKey.JOIN_GROUP, error=ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            member.subscribe("t")
            await member.join()
            await member.group.commit({T0: at(1)})
            await member.poll_until(lambda: member.metrics["heartbeat-total"] >= 1)
            found = member.metrics
            for name in ("join-total", "sync-total", "rebalance-total", "failed-rebalance-total", "commit-total"):
                assert found[name] == 1, name
            assert found["assigned-partitions"] == 2
            assert found["last-heartbeat-seconds-ago"] >= 0
