"""Brokers that are not ours: the mock cluster of librdkafka, with several nodes."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from barnabas.base.ids import TopicPartition
from barnabas.client.network_client import CoordinatorType
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from tests.client.cluster import client
from tests.net.worlds import Story

Run = Callable[[Story], None]

BROKERS = 3


def test_a_cluster_of_librdkafka_is_understood(run_real: Run) -> None:
    confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
    settings = {"test.mock.num.brokers": BROKERS, "bootstrap.servers": "mock", "log_level": 0}
    owner = confluent_kafka.Producer(settings)
    brokers = owner.list_topics(timeout=20).brokers
    first = brokers[1]

    async def story() -> None:
        network = client(f"{first.host}:{first.port}")
        await network.start()
        view = await network.topic_metadata("made", 10_000)
        assert {node.node_id: node.port for node in view.nodes.values()} == {
            broker.id: broker.port for broker in brokers.values()
        }
        leaders = {view.leader_of(TopicPartition("made", each.partition)) for each in view.partitions("made")}
        assert None not in leaders
        for node_id in view.nodes:
            await network.connect(node_id)
            assert network.version_of(node_id, FetchRequest)
        coordinator = await network.coordinator(CoordinatorType.GROUP, "g", 10_000)
        answer = await network.request(
            coordinator, HeartbeatRequest(group_id="g", generation_id=1, member_id="m"), timeout_ms=5000
        )
        assert answer.error_code
        await network.close()

    run_real(story)
