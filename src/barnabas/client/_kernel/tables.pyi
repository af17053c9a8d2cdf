from collections.abc import Callable, Generator
from typing import Any, NamedTuple, Self, final

from barnabas.client._kernel.deliveries import Delivery, Home
from barnabas.records._kernel.columns import LongColumn, RowColumns

class OffsetRange(NamedTuple):
    """Rows that lie side by side in a partition. The base offset is -1 if the broker did not tell, as with acks=0."""

    partition: int
    base_offset: int
    row_count: int

@final
class RowGroups:
    """Which rows of a table go to which partition, in the order of the rows. The last group has no partition yet."""

    def __init__(
        self,
        rows: RowColumns,
        partition_count: int,
        *,
        partitions: LongColumn | None = None,
        by_key: bool = True,
        first_row: int = 0,
    ) -> None:
        """By the column `partitions` where it is not null, else by the hash of the key where that is not null.

        Errors count rows from `first_row` on.
        """
    @property
    def partition_count(self) -> int: ...
    def size(self, group: int) -> int:
        """How many rows go to the partition `group`, or anywhere if that is the count of partitions."""
    def largest_row(self) -> tuple[int, int]:
        """The row that takes most, and how many bytes it takes at most."""
    def row_bytes(self, group: int, position: int) -> int:
        """How many bytes that row of the group takes at most."""
    def left_bytes(self, group: int, done: int) -> int:
        """About how many bytes the rows of the group take that are not sent yet, in one batch."""
    @property
    def row_count(self) -> int: ...

@final
class ArrowDelivery:
    """The acknowledgement of a table: ranges of offsets, each as partition, first offset and count of rows.

    Ranges come by partition, in the order in which rows went there; those that lie side by side are told as one. If any
    row failed, `result` raises the first error; `ranges` tells what was written all the same.
    """

    def __init__(self, topic: str = "", home: Home | None = None) -> None: ...
    def add(self, delivery: Delivery, first_index: int, count: int) -> None: ...
    def seal(self) -> None:
        """Nothing will be added any more."""
    def fail(self, error: Exception) -> None:
        """Rows that never got into a batch: the whole fails with this."""
    @property
    def row_count(self) -> int: ...
    def ranges(self) -> tuple[OffsetRange, ...]:
        """What is written by now."""
    def done(self) -> bool: ...
    def result(self, timeout: float | None = None) -> tuple[OffsetRange, ...]:
        """Wait for the acknowledgement, at most `timeout` seconds: then `ClientTimeoutError`, and nothing is lost."""
    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait like `result`, and give the error instead of raising it; None if all went well."""
    def add_done_callback(self, callback: Callable[[Self], object]) -> None:
        """Call it with this future where deliveries are told; at once, and here, if it is done already."""
    def __await__(self) -> Generator[Any, None, tuple[OffsetRange, ...]]: ...
