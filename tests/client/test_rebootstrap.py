"""Starting again from the bootstrap servers when the brokers that were known are of no use any more."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.client.errors import ClientTimeoutError
from barnabas.net import DisconnectedError
from barnabas.wire import ApiKey
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.cluster import SILENCE, Cluster, client
from tests.net.worlds import Story, eventually, run_simulated

Run = Callable[[Story], None]

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


async def hidden_behind_one(size: int) -> Cluster:
    """A cluster whose first broker is the bootstrap server and is not among those that metadata names."""
    cluster = Cluster(size)
    cluster.add_topic("t", (2, 5))
    await cluster.start()
    cluster.shown = list(range(2, size + 1))
    return cluster


def test_when_no_known_broker_can_be_reached_the_bootstrap_servers_are_asked(run: Run) -> None:
    async def story() -> None:
        cluster = await hidden_behind_one(3)
        cluster.shown = [2]
        network = client(cluster[1].address)
        await network.start()
        await network.topic_metadata("t", 5000)
        assert list(network.view.nodes) == [2]
        await cluster[2].stop()
        cluster.shown = [3]
        cluster.topics["t"] = (cluster.topics["t"][0], [(3, 6)])
        view = await network.update_metadata(10_000)
        assert list(view.nodes) == [3]
        assert view.leader_epoch(TopicPartition("t", 0)) == 6
        assert isinstance(await network.request(3, HEARTBEAT), HeartbeatResponse)
        await network.close()
        await cluster.stop()

    run(story)


def test_a_question_for_anybody_finds_the_new_brokers_too(run: Run) -> None:
    async def story() -> None:
        cluster = await hidden_behind_one(3)
        cluster.shown = [2]
        network = client(cluster[1].address)
        await network.start()
        await network.update_metadata(5000)
        await network.connect(2)
        await cluster[2].stop()
        cluster.shown = [3]
        assert isinstance(await network.request_any(HEARTBEAT, timeout_ms=10_000), HeartbeatResponse)
        await network.close()
        await cluster.stop()

    run(story)


def test_without_recovery_only_the_known_brokers_are_asked() -> None:
    async def story() -> None:
        cluster = await hidden_behind_one(2)
        network = client(cluster[1].address, metadata_recovery_strategy="none")
        await network.start()
        await network.update_metadata(5000)
        await cluster[2].stop()
        asked = len(cluster[1].log)
        with pytest.raises(ClientTimeoutError, match=f"brokers: {cluster[2].address} \\(no connection"):
            await network.update_metadata(400_000)
        assert len(cluster[1].log) == asked
        await cluster[2].start()
        assert (await network.update_metadata(5000)).version == 2
        await network.close()
        await cluster.stop()

    run_simulated(story)


def test_brokers_that_answer_nothing_for_long_are_given_up() -> None:
    async def story() -> None:
        cluster = await hidden_behind_one(3)
        cluster.shown = [2]
        network = client(cluster[1].address, metadata_recovery_rebootstrap_trigger_ms=20_000, request_timeout_ms=3000)
        await network.start()
        await network.topic_metadata("t", 5000)
        await network.connect(2)
        for key in (ApiKey.METADATA, ApiKey.HEARTBEAT):
            cluster[2].answers[key] = lambda *_: SILENCE
        cluster.shown = [3]
        began_s = asyncio.get_running_loop().time()
        assert list((await network.update_metadata(60_000)).nodes) == [3]
        assert 20 <= asyncio.get_running_loop().time() - began_s < 30
        assert not network.is_connected(2)
        await network.close()
        await cluster.stop()

    run_simulated(story)


def test_a_broker_may_send_its_clients_away(run: Run) -> None:
    async def story() -> None:
        cluster = await hidden_behind_one(3)
        cluster.shown = [2]
        network = client(cluster[1].address)
        await network.start()
        await network.update_metadata(5000)
        await network.connect(2)
        cluster.shown = [3]

        def send_away(*_: object) -> object:
            answer = cluster.metadata(cluster[2].asked(ApiKey.METADATA)[-1])
            answer.error_code = ErrorCode.REBOOTSTRAP_REQUIRED
            return answer

        cluster[2].answers[ApiKey.METADATA] = send_away
        assert list((await network.update_metadata(10_000)).nodes) == [3]
        assert not network.is_connected(2)
        await network.close()
        await cluster.stop()

    run(story)


def test_what_is_in_flight_when_brokers_are_given_up_fails() -> None:
    async def story() -> None:
        cluster = await hidden_behind_one(2)
        network = client(cluster[1].address, metadata_recovery_rebootstrap_trigger_ms=5000, request_timeout_ms=60_000)
        await network.start()
        await network.update_metadata(5000)
        await network.connect(2)
        cluster[2].answers[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        pending = network.request(2, HEARTBEAT)
        await eventually(lambda: bool(cluster[2].asked(ApiKey.HEARTBEAT)))
        network.metadata._must_rebootstrap = True
        network.wake()
        with pytest.raises(DisconnectedError):
            await pending
        await network.close()
        await cluster.stop()

    run_simulated(story)


def test_the_view_stays_while_nobody_can_be_reached() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.add_topic("t", (1, 5))
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        await network.topic_metadata("t", 5000)
        await cluster.stop()
        with pytest.raises(ClientTimeoutError):
            await network.update_metadata(30_000)
        assert network.view.partition_count("t") == 1, "records may still be gathered for it"
        await cluster.start()
        assert (await network.update_metadata(5000)).leader_epoch(TopicPartition("t", 0)) == 5
        await network.close()
        await cluster.stop()

    run_simulated(story)
