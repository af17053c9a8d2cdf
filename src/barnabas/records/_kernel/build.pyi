from collections.abc import Iterable

from typing_extensions import Buffer

from barnabas.records._kernel.columns import RowColumns

_Headers = Iterable[tuple[str, Buffer | None]]

def max_record_size_bytes(value: Buffer | None, key: Buffer | None, headers: _Headers = ()) -> int:
    """The most that a record can add to a batch, wherever in the batch it comes to lie."""

class RecordBuffer:
    """A growing run of records behind `head_bytes` of free room. It never grows past `limit_bytes`, head included.

    The one exception is asked for with `allow_oversized`: then a first record that is too large gets in, alone.
    Timestamps are written as distances from `base_timestamp_ms`, which is the first record's unless given.
    """

    def __init__(
        self,
        limit_bytes: int,
        head_bytes: int,
        *,
        base_timestamp_ms: int | None = None,
        allow_oversized: bool = False,
    ) -> None: ...
    @property
    def allow_oversized(self) -> bool: ...
    @property
    def head_bytes(self) -> int: ...
    @property
    def limit_bytes(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Head and records so far, uncompressed."""
    @property
    def record_count(self) -> int: ...
    @property
    def last_offset_delta(self) -> int:
        """-1 while there is no record."""
    @property
    def base_timestamp_ms(self) -> int: ...
    @property
    def max_timestamp_ms(self) -> int:
        """-1 while there is no record."""
    @property
    def largest_record_bytes(self) -> int:
        """0 while there is no record."""
    def append(
        self,
        value: Buffer | None,
        key: Buffer | None,
        timestamp_ms: int,
        headers: _Headers = (),
        offset_delta: int = -1,
    ) -> int | None:
        """Add a record and return its offset delta, or None if the batch is full.

        A record that no batch of this limit could take is refused with `LocalProtocolError`. Offset deltas count up
        from 0; give `offset_delta` to leave a gap, as compaction does.
        """
    def append_rows(self, rows: RowColumns, first: int, stop: int) -> int:
        """Add the rows from `first` up to `stop`, as far as they fit, and return the first that did not."""
    def record_size_bytes(
        self, value: Buffer | None, key: Buffer | None, timestamp_ms: int, headers: _Headers = ()
    ) -> int:
        """Exactly what `append` with these arguments would add to `size_bytes`."""
    def view(self) -> memoryview:
        """Head and records. Release it before the next append or `take`."""
    def take(self) -> bytearray:
        """Head and records, handed over without a copy. The buffer is of no use afterwards."""
