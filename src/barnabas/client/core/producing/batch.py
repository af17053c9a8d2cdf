"""A batch of one partition, from its first record to its acknowledgement."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.base.errors import check
from barnabas.client._kernel.sending import BatchRoom, Delivery
from barnabas.records import BatchBuilder, BatchView, Codec, add_to_sequence
from barnabas.records.batch import HEADER, NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

if TYPE_CHECKING:
    from barnabas.base.ids import TopicPartition
    from barnabas.client._kernel.sending import Home

BATCH_HEAD_BYTES: Final = HEADER.size
_UNKNOWN_EPOCH: Final = -1


class ProducerBatch(BatchRoom):
    """Records that travel together, and what has become of them so far.

    `send` appends to it, without a lock, until `is_closed`; it is closed when it is full or taken to be sent, and never
    opens again. After that only the sender touches it.
    """

    __slots__ = (
        "_codec",
        "_encoded",
        "_epoch_at_last_change",
        "_leader_epoch",
        "_level",
        "_stamped",
        "attempts",
        "base_sequence",
        "builder",
        "created_ms",
        "drained_ms",
        "is_grown",
        "is_released",
        "is_split",
        "is_transactional",
        "partition",
        "producer_epoch",
        "producer_id",
        "queued_ms",
        "reserved_bytes",
        "retry_at_ms",
    )

    def __init__(
        self,
        partition: TopicPartition,
        limit_bytes: int,
        created_ms: int,
        *,
        home: Home | None = None,
        codec: Codec = Codec.NONE,
        level: int | None = None,
        reserved_bytes: int = 0,
        is_split: bool = False,
    ) -> None:
        builder = BatchBuilder(limit_bytes, codec=codec, level=level, allow_oversized=True)
        super().__init__(builder, Delivery(partition.topic, partition.partition, home))
        self.partition = partition
        self.builder = builder
        self.created_ms = created_ms
        #: When it came into its queue the last time: linger.ms counts from here.
        self.queued_ms = created_ms
        self.drained_ms = -1
        #: How often it went back into its queue after a failure.
        self.attempts = 0
        #: Not to be sent again before this, unless the partition gets another leader.
        self.retry_at_ms = 0
        self.reserved_bytes = reserved_bytes
        #: It has what a batch begins with, and was given room for more: it is to be sent.
        self.is_grown = False
        self.is_released = False
        self.is_split = is_split
        self.is_transactional = False
        self.producer_id = NO_PRODUCER_ID
        self.producer_epoch = NO_PRODUCER_EPOCH
        self.base_sequence = NO_SEQUENCE
        self._codec = codec
        self._level = level
        self._encoded: bytearray | None = None
        self._stamped = (NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, False)
        self._leader_epoch = _UNKNOWN_EPOCH
        self._epoch_at_last_change = -1

    def __repr__(self) -> str:
        return (
            f"<batch of {self.record_count} records for {self.partition}, {self.size_bytes} bytes, "
            f"sequence {self.base_sequence}, attempts {self.attempts}>"
        )

    @property
    def record_count(self) -> int:
        return self.builder.record_count

    @property
    def size_bytes(self) -> int:
        """As it will travel, header included; before it is encoded, as if nothing were compressed."""
        return len(self._encoded) if self._encoded is not None else self.builder.size_bytes

    @property
    def uncompressed_bytes(self) -> int:
        return self.builder.size_bytes

    @property
    def largest_record_bytes(self) -> int:
        return self.builder.largest_record_bytes

    @property
    def is_full(self) -> bool:
        return self.is_closed or self.builder.size_bytes >= self.builder.limit_bytes

    @property
    def is_done(self) -> bool:
        """Whether its records are acknowledged or given up."""
        return self.delivery.is_done

    @property
    def has_sequence(self) -> bool:
        return self.base_sequence != NO_SEQUENCE

    @property
    def last_sequence(self) -> int:
        return add_to_sequence(self.base_sequence, self.record_count - 1) if self.has_sequence else NO_SEQUENCE

    def set_producer_state(
        self, producer_id: int, producer_epoch: int, base_sequence: int, transactional: bool = False
    ) -> None:
        """Number the batch. It may be numbered anew, as after a new epoch: what `encoded` gives then follows."""
        self.producer_id = producer_id
        self.producer_epoch = producer_epoch
        self.base_sequence = base_sequence
        self.is_transactional = transactional

    def encoded(self) -> bytearray:
        """The batch as it travels: built and compressed once, closed by it. Its header follows the producer's state.

        A new state makes a new copy: the old bytes may still lie in the buffer of a connection.
        """
        self.close()
        state = (self.producer_id, self.producer_epoch, self.base_sequence, self.is_transactional)
        if self._encoded is None:
            self.builder.set_producer_state(*state[:3])
            self.builder.transactional = self.is_transactional
            self._encoded = self.builder.build()
        elif state != self._stamped:
            check(self._stamped[3] == self.is_transactional, f"{self} was transactional and is not, or the reverse")
            self._encoded = bytearray(self._encoded)
            BatchView(self._encoded).stamp_producer(
                producer_id=self.producer_id, producer_epoch=self.producer_epoch, base_sequence=self.base_sequence
            )
        self._stamped = state
        return self._encoded

    def split(self, limit_bytes: int) -> list[ProducerBatch]:
        """The same records in batches of at most `limit_bytes`; the futures of the records follow them.

        Numbers are handed on, if there are any. A record that is alone too large gets a batch for itself.
        """
        parts: list[ProducerBatch] = []
        for record in BatchView(self.encoded()).records():
            content = (record.value, record.key, record.timestamp_ms, record.headers)
            if not parts or parts[-1].builder.append(*content) is None:
                parts.append(self._part(limit_bytes))
                parts[-1].builder.append(*content)
        sequence = self.base_sequence
        for part in parts:
            part.close()
            if self.has_sequence:
                part.set_producer_state(self.producer_id, self.producer_epoch, sequence, self.is_transactional)
                sequence = add_to_sequence(sequence, part.record_count)
        self.delivery.split_into([(part.delivery, part.record_count) for part in parts])
        return parts

    def _part(self, limit_bytes: int) -> ProducerBatch:
        part = ProducerBatch(
            self.partition,
            limit_bytes,
            self.created_ms,
            home=self.delivery.home,
            codec=self._codec,
            level=self._level,
            is_split=True,
        )
        part.queued_ms = self.queued_ms
        part.attempts = self.attempts
        return part

    def note_leader_epoch(self, leader_epoch: int) -> None:
        """Waiting before another attempt is for leaders that may still be there: a new one is tried at once."""
        if leader_epoch > self._leader_epoch:
            self._leader_epoch = leader_epoch
            self._epoch_at_last_change = self.attempts

    def is_backing_off(self, now_ms: int) -> bool:
        return 0 < self.attempts != self._epoch_at_last_change and now_ms < self.retry_at_ms

    def has_timed_out(self, delivery_timeout_ms: int, now_ms: int) -> bool:
        return now_ms - self.created_ms >= delivery_timeout_ms
