"""Logs written straight into the folder of a broker, as other brokers, compaction and transactions leave them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from random import Random

from confluent_kafka import Consumer, TopicPartition
from kafka.record.legacy_records import LegacyRecordBatchBuilder

from barnabas.records import BatchBuilder, BatchView, Codec, TransactionMarker, build_marker
from barnabas.testing import EmbeddedBroker

TIME_MS = 1_700_000_000_000
PATIENCE_S = 20.0

#: Where these lie in a batch.
_CRC = slice(17, 21)
_LAST_DELTA = slice(23, 27)

#: key, value, offset, timestamp, its type, headers: a row as Spark sees it, without topic and partition.
Row = tuple[bytes | None, bytes | None, int, int, int, list[tuple[str, bytes | None]] | None]


@dataclass
class Log:
    """Entries back to back, each at its offset."""

    entries: list[bytes] = field(default_factory=list)
    end: int = 0

    def batch(
        self,
        values: Iterable[bytes | None],
        *,
        key: bytes | None = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        codec: Codec = Codec.NONE,
        deltas: Iterable[int] | None = None,
        length: int | None = None,
        producer_id: int = -1,
        append_time_ms: int | None = None,
        timestamp_ms: int = TIME_MS,
    ) -> Log:
        """A batch of today's format. With `deltas` and a `length` it looks as compaction leaves it."""
        values = list(values)
        deltas = list(range(len(values)) if deltas is None else deltas)
        is_transactional = producer_id >= 0
        builder = BatchBuilder(
            1 << 24,
            codec=codec,
            log_append_time_ms=append_time_ms,
            producer_id=producer_id,
            producer_epoch=0 if is_transactional else -1,
            base_sequence=0 if is_transactional else -1,
            transactional=is_transactional,
        )
        for value, delta in zip(values, deltas, strict=True):
            builder.append(value, key, timestamp_ms + self.end + delta, headers, delta)
        built = builder.build()
        view = BatchView(built)
        view.stamp(base_offset=self.end, leader_epoch=0)
        if length is not None:
            # Compaction keeps the last offset of a batch, whether or not its record is still there.
            built[_LAST_DELTA] = (length - 1).to_bytes(4, "big")
            built[_CRC] = view.computed_crc().to_bytes(4, "big")
        self.entries.append(bytes(built))
        self.end += BatchView(built).last_offset_delta + 1
        return self

    def marker(self, producer_id: int, *, is_commit: bool) -> Log:
        """The end of a transaction: an offset without a record for anybody."""
        built = build_marker(TransactionMarker(producer_id, 0, 0, is_commit), TIME_MS)
        BatchView(built).stamp(base_offset=self.end, leader_epoch=0)
        self.entries.append(bytes(built))
        self.end += 1
        return self

    def old(self, values: Iterable[bytes], *, magic: int, codec: int = 0) -> Log:
        """Messages of format 0 or 1, as another client's code writes them."""
        builder = LegacyRecordBatchBuilder(magic=magic, compression_type=codec, batch_size=1 << 20)
        values = list(values)
        first = 0 if codec else self.end
        for number, value in enumerate(values):
            builder.append(first + number, TIME_MS + number, None, value)
        built = bytearray(builder.build())
        if codec and magic == 1:
            # A wrapper of format 1 has the offset of its last message, and those within count from 0.
            built[:8] = (self.end + len(values) - 1).to_bytes(8, "big")
        self.entries.append(bytes(built))
        self.end += len(values)
        return self

    def gap(self, offsets: int) -> Log:
        """Whole batches that are compacted away."""
        self.end += offsets
        return self


def write(folder: Path, logs: Mapping[str, Log]) -> None:
    """Make each of these a topic of one partition in a broker's folder, and let the broker find them when it starts."""
    with EmbeddedBroker(folder) as broker:
        for topic in logs:
            broker.create_topic(topic)
    for topic, log in logs.items():
        partition = next(folder.rglob(f"{topic}-0"))
        for each in partition.glob("*index"):
            each.unlink()
        (partition / "00000000000000000000.log").write_bytes(b"".join(log.entries))
    # After a stop that was not clean a broker looks at every batch, and finds out what it must know of them.
    for each in folder.rglob(".kafka_cleanshutdown"):
        each.unlink()
    for each in folder.rglob("recovery-point-offset-checkpoint"):
        each.unlink()


def seen_by_librdkafka(bootstrap: str, topic: str, *, read_committed: bool) -> list[Row]:
    """All records that another client sees."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "oracle",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": "read_committed" if read_committed else "read_uncommitted",
            "fetch.wait.max.ms": 10,
        }
    )
    rows: list[Row] = []
    consumer.assign([TopicPartition(topic, 0, 0)])
    try:
        while True:
            message = consumer.poll(PATIENCE_S)
            assert message is not None, f"nothing more of {topic} after {len(rows)} records"
            error = message.error()
            if error is not None:
                assert error.name() == "_PARTITION_EOF", error
                return rows
            kind, timestamp_ms = message.timestamp()
            offset = message.offset()
            assert offset is not None
            # librdkafka counts the types from 0 for none, and gives those without a timestamp 0, where Kafka has -1.
            timestamp_ms = timestamp_ms if kind else -1
            rows.append((message.key(), message.value(), offset, timestamp_ms, kind - 1, message.headers() or None))
    finally:
        consumer.close()


def random_log(randomness: Random) -> Log:
    """Whatever may lie in a partition: batches of all sizes and codecs, gaps, transactions one inside another."""
    log = Log()
    open_ids: list[int] = []
    for number in range(randomness.randrange(1, 25)):
        kind = randomness.random()
        if kind < 0.15:
            producer_id = 100 + number
            open_ids.append(producer_id)
            log.batch([b"t%d" % number] * randomness.randrange(1, 6), producer_id=producer_id)
        elif kind < 0.35 and open_ids:
            log.marker(open_ids.pop(randomness.randrange(len(open_ids))), is_commit=randomness.random() < 0.5)
        elif kind < 0.45:
            log.gap(randomness.randrange(1, 10))
        else:
            _random_batch(log, randomness, number)
    # Compaction leaves the last batch where it is; what follows it may be nothing for the program.
    log.batch([b"last"])
    for producer_id in open_ids:
        log.marker(producer_id, is_commit=randomness.random() < 0.5)
    return log


def _random_batch(log: Log, randomness: Random, number: int) -> None:
    length = randomness.choice([1, 3, 10, 200])
    deltas = sorted(randomness.sample(range(length), randomness.randrange(1, length + 1)))
    log.batch(
        [None if randomness.random() < 0.1 else b"v" * randomness.choice([0, 1, 50, 2000]) for _ in deltas],
        key=randomness.choice([None, b"", b"key"]),
        headers=randomness.choice([(), (), [("a", b"1"), ("a", None)], [("", b"")]]),
        codec=randomness.choice([Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4, Codec.ZSTD, Codec.SNAPPY]),
        deltas=deltas,
        length=length,
        append_time_ms=randomness.choice([None, None, TIME_MS + number]),
    )
