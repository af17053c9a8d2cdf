from typing import final

from typing_extensions import Buffer

@final
class BytesColumn:
    """Rows of bytes or null: a binary or string array, `wide` if its offsets have 64 bits."""

    def __init__(
        self,
        validity: Buffer | None,
        offsets: Buffer | None,
        data: Buffer | None,
        first_row: int,
        row_count: int,
        wide: bool,
    ) -> None: ...

@final
class ListColumn:
    """Rows of ranges into a child of `child_count` rows: a list or map array, `wide` if its offsets have 64 bits."""

    def __init__(
        self,
        validity: Buffer | None,
        offsets: Buffer | None,
        child_count: int,
        first_row: int,
        row_count: int,
        wide: bool,
    ) -> None: ...

@final
class LongColumn:
    """Rows of 64-bit integers or null."""

    def __init__(self, validity: Buffer | None, data: Buffer | None, first_row: int, row_count: int) -> None: ...
    @property
    def row_count(self) -> int: ...

@final
class RowColumns:
    """The columns of records to be built. A missing or null timestamp reads as `default_timestamp_ms`."""

    def __init__(
        self,
        values: BytesColumn,
        keys: BytesColumn | None = None,
        headers: ListColumn | None = None,
        header_keys: BytesColumn | None = None,
        header_values: BytesColumn | None = None,
        timestamps: LongColumn | None = None,
        default_timestamp_ms: int = -1,
    ) -> None: ...
    @property
    def row_count(self) -> int: ...
    def fingerprint(self) -> int:
        """A number of 64 bits that follows from the keys and values of the rows, in whatever order they come: that of
        rows in several pieces is the sum of those of the pieces, without what overflows. It is kept in topics, and so
        stays what it is. It tells rows apart that differ by accident, not those that somebody made to look alike."""
