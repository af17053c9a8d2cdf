"""Produce in transactions: who asks the coordinator when, what producers are told, and what guards guard."""

from __future__ import annotations

import asyncio

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.data.add_partitions_to_txn_manager import Refusals, TransactionSupportedOperation
from barnabas.net.errors import ConnectError, UnsupportedRequestError
from barnabas.wire.messages.fetch import PartitionData
from tests.broker.data_plane import answers_of, batch, produce_request
from tests.broker.transaction_plane import TXN, Batches, TransactionPlane


@pytest.fixture
def plane() -> TransactionPlane:
    return TransactionPlane()


def records_of(data: PartitionData) -> int:
    return len(data.records or b"")


def test_the_first_batch_adds_its_partition_and_others_need_not_ask(plane: TransactionPlane) -> None:
    assert plane.send_one(b"a").error_code == 0
    assert plane.send_one(b"b", sequence=1).base_offset == 1
    [asked] = plane.coordinator.transactions
    assert (asked.transactional_id, asked.producer_id, asked.producer_epoch, asked.verify_only) == (TXN, 7, 0, False)
    assert [(each.name, each.partitions) for each in asked.topics] == [("t", [0])]


@pytest.mark.parametrize("version", [3, 9, 11])
def test_older_clients_add_partitions_themselves(plane: TransactionPlane, version: int) -> None:
    refused = plane.send_one(b"a", version=version)
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 11 else ErrorCode.INVALID_TXN_STATE
    assert refused.error_code == expected
    assert refused.base_offset == -1
    assert plane.coordinator.transactions[0].verify_only
    plane.coordinator.add(("t", 0))
    assert plane.send_one(b"a", version=version).error_code == 0
    assert plane.partition("t").led_log().log_end_offset == 1


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.NOT_COORDINATOR, ErrorCode.NOT_ENOUGH_REPLICAS),
        (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
        (ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
    ],
)
@pytest.mark.parametrize("version", [9, 11, 12])
def test_what_the_coordinator_says_is_told_as_clients_understand_it(
    plane: TransactionPlane, said: ErrorCode, told: ErrorCode, version: int
) -> None:
    plane.coordinator.error = said
    answer = plane.send_one(version=version)
    assert (answer.error_code, answer.base_offset) == (told, -1)
    assert plane.partition("t").led_log().log_end_offset == 0


def test_a_coordinator_that_cannot_be_reached_is_tried_again_by_the_client(plane: TransactionPlane) -> None:
    plane.coordinator.failure = ConnectError("broker 2", "nobody listens")
    answer = plane.send_one()
    assert answer.error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert answer.error_message is not None
    assert "NETWORK_EXCEPTION" in answer.error_message
    plane.coordinator.failure = None
    assert plane.send_one().error_code == 0


def test_a_coordinator_that_is_too_old_to_be_asked_is_not(plane: TransactionPlane) -> None:
    plane.coordinator.failure = UnsupportedRequestError("broker 2", "it offers AddPartitionsToTxn 0-3")
    assert plane.send_one(version=11).error_code == 0


def test_what_a_coordinator_cannot_be_told_to_add_is_not_taken(plane: TransactionPlane) -> None:
    """No marker would ever end it."""
    plane.coordinator.failure = UnsupportedRequestError("broker 2", "it offers AddPartitionsToTxn 0-3")
    assert plane.send_one(version=12).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_a_partition_that_was_not_added_for_the_sake_of_another_is_tried_again(plane: TransactionPlane) -> None:
    """The other one may come from another request."""
    plane.coordinator.error = ErrorCode.OPERATION_NOT_ATTEMPTED
    assert plane.send_one(version=12).error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_however_many_ask_a_request_has_its_bound(plane: TransactionPlane) -> None:
    manager, wanted = plane.services.transaction_partitions, TransactionSupportedOperation.ADD_PARTITION
    partitions = [TopicPartition("t", number) for number in range(3)]

    async def ask_all() -> list[Refusals]:
        return await asyncio.gather(
            *(manager.add_or_verify(f"id-{number}", number, 0, partitions, wanted) for number in range(1500))
        )

    assert plane.run(ask_all()) == [{}] * 1500
    sizes = [
        sum(len(topic.partitions) for each in request.transactions for topic in each.topics)
        for request in plane.coordinator.asked
    ]
    assert (sum(sizes), max(sizes) <= 2000) == (4500, True)


def test_without_a_topic_for_transactions_nobody_can_be_asked(plane: TransactionPlane) -> None:
    plane.delete_topic("__transaction_state")
    assert plane.send_one().error_code == ErrorCode.NOT_ENOUGH_REPLICAS


