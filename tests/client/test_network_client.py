"""Reaching brokers: whom to ask, what to wait for, and what is said when nobody answers."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Callable
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, NoBrokersError
from barnabas.client.network_client import NetworkClient
from barnabas.client.nodes import resolved, split_address
from barnabas.client.settings import AdminSettings, ConsumerSettings
from barnabas.net import ChannelError, ConnectError, DisconnectedError, RequestTimeoutError, UnsupportedRequestError
from barnabas.testing import AsyncEmbeddedBroker
from barnabas.wire import ApiKey
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse
from tests.client.cluster import HANG_UP, SILENCE, Broker, Cluster, client
from tests.net.worlds import Story, eventually, run_simulated

Run = Callable[[Story], None]

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


class Counted:
    """What happened, as metrics are told."""

    def __init__(self) -> None:
        self.open = 0
        self.sent_bytes: dict[int, int] = {}
        self.answers: list[tuple[int, float]] = []

    def connected(self, node_id: int) -> None:
        self.open += 1

    def disconnected(self, node_id: int) -> None:
        self.open -= 1

    def sent(self, node_id: int, size_bytes: int) -> None:
        self.sent_bytes[node_id] = self.sent_bytes.get(node_id, 0) + size_bytes

    def received(self, node_id: int, size_bytes: int, latency_ms: float) -> None:
        assert size_bytes > 8
        self.answers.append((node_id, latency_ms))


async def tasks_left(before: set[asyncio.Task[Any]]) -> list[asyncio.Task[Any]]:
    await asyncio.sleep(0)
    return [each for each in asyncio.all_tasks() if each not in before and not each.done()]


def started(story: Callable[[Cluster, NetworkClient], Any], size: int = 1, **settings: Any) -> Story:
    """A story with a cluster and a client, which must leave nothing behind."""

    async def whole() -> None:
        before = asyncio.all_tasks()
        cluster = Cluster(size)
        cluster.add_topic("t", (1, 3))
        await cluster.start()
        during = asyncio.all_tasks()
        counted = Counted()
        network = client(cluster.bootstrap_servers, metrics=counted, **settings)
        await network.start()
        await story(cluster, network)
        await network.close()
        await network.close()
        assert counted.open == 0, "connections were counted wrongly, or one was left open"
        assert await tasks_left(during) == []
        with pytest.raises(ConnectError, match="was closed"):
            await network.request(1, HEARTBEAT)
        with pytest.raises(ClientClosedError):
            await network.update_metadata(1000)
        await cluster.stop()
        del before

    return whole


def test_topics_are_learned_and_their_leaders_asked(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        ids: list[str | None] = []
        versions: list[int] = []
        network.on_cluster_id(ids.append)
        network.on_update(lambda view: versions.append(view.version))
        view = await network.topic_metadata("t", 5000)
        assert view.partition_count("t") == 1
        leader = view.leader_of(TopicPartition("t", 0))
        assert leader is not None
        assert network.node(leader.node_id) == leader
        answer = await network.request(leader.node_id, HEARTBEAT)
        assert isinstance(answer, HeartbeatResponse)
        assert ids == [cluster.cluster_id]
        assert versions == sorted(versions)
        assert await network.topic_metadata("t", 5000) is network.view, "what is known needs no question"
        assert network.version_of(1, HeartbeatRequest) == 4
        assert network.version_of(9, HeartbeatRequest) is None
        with pytest.raises(UnsupportedRequestError):
            network.version_of(1, CreateTopicsRequest)

    run(started(story))


def test_the_bootstrap_connection_is_let_go_when_the_brokers_are_known(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        await network.connect(1)
        await eventually(lambda: not network.is_connected(-1))
        assert network.is_connected(1)

    run(started(story))


def test_our_own_node_answers(run_real: Run) -> None:
    async def story() -> None:
        async with AsyncEmbeddedBroker() as broker:
            network = client(broker.bootstrap_servers)
            await network.start()
            view = await network.topic_metadata("made-by-asking", 10_000)
            leader = view.leader_of(TopicPartition("made-by-asking", 0))
            assert leader is not None
            assert view.cluster_id
            await broker.stop()
            with pytest.raises(ChannelError):
                await network.request(leader.node_id, HEARTBEAT)
            await broker.start()
            assert (await network.update_metadata(10_000)).topics() == ["made-by-asking"]
            answer = await network.request(leader.node_id, HEARTBEAT)
            assert answer.error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE or answer.error_code
            await network.close()

    run_real(story)


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({}, (-1, -1)),
        ({"send_buffer_bytes": 131_072}, (131_072, -1)),
        ({"receive_buffer_bytes": 70_000, "send_buffer_bytes": -1}, (-1, 70_000)),
    ],
)
def test_buffers_of_sockets_are_left_to_the_system_unless_they_are_given(
    given: dict[str, Any], expected: tuple[int, int]
) -> None:
    limits = client("127.0.0.1:9092", **given)._nodes._limits
    assert (limits.send_buffer_bytes, limits.receive_buffer_bytes) == expected


def test_nobody_at_any_address_is_told_with_each_address_and_its_cause(run_real: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        free_port = cluster[1].port
        await cluster.stop()
        network = client(f"127.0.0.1:{free_port},host.invalid:9092", reconnect_backoff_max_ms=50)
        await network.start()
        with pytest.raises(NoBrokersError) as caught:
            await network.topic_metadata("t", 400)
        text = str(caught.value)
        assert "none of the bootstrap servers answered within 400 ms" in text
        assert f"127.0.0.1:{free_port} (no connection: " in text
        assert "host.invalid:9092 (no connection: " in text
        assert "topic 't'" in text
        with pytest.raises(NoBrokersError, match="Heartbeat was to be asked"):
            await network.request_any(HEARTBEAT, timeout_ms=200)
        await network.close()

    run_real(story)


def test_the_second_bootstrap_server_is_asked_when_the_first_is_silent() -> None:
    async def story() -> None:
        cluster = Cluster(2)
        await cluster.start()
        cluster[1].answers[ApiKey.API_VERSIONS] = lambda *_: SILENCE
        cluster[1].answers[ApiKey.METADATA] = lambda *_: SILENCE
        for seed in range(3):
            network = client(cluster.bootstrap_servers, client_id=f"{seed}")
            await network.start()
            assert (await network.update_metadata(100_000)).version == 1
            await network.close()
        await cluster.stop()

    run_simulated(story)


def test_a_client_that_started_before_its_broker_finds_it() -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        await cluster.stop()
        network = client(cluster.bootstrap_servers)
        await network.start()
        waiting = asyncio.ensure_future(network.update_metadata(60_000))
        await asyncio.sleep(20)
        assert not waiting.done()
        await cluster.start()
        began_s = asyncio.get_running_loop().time()
        assert (await waiting).version == 1
        assert asyncio.get_running_loop().time() - began_s < 1.5, "it never waits longer than reconnect.backoff.max.ms"
        await network.close()
        await cluster.stop()

    run_simulated(story)


@pytest.mark.parametrize(
    ("offered", "said"),
    [
        ((0, 5), "it is older than Kafka 2.1"),
        ((90, 91), "it offers Metadata 90-91, and we know 0-13: upgrade this client"),
        (None, "is this the address of a controller instead of a broker?"),
    ],
)
def test_a_broker_that_we_cannot_talk_to_is_told_at_once(run: Run, offered: Any, said: str) -> None:
    async def story() -> None:
        cluster = Cluster()
        if offered is None:
            del cluster[1].versions[ApiKey.METADATA]
        else:
            cluster[1].versions[ApiKey.METADATA] = offered
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        for _ in range(2):
            with pytest.raises(UnsupportedRequestError, match=said):
                await network.topic_metadata("t", 60_000)
        with pytest.raises(UnsupportedRequestError, match=said):
            await network.request_any(HEARTBEAT, timeout_ms=60_000)
        await network.close()
        await cluster.stop()

    run(story)


def test_a_topic_that_may_not_be_used_is_told_to_whoever_asked(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        cluster.errors["secret"] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        cluster.errors["a/b"] = ErrorCode.INVALID_TOPIC_EXCEPTION
        with pytest.raises(BrokerError, match=r"TOPIC_AUTHORIZATION_FAILED .*topic 'secret'") as caught:
            await network.topic_metadata("secret", 5000)
        assert caught.value.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
        with pytest.raises(BrokerError, match=r"INVALID_TOPIC_EXCEPTION .*topic 'a/b'"):
            await network.topic_metadata("a/b", 5000)
        asked = len(cluster[1].log)
        with pytest.raises(BrokerError, match="INVALID_TOPIC_EXCEPTION"):
            await network.topic_metadata("a/b", 5000)
        assert len(cluster[1].log) == asked, "a name stays forbidden"
        del cluster.errors["secret"]
        cluster.add_topic("secret")
        assert (await network.topic_metadata("secret", 5000)).partition_count("secret") == 1, "a right may be granted"

    run(started(story))


def test_a_topic_that_does_not_exist_is_waited_for() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        with pytest.raises(ClientTimeoutError, match=r"topic 'u' were not known after 3000 ms.*UNKNOWN_TOPIC"):
            await network.topic_metadata("u", 3000)
        waiting = asyncio.ensure_future(network.topic_metadata("u", 30_000))
        await asyncio.sleep(5)
        asked = len(cluster[1].asked(ApiKey.METADATA))
        assert asked < 20, "not in a tight loop"
        cluster.add_topic("u", (1, 0), (1, 0))
        assert (await waiting).partition_count("u") == 2

    run_simulated(started(story))


def test_an_update_waits_for_its_own_question() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        first, second = await asyncio.gather(network.update_metadata(5000), network.update_metadata(5000))
        assert first.version == second.version == 2
        with pytest.raises(ClientTimeoutError, match=r"longer than 700 ms; brokers: 127\.0\.0\.1:"):
            await network.wait_for_update(network.view.version, 700)

    run_simulated(started(story))


def test_metadata_is_asked_for_again_when_it_is_old() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        asked = len(cluster[1].asked(ApiKey.METADATA))
        await asyncio.sleep(10.5)
        assert len(cluster[1].asked(ApiKey.METADATA)) == asked + 10

    run_simulated(started(story, metadata_max_age_ms=1000))


def test_another_thread_may_ask_for_topics(run_real: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, network.metadata.want, "t", 10**9)
        await network.wait_for_update(1, 5000)
        assert network.view.topics() == ["t"]

    run_real(started(story))


def test_the_least_loaded_node_is_asked() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        for broker in cluster.brokers.values():
            broker.answers[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        for node_id in (1, 2, 3):
            await network.connect(node_id)
        busy = [network.request(node_id, HEARTBEAT) for node_id in (1, 1, 2, 3, 3)]
        assert [network.in_flight(node_id) for node_id in (1, 2, 3)] == [2, 1, 2]
        assert {network.least_loaded() for _ in range(20)} == {2}
        for each in busy:
            each.cancel()

    run_simulated(started(story, size=3))


def test_among_equal_nodes_chance_decides_and_unconnected_ones_come_last() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        assert {network.least_loaded() for _ in range(40)} == {1, 2, 3}
        await network.connect(2)
        assert {network.least_loaded() for _ in range(20)} == {2}

    run_simulated(started(story, size=3))


def test_a_question_for_anybody_goes_to_the_next_when_one_hangs_up(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        for node_id in (1, 2):
            cluster[node_id].answers[ApiKey.HEARTBEAT] = lambda *_: HANG_UP
        for _ in range(3):
            answer = await network.request_any(HEARTBEAT, timeout_ms=10_000)
            assert isinstance(answer, HeartbeatResponse)
        assert len(cluster[3].asked(ApiKey.HEARTBEAT)) == 3

    run(started(story, size=3))


def test_who_does_not_offer_a_request_is_passed_over(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        del cluster[1].versions[ApiKey.HEARTBEAT]
        await network.update_metadata(5000)
        for _ in range(4):
            assert isinstance(await network.request_any(HEARTBEAT, timeout_ms=5000), HeartbeatResponse)
        del cluster[2].versions[ApiKey.HEARTBEAT]
        with pytest.raises(UnsupportedRequestError, match="does not offer CreateTopics"):
            await network.request_any(CreateTopicsRequest(topics=[]), timeout_ms=5000)

    run(started(story, size=2))


def test_a_node_that_moved_is_asked_at_its_new_address(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        await network.connect(1)
        cluster[1].answers[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        pending = network.request(1, HEARTBEAT)
        moved = Broker(cluster, 1)
        await moved.start()
        old, cluster.brokers[1] = cluster[1], moved
        await network.connect(2)
        await network.update_metadata(5000)
        assert isinstance(await network.request(1, HEARTBEAT), HeartbeatResponse)
        assert len(moved.asked(ApiKey.HEARTBEAT)) == 1
        assert not pending.done(), "what was asked at the old address may still be answered there"
        await old.stop()
        with pytest.raises(DisconnectedError):
            await pending

    run(started(story, size=2))


def test_a_node_that_is_not_known_cannot_be_asked(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        with pytest.raises(ConnectError, match="node 7: the metadata of the cluster does not name it"):
            await network.request(7, HEARTBEAT)
        told: list[Any] = []
        network.request_soon(7, HEARTBEAT, told.append)
        network.send(7, HEARTBEAT, told.append)
        network.connect_soon(7)
        assert told == [], "never from inside the call"
        await asyncio.sleep(0)
        assert [type(each) for each in told] == [ConnectError] * 2
        assert network.delay_ms(7, 0) == math.inf

    run(started(story))


def test_readiness_is_told() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        told: list[int] = []
        network.on_ready(told.append)
        await network.update_metadata(5000)
        told.clear()
        assert network.delay_ms(1, 0) == math.inf
        network.connect_soon(1)
        assert network.delay_ms(1, 0) == math.inf
        await eventually(lambda: network.is_connected(1))
        assert told == [1]
        assert network.delay_ms(1, 0) == 0
        cluster[1].answers[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        first, second = network.request(1, HEARTBEAT), network.request(1, HEARTBEAT)
        assert network.delay_ms(1, 0) == math.inf, "two may be in flight"
        await cluster[1].stop()
        for each in (first, second):
            with pytest.raises(DisconnectedError):
                await each
        assert told[1:] == [1]
        assert 0 < network.delay_ms(1, 0) <= 60, "it is in backoff"

    run_simulated(started(story, max_in_flight_requests_per_connection=2))


def test_a_node_that_throttles_is_left_alone() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        loop = asyncio.get_running_loop()
        told: list[tuple[int, float]] = []
        await network.update_metadata(5000)
        cluster[1].answers[ApiKey.HEARTBEAT] = lambda *_: HeartbeatResponse(throttle_time_ms=3000, error_code=0)
        await network.request(1, HEARTBEAT)
        network.on_ready(lambda node_id: told.append((node_id, loop.time())))
        began_s = loop.time()
        assert network.delay_ms(1, 0) == pytest.approx(3000, abs=5)
        del cluster[1].answers[ApiKey.HEARTBEAT]
        first, second = network.request(1, HEARTBEAT), network.request(1, HEARTBEAT)
        await asyncio.gather(first, second)
        assert loop.time() - began_s == pytest.approx(3, abs=0.3)
        cluster[1].answers[ApiKey.HEARTBEAT] = lambda *_: HeartbeatResponse(throttle_time_ms=1000, error_code=0)
        await network.request(1, HEARTBEAT)
        began_s = loop.time()
        told.clear()
        await asyncio.sleep(2)
        assert [(node_id, round(at_s - began_s, 1)) for node_id, at_s in told] == [(1, 1.0)], "who waits is woken"

    run_simulated(started(story))


def test_an_idle_connection_is_closed_and_opened_again() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        await network.request(1, HEARTBEAT)
        await asyncio.sleep(15)
        assert network.is_connected(1)
        await network.request(1, HEARTBEAT)
        await asyncio.sleep(15)
        assert network.is_connected(1)
        await asyncio.sleep(6)
        assert not network.is_connected(1)
        assert isinstance(await network.request(1, HEARTBEAT), HeartbeatResponse)

    run_simulated(started(story, connections_max_idle_ms=20_000))


def test_a_slow_answer_is_waited_for_no_longer_than_the_timeout() -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        cluster[1].answers[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        with pytest.raises(RequestTimeoutError, match="Heartbeat was not answered in 4000 ms"):
            await network.request(1, HEARTBEAT)
        with pytest.raises(RequestTimeoutError, match="Heartbeat was not answered in 100 ms"):
            await network.request(1, HEARTBEAT, timeout_ms=100)
        with pytest.raises(ClientTimeoutError, match=r"Heartbeat was to be asked.*longer than 9000 ms"):
            await network.request_any(HEARTBEAT, timeout_ms=9000)

    run_simulated(started(story, request_timeout_ms=4000))


@pytest.mark.parametrize("nonsense", [b"", b"\xff" * 40, b"\x00" * 3])
def test_metadata_that_makes_no_sense_is_told(run: Run, nonsense: bytes) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        cluster[1].answers[ApiKey.METADATA] = lambda *_: nonsense
        with pytest.raises(NoBrokersError, match="its answer cannot be read"):
            await network.update_metadata(1000)
        del cluster[1].answers[ApiKey.METADATA]
        assert (await network.update_metadata(10_000)).version == 1

    run(started(story))


def test_a_server_that_is_no_broker_is_told(run_real: Run) -> None:
    async def story() -> None:
        async def greet(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
            writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
            writer.close()

        server = await asyncio.start_server(greet, "127.0.0.1", 0)
        port = server.sockets[0].getsockname()[1]
        network = client(f"127.0.0.1:{port}")
        await network.start()
        with pytest.raises(NoBrokersError, match="it did not tell its versions"):
            await network.update_metadata(300)
        await network.close()
        server.close()

    run_real(story)


def test_cancelling_leaves_nothing_behind(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        cluster[1].answers[ApiKey.METADATA] = lambda *_: SILENCE
        waiting = [
            asyncio.ensure_future(network.update_metadata(60_000)),
            asyncio.ensure_future(network.topic_metadata("t", 60_000)),
            asyncio.ensure_future(network.request_any(HEARTBEAT)),
        ]
        await asyncio.sleep(0.01)
        for each in waiting:
            each.cancel()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert isinstance(outcomes[0], asyncio.CancelledError)
        assert network._updater._waiters == []

    run(started(story))


def test_closing_tells_those_who_wait(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        cluster[1].answers[ApiKey.METADATA] = lambda *_: SILENCE
        network = client(cluster.bootstrap_servers)
        await network.start()
        waiting = asyncio.ensure_future(network.update_metadata(60_000))
        asked = asyncio.ensure_future(network.request_any(MetadataRequest(topics=[])))
        await eventually(lambda: bool(cluster[1].asked(ApiKey.METADATA)))
        await network.close()
        with pytest.raises(ClientClosedError):
            await waiting
        with pytest.raises((ClientClosedError, ChannelError)):
            await asked
        await cluster.stop()

    run(story)


def test_an_admin_may_talk_to_controllers(run_real: Run) -> None:
    async def story() -> None:
        async with AsyncEmbeddedBroker() as broker:
            port = broker.node.endpoints["CONTROLLER"][1]
            network = client("", AdminSettings, bootstrap_controllers=f"127.0.0.1:{port}")
            await network.start()
            view = await network.update_metadata(10_000)
            assert view.controller is not None
            assert view.controller.port == port
            await network.close()

    run_real(story)


def test_names_behind_the_bootstrap_servers_may_be_looked_up(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        looked_up: list[str] = []

        async def resolve(host: str, port: int) -> list[str]:
            looked_up.append(host)
            if host == "unknown":
                raise OSError("no such host")
            return ["127.0.0.1", "127.0.0.1"]

        settings = {"client_dns_lookup": "resolve_canonical_bootstrap_servers_only"}
        network = client(f"some-name:{cluster[1].port}", ConsumerSettings, **settings)
        network._resolve = resolve
        await network.start()
        assert (await network.update_metadata(5000)).version == 1
        await network.close()
        assert looked_up == ["some-name"]
        assert await resolved([("a", 1), ("unknown", 2)], resolve) == [("127.0.0.1", 1), ("unknown", 2)]
        await cluster.stop()

    run(story)


def test_addresses_are_split_as_people_write_them() -> None:
    assert split_address("host:9092") == ("host", 9092)
    assert split_address("[::1]:9092") == ("::1", 9092)


def test_metrics_are_told_what_goes_over_the_wire(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        counted = Counted()
        network = client(cluster.bootstrap_servers, metrics=counted)
        await network.start()
        await network.update_metadata(5000)
        await network.connect(1)
        assert counted.sent_bytes[1] > 0
        before = len(counted.answers)
        await network.request(1, HEARTBEAT)
        assert len(counted.answers) == before + 1
        assert counted.answers[-1][0] == 1
        await network.close()
        assert counted.open == 0
        await cluster.stop()

    run(story)


def test_an_answer_is_a_message_of_the_right_kind(run: Run) -> None:
    async def story(cluster: Cluster, network: NetworkClient) -> None:
        await network.update_metadata(5000)
        told: list[Any] = []
        network.request_soon(1, MetadataRequest(topics=[]), told.append, version=9)
        network.request_soon(1, HEARTBEAT, told.append)
        await eventually(lambda: len(told) == 2)
        assert [type(each) for each in told] == [MetadataResponse, HeartbeatResponse]
        assert (ApiKey.METADATA, 9) in [(key, version) for key, version, _ in cluster[1].log]

    run(started(story))
