"""What the answer to a fetch means for its partitions."""

from __future__ import annotations

from random import Random

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.consuming.fetch_answers import AnswerEffects, AnswerOptions, AnswerReader
from barnabas.client.core.consuming.fetch_buffer import FetchBuffer
from barnabas.client.core.consuming.fetch_sessions import WantedFetch
from barnabas.client.core.consuming.offsets import EARLIEST, NO_RESET, ResetStrategy
from barnabas.client.core.consuming.partition_state import FetchState, Position
from barnabas.client.core.consuming.subscription import Subscription
from barnabas.client.errors import CorruptRecordsError, OffsetOutOfRangeError
from barnabas.wire.messages.fetch import AbortedTransaction, LeaderIdAndEpoch, PartitionData
from tests.client.core.consuming.logs import T0, T1, batch, fetch_state_of, marker


class Reading:
    """Two partitions, and answers to fetches of them."""

    def __init__(self, reset: ResetStrategy = EARLIEST, **options: object) -> None:
        self.subscription = Subscription(reset)
        self.subscription.assign([T0, T1])
        for partition in (T0, T1):
            self.subscription.seek(partition, 0)
        self.buffer = FetchBuffer(self.subscription)
        options_ = AnswerOptions(**options)  # type: ignore[arg-type]
        self.reader = AnswerReader(self.subscription, self.buffer, options_, Random(1))
        self.state = self.subscription.state(T0)

    def asked(self, *partitions: TopicPartition) -> dict[TopicPartition, object]:
        return {
            partition: (
                WantedFetch(Uuid.ZERO, state.fetch.offset, 0, 100),
                state,
                state.version,
            )
            for partition in partitions or (T0,)
            for state in [self.subscription.state(partition)]
        }

    def answered(
        self,
        data: PartitionData,
        asked: dict[TopicPartition, object] | None = None,
        *,
        node_id: int = 1,
        now_ms: int = 0,
    ) -> AnswerEffects:
        return self.reader.read(node_id, asked or self.asked(), {T0: data}, now_ms)  # type: ignore[arg-type]

    def records(self, *entries: bytes | bytearray, **fields: object) -> PartitionData:
        return PartitionData(
            partition_index=0,
            **{"high_watermark": 10, "last_stable_offset": 8, "log_start_offset": 0, **fields},  # type: ignore[arg-type]
            records=memoryview(b"".join(entries)),
        )

    def error(self, code: ErrorCode, **fields: object) -> PartitionData:
        return PartitionData(partition_index=0, error_code=code, high_watermark=-1, records=None, **fields)  # type: ignore[arg-type]

    def values(self) -> list[object]:
        found = []
        while (chunk := self.buffer.next_chunk()) is not None:
            found += [record.value for record in chunk]
        return found


def test_records_go_to_the_buffer_and_the_fetch_moves_on() -> None:
    reading = Reading()
    data = reading.records(batch(0, [b"a", b"b"], epoch=1), batch(2, [b"c"], epoch=2))
    effects = reading.answered(data)
    assert reading.state.fetch == Position(3, 2)
    assert reading.state.position == Position(0)
    assert (reading.state.high_watermark, reading.state.last_stable_offset, reading.state.log_start_offset) == (
        10,
        8,
        0,
    )
    assert (effects.size_bytes, effects.record_count) == (len(data.records or b""), 3)
    assert effects.by_topic == {"clicks": (effects.size_bytes, 3)}
    assert reading.state.queued_bytes == effects.size_bytes
    assert reading.values() == [b"a", b"b", b"c"]
    assert reading.state.position == Position(3, 2)
    assert reading.state.queued_bytes == 0


def test_a_record_that_is_larger_than_asked_for_is_read_all_the_same() -> None:
    reading = Reading()
    reading.answered(reading.records(batch(0, [b"x" * 10_000])))
    assert reading.values() == [b"x" * 10_000]


def test_answers_to_what_is_not_wanted_any_more_are_dropped() -> None:
    reading = Reading()
    asked = reading.asked()
    reading.subscription.seek(T0, 0)  # to the very same place
    reading.answered(reading.records(batch(0, [b"a"])), asked)
    asked = reading.asked()
    reading.subscription.assign([T1])
    reading.subscription.assign([T0, T1])
    reading.answered(reading.records(batch(0, [b"a"])), asked)
    assert reading.values() == []
    assert reading.state.queued_bytes == 0
    assert not len(reading.buffer)


def test_two_leaders_that_answer_the_same_fetch_count_once() -> None:
    reading = Reading()
    asked = reading.asked()
    reading.answered(reading.records(batch(0, [b"a"])), asked, node_id=1)
    reading.answered(reading.records(batch(0, [b"a"])), asked, node_id=2)
    assert reading.values() == [b"a"]


def test_what_comes_while_the_position_is_validated_is_not_trusted() -> None:
    reading = Reading()
    asked = reading.asked()
    reading.state.fetch_state = FetchState.AWAIT_VALIDATION
    reading.answered(reading.records(batch(0, [b"a"])), asked)
    assert reading.values() == []
    assert reading.state.fetch == Position(0)


