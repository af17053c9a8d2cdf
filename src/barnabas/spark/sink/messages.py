"""What a task tells the driver: how many rows it wrote, and where they lie."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import WriterCommitMessage

from barnabas.spark.core.exactly_once.control import Written

if TYPE_CHECKING:
    from barnabas.client._kernel.sending import OffsetRange

#: More partitions than that would drown the rest of a log.
_SHOWN: Final = 12


@dataclass(frozen=True, slots=True)
class PartitionRows:
    """Rows in a partition. Records of others may lie between the first and the last of them."""

    topic: str
    partition: int
    #: -1 if no broker told it, as with acks=0.
    first_offset: int
    last_offset: int
    row_count: int

    def __str__(self) -> str:
        rows = f"{self.topic}-{self.partition}: {_counted(self.row_count)}"
        return rows if self.first_offset < 0 else f"{rows} at offsets {self.first_offset} to {self.last_offset}"


@dataclass(frozen=True)
class RowsWritten(WriterCommitMessage):
    """The rows of one task, by topic and partition in their order."""

    partitions: tuple[PartitionRows, ...] = ()

    @property
    def row_count(self) -> int:
        return sum(rows.row_count for rows in self.partitions)

    def __str__(self) -> str:
        if not self.partitions:
            return "no rows"
        shown = [str(rows) for rows in self.partitions[:_SHOWN]]
        if len(self.partitions) > _SHOWN:
            shown.append(f"and {len(self.partitions) - _SHOWN} more partitions")
        return f"{_counted(self.row_count)} ({', '.join(shown)})"


@dataclass(frozen=True, kw_only=True)
class TransactionWritten(RowsWritten):
    """The same in a transaction, which is open until the driver ends it."""

    written: Written


class Tally:
    """Adds up what was acknowledged. It grows with the partitions that are written to, not with the rows."""

    def __init__(self) -> None:
        self._rows: dict[tuple[str, int], PartitionRows] = {}

    def add_ranges(self, topic: str, ranges: Iterable[OffsetRange]) -> None:
        for partition, base_offset, row_count in ranges:
            last_offset = base_offset + row_count - 1 if base_offset >= 0 else -1
            self.add(PartitionRows(topic, partition, base_offset, last_offset, row_count))

    def add(self, more: PartitionRows) -> None:
        place = (more.topic, more.partition)
        rows = self._rows.get(place)
        if rows is not None:
            more = PartitionRows(
                *place,
                min(rows.first_offset, more.first_offset),
                max(rows.last_offset, more.last_offset),
                rows.row_count + more.row_count,
            )
        self._rows[place] = more

    def written(self) -> RowsWritten:
        return RowsWritten(tuple(self._rows[place] for place in sorted(self._rows)))


def all_rows(messages: Iterable[WriterCommitMessage | None]) -> RowsWritten:
    """What all tasks of a write did together. Tasks that failed told nothing."""
    tally = Tally()
    for message in messages:
        if isinstance(message, RowsWritten):
            for rows in message.partitions:
                tally.add(rows)
    return tally.written()


def _counted(row_count: int) -> str:
    return "1 row" if row_count == 1 else f"{row_count:,} rows"
