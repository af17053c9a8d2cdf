"""Most requests are small: they are answered at once, and say the same as if they had been worked on in steps."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.handlers import metadata, offset_commit
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from barnabas.wire.messages.offset_commit import OffsetCommitRequest
from tests.broker.connections import context_of
from tests.broker.data_plane import DataPlane, fetch_request
from tests.broker.group_bench import ServiceBench
from tests.broker.test_group_service import commit, commit_codes, fetch, play


def asked(plane: DataPlane, *topics: str) -> MetadataRequest:
    return MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in topics], allow_auto_topic_creation=False)


def handle_metadata(plane: DataPlane, request: MetadataRequest) -> Any:
    return metadata.handle(plane.services, context_of(ApiKey.METADATA, 12, plane.connection), request)


def test_metadata_of_few_partitions_takes_no_steps_and_no_room() -> None:
    plane = DataPlane()
    plane.create_topic("small", 3)
    answer = handle_metadata(plane, asked(plane, "small", "missing"))
    assert isinstance(answer, MetadataResponse)
    assert [(each.name, each.error_code, len(each.partitions)) for each in answer.topics] == [
        ("small", 0, 3),
        ("missing", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0),
    ]
    assert isinstance(handle_metadata(plane, MetadataRequest(topics=None)), MetadataResponse)
    plane.ask(asked(plane, "small"), 12)
    assert plane.connection.asked_bytes == 0


def test_metadata_of_many_partitions_or_topics_is_worked_on_in_steps() -> None:
    plane = DataPlane()
    large, small = plane.create_topic("large", 257), plane.create_topic("small", 3)
    assert isinstance(handle_metadata(plane, asked(plane, "large")), Generator)
    assert isinstance(handle_metadata(plane, asked(plane, *(f"no-{number}" for number in range(17)))), Generator)
    assert isinstance(handle_metadata(plane, MetadataRequest(topics=None)), Generator)
    by_id = MetadataRequestTopic(name=small.name, topic_id=large.topic_id)
    assert isinstance(handle_metadata(plane, MetadataRequest(topics=[by_id])), Generator), "the id is what counts"
    [described] = plane.ask(asked(plane, "large"), 12).topics
    assert plane.connection.asked_bytes
    [other] = plane.ask(asked(plane, "small"), 12).topics
    assert described.partitions[:3] == other.partitions
    assert [each.partition_index for each in described.partitions] == list(range(257))


@pytest.mark.parametrize("partitions", [3, 200])
def test_a_fetch_says_the_same_of_few_partitions_and_of_many(partitions: int) -> None:
    plane = DataPlane()
    plane.create_topic("t", partitions)
    plane.append("t", b"first", number=1)
    offsets = dict.fromkeys([("t", number) for number in range(partitions)], 0)
    whole = plane.ask(fetch_request(offsets, session_epoch=0), 12)
    assert [each.partition_index for topic in whole.responses for each in topic.partitions] == list(range(partitions))
    assert [bool(each.records) for topic in whole.responses for each in topic.partitions][:3] == [False, True, False]
    read = fetch_request({("t", 1): 1}, session_id=whole.session_id, session_epoch=1)
    assert plane.ask(read, 12).responses == []
    waiting = plane.begin(
        fetch_request({}, session_id=whole.session_id, session_epoch=2, max_wait_ms=1000),
        12,
        connection=plane.connection,
    )
    plane.append("t", b"second", number=2)
    plane.pass_ms(1)
    [topic] = plane.run(waiting).responses
    assert [(each.partition_index, each.high_watermark) for each in topic.partitions] == [(2, 1)]


def handle_commit(bench: ServiceBench, request: OffsetCommitRequest) -> Any:
    return offset_commit.handle(bench.services, bench.context(ApiKey.OFFSET_COMMIT, 8), request)


def test_a_commit_of_partitions_that_exist_is_passed_on_as_it_is() -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(t=2, u=1)
        answer = handle_commit(bench, commit("g", ("t", 0, 5), ("u", 0, 6)))
        assert not isinstance(answer, Generator)
        assert commit_codes(await answer) == [0, 0]
        assert await fetch(bench) == {"t-0": 5, "u-0": 6}

    play(story)


@pytest.mark.parametrize(
    ("offsets", "codes"),
    [
        ([("t", 0, 5), ("t", 1, 6)], [0, 0]),
        ([("t", 2, 5)], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]),
        ([("t", 0, 5), ("missing", 0, 6)], [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 0]),
        ([], []),
    ],
)
def test_other_commits_are_sorted_out_first(offsets: list[tuple[str, int, int]], codes: list[int]) -> None:
    async def story(bench: ServiceBench) -> None:
        await bench.start(t=2)
        assert isinstance(handle_commit(bench, commit("g", *offsets)), Generator)
        answer = await bench.call(offset_commit, commit("g", *offsets), 8)
        assert commit_codes(answer) == codes
        assert len({topic.name for topic in answer.topics}) == len(answer.topics), "each topic once"

    play(story)
