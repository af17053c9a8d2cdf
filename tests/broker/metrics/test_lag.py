"""How far groups are behind is told where it is known, and not told where it is not."""

from __future__ import annotations

import pytest

from barnabas.aio import Admin, Producer
from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.broker.data.replica_manager import ReplicaManager
from barnabas.broker.metrics.lag import LagReader
from barnabas.replication.partition import Partition
from barnabas.testing import AsyncEmbeddedBroker
from tests.broker.metrics.scraping import Scrape
from tests.broker.metrics.test_collectors import LISTENER, parts_of
from tests.virtual_time import clock, on_virtual_time

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
LONGEST = "barnabas_group_lag_seconds_max"


async def lag_of_a_group(broker: AsyncEmbeddedBroker, timestamp_ms: int | None = None) -> Scrape:
    """Of one that has read nothing of two partitions with a record each."""
    await broker.create_topic("t", 2)
    async with Producer(bootstrap_servers=broker.bootstrap_servers, clock=clock()) as producer:
        for each in (HERE, THERE):
            await (await producer.send("t", b"x", partition=each.partition, timestamp_ms=timestamp_ms))
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.alter_group_offsets("g", {HERE: 0, THERE: 0})
    return lag(broker)


def lag(broker: AsyncEmbeddedBroker) -> Scrape:
    out = Exposition()
    for _ in LagReader().collect(parts_of(broker), out):
        pass
    return Scrape(whole_text(out))


@on_virtual_time
async def test_seconds_of_a_group_are_not_told_while_a_partition_is_elsewhere(monkeypatch: pytest.MonkeyPatch) -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        whole = await lag_of_a_group(broker)
        assert whole.value(LONGEST, group="g") >= 0
        found = ReplicaManager.get

        def get(manager: ReplicaManager, name: TopicPartition) -> Partition | None:
            return None if name == THERE else found(manager, name)

        monkeypatch.setattr(ReplicaManager, "get", get)
        partly = lag(broker)
    assert LONGEST not in partly.names
    assert partly.value("barnabas_group_lag_seconds", group="g", topic="t", partition="0") >= 0
    assert partly.value("barnabas_group_lag_sum", group="g") == 1
    assert partly.value("barnabas_group_partitions_elsewhere", group="g") == 1


@on_virtual_time
async def test_a_record_without_a_timestamp_is_behind_by_records_only() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        found = await lag_of_a_group(broker, timestamp_ms=0)
    assert not {LONGEST, "barnabas_group_lag_seconds"} & found.names
    assert found.value("barnabas_group_lag_sum", group="g") == 2
