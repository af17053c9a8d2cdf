"""Whatever fails: no acknowledged record is lost, none is there twice, order is kept, each has one outcome in time.

The same checks are run against senders with faults planted in them, to see that they would find them.
"""

from __future__ import annotations

from random import Random
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.client.core.producing.accumulator import Accumulator
from barnabas.client.core.producing.batch import ProducerBatch
from barnabas.client.core.producing.produce_requests import NodeRequest
from barnabas.client.core.producing.sender import Sender
from barnabas.client.core.producing.sequences import Sequences
from tests.client.core.producing.sender_world import Faults, World, chaos, check_world

SEEDS = range(60)
PLANTED_SEEDS = range(100)


def faults_of(random: Random) -> Faults:
    """Some seeds have a little of everything, some much of one thing."""
    return Faults(
        before_append=random.choice((0, 0.05, 0.3)),
        after_append=random.choice((0, 0.05, 0.3)),
        refusal=random.choice((0, 0, 0.1)),
        too_large_records=random.choice((10**9, 10**9, 3)),
        cut=random.choice((0, 0.05, 0.3)),
        move=random.choice((0, 0.05, 0.3)),
        hang=random.choice((0, 0, 0.05)),
        lost_metadata=random.choice((0, 0.3)),
    )


def world_of(seed: int, **options: Any) -> World:
    random = Random(f"world {seed}")
    return World(
        seed,
        partitions=random.randint(1, 3),
        nodes=random.randint(1, 3),
        **{
            "faults": faults_of(random),
            "max_in_flight": random.randint(1, 5),
            "delivery_timeout_ms": random.choice((1500, 5000)),
            "produce_version": random.choice((9, 13)),
            **options,
        },
    )


@pytest.mark.parametrize("seed", SEEDS)
def test_an_idempotent_producer_writes_each_record_once_and_in_order(seed: int) -> None:
    world = world_of(seed)
    chaos(world, 40)
    check_world(world, is_idempotent=True, keeps_order=True)


@pytest.mark.parametrize("seed", SEEDS)
def test_batches_that_grow_are_written_once_and_in_order_too(seed: int) -> None:
    world = world_of(seed, batch_bytes=90, largest_batch_bytes=900)
    chaos(world, 40)
    check_world(world, is_idempotent=True, keeps_order=True)


@pytest.mark.parametrize("seed", SEEDS[:20])
@pytest.mark.parametrize("refuses_unknown", [False, True])
def test_brokers_that_forget_producers_cost_neither_records_nor_order(seed: int, refuses_unknown: bool) -> None:
    # No refusals: where one batch is refused, a broker that knows nothing takes the next, and no client can help it.
    faults = faults_of(Random(seed))
    faults.before_append = faults.move = faults.refusal = 0
    faults.too_large_records = 10**9
    faults.forget = 0.1
    world = world_of(seed, faults=faults, refuses_unknown=refuses_unknown)
    chaos(world, 40)
    check_world(world, is_idempotent=True, keeps_order=True)


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_retries_that_run_out_leave_no_partition_stuck(seed: int) -> None:
    world = world_of(seed, retries=2)
    chaos(world, 40)
    check_world(world, is_idempotent=True, keeps_order=True)
    world.run_until(world.now_ms + 1000)
    last = [world.send(number) for number in range(len(world.logs))]
    world.run_until(world.now_ms + world.delivery_timeout_ms, until=lambda: world.sender.is_drained)
    assert [each.outcomes[0][2] for each in last] == [None] * len(last)


@pytest.mark.parametrize("seed", SEEDS[:20])
def test_without_idempotence_one_request_in_flight_keeps_order(seed: int) -> None:
    world = world_of(seed, is_idempotent=False, max_in_flight=1)
    chaos(world, 40)
    check_world(world, is_idempotent=False, keeps_order=True)


@pytest.mark.parametrize("seed", SEEDS[:10])
def test_without_idempotence_nothing_acknowledged_is_lost(seed: int) -> None:
    world = world_of(seed, is_idempotent=False, max_in_flight=5)
    chaos(world, 40)
    check_world(world, is_idempotent=False, keeps_order=False)


@pytest.mark.parametrize("seed", SEEDS[:5])
def test_the_same_seed_takes_the_same_course(seed: int) -> None:
    traces = []
    for _ in range(2):
        world = world_of(seed)
        chaos(world, 20)
        traces.append(world.trace)
    assert traces[0] == traces[1]
    assert traces[0]


# Faults planted to see that the checks find them.


class ForgetsOrder(Accumulator):
    """Puts what is to be sent again first, whatever its number."""

    def reenqueue(self, batch: ProducerBatch, now_ms: int) -> None:
        super().reenqueue(batch, now_ms)
        queue = self._busy[batch.partition]
        queue.batches.remove(batch)
        queue.batches.appendleft(batch)


class SendsAnyNumber(Sequences):
    """Sends again what comes first, also if an older one is open."""

    def may_send(self, batch: ProducerBatch) -> bool:
        return batch.has_sequence or super().may_send(batch)


