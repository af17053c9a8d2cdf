"""The options of the source and the sink: every one of the JVM connector's, with its default and its limits, and ours.

Names are read in any case. What is wrong is refused with the option, its value and what is allowed; what is merely odd
is in `warnings`. Options that nobody knows pass, as everywhere in Spark, for programs and tools hand one set of options
to several sources; but those that look like a slip of the pen are refused, unless the user does not want that.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final, Self

from barnabas.base.settings.units import INT_MAX, MINUTE_MS
from barnabas.spark.core.admission_limits import Limit
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.given import STRICT, SparkOptions
from barnabas.spark.core.java_regex import RegexError, compile_java
from barnabas.spark.core.limit_options import limits_of_batch, limits_of_stream
from barnabas.spark.core.selection import Partitions, Pattern, Selection, Topics
from barnabas.spark.core.values import boolean, partitions, size_bytes, time_ms, trimmed, whole

SELECTIONS: Final = ("subscribe", "subscribePattern", "assign")
#: Options that only a stream heeds. In a batch they are passed over with a warning.
_OF_STREAMS: Final = (
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelay",
    "maxBytesPerTrigger",
    "mirrorToGroup",
)
#: Options of the decoding of values, which reads them itself.
DECODING_OPTIONS: Final = (
    "valueFormat",
    "valueSchema",
    "valueFraming",
    "schemaRegistryUrl",
    "schemaRegistryAuth",
    "schemas",
    "badRecords",
    "badRecordColumn",
    "deadLetterTopic",
    "maxBadRecords",
)
_SOURCE_OPTIONS: Final = (
    *SELECTIONS,
    *_OF_STREAMS,
    "startingTimestamp",
    "startingOffsetsByTimestamp",
    "startingOffsets",
    "startingOffsetsByTimestampStrategy",
    "endingTimestamp",
    "endingOffsetsByTimestamp",
    "endingOffsets",
    "failOnDataLoss",
    "kafkaConsumer.pollTimeoutMs",
    "fetchOffset.numRetries",
    "fetchOffset.retryIntervalMs",
    "partition.metadata.cache.ttl.ms",
    "minPartitions",
    "maxRecordsPerPartition",
    "maxBytesPerPartition",
    "groupIdPrefix",
    "includeHeaders",
    "pushFilters",
    STRICT,
    *DECODING_OPTIONS,
)
#: `includeHeaders` is known because the JVM connector documents it. It writes headers in either case, and so do we.
_OF_EXACTLY_ONCE: Final = ("sinkName", "controlTopic", "exactlyOnceFrom", "repeatedBatches")
#: What `topic_writer` adds for the batch that it is given.
BATCH_OPTION: Final = "exactlyOnceBatch"
_SINK_OPTIONS: Final = (
    "topic",
    "includeHeaders",
    "includeTimestamp",
    "delivery",
    *_OF_EXACTLY_ONCE,
    BATCH_OPTION,
    STRICT,
)

_DELAY_MS: Final = 15 * MINUTE_MS
_SINK: Final = "sink"
_CONTROL_TOPIC: Final = "barnabas-spark-control"

_BY_SPARK: Final = "Use functions of DataFrames to turn"
#: Settings of a consumer that would work against the source.
_REFUSED_BY_SOURCE: Final = {
    "auto.offset.reset": "where a new query begins is said by the option startingOffsets; a resumed one goes on"
    " where it was",
    "key.deserializer": f"keys are bytes. {_BY_SPARK} the column key into something else",
    "value.deserializer": f"values are bytes. {_BY_SPARK} the column value into something else",
    "enable.auto.commit": "Spark keeps track of what was read, in the checkpoint. To see it in a consumer group as"
    " well, use the option mirrorToGroup",
    "interceptor.classes": "an interceptor could change records behind Spark's back",
}
_REFUSED_BY_SINK: Final = {
    "key.serializer": f"keys are written as bytes. {_BY_SPARK} something else into the column key",
    "value.serializer": f"values are written as bytes. {_BY_SPARK} something else into the column value",
    "transactional.id": "the sink names its transactions itself. Leave it out; what makes a stream write exactly once"
    " is the option delivery=exactly-once",
}


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What a query reads, from where to where, and in which portions."""

    #: Settings of the client: what was given as `kafka.*`, without the prefix. May hold passwords.
    client: dict[str, str] = field(repr=False)
    selection: Selection
    starting: Limit
    ending: Limit
    fail_on_data_loss: bool
    poll_timeout_ms: int
    #: How often the driver tries in all.
    fetch_retries: int
    fetch_retry_interval_ms: int
    #: None: the list of partitions is asked for every time.
    partition_cache_ttl_ms: int | None
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_trigger_delay_ms: int
    max_bytes_per_trigger: int | None
    max_bytes_per_partition: int | None
    min_partitions: int | None
    max_records_per_partition: int | None
    #: Told in errors: the source reads without a group.
    group_id: str | None
    include_headers: bool
    mirror_group: str | None
    warnings: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, object], *, is_streaming: bool) -> Self:
        """Read the options of a batch or a stream; `OptionError` says what is wrong."""
        given = SparkOptions(options, _SOURCE_OPTIONS)
        slips = given.check_slips()
        starting, ending = limits_of_stream(given) if is_streaming else limits_of_batch(given)
        selection = _selection(given)
        client = given.client(_REFUSED_BY_SOURCE)
        fewest, most = _offsets_per_trigger(given, is_streaming=is_streaming)
        return cls(
            client=client,
            selection=selection,
            starting=starting,
            ending=ending,
            fail_on_data_loss=given.read("failOnDataLoss", boolean, True),
            poll_timeout_ms=given.read("kafkaConsumer.pollTimeoutMs", whole(1), 2 * MINUTE_MS),
            fetch_retries=given.read("fetchOffset.numRetries", whole(1, INT_MAX), 3),
            fetch_retry_interval_ms=given.read("fetchOffset.retryIntervalMs", whole(0), 1000),
            partition_cache_ttl_ms=given.read("partition.metadata.cache.ttl.ms", _cache_ttl_ms, None),
            max_offsets_per_trigger=most,
            min_offsets_per_trigger=fewest,
            max_trigger_delay_ms=given.read("maxTriggerDelay", _delay_ms, _DELAY_MS) if is_streaming else _DELAY_MS,
            max_bytes_per_trigger=given.read("maxBytesPerTrigger", size_bytes, None) if is_streaming else None,
            max_bytes_per_partition=given.read("maxBytesPerPartition", size_bytes, None),
            min_partitions=given.read("minPartitions", whole(1, INT_MAX), None),
            max_records_per_partition=given.read("maxRecordsPerPartition", whole(1), None),
            group_id=client.get("group.id"),
            include_headers=given.read("includeHeaders", boolean, False),
            mirror_group=given.read("mirrorToGroup", _name, None) if is_streaming else None,
            warnings=(*slips, *_oddities(given, is_streaming=is_streaming)),
        )


