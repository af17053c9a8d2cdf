"""What a node holds for a request is bounded by what was sent, and who waits with it is in nobody's way.

That answers ask for room before they are built is held beside the work that they take, in `test_bounded_work`; that
few large requests are worked on at a time, in `tests/broker/test_router.py`.
"""

from __future__ import annotations

import asyncio
from contextlib import suppress

import pytest

from barnabas.testing.sim.network import Link
from barnabas.testing.sim.world import World
from barnabas.wire.apis import Api
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.bounds.meter import MemoryMeter, memory_metered
from tests.bounds.test_bounded_work import SERVED, prepared
from tests.bounds.wide_requests import Known, array_paths, wide_request

#: Of memory for an element: as objects of request and answer, in the answer, and in what is sent.
MOST_BYTES_PER_ELEMENT = 3000
BYTES_OF_ANY_REQUEST = 1_500_000
ELEMENTS = 1500

_FAST = Link(min_delay_s=0.0001, max_delay_s=0.0002, window_bytes=1 << 30)


async def held_for_each_array(world: World, served: Api, meter: MemoryMeter) -> dict[str, int]:
    node = await world.start_node(overrides={"auto.create.topics.enable": "false"})
    known = await prepared(await world.client(node.bootstrap), "t")
    version = served.served.high
    held = {}
    for path in array_paths(served.request, version):
        for count in (1, ELEMENTS):  # the first brings what is made once, as decoders are
            request = wide_request(served.request, version, path, count, "different", known)
            client = await world.client(node.bootstrap, timeout_s=3600)
            meter.reset()
            with suppress(ConnectionError):
                await client.ask(request, version)
            held[".".join(path)] = meter.most_bytes
            await client.close()
    return held


@pytest.mark.parametrize("served", SERVED, ids=lambda each: each.key.camel_name)
def test_what_is_held_for_a_request_is_bounded_by_its_elements(served: Api) -> None:
    with memory_metered() as meter, World(1, link=_FAST, tolerates_logged_errors=True) as world:
        held = world.run(held_for_each_array(world, served, meter))
    bound = BYTES_OF_ANY_REQUEST + ELEMENTS * MOST_BYTES_PER_ELEMENT
    assert {path: size for path, size in held.items() if size > bound} == {}


# Who waits for others holds no place


async def _fetch_that_waits(world: World, known: Known, bootstrap: str) -> asyncio.Future[object]:
    """Of very many partitions, which turn out to be one, until there is as much as never comes."""
    partitions = [FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=100)] * 10_500
    fetch = FetchRequest(
        replica_id=-1,
        max_wait_ms=2**31 - 1,
        min_bytes=1 << 29,
        max_bytes=1 << 30,
        session_id=0,
        session_epoch=-1,
        topics=[FetchTopic(topic=known.name, topic_id=known.topic_id, partitions=partitions)],
    )
    return (await world.client(bootstrap, timeout_s=1e9)).send(fetch, 13)


def test_a_fetch_that_waits_keeps_nobody_from_asking_for_as_much() -> None:
    async def story(world: World) -> None:
        node = await world.start_node()
        known = await prepared(await world.client(node.bootstrap), "t")
        waiting = [await _fetch_that_waits(world, known, node.bootstrap) for _ in range(3)]
        await asyncio.sleep(1)
        client = await world.client(node.bootstrap, timeout_s=30)
        keys = [f"k{number}" for number in range(12_000)]
        found = await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=keys))
        assert len(found.coordinators) == 12_000
        assert not any(each.done() for each in waiting)

    with World(1, link=_FAST) as world:
        world.run(story(world))
