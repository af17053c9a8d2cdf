from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, SupportsIndex

from barnabas.client._kernel.deliveries import Delivery, Home, RecordMetadata, SendFuture
from barnabas.client._kernel.tables import RowGroups
from barnabas.records._kernel.build import RecordBuffer
from barnabas.records._kernel.columns import RowColumns

_OnDelivery = Callable[[RecordMetadata, Exception | None], object]
_Headers = Iterable[tuple[str, bytes | None]]
_Serialize = Callable[[str, list[tuple[str, bytes | None]], Any], bytes | None]

def now_ms() -> int:
    """Milliseconds since 1970."""

def record_bound_bytes(value: bytes | None, key: bytes | None, headers: _Headers | None = None) -> int:
    """What a record takes at most, alone in a batch: by this it is measured against max.request.size."""

def topic_name(topic: object) -> str:
    """A topic that a program named, as plain text: names may be members of an enumeration."""

def partition_number(partition: object) -> int:
    """A partition that a program named: anything that is an index, as numbers of numpy are, but no truth value."""

def record_timestamp_ms(timestamp_ms: object) -> int:
    """A timestamp that a program gave a record."""

class BatchRoom:
    """The part of a batch that `send` sees: where records go, as long as it is not closed."""

    def __init__(self, records: RecordBuffer, delivery: Delivery) -> None: ...
    @property
    def delivery(self) -> Delivery: ...
    @property
    def is_closed(self) -> bool: ...
    def close(self) -> None:
        """No record gets in from now on. What threads do at the same moment comes before it or not at all."""
    def widen(self, limit_bytes: int) -> None:
        """Make room for more records, up to a new limit; a lower one changes nothing. Only while it is open."""
    def append(
        self,
        value: bytes | None,
        key: bytes | None,
        timestamp_ms: int,
        headers: _Headers | None = None,
        on_delivery: _OnDelivery | None = None,
    ) -> SendFuture | None:
        """None if the batch is closed, or has no room for the record; in that case it is closed by this."""
    def append_rows(self, rows: RowColumns, groups: RowGroups, group: int, done: int) -> tuple[int, int]:
        """Add rows of one group, of which `done` are sent already, as far as they fit.

        Returns how many are sent then, and which place in the batch the first of the new ones has.
        Where rows are left the batch is closed.
        """

class Lane:
    """What `send` reads of one topic: how many partitions there are, and which batch of each is open."""

    def __init__(self, topic: str, switch_bytes: int) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition_count(self) -> int: ...
    #: While False every record goes the slow way.
    is_open: bool
    #: Where records without a key go; -1 if that has to be chosen.
    sticky_partition: int
    #: How many bytes went there since it was chosen.
    sticky_bytes: int
    def resize(self, partition_count: int) -> None: ...
    def set_room(self, partition: int, room: BatchRoom | None) -> None: ...

class SendPath:
    """The part of a producer that handles every record. A producer derives from it and fills in the slow ways.

    `send` appends in C if everything is at hand: the lane of the topic is open, nothing of the program's has to be
    asked but serializers, and the open batch of the chosen partition has room. Else it calls `_send_slowly` with what
    it was given (no open lane, `is_direct` is False, a fork, a partition that the lane does not have), or
    `_append_slowly` with the serialized record (no open batch, no room in it, no sticky partition, larger than
    `max_record_bytes`), where `partition` is -1 if the record may go to any. What these return or raise, `send` does.

    Who keeps this true: the accumulator makes lanes (`lane`), fits them to metadata (`metadata_updated`) and puts each
    batch that it opens into its lane; batches are closed by whoever takes them. Set `is_direct` to False before closing
    the accumulator. After a fork every call goes to `_send_slowly`, which must refuse it.
    """

    #: Lanes by topic: the very dictionary of the accumulator.
    lanes: dict[str, Lane]
    #: Whether records need nobody but serializers: no interceptors, no partitioner of the program's. False once closed.
    is_direct: bool

    def __init__(
        self,
        lanes: dict[str, Any],
        home: Home,
        *,
        max_record_bytes: int,
        ignores_keys: bool = False,
        key_serializer: _Serialize | None = None,
        value_serializer: _Serialize | None = None,
        now_ms: Callable[[], int] | None = None,
    ) -> None:
        """Serializers take topic, headers and object; None for bytes as they are.

        Without `now_ms` timestamps come from the system's clock.
        """
    @property
    def home(self) -> Home: ...
    def _send_slowly(
        self,
        topic: str,
        value: Any,
        key: Any,
        headers: Any,
        partition: int | None,
        timestamp_ms: int | None,
        on_delivery: _OnDelivery | None,
    ) -> Any: ...
    def _append_slowly(
        self,
        lane: Any,
        partition: int,
        value: bytes | None,
        key: bytes | None,
        headers: Any,
        timestamp_ms: int,
        on_delivery: _OnDelivery | None,
    ) -> Any: ...

class SyncSendPath(SendPath):
    """`_send_slowly` and `_append_slowly` return a `SendFuture`; they may block."""

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: _Headers | Mapping[str, bytes | None] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        on_delivery: _OnDelivery | None = None,
    ) -> SendFuture:
        """Put a record into a batch of its partition, and give the future of its acknowledgement.

        `partition` is one of the topic's; without it the key decides, and without a key what is best for batches.
        `timestamp_ms` is now unless given. `on_delivery(metadata, error)` is called with the outcome.

        Raises, and then on_delivery is not called and nothing is sent: `RecordTooLargeError` for more than
        max.request.size or buffer.memory; `BufferFullError` if buffer.memory was used up for max.block.ms;
        `ClientTimeoutError` if the topic was not found in that time; `SerializationError`, `UnknownPartitionError`,
        TypeError and ValueError for what cannot be sent as it is; `ClientClosedError` once the producer is closed.
        """

class AsyncSendPath(SendPath):
    """`_send_slowly` and `_append_slowly` are coroutines that return a `SendFuture`, and let the loop run once."""

    #: The event loop that it belongs to: in any other, `send` goes the slow way. None for any.
    owner: object

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        headers: _Headers | Mapping[str, bytes | None] | None = None,
        partition: SupportsIndex | None = None,
        timestamp_ms: SupportsIndex | None = None,
        on_delivery: _OnDelivery | None = None,
    ) -> Coroutine[Any, Any, SendFuture]:
        """Put a record into a batch of its partition, and give the future of its acknowledgement: await this.

        `partition` is one of the topic's; without it the key decides, and without a key what is best for batches.
        `timestamp_ms` is now unless given. `on_delivery(metadata, error)` is called with the outcome.

        Raises, and then on_delivery is not called and nothing is sent: `RecordTooLargeError` for more than
        max.request.size or buffer.memory; `BufferFullError` if buffer.memory was used up for max.block.ms;
        `ClientTimeoutError` if the topic was not found in that time; `SerializationError`, `UnknownPartitionError`,
        TypeError and ValueError for what cannot be sent as it is; `ClientClosedError` once the producer is closed.

        Awaiting does not suspend where there was room.
        """
