"""How far a streaming query is behind its topics: in records, and in seconds.

    from barnabas.spark.lag import lag, summary

    lag(query, bootstrap_servers="127.0.0.1:9092")              # a StreamingQuery, or one of its progresses
    lag("/data/checkpoints/clicks", bootstrap_servers=…)        # also while the query does not run
    barnabas.spark.watch_lag(spark, bootstrap_servers=…)        # logged with every progress

Works for queries of `format("barnabas")` and `format("kafka")` alike.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from os import PathLike, fspath
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Protocol, Self, TypeAlias

from pyspark.sql.streaming.listener import StreamingQueryListener

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.spark.checkpoint_files import CheckpointFiles
from barnabas.spark.core.errors import OptionError, SparkConnectorError
from barnabas.spark.core.positions import Positions, from_offset, starts_of
from barnabas.spark.core.ranges import OffsetRange

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

    from barnabas import Consumer

_log: Final = logging.getLogger(__name__)

#: A lag is asked for by people and monitors: neither waits long for a cluster that does not answer.
_TIMEOUT_S: Final = 10.0

#: When no record comes for so long, there may be none.
_LOOK_AFTER_S: Final = 0.5

#: Enough for one batch of records: only the first is looked at.
_FETCH_BYTES: Final = 64 * 1024


class LagError(SparkConnectorError):
    """The lag cannot be told."""


@dataclass(frozen=True, slots=True)
class PartitionLag:
    """What a query has not read of one partition."""

    topic: str
    partition: int
    #: The next offset that the query reads.
    position: int
    #: The offset behind the last record.
    end: int
    #: Offsets between the two; where records were compacted away there are fewer.
    records: int
    #: The age of the first record that is not read; 0 if all are, None if it is not known.
    seconds: float | None
    #: Which source of the query, counted from 0.
    source: int = 0


@dataclass(frozen=True, slots=True)
class LagSummary:
    """The lag over all partitions, as the JVM connector sums it up."""

    min_offsets_behind: int
    max_offsets_behind: int
    avg_offsets_behind: float
    #: All records together, and the partition that is behind the longest.
    records: int
    seconds: float | None

    def metrics(self) -> dict[str, str]:
        """The metrics that the JVM connector puts into a query's progress, in its own writing."""
        return {
            "minOffsetsBehindLatest": str(self.min_offsets_behind),
            "maxOffsetsBehindLatest": str(self.max_offsets_behind),
            "avgOffsetsBehindLatest": _java_double(self.avg_offsets_behind),
        }


