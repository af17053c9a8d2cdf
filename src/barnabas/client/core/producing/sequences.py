"""Producer id, epoch and sequence numbers: by them a broker knows a batch that comes twice, or too early.

What must hold, whatever fails:

1. A record is given up or tried again, never both. Who gives a batch up takes it out of `in_flight` for good.
2. A batch keeps its numbers as long as it may be in the log under them. It gets new ones only after the broker said
   that it is not (OUT_OF_ORDER_SEQUENCE_NUMBER, UNKNOWN_PRODUCER_ID), and only while no request with the old numbers is
   on its way: so no answer speaks of other numbers than those that the batch has.
3. No pair of epoch and sequence is used for two different batches: numbers begin at 0 again only in a newer epoch.
4. What is tried again goes in the order of its numbers, one batch at a time. New batches wait until nothing is to be
   tried again, and behind a gap (a batch that was given up, and may or may not have been written) until it is known
   whether the broker counts it.
5. A broker that has no trace of a producer takes any sequence. So until it has acknowledged one batch of an epoch only
   one is on its way: a second one could be taken although the first was refused.
6. A broker knows the last five batches of a producer again, and no older ones. So nothing new leaves that would be the
   sixth from the oldest whose outcome is open, however many of those between are acknowledged.

5 and 6 are stricter than the Java producer; 5 costs one round trip per partition and epoch. Where Java renumbers also
what is on its way, 2 waits for its answers.

What no client can help: a Kafka broker that was stopped cleanly remembers only the newest batch of a producer. If it
wrote several whose answers were lost, the older ones are refused when they come again, and then written twice.

A partition keeps its id and epoch until it has to begin anew: brokers keep this state for each partition by itself. A
new epoch of a producer without transactions is taken by the client alone; after the last one a new id is asked for.

With transactions a coordinator gives out epochs. A batch that is given up, or refused for its numbers, then ends the
transaction instead, and `begin_anew` follows: with a new epoch, and nothing on its way.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import InvariantError, check
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import logger
from barnabas.records.batch import MAX_SEQUENCE

if TYPE_CHECKING:
    from barnabas.client.core.producing.batch import ProducerBatch

NO_PRODUCER_ID: Final = -1
MAX_EPOCH: Final = 2**15 - 1
NO_OFFSET: Final = -1
#: How many batches of a producer a broker knows again.
_REMEMBERED: Final = 5
_HALF: Final = (MAX_SEQUENCE + 1) // 2

_log = logger(__name__)


def after(sequence: int, count: int) -> int:
    """The sequence that comes `count` later; the one after the last is 0."""
    return (sequence + count) & MAX_SEQUENCE


class _Partition:
    """The numbers of one partition."""

    __slots__ = (
        "acked_offset",
        "epoch",
        "gap_end",
        "in_flight",
        "in_network",
        "is_known_to_broker",
        "must_restart",
        "next_sequence",
        "numbered_count",
        "ordinals",
        "producer_id",
    )

    def __init__(self, producer_id: int, epoch: int) -> None:
        self.producer_id = producer_id
        self.epoch = epoch
        self.next_sequence = 0
        #: Batches with numbers and without outcome, in the order of their numbers: on their way, or to be tried again.
        self.in_flight: list[ProducerBatch] = []
        #: Of each of these, how many were numbered before it.
        self.ordinals: list[int] = []
        self.numbered_count = 0
        #: How many batches are on their way. Also those count that were given up meanwhile.
        self.in_network = 0
        #: The last offset that was acknowledged.
        self.acked_offset = NO_OFFSET
        self.is_known_to_broker = False
        #: The sequence after the last batch that was given up, while it is open whether the broker has it.
        self.gap_end: int | None = None
        self.must_restart = False

    @property
    def is_due_for_restart(self) -> bool:
        return not self.in_network and (self.must_restart or (self.gap_end is not None and not self.in_flight))


class Sequences:
    """The numbers of one idempotent producer."""

    __slots__ = ("_epoch", "_is_transactional", "_max_in_flight", "_partitions", "_producer_id", "_troubled")

    def __init__(self, max_in_flight: int, *, is_transactional: bool = False) -> None:
        self._producer_id = NO_PRODUCER_ID
        self._epoch = -1
        self._max_in_flight = max_in_flight
        self._is_transactional = is_transactional
        self._partitions: dict[TopicPartition, _Partition] = {}
        # Those with a gap or to be restarted.
        self._troubled: dict[TopicPartition, _Partition] = {}

    @property
    def producer_id(self) -> int:
        return self._producer_id

    @property
    def epoch(self) -> int:
        return self._epoch

    @property
    def has_id(self) -> bool:
        return self._producer_id != NO_PRODUCER_ID

    def assign(self, producer_id: int, epoch: int) -> None:
        """A broker gave us this id."""
        check(producer_id >= 0 and 0 <= epoch <= MAX_EPOCH, f"producer id {producer_id} with epoch {epoch}")
        self._producer_id = producer_id
        self._epoch = epoch

    def begin_anew(self, producer_id: int, epoch: int) -> None:
        """A coordinator gave us this id and epoch, between two transactions."""
        open_ones = [each for each, numbers in self._partitions.items() if numbers.in_flight or numbers.in_network]
        check(not open_ones, f"a new epoch while batches of {open_ones} are open")
        self.assign(producer_id, epoch)
        self._partitions.clear()
        self._troubled.clear()

    # Sending

    def may_send(self, batch: ProducerBatch) -> bool:
        """May this batch, the first in the queue of its partition, leave now?"""
        numbers = self._partitions.get(batch.partition)
        if numbers is None:
            return self.has_id
        if numbers.must_restart:
            return False
        in_flight = numbers.in_flight
        if batch.has_sequence:
            return in_flight[0] is batch
        if numbers.gap_end is not None:
            return False
        if not numbers.is_known_to_broker:
            return not in_flight and not numbers.in_network
        if in_flight and (in_flight[0].attempts or numbers.numbered_count - numbers.ordinals[0] >= _REMEMBERED):
            return False
        return max(len(in_flight), numbers.in_network) < self._max_in_flight

    def sent(self, batch: ProducerBatch) -> None:
        """The batch leaves: give it its numbers if it has none."""
        numbers = self._partitions.get(batch.partition)
        if numbers is None:
            numbers = self._partitions[batch.partition] = _Partition(self._producer_id, self._epoch)
        if not batch.has_sequence:
            batch.set_producer_state(numbers.producer_id, numbers.epoch, numbers.next_sequence, self._is_transactional)
            numbers.next_sequence = after(numbers.next_sequence, batch.record_count)
            numbers.in_flight.append(batch)
            numbers.ordinals.append(numbers.numbered_count)
            numbers.numbered_count += 1
        numbers.in_network += 1

    # Outcomes. `returned` comes first, for each batch of a request that was answered or failed.

    def returned(self, batch: ProducerBatch) -> None:
        """The request with this batch is not on its way any more."""
        numbers = self._partitions[batch.partition]
        numbers.in_network -= 1
        if numbers.in_network < 0:
            raise InvariantError(f"{batch.partition}: more answers than requests")

    def acked(self, batch: ProducerBatch, last_offset: int) -> None:
        """The broker has the batch, also if it was given up meanwhile."""
        numbers = self._partitions[batch.partition]
        self._take_out(numbers, batch)
        numbers.is_known_to_broker = True
        numbers.acked_offset = max(numbers.acked_offset, last_offset)
        if numbers.gap_end is not None:
            # A broker takes numbers only in their order: it has what lies before.
            ahead = (after(batch.base_sequence, batch.record_count) - numbers.gap_end) & MAX_SEQUENCE
            if ahead < _HALF:
                numbers.gap_end = None

    def given_up(self, batch: ProducerBatch) -> None:
        """The batch was reported as failed. If it was ever sent, nobody knows whether its numbers are used up."""
        if not batch.has_sequence:
            return
        numbers = self._partitions[batch.partition]
        if self._take_out(numbers, batch):
            end = after(batch.base_sequence, batch.record_count)
            if numbers.gap_end is None or ((end - numbers.gap_end) & MAX_SEQUENCE) < _HALF:
                numbers.gap_end = end
            self._troubled[batch.partition] = numbers

    def refused(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> None:
        """The broker says that the numbers are not those that it expects. The batch will be tried again.

        If an older one is still open, this says nothing new: it is tried first. If not, the broker does not have what
        we think that it has, and the numbers begin anew.
        """
        numbers = self._partitions[batch.partition]
        if not numbers.in_flight or numbers.in_flight[0] is not batch:
            return
        if code is ErrorCode.UNKNOWN_PRODUCER_ID:
            if log_start_offset == NO_OFFSET:
                return  # The partition was moving away as it answered; who has it now will know.
            if numbers.acked_offset >= log_start_offset:
                _log.warning(
                    "%s: the broker forgot producer %d although its last record, at offset %d, is still there "
                    "(the log begins at %d)",
                    batch.partition,
                    numbers.producer_id,
                    numbers.acked_offset,
                    log_start_offset,
                )
        numbers.must_restart = True
        self._troubled[batch.partition] = numbers

    def may_retry(self, batch: ProducerBatch, code: ErrorCode, log_start_offset: int) -> bool:
        """Of a transactional producer whose numbers were refused: may they be as expected the next time?"""
        numbers = self._partitions[batch.partition]
        if code is ErrorCode.UNKNOWN_PRODUCER_ID and log_start_offset == NO_OFFSET:
            return True
        return bool(numbers.in_flight) and numbers.in_flight[0] is not batch

    def split(self, batch: ProducerBatch, parts: list[ProducerBatch]) -> None:
        """The batch goes on as smaller ones, which share its numbers among them."""
        numbers = self._partitions[batch.partition]
        at = next((position for position, each in enumerate(numbers.in_flight) if each is batch), -1)
        check(at >= 0, f"{batch.partition}: a batch that is not in flight was split")
        numbers.in_flight[at : at + 1] = parts
        numbers.ordinals[at : at + 1] = [numbers.ordinals[at]] * len(parts)

    def abandon_all(self) -> None:
        """Everything was given up at once."""
        for numbers in self._partitions.values():
            for batch in list(numbers.in_flight):
                self.given_up(batch)

    def restart_where_due(self) -> None:
        """Let the numbers of partitions begin anew that have to, now that nothing of theirs is on its way."""
        for partition, numbers in list(self._troubled.items()):
            if not numbers.must_restart and numbers.gap_end is None:
                del self._troubled[partition]  # The broker has it after all.
            elif numbers.is_due_for_restart and self._restart(partition, numbers):
                del self._troubled[partition]

    def _restart(self, partition: TopicPartition, numbers: _Partition) -> bool:
        if not self.has_id:
            return False
        if numbers.producer_id == self._producer_id and numbers.epoch == self._epoch:
            if self._epoch == MAX_EPOCH:
                self._producer_id = NO_PRODUCER_ID
                return False
            self._epoch += 1
        _log.info(
            "%s: sequences begin anew with producer %d, epoch %d; %d batches are sent again",
            partition,
            self._producer_id,
            self._epoch,
            len(numbers.in_flight),
        )
        sequence = 0
        for batch in numbers.in_flight:
            batch.set_producer_state(self._producer_id, self._epoch, sequence)
            sequence = after(sequence, batch.record_count)
        numbers.ordinals = list(range(len(numbers.in_flight)))
        numbers.numbered_count = len(numbers.in_flight)
        numbers.producer_id = self._producer_id
        numbers.epoch = self._epoch
        numbers.next_sequence = sequence
        numbers.is_known_to_broker = False
        numbers.gap_end = None
        numbers.must_restart = False
        return True

    @staticmethod
    def _take_out(numbers: _Partition, batch: ProducerBatch) -> bool:
        # Batches compare by identity; the one that is answered is nearly always the first.
        in_flight = numbers.in_flight
        for position, each in enumerate(in_flight):
            if each is batch:
                del in_flight[position]
                del numbers.ordinals[position]
                return True
        return False
