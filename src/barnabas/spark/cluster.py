"""What a driver asks the brokers: which partitions there are, and the offsets that options and batches stand for."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.errors import KeyedError, NoBrokersError
from barnabas.spark.core import errors
from barnabas.spark.core.admission_limits import (
    EARLIEST,
    LATEST,
    Earliest,
    LatestOffsets,
    Limit,
    Offsets,
    OnNoMatch,
    Timestamp,
    Timestamps,
)
from barnabas.spark.core.options import SourceOptions
from barnabas.spark.core.positions import Positions
from barnabas.spark.core.selection import Partitions, Pattern, Topics

if TYPE_CHECKING:
    from barnabas import Admin
    from barnabas.client.admin.topic_descriptions import TopicDescription

log = logging.getLogger(__name__)

T = TypeVar("T")

_UNKNOWN: Final = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})
#: A commit that only shows progress must not hold up the query.
_COMMIT_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True, slots=True)
class FoundTopics:
    """What there is of the topics that the options ask for."""

    partitions: frozenset[TopicPartition]
    #: By topic; without those whose broker knows no ids.
    topic_ids: Mapping[str, str]
    #: Asked for by name and not there, in order.
    missing_topics: tuple[str, ...] = ()


class SparkCluster:
    """The cluster of one read. Connects when it is first asked.

    Each question is asked up to `fetchOffset.numRetries` times, with a new connection each time, since a topic that is
    created or deleted, or a broker that restarts, may answer with errors for a moment.
    """

    def __init__(
        self,
        options: SourceOptions,
        client: Mapping[str, str],
        *,
        sleep: Callable[[float], None] = time.sleep,
        now_ms: Callable[[], float] = lambda: time.monotonic() * 1000,
    ) -> None:
        self._options = options
        self._client = dict(client)
        self._sleep = sleep
        self._now_ms = now_ms
        self._isolation_level = options.client.get("isolation.level", "read_uncommitted").strip()
        self._admin: Admin | None = None
        self._cached: FoundTopics | None = None
        self._cached_at_ms = 0.0
        self._was_reached = False
        #: Topics that were there once.
        self._met: set[str] = set()

    def close(self) -> None:
        """Close the connections; the next question opens them again."""
        admin, self._admin, self._cached = self._admin, None, None
        if admin is not None:
            admin.close()

    def partitions(self) -> frozenset[TopicPartition]:
        """Those that the options select, as they are now, or were up to `partition.metadata.cache.ttl.ms` ago. A topic
        that is asked for by name must exist.
        """
        return self._tried(self._there)

    def topic_ids(self) -> Mapping[str, str]:
        """The ids of the topics, by name, as they were when partitions were last asked for."""
        return (self._cached or self._tried(self._found)).topic_ids

    def look_at_topics(self, *, anew: bool = False) -> None:
        """Ask for partitions and ids; `anew` means now, however long they are to be kept."""
        if anew:
            self._cached = None
        self._tried(self._found)

    def earliest(self, partitions: Iterable[TopicPartition] | None = None) -> Positions:
        """The first offsets of all partitions, or of those that are still there of the given ones."""
        if partitions is None:
            return self._tried(lambda: self._list(dict.fromkeys(self._there(), EARLIEST)))
        wanted = frozenset(partitions)
        return self._tried(lambda: self._list(dict.fromkeys(wanted and self._found().partitions & wanted, EARLIEST)))

    def latest(self, known: Mapping[TopicPartition, int] | None = None) -> Positions:
        """The ends of all partitions; under `read_committed`, of what is committed.

        An end before what is `known` to be there is asked for again, a few times: after a change of leaders the new one
        may not know yet how far its log counts. What it says then is taken. Topics of `known` may be missing: they
        were deleted, and what that means is for the caller to say. Without failOnDataLoss those that the query has read
        before may be, too.
        """
        may_be_missing = {partition.topic for partition in known or ()}
        self._met |= may_be_missing
        if known is not None and not self._options.fail_on_data_loss:
            may_be_missing |= self._met
        ends: Positions = {}
        for attempt in range(1, self._options.fetch_retries + 1):
            if attempt > 1:
                self._sleep(self._options.fetch_retry_interval_ms / 1000)
            ends = self._tried(lambda: self._list(dict.fromkeys(self._there(may_be_missing), LATEST)))
            behind = {tp: end for tp, end in ends.items() if known is not None and end < known.get(tp, 0)}
            if not behind:
                break
            log.warning("attempt %d: partitions end before what was read: %s", attempt, errors.positions_text(behind))
        return ends

    def at_times(self, timestamps_ms: Mapping[TopicPartition, int]) -> dict[TopicPartition, int | None]:
        """The first offset of each partition whose record is not older; None where all are."""
        found = self._tried(lambda: self._list(timestamps_ms, by_time=True))
        return {partition: offset if offset >= 0 else None for partition, offset in found.items()}

    def resolve(self, limit: Limit, *, is_start: bool) -> Positions:
        """The offsets that the start or the end of a read stands for."""
        match limit:
            case Earliest():
                return self.earliest()
            case LatestOffsets():
                return self.latest()
            case Offsets(offsets):
                there = self.partitions()
                if there != set(offsets):
                    raise errors.start_offset_does_not_match_assigned(offsets, there)
                open_ones = {partition: offset for partition, offset in offsets.items() if offset < 0}
                return {**offsets, **self._tried(lambda: self._list(open_ones))}
            case Timestamps(timestamps_ms, on_no_match):
                there = self.partitions()
                if there != set(timestamps_ms):
                    raise errors.timestamp_offset_does_not_match_assigned(timestamps_ms, there, is_start=is_start)
                return self._resolve_times(timestamps_ms, on_no_match)
            case Timestamp(timestamp_ms, on_no_match):
                return self._resolve_times(dict.fromkeys(self.partitions(), timestamp_ms), on_no_match)

    def commit(self, group_id: str, positions: Mapping[TopicPartition, int]) -> None:
        """Make these the offsets of a consumer group that has no members. Tried once."""
        self._connected().alter_group_offsets(group_id, positions, timeout=_COMMIT_TIMEOUT_S)

    def _resolve_times(self, timestamps_ms: Mapping[TopicPartition, int], on_no_match: OnNoMatch) -> Positions:
        found = self.at_times(timestamps_ms)
        unmatched = sorted(partition for partition, offset in found.items() if offset is None)
        if unmatched and on_no_match == "error":
            raise errors.no_offset_for_timestamp(unmatched[0], timestamps_ms[unmatched[0]])
        matched = {partition: offset for partition, offset in found.items() if offset is not None}
        return {**matched, **self._tried(lambda: self._list(dict.fromkeys(unmatched, LATEST)))}

    # Questions, as they are tried again and again: those about offsets begin with the partitions, which may be others
    # by then.

    def _found(self) -> FoundTopics:
        ttl_ms = self._options.partition_cache_ttl_ms
        if self._cached is None or ttl_ms is None or self._now_ms() - self._cached_at_ms >= ttl_ms:
            self._cached = self._ask_for_topics()
            self._cached_at_ms = self._now_ms()
        return self._cached

    def _there(self, may_be_missing: Collection[str] = ()) -> frozenset[TopicPartition]:
        found = self._found()
        missing = [topic for topic in found.missing_topics if topic not in may_be_missing]
        if missing:
            raise self._missing(missing)
        return found.partitions

    def _list(self, wanted: Mapping[TopicPartition, int], *, by_time: bool = False) -> Positions:
        """Offsets by `LATEST`, `EARLIEST` or, `by_time`, by timestamp."""
        from barnabas import OffsetSpec

        if not wanted:
            return {}
        specs = {
            partition: OffsetSpec.at(spec)
            if by_time
            else (OffsetSpec.latest() if spec == LATEST else OffsetSpec.earliest())
            for partition, spec in wanted.items()
        }
        listed = self._connected().list_offsets(specs, isolation_level=self._isolation_level)
        return {partition: each.offset for partition, each in listed.items()}

    def _ask_for_topics(self) -> FoundTopics:
        admin, selection = self._connected(), self._options.selection
        match selection:
            case Topics(names):
                wanted = names
            case Pattern():
                # Not the whole name must match: that is how the JVM connector takes it.
                wanted = tuple(name for name in admin.list_topics() if selection.matches(name))
            case Partitions(partitions):
                wanted = tuple(sorted({partition.topic for partition in partitions}))
        described, missing = _describe(admin, wanted)
        self._met |= described.keys()
        there = {
            TopicPartition(topic, each.partition)
            for topic, description in described.items()
            if not description.is_internal
            for each in description.partitions
        }
        if isinstance(selection, Partitions):
            absent = [each for each in selection.partitions if each not in there and each.topic in described]
            if absent:
                log.warning("these partitions are assigned and do not exist: %s", errors.partitions_text(absent))
            there &= selection.partitions
        if isinstance(selection, Pattern):
            missing = ()  # Deleted between the two questions; by its pattern nobody has asked for it.
        ids = {topic: str(each.topic_id) for topic, each in described.items() if each.topic_id != Uuid.ZERO}
        return FoundTopics(frozenset(there), ids, missing)

    def _tried(self, question: Callable[[], T]) -> T:
        attempts = self._options.fetch_retries
        for attempt in range(1, attempts + 1):
            try:
                answer = question()
                self._was_reached = True
                return answer
            except (BarnabasError, OSError) as error:
                self.close()
                # Where nobody has ever answered, the address is more likely to be wrong than the brokers to come back,
                # and the client itself has tried for default.api.timeout.ms.
                if attempt == attempts or (isinstance(error, NoBrokersError) and not self._was_reached):
                    raise
                log.warning("attempt %d of %d to ask the brokers for offsets: %s", attempt, attempts, error)
            self._sleep(self._options.fetch_retry_interval_ms / 1000)
        raise AssertionError("the last attempt returns or raises")

    def _connected(self) -> Admin:
        if self._admin is None:
            from barnabas import Admin

            self._admin = Admin(self._client)
        return self._admin

    def _missing(self, topics: list[str]) -> errors.SparkConnectorError:
        names = ", ".join(repr(topic) for topic in topics)
        what = f"There is no topic {names}" if len(topics) == 1 else f"There are no topics {names}"
        return errors.SparkConnectorError(
            f"{what} at the brokers {self._client['bootstrap.servers']}. Create it, or correct the option "
            "subscribe or assign.",
            "UNKNOWN_TOPIC_OR_PARTITION",
        )


def _describe(admin: Admin, topics: tuple[str, ...]) -> tuple[dict[str, TopicDescription], tuple[str, ...]]:
    """The topics that are there, and the names of those that are not."""
    if not topics:
        return {}, ()
    try:
        return admin.describe_topics(topics), ()
    except BrokerError as error:
        if error.code not in _UNKNOWN:
            raise
        # One topic was asked for: with several, the error is a KeyedError.
        return {}, topics
    except KeyedError as error:
        other = [each for each in error.errors.values() if not _is_unknown(each)]
        if other:
            raise other[0] from error
        return error.results, tuple(topic for topic in topics if topic in error.errors)


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code in _UNKNOWN
