from collections.abc import Callable, Iterable
from typing import Any, Generic, Protocol, Self, final

from typing_extensions import Buffer, TypeVar

from barnabas.records._kernel.collect import RecordColumns
from barnabas.records.batch import BatchView

class _Source(Protocol):
    @property
    def next_offset(self) -> int: ...
    @property
    def next_epoch(self) -> int: ...
    @property
    def timestamp_type(self) -> int: ...
    def next_batch(self) -> BatchView | None: ...
    def spoil(self, offset: int, reason: str) -> None: ...

_Headers = tuple[tuple[str, bytes | None], ...]
_Deserialize = Callable[[str, _Headers, bytes], Any]

_Key = TypeVar("_Key", default=Any, covariant=True)
_Value = TypeVar("_Value", default=Any, covariant=True)

@final
class ConsumerRecord(Generic[_Key, _Value]):
    """One record as a consumer got it. Equal to another if every part is."""

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: Any = None,
        value: Any = None,
        headers: Iterable[tuple[str, bytes | None]] = (),
        *,
        timestamp_ms: int = -1,
        timestamp_type: int = 0,
        leader_epoch: int | None = None,
        serialized_key_size: int = -1,
        serialized_value_size: int = -1,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def offset(self) -> int: ...
    @property
    def timestamp_ms(self) -> int: ...
    @property
    def timestamp_type(self) -> int:
        """A `TimestampType` as a plain number."""
    @property
    def key(self) -> _Key | Any:
        """What the deserializer made; None for a record without a key."""
    @property
    def value(self) -> _Value | Any:
        """What the deserializer made; None for a record without a value, a tombstone."""
    @property
    def headers(self) -> _Headers: ...
    @property
    def leader_epoch(self) -> int | None: ...
    @property
    def serialized_key_size(self) -> int:
        """In bytes; -1 if there is no key."""
    @property
    def serialized_value_size(self) -> int:
        """In bytes; -1 if there is no value."""
    def __eq__(self, other: object) -> bool: ...
    def __hash__(self) -> int: ...

@final
class Chunk:
    """What was fetched of one partition, as records. An iterator, and `take` for lists.

    With a deserializer `key` and `value` are what it makes of them, called with the topic, the headers and the bytes;
    None stays None. After an error nothing is lost: the next call meets the same record again. For one thread at a time.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        source: _Source,
        size_bytes: int,
        key_deserializer: _Deserialize | None = None,
        value_deserializer: _Deserialize | None = None,
    ) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def next_offset(self) -> int:
        """Behind the last record handed out."""
    @property
    def next_epoch(self) -> int: ...
    @property
    def handed_offset(self) -> int:
        """Behind the last record that the program has come back from."""
    @property
    def handed_epoch(self) -> int: ...
    @property
    def size_bytes(self) -> int:
        """Of the answer that it came in; what the chunk keeps in memory."""
    @property
    def record_count(self) -> int:
        """How many were handed out."""
    @property
    def record_bytes(self) -> int:
        """How many bytes those had, unpacked."""
    @property
    def batch_bytes(self) -> int:
        """Of the present batch, unpacked; 0 between batches."""
    @property
    def is_halted(self) -> bool: ...
    @property
    def is_exhausted(self) -> bool: ...
    def __iter__(self) -> Self: ...
    def __next__(self) -> ConsumerRecord: ...
    def take(self, limit: int) -> list[ConsumerRecord]:
        """Up to so many records; fewer only where the chunk ends, was halted, or an error is next."""
    def has_more(self) -> bool:
        """Whether another record may come. Steps over what is not for the program."""
    @property
    def added_timestamp_type(self) -> int:
        """Of all rows that the last `add_to` added: -1, 0 or 1."""
    def add_to(self, columns: RecordColumns, row_limit: int, byte_limit: int = 0) -> int:
        """Add records to the columns, at most so many, all with one type of timestamp; how many.

        Of as many batches as keep `taken_bytes` within the limit, or of one. None means that there are no more, or that
        the next batch has no room beside what is in the columns already.
        """
    def hand_over(self, handed_offset: int, handed_epoch: int) -> None:
        """The program gets this chunk. It may still have records from before, and is done only up to this offset."""
    def confirm(self) -> None:
        """The program has come back: it is done with all that was handed out."""
    def halt(self) -> None:
        """Give out nothing more, until `resume`."""
    def resume(self) -> None: ...

def survey(buffer: Buffer) -> tuple[int, int, int, int]:
    """How many whole entries lie in `buffer`, how many records they say they have, and the offset behind the last of
    them with its leader epoch.
    """
