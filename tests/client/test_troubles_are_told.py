"""What clients say when they cannot do their work, in Python's logging, within three seconds of virtual time."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from barnabas.aio import Admin, Consumer, Producer
from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import OffsetSpec
from barnabas.client.core.troubles import AGAIN_AFTER_MS
from barnabas.client.errors import ClientTimeoutError, NoBrokersError
from barnabas.client.network_client import CoordinatorType, NetworkClient
from barnabas.net import UnsupportedRequestError
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.wire import ApiKey
from barnabas.wire.messages.metadata import MetadataResponse
from tests.client.cluster import SILENCE, Broker, Cluster, LoopClock, client
from tests.net.worlds import eventually, run_simulated

NOBODY = "127.0.0.1:1"


class Lines(logging.Handler):
    """What was said, and when."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.said: list[tuple[float, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        assert record.name == "barnabas.client"
        self.said.append((asyncio.get_running_loop().time(), record.getMessage()))

    @property
    def texts(self) -> list[str]:
        return [text for _, text in self.said]

    async def first(self) -> str:
        """The first line, if it comes within three seconds."""
        await asyncio.sleep(3)
        assert len(self.said) == 1, self.said
        return self.said[0][1]


@pytest.fixture
def lines() -> Any:
    handler = Lines()
    logging.getLogger("barnabas").addHandler(handler)
    yield handler
    logging.getLogger("barnabas").removeHandler(handler)


Told = Callable[[Cluster, NetworkClient], Coroutine[Any, Any, None]]


def with_network(story: Told, size: int = 1, servers: str | None = None, **settings: Any) -> None:
    async def whole() -> None:
        cluster = Cluster(size)
        cluster.add_topic("t", (1, 3))
        await cluster.start()
        network = client(servers or cluster.bootstrap_servers, client_id="me", **settings)
        await network.start()
        await story(cluster, network)
        await network.close()
        await cluster.stop()

    run_simulated(whole)


def simulated(**settings: Any) -> dict[str, Any]:
    return {"clock": LoopClock(), "randomness": Random(1), "client_id": "me", **settings}


