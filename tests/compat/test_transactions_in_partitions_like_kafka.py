"""Stories of transactions as partitions see them, told to Kafka and to our node: the same answers, and the same log.

Without verification, so that no coordinator is needed: each step says what a producer or a coordinator would send.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from barnabas.coordinator.routing import partition_for
from barnabas.records import BatchBuilder, iter_batches
from barnabas.records.control import read_marker
from barnabas.wire.message import Request
from barnabas.wire.messages import describe_producers, fetch, list_offsets, offset_fetch, produce
from barnabas.wire.messages import txn_offset_commit as toc
from barnabas.wire.messages import write_txn_markers as wtm
from tests.compat.duel import TOPIC, Ask, Side, both, differences_in
from tests.compat.duel_data_cases import batch_of, coordinator_of, produced
from tests.compat.samples import TIME_MS, until
from tests.oracles import needs_kafka

OFFSETS, GROUP, OFFSETS_PARTITIONS = "__consumer_offsets", "pending", 4
GROUP_PARTITION = partition_for(GROUP, OFFSETS_PARTITIONS)
PRODUCER = 5000


class Step(NamedTuple):
    """What is asked, and in which version."""

    ask: Ask
    version: int


def same(request: Request) -> Ask:
    return lambda _side: [request]


def records(sequence: int, epoch: int = 0, *, producer_id: int = PRODUCER, transactional: bool = True) -> bytes:
    builder = BatchBuilder(
        1 << 16,
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
    )
    builder.append(b"value", b"k", TIME_MS, [])
    return bytes(builder.build())


def sent(*batches: bytes, version: int = 9, transactional_id: str | None = "orders", partition: int = 0) -> Step:
    data = [
        produce.PartitionProduceData(index=partition + place, records=memoryview(each))
        for place, each in enumerate(batches)
    ]
    topic = produce.TopicProduceData(name=TOPIC, partition_data=data)
    request = produce.ProduceRequest(transactional_id=transactional_id, acks=-1, timeout_ms=5000, topic_data=[topic])
    return Step(same(request), version)


def marked(
    *partitions: tuple[str, int],
    epoch: int = 0,
    committed: bool = True,
    coordinator_epoch: int = 3,
    transaction_version: int = 0,
    version: int = 2,
) -> Step:
    topics: dict[str, list[int]] = {}
    for topic, number in partitions or ((TOPIC, 0),):
        topics.setdefault(topic, []).append(number)
    marker = wtm.WritableTxnMarker(
        producer_id=PRODUCER,
        producer_epoch=epoch,
        transaction_result=committed,
        topics=[wtm.WritableTxnMarkerTopic(name=name, partition_indexes=each) for name, each in topics.items()],
        coordinator_epoch=coordinator_epoch,
        transaction_version=transaction_version,
    )
    return Step(same(wtm.WriteTxnMarkersRequest(markers=[marker])), version)


def producers() -> Step:
    topic = describe_producers.TopicRequest(name=TOPIC, partition_indexes=[0])
    return Step(same(describe_producers.DescribeProducersRequest(topics=[topic])), 0)


def ends(isolation: int) -> Step:
    partition = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1, current_leader_epoch=-1)
    topic = list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[partition])
    return Step(same(list_offsets.ListOffsetsRequest(replica_id=-1, isolation_level=isolation, topics=[topic])), 5)


def look() -> list[Step]:
    return [producers(), ends(0), ends(1)]


IN_A_PARTITION: list[Step] = [
    sent(records(0)),
    *look(),
    sent(records(0)),
    sent(records(1), version=11),
    marked(version=1),
    *look(),
    marked(version=1),
    marked(),
    marked(transaction_version=2),
    sent(records(2)),
    marked(coordinator_epoch=2),
    marked(transaction_version=2, committed=False),
    *look(),
    sent(records(3, transactional=False), transactional_id=None),
    marked(epoch=1, transaction_version=2, committed=False),
    marked(epoch=1, transaction_version=2, committed=False),
    marked(epoch=0),
    *look(),
    sent(records(4)),
    sent(records(3, 1)),
    sent(records(0, 1)),
    sent(records(1, 1), records(0, 0, producer_id=PRODUCER + 1)),
    sent(records(1, 1), transactional_id=None),
    sent(records(1, 1)),
    marked((TOPIC, 0), (TOPIC, 9), ("nowhere", 0), epoch=2, coordinator_epoch=4, transaction_version=2),
    *look(),
    Step(same(wtm.WriteTxnMarkersRequest(markers=[])), 1),
]


def committed(
    offset: int,
    *,
    epoch: int = 0,
    version: int = 4,
    group: str = GROUP,
    topic: str = TOPIC,
    partition: int = 0,
    **member: Any,
) -> Step:
    metadata = member.pop("metadata", None)
    partitions = [
        toc.TxnOffsetCommitRequestPartition(
            partition_index=partition, committed_offset=offset, committed_metadata=metadata
        )
    ]
    request = toc.TxnOffsetCommitRequest(
        transactional_id="orders",
        group_id=group,
        producer_id=PRODUCER,
        producer_epoch=epoch,
        topics=[toc.TxnOffsetCommitRequestTopic(name=topic, partitions=partitions)],
        **member,
    )
    return Step(same(request), version)


def fetched(*, stable: bool) -> Step:
    topics = [offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])]
    group = offset_fetch.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)
    return Step(same(offset_fetch.OffsetFetchRequest(groups=[group], require_stable=stable)), 8)


def look_at_group() -> list[Step]:
    return [fetched(stable=False), fetched(stable=True)]


IN_A_GROUP: list[Step] = [
    *(committed(5, version=version) for version in range(5)),
    *look_at_group(),
    marked((OFFSETS, GROUP_PARTITION)),
    *look_at_group(),
    marked((OFFSETS, GROUP_PARTITION)),
    committed(6, metadata="m"),
    committed(7, partition=1),
    *look_at_group(),
    marked((OFFSETS, GROUP_PARTITION), coordinator_epoch=2),
    marked((OFFSETS, GROUP_PARTITION), epoch=1, committed=False, transaction_version=2),
    *look_at_group(),
    committed(8),
    committed(8, epoch=1),
    marked((OFFSETS, GROUP_PARTITION), epoch=1, transaction_version=2),
    marked((OFFSETS, GROUP_PARTITION), epoch=2, transaction_version=2),
    *look_at_group(),
    committed(9, epoch=2, generation_id=3, member_id="m"),
    committed(9, epoch=2, group="other", generation_id=3, member_id="m"),
    committed(9, epoch=2, member_id="m"),
    committed(9, epoch=2, group=""),
    committed(9, epoch=2, topic="nowhere"),
    committed(9, epoch=2, partition=9),
    committed(9, epoch=2, metadata="x" * 4097),
    *look_at_group(),
]

STORIES = {"in a partition": IN_A_PARTITION, "in a group": IN_A_GROUP}


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    folder: Path = tmp_path_factory.mktemp("transactions")
    with both(folder, {"transaction.partition.verification.enable": "false"}) as sides:
        for side in sides:
            until(lambda side=side: _is_done(side, produced(batch_of()), 9))  # type: ignore[misc]
            until(lambda side=side: _is_done(side, coordinator_of(GROUP), 3))  # type: ignore[misc]
            until(lambda side=side: _is_loaded(side))  # type: ignore[misc]
        yield sides


def _is_done(side: Side, ask: Ask, version: int) -> bool:
    answer = side.call(ask(side)[0], version)
    return not getattr(answer, "error_code", 0) and "error_code=0" in repr(answer)


def _is_loaded(side: Side) -> bool:
    step = fetched(stable=False)
    answer = side.call(step.ask(side)[0], step.version)
    return bool(answer.groups[0].error_code == 0)


@needs_kafka()
@pytest.mark.parametrize("story", STORIES)
def test_our_node_answers_as_kafka_does(sides: tuple[Side, Side], story: str) -> None:
    kafka, ours = sides
    found = {}
    for place, (ask, version) in enumerate(STORIES[story]):
        # Markers have the time at which they were written.
        told = [each for each in differences_in(kafka, ours, ask, version) or [] if ".lastTimestamp:" not in each]
        if told:
            found[place] = told
    assert found == {}


@needs_kafka()
@pytest.mark.parametrize("partition", [(TOPIC, 0), (OFFSETS, GROUP_PARTITION)])
def test_our_log_is_kafkas(sides: tuple[Side, Side], partition: tuple[str, int]) -> None:
    """After the stories: batches with their producers, and markers; readers hear of the same aborted transactions."""
    kafka, ours = (_batches(side, *partition) for side in sides)
    assert kafka == ours
    assert len(ours[0]) > 3


def _batches(side: Side, topic: str, number: int) -> tuple[list[Any], Any]:
    """What readers of committed data find, segment by segment."""
    batches: list[Any] = []
    aborted: set[tuple[int, int]] = set()
    offset, end = 0, 1
    while offset < end:
        wanted = fetch.FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20)
        asked = fetch.FetchTopic(topic=topic, partitions=[wanted])
        request = fetch.FetchRequest(
            max_wait_ms=10, min_bytes=1, session_id=0, session_epoch=-1, topics=[asked], isolation_level=1
        )
        [answer] = side.call(request, 11).responses[0].partitions
        end = answer.last_stable_offset
        aborted |= {(each.producer_id, each.first_offset) for each in answer.aborted_transactions or []}
        for each in iter_batches(memoryview(bytes(answer.records or b""))):
            offset = each.next_offset
            if each.producer_id >= 0:
                told = [(record.key, _value(record.value, topic)) for record in each.records()]
                marker = read_marker(each) if each.is_control else None
                head = (each.base_offset, each.last_offset, each.attributes, each.producer_id, each.producer_epoch)
                batches.append((*head, each.base_sequence, marker, told))
    return batches, (sorted(aborted), end)


def _value(value: bytes | None, topic: str) -> Any:
    """Without the time of the commit, which is the last but a few bytes."""
    return len(value or b"") if topic == OFFSETS else value