def test_paused_partitions_keep_what_comes() -> None:
    reading = Reading()
    asked = reading.asked()
    reading.subscription.pause([T0])
    reading.answered(reading.records(batch(0, [b"a"])), asked)
    assert reading.values() == []
    reading.subscription.resume([T0])
    assert reading.values() == [b"a"]


def test_readers_of_committed_records_use_the_list_of_aborted_ones() -> None:
    reading = Reading(is_read_committed=True)
    aborted = [AbortedTransaction(producer_id=1, first_offset=0)]
    data = reading.records(
        batch(0, [b"a"], producer_id=1), marker(1, 1, committed=False), batch(2, [b"b"]), aborted_transactions=aborted
    )
    reading.answered(data)
    assert reading.values() == [b"b"]
    nothing_aborted = reading.records(batch(3, [b"c"], producer_id=1), aborted_transactions=None)
    reading.answered(nothing_aborted)
    assert reading.values() == [b"c"]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    ],
)
def test_who_moved_is_looked_for_and_asked_again(code: ErrorCode) -> None:
    reading = Reading()
    effects = reading.answered(reading.error(code), now_ms=1000)
    assert effects.wants_metadata
    assert reading.state.error is None
    assert fetch_state_of(reading.state) is FetchState.FETCHING
    assert 1080 <= reading.state.retry_at_ms <= 1120
    reading.answered(reading.error(code), now_ms=2000)
    assert 2160 <= reading.state.retry_at_ms <= 2240  # longer each time
    reading.answered(reading.records(batch(0, [b"a"])), now_ms=3000)
    assert reading.state.retry_count == 0


def test_a_broker_that_does_not_know_our_epoch_yet_is_asked_again() -> None:
    reading = Reading()
    effects = reading.answered(reading.error(ErrorCode.UNKNOWN_LEADER_EPOCH))
    assert not effects.wants_metadata
    assert reading.state.error is None
    assert reading.state.retry_at_ms > 0


def test_the_new_leader_that_is_named_is_believed() -> None:
    reading = Reading()
    hint = LeaderIdAndEpoch(leader_id=2, leader_epoch=9)
    effects = reading.answered(reading.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=hint))
    assert effects.leader_hints == [(T0, 2, 9)]
    unknown = LeaderIdAndEpoch(leader_id=-1, leader_epoch=-1)
    assert not reading.answered(reading.error(ErrorCode.NOT_LEADER_OR_FOLLOWER, current_leader=unknown)).leader_hints


def test_a_forbidden_topic_is_told_to_the_program_and_tried_again() -> None:
    reading = Reading()
    reading.answered(reading.error(ErrorCode.TOPIC_AUTHORIZATION_FAILED))
    error = reading.state.error
    assert isinstance(error, BrokerError)
    assert error.code is ErrorCode.TOPIC_AUTHORIZATION_FAILED
    assert "clicks-0" in str(error)
    assert reading.state.failure is None
    assert reading.state.retry_at_ms > 0


def test_corruption_that_the_broker_finds_stays_until_the_program_seeks() -> None:
    reading = Reading()
    reading.answered(reading.error(ErrorCode.CORRUPT_MESSAGE))
    assert isinstance(reading.state.failure, CorruptRecordsError)
    assert not reading.state.is_fetchable
    reading.subscription.seek(T0, 5)
    assert reading.state.is_fetchable


def test_an_offset_out_of_range_is_reset_as_the_setting_says() -> None:
    reading = Reading()
    reading.answered(reading.error(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert fetch_state_of(reading.state) is FetchState.AWAIT_RESET
    assert reading.state.reset_strategy == EARLIEST
    strict = Reading(NO_RESET)
    strict.answered(strict.error(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert isinstance(strict.state.failure, OffsetOutOfRangeError)
    assert strict.state.failure.offsets == {T0: 0}


def test_out_of_range_ahead_of_the_program_waits_until_it_gets_there() -> None:
    reading = Reading()
    reading.answered(reading.records(batch(0, [b"a", b"b"])))
    reading.answered(reading.error(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert fetch_state_of(reading.state) is FetchState.FETCHING
    assert reading.state.retry_at_ms > 0
    assert reading.values() == [b"a", b"b"]
    reading.answered(reading.error(ErrorCode.OFFSET_OUT_OF_RANGE))
    assert fetch_state_of(reading.state) is FetchState.AWAIT_RESET


def test_out_of_range_at_a_replica_nearby_asks_the_leader() -> None:
    reading = Reading(NO_RESET, preferred_replica_ms=500)
    reading.answered(reading.records(preferred_read_replica=3), now_ms=10)
    assert (reading.state.preferred_replica, reading.state.preferred_until_ms) == (3, 510)
    reading.answered(reading.error(ErrorCode.OFFSET_OUT_OF_RANGE), node_id=3)
    assert reading.state.preferred_replica == -1
    assert reading.state.failure is None


def test_an_answer_without_a_whole_batch_is_an_error() -> None:
    reading = Reading()
    reading.answered(reading.records(batch(0, [b"a" * 100])[:50]))
    assert isinstance(reading.state.failure, CorruptRecordsError)


def test_errors_that_nobody_knows_are_tried_again() -> None:
    reading = Reading()
    reading.answered(reading.error(ErrorCode.UNKNOWN_SERVER_ERROR))
    assert reading.state.error is None
    assert reading.state.retry_at_ms > 0
