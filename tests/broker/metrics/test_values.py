"""What the metrics say agrees with what a client that counts has done."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from barnabas.aio import Admin as AsyncAdmin
from barnabas.aio import Producer as AsyncProducer
from barnabas.base.errors import BrokerError
from barnabas.client.admin import NewTopic
from barnabas.client.admin.sync_admin import Admin
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.client.producer.sync_producer import Producer
from barnabas.testing import AsyncEmbeddedBroker, EmbeddedBroker
from tests.broker.metrics.scraping import Scrape, scrape
from tests.virtual_time import on_virtual_time

TOPIC = "counted"
RECORDS = 200
LISTENER = {"metrics.listener": "127.0.0.1:0"}


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(overrides=LISTENER) as broker:
        with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
            admin.create_topics([NewTopic(TOPIC, 2, 1)])
        yield broker


@pytest.fixture(scope="module")
def after(broker: EmbeddedBroker) -> Scrape:
    """After `RECORDS` records were written, in a partition of which a group has read all but ten."""
    where = broker.bootstrap_servers
    with Producer(bootstrap_servers=where, linger_ms=0) as producer:
        for number in range(RECORDS):
            producer.send(TOPIC, b"x" * 100, partition=number % 2)
            if number % 20 == 0:
                producer.flush()
        producer.flush()
        sent = producer.metrics()["producer-metrics"]
    with Consumer(
        TOPIC, bootstrap_servers=where, group_id="readers", auto_offset_reset="earliest", enable_auto_commit=False
    ) as consumer:
        for seen, _ in enumerate(consumer, 1):
            if seen == RECORDS:
                break
        positions = {each: consumer.position(each) for each in consumer.assignment()}
        consumer.commit({each: position - 5 for each, position in positions.items()})
    with Producer(bootstrap_servers=where, transactional_id="t") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("other", b"y").result(10)
        found = scrape(broker.metrics_url)
        producer.commit_transaction()
    assert sent["record-send-total"] == RECORDS
    return found


def test_records_and_bytes(after: Scrape) -> None:
    assert after.value("kafka_server_brokertopicmetrics_messagesin_total", topic=TOPIC) == RECORDS
    written = after.value("kafka_server_brokertopicmetrics_bytesin_total", topic=TOPIC)
    assert after.value("kafka_server_brokertopicmetrics_bytesout_total", topic=TOPIC) == written
    assert after.sum("kafka_log_log_size", topic=TOPIC) == written
    assert after.sum("kafka_log_log_logendoffset", topic=TOPIC) == RECORDS
    assert after["kafka_server_brokertopicmetrics_messagesin_total"] >= RECORDS
    batches = after.value("kafka_server_brokertopicmetrics_totalproducerequests_total", topic=TOPIC)
    assert 2 <= batches <= RECORDS


def test_requests_are_counted_with_their_times(after: Scrape) -> None:
    produced = after.sum("kafka_network_requestmetrics_requests_total", request="Produce")
    assert produced == after.value("kafka_network_requestmetrics_totaltimems_count", request="Produce")
    times = "kafka_network_requestmetrics_totaltimems_bucket"
    buckets = [value for (name, own), value in after.samples.items() if name == times and ("request", "Produce") in own]
    assert max(buckets) == produced
    total = after.value("kafka_network_requestmetrics_totaltimems_sum", request="Produce")
    parts = sum(
        after.value(f"kafka_network_requestmetrics_{part}timems_sum", request="Produce")
        for part in ("requestqueue", "local", "remote", "responsequeue", "responsesend")
    )
    assert parts == pytest.approx(total, rel=0.02)
    everything = after.sum("kafka_network_requestmetrics_requests_total", request="Fetch")
    assert everything == after.value("kafka_network_requestmetrics_requests_total", request="FetchConsumer")


async def scraped(broker: AsyncEmbeddedBroker) -> Scrape:
    return Scrape(b"".join(await broker.node.metrics.node_metrics.text()).decode())


@on_virtual_time
async def test_who_asks_right_after_another_is_told_the_same() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        found = [await scraped(broker), await scraped(broker)]
        await asyncio.sleep(0.049)
        found.append(await scraped(broker))
        await asyncio.sleep(0.002)
        found.append(await scraped(broker))
    assert [each["barnabas_scrapes_total"] for each in found] == [1, 1, 1, 2]


@on_virtual_time
async def test_errors_are_counted_by_name() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        await broker.create_topic(TOPIC, 2)
        async with AsyncAdmin(bootstrap_servers=broker.bootstrap_servers) as admin:
            with pytest.raises(BrokerError):
                await admin.create_topics([NewTopic(TOPIC, 2, 1)])
        found = await scraped(broker)
    refused = {"request": "CreateTopics", "error": "TOPIC_ALREADY_EXISTS"}
    assert found.value("kafka_network_requestmetrics_errors_total", **refused) == 1


@on_virtual_time
async def test_what_was_refused_is_counted() -> None:
    async with AsyncEmbeddedBroker(overrides=LISTENER) as broker:
        where = broker.bootstrap_servers
        async with AsyncAdmin(bootstrap_servers=where) as admin:
            await admin.create_topics([NewTopic("narrow", 1, 1, configs={"max.message.bytes": "100"})])
        async with AsyncProducer(bootstrap_servers=where) as producer:
            with pytest.raises(BrokerError):
                await (await producer.send("narrow", b"x" * 200))
        found = await scraped(broker)
    assert found.value("kafka_server_brokertopicmetrics_failedproducerequests_total", topic="narrow") == 1
    assert found.value("kafka_server_brokertopicmetrics_bytesrejected_total", topic="narrow") > 200
    assert found.value("kafka_server_brokertopicmetrics_messagesin_total", topic="narrow") == 0
    refused = {"request": "Produce", "error": "MESSAGE_TOO_LARGE"}
    assert found.value("kafka_network_requestmetrics_errors_total", **refused) == 1


def test_groups_are_behind_by_records_and_seconds(after: Scrape) -> None:
    assert after.value("barnabas_group_lag_sum", group="readers") == 10
    assert after.sum("barnabas_group_lag", group="readers", topic=TOPIC) == 10
    assert 0 < after.value("barnabas_group_lag_seconds_max", group="readers") < 60
    assert after["kafka_coordinator_group_groupmetadatamanager_numgroups"] == 1
    assert after["kafka_coordinator_group_groupmetadatamanager_numoffsets"] == 2


def test_transactions_are_told_by_age(after: Scrape) -> None:
    assert after.value("barnabas_transactions_open", older_than="0") == 1
    assert after.value("barnabas_transactions_open", older_than="3600") == 0
    assert 0 <= after["barnabas_transactions_open_oldest_seconds"] < 60
    assert after.value("barnabas_transactional_ids", state="Ongoing") == 1


def test_the_node_tells_of_itself(after: Scrape) -> None:
    assert after["kafka_server_kafkaserver_brokerstate"] == 3
    assert after["kafka_controller_kafkacontroller_activecontrollercount"] == 1
    assert after["kafka_controller_kafkacontroller_activebrokercount"] == 1
    assert after["kafka_controller_kafkacontroller_offlinepartitionscount"] == 0
    assert after["kafka_server_replicamanager_underreplicatedpartitions"] == 0
    assert after["kafka_server_replicamanager_leadercount"] == after["kafka_server_replicamanager_partitioncount"] > 3
    assert after.value("kafka_server_raft_metrics_current_state", state="leader") == 1
    assert after["kafka_server_raft_metrics_number_of_voters"] == 1
    assert 0 <= after["barnabas_loop_idle_ratio"] <= 1
    created = after.sum("kafka_server_socket_server_metrics_connection_creation_total")
    closed = after.sum("kafka_server_socket_server_metrics_connection_close_total")
    assert created - closed == after.sum("kafka_server_socket_server_metrics_connection_count")
