from collections.abc import Callable, Generator, Mapping, Sequence
from typing import Any, Literal, Self, final

@final
class RecordMetadata:
    """Where a record went. The offset is -1 if nobody told it: with acks=0, or if the record failed.

    The timestamp is the broker's if the topic has log append time, else the record's own. Sizes are -1 for null.
    """

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        timestamp_ms: int,
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
    def serialized_key_size(self) -> int: ...
    @property
    def serialized_value_size(self) -> int: ...

@final
class Home:
    """Where deliveries are told: the thread of the event loop of one producer. Who waits there would wait for ever."""

    def __init__(self) -> None: ...
    def settle(self, on_interrupt: Callable[[BaseException], object] | None = None) -> None:
        """Call it once on the thread of the loop, before anything is sent.

        `on_interrupt` gets a KeyboardInterrupt or SystemExit that a callback raised. Without it they are logged, as
        everything else that callbacks raise.
        """
    def leave(self) -> None:
        """The loop has ended: another thread may get the number of its thread."""
    @property
    def is_here(self) -> bool:
        """Whether the caller runs on that thread."""
    @property
    def is_forked(self) -> bool:
        """Whether this process is a fork of the one that made the producer: nobody is left here to send anything."""

@final
class Delivery:
    """What becomes of the records of one batch; told once, to everybody who holds a future of one of them."""

    def __init__(self, topic: str, partition: int, home: Home | None = None) -> None: ...
    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    @property
    def home(self) -> Home | None: ...
    @property
    def is_done(self) -> bool:
        """Whether on_delivery was called for all records. A batch that was split is done when all of its parts are."""
    def succeed(self, base_offset: int, log_append_time_ms: int = -1) -> bool:
        """All records are written, from `base_offset` on (-1 if the broker did not tell).

        Callbacks run before it returns, in the order of the records. What they raise is logged, whatever it is, and
        never raised here (see `Home.settle` for the exception). False if the batch was done before: then nothing
        happens.
        """
    def fail(self, error: Exception, per_record: Mapping[int, Exception] | None = None) -> bool:
        """No record is written. Those in `per_record`, by their index in the batch, fail with an error of their own."""
    def split_into(self, parts: Sequence[tuple[Delivery, int]]) -> None:
        """From now on the futures follow the parts: each a delivery, and how many records it has."""
    def when_done(self, callback: Callable[[], object]) -> None:
        """Call it after the callbacks of the records; at once if the batch is done."""

@final
class SendFuture:
    """The acknowledgement of one record. Made by `send`; light, and free to be thrown away.

    It can be waited for from any thread but the producer's own, and awaited in any event loop. It is done once the
    on_delivery of all records in its batch was called. It cannot be cancelled.
    """

    @property
    def topic(self) -> str: ...
    @property
    def partition(self) -> int: ...
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> RecordMetadata:
        """Wait for the acknowledgement, at most `timeout` seconds: then `ClientTimeoutError`, and nothing is lost."""
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait like `result`, and give the error instead of raising it; None if all went well."""
    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call it with this future where deliveries are told; at once, and here, if it is done already."""
    def remove_done_callback(self, callback: Callable[[Self], object]) -> int:
        """Do not call it; how many times it had been added."""
    def cancelled(self) -> Literal[False]: ...
    def __await__(self) -> Generator[Any, None, RecordMetadata]: ...
