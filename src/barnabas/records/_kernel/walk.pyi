from collections.abc import Callable
from typing import Generic, Self, TypeVar

from typing_extensions import Buffer

_Entry = TypeVar("_Entry")

class EntryWalk(Generic[_Entry]):
    """Iterates over the log entries (batches, or old messages) in a buffer; `make` turns each entry's bytes into one.

    Where both may come, `make_old` is for those of the formats before today's. The walk ends before an entry that the
    buffer holds only in part: `truncated` then says so, and `position` is where that entry begins.
    """

    def __init__(
        self,
        buffer: Buffer,
        make: Callable[[memoryview], _Entry],
        make_old: Callable[[memoryview], _Entry] | None = None,
    ) -> None: ...
    @property
    def position(self) -> int: ...
    @property
    def truncated(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> _Entry: ...

class BatchHeader:
    """The header of one batch of format 2, over `data`, the bytes of the whole batch."""

    def __init__(self, data: Buffer) -> None: ...
    @property
    def data(self) -> memoryview: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def base_offset(self) -> int: ...
    @property
    def leader_epoch(self) -> int: ...
    @property
    def magic(self) -> int: ...
    @property
    def crc(self) -> int: ...
    @property
    def attributes(self) -> int: ...
    @property
    def last_offset_delta(self) -> int: ...
    @property
    def base_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int: ...
    @property
    def producer_id(self) -> int: ...
    @property
    def producer_epoch(self) -> int: ...
    @property
    def base_sequence(self) -> int: ...
    @property
    def record_count(self) -> int: ...
    @property
    def last_offset(self) -> int: ...
    @property
    def next_offset(self) -> int: ...
    def is_intact(self) -> bool:
        """Whether the batch is as its builder left it, by its CRC."""
    def follows(self, next_offset: int, bound: int) -> bool:
        """Whether the batch begins just at `next_offset`, ends before `bound`, and leaves out no offset."""
    def stamp(self, *, base_offset: int, leader_epoch: int) -> None:
        """Give the batch its place in the log. The CRC covers neither field."""
    def summarise_if_usual(self) -> RecordSummary | None:
        """What the records of a batch are like that a producer has just sent, if nothing is unusual about it.

        Usual is: in writable memory, with the base offset 0, not compressed, no control batch, timestamps of the
        producer; offsets that count up from 0; a header that agrees with the records, in the CRC and the highest
        timestamp too; a sequence if there is a producer id. None for all else, also for what is wrong: whoever has
        the time to look closely can say what it is.
        """
    def read_header(self) -> None:
        """Read the fields from `data` again, for those who have just written there."""

class RecordSummary:
    """What a walk over all records of a batch found. An index of -1 means that no record is of that kind."""

    @property
    def record_count(self) -> int: ...
    @property
    def last_offset_delta(self) -> int:
        """Of the last record present, which after compaction may be lower than the header's."""
    @property
    def first_gap(self) -> int:
        """Index of the first record whose offset delta is not its index."""
    @property
    def first_disorder(self) -> int:
        """Index of the first record whose offset delta is not above the one before it."""
    @property
    def first_null_key(self) -> int: ...
    @property
    def min_timestamp_ms(self) -> int:
        """As the producer wrote it; -1 in a batch without records."""
    @property
    def max_timestamp_ms(self) -> int:
        """As the producer wrote it; -1 in a batch without records."""
    @property
    def max_timestamp_offset_delta(self) -> int:
        """Of the first record with the highest timestamp; -1 in a batch without records."""

def summarise_records(payload: Buffer, record_count: int, base_timestamp_ms: int) -> RecordSummary:
    """Check the form of every record in `payload` (decompressed) and tell what a broker needs to know of them."""
