"""What producers are told by the transaction coordinator, and what it writes."""

from __future__ import annotations

from dataclasses import replace

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.coordinator.transactions.requests import END_TXN
from barnabas.coordinator.transactions.states import NEXT_STATES, TransactionState
from barnabas.wire.messages.end_txn import EndTxnRequest
from tests.coordinator.transactions.driver import Bench

OK = ErrorCode.NONE
FENCED = ErrorCode.PRODUCER_FENCED
CONCURRENT = ErrorCode.CONCURRENT_TRANSACTIONS
MAPPING = ErrorCode.INVALID_PRODUCER_ID_MAPPING
BAD_STATE = ErrorCode.INVALID_TXN_STATE
LAST = 32_766


def begin(bench: Bench, version: int = 2, *partitions: int) -> tuple[int, int]:
    """A transaction is open; producer id and epoch."""
    _, producer_id, epoch = bench.init("x")
    add(bench, producer_id, epoch, version, *(partitions or (0,)))
    return producer_id, epoch


def add(bench: Bench, producer_id: int, epoch: int, version: int = 2, *partitions: int) -> None:
    found = bench.add("x", producer_id, epoch, *(partitions or (0,)), version=4 if version == 2 else 3)
    assert set(found) == {OK}


def at_epoch(bench: Bench, epoch: int, *, ongoing: bool = False) -> tuple[int, int]:
    """A producer whose epoch has come as far as that."""
    _, producer_id, _ = bench.init("x")
    bench.write("x", replace(bench.metadata("x"), producer_epoch=epoch))
    if ongoing:
        add(bench, producer_id, epoch)
    return producer_id, epoch


# Version 1


def test_a_transaction_of_version_1() -> None:
    bench = Bench(transaction_version=1)
    assert bench.init("x") == (OK, 1000, 0)
    assert bench.add("x", 1000, 0, 0, 1) == [OK, OK]
    assert bench.add_offsets("x", 1000, 0) is OK
    assert bench.end("x", 1000, 0)[0] is OK
    sent = bench.markers.sent["x"]
    assert (sent.producer_epoch, sent.client_version) == (0, 0)
    assert sent.partitions == {TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("__consumer_offsets", 7)}
    assert bench.end("x", 1000, 0)[0] is CONCURRENT
    bench.write_markers()
    assert bench.metadata("x").state is TransactionState.COMPLETE_COMMIT
    # The next one has the same epoch.
    assert bench.add("x", 1000, 0, 2) == [OK]
    assert bench.end("x", 1000, 0, commit=False)[0] is OK


def test_the_same_end_again_is_a_success_and_another_is_not() -> None:
    for commit in (True, False):
        bench = Bench()
        producer = begin(bench, 1)
        bench.end("x", *producer, commit=commit)
        assert bench.end("x", *producer, commit=not commit)[0] is CONCURRENT
        bench.write_markers()
        assert bench.end("x", *producer, commit=commit)[0] is OK
        assert bench.end("x", *producer, commit=not commit)[0] is BAD_STATE


def test_version_1_has_no_end_of_a_transaction_without_partitions() -> None:
    bench = Bench()
    _, *producer = bench.init("x")
    for commit in (True, False):
        assert bench.end("x", *producer, commit=commit)[0] is BAD_STATE


# Version 2


def test_a_transaction_of_version_2_takes_an_epoch() -> None:
    bench = Bench()
    producer_id, epoch = begin(bench)
    assert bench.end("x", producer_id, epoch, version=5) == (OK, producer_id, epoch + 1)
    assert bench.markers.sent["x"].producer_epoch == epoch + 1
    assert bench.markers.sent["x"].client_version == 2
    assert bench.add("x", producer_id, epoch + 1, 1, version=4) == [CONCURRENT]
    bench.write_markers()
    assert bench.add("x", producer_id, epoch + 1, 1, version=4) == [OK]


