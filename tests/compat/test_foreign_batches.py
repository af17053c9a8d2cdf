"""Batches that others built are appended as they are; we read them back, and Kafka's tool does."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.records import Codec, iter_batches
from tests.compat.dumps import dumps, expected_gaps, expected_lines, gaps_in, lines_of
from tests.compat.mock_cluster import MockCluster, running_mock_cluster
from tests.compat.players import ABANDON, CLOSE, NOW_MS, SMALL, KafkaPlayer, OurPlayer, Record, from_client, opened
from tests.compat.stories import records
from tests.storage.logs import check_consistency, read_all


def by_aiokafka(codec: Codec, sent: list[Record]) -> bytes:
    module = pytest.importorskip("aiokafka.record._crecords", reason="aiokafka is not installed")
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, (time_ms, key, value, headers) in enumerate(sent):
        builder.append(number, time_ms, key, value, headers)
    return bytes(builder.build())


def by_kafka_python(codec: Codec, sent: list[Record]) -> bytes:
    module = pytest.importorskip("kafka.record.default_records", reason="kafka-python is not installed")
    builder = module.DefaultRecordBatchBuilder(
        magic=2,
        compression_type=int(codec),
        is_transactional=False,
        producer_id=-1,
        producer_epoch=-1,
        base_sequence=-1,
        batch_size=1 << 20,
    )
    for number, (time_ms, key, value, headers) in enumerate(sent):
        builder.append(number, time_ms, key, value, headers)
    return bytes(builder.build())


class Librdkafka:
    """Its producer sends to its mock cluster, where we fetch the bytes."""

    def __init__(self, cluster: MockCluster) -> None:
        self._cluster = cluster

    def __call__(self, codec: Codec, sent: list[Record]) -> bytes:
        confluent_kafka = pytest.importorskip("confluent_kafka", reason="confluent-kafka is not installed")
        topic = self._cluster.create_topic(f"batches-{codec.name.lower()}")
        producer = confluent_kafka.Producer(
            self._cluster.settings(compression_type=codec.name.lower(), linger_ms=200, enable_idempotence=True)
        )
        for time_ms, key, value, headers in sent:
            producer.produce(topic.name, value, key, partition=0, timestamp=time_ms, headers=headers)
        assert producer.flush(20) == 0
        data = self._cluster.fetch(topic)
        (batch,) = iter_batches(data)
        assert batch.record_count == len(sent)
        return data


@pytest.fixture(params=["aiokafka", "kafka-python", "librdkafka"])
def build(request: pytest.FixtureRequest) -> Iterator[Callable[[Codec, list[Record]], bytes]]:
    if request.param == "librdkafka":
        with running_mock_cluster() as cluster:
            yield Librdkafka(cluster)
    else:
        yield by_aiokafka if request.param == "aiokafka" else by_kafka_python


@pytest.fixture
def written(tmp_path: Path, build: Callable[[Codec, list[Record]], bytes]) -> tuple[Path, list[Record]]:
    """A log of such batches, closed, and the records that went into it."""
    directory = tmp_path / "clicks-3"
    player = OurPlayer()
    player.play([opened(directory, SMALL)])
    expected: list[Record] = []
    for step, codec in enumerate(Codec):
        sent = records(step, 7, NOW_MS + 10 * step, size_bytes=100)
        (answer,) = player.play([from_client(build(codec, sent), leader_epoch=step)])
        assert answer == [len(expected), len(expected) + len(sent) - 1, -1]
        expected += sent
    player.play([CLOSE])
    return directory, expected


@pytest.mark.parametrize("was_clean", [True, False])
def test_a_log_of_others_batches_is_read_back(written: tuple[Path, list[Record]], was_clean: bool) -> None:
    directory, expected = written
    player = OurPlayer()
    player.play([opened(directory, SMALL, was_clean=was_clean)])
    check_consistency(player.log)
    found = [record for data in read_all(player.log) for batch in iter_batches(data) for record in batch]
    assert [(record.timestamp_ms, record.key, record.value, list(record.headers)) for record in found] == expected
    assert [record.offset for record in found] == list(range(len(expected)))
    assert {batch.codec for batch in player.log.batches(0)} == set(Codec)
    player.play([CLOSE])


def test_kafkas_tool_reads_a_log_of_others_batches(written: tuple[Path, list[Record]], kafka: KafkaPlayer) -> None:
    directory, _ = written
    player = OurPlayer()
    player.play([opened(directory, SMALL)])
    for kind, command in dumps(directory).items():
        (printed,) = kafka.play([command])
        if kind in ("log", "index", "timeindex"):
            assert lines_of(printed) == expected_lines(kind, player.log)
            assert gaps_in(printed) == (expected_gaps(player.log) if kind == "log" else [])
    player.play([ABANDON])
