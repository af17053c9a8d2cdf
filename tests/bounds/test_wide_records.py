"""Requests whose work lies in their records, not in their elements: what is done in one turn is bounded there too."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import FrameType
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.records import BatchBuilder, Codec
from barnabas.testing.sim.runtime import SimulatedRuntime
from barnabas.testing.sim.world import World
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, ProduceResponse, TopicProduceData
from tests.bounds.meter import Meter, metered
from tests.bounds.test_bounded_memory import _FAST
from tests.bounds.test_bounded_work import MOST_CALLS_IN_A_TURN

NOW_MS = 1_700_000_000_000
#: By the name without versions of ids: topics are known by name.
VERSION = 12


def batch(values: list[bytes], *, key: bytes | None = b"k", codec: Codec = Codec.NONE) -> bytes:
    builder = BatchBuilder(64 << 20, codec=codec)
    for place, value in enumerate(values):
        builder.append(value, key, timestamp_ms=NOW_MS + place)
    return bytes(builder.build())


async def _produced(world: World, records: Mapping[int, Sequence[bytes]], meter: Meter, **settings: str) -> list[int]:
    """What each partition is sent, entry by entry, in one request; the error codes."""
    node = await world.start_node()
    client = await world.client(node.bootstrap, timeout_s=3600)
    configs = [CreatableTopicConfig(name=name.replace("_", "."), value=value) for name, value in settings.items()]
    topic = CreatableTopic(name="t", num_partitions=len(records), replication_factor=1, assignments=[], configs=configs)
    created = await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=600_000))
    assert created.topics[0].error_code == 0
    data = [PartitionProduceData(index=place, records=each) for place, those in records.items() for each in those]
    meter.reset()
    request = ProduceRequest(acks=-1, timeout_ms=600_000, topic_data=[TopicProduceData(name="t", partition_data=data)])
    response: ProduceResponse = await client.ask(request, VERSION)
    return [each.error_code for each in response.responses[0].partition_responses]


def produced(records: Mapping[int, Sequence[bytes]], **settings: str) -> tuple[set[int], int]:
    """The error codes, and the most that was done in a turn."""
    with metered() as meter, World(1, link=_FAST) as world:
        return set(world.run(_produced(world, records, meter, **settings))), meter.most_calls


def test_very_many_records_without_a_key_are_refused_within_a_turn() -> None:
    keyless = batch([b""] * 20_000, key=None)
    refused, most_calls = produced({place: [keyless] for place in range(10)}, cleanup_policy="compact")
    assert refused == {ErrorCode.INVALID_RECORD}
    assert most_calls <= MOST_CALLS_IN_A_TURN


def test_many_batches_of_one_record_take_turns() -> None:
    taken, most_calls = produced({0: [batch([b"v"])] * 5000})
    assert taken == {ErrorCode.NONE}
    assert most_calls <= MOST_CALLS_IN_A_TURN


def test_batches_that_become_large_cost_what_each_costs() -> None:
    """They are checked elsewhere, and each answer finds its place without a look at the others."""

    def lines(count: int) -> int:
        bomb = batch([bytes(900_000)] * 2, codec=Codec.GZIP)
        assert len(bomb) < 5000
        with counted_lines("/producing.py") as counter:
            taken, _ = produced({place: [bomb] for place in range(count)}, max_message_bytes="10000")
        assert taken == {ErrorCode.NONE}
        return counter.lines

    assert lines(120) < 4.5 * lines(30)


class _Lines:
    def __init__(self) -> None:
        self.lines = 0


@contextmanager
def counted_lines(of_file: str) -> Iterator[_Lines]:
    """How many lines of a file are run."""
    counter = _Lines()

    def in_frame(frame: FrameType, event: str, argument: Any) -> Any:
        counter.lines += event == "line"
        return in_frame

    def at_call(frame: FrameType, event: str, argument: Any) -> Any:
        return in_frame if frame.f_code.co_filename.endswith(of_file) else None

    before = sys.gettrace()
    sys.settrace(at_call)
    try:
        yield counter
    finally:
        sys.settrace(before)


def test_a_time_is_looked_for_among_very_many_records_away_from_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    elsewhere: list[object] = []
    offload = SimulatedRuntime.offload

    def noted(runtime: SimulatedRuntime, work: Callable[[], Any]) -> Any:
        elsewhere.append(work)
        return offload(runtime, work)

    async def story(world: World, meter: Meter) -> tuple[int, int]:
        await _produced(world, {0: [batch([b""] * 50_000, codec=Codec.GZIP)]}, meter)
        client = await world.client("10.0.0.1:9092", timeout_s=3600)
        wanted = ListOffsetsPartition(partition_index=0, timestamp=NOW_MS + 49_000)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name="t", partitions=[wanted])])
        monkeypatch.setattr(SimulatedRuntime, "offload", noted)
        answer = (await client.ask(request, 7)).topics[0].partitions[0]
        return answer.error_code, answer.offset

    with metered() as meter, World(1, link=_FAST) as world:
        assert world.run(story(world, meter)) == (0, 49_000)
    assert elsewhere
