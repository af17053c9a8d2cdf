"""Our members in one group with those of other clients: whoever leads, everybody gets a share and nothing is left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.testing import AsyncEmbeddedBroker
from tests.client.consumer.players import Member, member_of
from tests.virtual_time import on_real_time

confluent_kafka = pytest.importorskip("confluent_kafka")
aiokafka = pytest.importorskip("aiokafka")


async def settle(member: Member, poll_other: Callable[[], Any], other_has: Callable[[], int]) -> None:
    """Poll both until each has two of the four partitions."""

    async def keep_polling() -> None:
        while True:
            await asyncio.to_thread(poll_other)

    polling = asyncio.create_task(keep_polling())
    try:
        await member.poll_until(lambda: len(member.assigned) == 2 and other_has() == 2, 20_000)
    finally:
        polling.cancel()
        await asyncio.wait({polling})


@pytest.mark.parametrize("we_lead", [True, False])
@pytest.mark.parametrize("strategy", ["range", "roundrobin", "cooperative-sticky"])
@on_real_time
async def test_with_confluent_kafka(strategy: str, we_lead: bool) -> None:
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 4)
        consumer = confluent_kafka.Consumer(
            {
                "bootstrap.servers": broker.bootstrap_servers,
                "group.id": "g",
                "partition.assignment.strategy": strategy,
                "heartbeat.interval.ms": 100,
            }
        )
        try:
            async with member_of(broker.bootstrap_servers, partition_assignment_strategy=strategy) as member:
                member.subscribe("t")
                if we_lead:
                    await member.join()
                    consumer.subscribe(["t"])
                else:
                    consumer.subscribe(["t"])
                    while len(consumer.assignment()) < 4:
                        await asyncio.to_thread(consumer.poll, 0.05)
                await settle(member, lambda: consumer.poll(0.05), lambda: len(consumer.assignment()))
                theirs = {(each.topic, each.partition) for each in consumer.assignment()}
                assert theirs | {*member.assigned} == {("t", number) for number in range(4)}
        finally:
            await asyncio.to_thread(consumer.close)


@pytest.mark.parametrize("we_lead", [True, False])
@pytest.mark.parametrize("strategy", ["range", "sticky"])
@on_real_time
async def test_with_aiokafka(strategy: str, we_lead: bool) -> None:
    from aiokafka.coordinator.assignors.range import RangePartitionAssignor
    from aiokafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor

    theirs = {"range": RangePartitionAssignor, "sticky": StickyPartitionAssignor}[strategy]
    async with AsyncEmbeddedBroker() as broker:
        await broker.create_topic("t", 4)
        consumer = aiokafka.AIOKafkaConsumer(
            "t",
            bootstrap_servers=broker.bootstrap_servers,
            group_id="g",
            partition_assignment_strategy=[theirs],
            heartbeat_interval_ms=100,
        )
        async with member_of(broker.bootstrap_servers, partition_assignment_strategy=strategy) as member:
            member.subscribe("t")
            if we_lead:
                await member.join()
                starting = asyncio.create_task(consumer.start())
            else:
                await consumer.start()
                starting = asyncio.create_task(asyncio.sleep(0))
            try:
                await member.poll_until(lambda: len(member.assigned) == 2 and len(consumer.assignment()) == 2, 20_000)
                await starting
                assert {*consumer.assignment()} | {*member.assigned} == {("t", number) for number in range(4)}
            finally:
                await starting
                await consumer.stop()
