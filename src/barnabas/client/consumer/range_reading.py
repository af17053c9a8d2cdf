"""One partition from one offset up to another, as columns that fill up in the thread that reads them.

    with Consumer(bootstrap_servers=…, auto_offset_reset="none") as consumer:
        reader = RangeReader(consumer, partition)
        reader.begin(100, 5000)
        while reader.position < 5000:
            runs = reader.fill(columns, max_rows=65_536, max_bytes=8 << 20, timeout_s=1.0)

`poll_arrow` serves programs that read on for ever; this serves tasks that know where they end. What lies behind the end
is not fetched, as far as that can be known, and the end is noticed also where no record is left before it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client._kernel.receiving import Chunk
from barnabas.client.consumer.consumer import Consumer as AsyncConsumer
from barnabas.client.consumer.sync_consumer import Consumer, run_beneath
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.consuming.offsets import NO_EPOCH, OffsetAndMetadata
from barnabas.records._kernel.collect import RecordColumns


class Run(NamedTuple):
    """Rows that follow on each other and have the same type of timestamp (-1, 0 or 1, as in Kafka)."""

    timestamp_type: int
    row_count: int


class RangeReader:
    """Reads a range with a consumer that is used for nothing else meanwhile.

    The consumer's `auto.offset.reset` must be `none`: a range that has lost its beginning is for the caller to judge.
    """

    def __init__(self, consumer: Consumer, partition: TopicPartition, topic_id: Uuid | None = None) -> None:
        """With a topic id nothing is fetched while the consumer knows the name as that of another topic."""
        self._consumer = consumer
        self._partition = partition
        self._topic_id = topic_id
        self._until_offset = 0
        self._chunk: Chunk | None = None
        #: Of the last row, by which a log that was cut is noticed.
        self._epoch = NO_EPOCH
        #: The offset that is read next. Behind the end of the range once there is nothing left in it.
        self.position = 0

    @property
    def view(self) -> ClusterView:
        """What the consumer knows of the cluster. It may be as old as `metadata.max.age.ms`."""
        return self._consumer.parts.network.view

    def renew_view(self, timeout_s: float) -> None:
        """Have the `view` made from what the brokers say from now on, or raise that they say nothing in time."""
        settings = self._consumer.parts.settings
        # The question may have to wait behind a fetch that the broker holds, and after an answer without news.
        timeout_s += (settings.fetch_max_wait_ms + settings.retry_backoff_max_ms) / 1000
        run_beneath(self._consumer, lambda consumer: self._renewed_view(consumer, timeout_s))

    def limits(self, timeout_s: float) -> tuple[int, int]:
        """Where the partition begins and ends.

        Both are asked for at once, and `fetch.max.wait.ms` does not count: a broker that holds a fetch answers what
        came behind it on the same connection only after that, and then holds the next one.
        """
        timeout_s += self._consumer.parts.settings.fetch_max_wait_ms / 1000
        return run_beneath(self._consumer, lambda consumer: self._limits(consumer, timeout_s))

    def why_nothing_comes(self, timeout_s: float) -> Exception:
        """What is known about why the range gets no further."""
        doing = f"{self._partition} was to be read at offset {self.position}"
        return self._consumer.parts.network.gave_up(doing, timeout_s * 1000)

    def begin(self, from_offset: int, until_offset: int) -> None:
        """Read from one offset up to another."""
        self.position, self._until_offset = from_offset, until_offset
        run_beneath(self._consumer, self._begin)

    def seek(self, offset: int) -> None:
        """Go on elsewhere, as after an error."""
        self.position = offset
        self._epoch = NO_EPOCH
        self._chunk = None
        self._consumer.seek(self._partition, offset)

    def end(self) -> None:
        """Read no more; the consumer keeps its connections."""
        self._chunk = None
        self._consumer.assign([])

    def fill(self, columns: RecordColumns, *, max_rows: int, max_bytes: int, timeout_s: float) -> list[Run]:
        """Add rows until the columns are full, the range is at its end, or nothing came for so long; which rows.

        Behind the last row that belongs to the range there may be some that do not: `position` then is behind its end.
        An error is raised only if there was nothing before it; it comes again.
        """
        runs: list[Run] = []
        rows = columns.row_count
        # Columns without a row may hold bytes: of records before the position, in the batch that it lies in.
        while rows < max_rows and (not rows or columns.taken_bytes < max_bytes) and self.position < self._until_offset:
            chunk = self._chunk
            if chunk is None:
                try:
                    chunk = self._chunk = self._next_chunk(timeout_s)
                except BarnabasError:
                    if rows:
                        break
                    raise
                if chunk is None:
                    break
            # Each row takes at least one offset, so there cannot be more of them than offsets left.
            limit = min(max_rows - rows, self._until_offset - self.position)
            try:
                chunk.add_to(columns, limit, max_bytes)
            except BarnabasError:
                self._chunk = None
                if rows:
                    break
                raise
            self.position, self._epoch = chunk.next_offset, chunk.next_epoch
            added = columns.row_count - rows
            if added:
                rows += added
                runs.append(Run(chunk.added_timestamp_type, added))
            elif chunk.has_more():
                break  # it has no room beside what is there
            else:
                # To ask whether there is more has moved it over what is not for the program.
                self.position, self._epoch = chunk.next_offset, chunk.next_epoch
                self._chunk = None
        return runs

    async def _begin(self, consumer: AsyncConsumer) -> None:
        consumer.assign([])  # what an earlier range left behind
        consumer.assign([self._partition])
        consumer.parts.subscription.state(self._partition).read_until(self._until_offset, self._topic_id)
        consumer.seek(self._partition, self.position)

    async def _renewed_view(self, consumer: AsyncConsumer, timeout_s: float) -> None:
        await consumer.start()
        parts = consumer.parts
        parts.metadata.want(self._partition.topic, parts.clock.monotonic_ms())
        await parts.network.update_metadata(timeout_s * 1000)

    async def _limits(self, consumer: AsyncConsumer, timeout_s: float) -> tuple[int, int]:
        await consumer.start()
        wanted = [self._partition]
        first, end = await asyncio.gather(
            consumer.beginning_offsets(wanted, timeout_s), consumer.end_offsets(wanted, timeout_s)
        )
        return first[self._partition], end[self._partition]

    def _next_chunk(self, timeout_s: float) -> Chunk | None:
        chunk, position = run_beneath(self._consumer, lambda consumer: self._chunk_within(consumer, timeout_s))
        if chunk is None and position is not None:
            self.position = max(self.position, position)
        return chunk

    async def _chunk_within(self, consumer: AsyncConsumer, timeout_s: float) -> tuple[Chunk | None, int | None]:
        """The next records, or None and how far the partition was read, if that is to the end or the time is over."""
        await consumer.start()
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_s
        await asyncio.sleep(0)
        subscription, fetcher, topics = consumer.parts.subscription, consumer.parts.fetcher, consumer.parts.topics
        subscription.begin_poll()
        while True:
            topics.follow()
            topics.raise_errors()
            chunk = fetcher.take_chunk()
            if chunk is not None and chunk.next_offset >= self.position:
                return chunk, None
            if chunk is not None:
                # The log was found cut while a chunk gave out rows, and the consumer has gone back to before them.
                epoch = None if self._epoch == NO_EPOCH else self._epoch
                consumer.seek(self._partition, OffsetAndMetadata(self.position, leader_epoch=epoch))
                continue
            position = subscription.position(self._partition)
            left_s = deadline - loop.time()
            if left_s <= 0 or (position is not None and position.offset >= self._until_offset):
                return None, None if position is None else position.offset
            await fetcher.wait_for_data(left_s)


def bytes_per_offset_at(
    consumer: Consumer, places: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, float]:
    """How many bytes the next offsets take in each partition, found out with one fetch at each place, of the size of
    `max.partition.fetch.bytes`; without those that do not answer in time. The consumer is used for nothing else.
    """
    return run_beneath(consumer, lambda beneath: _fetch_once(beneath, places, timeout_s)) if places else {}


async def _fetch_once(
    consumer: AsyncConsumer, places: Mapping[TopicPartition, int], timeout_s: float
) -> dict[TopicPartition, float]:
    """Nothing of what comes is unpacked."""
    await consumer.start()
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout_s
    subscription, fetcher, topics = consumer.parts.subscription, consumer.parts.fetcher, consumer.parts.topics
    consumer.assign([])
    consumer.assign(places)
    for partition, place in places.items():
        # The end is just behind: one answer is enough, however little of it is asked for.
        subscription.state(partition).read_until(place + 1)
        consumer.seek(partition, place)
    found: dict[TopicPartition, float] = {}
    open_places = dict(places)
    try:
        while open_places and (left_s := deadline - loop.time()) > 0:
            topics.follow()
            await fetcher.wait_for_data(left_s)
            for partition, place in list(open_places.items()):
                state = subscription.state(partition)
                if state.fetch.offset > place:
                    found[partition] = state.bytes_per_offset
                elif state.failure is None and state.error is None:
                    continue
                # What is paused does not wake anybody any more.
                consumer.pause([partition])
                del open_places[partition]
    finally:
        consumer.assign([])
    return found
