"""Logs with transactions in them, made by hand."""

from __future__ import annotations

from collections.abc import Iterable

from barnabas.records.builder import BatchBuilder
from barnabas.records.control import TransactionMarker, build_marker


class TransactionalLog:
    """Batches one after the other, each with its offset."""

    def __init__(self) -> None:
        self.batches: list[bytes] = []
        self.end_offset = 0

    @property
    def data(self) -> bytes:
        return b"".join(self.batches)

    def _append(self, batch: bytes, record_count: int) -> None:
        # The base offset comes first, and is not part of what the checksum covers.
        self.batches.append(self.end_offset.to_bytes(8, "big") + batch[8:])
        self.end_offset += record_count

    def records(
        self,
        pairs: Iterable[tuple[bytes | None, bytes | None]],
        *,
        producer_id: int = 7,
        epoch: int = 0,
        is_transactional: bool = True,
    ) -> None:
        """A batch of pairs of key and value."""
        builder = BatchBuilder(
            1 << 20,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=is_transactional,
        )
        count = 0
        for key, value in pairs:
            builder.append(value, key, 0)
            count += 1
        self._append(bytes(builder.build()), count)

    def values(self, *values: bytes, producer_id: int = 7, epoch: int = 0, is_transactional: bool = True) -> None:
        pairs = [(None, value) for value in values]
        self.records(pairs, producer_id=producer_id, epoch=epoch, is_transactional=is_transactional)

    def marker(self, *, is_commit: bool, producer_id: int = 7, epoch: int = 0, coordinator_epoch: int = 1) -> None:
        self._append(bytes(build_marker(TransactionMarker(producer_id, epoch, coordinator_epoch, is_commit), 0)), 1)
