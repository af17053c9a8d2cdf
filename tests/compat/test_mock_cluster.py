"""Our wire layer and our records against the broker and the clients of librdkafka, over sockets."""

from __future__ import annotations

from collections.abc import Iterator
from time import monotonic
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.records import BatchBuilder, Codec, iter_batches
from barnabas.records.arrow import to_arrow
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from barnabas.wire.messages.fetch import FetchRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest, FindCoordinatorResponse
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import ProduceRequest
from tests.compat.mock_cluster import TIMEOUT_S, MockCluster, running_mock_cluster

confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")

Parts = tuple[int, bytes | None, bytes | None, list[tuple[str, bytes | None]]]
TIME_MS = 1_700_000_000_000
RECORDS: list[Parts] = [
    (TIME_MS, b"key", b"value", [("plain", b"text"), ("null", None), ("empty", b""), ("größe", "ü".encode())]),
    (TIME_MS + 3_600_000, None, b"no key", []),
    (TIME_MS - 1, b"tombstone", None, []),
    (TIME_MS + 5, b"", b"", [("null", None)]),
    (TIME_MS + 6, None, None, []),
    (TIME_MS + 7, b"long", b"Gehilfe " * 3000, []),
]
EARLIEST, LATEST = -2, -1


@pytest.fixture(scope="module")
def cluster() -> Iterator[MockCluster]:
    with running_mock_cluster() as cluster:
        yield cluster


def ours(codec: Codec) -> bytearray:
    builder = BatchBuilder(1 << 20, codec=codec)
    for time_ms, key, value, headers in RECORDS:
        assert builder.append(value, key, time_ms, headers) is not None
    return builder.build()


def consumed(cluster: MockCluster, topic: str, count: int) -> list[Parts]:
    """What librdkafka's consumer reads from the beginning, with every checksum checked."""
    settings = cluster.settings(group_id="readers", check_crcs=True, enable_auto_commit=False)
    consumer = confluent_kafka.Consumer(settings)
    found: list[Parts] = []
    deadline = monotonic() + TIMEOUT_S
    try:
        consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
        while len(found) < count:
            assert monotonic() < deadline, f"only {len(found)} of {count} records came"
            for message in consumer.consume(count - len(found), 1.0):
                assert message.error() is None
                found.append((message.timestamp()[1], message.key(), message.value(), message.headers() or []))
    finally:
        consumer.close()
    return found


def produced(cluster: MockCluster, topic: str, codec: Codec, **settings: Any) -> None:
    """Let librdkafka's producer send all records in one batch."""
    failures: list[Any] = []
    producer = confluent_kafka.Producer(
        cluster.settings(compression_type=codec.name.lower(), linger_ms=1000, **settings)
    )
    for time_ms, key, value, headers in RECORDS:
        producer.produce(
            topic,
            value,
            key,
            partition=0,
            timestamp=time_ms,
            headers=headers,
            on_delivery=lambda error, _: failures.append(error),
        )
    # Not `flush`, which would not wait for the batch to fill.
    deadline = monotonic() + TIMEOUT_S
    while len(failures) < len(RECORDS) and monotonic() < deadline:
        producer.poll(0.1)
    assert failures == [None] * len(RECORDS)


def fetched(cluster: MockCluster, topic: Any, count: int, version: int = 12) -> bytes:
    """All batches of a partition, by our fetch requests."""
    data, offset = b"", 0
    while offset < count:
        piece = cluster.fetch(topic, offset, version)
        assert piece, f"nothing came from offset {offset} on"
        data += piece
        offset = list(iter_batches(piece))[-1].next_offset
    return data


def decoded(data: bytes) -> list[Parts]:
    found = []
    for batch in iter_batches(data):
        batch.check_crc()
        found += [(record.timestamp_ms, record.key, record.value, list(record.headers)) for record in batch]
    return found


def test_the_versions_of_all_apis_are_told(cluster: MockCluster) -> None:
    for version in cluster.versions_of(ApiVersionsRequest):
        answer = cluster.connection.call(ApiVersionsRequest(), ApiVersionsResponse, version)
        assert {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys} == cluster.versions


