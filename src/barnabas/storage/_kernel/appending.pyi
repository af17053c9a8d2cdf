from barnabas.storage.files import File
from barnabas.storage.indexes import OffsetIndex, TimeIndex
from barnabas.storage.leader_epochs import LeaderEpochs
from barnabas.storage.passing_trouble import PassingTrouble
from barnabas.storage.producer_state import ProducerStates
from barnabas.storage.segment import Segment
from barnabas.storage.settings import TopicSettings

class AppendRules:
    """What a topic asks of batches, put together once: it is looked at for every batch.

    `keeps_form`: whether batches stay as they were sent, with their producer's codec and timestamps.
    """

    def __init__(
        self,
        *,
        max_batch_bytes: int,
        keeps_form: bool,
        needs_keys: bool,
        timestamp_before_max_ms: int,
        timestamp_after_max_ms: int,
        segment_limit_bytes: int,
        segment_ms: int,
        flush_messages: int,
    ) -> None: ...
    @property
    def max_batch_bytes(self) -> int: ...
    @property
    def keeps_form(self) -> bool: ...
    def admits(
        self, size_bytes: int, first_null_key: int, min_timestamp_ms: int, max_timestamp_ms: int, now_ms: int
    ) -> bool:
        """Whether a batch without peculiarities may stay as it is. `now_ms` is not negative."""

class DescriptorFile:
    """A file that has a descriptor at times; else it is -1. Both change under the interpreter's lock alone.

    `used`: since the last look for a descriptor to close.
    """

    descriptor: int
    used: bool

class ProducerStateEntry:
    """What a partition knows of one producer."""

    def __init__(self, epoch: int) -> None: ...
    epoch: int
    coordinator_epoch: int
    timestamp_ms: int
    transaction_offset: int
    """The first offset of the open transaction, or -1."""
    next_sequence: int
    """What a batch may have that is certainly in order and no duplicate; others are looked at closely."""
    batches: list[tuple[int, int, int, int, int]]
    """(first sequence, last sequence, first offset, last offset, timestamp) of each, the newest last."""

    def start_epoch(self, epoch: int) -> None: ...
    def remember(
        self, first_sequence: int, last_sequence: int, first_offset: int, last_offset: int, timestamp_ms: int
    ) -> None:
        """Take note of a batch that is in the log, in the order of the log."""

class ProducerTable:
    """Producers by their ids, and transactions whose markers are not replicated: first offset to marker's offset."""

    @property
    def _producers(self) -> dict[int, ProducerStateEntry]: ...
    @property
    def _unreplicated(self) -> dict[int, int]: ...

class SegmentTail:
    """Where a segment ends, and what its indexes do not say yet."""

    file: File
    offset_index: OffsetIndex
    time_index: TimeIndex
    base_offset: int
    size_bytes: int
    is_index_full: bool
    _bytes_since_entry: int
    _index_interval_bytes: int
    _max_timestamp: tuple[int, int] | None
    _indexed_timestamp: tuple[int, int] | None
    _first_timestamp_ms: int | None

    @property
    def recent(self) -> dict[int, tuple[int, int, int]]:
        """Where the last few batches lie, by their first offsets: readers that keep up need not look for them."""

    def note_batch(self, position: int, size_bytes: int, last_offset: int, max_timestamp_ms: int) -> None:
        """Keep the indexes and the highest timestamp up to date with a batch that lies at `position`."""

    def remember(self, first_offset: int, position: int, size_bytes: int, last_offset: int) -> None:
        """Note where a batch lies that was just written, and forget the oldest of those that were."""

class LogTail:
    """Where a log ends, and what is known there."""

    settings: TopicSettings
    producers: ProducerStates
    epochs: LeaderEpochs
    trouble: PassingTrouble | None
    _segments: list[Segment]
    log_start_offset: int
    log_end_offset: int
    high_watermark: int
    recovery_point: int
    _active_since_ms: int
    _jitter_ms: int

    def append_from_leader(self, records: memoryview, leader_epoch: int, now_ms: int) -> bool:
        """Append what the leader of this epoch sent if it is one ordinary batch that follows upon the log's end;
        whether it was. If it cannot be written (`OSError`), the log is as it was."""
