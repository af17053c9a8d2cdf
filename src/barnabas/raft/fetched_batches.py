"""What a follower looks at before it writes what it fetched. Pure."""

from __future__ import annotations

from barnabas.base.errors import RemoteProtocolError
from barnabas.raft.batches import read_batch
from barnabas.records.batch import BatchView, iter_batches


def check_fetched(
    data: bytes | bytearray | memoryview, end_offset: int, last_epoch: int
) -> tuple[memoryview, list[BatchView]]:
    """The whole batches in `data`, which must go on at `end_offset` in `last_epoch` or later ones.

    The last may be cut off, as in any answer to a Fetch, and is left out; but there must be one. Raises
    `RemoteProtocolError`.
    """
    view = memoryview(data)
    walk = iter_batches(view)
    batches = list(walk)
    if not batches:
        raise RemoteProtocolError(f"the leader sent {len(view)} bytes for offset {end_offset}, but no whole batch")
    for batch in batches:
        if batch.base_offset != end_offset or batch.leader_epoch < last_epoch or last_epoch < 0:
            check_follows(batch, end_offset, last_epoch)
        if batch.record_count != batch.last_offset - end_offset + 1 or batch.producer_id >= 0:
            _check_kind(batch)
        batch.check_crc()
        if batch.is_control:
            # They count at once: one that cannot be read must not be in the log.
            read_batch(batch)
        end_offset, last_epoch = batch.next_offset, batch.leader_epoch
    return view[: walk.position], batches


def check_follows(batch: BatchView, end_offset: int, last_epoch: int) -> None:
    """What the CRC does not cover."""
    if batch.base_offset != end_offset:
        raise RemoteProtocolError(f"the leader sent offset {batch.base_offset} where {end_offset} should be")
    if batch.leader_epoch < max(last_epoch, 0):
        raise RemoteProtocolError(
            f"the leader sent offset {end_offset} with epoch {batch.leader_epoch} after records of epoch {last_epoch}"
        )


def _check_kind(batch: BatchView) -> None:
    """What no leader of a quorum writes."""
    if batch.record_count != batch.last_offset - batch.base_offset + 1:
        raise RemoteProtocolError(
            f"the leader sent {batch.record_count} records for offsets {batch.base_offset} to {batch.last_offset}"
        )
    if batch.has_producer_id:
        raise RemoteProtocolError(f"the leader sent offset {batch.base_offset} as of producer {batch.producer_id}")
