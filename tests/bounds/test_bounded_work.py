"""For every API and version: what is done in one turn of the loop is bounded, and all of it by what was sent.

And an answer that is much larger than its request has asked for room before it was built.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from barnabas.broker.handlers import broker_handlers
from barnabas.net.answer_room import AnswerRoom
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.network import Link
from barnabas.testing.sim.world import World
from barnabas.wire import Request, api
from barnabas.wire.apis import Api
from barnabas.wire.message import Listeners
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.bounds.meter import Meter, metered
from tests.bounds.wide_requests import Known, wide_requests

#: Calls of functions in one turn: some milliseconds.
MOST_CALLS_IN_A_TURN = 25_000
#: And for each byte of request and answer, beside what every request costs.
MOST_CALLS_PER_BYTE = 24
CALLS_OF_ANY_REQUEST = 20_000
#: How many bytes of an answer a byte of the request may bring without room that was asked for, and any request.
UNASKED_BYTES_PER_BYTE = 4
UNASKED_BYTES = 64 * 1024

SERVED = [served for module in broker_handlers() if (served := api(module.API_KEY)).listeners & Listeners.BROKER]


async def prepared(client: ScriptedClient, name: str) -> Known:
    """A topic and a group of this name, with an offset."""
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=60_000))
    await client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[name]))
    await asyncio.sleep(60)  # of virtual time, in which the groups are loaded
    offset = OffsetCommitRequestPartition(partition_index=0, committed_offset=1, committed_metadata="m")
    commit = OffsetCommitRequest(
        group_id=name,
        generation_id_or_member_epoch=-1,
        topics=[OffsetCommitRequestTopic(name=name, partitions=[offset])],
    )
    assert (await client.ask(commit, 9)).topics[0].partitions[0].error_code == 0
    metadata = await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]))
    return Known(name, metadata.topics[0].topic_id)


async def ask_widely(world: World, served: Api, versions: list[int], count: int, meter: Meter, room: Room) -> list[str]:
    """Send all wide requests of an API; what was too much."""
    node = await world.start_node(overrides={"auto.create.topics.enable": "false"})
    known = await prepared(await world.client(node.bootstrap), "t")
    too_much = []
    for version in versions:
        for request, path, saying in wide_requests(served.request, version, count, known):
            meter.reset()
            room.size_bytes = 0
            what = f"{served.key.camel_name} v{version} with {count} {saying} {path}"
            asked_bytes, answer_bytes = await _bytes_of(world, node.bootstrap, request, version)
            size_bytes = asked_bytes + answer_bytes
            allowed = CALLS_OF_ANY_REQUEST + MOST_CALLS_PER_BYTE * size_bytes
            if meter.most_calls > MOST_CALLS_IN_A_TURN or meter.total_calls > allowed:
                too_much.append(
                    f"{what}: {meter.most_calls} calls in a turn, {meter.total_calls} for {size_bytes} bytes"
                )
            if answer_bytes > room.size_bytes + UNASKED_BYTES_PER_BYTE * asked_bytes + UNASKED_BYTES:
                too_much.append(f"{what}: {answer_bytes} bytes of answer, {room.size_bytes} bytes of room")
    return too_much


async def _bytes_of(world: World, bootstrap: str, request: Request, version: int) -> tuple[int, int]:
    """Ask; how large request and answer were. It may be refused by closing the connection."""
    client = await world.client(bootstrap, timeout_s=3600)
    asked_bytes = len(request.encode(version))
    answer_bytes = 0
    try:
        answer: Any = await client.ask(request, version)
        answer_bytes = len(answer.encode(version))
    except ConnectionError:
        pass
    await client.close()
    return asked_bytes, answer_bytes


class Room:
    """The room that was asked for, or taken, for answers."""

    def __init__(self) -> None:
        self.size_bytes = 0


@contextmanager
def room_metered() -> Iterator[Room]:
    room = Room()
    with pytest.MonkeyPatch.context() as patch:
        for name in ("ask", "expect"):
            noted = getattr(AnswerRoom, name)

            def note(self: AnswerRoom, connection: Any, size_bytes: int, *more: Any, noted: Any = noted) -> Any:
                room.size_bytes += size_bytes
                return noted(self, connection, size_bytes, *more)

            patch.setattr(AnswerRoom, name, note)
        yield room


def too_much_of(served: Api, versions: list[int], count: int) -> list[str]:
    link = Link(min_delay_s=0.0001, max_delay_s=0.0002, window_bytes=1 << 30)
    # Work in slices takes no virtual time: a million settings are some hundred thousand turns of one instant.
    turns = max(100_000, 4 * count)
    with metered() as meter, room_metered() as room, World(1, link=link, max_idle_turns=turns) as world:
        return world.run(ask_widely(world, served, versions, count, meter, room))


@pytest.mark.parametrize("served", SERVED, ids=lambda each: each.key.camel_name)
def test_ten_thousand_elements_of_any_array_leave_others_their_turn(served: Api) -> None:
    newest_old = next((version for version in reversed(list(served.served)) if not served.is_flexible(version)), None)
    versions = sorted({served.served.high, served.served.low if newest_old is None else newest_old})
    assert too_much_of(served, versions, 10_000) == []


@pytest.mark.slow
@pytest.mark.parametrize("served", SERVED, ids=lambda each: each.key.camel_name)
def test_a_million_elements_of_any_array_leave_others_their_turn(served: Api) -> None:
    assert too_much_of(served, [served.served.high], 1_000_000) == []
