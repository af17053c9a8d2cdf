"""Before the first batch of a transaction is appended, its coordinator must have said that the partition belongs to it.

Between the question and the append a marker may come, and even another transaction begin: the answer is then about
something that is over. So whoever asks gets a guard, and appends with it; a marker takes the guard away, and so does
the end of the role. From the first append on, the open transaction itself is the proof (KIP-890).

Where the epoch goes up with each transaction, the next one may be asked about before the marker of the one before has
come here: that marker, which has the epoch of the next, ends nothing of it. (In Kafka it takes the guard away as well.)
"""

from __future__ import annotations

from typing import Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import BatchView
from barnabas.records.control import EPOCH_PER_TRANSACTION
from barnabas.storage.errors import AppendRefusedError
from barnabas.storage.producer_state import ProducerStates

#: Of one partition. Who asks and never appends is forgotten when so many others have asked after it.
_MOST: Final = 10_000


class VerificationGuard:
    """Stands for one question. It is what it is: no two are equal."""

    __slots__ = ()


class _VerificationState:
    __slots__ = ("epoch", "guard", "lowest_sequence", "supports_epoch_bump")

    def __init__(self, epoch: int, sequence: int, *, supports_epoch_bump: bool) -> None:
        self.guard = VerificationGuard()
        self.epoch = epoch
        self.lowest_sequence = sequence
        self.supports_epoch_bump = supports_epoch_bump


class VerificationStates:
    """The producers of one partition that have asked and not appended yet, by id."""

    __slots__ = ("_states",)

    def __init__(self) -> None:
        self._states: dict[int, _VerificationState] = {}

    def __len__(self) -> int:
        return len(self._states)

    def start(self, producer_id: int, epoch: int, sequence: int, *, supports_epoch_bump: bool) -> VerificationGuard:
        """Ask. Several batches of a producer that are on their way together share a guard."""
        states = self._states
        state = states.get(producer_id)
        if state is None:
            state = states[producer_id] = _VerificationState(epoch, sequence, supports_epoch_bump=supports_epoch_bump)
            if len(states) > _MOST:
                del states[next(iter(states))]
        elif epoch > state.epoch:
            state.epoch, state.lowest_sequence = epoch, sequence
        elif epoch == state.epoch:
            state.lowest_sequence = min(state.lowest_sequence, sequence)
        return state.guard

    def clear(self, producer_id: int) -> None:
        """The first batch is in the log."""
        self._states.pop(producer_id, None)

    def transaction_ended(self, producer_id: int, marker_epoch: int, transaction_version: int) -> None:
        """A marker is in the log."""
        state = self._states.get(producer_id)
        is_of_one_before = (
            state is not None and transaction_version >= EPOCH_PER_TRANSACTION and marker_epoch <= state.epoch
        )
        if not is_of_one_before:
            self.clear(producer_id)

    def check(
        self,
        partition: TopicPartition,
        batch: BatchView,
        guard: VerificationGuard | None,
        producers: ProducerStates,
        *,
        is_from_client: bool,
        is_required: bool,
    ) -> None:
        """Raises if a transactional batch may not be appended. What came before, or is of an older epoch, passes: the
        log has a better answer to that."""
        producer_id, epoch = batch.producer_id, batch.producer_epoch
        if producers.has_open_transaction(producer_id, epoch) or producers.is_fenced(batch):
            return
        if is_from_client and producers.is_duplicate(batch):
            return
        state = self._states.get(producer_id)
        if is_required and (state is None or state.guard is not guard):
            raise AppendRefusedError(
                ErrorCode.INVALID_TXN_STATE,
                f"{partition}: the batch of producer {producer_id}, epoch {epoch}, is not part of an open transaction",
            )
        if state is not None and is_from_client:
            self._check_sequence(partition, batch, state, producers)

    def _check_sequence(
        self, partition: TopicPartition, batch: BatchView, state: _VerificationState, producers: ProducerStates
    ) -> None:
        """What is in flight behind a batch that could not be verified must not overtake it."""
        sequence = batch.base_sequence
        is_new = state.supports_epoch_bump and not producers.remembered(batch.producer_id)
        expected = 0 if is_new else state.lowest_sequence
        if sequence > expected:
            raise AppendRefusedError(
                ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
                f"{partition}: producer {batch.producer_id}, epoch {batch.producer_epoch}, sent sequence {sequence} "
                f"where {expected} comes next in its transaction",
            )
