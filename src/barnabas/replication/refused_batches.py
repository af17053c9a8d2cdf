"""Idempotent producers have several batches in flight: a leader that refused the first of them waits until it has come.

Judged by its sequence alone, what is in flight behind it is out of order; or, where the log has no trace of the
producer, welcome, since its trace may have expired. Both do harm:

- Whoever is told that it is out of order may do the wrong thing. librdkafka begins a new producer epoch, in all
  partitions, and sends under it what is in some log already and was not acknowledged yet.
- Once a batch is overtaken nobody takes it any more. Java's producer sends it until its delivery time-out.

So what is behind a batch that was refused for a reason that passes (the disk is full, too few are in sync) is refused
for the same reason. And while a leader is new, a gap in the sequences counts as such a reason: the missing batch may
have been sent to the leader before, which has not answered yet, or here before this node knew that it leads. Java sends
on to the new leader meanwhile. Whoever has lost its trace otherwise has to wait a little, once. Kafka takes a full disk
offline with all that is on it, and has no answer to the latter.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.records.batch import MAX_SEQUENCE, BatchView
from barnabas.replication.roles import PartitionError
from barnabas.storage.errors import LogError, PassingError
from barnabas.storage.producer_state import ProducerStates

#: A client that was told of a refusal sends that batch first, and so does one that has given up an answer, by default
#: after 30 seconds. So this is for what was sent before that; from then on Kafka's answer is given.
KEPT_MS: Final = 40_000
_MOST: Final = 10_000


class _Missing(NamedTuple):
    """A batch that has to come before those behind it, and what these are told."""

    epoch: int
    first_sequence: int
    code: ErrorCode
    reason: str
    since_ms: int


class RefusedBatches:
    """What one leader waits for: of each producer the batch that must come before all others.

    `young_until_ms`: so long another leader's refusals, or its silence, may still be on their way to producers.
    """

    __slots__ = ("_missing", "_young_until_ms", "must_check")

    def __init__(self, young_until_ms: int | None = None) -> None:
        # By producer id, the oldest first.
        self._missing: dict[int, _Missing] = {}
        self._young_until_ms = young_until_ms
        #: Whether anything may have to come before a batch. An attribute, since it is asked for each of them.
        self.must_check = young_until_ms is not None

    def __len__(self) -> int:
        return len(self._missing)

    def note(self, batch: BatchView, refusal: LogError, producers: ProducerStates, now_ms: int) -> None:
        """A batch was refused. If the reason passes, and the batch was the next in order, it has to come again."""
        if not (isinstance(refusal, PassingError) or refusal.code is ErrorCode.NOT_ENOUGH_REPLICAS):
            return
        if batch.producer_id >= 0 and batch.base_sequence >= 0 and producers.may_be_next(batch):
            self._add(batch, batch.base_sequence, refusal.code, str(refusal), now_ms)

    def check(self, batch: BatchView, producers: ProducerStates, now_ms: int) -> None:
        """Raises if something has to come before a batch."""
        if self._young_until_ms is not None:
            self._look_for_gap(batch, producers, now_ms, self._young_until_ms)
        first = self._missing.get(batch.producer_id)
        if first is None or batch.producer_epoch < first.epoch:
            return
        is_over = (
            batch.producer_epoch > first.epoch
            or batch.base_sequence == first.first_sequence
            or first.since_ms + KEPT_MS <= now_ms
        )
        if is_over:
            del self._missing[batch.producer_id]
            self._look_if_empty()
        elif (batch.base_sequence - first.first_sequence) & MAX_SEQUENCE <= MAX_SEQUENCE // 2:
            raise PartitionError(
                first.code,
                f"sequence {batch.base_sequence} of producer {batch.producer_id} has to come after "
                f"{first.first_sequence}, which is not there yet: {first.reason}",
            )

    def _look_for_gap(self, batch: BatchView, producers: ProducerStates, now_ms: int, young_until_ms: int) -> None:
        if now_ms >= young_until_ms:
            self._young_until_ms = None
            self._look_if_empty()
        elif batch.producer_id >= 0 and batch.base_sequence >= 0 and batch.producer_id not in self._missing:
            first_sequence = producers.missing_before(batch)
            if first_sequence is not None:
                reason = "another node led until a moment ago, and may have been sent it"
                self._add(batch, first_sequence, ErrorCode.LEADER_NOT_AVAILABLE, reason, now_ms)

    def _add(self, batch: BatchView, first_sequence: int, code: ErrorCode, reason: str, now_ms: int) -> None:
        missing = self._missing
        missing.pop(batch.producer_id, None)
        missing[batch.producer_id] = _Missing(batch.producer_epoch, first_sequence, code, reason, now_ms)
        while len(missing) > _MOST or next(iter(missing.values())).since_ms + KEPT_MS <= now_ms:
            del missing[next(iter(missing))]
        self._look_if_empty()

    def _look_if_empty(self) -> None:
        self.must_check = bool(self._missing) or self._young_until_ms is not None
