"""A naive model of what brokers do with batches of producers: one log per partition, and the rules for sequences.

Written from the rules alone, with plain lists, so that it shares nothing with the storage of this package.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from barnabas.base.error_codes import ErrorCode
from barnabas.records import BatchView

WINDOW = 5
MAX_SEQUENCE = 2**31 - 1


@dataclass
class Written:
    """A batch in the log."""

    producer_id: int
    epoch: int
    first: int
    last: int
    offset: int


@dataclass
class PartitionModel:
    """The log of one partition, as all its leaders see it, and what is remembered of producers."""

    #: Brokers before 2.4 refuse a producer that they do not know, unless it begins at 0.
    refuses_unknown: bool = False
    records: list[bytes] = field(default_factory=list)
    producers: dict[int, list[Written]] = field(default_factory=dict)
    #: Where the log ended when the producers were forgotten.
    forgot_at: list[int] = field(default_factory=list)
    log_start_offset: int = 0

    def append(self, batch: BatchView) -> tuple[ErrorCode, int]:
        """What a leader answers, and the base offset."""
        batch.check_crc()
        code, offset = self._judge(batch)
        if code is ErrorCode.NONE and offset < 0:
            offset = len(self.records)
            self.records += [bytes(record.value or b"") for record in batch.records()]
            if batch.producer_id >= 0:
                written = Written(
                    batch.producer_id, batch.producer_epoch, batch.base_sequence, batch.last_sequence, offset
                )
                window = self.producers.setdefault(batch.producer_id, [])
                if window and window[-1].epoch != written.epoch:
                    window.clear()
                window.append(written)
                del window[:-WINDOW]
        return code, offset

    def _judge(self, batch: BatchView) -> tuple[ErrorCode, int]:
        if batch.producer_id < 0:
            return ErrorCode.NONE, -1
        window = self.producers.get(batch.producer_id)
        if not window:
            if self.refuses_unknown and batch.base_sequence:
                return ErrorCode.UNKNOWN_PRODUCER_ID, -1
            return ErrorCode.NONE, -1
        newest = window[-1]
        if batch.producer_epoch < newest.epoch:
            return ErrorCode.INVALID_PRODUCER_EPOCH, -1
        if batch.producer_epoch > newest.epoch:
            return (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER if batch.base_sequence else ErrorCode.NONE), -1
        for each in window:
            if (each.first, each.last) == (batch.base_sequence, batch.last_sequence):
                return ErrorCode.NONE, each.offset
        if batch.base_sequence != (newest.last + 1) & MAX_SEQUENCE:
            return ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1
        return ErrorCode.NONE, -1

    def forget_producers(self) -> None:
        self.producers.clear()
        self.forgot_at.append(len(self.records))
