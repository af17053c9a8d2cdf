"""How large the batches of each partition get.

A `batch.size` that somebody gave is obeyed. Where nobody gave one it is only what a batch begins with: until the sender
takes it, it is given more room when it is full. So batches are small where the sender keeps up with the records, and
large where it does not, and a record that is alone leaves as it always did.

How far they grow is learned, partition by partition: further as long as large ones are answered quickly, less far
where answers are slow, as over a thin line, or where a broker found one too large: topics may take less than usual.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from barnabas.base.ids import TopicPartition

#: As much as brokers take (message.max.bytes) unless they are told otherwise. More would not make anything faster.
LARGEST_BYTES: Final = 1024 * 1024
#: The same where batches are compressed, which is done in one go, and holds up whatever else runs on an event loop.
LARGEST_COMPRESSED_BYTES: Final = 256 * 1024
#: How far they grow before anything is known of the answers.
_UNTRIED_BYTES: Final = 256 * 1024
#: The most that is asked for at once, so that little of it is left over at the end.
_STEP_BYTES: Final = 256 * 1024
#: A batch that is older than this grows no more, as where no broker answers: what joins it must be acknowledged within
#: what is left of the delivery.timeout.ms of its first record.
_GROWING_MS: Final = 100
_QUICK_MS: Final = 1_000
#: Far below request.timeout.ms, as several requests may be on their way over the same line.
_SLOW_MS: Final = 5_000


class BatchSizes:
    """See the module. Where `ceiling_bytes` is not more than `batch_bytes` all batches have that size."""

    __slots__ = ("_ceiling_bytes", "_ceilings", "_learned", "batch_bytes", "can_grow")

    def __init__(self, batch_bytes: int, ceiling_bytes: int) -> None:
        self.batch_bytes = batch_bytes
        self.can_grow = ceiling_bytes > batch_bytes
        self._ceiling_bytes = max(batch_bytes, ceiling_bytes)
        self._learned: dict[TopicPartition, int] = {}
        #: Of partitions where a batch was refused.
        self._ceilings: dict[TopicPartition, int] = {}

    def largest_bytes(self, partition: TopicPartition) -> int:
        """How large a batch of this partition may be now."""
        learned = self._learned.get(partition)
        return max(self.batch_bytes, min(self._ceiling_bytes, _UNTRIED_BYTES)) if learned is None else learned

    def grown_bytes(self, partition: TopicPartition, size_bytes: int, needed_bytes: int, age_ms: int) -> int:
        """What to make of a batch of `size_bytes` that has no room, and would need `needed_bytes` in all.

        It is what it has if it may not grow, or not so far.
        """
        largest_bytes = self.largest_bytes(partition)
        if not self.can_grow or needed_bytes > largest_bytes or age_ms > _GROWING_MS:
            return size_bytes
        return max(needed_bytes, min(2 * size_bytes, size_bytes + _STEP_BYTES, largest_bytes))

    def answered(self, partition: TopicPartition, size_bytes: int, took_ms: int) -> None:
        """A broker answered for a batch of so many bytes, so many milliseconds after it was sent."""
        if not self.can_grow:
            return
        largest_bytes = self.largest_bytes(partition)
        if took_ms > _SLOW_MS:
            self._learned[partition] = max(self.batch_bytes, min(size_bytes, largest_bytes) // 2)
        elif took_ms <= _QUICK_MS and 2 * size_bytes > largest_bytes:
            self._learned[partition] = min(4 * largest_bytes, self._ceilings.get(partition, self._ceiling_bytes))

    def unanswered(self, partition: TopicPartition) -> None:
        """A batch was sent, and no answer came."""
        if self.can_grow:
            self._learned[partition] = max(self.batch_bytes, self.largest_bytes(partition) // 2)

    def refused(self, partition: TopicPartition, size_bytes: int) -> None:
        """A broker found a batch of so many bytes too large: no other of the partition will have more than half of it,
        except that `batch_bytes` is tried in any case."""
        ceiling_bytes = min(size_bytes // 2, self._ceilings.get(partition, self._ceiling_bytes))
        self._ceilings[partition] = max(self.batch_bytes, ceiling_bytes)
        self._learned[partition] = min(self.largest_bytes(partition), self._ceilings[partition])