class UsesNumbersTwice(Sequences):
    """Gives the numbers of a batch that was given up to the next one."""

    def given_up(self, batch: ProducerBatch) -> None:
        super().given_up(batch)
        numbers = self._partitions.get(batch.partition)
        if numbers is not None and batch.has_sequence and not numbers.in_flight:
            numbers.next_sequence = batch.base_sequence
            numbers.gap_end = None


class IgnoresGaps(Sequences):
    """Renumbers at once what follows a batch that was given up, though it may be in the log."""

    def given_up(self, batch: ProducerBatch) -> None:
        super().given_up(batch)
        numbers = self._partitions.get(batch.partition)
        if numbers is not None and batch.has_sequence:
            numbers.must_restart = True


class OutrunsMemory(Sequences):
    """Lets new batches leave as long as few are in flight, though the oldest may be forgotten by then."""

    def may_send(self, batch: ProducerBatch) -> bool:
        numbers = self._partitions.get(batch.partition)
        if numbers is None or batch.has_sequence or numbers.gap_end is not None or numbers.must_restart:
            return super().may_send(batch)
        return numbers.is_known_to_broker and len(numbers.in_flight) < 5


class TrustsUnknownBrokers(Sequences):
    """Lets more than one batch leave before the broker knows the producer."""

    def sent(self, batch: ProducerBatch) -> None:
        super().sent(batch)
        self._partitions[batch.partition].is_known_to_broker = True


class AcknowledgesLostRequests(Sender):
    def failed(self, request: NodeRequest, error: Exception, now_ms: int) -> None:
        if self._randomness.random() < 0.1:
            self.answered(request, None, now_ms)
        else:
            super().failed(request, error, now_ms)


class RetriesWhatItGaveUp(Sender):
    def _fail_or_retry(self, batch: ProducerBatch, *arguments: Any) -> None:
        if batch.is_done:
            self._accumulator.reenqueue(batch, arguments[2])
        else:
            super()._fail_or_retry(batch, *arguments)


class ForgetsMemory(Sender):
    def _give_up(self, batch: ProducerBatch, error: Exception, *arguments: Any, **options: Any) -> None:
        super()._give_up(batch, error, *arguments, keep_memory=True)


class IsNeverLate(Sender):
    def _expire(self, now_ms: int) -> float:
        return 1000.0


def is_found(seed: int, **options: Any) -> bool:
    world = world_of(seed, **options)
    try:
        chaos(world, 40)
        check_world(world, is_idempotent=True, keeps_order=True)
    except Exception:
        return True
    return False


MANY_LOST = Faults(cut=0.3, after_append=0.1)
OF_ALL_KINDS: dict[str, Any] = {}


@pytest.mark.parametrize(
    ("planted", "options"),
    [
        (SendsAnyNumber, OF_ALL_KINDS),
        (UsesNumbersTwice, OF_ALL_KINDS),
        (IgnoresGaps, {"faults": MANY_LOST, "retries": 1}),
        (OutrunsMemory, {"faults": Faults(after_append=0.4)}),
        (TrustsUnknownBrokers, OF_ALL_KINDS),
    ],
    ids=lambda each: getattr(each, "__name__", ""),
)
def test_a_fault_planted_in_the_numbers_is_found(planted: type[Sequences], options: dict[str, Any]) -> None:
    assert any(is_found(seed, sequences=planted(5), max_in_flight=5, **options) for seed in PLANTED_SEEDS), (
        "the checks would not see it"
    )


@pytest.mark.parametrize(
    "options",
    [
        {"accumulator_class": ForgetsOrder, "sequences": SendsAnyNumber(5)},
        {"sender_class": AcknowledgesLostRequests},
        {"sender_class": RetriesWhatItGaveUp},
        {"sender_class": ForgetsMemory},
        {"sender_class": IsNeverLate},
    ],
    ids=lambda options: next(iter(options.values())).__name__,
)
def test_a_planted_fault_is_found(options: dict[str, Any]) -> None:
    assert any(is_found(seed, max_in_flight=5, **options) for seed in PLANTED_SEEDS), "the checks would not see it"


def test_the_sweep_has_seen_batches_that_grew_and_such_that_were_split() -> None:
    record_counts: set[int] = set()
    split_count = 0
    for seed in SEEDS[:30]:
        world = world_of(seed, batch_bytes=90, largest_batch_bytes=900)
        chaos(world, 40)
        record_counts |= {int(line.split("+")[1].split()[0]) for line in world.trace}
        split_count += world.metrics.counts["batch_split"]
    assert max(record_counts) > 10, "no more than two or three go into a batch that does not grow"
    assert split_count > 10


def test_the_sweep_has_seen_every_kind_of_answer() -> None:
    """A sweep in which some never came would prove little."""
    seen = set()
    for seed in SEEDS[:30]:
        world = world_of(seed)
        chaos(world, 40)
        seen |= {line.split()[-2] for line in world.trace}
    assert seen >= {
        each.name
        for each in (
            ErrorCode.NONE,
            ErrorCode.NOT_LEADER_OR_FOLLOWER,
            ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            ErrorCode.MESSAGE_TOO_LARGE,
            ErrorCode.INVALID_RECORD,
        )
    }
