"""Finding coordinators: together, once, until they are forgotten."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.client.errors import ClientClosedError, ClientTimeoutError, NoBrokersError
from barnabas.client.network_client import CoordinatorType
from barnabas.net import DisconnectedError, UnsupportedRequestError
from barnabas.wire import ApiKey
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from barnabas.wire.messages.metadata import MetadataRequest
from tests.client.cluster import HANG_UP, SILENCE, Cluster, client
from tests.net.worlds import Story, eventually, run_simulated

Run = Callable[[Story], None]

GROUP = CoordinatorType.GROUP
HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")


@pytest.mark.parametrize("highest", [1, 2, 3, 4, 5, 6])
def test_brokers_of_every_age_are_understood(run: Run, highest: int) -> None:
    async def story() -> None:
        cluster = Cluster(2)
        for broker in cluster.brokers.values():
            broker.versions[ApiKey.FIND_COORDINATOR] = (0, highest)
        cluster.coordinator_of = {"a": 1, "b": 2}
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        found = await network.coordinators(GROUP, ["a", "b", "a"], 10_000)
        assert [network.node(found[key]).node_id for key in "ab"] == [1, 2]  # type: ignore[union-attr]
        asked = [request for broker in cluster.brokers.values() for request in broker.asked(ApiKey.FIND_COORDINATOR)]
        assert len(asked) == (1 if highest >= 4 else 2)
        assert isinstance(await network.request(found["b"], HEARTBEAT), HeartbeatResponse)
        assert len(cluster[2].asked(ApiKey.HEARTBEAT)) == 1
        await network.close()
        await cluster.stop()

    run(story)


def test_a_coordinator_is_found_once_and_has_a_connection_of_its_own(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        await network.update_metadata(5000)
        cluster[1].answers[ApiKey.METADATA] = lambda *_: SILENCE
        first, second = await asyncio.gather(
            network.coordinator(GROUP, "g", 5000), network.coordinator(GROUP, "g", 5000)
        )
        assert first == second == network.known_coordinator(GROUP, "g")
        assert await network.coordinator(GROUP, "g", 5000) == first
        assert len(cluster[1].asked(ApiKey.FIND_COORDINATOR)) == 1
        blocked = network.request(1, MetadataRequest(topics=[]))
        assert isinstance(await network.request(first, HEARTBEAT), HeartbeatResponse), "it does not wait behind others"
        assert not blocked.done()
        blocked.cancel()
        await network.close()
        await cluster.stop()

    run(story)


def test_a_coordinator_that_is_not_there_yet_is_waited_for() -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster.coordinator_of["g"] = ErrorCode.COORDINATOR_NOT_AVAILABLE
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        with pytest.raises(ClientTimeoutError, match=r"group 'g' was not found within 2000 ms: COORDINATOR_NOT_AVAIL"):
            await network.coordinator(GROUP, "g", 2000)
        assert network._coordinators._lookups[GROUP] == {}
        waiting = asyncio.ensure_future(network.coordinator(GROUP, "g", 60_000))
        await asyncio.sleep(10)
        assert len(cluster[1].asked(ApiKey.FIND_COORDINATOR)) < 30
        cluster.coordinator_of["g"] = 1
        assert network.node(await waiting) == network.view.nodes[1]
        await network.close()
        await cluster.stop()

    run_simulated(story)


@pytest.mark.parametrize("highest", [2, 6])
def test_a_group_that_may_not_be_used_is_told_at_once(run: Run, highest: int) -> None:
    async def story() -> None:
        cluster = Cluster()
        cluster[1].versions[ApiKey.FIND_COORDINATOR] = (0, highest)
        cluster.coordinator_of["secret"] = ErrorCode.GROUP_AUTHORIZATION_FAILED
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        outcomes = await asyncio.gather(
            network.coordinator(GROUP, "secret", 60_000),
            network.coordinator(GROUP, "g", 60_000),
            return_exceptions=True,
        )
        assert isinstance(outcomes[0], BrokerError)
        assert outcomes[0].code is ErrorCode.GROUP_AUTHORIZATION_FAILED
        assert "group 'secret'" in str(outcomes[0])
        assert isinstance(outcomes[1], int), "others do not suffer"
        await network.close()
        await cluster.stop()

    run(story)


def test_a_forgotten_coordinator_is_found_again_elsewhere(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster(2)
        cluster.coordinator_of["g"] = 1
        await cluster.start()
        cluster[1].answers[ApiKey.HEARTBEAT] = lambda *_: SILENCE
        network = client(cluster.bootstrap_servers)
        await network.start()
        first = await network.coordinator(GROUP, "g", 5000)
        pending = network.request(first, HEARTBEAT)
        await eventually(lambda: bool(cluster[1].asked(ApiKey.HEARTBEAT)))
        cluster.coordinator_of["g"] = 2
        network.forget_coordinator(GROUP, "g", "it moved")
        network.forget_coordinator(GROUP, "never heard of")
        with pytest.raises(DisconnectedError, match="gave this connection up"):
            await pending
        assert network.known_coordinator(GROUP, "g") is None
        second = await network.coordinator(GROUP, "g", 5000)
        assert network.node(second).node_id == 2  # type: ignore[union-attr]
        assert isinstance(await network.request(second, HEARTBEAT), HeartbeatResponse)
        await network.close()
        await cluster.stop()

    run(story)


def test_a_connection_that_another_group_uses_stays(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        found = await network.coordinators(GROUP, ["a", "b"], 5000)
        await network.connect(found["a"])
        network.forget_coordinator(GROUP, "a", "")
        assert network.is_connected(found["b"])
        await network.close()
        await cluster.stop()

    run(story)


def test_a_lookup_goes_on_with_another_broker(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster(2)
        await cluster.start()
        cluster[1].answers[ApiKey.FIND_COORDINATOR] = lambda *_: HANG_UP
        network = client(cluster.bootstrap_servers)
        await network.start()
        for key in "abc":
            assert await network.coordinator(GROUP, key, 20_000)
        await network.close()
        await cluster.stop()

    run(story)


def test_kinds_that_a_broker_does_not_know_are_told(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        del cluster[1].versions[ApiKey.FIND_COORDINATOR]
        await cluster.start()
        network = client(cluster.bootstrap_servers)
        await network.start()
        with pytest.raises(UnsupportedRequestError, match="does not offer FindCoordinator"):
            await network.coordinator(GROUP, "g", 60_000)
        await network.close()
        await cluster.stop()

    run(story)


def test_closing_and_cancelling_end_a_lookup(run: Run) -> None:
    async def story() -> None:
        cluster = Cluster()
        await cluster.start()
        cluster[1].answers[ApiKey.FIND_COORDINATOR] = lambda *_: SILENCE
        network = client(cluster.bootstrap_servers)
        await network.start()
        given_up = asyncio.ensure_future(network.coordinator(GROUP, "g", 60_000))
        kept = asyncio.ensure_future(network.coordinator(GROUP, "g", 60_000))
        await eventually(lambda: bool(cluster[1].asked(ApiKey.FIND_COORDINATOR)))
        given_up.cancel()
        await asyncio.gather(given_up, return_exceptions=True)
        assert not kept.done(), "the other still waits"
        await network.close()
        with pytest.raises(ClientClosedError):
            await kept
        with pytest.raises(ClientClosedError):
            await network.coordinator(GROUP, "g", 1000)
        await cluster.stop()

    run(story)


def test_nobody_to_ask_is_the_cause_that_is_told() -> None:
    async def story() -> None:
        network = client("127.0.0.1:1", request_timeout_ms=500)
        await network.start()
        with pytest.raises(NoBrokersError, match=r"group 'g'.*127\.0\.0\.1:1 \(no connection"):
            await network.coordinator(GROUP, "g", 3000)
        await network.close()

    run_simulated(story)
