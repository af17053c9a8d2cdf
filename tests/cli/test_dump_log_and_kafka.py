"""`dump-log` prints, line for line, what Kafka's own tool prints of the files that Kafka wrote."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from tests.cli.tools import Tools, run_kafka
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer

pytestmark = needs_kafka()

DUMP = "org.apache.kafka.tools.DumpLogSegments"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The directory of a Kafka that has seen all kinds of records."""
    folder = tmp_path_factory.mktemp("kafka")
    overrides = {
        "metadata.log.max.record.bytes.between.snapshots": "500",
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.num.partitions": "1",
    }
    with KafkaServer(folder, overrides) as server:
        _write_everything(server.bootstrap)
    return folder / "data"


def _write_everything(bootstrap: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap})
    topic = NewTopic("clicks", num_partitions=1, replication_factor=1, config={"index.interval.bytes": "200"})
    for created in admin.create_topics([topic]).values():
        created.result(30)
    for codec in ("none", "gzip", "snappy", "lz4", "zstd"):
        _produce({"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 50})
    for number in range(3):
        _produce({"bootstrap.servers": bootstrap, "transactional.id": f"teller {number}"}, commits=number != 1)
    _consume(bootstrap, "readers")
    _consume(bootstrap, "gone")
    for deleted in admin.delete_consumer_groups(["gone"]).values():
        deleted.result(30)


def _produce(settings: dict[str, Any], *, commits: bool | None = None) -> None:
    producer = Producer(settings)
    if "transactional.id" in settings:
        producer.init_transactions(30)
        producer.begin_transaction()
    for number in range(12):
        producer.produce(
            "clicks",
            value=None if number == 5 else f"værdi {number}" * 10,
            key=None if number == 3 else f"key {number}",
            headers=[("trace", b"1"), ("empty", None)] if number % 4 == 0 else None,
        )
    producer.flush(30)
    if "transactional.id" in settings:
        producer.commit_transaction(30) if commits else producer.abort_transaction(30)


def _consume(bootstrap: str, group: str) -> None:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    consumer.subscribe(["clicks"])
    while consumer.poll(1) is None:
        pass
    consumer.commit(offsets=[TopicPartition("clicks", 0, 7, "a note")], asynchronous=False)
    consumer.close()


def same(barnabas: Tools, *arguments: str) -> str:
    kafkas, ours = run_kafka(DUMP, arguments), barnabas("dump-log", *arguments)
    assert ours.out.splitlines() == kafkas.out.splitlines()
    assert ours.err.splitlines() == kafkas.err.splitlines()
    assert ours.code == kafkas.code == 0
    return ours.out


def files(directory: Path, pattern: str) -> str:
    found = sorted(directory.glob(pattern))
    assert found, f"no {pattern} in {directory}"
    return ",".join(map(str, found))


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--deep-iteration",),
        ("--print-data-log",),
        ("--print-data-log", "--skip-record-metadata"),
        ("--max-bytes", "3000"),
    ],
    ids=" ".join,
)
def test_a_log_of_records(barnabas: Tools, data: Path, options: tuple[str, ...]) -> None:
    told = same(barnabas, *options, "--files", files(data / "clicks-0", "*.log"))
    assert len(told.splitlines()) > 3


@pytest.mark.parametrize("options", [(), ("--index-sanity-check",), ("--verify-index-only",)], ids=" ".join)
def test_indexes_and_snapshots(barnabas: Tools, data: Path, options: tuple[str, ...]) -> None:
    told = same(barnabas, *options, "--files", files(data / "clicks-0", "*.[its]*[xt]"))
    assert "producerId" in told


@pytest.mark.parametrize(
    ("directory", "decoder"),
    [
        ("__consumer_offsets-0", "--offsets-decoder"),
        ("__transaction_state-0", "--transaction-log-decoder"),
        ("__cluster_metadata-0", "--cluster-metadata-decoder"),
    ],
)
def test_internal_topics(barnabas: Tools, data: Path, directory: str, decoder: str) -> None:
    told = same(barnabas, decoder, "--files", files(data / directory, "*.log"))
    assert "payload: {" in told


def test_metadata_snapshots(barnabas: Tools, data: Path) -> None:
    same(barnabas, "--cluster-metadata-decoder", "--files", files(data / "__cluster_metadata-0", "*.checkpoint"))
    told = same(barnabas, "--cluster-metadata-decoder", "--files", str(data / "bootstrap.checkpoint"))
    assert "KRaft bootstrap snapshot" in told


def test_damage(barnabas: Tools, data: Path, tmp_path: Path) -> None:
    """A log that ends within a batch, and a batch whose bytes have changed."""
    (source,) = (data / "clicks-0").glob("*.log")
    cut = tmp_path / source.name
    cut.write_bytes(source.read_bytes()[:-10])
    assert "invalid bytes at the end" in same(barnabas, "--files", str(cut))
    changed = bytearray(source.read_bytes())
    changed[70] ^= 1
    cut.write_bytes(changed)
    assert "isvalid: false" in same(barnabas, "--files", str(cut))


def test_an_index_that_does_not_fit_its_log(barnabas: Tools, data: Path, tmp_path: Path) -> None:
    for path in (data / "clicks-0").glob("0*"):
        shutil.copy(path, tmp_path)
    (index,) = tmp_path.glob("*.index")
    raw = bytearray(index.read_bytes())
    raw[3] += 1
    index.write_bytes(raw)
    (time_index,) = tmp_path.glob("*.timeindex")
    raw = bytearray(time_index.read_bytes())
    raw[7] ^= 1
    time_index.write_bytes(raw)
    same(barnabas, "--verify-index-only", "--files", f"{index},{time_index}")
