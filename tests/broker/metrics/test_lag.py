"""How far groups are behind is told where it is known, and not told where it is not."""

from __future__ import annotations

import pytest

from barnabas.aio import Admin, Producer
from barnabas.base.errors import known
from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.broker.data.replica_manager import ReplicaManager
from barnabas.broker.metrics import lag as lag_metrics
from barnabas.broker.metrics.lag import LagReader
from barnabas.replication.partition import Partition
from barnabas.testing import AsyncEmbeddedBroker, memory_files
from tests.broker.metrics.scraping import Scrape
from tests.broker.metrics.test_collectors import LISTENER, parts_of
from tests.virtual_time import clock, on_virtual_time

HERE, THERE = TopicPartition("t", 0), TopicPartition("t", 1)
LONGEST = "barnabas_group_lag_seconds_max"


async def partitions_with_a_record(broker: AsyncEmbeddedBroker, timestamp_ms: int | None = None) -> None:
    await broker.create_topic("t", 2)
    async with Producer(bootstrap_servers=broker.bootstrap_servers, clock=clock()) as producer:
        for each in (HERE, THERE):
            await (await producer.send("t", b"x", partition=each.partition, timestamp_ms=timestamp_ms))


async def lag_of_a_group(broker: AsyncEmbeddedBroker, timestamp_ms: int | None = None) -> Scrape:
    """Of one that has read nothing of two partitions with a record each."""
    await partitions_with_a_record(broker, timestamp_ms)
    async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        await admin.alter_group_offsets("g", {HERE: 0, THERE: 0})
    return lag(broker)


def lag(broker: AsyncEmbeddedBroker, reader: LagReader | None = None) -> Scrape:
    out = Exposition()
    for _ in (reader or LagReader()).collect(parts_of(broker), out):
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
async def test_no_disk_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(_file: memory_files._File, position: int, size_bytes: int) -> bytes:
        raise AssertionError(f"{size_bytes} bytes at {position} are waited for")

    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        before = await lag_of_a_group(broker)
        replicas = known(parts_of(broker).services, "a broker").replica_manager
        for name in (HERE, THERE):
            known(known(replicas.get(name), "here").log, "here").segments[-1].recent.clear()
        monkeypatch.setattr(memory_files._File, "read_now", memory_files._File.read_at)
        monkeypatch.setattr(memory_files._File, "read_at", fail)
        assert lag(broker).value(LONGEST, group="g") >= before.value(LONGEST, group="g")
        monkeypatch.setattr(memory_files._File, "read_now", lambda *_: None)
        cold = lag(broker)
        monkeypatch.undo()
    assert LONGEST not in cold.names
    assert cold.value("barnabas_group_lag_sum", group="g") == 2


@on_virtual_time
async def test_a_record_without_a_timestamp_is_behind_by_records_only() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        found = await lag_of_a_group(broker, timestamp_ms=0)
    assert not {LONGEST, "barnabas_group_lag_seconds"} & found.names
    assert found.value("barnabas_group_lag_sum", group="g") == 2


@on_virtual_time
async def test_where_many_are_to_be_looked_up_everybody_gets_a_turn(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also those who commit between any two scrapes, so that what was found is of no use any more."""
    monkeypatch.setattr(lag_metrics, "_MOST_LOOKUPS", 3)
    groups = ["g1", "g2", "g3", "g4"]
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        await partitions_with_a_record(broker)
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            for group in groups:
                await admin.alter_group_offsets(group, {HERE: 0, THERE: 0})
        reader = LagReader()
        told: dict[str, int] = dict.fromkeys(groups, 0)
        for _ in range(8):
            found = lag(broker, reader)
            assert all(found.value("barnabas_group_lag_sum", group=group) == 2 for group in groups)
            for name, labels in found.samples:
                if name == "barnabas_group_lag_seconds":
                    told[dict(labels)["group"]] += 1
            reader._written_ms.clear()
    assert told == dict.fromkeys(groups, 8 * 3 // 4)
