from typing import final

from typing_extensions import Buffer

@final
class Block(Buffer):
    """Bytes that a column consists of. It owns them and gives them out through the buffer protocol."""

    def __buffer__(self, flags: int, /) -> memoryview: ...
    def __len__(self) -> int: ...

@final
class BytesBuffers:
    """The buffers of one column of bytes. Without nulls there is no validity."""

    @property
    def validity(self) -> Block | None: ...
    @property
    def offsets(self) -> Block: ...
    @property
    def data(self) -> Block: ...
    @property
    def row_count(self) -> int: ...
    @property
    def null_count(self) -> int: ...

@final
class TakenColumns:
    """Everything that `RecordColumns` collected, as buffers in Arrow's layout."""

    @property
    def row_count(self) -> int: ...
    @property
    def key(self) -> BytesBuffers: ...
    @property
    def value(self) -> BytesBuffers: ...
    @property
    def header_offsets(self) -> Block: ...
    @property
    def header_key(self) -> BytesBuffers: ...
    @property
    def header_value(self) -> BytesBuffers: ...
    @property
    def offset(self) -> Block: ...
    @property
    def timestamp_ms(self) -> Block: ...

@final
class RecordColumns:
    """Columns that grow by whole batches. A batch that turns out malformed leaves no trace in them."""

    @property
    def row_count(self) -> int: ...
    @property
    def last_offset(self) -> int:
        """The offset of the last row; -1 if there are none."""
    @property
    def taken_bytes(self) -> int:
        """Decompressed bytes of all batches added: no column can be longer than this."""
    @property
    def read_bytes(self) -> int:
        """How far the last `add` came in its payload."""
    @property
    def read_count(self) -> int:
        """How many records lie in those bytes."""
    def make_room(self, size_bytes: int, row_count: int) -> None:
        """Prepare for so much at once: growing step by step would copy what is there already."""
    def add(
        self,
        payload: Buffer,
        record_count: int,
        base_offset: int,
        base_timestamp_ms: int,
        max_timestamp_ms: int,
        append_time: bool,
        from_offset: int = ...,
        row_limit: int = ...,
        from_byte: int = 0,
    ) -> bool:
        """Add the records in `payload` (decompressed) whose offset is not below `from_offset`, at most `row_limit`.

        Returns whether that were all of them. If not, `last_offset` tells where to go on; so that those before need not
        be read again, `read_bytes` and `read_count` tell how far it came: `record_count` records are read from
        `from_byte` on. The caller sees to it that `taken_bytes` and the payload together stay below 2 GiB: offsets have
        32 bits.
        """
    def take(self) -> TakenColumns:
        """Hand over what was collected and start anew."""