def test_metadata_tells_the_same_in_every_version(cluster: MockCluster) -> None:
    known = cluster.create_topic("metadata")
    versions = cluster.versions_of(MetadataRequest)
    assert versions[-1] >= 12
    for version in versions:
        answer = cluster.metadata("metadata", version)
        assert [(broker.host, broker.port) for broker in answer.brokers] == [(cluster.host, cluster.port)]
        (topic,) = answer.topics
        assert (topic.name, topic.error_code) == ("metadata", ErrorCode.NONE)
        assert topic.topic_id == (known.topic_id if version >= 10 else Uuid.ZERO)
        leaders = {partition.partition_index: partition.leader_id for partition in topic.partitions}
        assert leaders == {partition.partition_index: answer.brokers[0].node_id for partition in known.partitions}


@pytest.mark.parametrize("codec", list(Codec))
def test_librdkafka_consumes_what_we_produce(cluster: MockCluster, codec: Codec) -> None:
    topic = cluster.create_topic(f"produced-{codec.name.lower()}")
    batch = ours(codec)
    assert batch[22] & 7 == codec
    versions = cluster.versions_of(ProduceRequest, lowest=7 if codec is Codec.ZSTD else 3)
    # The mock forgets the log's first offset in answers of version 5.
    versions = [version for version in versions if version != 5]
    for number, version in enumerate(versions):
        assert cluster.produce(topic, batch, version) == number * len(RECORDS)
    assert consumed(cluster, topic.name, len(versions) * len(RECORDS)) == RECORDS * len(versions)


@pytest.mark.parametrize("idempotent", [False, True])
@pytest.mark.parametrize("codec", list(Codec))
def test_we_fetch_what_librdkafka_produces(cluster: MockCluster, codec: Codec, idempotent: bool) -> None:
    topic = cluster.create_topic(f"fetched-{codec.name.lower()}-{idempotent}".lower())
    produced(cluster, topic.name, codec, enable_idempotence=idempotent)
    data = fetched(cluster, topic, len(RECORDS))
    assert decoded(data) == RECORDS
    batches = list(iter_batches(data))
    assert {batch.codec for batch in batches} == {codec}
    assert all(batch.has_producer_id is idempotent for batch in batches)
    columns = to_arrow(batches).to_pydict()
    assert columns["key"] == [key for _, key, _, _ in RECORDS]
    assert columns["value"] == [value for _, _, value, _ in RECORDS]
    assert columns["offset"] == list(range(len(RECORDS)))
    assert [round(time.timestamp() * 1000) for time in columns["timestamp"]] == [
        time_ms for time_ms, _, _, _ in RECORDS
    ]
    assert [[(header["key"], header["value"]) for header in headers] for headers in columns["headers"]] == [
        headers for _, _, _, headers in RECORDS
    ]


def test_fetching_gives_the_same_in_every_version(cluster: MockCluster) -> None:
    topic = cluster.create_topic("every-fetch")
    for codec in Codec:
        cluster.produce(topic, ours(codec))
    versions = cluster.versions_of(FetchRequest, lowest=4)
    assert versions[-1] >= 13, "topics by id are not covered"
    for version in versions:
        data = fetched(cluster, topic, len(Codec) * len(RECORDS), version)
        assert decoded(data) == RECORDS * len(Codec)


@pytest.mark.parametrize(("timestamp", "offset"), [(EARLIEST, 0), (LATEST, len(RECORDS))])
def test_offsets_are_listed_in_every_version(cluster: MockCluster, timestamp: int, offset: int) -> None:
    topic = cluster.create_topic(f"offsets{timestamp}")
    cluster.produce(topic, ours(Codec.NONE))
    for version in cluster.versions_of(ListOffsetsRequest):
        partition = ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic.name, partitions=[partition])])
        (answer,) = cluster.connection.call(request, ListOffsetsResponse, version).topics
        (found,) = answer.partitions
        assert found.error_code == ErrorCode.NONE
        assert found.old_style_offsets == [offset] if version == 0 else found.offset == offset


def test_the_coordinator_is_found_in_every_version(cluster: MockCluster) -> None:
    for version in cluster.versions_of(FindCoordinatorRequest):
        answer = cluster.connection.call(FindCoordinatorRequest(key="readers"), FindCoordinatorResponse, version)
        assert (answer.error_code, answer.host, answer.port) == (ErrorCode.NONE, cluster.host, cluster.port)


def test_producer_ids_are_given_in_every_version(cluster: MockCluster) -> None:
    given = set()
    versions = cluster.versions_of(InitProducerIdRequest)
    for version in versions:
        request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
        answer = cluster.connection.call(request, InitProducerIdResponse, version)
        assert (answer.error_code, answer.producer_epoch) == (ErrorCode.NONE, 0)
        assert answer.producer_id >= 0
        given.add(answer.producer_id)
    assert len(given) == len(versions)
