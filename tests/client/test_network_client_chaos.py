"""Brokers that die, return, fall silent and talk nonsense, on virtual time: every call ends, in time and with an error
that says why, and when all is well again everything works."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.client.errors import ClientTimeoutError, NoBrokersError
from barnabas.client.network_client import CoordinatorType, NetworkClient
from barnabas.net import ChannelError
from barnabas.wire import ApiKey
from barnabas.wire.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tests.client.cluster import HANG_UP, SILENCE, Cluster, client
from tests.net.worlds import run_simulated

HEARTBEAT = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
TIMEOUT_MS = 8000
NODES = (1, 2, 3)


async def spoil(cluster: Cluster, random: Random) -> None:
    """One misfortune, or the end of one."""
    broker = cluster[random.choice(NODES)]
    key = random.choice([ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FIND_COORDINATOR, ApiKey.HEARTBEAT])
    match random.randrange(6):
        case 0:
            await broker.stop()
        case 1:
            await broker.stop()
            await broker.start()
        case 2:
            answer = random.choice([SILENCE, HANG_UP, b"\xff\xff\xff\x00", b""])
            broker.answers[key] = lambda *_: answer
        case 3:
            broker.answers.clear()
        case 4:
            cluster.shown = random.sample(NODES, random.randint(1, 3))
            cluster.coordinator_of["g"] = random.choice([*NODES, ErrorCode.COORDINATOR_NOT_AVAILABLE])
        case 5:
            throttle_ms = random.randint(1, 3000)
            broker.answers[ApiKey.HEARTBEAT] = lambda *_: HeartbeatResponse(throttle_time_ms=throttle_ms, error_code=0)


async def heal(cluster: Cluster) -> None:
    cluster.shown = list(NODES)
    cluster.coordinator_of["g"] = 2
    for broker in cluster.brokers.values():
        broker.answers.clear()
        await broker.stop()
        await broker.start()


class User:
    """Calls one thing after another, and takes down how each ended."""

    def __init__(self, network: NetworkClient, random: Random) -> None:
        self.network = network
        self.random = random
        self.outcomes: list[str] = []
        self.callbacks = [0, 0]

    def calls(self) -> list[Callable[[], Awaitable[Any]]]:
        network = self.network
        return [
            lambda: network.request_any(HEARTBEAT, timeout_ms=TIMEOUT_MS),
            lambda: network.request(self.random.choice(NODES), HEARTBEAT, timeout_ms=TIMEOUT_MS / 2),
            lambda: network.update_metadata(TIMEOUT_MS),
            lambda: network.topic_metadata("t", TIMEOUT_MS),
            lambda: network.coordinator(CoordinatorType.GROUP, "g", TIMEOUT_MS),
            self.forget,
            self.ask_with_callback,
        ]

    async def forget(self) -> None:
        self.network.forget_coordinator(CoordinatorType.GROUP, "g", "chaos")

    async def ask_with_callback(self) -> None:
        self.callbacks[0] += 1

        def on_answer(answer: object) -> None:
            assert isinstance(answer, HeartbeatResponse | ChannelError)
            self.callbacks[1] += 1

        self.network.request_soon(self.random.choice(NODES), HEARTBEAT, on_answer)

    async def run(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s = loop.time()
            try:
                await self.random.choice(self.calls())()
                self.outcomes.append("well")
            except (ClientTimeoutError, NoBrokersError, ChannelError) as error:
                self.outcomes.append(type(error).__name__ if str(error) else "nothing said")
            # A request waits for its turn, and then as long again for its answer.
            assert loop.time() - began_s <= TIMEOUT_MS / 1000 + 0.01
            await asyncio.sleep(self.random.uniform(0, 0.5))


@pytest.mark.parametrize("seed", range(6))
def test_every_call_ends_and_all_is_well_after_all(seed: int) -> None:
    async def story() -> None:
        random = Random(seed)
        cluster = Cluster(3)
        cluster.add_topic("t", (1, 0))
        await cluster.start()
        before = asyncio.all_tasks()
        network = client(
            cluster.bootstrap_servers,
            request_timeout_ms=3000,
            metadata_max_age_ms=2000,
            socket_connection_setup_timeout_ms=1000,
            connections_max_idle_ms=4000,
            metadata_recovery_rebootstrap_trigger_ms=10_000,
        )
        await network.start()
        users = [User(network, Random(f"{seed} {number}")) for number in range(6)]
        tasks = [asyncio.ensure_future(user.run()) for user in users]
        for _ in range(80):
            await asyncio.sleep(random.uniform(0, 2))
            await spoil(cluster, random)
        for task in tasks:
            assert not task.done() or task.exception() is None
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        outcomes = [outcome for user in users for outcome in user.outcomes]
        assert "well" in outcomes
        assert "nothing said" not in outcomes
        assert len(set(outcomes)) > 1, "nothing went wrong"
        await heal(cluster)
        network.forget_coordinator(CoordinatorType.GROUP, "g", "healed")
        # One timeout for what still hangs, one backoff for what just failed.
        await asyncio.sleep(7)
        assert list((await network.update_metadata(TIMEOUT_MS)).nodes) == list(NODES)
        assert (await network.topic_metadata("t", TIMEOUT_MS)).partition_count("t") == 1
        for node_id in NODES:
            assert isinstance(await network.request(node_id, HEARTBEAT), HeartbeatResponse)
        coordinator = await network.coordinator(CoordinatorType.GROUP, "g", TIMEOUT_MS)
        assert network.node(coordinator) == network.view.nodes[2]
        assert all(asked == answered for asked, answered in (user.callbacks for user in users)), "each is told once"
        await network.close()
        await asyncio.sleep(0)
        assert [task for task in asyncio.all_tasks() - before if not task.done()] == []
        await cluster.stop()

    run_simulated(story, seed)