@dataclass(frozen=True, slots=True)
class ExactlyOnceOptions:
    """What the transactions of a sink are called, and what is done where the past is not what it should be."""

    #: One of several sinks of a query.
    sink: str = _SINK
    control_topic: str = _CONTROL_TOPIC
    #: The first batch that is written exactly once.
    first_batch: int = 0
    #: Whether a repeated batch may have other rows than those that were decided, which stay.
    keeps_other_rows: bool = False
    #: The batch of `foreachBatch`; a stream tells its own.
    batch: int | None = None


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where rows are written, and how surely."""

    #: Settings of the client: what was given as `kafka.*`, without the prefix. May hold passwords.
    client: dict[str, str] = field(repr=False)
    #: For all rows, whatever their column `topic` says; None: the column counts.
    topic: str | None
    #: Whether the column `timestamp` becomes the records' timestamp.
    include_timestamp: bool
    #: None: at least once.
    exactly_once: ExactlyOnceOptions | None
    warnings: tuple[str, ...]

    @classmethod
    def parse(cls, options: Mapping[str, object]) -> Self:
        """Read the options of a write; `OptionError` says what is wrong."""
        given = SparkOptions(options, _SINK_OPTIONS)
        slips = given.check_slips()
        client = given.client(_REFUSED_BY_SINK)
        is_exactly_once = given.read("delivery", _is_exactly_once, False)
        passed = [name for name in _OF_EXACTLY_ONCE if name in given and not is_exactly_once]
        topic = given.read("topic", _name, None)
        exactly_once = _exactly_once(given, client) if is_exactly_once else None
        if exactly_once is not None and exactly_once.control_topic == topic:
            raise OptionError(
                f"Options topic and controlTopic are both {topic!r}: decisions need a topic of their own."
            )
        return cls(
            client=client,
            topic=topic,
            include_timestamp=given.read("includeTimestamp", boolean, False),
            exactly_once=exactly_once,
            warnings=(*slips, *(f"Option {name} is passed over: it is for delivery=exactly-once." for name in passed)),
        )


def _selection(given: SparkOptions) -> Selection:
    names = [name for name in SELECTIONS if name in given]
    if len(names) != 1:
        problem = f"{' and '.join(names)} are given" if names else "none of them is given"
        raise OptionError(f"A query reads by exactly one of {', '.join(SELECTIONS)}; {problem}.")
    return given.read(names[0], _READERS[names[0]], Topics(()))


def _topics(name: str, text: str) -> Selection:
    topics = [topic for topic in map(trimmed, text.split(",")) if topic]
    if not topics:
        raise OptionError(f"Option {name} is {text!r}, which names no topic; allowed are names with commas between.")
    return Topics(tuple(dict.fromkeys(topics)))


def _pattern(name: str, text: str) -> Selection:
    regex = trimmed(text)
    if not regex:
        raise OptionError(f"Option {name} is empty; allowed is a Java regular expression, such as clicks-.*")
    try:
        compile_java(regex)
    except RegexError as problem:
        raise OptionError(f"Option {name} is {regex!r}, a regular expression that cannot be used: {problem}.") from None
    return Pattern(regex)


def _assigned(name: str, text: str) -> Selection:
    return Partitions(partitions(name, trimmed(text)))


_READERS: Final[dict[str, Callable[[str, str], Selection]]] = {
    "subscribe": _topics,
    "subscribePattern": _pattern,
    "assign": _assigned,
}


def _offsets_per_trigger(given: SparkOptions, *, is_streaming: bool) -> tuple[int | None, int | None]:
    names = "minOffsetsPerTrigger", "maxOffsetsPerTrigger"
    if not is_streaming and not all(name in given for name in names):
        return None, None
    fewest, most = given.read(names[0], whole(0), None), given.read(names[1], whole(1), None)
    if fewest is not None and most is not None and fewest > most:
        raise OptionError(f"Option {names[0]} is {fewest}, which is more than {names[1]}, {most}.")
    return (fewest, most) if is_streaming else (None, None)


def _cache_ttl_ms(name: str, text: str) -> int | None:
    if text == "-1":
        return None
    try:
        return whole(1)(name, text)
    except OptionError:
        raise OptionError(
            f"Option {name} is {text!r}; allowed is a positive number of milliseconds, or -1 for no cache."
        ) from None


def _delay_ms(name: str, text: str) -> int:
    delay_ms = time_ms(name, text)
    if delay_ms < 0:
        raise OptionError(f"Option {name} is {text!r}; a delay cannot be negative.")
    return delay_ms


def _name(name: str, text: str) -> str:
    if not trimmed(text):
        raise OptionError(f"Option {name} is empty; give it a name, or leave it out.")
    return trimmed(text)


def _is_exactly_once(name: str, text: str) -> bool:
    if text.lower() not in ("at-least-once", "exactly-once"):
        raise OptionError(f"Option {name} is {text!r}; allowed are at-least-once and exactly-once.")
    return text.lower() == "exactly-once"


#: What an exactly-once sink cannot do with, and why.
_NEEDED_BY_TRANSACTIONS: Final = {
    "acks": ({"all", "-1"}, "a transaction is worth what all in-sync replicas have of it"),
    "enable.idempotence": ({"true"}, "without it a retry of the producer writes records twice"),
}


def _exactly_once(given: SparkOptions, client: Mapping[str, str]) -> ExactlyOnceOptions:
    for name, (allowed, why) in _NEEDED_BY_TRANSACTIONS.items():
        if name in client and trimmed(client[name]).lower() not in allowed:
            raise OptionError(
                f"Option kafka.{name} is {client[name]!r}, and delivery is exactly-once: {why}. Leave kafka.{name} out."
            )
    if trimmed(client.get("retries", "")) == "0":
        raise OptionError(
            "Option kafka.retries is '0', and delivery is exactly-once: a transaction needs a producer that tries"
            " again. Leave kafka.retries out."
        )
    return ExactlyOnceOptions(
        sink=given.read("sinkName", _sink_name, _SINK),
        control_topic=given.read("controlTopic", _name, _CONTROL_TOPIC),
        first_batch=given.read("exactlyOnceFrom", whole(0), 0),
        keeps_other_rows=given.read("repeatedBatches", _keeps_other_rows, False),
        batch=given.read(BATCH_OPTION, whole(0), None),
    )


def _sink_name(name: str, text: str) -> str:
    if re.fullmatch("[A-Za-z0-9_-]{1,80}", trimmed(text)) is None:
        raise OptionError(f"Option {name} is {text!r}; allowed are up to 80 of the characters A-Z, a-z, 0-9, _ and -.")
    return trimmed(text)


def _keeps_other_rows(name: str, text: str) -> bool:
    if text.lower() not in ("refuse", "keep"):
        raise OptionError(f"Option {name} is {text!r}; allowed are refuse, and keep for those that were decided.")
    return text.lower() == "keep"


def _oddities(given: SparkOptions, *, is_streaming: bool) -> Iterator[str]:
    if not is_streaming:
        yield from (f"Option {name} is passed over: it is for streams." for name in _OF_STREAMS if name in given)
    elif "endingTimestamp" in given:
        yield "Option endingTimestamp is passed over: a stream has no end."
    if "kafka.group.id" in given:
        yield (
            "Option kafka.group.id is passed over: the source reads without a consumer group. To see in one how far a"
            " query is, use the option mirrorToGroup."
        )