def test_nobody_listens(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        assert await lines.first() == (
            f"[client me] no broker answers at {NOBODY} (no connection: Connection refused); it is tried again. Check "
            "bootstrap.servers, and that a broker listens there"
        )
        await asyncio.sleep(600)
        assert 5 <= len(lines.said) <= 7, "it is said again, ever less often"

    with_network(story, servers=NOBODY)


def test_a_name_that_does_not_resolve(lines: Lines, monkeypatch: pytest.MonkeyPatch) -> None:
    async def unknown(*_: Any, **__: Any) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    async def story(cluster: Cluster, network: NetworkClient) -> None:
        line = await lines.first()
        assert "no broker answers at broker.invalid:9092 (no connection: Name or service not known)" in line

    monkeypatch.setattr(VirtualTimeLoop, "getaddrinfo", unknown)
    with_network(story, servers="broker.invalid:9092")


def test_a_server_that_says_nothing(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        assert f"no broker answers at {cluster.bootstrap_servers} (no answer yet)" in await lines.first()

    async def silent(cluster: Cluster, network: NetworkClient) -> None:
        await network.close()
        cluster[1].answers[ApiKey.API_VERSIONS] = lambda *_: SILENCE
        later = client(cluster.bootstrap_servers, client_id="me")
        await later.start()
        await story(cluster, later)
        await later.close()

    with_network(silent)


def test_the_end_is_said_too(lines: Lines) -> None:
    async def whole() -> None:
        cluster = Cluster()
        await cluster.start()
        await cluster.stop()
        network = client(cluster.bootstrap_servers, client_id="me")
        await network.start()
        await lines.first()
        await cluster.start()
        await asyncio.sleep(3)
        assert lines.texts[1:] == ["[client me] the cluster answers: 1 broker is known"]
        await asyncio.sleep(600)
        assert len(lines.said) == 2
        await network.close()
        await cluster.stop()

    run_simulated(whole)


def test_while_all_is_well_nothing_is_said(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.topic_metadata("t", 5000)
        await network.coordinator(CoordinatorType.GROUP, "g", 5000)
        await asyncio.sleep(3600)
        assert lines.said == []
        assert network.watch._timer is None, "no timer runs where there is no trouble"

    with_network(story)


def test_an_address_that_the_cluster_tells_and_that_leads_nowhere(lines: Lines) -> None:
    """As with advertised.listeners that only the broker itself can use."""

    async def story(cluster: Cluster, network: NetworkClient) -> None:
        def lost(broker: Broker, request: Any, version: int) -> MetadataResponse:
            answer = cluster.metadata(request)
            answer.brokers[0].port = 1
            return answer

        cluster[1].answers[ApiKey.METADATA] = lost
        await network.topic_metadata("t", 5000)
        network.connect_soon(1)
        line = await lines.first()
        assert line.startswith(
            "[client me] broker 1 at 127.0.0.1:1 cannot be reached: no connection: Connection refused"
        )
        assert "advertised.listeners" in line
        del cluster[1].answers[ApiKey.METADATA]
        await asyncio.sleep(3)
        network.connect_soon(1)
        await asyncio.sleep(3)
        assert lines.texts[1:] == [f"[client me] broker 1 at {cluster[1].address} answers"]

    with_network(story)


def test_a_broker_that_has_left_is_no_trouble(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.topic_metadata("t", 5000)
        await network.connect(2)
        await cluster[2].stop()
        await eventually(lambda: not network.is_connected(2))
        network.connect_soon(2)
        assert "broker 2" in await lines.first()
        cluster.shown = [1]
        network.metadata.request_update()
        await asyncio.sleep(3)
        assert lines.texts[1:] == ["[client me] broker 2 is not part of the cluster any more"]

    with_network(story, 2)


@pytest.mark.parametrize(
    ("make_wrong", "words"),
    [
        (lambda cluster: None, "topic 'x' does not exist"),
        (lambda cluster: cluster.add_topic("x", (-1, 0)), "topic 'x': none of its partitions has a leader"),
        (lambda cluster: cluster.add_topic("x", (1, 0), (7, 0)), "topic 'x': partition 1 has no leader"),
        (lambda cluster: cluster.errors.update(x=ErrorCode.LEADER_NOT_AVAILABLE), "LEADER_NOT_AVAILABLE"),
    ],
    ids=["unknown", "nobody leads", "a leader that is away", "being made"],
)
def test_a_topic_that_cannot_be_used(lines: Lines, make_wrong: Callable[[Cluster], None], words: str) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        make_wrong(cluster)
        network.metadata.want("x", LoopClock().monotonic_ms())
        network.wake()
        assert words in await lines.first()
        cluster.errors.clear()
        cluster.add_topic("x", (1, 1), (1, 1))
        await network.update_metadata(5000)
        assert lines.texts[1:] == ["[client me] topic 'x' can be used now: its partitions have leaders"]

    with_network(story)


def test_a_coordinator_that_is_not_found(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        cluster.coordinator_of["g"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        search = asyncio.ensure_future(network.coordinator(CoordinatorType.GROUP, "g", 60_000))
        line = await lines.first()
        assert "the coordinator of group 'g' is not found: the brokers answer COORDINATOR_NOT_AVAILABLE" in line
        assert "__consumer_offsets" in line
        assert "offsets.topic.replication.factor" in line
        del cluster.coordinator_of["g"]
        await search
        assert lines.texts[1:] == [f"[client me] the coordinator of group 'g' is broker 1 at {cluster[1].address}"]

    with_network(story)


def test_a_search_that_is_given_up_and_begun_again_is_the_same_trouble(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        cluster.coordinator_of["g"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        for _ in range(9):
            with pytest.raises(ClientTimeoutError):
                await network.coordinator(CoordinatorType.GROUP, "g", AGAIN_AFTER_MS)
        assert 3 <= len(lines.said) <= 5

    with_network(story)


def test_nothing_is_said_right_before_the_error(lines: Lines) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        with pytest.raises(NoBrokersError):
            await network.update_metadata(2400)
        assert lines.said == []
        await asyncio.sleep(1)
        assert len(lines.said) == 1, "nobody else says it later"

    with_network(story, servers=NOBODY)


def test_a_consumer_of_a_topic_that_does_not_exist(lines: Lines) -> None:
    async def whole() -> None:
        cluster = Cluster()
        await cluster.start()
        async with Consumer("misspelt", bootstrap_servers=cluster.bootstrap_servers, **simulated()) as consumer:
            assert await consumer.poll(timeout=3) == []
            assert len(lines.said) == 1
            assert "topic 'misspelt' does not exist" in lines.texts[0]
        await cluster.stop()

    run_simulated(whole)


def test_a_member_of_a_group_whose_coordinator_is_not_found(lines: Lines) -> None:
    async def whole() -> None:
        cluster = Cluster()
        cluster.add_topic("t")
        cluster.coordinator_of["g"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        await cluster.start()
        servers = cluster.bootstrap_servers
        async with Consumer("t", bootstrap_servers=servers, group_id="g", **simulated()) as consumer:
            assert await consumer.poll(timeout=3) == []
            assert len(lines.said) == 1
            assert "coordinator of group 'g'" in lines.texts[0]
            assert await consumer.poll(timeout=300) == []
            assert 5 <= len(lines.said) <= 6
        await cluster.stop()

    run_simulated(whole)


def test_a_pattern_that_matches_nothing_and_a_partition_that_is_not_there(lines: Lines) -> None:
    async def whole() -> None:
        cluster = Cluster()
        cluster.add_topic("clicks")
        cluster.add_topic("not led, and not wanted", (-1, 0))
        await cluster.start()
        settings = simulated(metadata_max_age_ms=60_000)
        async with Consumer(bootstrap_servers=cluster.bootstrap_servers, **settings) as consumer:
            consumer.subscribe(pattern="view")
            assert await consumer.poll(timeout=3) == []
            assert lines.texts == [
                "[consumer me] no topic matches the pattern 'view' as a whole; the topics of the cluster are looked at "
                "every 60 s (metadata.max.age.ms)"
            ]
            cluster.add_topic("view")
            with pytest.raises(UnsupportedRequestError):
                await consumer.poll(timeout=61)  # these brokers cannot be read from
            assert lines.texts[1:] == ["[consumer me] the pattern 'view' matches view"]
            await consumer.unsubscribe()
            lines.said.clear()
            consumer.assign([TopicPartition("clicks", 5)])
            assert await consumer.poll(timeout=3) == []
            assert lines.texts == [
                "[consumer me] clicks-5 is to be read, and topic 'clicks' has only 1 partition; the number counts "
                "from 0"
            ]
        await cluster.stop()

    run_simulated(whole)


def test_a_producer_for_a_topic_that_does_not_exist(lines: Lines) -> None:
    async def whole() -> None:
        cluster = Cluster()
        await cluster.start()
        async with Producer(bootstrap_servers=cluster.bootstrap_servers, **simulated()) as producer:
            with pytest.raises(ClientTimeoutError):
                await producer.send("misspelt", b"v")
        assert lines.texts[0].startswith("[producer me] topic 'misspelt' does not exist, ")
        assert len(lines.said) == 3, "after 1.5, 11.5 and 31.5 of the 60 seconds"
        await cluster.stop()

    run_simulated(whole)


def test_an_admin_whose_call_takes_long(lines: Lines) -> None:
    async def whole() -> None:
        cluster = Cluster()
        cluster.add_topic("t", (-1, 0))
        await cluster.start()
        partition = TopicPartition("t", 0)
        async with Admin(bootstrap_servers=cluster.bootstrap_servers, **simulated()) as admin:
            with pytest.raises(ClientTimeoutError):
                await admin.list_offsets({partition: OffsetSpec.latest()})
        assert (
            lines.texts
            == ["[admin me] list_offsets for t-0 is tried again: LEADER_NOT_AVAILABLE (5): t-0 has no leader now"] * 3
        )
        await cluster.stop()

    run_simulated(whole)
