"""What a task of Spark does: a range of offsets of one partition, as Arrow batches of the source's columns."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql.datasource import InputPartition

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.settings.units import LONG_MAX
from barnabas.client.consumer.range_reading import RangeReader, Run
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.client.errors import ClientTimeoutError, LogTruncatedError, NoBrokersError, OffsetOutOfRangeError
from barnabas.net.errors import ChannelError
from barnabas.records._kernel.collect import RecordColumns
from barnabas.spark.core import errors
from barnabas.spark.core.admission_limits import EARLIEST, LATEST
from barnabas.spark.core.errors import DataLossError, SparkConnectorError
from barnabas.spark.pool import ClientPool

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)

#: Spark takes longer over many small batches, and longer again over batches that no cache can hold.
_BATCH_ROWS: Final = 65_536
_BATCH_BYTES: Final = 8 << 20
#: One fetch brings about as much as one batch takes, and costs the broker as little as can be.
_FETCH_BYTES: Final = 4 << 20
#: When nothing comes for so long, somebody looks why.
_LOOK_AFTER_S: Final = 1.0
#: Who is asked why, and says nothing for so long, is asked again.
_ANSWER_WITHIN_S: Final = 1.0
#: A topic that was just created, or whose leader has just changed, may seem to be gone for a moment.
_GONE_AFTER_S: Final = 5.0
_CREATED_AGAIN: Final = "the topic was deleted and created again; a new checkpoint reads the new one from its beginning"


@dataclass
class RangePartition(InputPartition):
    """The records of one partition from one offset up to another, for one task.

    `EARLIEST` and `LATEST` stand for the offsets that the brokers tell when the task begins.
    """

    topic: str
    partition: int
    from_offset: int
    until_offset: int
    #: Of the topic for which the range was planned, as text; None where brokers have no topic ids.
    topic_id: str | None = None


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """What all ranges of a read share."""

    #: Settings of the consumer, with dots; `bootstrap.servers` among them. May hold passwords.
    client: dict[str, str] = field(repr=False)
    #: A range that gets no further for so long fails.
    poll_timeout_ms: int = 120_000
    #: Whether records that are gone before they were read fail the range, or are passed over with a warning.
    fail_on_data_loss: bool = True
    include_headers: bool = False
    #: Told in errors; nothing is committed.
    group_id: str | None = None


def consumer_settings(client: Mapping[str, str]) -> dict[str, str]:
    """For a consumer that reads what it is told to: without a group, since it is Spark that hands out ranges."""
    # Whoever deletes a topic does not want a reader to create it again.
    ours = {"max.partition.fetch.bytes": str(_FETCH_BYTES), "allow.auto.create.topics": "false"}
    settings = {**ours, **client, "auto.offset.reset": "none"}
    settings.pop("group.id", None)
    settings.pop("group.instance.id", None)
    return settings


_consumers: Final = ClientPool[Consumer](Consumer)


def read_range(plan: ReadPlan, part: RangePartition) -> Iterator[pa.RecordBatch]:
    """The records of a range, in batches of `arrow_schema(plan.include_headers)`; none if there are none.

    Offsets without a record (compacted away, markers of transactions, aborted records under `read_committed`) are
    passed over. Records that were deleted before they could be read are lost data: an error that names the lost offsets
    or, without `fail_on_data_loss`, a warning.
    """
    if 0 <= part.until_offset <= part.from_offset:
        return
    with _consumers.lend(consumer_settings(plan.client)) as consumer:
        reading = RangeReading(plan, part, consumer)
        try:
            yield from reading.batches()
        except GeneratorExit:
            # Spark has enough, as in a query with a limit.
            reading.end()
            raise
        reading.end()


class RangeReading:
    """One range on its way. Fetching goes on in the background while Spark is busy with a batch, up to a fetch or two
    ahead.

    The consumer comes from a pool, and what it knows of the cluster may be minutes older than the plan: the topic may
    have got partitions since, or have been created again. Hence:

    - Nothing is fetched, and nothing that came is given out, while the topic has another id than the plan's for the
      consumer. A fetch by id (version 13 and later) then brings no other records than the plan's. One by name may,
      until the consumer hears of the new topic: with such brokers that is noticed late.
    - What the consumer knows is no proof that something is gone. It is gone if brokers say so that were asked after the
      trouble began, and still say so when they are asked `_GONE_AFTER_S` later: one that lags behind the others knows
      neither a new topic nor new partitions, and may tell the id of the topic before.
    - When nobody answers, nothing is gone; the range fails when its time is over.
    """

    def __init__(
        self, plan: ReadPlan, part: RangePartition, consumer: Consumer, now_s: Callable[[], float] = time.monotonic
    ) -> None:
        self._plan = plan
        self._now_s = now_s
        self._partition = TopicPartition(part.topic, part.partition)
        self._part = part
        #: Without a limit while it is not known which offset an open end stands for.
        self._until_offset = LONG_MAX if part.until_offset == LATEST else part.until_offset
        self._has_begun = False
        self._topic_id = None if part.topic_id is None else Uuid.parse(part.topic_id)
        self._reader = RangeReader(consumer, self._partition, self._topic_id)
        self._reader.position = max(0, part.from_offset)
        self._columns = RecordColumns()
        # Since when nothing has come, and since when brokers have said that nothing can come.
        self._idle_since_s = now_s()
        self._gone_since_s: float | None = None

    def batches(self) -> Iterator[pa.RecordBatch]:
        from barnabas.spark.columns import BatchMaker

        maker = BatchMaker(self._partition, self._plan.include_headers)
        columns = self._columns
        self._begin()
        while self._reader.position < self._until_offset:
            runs = self._fill()
            if columns.row_count:
                batch = maker.make(columns.take(), runs, self._until_offset)
                if batch.num_rows:
                    yield batch
                # The time that Spark took is not the broker's.
                self._idle_since_s = self._now_s()

    def end(self) -> None:
        """The consumer is free for another range."""
        self._reader.end()

    def _begin(self) -> None:
        first, until = self._part.from_offset, self._part.until_offset
        if first == EARLIEST or until == LATEST:
            limits = self._limits_at_last()
            if limits is None:
                return
            first = limits[0] if first == EARLIEST else first
            until = limits[1] if until == LATEST else until
        self._until_offset, self._has_begun = until, True
        self._reader.begin(first, until)

    def _limits_at_last(self) -> tuple[int, int] | None:
        """Where the partition begins and ends, however long it takes to tell; None if it is given up as lost."""
        while True:
            shorter: DataLossError | None = None
            try:
                first, end = self._reader.limits(_ANSWER_WITHIN_S)
                if self._part.until_offset != LATEST or end >= self._part.from_offset:
                    return first, end
                # The plan was made when there was more. A range that seems to hold nothing must not pass for read.
                shorter = errors.partition_offset_changed(self._partition, self._part.from_offset, end)
            except (ClientTimeoutError, NoBrokersError) as error:
                log.info("the limits of %s: %s", self._partition, error)
            except BrokerError as error:
                if error.code is not ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    raise
                log.info("the limits of %s: %s", self._partition, error)
            self._look_why(shorter)
            if self._reader.position == self._until_offset:
                return None

    def _fill(self) -> list[Run]:
        """Rows for one batch; fewer than make a good one only at the end, or if no more come for a while. None if the
        range has come to its end."""
        columns, reader = self._columns, self._reader
        while reader.position < self._until_offset:
            before = reader.position
            runs: list[Run] = []
            failure: OffsetOutOfRangeError | LogTruncatedError | None = None
            try:
                runs = reader.fill(columns, max_rows=_BATCH_ROWS, max_bytes=_BATCH_BYTES, timeout_s=self._patience_s())
            except (OffsetOutOfRangeError, LogTruncatedError) as error:
                failure = error
            except (NoBrokersError, ClientTimeoutError, ChannelError) as error:
                log.info("%s at offset %s: %s", self._partition, before, error)
            if self._is_another_topic():
                # Whatever came may be of the other one. If that is a mistake of the view's, it is fetched again.
                columns.take()
                reader.seek(before)
            elif failure is not None:
                self._out_of_range(failure)
            if columns.row_count or reader.position != before:
                self._idle_since_s, self._gone_since_s = self._now_s(), None
            else:
                self._look_why()
            if columns.row_count:
                return runs
        return []

    def _patience_s(self) -> float:
        return min(_LOOK_AFTER_S, self._plan.poll_timeout_ms / 1000)

    # When records are not there

    def _is_another_topic(self) -> bool:
        found = self._reader.view.topic_id(self._partition.topic)
        return self._topic_id is not None and found not in (Uuid.ZERO, self._topic_id)

    def _out_of_range(self, error: OffsetOutOfRangeError | LogTruncatedError) -> None:
        position = self._reader.position
        limits = self._limits()
        if limits is None or (limits[0] <= position < limits[1] and isinstance(error, OffsetOutOfRangeError)):
            # Nobody can tell, or it is there all the same: it is asked for again, until the time is over.
            self._reader.seek(position)
            self._check_time(error)
            return
        first, end = limits
        if position < first:
            lost = self._lost(min(first, self._until_offset), f"the partition begins at offset {first} by now")
            self._lose(lost, first)
        elif position >= end:
            self._lose_the_rest(f"the partition ends at offset {end} by now")
        else:
            self._lose(self._lost(self._until_offset, str(error)), position)

    def _look_why(self, shorter: DataLossError | None = None) -> None:
        """Nothing has come for a while; `shorter` if that is because the partition ends before the range begins."""
        asked_at_s = self._now_s()
        is_told = self._has_news()
        is_deleted = is_told and self._is_deleted()
        # Another topic has limits, too; that it is another one shows when it is read, or here if it ends too soon.
        is_another = is_told and self._is_another_topic() and (self._has_begun or shorter is not None)
        if not is_deleted and not is_another:
            self._gone_since_s = None
        elif self._gone_since_s is None:
            self._gone_since_s = self._now_s()
        elif asked_at_s - self._gone_since_s >= _GONE_AFTER_S:
            if is_deleted:
                lost = errors.partitions_deleted([self._partition], {self._partition: self._reader.position})
            else:
                lost = shorter or self._lost(self._until_offset, _CREATED_AGAIN)
            self._lose(lost, self._until_offset)
            return
        self._check_time(None, shorter)

    def _has_news(self) -> bool:
        """Whether the view is what brokers say now."""
        try:
            self._reader.renew_view(_ANSWER_WITHIN_S)
        except (ClientTimeoutError, NoBrokersError, ChannelError) as error:
            log.info("%s: %s", self._partition, error)
            return False
        return True

    def _is_deleted(self) -> bool:
        topic, number = self._partition
        view = self._reader.view
        count = view.partition_count(topic)
        is_beyond = count is not None and number >= count
        return is_beyond or view.topic_error(topic) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    def _limits(self) -> tuple[int, int] | None:
        """Where the partition begins and ends; None if nobody says."""
        try:
            return self._reader.limits(_ANSWER_WITHIN_S)
        except (ClientTimeoutError, NoBrokersError, ChannelError, BrokerError) as error:
            log.debug("the limits of %s: %s", self._partition, error)
            return None

    def _lost(self, until_offset: int, reason: str) -> DataLossError:
        return errors.could_not_read_offset_range(
            self._partition, self._reader.position, until_offset, group_id=self._plan.group_id, reason=reason
        )

    def _lose_the_rest(self, reason: str) -> None:
        self._lose(self._lost(self._until_offset, reason), self._until_offset)

    def _lose(self, lost: DataLossError, go_on_at: int) -> None:
        """Fail, or tell what is lost and go on behind it."""
        if self._plan.fail_on_data_loss:
            raise lost
        log.warning("%s", lost.explanation)
        self._idle_since_s, self._gone_since_s = self._now_s(), None
        if go_on_at < self._until_offset:
            self._reader.seek(go_on_at)
        else:
            self._reader.position = self._until_offset

    def _check_time(self, cause: Exception | None, shorter: DataLossError | None = None) -> None:
        timeout_s = self._plan.poll_timeout_ms / 1000
        if self._now_s() - self._idle_since_s < timeout_s:
            return
        if shorter is not None:
            self._lose(shorter, self._until_offset)
            return
        # Limits are asked for by name.
        limits = self._limits() if self._has_begun and not self._is_another_topic() else None
        if limits is not None and self._reader.position >= limits[1]:
            # Not sooner: a new leader, too, shows less than there is until its followers have told what they have.
            self._lose_the_rest(f"the partition ends at offset {limits[1]} by now")
            return
        why = cause or self._reader.why_nothing_comes(timeout_s)
        what = f"Nobody told where {self._partition} begins and ends"
        if self._has_begun:
            what = (
                f"Nothing more of {self._partition} came from offset {self._reader.position} on (of a range up to "
                f"{self._until_offset})"
            )
        raise SparkConnectorError(
            f"{what} within {self._plan.poll_timeout_ms} ms: {why}. Look at the brokers; if they are only slow, raise "
            "the option kafkaConsumer.pollTimeoutMs."
        ) from cause
