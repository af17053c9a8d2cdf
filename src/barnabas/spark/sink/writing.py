"""One task of a write: batches of rows go to their topics, and all of them are acknowledged before it ends."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from barnabas.base.errors import BarnabasError
from barnabas.spark.core.errors import SparkConnectorError, null_topic_in_data
from barnabas.spark.core.options import ExactlyOnceOptions
from barnabas.spark.pool import ClientPool
from barnabas.spark.producers import producers
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.messages import RowsWritten, Tally

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas import Producer
    from barnabas.client._kernel.sending import ArrowDelivery

#: Where a batch spreads over many topics, batches are gathered until there are so many rows for each...
_ROWS_PER_TOPIC: Final = 500
#: ...but never more than this at once.
_MOST_ROWS: Final = 100_000
_MOST_BYTES: Final = 16 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class WritePlan:
    """What all tasks of a write share; small, and pickled into each of them."""

    columns: SinkColumns
    #: Settings of the producer, by Kafka's names. May hold passwords.
    client: Mapping[str, str] = field(repr=False)
    #: The topic of all rows, or None where column `topic` names it.
    topic: str | None = None
    #: None: at least once.
    exactly_once: ExactlyOnceOptions | None = None


class WriteError(SparkConnectorError):
    """Rows could not be written. Says where to, why, and what of the task is in the topics all the same."""


def write_rows(
    plan: WritePlan, batches: Iterable[pa.RecordBatch], pool: ClientPool[Producer] = producers
) -> RowsWritten:
    """Write all batches, and return once every row is acknowledged.

    Batches are not waited for one by one: the producer's buffer.memory bounds what is under way. Rows of a topic keep
    their order.
    """
    filled = (batch for batch in batches if batch.num_rows)
    first = next(filled, None)
    if first is None:
        return RowsWritten()
    with pool.lend(plan.client) as producer:
        task = RowsUnderWay(plan, producer)
        task.send(first)
        for batch in filled:
            task.send(batch)
        return task.finish()


def by_topic(
    plan: WritePlan, batch: pa.RecordBatch, rows: pa.RecordBatch | None = None
) -> Iterator[tuple[str, pa.RecordBatch]]:
    """The rows of each topic, in the order of the rows, as the producer takes them unless `rows` has other columns."""
    rows = plan.columns.pick(batch) if rows is None else rows
    if plan.topic is not None:
        yield plan.topic, rows
        return
    assert plan.columns.topic is not None
    import pyarrow.compute as pc

    topics = batch.column(plan.columns.topic)
    if topics.null_count:
        raise null_topic_in_data()
    coded = topics.dictionary_encode()
    names = coded.dictionary.to_pylist()
    if len(names) > 1:
        # A stable sort brings the rows of a topic together without changing their order.
        order = pc.array_sort_indices(coded.indices)
        rows = rows.take(order)
    start = 0
    sizes = {count["values"]: count["counts"] for count in pc.value_counts(coded.indices).to_pylist()}
    for code, name in enumerate(names):
        yield name, rows.slice(start, sizes[code])
        start += sizes[code]


class RowsUnderWay:
    """The rows of a task that are on their way, and what is known of them."""

    def __init__(self, plan: WritePlan, producer: Producer) -> None:
        self._plan = plan
        self._producer = producer
        self._under_way: deque[tuple[str, ArrowDelivery]] = deque()
        self._tally = Tally()
        self._gathered: list[pa.RecordBatch] = []
        self._wanted_rows = 0

    def send(self, batch: pa.RecordBatch) -> None:
        """Put the rows of a batch on their way, and take note of those that have arrived."""
        self._gathered.append(batch)
        if (
            sum(each.num_rows for each in self._gathered) >= self._wanted_rows
            or sum(each.nbytes for each in self._gathered) >= _MOST_BYTES
        ):
            self._send_gathered()
        while self._under_way and self._under_way[0][1].done():
            self._settle()

    def finish(self) -> RowsWritten:
        if self._gathered:
            self._send_gathered()
        # Without it the last rows would wait for linger.ms to pass.
        self._producer.flush()
        while self._under_way:
            self._settle()
        return self._tally.written()

    def _send_gathered(self) -> None:
        import pyarrow as pa

        batches, self._gathered = self._gathered, []
        topic_count = 0
        for topic, rows in by_topic(self._plan, batches[0] if len(batches) == 1 else pa.concat_batches(batches)):
            topic_count += 1
            try:
                self._under_way.append((topic, self._producer.send_arrow(topic, rows)))
            except (BarnabasError, ValueError) as error:
                raise self._failure(topic, error) from error
        # A topic costs the same however few rows it gets.
        self._wanted_rows = min(_MOST_ROWS, _ROWS_PER_TOPIC * topic_count)

    def _settle(self) -> None:
        topic, delivery = self._under_way[0]
        try:
            ranges = delivery.result()
        except BarnabasError as error:
            raise self._failure(topic, error) from error
        self._under_way.popleft()
        self._tally.add_ranges(topic, ranges)

    def _failure(self, topic: str, error: Exception) -> WriteError:
        for other, delivery in self._under_way:
            self._tally.add_ranges(other, delivery.ranges())
        written = self._tally.written()
        if self._plan.exactly_once is not None:
            left = "Nothing of this task will be seen; Spark runs it again."
        elif written.partitions:
            left = f"This task has written {written}; if Spark runs it again they are written again."
        else:
            left = "No row of this task had been acknowledged."
        servers = self._plan.client.get("bootstrap.servers", "")
        reason = str(error).rstrip(".")
        return WriteError(
            f"rows for topic '{topic}' could not be written to the brokers at {servers}: {reason}. {left}"
        )