@dataclass(frozen=True, slots=True)
class QueryLag:
    """The lag of a query after one of its batches."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    partitions: tuple[PartitionLag, ...]

    @property
    def summary(self) -> LagSummary | None:
        return summary(self.partitions)


class Query(Protocol):
    """What is asked of a StreamingQuery, of a classic session or of Spark Connect."""

    @property
    def lastProgress(self) -> Any: ...  # noqa: N802


LagOf: TypeAlias = Query | Mapping[str, Any] | str | PathLike[str]


def lag(
    of: LagOf,
    *,
    bootstrap_servers: str | None = None,
    settings: Mapping[str, object] | None = None,
    timeout: float = _TIMEOUT_S,
) -> tuple[PartitionLag, ...]:
    """The lag of a query by partition: in the order of its sources, topics and partitions.

    `of` is a StreamingQuery, a progress (as an object, a dict or JSON), or the folder of a checkpoint. With
    `bootstrap_servers` the ends of the partitions and the age of the first unread record are asked for now; without it
    only a progress can be read, which holds the ends as they were then, and `seconds` is None. `settings` are further
    settings of the consumer that asks (`isolation.level=read_committed` to count what such a query can see).
    """
    with LagMeter(bootstrap_servers, settings, timeout=timeout) as meter:
        return meter.measure(of)


def summary(partitions: Sequence[PartitionLag]) -> LagSummary | None:
    """Least, most and average of the lag; None without partitions."""
    if not partitions:
        return None
    behind = [each.records for each in partitions]
    known = [each.seconds for each in partitions if each.seconds is not None]
    return LagSummary(min(behind), max(behind), sum(behind) / len(behind), sum(behind), max(known) if known else None)


def read_ranges(progress: Mapping[str, Any]) -> list[OffsetRange]:
    """What the batch of a progress has read of topics; from their beginning, where it does not say from where."""
    ranges = []
    for source in progress.get("sources") or ():
        starts, ends = _positions(source.get("startOffset")) or {}, _positions(source.get("endOffset")) or {}
        ranges += [OffsetRange(place, starts.get(place, 0), end) for place, end in ends.items()]
    return [each for each in ranges if each.size > 0]


class LagMeter:
    """Measures lags again and again with one consumer. One thread at a time uses that; others wait."""

    def __init__(
        self,
        bootstrap_servers: str | None = None,
        settings: Mapping[str, object] | None = None,
        *,
        timeout: float = _TIMEOUT_S,
        clock: Callable[[], float] = time.time,
    ) -> None:
        given = {} if bootstrap_servers is None else {"bootstrap.servers": bootstrap_servers}
        self._settings = {**(settings or {}), **given}
        self._timeout_s = timeout
        self._clock = clock
        self._lock = threading.Lock()
        self._consumer: Consumer | None = None

    @property
    def has_brokers(self) -> bool:
        return "bootstrap.servers" in self._settings

    def measure(self, of: LagOf) -> tuple[PartitionLag, ...]:
        """As `lag` does."""
        sources = _sources(of)
        with self._lock:
            return tuple(
                each
                for number, source in enumerate(sources)
                if source is not None
                for each in (self._asked(number, source) if self.has_brokers else _told(number, source))
            )

    def close(self) -> None:
        with self._lock:
            consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _asked(self, number: int, source: _Source) -> list[PartitionLag]:
        """With the ends as the brokers tell them now. A failure leaves no consumer behind that may be in its middle."""
        if not source.positions:
            return []
        consumer = self._opened()
        try:
            ends = consumer.end_offsets(self._partitions(consumer, source), self._timeout_s)
            unread = {place: source.positions.get(place, 0) for place in ends}
            ages = self._ages(consumer, {place: at for place, at in unread.items() if at < ends[place]}, ends)
        except BarnabasError as error:
            self._consumer = None
            consumer.close(timeout=0)
            raise LagError(f"the ends of the topics cannot be had: {error}") from error
        return [_lag(number, place, unread[place], ends[place], ages.get(place)) for place in sorted(ends)]

    def _opened(self) -> Consumer:
        if self._consumer is None:
            from barnabas import Consumer

            fixed = {
                "enable.auto.commit": "false",
                # Where records have expired unread, the oldest that is left is the first unread one.
                "auto.offset.reset": "earliest",
                "max.partition.fetch.bytes": _FETCH_BYTES,
                # Who only looks must not make a topic that was deleted anew.
                "allow.auto.create.topics": "false",
                # So long new partitions may stay unseen.
                "metadata.max.age.ms": 30_000,
            }
            self._consumer = Consumer({**fixed, **self._settings, "group.id": None})
        return self._consumer

    def _partitions(self, consumer: Consumer, source: _Source) -> list[TopicPartition]:
        """Those that the query reads. A checkpoint does not name those that it has not begun to read, so there they are
        those that its topics have got by now.
        """
        known = source.positions.keys() | (source.ends or {}).keys()
        topics = sorted({place.topic for place in known})
        found = {
            TopicPartition(topic, each.partition)
            for topic in topics
            for each in consumer.partitions_for(topic, self._timeout_s)
        }
        if known - found:
            # Topics grow, and what the consumer knows of them may be half a minute old.
            listed = consumer.list_topics(self._timeout_s)
            found = {TopicPartition(topic, each.partition) for topic in topics for each in listed.get(topic, ())}
        gone = sorted(known - found)
        if gone:
            raise LagError(f"{', '.join(map(str, gone))}: the query reads it, and the cluster does not have it")
        return sorted(found) if source.ends is None and source.has_whole_topics else sorted(known)

    def _ages(self, consumer: Consumer, unread: Positions, ends: Positions) -> dict[TopicPartition, float]:
        """How old the first unread record of each partition is; those that do not come in time are left out."""
        if not unread:
            return {}
        consumer.assign(unread)
        for place, offset in unread.items():
            consumer.seek(place, offset)
        ages: dict[TopicPartition, float] = {}
        deadline = time.monotonic() + self._timeout_s
        while len(ages) < len(unread) and (left_s := deadline - time.monotonic()) > 0:
            records = consumer.poll(min(left_s, _LOOK_AFTER_S), max_records=1)
            for record in records:
                place = TopicPartition(record.topic, record.partition)
                ages.setdefault(place, max(0.0, self._clock() - record.timestamp_ms / 1000))
                consumer.pause([place])
            if not records:
                # Offsets may be marks of transactions: where all of them are, nothing is left to read.
                waiting = [place for place in unread if place not in ages]
                ages |= {place: 0.0 for place in waiting if consumer.position(place, left_s) >= ends[place]}
        consumer.unsubscribe()
        return ages


class LagListener(StreamingQueryListener):
    """Tells the lag of every query of a session with each progress: to a function, or to the log.

        spark.streams.addListener(LagListener(bootstrap_servers="127.0.0.1:9092"))

    Without `bootstrap_servers` it tells what the progress itself knows: records, no seconds. A lag that cannot be had
    is a line in the log, and never harms the query.
    """

    def __init__(
        self,
        on_lag: Callable[[QueryLag], object] | None = None,
        *,
        bootstrap_servers: str | None = None,
        settings: Mapping[str, object] | None = None,
        timeout: float = _TIMEOUT_S,
    ) -> None:
        self._on_lag = on_lag or log_lag
        self._meter = LagMeter(bootstrap_servers, settings, timeout=timeout)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:  # noqa: N802
        pass

    def onQueryProgress(self, event: QueryProgressEvent) -> None:  # noqa: N802
        progress = event.progress
        try:
            partitions = self._meter.measure(progress)
            if partitions:
                self._on_lag(
                    QueryLag(str(progress.id), str(progress.runId), progress.name, progress.batchId, partitions)
                )
        except Exception as error:
            _log.warning("the lag of query %s cannot be told: %s", progress.name or progress.id, error)

    def onQueryIdle(self, event: QueryIdleEvent) -> None:  # noqa: N802
        pass

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:  # noqa: N802
        pass

    def close(self) -> None:
        """Close its connections. It can be used again afterwards."""
        self._meter.close()


def watch_lag(
    spark: SparkSession,
    on_lag: Callable[[QueryLag], object] | None = None,
    *,
    bootstrap_servers: str | None = None,
    settings: Mapping[str, object] | None = None,
) -> LagListener:
    """Tell the lag of all streaming queries of a session from now on; `spark.streams.removeListener` ends that."""
    listener = LagListener(on_lag, bootstrap_servers=bootstrap_servers, settings=settings)
    spark.streams.addListener(listener)
    return listener


def log_lag(query: QueryLag) -> None:
    """One line in the log for a query."""
    total = query.summary
    if total is None:
        return
    worst = max(query.partitions, key=lambda each: each.records)
    age = "" if total.seconds is None else f", {total.seconds:,.1f} s"
    place = f" (most in {worst.topic}-{worst.partition}: {worst.records:,})" if worst.records else ""
    name = query.name or query.query_id
    _log.info("query %s, batch %d: %s records behind%s%s", name, query.batch_id, f"{total.records:,}", age, place)


# What a query has read


@dataclass(frozen=True, slots=True)
class _Source:
    """How far a source of a query has read, and what it knew of the ends."""

    positions: Positions
    ends: Positions | None = None

    @property
    def has_whole_topics(self) -> bool:
        """Whether it reads all partitions of its topics, as far as can be told: those that it reads have no gaps."""
        counts: dict[str, int] = {}
        highest: dict[str, int] = {}
        for place in self.positions:
            counts[place.topic] = counts.get(place.topic, 0) + 1
            highest[place.topic] = max(highest.get(place.topic, 0), place.partition)
        return all(counts[topic] == highest[topic] + 1 for topic in counts)


def _told(number: int, source: _Source) -> list[PartitionLag]:
    """From the progress alone. As in the connector, a partition that was not read yet counts from 0."""
    if source.ends is None:
        raise LagError(
            "this does not say where the topics end: give bootstrap_servers, so that the brokers can be asked"
        )
    return [
        _lag(number, place, source.positions.get(place, 0), end, None) for place, end in sorted(source.ends.items())
    ]


def _lag(number: int, place: TopicPartition, position: int, end: int, age_s: float | None) -> PartitionLag:
    seconds = 0.0 if position >= end else age_s
    return PartitionLag(place.topic, place.partition, position, end, end - position, seconds, number)


def _sources(of: LagOf) -> list[_Source | None]:
    """Sources in their order; None for those that do not read topics, or have not begun."""
    if isinstance(of, str) and of.lstrip().startswith("{"):
        return _sources_of_progress(json.loads(of))
    if isinstance(of, (str, PathLike)):
        return _sources_of_checkpoint(fspath(of))
    if isinstance(of, Mapping):
        return _sources_of_progress(of)
    progress = of.lastProgress
    if progress is None:
        raise LagError("the query has made no progress yet: ask again after its first batch")
    return _sources_of_progress(progress)


def _sources_of_progress(progress: Mapping[str, Any]) -> list[_Source | None]:
    if "sources" not in progress:
        raise LagError(f"this is no progress of a query: it has {', '.join(map(repr, progress)) or 'nothing'}")
    sources = []
    for source in progress["sources"]:
        positions = _positions(source.get("endOffset"))
        sources.append(None if positions is None else _Source(positions, _positions(source.get("latestOffset"))))
    return sources


def _positions(offset: object) -> Positions | None:
    """An offset of a progress or a checkpoint: an object, or JSON, or JSON in JSON. None if it is not of topics."""
    for _ in range(3):
        if not isinstance(offset, str):
            break
        try:
            offset = json.loads(offset)
        except ValueError:
            return None
    try:
        return from_offset(offset)
    except OptionError:
        return None


# Checkpoints


def _sources_of_checkpoint(folder: str) -> list[_Source | None]:
    """Where the last batch ended that counts as done: what a restart would read next."""
    files = CheckpointFiles(folder)
    planned = files.numbers("offsets")
    if not planned:
        raise LagError(f"{folder} is not the checkpoint of a query that has begun: there is nothing in 'offsets'")
    done = set(planned) & set(files.numbers("commits"))
    if done:
        return [None if at is None else _Source(at) for at in map(_positions, _offset_lines(files, max(done)))]
    # Nothing is done: the query stands where its first batch begins.
    return [_begin(files, number, line) for number, line in enumerate(_offset_lines(files, min(planned)))]


def _begin(files: CheckpointFiles, number: int, line: str) -> _Source | None:
    """Where a source began: in the end of its first batch if it is ours, in a file of its own if it is the JVM's."""
    if _positions(line) is None:
        return None
    starts = starts_of(json.loads(line))
    if starts is None and (noted := files.text(f"sources/{number}/0")) is not None:
        starts = _positions(noted.lstrip("\0").partition("\n")[2].strip())
    if starts is None:
        raise LagError(f"{files.folder}: no batch is done, and the checkpoint does not say where the first one begins")
    return _Source(starts)


def _offset_lines(files: CheckpointFiles, batch: int) -> list[str]:
    """The offsets of a batch, one line per source: version 1 in their order, version 2 with their ids before them."""
    version, _, *lines = (files.text(f"offsets/{batch}") or "").splitlines() or ["", ""]
    if version == "v1":
        return lines
    if version == "v2":
        return [line.partition(":")[2] for line in lines]
    raise LagError(f"{files.folder}/offsets/{batch} has version {version!r}, and only v1 and v2 are known")


def _java_double(number: float) -> str:
    """As Java prints it: with an exponent from ten million on."""
    if number == 0 or 1e-3 <= abs(number) < 1e7:
        return repr(number)
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    first, rest = str(digits[0]), "".join(map(str, digits[1:])) or "0"
    return f"{'-' if sign else ''}{first}.{rest}E{exponent + len(digits) - 1}"