def test_while_the_transaction_before_ends_the_broker_asks_again(plane: TransactionPlane) -> None:
    plane.coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    started_ms = plane.now_ms
    waiting = plane.begin(produce_request({("t", 0): plane.transactional()}, transactional_id=TXN), 12)
    plane.pass_ms(50)
    plane.coordinator.error = ErrorCode.NONE
    [answer] = answers_of(plane.run(waiting)).values()
    assert answer.error_code == 0
    assert len(plane.coordinator.asked) == 4
    assert plane.now_ms - started_ms == 60

    plane.coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    started_ms = plane.now_ms
    assert plane.send_one(number=1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert 100 <= plane.now_ms - started_ms <= 120
    asked = len(plane.coordinator.asked)
    assert plane.send_one(number=1, version=11).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert len(plane.coordinator.asked) == asked + 1  # these clients ask again themselves


def test_the_marker_of_the_transaction_before_does_not_harm_the_next(plane: TransactionPlane) -> None:
    """It comes while the broker asks again, and takes the guards away that are there."""
    plane.send_one()
    plane.coordinator.error = ErrorCode.CONCURRENT_TRANSACTIONS
    request = produce_request({("t", 0): plane.transactional(epoch=1)}, transactional_id=TXN)
    waiting = plane.begin(request, 12)
    plane.pass_ms(30)
    plane.end(epoch=1, transaction_version=2)
    plane.coordinator.error = ErrorCode.NONE
    [answer] = answers_of(plane.run(waiting)).values()
    assert answer.error_code == 0


def test_the_marker_of_the_transaction_before_may_come_between_question_and_answer(plane: TransactionPlane) -> None:
    """It has the epoch of the next one already, and the coordinator says yes when all its markers are written."""
    plane.send_one()
    answer = hold(plane, epoch=1)
    plane.end(epoch=1, transaction_version=2)
    plane.coordinator.held.set()
    [told] = answers_of(plane.run(answer)).values()  # type: ignore[arg-type]
    assert told.error_code == 0


def test_a_marker_of_a_later_epoch_takes_the_guard_away(plane: TransactionPlane) -> None:
    """The transaction that was asked about was aborted: by its time-out, or since the producer was fenced."""
    answer = hold(plane, epoch=1)
    plane.end(epoch=2, committed=False, transaction_version=2)
    plane.coordinator.held.set()
    [told] = answers_of(plane.run(answer)).values()  # type: ignore[arg-type]
    assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_an_older_epoch_is_told_before_the_guard_is_looked_at(plane: TransactionPlane) -> None:
    """KAFKA-19690."""
    answer = hold(plane, epoch=2)
    plane.end(epoch=3)  # the guard is gone, too
    plane.coordinator.held.set()
    [told] = answers_of(plane.run(answer)).values()  # type: ignore[arg-type]
    assert told.error_code == ErrorCode.INVALID_PRODUCER_EPOCH


def hold(plane: TransactionPlane, **producer: int) -> asyncio.Future[object]:
    """A produce request whose coordinator takes its time."""
    plane.coordinator.is_held = True
    request = produce_request({("t", 0): plane.transactional(**producer)}, transactional_id=TXN)
    answer: asyncio.Future[object] = plane.begin(request, 12)
    plane.pass_ms(1)
    return answer


def test_a_marker_takes_the_guard_away(plane: TransactionPlane) -> None:
    """The coordinator said yes, then aborted; the next transaction must not begin with the batch of this one."""
    answer = hold(plane)
    plane.end(committed=False)
    plane.coordinator.held.set()
    [told] = answers_of(plane.run(answer)).values()  # type: ignore[arg-type]
    assert told.error_code == ErrorCode.INVALID_TXN_STATE
    assert plane.partition("t").led_log().producers.first_open_offset is None


def test_another_question_does_not_make_an_old_answer_good(plane: TransactionPlane) -> None:
    answer = hold(plane)
    plane.end(committed=False)
    later = hold(plane)
    plane.coordinator.held.set()
    [first], [second] = (list(answers_of(plane.run(each)).values()) for each in (answer, later))  # type: ignore[arg-type]
    assert (first.error_code, second.error_code) == (ErrorCode.INVALID_TXN_STATE, 0)


def test_another_leader_in_between_takes_the_guard_away(plane: TransactionPlane) -> None:
    answer = hold(plane)
    plane.change_partition("t", replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
    plane.change_partition("t", replicas=(1, 2), isr=(1,), leader=1, leader_epoch=2)
    plane.coordinator.held.set()
    [told] = answers_of(plane.run(answer)).values()  # type: ignore[arg-type]
    assert told.error_code == ErrorCode.INVALID_TXN_STATE


def test_what_comes_again_is_told_where_it_is_also_after_the_end(plane: TransactionPlane) -> None:
    plane.coordinator.add(("t", 0))
    assert plane.send_one(version=11).base_offset == 0
    plane.end()
    plane.coordinator.end()
    assert plane.send_one(version=11).error_code == ErrorCode.TRANSACTION_ABORTABLE
    plane.set(transaction_partition_verification_enable=False)
    again = plane.send_one(version=11)
    assert (again.error_code, again.base_offset) == (0, 0)


def test_what_is_behind_an_unverified_batch_waits_for_it(plane: TransactionPlane) -> None:
    """Kafka says OUT_OF_ORDER_SEQUENCE_NUMBER, which makes librdkafka abort; we say why the first was refused."""
    plane.coordinator.error = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert plane.send_one(version=11).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    plane.coordinator.error = ErrorCode.NONE
    plane.coordinator.add(("t", 0))
    assert plane.send_one(version=11, sequence=1).error_code == ErrorCode.NOT_ENOUGH_REPLICAS
    assert plane.send_one(version=11).error_code == 0
    assert plane.send_one(version=11, sequence=1).error_code == 0


def test_a_reused_sequence_is_not_acknowledged(plane: TransactionPlane) -> None:
    """Nisshi 0.8.1: two batches with one sequence; the second was acknowledged and lost."""
    plane.send_one(b"a", b"b")
    assert plane.send_one(b"c", sequence=1).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert plane.send_one(b"c", b"d", b"e").error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    plane.end(epoch=1, transaction_version=2)
    # The next transaction begins at 0 in its own epoch, and is not taken for the first one.
    assert plane.send_one(b"f", b"g", epoch=1).base_offset == 3


def test_transactions_v2_begin_at_sequence_0(plane: TransactionPlane) -> None:
    assert plane.send_one(sequence=5).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    plane.coordinator.add(("t", 1))
    assert plane.send_one(number=1, sequence=5, version=11).error_code == 0  # state may have expired


def test_verification_can_be_switched_off(plane: TransactionPlane) -> None:
    plane.set(transaction_partition_verification_enable=False)
    assert plane.send_one(version=11).error_code == 0
    assert not plane.coordinator.asked
    # Whoever leaves the adding to us still must be added.
    assert plane.send_one(number=1).error_code == 0
    assert len(plane.coordinator.asked) == 1


def test_several_partitions_and_producers_share_questions(plane: TransactionPlane) -> None:
    plane.coordinator.error = ErrorCode.NONE
    batches: Batches = {("t", number): plane.transactional() for number in range(3)}
    assert {each.error_code for each in plane.send(batches).values()} == {0}
    [asked] = plane.coordinator.transactions
    assert asked.topics[0].partitions == [0, 1, 2]

    plane.end(("t", 0), ("t", 1), ("t", 2), epoch=1, transaction_version=2)
    plane.coordinator.is_held = True
    waiting = []
    for producer_id in range(20, 30):
        request = produce_request(
            {("t", 0): plane.transactional(producer_id=producer_id)}, transactional_id=f"id-{producer_id}"
        )
        waiting.append(plane.begin(request, 12))
    plane.pass_ms(1)
    assert len(plane.coordinator.asked) < 8  # of three coordinators' partitions, all on one broker
    plane.coordinator.held.set()
    for each in waiting:
        assert next(iter(answers_of(plane.run(each)).values())).error_code == 0
    assert len(plane.coordinator.asked) <= 3


def test_one_id_with_two_epochs_is_asked_for_twice(plane: TransactionPlane) -> None:
    plane.coordinator.is_held = True
    requests = [
        produce_request({("t", 0): plane.transactional(epoch=epoch)}, transactional_id=TXN) for epoch in (0, 1, 1)
    ]
    waiting = [plane.begin(each, 12) for each in requests]
    plane.pass_ms(1)
    plane.coordinator.held.set()
    for each in waiting:
        plane.run(each)
    assert [each.producer_epoch for each in plane.coordinator.transactions] == [0, 1]


def test_a_request_of_two_producers_is_refused_whole(plane: TransactionPlane) -> None:
    batches: Batches = {("t", 0): plane.transactional(), ("t", 1): plane.transactional(producer_id=8)}
    assert {each.error_code for each in plane.send(batches).values()} == {ErrorCode.INVALID_PRODUCER_ID_MAPPING}
    assert not plane.coordinator.asked


def test_a_batch_in_a_transaction_needs_the_transactional_id(plane: TransactionPlane) -> None:
    [answer] = plane.send({("t", 0): plane.transactional()}, transactional_id=None).values()
    assert answer.error_code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED


def test_batches_outside_of_a_transaction_ask_nobody(plane: TransactionPlane) -> None:
    [answer] = plane.send({("t", 0): batch([b"x"], timestamp_ms=plane.now_ms)}).values()
    assert answer.error_code == 0
    assert not plane.coordinator.asked


def test_partitions_that_are_not_here_are_not_asked_for(plane: TransactionPlane) -> None:
    plane.change_partition("t", 1, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
    answers = plane.send({("t", number): plane.transactional() for number in (0, 1, 9)})
    assert [each.error_code for each in answers.values()] == [
        0,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ]
    assert plane.coordinator.transactions[0].topics[0].partitions == [0]


def test_acks_0_in_a_transaction_closes_the_connection_when_it_fails(plane: TransactionPlane) -> None:
    plane.coordinator.error = ErrorCode.INVALID_TXN_STATE
    request = produce_request({("t", 0): plane.transactional()}, transactional_id=TXN, acks=0)
    plane.run(plane.begin(request, 12))
    assert plane.connection.is_closed
