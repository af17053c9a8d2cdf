"""Building batches of format 2, record by record."""

from __future__ import annotations

from crc32c import crc32c

from barnabas.base.errors import LocalProtocolError
from barnabas.records._kernel.build import RecordBuffer
from barnabas.records.batch import (
    APPEND_TIME_BIT,
    ATTRIBUTES_AT,
    CODEC_MASK,
    CONTROL_BIT,
    CRC_AT,
    DELETE_HORIZON_BIT,
    FRAME_BYTES,
    HEADER,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP_MS,
    TRANSACTIONAL_BIT,
    BatchView,
)
from barnabas.records.compression import DEFAULT_LIMIT_BYTES, Codec, check_level, compress

MAGIC = 2


class BatchBuilder(RecordBuffer):
    """Collects records until its limit, then gives the batch: base offset 0, no leader epoch, ready to be stamped.

    The limit holds for the batch as built, and because nobody knows beforehand how well records compress, also for its
    records before compression. Records that compression would make larger go uncompressed. A record that is alone
    larger than the limit is refused, unless `allow_oversized` lets a first record in: it then has the batch for itself.
    The producer's state may be set at any time before `build`, as an idempotent producer draws it when it sends.
    """

    __slots__ = (
        "base_offset",
        "base_sequence",
        "codec",
        "control",
        "delete_horizon_ms",
        "leader_epoch",
        "level",
        "log_append_time_ms",
        "producer_epoch",
        "producer_id",
        "transactional",
    )

    def __init__(
        self,
        limit_bytes: int,
        *,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        producer_id: int = NO_PRODUCER_ID,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        base_sequence: int = NO_SEQUENCE,
        transactional: bool = False,
        control: bool = False,
        base_offset: int = 0,
        leader_epoch: int = NO_LEADER_EPOCH,
        log_append_time_ms: int | None = None,
        delete_horizon_ms: int | None = None,
        allow_oversized: bool = False,
    ) -> None:
        super().__init__(limit_bytes, HEADER.size, base_timestamp_ms=delete_horizon_ms, allow_oversized=allow_oversized)
        check_level(codec, level)
        self.codec = codec
        self.level = level
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.transactional = transactional
        self.control = control
        self.base_offset = base_offset
        self.leader_epoch = leader_epoch
        self.log_append_time_ms = log_append_time_ms
        self.delete_horizon_ms = delete_horizon_ms

    def set_producer_state(self, producer_id: int, producer_epoch: int, base_sequence: int) -> None:
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence

    def build(self) -> bytearray:
        """The finished batch. Nothing can be appended afterwards."""
        if not self.record_count:
            raise LocalProtocolError("a batch needs at least one record")
        if self.transactional and self.producer_id == NO_PRODUCER_ID:
            raise LocalProtocolError("a transactional batch needs a producer id")
        codec = self.codec
        if codec is Codec.NONE:
            batch = self.take()
        else:
            codec, batch = self._compressed()
        max_timestamp_ms = self.max_timestamp_ms if self.log_append_time_ms is None else self.log_append_time_ms
        HEADER.pack_into(
            batch,
            0,
            self.base_offset,
            len(batch) - FRAME_BYTES,
            self.leader_epoch,
            MAGIC,
            0,
            self._attributes(codec),
            self.last_offset_delta,
            self.base_timestamp_ms,
            max_timestamp_ms,
            self.producer_id,
            self.producer_epoch,
            self.base_sequence,
            self.record_count,
        )
        _seal(batch)
        return batch

    def _compressed(self) -> tuple[Codec, bytearray]:
        with self.view() as view, view[HEADER.size :] as records:
            compressed = memoryview(compress(self.codec, records, self.level))
            is_smaller = compressed.nbytes < records.nbytes
        uncompressed = self.take()
        return (self.codec, bytearray(HEADER.size) + compressed) if is_smaller else (Codec.NONE, uncompressed)

    def _attributes(self, codec: Codec) -> int:
        return (
            codec
            | (APPEND_TIME_BIT if self.log_append_time_ms is not None else 0)
            | (TRANSACTIONAL_BIT if self.transactional else 0)
            | (CONTROL_BIT if self.control else 0)
            | (DELETE_HORIZON_BIT if self.delete_horizon_ms is not None else 0)
        )


def recoded(
    batch: BatchView, codec: Codec, level: int | None = None, limit_bytes: int = DEFAULT_LIMIT_BYTES
) -> bytearray:
    """The batch with its records under another codec. Their bytes stay as they are, and so does the rest of the header.

    Unlike a builder it compresses also what does not get smaller: a topic with a codec has it in all batches.
    """
    room = bytearray(HEADER.size) + memoryview(compress(codec, batch.payload(limit_bytes), level))
    return rebuilt(batch, room, batch.record_count, attributes=batch.attributes & ~CODEC_MASK | codec)


def emptied(batch: BatchView) -> bytearray:
    """What compaction keeps of a batch whose records are all gone, so that its offsets and its producer stay known."""
    attributes = batch.attributes & (APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT)
    return rebuilt(batch, bytearray(HEADER.size), 0, attributes=attributes, base_timestamp_ms=NO_TIMESTAMP_MS)


def rebuilt(
    batch: BatchView,
    room: bytearray,
    record_count: int,
    *,
    attributes: int | None = None,
    base_timestamp_ms: int | None = None,
    max_timestamp_ms: int | None = None,
) -> bytearray:
    """The batch with other records, which lie in `room` behind the place of the header. What is not given stays."""
    HEADER.pack_into(
        room,
        0,
        batch.base_offset,
        len(room) - FRAME_BYTES,
        batch.leader_epoch,
        MAGIC,
        0,
        batch.attributes if attributes is None else attributes,
        batch.last_offset_delta,
        batch.base_timestamp_ms if base_timestamp_ms is None else base_timestamp_ms,
        batch.max_timestamp_ms if max_timestamp_ms is None else max_timestamp_ms,
        batch.producer_id,
        batch.producer_epoch,
        batch.base_sequence,
        record_count,
    )
    _seal(room)
    return room


def _seal(batch: bytearray) -> None:
    with memoryview(batch) as view:
        batch[CRC_AT:ATTRIBUTES_AT] = crc32c(view[ATTRIBUTES_AT:]).to_bytes(4, "big")
