"""What the log of a node tells whoever runs it, from a start to a clean stop and over a kill."""

from __future__ import annotations

import asyncio
import logging
import re

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.broker.test_node import asked_until, create, inside, join, produce

DIRECTORY = "/data"


class Heard:
    """The lines at INFO and above since the last look, without what differs from run to run."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        caplog.set_level(logging.INFO, "barnabas")
        self._caplog = caplog

    def lines(self) -> list[str]:
        lines = [record.getMessage() for record in self._caplog.records]
        assert all(line.startswith("[node 1] ") for line in lines)
        told = [re.sub(r"in \d+ ms", "in … ms", line.removeprefix("[node 1] ")) for line in lines]
        told = [re.sub(r"after [\d.]+ s$", "after … s", line) for line in told]
        self._caplog.clear()
        return [re.sub(r"(topic ID|cluster) [\w-]{22}", r"\1 …", line) for line in told]


@pytest.fixture
def heard(caplog: pytest.LogCaptureFixture) -> Heard:
    return Heard(caplog)


async def member(world: World, node: SimulatedNode) -> None:
    """A group that has one, so that there is something to load."""
    client = await world.client(node.bootstrap)
    await asked_until(client, FindCoordinatorRequest(key="g"), 3, ErrorCode.NONE)
    named = await asked_until(client, join("g"), 5, ErrorCode.MEMBER_ID_REQUIRED)
    joined = await client.ask(join("g", named.member_id), 5)
    assert joined.error_code == 0


def test_from_a_start_to_a_clean_stop_and_the_next_start(heard: Heard) -> None:
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node(overrides={"offsets.topic.num.partitions": 1})
            started = heard.lines()
            assert started[0] == f"Starting node 1 with its data in {DIRECTORY}"
            assert started[-1] == f"Node 1 of cluster … started, bootstrap {node.bootstrap}"
            client = await world.client(node.bootstrap)
            await client.ask(create("t"))
            assert heard.lines() == ["Created topic t with topic ID …: 1 partition, replication factor 1"]
            await node.stop()
            assert heard.lines() == [
                "Node 1 is shutting down",
                "Controlled shutdown succeeded after … s",
                f"Closed 1 logs of {DIRECTORY} and wrote clean shutdown file",
                "Node 1: shut down completed",
            ]
            await node.start()
            again = heard.lines()
            assert f"Skipping recovery of 1 logs from {DIRECTORY} since clean shutdown file was found" in again
            assert f"Loaded 1 logs from {DIRECTORY} in … ms" in again
            assert any(line.endswith(": 1 topic with 1 partition") for line in again)
            assert not [line for line in again if line.startswith("Created")]
            await node.stop()

        world.run(story())


def test_after_a_kill_it_tells_what_was_found(heard: Heard) -> None:
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node(overrides={"offsets.topic.num.partitions": 1})
            client = await world.client(node.bootstrap)
            await client.ask(create("t"))
            await client.ask(produce("t"), 11)
            await member(world, node)
            node.kill()
            heard.lines()
            await node.start()
            lines = heard.lines()
            assert f"Recovering 2 logs from {DIRECTORY} since no clean shutdown file was found" in lines
            (loaded,) = [line for line in lines if line.startswith("Loaded 2 logs")]
            assert re.search(r"2 segments with [\d,]+ bytes were read, nothing had to be cut$", loaded)
            await asyncio.sleep(10)
            await node.stop()
            # Not twice: a node that was killed still leads, by the metadata, what it led.
            groups = [line for line in (*lines, *heard.lines()) if line.startswith("Finished loading")]
            assert [re.sub(r"\d+ bytes", "… bytes", line) for line in groups] == [
                "Finished loading of group metadata from __consumer_offsets-0 in … ms: 1 groups from … bytes"
            ]

        world.run(story())


def test_a_second_stop_has_nothing_to_tell(heard: Heard) -> None:
    with World(1) as world:

        async def story() -> None:
            node = inside(await world.start_node())
            await node.stop()
            heard.lines()
            await node.stop()
            assert heard.lines() == []

        world.run(story())
