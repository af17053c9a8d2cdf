from collections.abc import Iterable
from typing import Self, final

from typing_extensions import Buffer

@final
class Record:
    """One record as it lies in the log. Equal to another if every part is."""

    def __init__(
        self,
        offset: int,
        timestamp_ms: int,
        key: bytes | None,
        value: bytes | None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        timestamp_type: int = 0,
    ) -> None: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int:
        """A `TimestampType` as a plain number."""
    @property
    def key(self) -> bytes | None: ...
    @property
    def value(self) -> bytes | None: ...
    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]: ...
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class RecordReader:
    """Iterates over the records in `payload` (decompressed), of which the batch's header says there are `record_count`.

    With `append_time` every record carries `max_timestamp_ms`, else its own timestamp. Records below `from_offset`
    are stepped over.
    """

    def __init__(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp_ms: int,
        max_timestamp_ms: int,
        append_time: bool,
        from_offset: int = ...,
    ) -> None: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> Record: ...
    def __length_hint__(self) -> int: ...
