"""What a node tells of quotas agrees with what those who have them have done."""

from __future__ import annotations

import pytest

from barnabas.aio import Admin, Consumer, Producer
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import NewTopic, QuotaEntity, QuotaName
from barnabas.testing import AsyncEmbeddedBroker
from tests.broker.metrics.scraping import Scrape
from tests.virtual_time import clock, on_virtual_time

WINDOW_S = 10
PRODUCED = "kafka_server_produce_byte_rate"
FETCHED = "kafka_server_fetch_byte_rate"
REQUEST_TIME = "kafka_server_request_request_time"
TOKENS = "kafka_server_controllermutation_tokens"


@on_virtual_time
async def test_how_much_of_its_quotas_a_client_uses() -> None:
    async with AsyncEmbeddedBroker(overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        where = broker.bootstrap_servers
        async with Admin(bootstrap_servers=where, client_id="admin") as admin:
            await admin.alter_client_quotas(
                {
                    QuotaEntity(client_id="shop"): {"producer_byte_rate": 1e6, "consumer_byte_rate": 1e6},
                    QuotaEntity(user="ANONYMOUS", client_id="till"): {"request_percentage": 50},
                    QuotaEntity(client_id="builder"): {"controller_mutation_rate": 1},
                }
            )
        async with Admin(bootstrap_servers=where, client_id="builder") as admin:
            await admin.create_topics([NewTopic("t", 15)])
        for client_id in ("shop", "till", "nobody"):
            async with Producer(bootstrap_servers=where, client_id=client_id, clock=clock()) as producer:
                for _ in range(10):
                    await (await producer.send("t", b"x" * 1000, partition=0))
        async with Consumer(
            bootstrap_servers=where, client_id="shop", auto_offset_reset="earliest", clock=clock()
        ) as consumer:
            consumer.assign([TopicPartition("t", 0)])
            read = 0
            while read < 30:
                read += len(await consumer.poll(1))
        found = Scrape(b"".join(await broker.node.metrics.node_metrics.text()).decode())
    told = {key for key in found.samples if key[0] in (PRODUCED, FETCHED, REQUEST_TIME, TOKENS)}
    assert {(name, *(value for _, value in labels)) for name, labels in told} == {
        (PRODUCED, "shop", ""),
        (FETCHED, "shop", ""),
        (TOKENS, "builder", ""),
    }, "of those who have one, and use it; on virtual time requests take none"
    sent = found.value("kafka_network_requestmetrics_requestbytes_sum", request="Produce") / 3
    assert found.value(PRODUCED, user="", client_id="shop") * WINDOW_S == pytest.approx(sent, rel=0.1)
    assert found.value(FETCHED, user="", client_id="shop") * WINDOW_S > 30_000
    assert -4 <= found.value(TOKENS, user="", client_id="builder") < 0, "11 come in a window; 15 were taken"


@on_virtual_time
async def test_names_of_clients_can_neither_end_a_line_nor_fill_the_answer() -> None:
    hostile, endless = 'a"b\\c\nd} 1\nevil{x="', "x" * 32_000
    async with AsyncEmbeddedBroker(overrides={"metrics.listener": "127.0.0.1:0"}) as broker:
        where = broker.bootstrap_servers
        async with Admin(bootstrap_servers=where, client_id="admin") as admin:
            await admin.alter_client_quotas({QuotaEntity(client_id=QuotaName.DEFAULT): {"producer_byte_rate": 100}})
            await admin.create_topics([NewTopic("t", 1)])
        for client_id in (hostile, f"{endless}1", f"{endless}2"):
            async with Producer(bootstrap_servers=where, client_id=client_id, clock=clock()) as producer:
                await (await producer.send("t", b"x" * 2000, partition=0))
        found = Scrape(b"".join(await broker.node.metrics.node_metrics.text()).decode())
    for family in (PRODUCED, "barnabas_throttled_ms_total"):
        told = sorted(dict(labels)["client_id"] for name, labels in found.samples if name == family)
        assert told[0] == hostile
        assert len(set(told)) == len(told) == 3, "who begins alike is told apart"
        assert max(map(len, told)) < 300
        assert all(each.startswith("x" * 200) for each in told[1:])
    assert "evil" not in found.names
