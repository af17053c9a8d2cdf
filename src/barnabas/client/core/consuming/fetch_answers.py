"""What the answer to a fetch means for each of its partitions."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import Chunk, survey
from barnabas.client.core.consuming.fetch_buffer import FetchBuffer
from barnabas.client.core.consuming.fetch_sessions import WantedFetch
from barnabas.client.core.consuming.fetched import FetchedRecords
from barnabas.client.core.consuming.offsets import ResetKind
from barnabas.client.core.consuming.partition_state import FetchState, PartitionState, Position
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.errors import CorruptRecordsError, OffsetOutOfRangeError
from barnabas.wire.messages.fetch import PartitionData

#: The partition is elsewhere, or its broker not ready: ask who leads it now, and try again.
_MOVED: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
#: Only the program can do something about it.
_TOLD: Final = frozenset({ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.CLUSTER_AUTHORIZATION_FAILED})


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerOptions:
    """How answers are read."""

    is_read_committed: bool = False
    check_crcs: bool = True
    retry_backoff_ms: int = 100
    retry_backoff_max_ms: int = 1000
    #: How long a replica nearby is asked before the leader is asked again which one it should be.
    preferred_replica_ms: int = 300_000
    key_deserializer: Callable[..., Any] | None = None
    value_deserializer: Callable[..., Any] | None = None


@dataclass(slots=True)
class AnswerEffects:
    """What has to be done after an answer was looked at."""

    wants_metadata: bool = False
    #: Leaders that were named: partition, leader, epoch.
    leader_hints: list[tuple[TopicPartition, int, int]] = field(default_factory=list)
    size_bytes: int = 0
    record_count: int = 0
    #: The same by topic: bytes and records.
    by_topic: dict[str, tuple[int, int]] = field(default_factory=dict)


class AnswerReader:
    """Takes answers apart: records go to the buffer, errors to where they are dealt with."""

    def __init__(
        self, subscription: Subscription, buffer: FetchBuffer, options: AnswerOptions, randomness: Random
    ) -> None:
        self._subscription = subscription
        self._buffer = buffer
        self._options = options
        self._randomness = randomness

    def read(
        self,
        node_id: int,
        wanted: dict[TopicPartition, tuple[WantedFetch, PartitionState, int]],
        answered: dict[TopicPartition, PartitionData],
        now_ms: int,
    ) -> AnswerEffects:
        """`wanted` is what the fetch asked for, with the states and their versions when it left."""
        effects = AnswerEffects()
        for partition, data in answered.items():
            asked, state, version = wanted[partition]
            if state.version != version or self._subscription.get(partition) is not state:
                continue  # it was revoked, or the program has sought elsewhere
            if state.fetch.offset != asked.offset:
                continue  # the former leader and its successor were both asked, and one has answered before
            if state.fetch_state is not FetchState.FETCHING and data.error_code == 0 and data.records:
                continue  # it is asked again once it is known whether the log was cut
            if data.error_code:
                self._failed(node_id, partition, state, asked, data, effects, now_ms)
            else:
                self._succeeded(partition, state, asked, data, effects, now_ms)
        return effects

    def back_off(self, state: PartitionState, now_ms: int) -> None:
        """Leave a partition alone for a while, longer each time."""
        options = self._options
        grown_ms = min(options.retry_backoff_ms * 2 ** min(state.retry_count, 20), options.retry_backoff_max_ms)
        state.retry_count += 1
        state.retry_at_ms = now_ms + int(grown_ms * self._randomness.uniform(0.8, 1.2))

    def _succeeded(
        self,
        partition: TopicPartition,
        state: PartitionState,
        asked: WantedFetch,
        data: PartitionData,
        effects: AnswerEffects,
        now_ms: int,
    ) -> None:
        state.retry_count = 0
        state.error = None
        if data.high_watermark >= 0:
            state.high_watermark = data.high_watermark
        if data.last_stable_offset >= 0:
            state.last_stable_offset = data.last_stable_offset
        if data.log_start_offset >= 0:
            state.log_start_offset = data.log_start_offset
        if data.preferred_read_replica >= 0:
            state.preferred_replica = data.preferred_read_replica
            state.preferred_until_ms = now_ms + self._options.preferred_replica_ms
        records = data.records
        if not records:
            return
        entry_count, record_count, next_offset, epoch = survey(records)
        if not entry_count:
            reason = (
                f"{len(records)} bytes came without a whole batch among them; a broker that answers like this is older "
                "than 0.10.1, or its answer is corrupt"
            )
            self._cannot_read(state, CorruptRecordsError(partition, asked.offset, reason), now_ms)
            return
        options = self._options
        source = FetchedRecords(
            partition,
            memoryview(records),
            asked.offset,
            aborted=data.aborted_transactions or () if options.is_read_committed else None,
            check_crcs=options.check_crcs,
            fetch_epoch=state.fetch.epoch,
        )
        size_bytes = len(records)
        chunk = Chunk(
            partition.topic,
            partition.partition,
            source,
            size_bytes,
            options.key_deserializer,
            options.value_deserializer,
        )
        self._buffer.add(partition, state, chunk)
        if next_offset > asked.offset:
            state.fetch = Position(next_offset, epoch)
            # The first batch may begin before what was asked for.
            first_offset = min(asked.offset, int.from_bytes(records[:8], "big", signed=True))
            state.bytes_per_offset = len(records) / (next_offset - first_offset)
        topic_bytes, topic_records = effects.by_topic.get(partition.topic, (0, 0))
        effects.by_topic[partition.topic] = topic_bytes + size_bytes, topic_records + record_count
        effects.size_bytes += size_bytes
        effects.record_count += record_count

    def _failed(
        self,
        node_id: int,
        partition: TopicPartition,
        state: PartitionState,
        asked: WantedFetch,
        data: PartitionData,
        effects: AnswerEffects,
        now_ms: int,
    ) -> None:
        code = ErrorCode.of(data.error_code)
        hint = data.current_leader
        if hint is not None and hint.leader_id >= 0 and hint.leader_epoch >= 0:
            effects.leader_hints.append((partition, hint.leader_id, hint.leader_epoch))
        was_preferred = state.preferred_replica == node_id
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            if was_preferred:
                state.preferred_replica = -1  # a follower may lag behind: the leader has the last word
            else:
                self._out_of_range(partition, state, asked, now_ms)
            return
        if was_preferred:
            state.preferred_replica = -1
        self.back_off(state, now_ms)
        if code in _MOVED:
            effects.wants_metadata = True
        elif code in _TOLD:
            effects.wants_metadata = True
            state.error = BrokerError(code, f"fetching {partition}: {code.text}")
        elif code is ErrorCode.CORRUPT_MESSAGE:
            reason = f"the broker says that {code.text}"
            self._cannot_read(state, CorruptRecordsError(partition, asked.offset, reason), now_ms)
        elif code is not ErrorCode.UNKNOWN_LEADER_EPOCH and not code.retriable and data.error_code != -1:
            state.error = BrokerError(code, f"fetching {partition}: {code.text}")

    def _out_of_range(self, partition: TopicPartition, state: PartitionState, asked: WantedFetch, now_ms: int) -> None:
        if self._subscription.default_reset.kind is ResetKind.NONE or self._is_ahead(state):
            self._cannot_read(state, OffsetOutOfRangeError({partition: asked.offset}), now_ms)
        else:
            self._subscription.request_reset(partition)

    def _cannot_read(self, state: PartitionState, failure: Exception, now_ms: int) -> None:
        if self._is_ahead(state):
            self.back_off(state, now_ms)  # the program has other records to read before it gets there
        else:
            state.failure = failure

    @staticmethod
    def _is_ahead(state: PartitionState) -> bool:
        position = state.position
        return position is not None and position.offset != state.fetch.offset
