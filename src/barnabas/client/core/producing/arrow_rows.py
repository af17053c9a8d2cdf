"""The rows of an Arrow table on their way into batches. Needs pyarrow, which comes with `barnabas[arrow]`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from barnabas.base.errors import LocalProtocolError
from barnabas.client._kernel.sending import ArrowDelivery, RowGroups
from barnabas.client.core.producing.buffer_pool import MemoryWaiter
from barnabas.client.core.producing.filling import ANY_PARTITION
from barnabas.client.errors import SerializationError, UnknownPartitionError
from barnabas.records.arrow import iter_rows

if TYPE_CHECKING:
    from collections.abc import Iterator

    from barnabas.client.core.producing.filling import AppendSide
    from barnabas.client.core.producing.lanes import TopicLane
    from barnabas.records._kernel.columns import LongColumn, RowColumns


class _Chunk:
    """One record batch: its rows by partition, and how far each partition has come."""

    __slots__ = ("_partition", "groups", "left", "rows")

    def __init__(self, rows: RowColumns, groups: RowGroups, partition: int | None) -> None:
        self.rows = rows
        self.groups = groups
        self._partition = partition
        #: Groups that have rows left, as pairs of group and rows that are sent.
        self.left = [(group, 0) for group in range(groups.partition_count + 1) if groups.size(group)]

    def partition_of(self, group: int) -> int:
        if self._partition is not None:
            return self._partition
        return group if group < self.groups.partition_count else ANY_PARTITION


class ArrowRows:
    """Sends a table bit by bit, as memory allows. `delivery` is the one future of all its rows.

    A row goes to the partition that the column `partition` names (or the argument, for all rows), else where its key
    belongs, else, in whole batches, to the sticky partitions. Rows of a partition keep their order. Partitions are
    served in turn, a batch each, so that all brokers get something to do.

    Types and sizes are checked before anything is sent, except in a stream, which is checked piece by piece.
    """

    def __init__(
        self,
        accumulator: AppendSide,
        lane: TopicLane,
        data: Any,
        *,
        default_timestamp_ms: int,
        partition: int | None = None,
        ignores_keys: bool = False,
    ) -> None:
        self._accumulator = accumulator
        self._lane = lane
        self._partition = partition
        self._by_key = not ignores_keys
        self.delivery = ArrowDelivery(lane.topic, accumulator.home)
        prepared = self._prepared(_readable(iter_rows(data, default_timestamp_ms)))
        # What knows its length is here already, and can be looked at whole.
        self._chunks: Iterator[_Chunk] = iter(list(prepared)) if hasattr(data, "num_rows") else prepared
        self._chunk = next(self._chunks, None)
        self._turn = 0
        if self._chunk is None:
            self.delivery.seal()

    @property
    def is_done(self) -> bool:
        """Whether all rows are in batches."""
        return self._chunk is None

    def advance(
        self, now_ms: int, memory: MemoryWaiter | None = None, batch_limit: int | None = None
    ) -> MemoryWaiter | None:
        """Go on until all rows are in batches, or so many batches are filled: then None.

        If memory runs out its waiter comes back, as from `AppendSide.append`: call again with it.
        """
        filled = 0
        while self._chunk is not None and (batch_limit is None or filled < batch_limit):
            chunk = self._chunk
            self._turn %= len(chunk.left)
            group, done = chunk.left[self._turn]
            sent: int | MemoryWaiter = done
            try:
                sent = self._accumulator.append_rows(
                    self._lane,
                    chunk.partition_of(group),
                    chunk.rows,
                    chunk.groups,
                    group,
                    done,
                    self.delivery,
                    now_ms,
                    memory,
                )
                if isinstance(sent, MemoryWaiter):
                    return sent
            except BaseException:
                if isinstance(sent, MemoryWaiter):
                    self._accumulator.give_up(sent)
                raise
            memory = None
            filled += 1
            self._note(chunk, group, sent)
        return None

    def abandon(self, error: Exception) -> None:
        """No more rows will come. Those that are in batches are sent; the whole fails with this error."""
        if self._chunk is not None:
            self._chunk = None
            self.delivery.fail(error)
            self.delivery.seal()

    def _note(self, chunk: _Chunk, group: int, sent: int) -> None:
        if sent < chunk.groups.size(group):
            chunk.left[self._turn] = (group, sent)
            self._turn += 1
            return
        del chunk.left[self._turn]
        if not chunk.left:
            self._chunk = next(self._chunks, None)
            if self._chunk is None:
                self.delivery.seal()

    def _prepared(self, chunks: Iterator[tuple[RowColumns, LongColumn | None]]) -> Iterator[_Chunk]:
        first_row = 0
        for rows, numbers in chunks:
            if rows.row_count:
                yield _Chunk(rows, self._groups(rows, numbers, first_row), self._partition)
            first_row += rows.row_count

    def _groups(self, rows: RowColumns, numbers: LongColumn | None, first_row: int) -> RowGroups:
        try:
            groups = RowGroups(
                rows,
                self._lane.partition_count,
                partitions=numbers if self._partition is None else None,
                by_key=self._by_key and self._partition is None,
                first_row=first_row,
            )
        except ValueError as error:
            raise UnknownPartitionError(f"topic {self._lane.topic!r}: {error}") from error
        except LocalProtocolError as error:
            raise _unreadable(error) from error
        row, size_bytes = groups.largest_row()
        self._accumulator.check_size(size_bytes, f"row {first_row + row}")
        return groups


def _readable(rows: Iterator[tuple[RowColumns, LongColumn | None]]) -> Iterator[tuple[RowColumns, LongColumn | None]]:
    """The same rows. A table that cannot be records is the program's mistake, and not one of the protocol."""
    try:
        yield from rows
    except LocalProtocolError as error:
        raise _unreadable(error) from error


def _unreadable(error: LocalProtocolError) -> SerializationError:
    return SerializationError(f"the table cannot be sent: {error}")