@pytest.mark.parametrize(
    ("state", "abort_again", "abort", "commit_again", "commit"),
    [
        (TransactionState.EMPTY, FENCED, OK, FENCED, BAD_STATE),
        (TransactionState.ONGOING, FENCED, OK, FENCED, OK),
        (TransactionState.PREPARE_COMMIT, CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
        (TransactionState.PREPARE_ABORT, CONCURRENT, CONCURRENT, CONCURRENT, CONCURRENT),
        (TransactionState.COMPLETE_ABORT, OK, OK, BAD_STATE, BAD_STATE),
        (TransactionState.COMPLETE_COMMIT, BAD_STATE, OK, OK, BAD_STATE),
    ],
)
def test_the_table_of_version_2(
    state: TransactionState, abort_again: ErrorCode, abort: ErrorCode, commit_again: ErrorCode, commit: ErrorCode
) -> None:
    for is_commit, is_again, expected in (
        (False, True, abort_again),
        (False, False, abort),
        (True, True, commit_again),
        (True, False, commit),
    ):
        bench = Bench()
        _, producer_id, epoch = bench.init("x")
        if state is not TransactionState.EMPTY:
            add(bench, producer_id, epoch)
        if state not in (TransactionState.EMPTY, TransactionState.ONGOING):
            _, producer_id, epoch = bench.end("x", producer_id, epoch, commit="COMMIT" in state.name, version=5)
        if state in (TransactionState.COMPLETE_COMMIT, TransactionState.COMPLETE_ABORT):
            bench.write_markers()
        assert bench.metadata("x").state is state
        answer = bench.end("x", producer_id, epoch - is_again, commit=is_commit, version=5)
        assert answer[0] is expected
        if expected is OK:
            assert answer[1:] == (producer_id, epoch + (not is_again))


def test_an_end_that_is_late_does_not_end_the_next_transaction() -> None:
    # As in Bufstream, found by Jepsen: by the epoch, never by the order of arrival.
    bench = Bench()
    producer_id, epoch = begin(bench)
    bench.end("x", producer_id, epoch, version=5)
    bench.write_markers()
    add(bench, producer_id, epoch + 1)
    for commit in (True, False):
        assert bench.end("x", producer_id, epoch, commit=commit, version=5)[0] is FENCED
    assert bench.metadata("x").state is TransactionState.ONGOING


def test_an_abort_without_partitions_does_not_fence_its_own_producer() -> None:
    # KAFKA-18464: it asks again while its first request is on its way.
    bench = Bench()
    _, producer_id, epoch = bench.init("x")
    assert bench.end("x", producer_id, epoch, commit=False, version=5) == (OK, producer_id, epoch + 1)
    assert bench.end("x", producer_id, epoch, commit=False, version=5)[0] is CONCURRENT
    assert not bench.markers.sent["x"].partitions
    bench.write_markers()
    assert bench.end("x", producer_id, epoch, commit=False, version=5) == (OK, producer_id, epoch + 1)


# The last epochs


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_at_the_last_epoch_gives_a_new_producer_id(commit: bool) -> None:
    # KAFKA-18660: the answer has the new one, the markers have the old one.
    bench = Bench()
    producer_id, epoch = at_epoch(bench, LAST, ongoing=True)
    new_id = producer_id + 1
    assert bench.end("x", producer_id, epoch, commit=commit, version=5) == (OK, new_id, 0)
    sent = bench.markers.sent["x"]
    assert (sent.producer_id, sent.producer_epoch) == (producer_id, 32_767)
    bench.write_markers()
    metadata = bench.metadata("x")
    assert (metadata.producer_id, metadata.producer_epoch, metadata.previous_producer_id) == (new_id, 0, producer_id)
    # It has not heard of that, and asks again; also of another coordinator.
    for _ in range(2):
        assert bench.end("x", producer_id, epoch, commit=commit, version=5) == (OK, new_id, 0)
        assert bench.end("x", producer_id, epoch, commit=not commit, version=5)[0] is BAD_STATE
        bench.reload()
    assert bench.add("x", new_id, 0, 0, version=4) == [OK]
    assert bench.end("x", producer_id, epoch, commit=commit, version=5)[0] is MAPPING


@pytest.mark.parametrize("version", [1, 2])
def test_a_time_out_at_the_last_epoch(version: int) -> None:
    # KAFKA-19367: fencing and aborting take one epoch together. KAFKA-20090: and it does not stay at the maximum.
    bench = Bench(transaction_version=version)
    producer_id, epoch = at_epoch(bench, LAST, ongoing=True)
    bench.advance(80_000)
    assert bench.markers.sent["x"].producer_epoch == 32_767
    bench.write_markers()
    if version == 2:
        assert bench.metadata("x").producer_id == producer_id + 1
        assert bench.end("x", producer_id, epoch, commit=False, version=5) == (OK, producer_id + 1, 0)
    else:
        assert bench.add("x", producer_id, 32_767, 1) == [FENCED]
    error, new_id, new_epoch = bench.init("x")
    assert (error, new_id) == (OK, producer_id + 1)
    assert new_epoch == (1 if version == 2 else 0)
    assert bench.add("x", new_id, new_epoch, 0) == [OK]


def test_init_at_the_last_epoch() -> None:
    bench = Bench()
    producer_id, epoch = at_epoch(bench, LAST)
    assert bench.init("x", producer_id, 5)[0] is FENCED
    new_id = producer_id + 1
    assert bench.init("x", producer_id, epoch) == (OK, new_id, 0)
    assert bench.init("x", producer_id, epoch) == (OK, new_id, 0), "asked again"
    bench.reload()
    assert bench.init("x", new_id, 0) == (OK, new_id, 1)


def test_without_producer_ids_everybody_asks_again() -> None:
    bench = Bench()
    at_last = at_epoch(bench, LAST, ongoing=True)
    bench.has_ids = False
    again = (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1)
    assert bench.init("new") == again
    assert bench.end("x", *at_last, version=5) == again
    assert bench.init("x") == again
    bench.advance(80_000)
    assert not bench.markers.sent
    bench.has_ids = True
    bench.advance(10_000)
    assert bench.markers.sent


# InitProducerId


def test_what_is_wrong_with_init_producer_id() -> None:
    bench = Bench()
    assert bench.init("")[0] is ErrorCode.INVALID_REQUEST
    for timeout_ms in (0, -1, 900_001):
        assert bench.init("x", timeout_ms=timeout_ms)[0] is ErrorCode.INVALID_TRANSACTION_TIMEOUT
    assert bench.init("x", 5, -1)[0] is ErrorCode.INVALID_REQUEST
    assert bench.init("x", -1, 5)[0] is ErrorCode.INVALID_REQUEST
    assert len(bench.shard.stored) == 0
    assert bench.init("x", timeout_ms=900_000)[0] is OK


def test_a_second_producer_fences_the_first() -> None:
    bench = Bench()
    _, producer_id, epoch = bench.init("x")
    assert bench.init("x") == (OK, producer_id, epoch + 1)
    assert bench.add("x", producer_id, epoch, 0) == [FENCED]
    assert bench.add("x", producer_id, epoch, 0, version=1) == [ErrorCode.INVALID_PRODUCER_EPOCH]
    assert bench.add_offsets("x", producer_id, epoch) is FENCED
    assert bench.end("x", producer_id, epoch)[0] is FENCED
    assert bench.end("x", producer_id, epoch, version=1)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.init("x", producer_id, epoch)[0] is FENCED
    assert bench.init("x", producer_id, epoch, version=3)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.add("x", producer_id + 7, epoch, 0) == [MAPPING]
    assert bench.add("unknown", producer_id, epoch, 0) == [MAPPING]
    assert bench.end("unknown", producer_id, epoch)[0] is MAPPING


@pytest.mark.parametrize("version", [0, 1, 2])
def test_an_open_transaction_is_aborted_first(version: int) -> None:
    bench = Bench(transaction_version=version)
    producer_id, epoch = begin(bench, version)
    assert bench.init("x")[0] is CONCURRENT
    assert bench.markers.sent["x"].producer_epoch == epoch + 1
    assert bench.init("x")[0] is CONCURRENT
    bench.write_markers()
    assert bench.metadata("x").state is TransactionState.COMPLETE_ABORT
    assert bench.init("x") == (OK, producer_id, epoch + 2)


def test_a_producer_that_goes_on_gets_the_next_epoch_once() -> None:
    bench = Bench()
    _, producer_id, epoch = bench.init("x")
    assert bench.init("x", producer_id, epoch) == (OK, producer_id, epoch + 1)
    assert bench.init("x", producer_id, epoch) == (OK, producer_id, epoch + 1), "asked again"
    assert bench.init("x", producer_id, epoch + 1) == (OK, producer_id, epoch + 2)
    assert bench.init("x", producer_id, epoch)[0] is FENCED
    assert bench.init("other", 77, 3) == (OK, producer_id + 1, 0), "an id that was forgotten"


# Verification


def test_verification_tells_what_is_in_the_transaction() -> None:
    bench = Bench()
    producer = begin(bench, 1, 0, 2)
    log = bytes(bench.log)
    assert bench.add("x", *producer, 0, 1, 2, version=4, verify=True) == [OK, ErrorCode.TRANSACTION_ABORTABLE, OK]
    assert bench.add("x", producer[0], 9, 0, version=4, verify=True) == [FENCED]
    assert bench.add("x", 9, 0, 0, version=4, verify=True) == [MAPPING]
    bench.end("x", *producer)
    assert bench.add("x", *producer, 0, version=4, verify=True) == [CONCURRENT]
    assert bytes(bench.log).startswith(log)


# Time


def test_a_transaction_that_runs_out_of_time_is_aborted() -> None:
    bench = Bench()
    producer_id, epoch = begin(bench)
    bench.advance(60_000)
    assert not bench.markers.sent
    bench.advance(10_000)
    sent = bench.markers.sent["x"]
    assert (sent.state, sent.producer_epoch) == (TransactionState.PREPARE_ABORT, epoch + 1)
    assert bench.end("x", producer_id, epoch, version=5)[0] is CONCURRENT
    bench.write_markers()
    assert bench.end("x", producer_id, epoch, version=5)[0] is BAD_STATE
    assert bench.end("x", producer_id, epoch, commit=False, version=5) == (OK, producer_id, epoch + 1)


def test_ids_that_nobody_uses_are_forgotten_but_not_open_transactions() -> None:
    bench = Bench(id_expiration_ms=7_200_000, abort_timed_out_interval_ms=10**12)
    bench.init("idle")
    bench.init("x")
    begin(bench)
    bench.advance(7_100_000)
    assert len(bench.shard.stored) == 2
    bench.advance(3_600_000)
    assert list(bench.shard.stored.latest()) == ["x"]
    bench.reload()
    assert list(bench.shard.stored.latest()) == ["x"]


def test_however_many_are_late_a_turn_aborts_some_hundreds() -> None:
    bench = Bench(transaction_version=0)
    for number in range(1_200):
        _, producer_id, epoch = bench.init(str(number))
        bench.add(str(number), producer_id, epoch, 0)
    left: list[int] = []
    bench.advance(60_000)
    while not left or left[-1]:
        bench.advance(10_000 if not left else 1)
        left.append(len(bench.shard.ongoing))
    assert left == [700, 200, 0]
    assert len(bench.markers.sent) == 1_200
    bench.advance(10_000)


def test_however_many_ids_nobody_uses_a_turn_forgets_some_hundreds() -> None:
    bench = Bench(id_expiration_ms=3_600_000)
    for number in range(1_200):
        bench.init(str(number))
    left: list[int] = []
    while not left or left[-1]:
        bench.advance(3_600_000 if not left else 1)
        left.append(len(bench.shard.stored))
    assert left == [700, 200, 0]


# Another coordinator


@pytest.mark.parametrize("version", [0, 1, 2])
def test_what_is_prepared_is_completed_by_the_next_coordinator(version: int) -> None:
    bench = Bench(transaction_version=version)
    producer = begin(bench, version)
    bench.end("x", *producer, version=5 if version == 2 else 4)
    sent = bench.markers.sent["x"]
    bench.reload()
    assert bench.markers.sent["x"].partitions == sent.partitions
    assert bench.markers.sent["x"].producer_epoch == sent.producer_epoch
    bench.write_markers()
    assert bench.metadata("x").state is TransactionState.COMPLETE_COMMIT
    bench.reload()
    assert not bench.markers.sent


def test_markers_are_sent_only_when_the_outcome_is_committed() -> None:
    bench = Bench()
    producer = begin(bench)
    bench.appends = "hold"
    token = object()
    request = EndTxnRequest(transactional_id="x", producer_id=producer[0], producer_epoch=producer[1], committed=True)
    bench.submit(END_TXN, request, 5, token)
    bench.settle()
    assert not bench.markers.sent
    # Late: its producer is told so, and when it is committed after all it counts.
    bench.give_up_held(ErrorCode.COORDINATOR_NOT_AVAILABLE)
    bench.settle()
    assert bench.answers[token].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE  # type: ignore[attr-defined]
    bench.advance(5_000)
    assert not bench.markers.sent
    bench.commit_held()
    bench.advance(1_000)
    assert bench.markers.sent["x"].state is TransactionState.PREPARE_COMMIT


def test_the_end_is_written_however_often_that_fails() -> None:
    bench = Bench()
    producer = begin(bench)
    bench.end("x", *producer, version=5)
    bench.appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.write_markers()
    bench.advance(3_000)
    assert bench.metadata("x").state is TransactionState.PREPARE_COMMIT
    bench.appends = "commit"
    bench.advance(1_000)
    assert bench.metadata("x").state is TransactionState.COMPLETE_COMMIT


def test_an_append_that_fails_changes_nothing() -> None:
    bench = Bench()
    producer = begin(bench)
    bench.appends = ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.end("x", *producer, version=5)[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    assert bench.init("x")[0] is ErrorCode.COORDINATOR_NOT_AVAILABLE
    bench.appends = "commit"
    bench.advance(5_000)
    assert not bench.markers.sent
    assert bench.end("x", *producer, version=5) == (OK, producer[0], producer[1] + 1)


def test_out_of_a_prepared_transaction_one_way_leads() -> None:
    assert NEXT_STATES[TransactionState.PREPARE_COMMIT] == {TransactionState.COMPLETE_COMMIT}
    assert NEXT_STATES[TransactionState.PREPARE_ABORT] == {TransactionState.COMPLETE_ABORT}
    assert set(NEXT_STATES) == set(TransactionState)
    assert [each.status for each in TransactionState] == list(range(8))
