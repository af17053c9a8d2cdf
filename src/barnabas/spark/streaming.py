"""The streaming reader: what each batch takes, and what it means when records or partitions are not where they were."""

from __future__ import annotations

import logging
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NoReturn

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from barnabas.base.errors import BarnabasError
from barnabas.spark.cluster import SparkCluster
from barnabas.spark.core import errors
from barnabas.spark.core.admission import MinOffsetsGate, limit_bytes, rate_limit
from barnabas.spark.core.options import SourceOptions
from barnabas.spark.core.positions import (
    Positions,
    SparkOffset,
    anew_in,
    batch_start,
    end_offset,
    from_offset,
    initial_offset,
    to_offset,
)
from barnabas.spark.core.ranges import OffsetRange, between
from barnabas.spark.density import bytes_per_offset
from barnabas.spark.mirror import Mirror
from barnabas.spark.tasks import Tasks, input_partitions
from barnabas.spark.telling import tells_first

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Run:
    """What the reader knows on the driver, while its query runs. Tasks get none of it."""

    cluster: SparkCluster
    gate: MinOffsetsGate | None
    mirror: Mirror | None
    initial: SparkOffset | None = None
    #: The ends of the partitions at the last look.
    latest: Positions = field(default_factory=dict)
    is_available_now: bool = False
    #: What a run with `availableNow` reads up to; taken at its first look, and fixed from then on, except for topics
    #: that are created again.
    target: Positions | None = None
    #: Of the topics as this run of the query first met them, or as it began with them anew.
    topic_ids: dict[str, str] = field(default_factory=dict)
    #: Losses that were warned about: the same one comes back at every look.
    warnings: set[str] = field(default_factory=set)


class StreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads topics in batches. One object lives on the driver as long as the query does; copies of it go to tasks."""

    def __init__(self, options: SourceOptions, tasks: Tasks, admin_client: dict[str, str]) -> None:
        self._options = options
        self._tasks = tasks
        self._admin_client = admin_client
        self._run_or_none: _Run | None = None

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "_run_or_none": None}

    # Asked by Spark on the driver, one call at a time.

    @tells_first
    def initialOffset(self) -> SparkOffset:  # noqa: N802
        """Where a query without a checkpoint starts. Asked again for each attempt at the first batch: it stays."""
        run = self._run
        if run.initial is None:
            run.initial = initial_offset(run.cluster.resolve(self._options.starting, is_start=True))
            self._remember_topics()
        return run.initial

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Spark knows no limit of several parts. So this says only that there is one, and `latestOffset` applies all;
        a run that must not be limited (Trigger.Once) comes back with `ReadAllAvailable` instead.
        """
        options = self._options
        if options.max_offsets_per_trigger is not None:
            return ReadMaxRows(options.max_offsets_per_trigger)
        if options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(options.max_bytes_per_trigger)
        if options.min_offsets_per_trigger is not None:
            return ReadMinRows(options.min_offsets_per_trigger)
        return ReadAllAvailable()

    @tells_first
    def latestOffset(self, start: SparkOffset, limit: ReadLimit) -> SparkOffset:  # noqa: N802
        """Where the next batch ends; `start` itself if there is to be none."""
        run = self._run
        begin = from_offset(start)
        if run.mirror is not None:
            # What a batch starts from is in the checkpoint: this shows the last batch of a run, too, for which Spark
            # never calls `commit`.
            run.mirror.show(begin)
        run.latest = self._look(begin)
        if not run.latest:
            return start
        anew = self._begin_anew(run.latest)
        # The old topic may have had partitions that the new one has not, or not yet.
        again = {each.topic for each in anew}
        begin = {each: position for each, position in begin.items() if each.topic not in again} | anew
        run.latest = {each: end for each, end in run.latest.items() if each.topic not in again or each in anew}
        if run.target is not None:
            run.target = run.latest
        end = run.latest if isinstance(limit, ReadAllAvailable) else self._admit(begin, run.latest)
        return end_offset(start, end, anew)

    @tells_first
    def reportLatestOffset(self) -> SparkOffset | None:  # noqa: N802
        return to_offset(self._run.latest) if self._run.latest else None

    @tells_first
    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        self._run.is_available_now = True

    @tells_first
    def partitions(self, start: SparkOffset, end: SparkOffset) -> list[InputPartition]:
        run = self._run
        until = from_offset(end)
        # Before all else: this is in the log, and so told as often as the query is started again.
        for topic in sorted({each.topic for each in anew_in(start, end)}):
            self._report(errors.topic_created_again(topic))
        begin = batch_start(start, end, self._options.starting)
        if run.target is not None:
            self._check_target(run.target, begin, until)
        self._remember_topics()
        ranges = self._plan(begin, until)
        # That may have been another look, and the first one at a topic: if it is created again, nobody would know.
        self._remember_topics()
        # Of a topic that is another one since the end of the batch was found, tasks read nothing: the positions are not
        # its own. The next batch begins with it anew.
        return [*input_partitions(ranges, self._options, self._tasks.plan.client, run.topic_ids)]

    @tells_first
    def commit(self, end: SparkOffset) -> None:
        if self._run.mirror is not None:
            self._run.mirror.show(from_offset(end))

    def stop(self) -> None:
        run, self._run_or_none = self._run_or_none, None
        if run is not None:
            run.cluster.close()

    # On executors.

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._tasks.read(partition)

    # The rest.

    @property
    def _run(self) -> _Run:
        if self._run_or_none is None:
            options = self._options
            cluster = SparkCluster(options, self._admin_client)
            gate = None
            if options.min_offsets_per_trigger is not None:
                gate = MinOffsetsGate(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
            mirror = None
            if options.mirror_group is not None:
                mirror = Mirror(options.mirror_group, cluster.commit, now_ms=_now_ms)
            self._run_or_none = _Run(cluster, gate, mirror)
        return self._run_or_none

    def _look(self, begin: Positions) -> Positions:
        """The ends of all partitions, or the target of a run with `availableNow`."""
        run = self._run
        if run.target is not None:
            return self._renewed(run.target)
        latest = run.cluster.latest(begin)
        self._remember_topics()
        gone = begin.keys() - latest.keys()
        if gone and not latest:
            # Nothing is left: no batch would come to tell of it.
            self._report(errors.partitions_deleted(gone, begin, group_id=self._options.group_id))
        if run.is_available_now:
            run.target = latest
        return latest

    def _renewed(self, target: Positions) -> Positions:
        """The target, with the ends of topics that were created again: where the old ones ended means nothing."""
        cluster = self._run.cluster
        cluster.look_at_topics()
        if not self._created_again():
            return target
        latest = cluster.latest(target)
        # As of this look: by now there may be more of them.
        again = self._created_again() & {each.topic for each in target}
        kept = {each: end for each, end in target.items() if each.topic not in again}
        return kept | {each: end for each, end in latest.items() if each.topic in again}

    def _admit(self, begin: Positions, latest: Positions) -> Positions:
        """As much of what is there as the options let into one batch."""
        options, run = self._options, self._run
        # A run with `availableNow` ends when there is no next batch: waiting for more would leave the rest unread.
        if run.gate is not None and not run.is_available_now and not run.gate.may_run(int(_now_ms()), begin, latest):
            return begin
        if options.max_offsets_per_trigger is None and options.max_bytes_per_trigger is None:
            return latest
        begin_of_new = run.cluster.earliest(latest.keys() - begin.keys())
        end = latest
        if options.max_offsets_per_trigger is not None:
            end = rate_limit(options.max_offsets_per_trigger, begin, end, begin_of_new)
        if options.max_bytes_per_trigger is not None:
            begins = {**begin_of_new, **begin}
            ranges = [each for each in between(begins, end) if each.size > 0]
            if ranges:
                per_offset = bytes_per_offset(self._tasks.plan.client, ranges)
                end = limit_bytes(options.max_bytes_per_trigger, begins, end, per_offset)
        return end

    def _plan(self, begin: Positions, until: Positions) -> list[OffsetRange]:
        """The ranges of a batch; what is not where it was is told, and fails the query unless it may not."""
        cluster = self._run.cluster
        new = until.keys() - begin.keys()
        first = cluster.earliest(new)
        if len(first) < len(new):
            self._report(errors.initial_offsets_not_found(new - first.keys()))
        for partition in sorted(first):
            if first[partition] != 0:
                self._report(errors.added_partition_does_not_start_from_zero(partition, first[partition]))
        gone = begin.keys() - until.keys()
        if gone:
            self._report(errors.partitions_deleted(gone, begin, group_id=self._options.group_id))
        ranges = between({**begin, **first}, until)
        for each in ranges:
            if each.size < 0:
                self._report(errors.partition_offset_changed(each.topic_partition, each.from_offset, each.until_offset))
        return ranges

    def _remember_topics(self) -> None:
        for topic, topic_id in self._run.cluster.topic_ids().items():
            self._run.topic_ids.setdefault(topic, topic_id)

    def _created_again(self) -> set[str]:
        """Topics that were others at the last look than the ones that this run knows."""
        now = self._run.cluster.topic_ids()
        return {topic for topic, topic_id in self._run.topic_ids.items() if now.get(topic, topic_id) != topic_id}

    def _begin_anew(self, latest: Positions) -> Positions:
        """The first offsets of partitions whose topic was deleted and created again: their old positions mean nothing.

        This goes into the end of the batch, so that the batch is the same one if it fails now and is run again by a
        query that knows nothing of the old topic.
        """
        run = self._run
        again = self._created_again()
        first = run.cluster.earliest(partition for partition in latest if partition.topic in again)
        # The ids of this very look: by the next one they may be others, of which these are not the first offsets.
        seen = run.cluster.topic_ids()
        run.topic_ids |= {each.topic: seen[each.topic] for each in first if each.topic in seen}
        return first

    def _check_target(self, target: Positions, begin: Positions, until: Positions) -> None:
        """A batch of a run with `availableNow` stays within its target, and what it is to read is still there."""
        if until.keys() != target.keys():
            raise errors.mismatched_topic_partitions_between_end_offset_and_prefetched(target, until)
        if _is_beyond(until, target):
            raise errors.end_offset_greater_than_prefetched(target, until)
        latest = self._run.cluster.latest(until)
        if until.keys() <= latest.keys() and not _is_beyond(until, latest):
            return
        # Perhaps a topic was created again. That does not pass, and is no matter of the target: the tasks of this batch
        # tell of it, and the next batch begins with it anew.
        self._run.cluster.look_at_topics(anew=True)
        again = self._created_again()
        until = {each: end for each, end in until.items() if each.topic not in again}
        gone = until.keys() - latest.keys()
        if gone:
            self._report(errors.partitions_deleted(gone, begin, group_id=self._options.group_id))
        until = {each: end for each, end in until.items() if each in latest}
        if _is_beyond(until, latest):
            raise errors.end_offset_greater_than_latest_with_available_now(latest, until)

    def _report(self, loss: errors.DataLossError) -> None:
        if self._options.fail_on_data_loss:
            raise loss
        if loss.explanation not in self._run.warnings:
            self._run.warnings.add(loss.explanation)
            log.warning("[%s] %s", loss.error_class, loss.explanation)


class RefusedStream(DataSourceStreamReader):
    """In place of a reader that cannot be made: says why when it is used.

    Spark 4.3 loses what is raised while a reader is made: it wants to stop the reader that is not there, and shows an
    error about that.
    """

    def __init__(self, error: BarnabasError) -> None:
        self._error = error

    def initialOffset(self) -> NoReturn:  # noqa: N802
        self._refuse()

    def latestOffset(self, *_: object) -> NoReturn:  # noqa: N802
        self._refuse()

    def partitions(self, start: object, end: object) -> NoReturn:
        self._refuse()

    def read(self, partition: object) -> NoReturn:
        self._refuse()

    def __getstate__(self) -> NoReturn:
        """Spark wants to send it to tasks: it is in use."""
        self._refuse()

    @tells_first
    def _refuse(self) -> NoReturn:
        raise self._error


def _is_beyond(positions: Positions, limit: Positions) -> bool:
    return any(position > limit[partition] for partition, position in positions.items())


def _now_ms() -> float:
    """Of the day, since delays are counted from the year 1970 on where there was no batch yet."""
    return time.time() * 1000
