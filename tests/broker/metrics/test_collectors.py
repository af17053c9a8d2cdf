"""A scrape goes on while the node does, and tells what it can."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.aio import Admin, Producer
from barnabas.base.ids import TopicPartition
from barnabas.base.metrics.exposition import Exposition, whole_text
from barnabas.broker.metrics import coordinators, logs
from barnabas.broker.metrics.lag import LagReader
from barnabas.broker.metrics.sources import NodeParts
from barnabas.testing import AsyncEmbeddedBroker
from tests.broker.metrics.scraping import Scrape
from tests.virtual_time import on_virtual_time

LISTENER = {"metrics.listener": "127.0.0.1:0"}


def parts_of(broker: AsyncEmbeddedBroker) -> NodeParts:
    return broker.node.metrics.node_metrics._parts()


@on_virtual_time
async def test_a_group_commits_for_more_partitions_while_its_lag_is_told() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        await broker.create_topic("t", 2)
        async with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            await admin.alter_group_offsets("g", {TopicPartition("t", 0): 0})
            out = Exposition()
            for _ in LagReader().collect(parts_of(broker), out):
                await admin.alter_group_offsets("g", {TopicPartition("t", 1): 0})
    assert Scrape(whole_text(out)).value("barnabas_group_lag", group="g", topic="t", partition="0") == 0


@on_virtual_time
async def test_transactional_ids_come_while_they_are_counted() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:

        async def transactional_id(name: str) -> None:
            async with Producer(bootstrap_servers=broker.bootstrap_servers, transactional_id=name) as producer:
                await producer.init_transactions()

        await transactional_id("first")
        out = Exposition()
        for number, _ in enumerate(coordinators.collect(parts_of(broker), out)):
            await transactional_id(f"more-{number}")
    assert Scrape(whole_text(out)).value("barnabas_transactional_ids", state="Empty") == 1


@on_virtual_time
async def test_what_cannot_be_told_costs_only_itself(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: object, parts: NodeParts, out: Exposition) -> Iterator[None]:
        yield
        raise ValueError("a directory is gone")

    monkeypatch.setattr(logs.DiskReader, "collect", fail)
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        found = Scrape(b"".join(await broker.node.metrics.node_metrics.text()).decode())
    assert found["barnabas_scrape_errors_total"] == 1
    assert found["kafka_server_kafkaserver_brokerstate"] == 3
    assert found["kafka_server_replicamanager_partitioncount"] >= 0
    assert "a directory is gone" in caplog.text
