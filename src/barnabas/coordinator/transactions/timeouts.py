"""Transactions that ran out of time are aborted, and transactional ids that nobody uses forgotten."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from typing import TYPE_CHECKING, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.results import CoordinatorResult, Now, Operation
from barnabas.coordinator.timer import Key
from barnabas.coordinator.transactions.fencing import abort_and_fence
from barnabas.coordinator.transactions.metadata import NO_EPOCH, TransactionMetadata, tombstone_of

if TYPE_CHECKING:
    from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard

_ABORT: Final[Key] = ("abort timed out",)
_EXPIRE: Final[Key] = ("remove expired",)
#: So many ids are worked on in one turn at most: whoever waits for the shard need not wait for all of them.
_MOST_AT_ONCE: Final = 500


def schedule(shard: TransactionCoordinatorShard, now: Now) -> None:
    """Look for both from time to time."""
    _schedule_aborts(shard, now)
    _schedule_expiry(shard, now)


def _schedule_aborts(shard: TransactionCoordinatorShard, now: Now) -> None:
    deadline_ms = now.monotonic_ms + shard.config.abort_timed_out_interval_ms
    shard.timer.schedule(_ABORT, deadline_ms, Operation(None, partial(_abort_timed_out, shard)))


def _schedule_expiry(shard: TransactionCoordinatorShard, now: Now) -> None:
    deadline_ms = now.monotonic_ms + shard.config.remove_expired_interval_ms
    shard.timer.schedule(_EXPIRE, deadline_ms, Operation(None, partial(_remove_expired, shard)))


def _in_turns(
    shard: TransactionCoordinatorShard,
    key: Key,
    ids: Iterator[str],
    work: Callable[[TransactionCoordinatorShard, str, Now], CoordinatorResult],
    now: Now,
) -> CoordinatorResult:
    """Work on the next ids, and in the next turn on those that are left."""
    some = list(islice(ids, _MOST_AT_ONCE))
    if len(some) == _MOST_AT_ONCE:
        # Not for this very moment, or it would fire in this turn.
        going_on = Operation(None, partial(_in_turns, shard, key, ids, work))
        shard.timer.schedule((*key, "going on"), now.monotonic_ms + 1, going_on)
    return CoordinatorResult(then=[Operation(each, partial(work, shard, each)) for each in some])


# Time-outs


def _abort_timed_out(shard: TransactionCoordinatorShard, now: Now) -> CoordinatorResult:
    _schedule_aborts(shard, now)
    late = []
    for transactional_id in shard.ongoing:
        metadata = shard.stored.get(transactional_id)
        if metadata is not None and _is_late(metadata, now):
            late.append(transactional_id)
    return _in_turns(shard, _ABORT, iter(late), _abort, now)


def _is_late(metadata: TransactionMetadata, now: Now) -> bool:
    return metadata.is_timed and metadata.start_ms + metadata.timeout_ms < now.wall_ms


def _abort(shard: TransactionCoordinatorShard, transactional_id: str, now: Now) -> CoordinatorResult:
    metadata = shard.stored.get(transactional_id)
    if metadata is None or not _is_late(metadata, now):
        return CoordinatorResult()
    outcome = abort_and_fence(shard, transactional_id, metadata, None, now)
    # Without a producer id it is tried when it is looked for the next time.
    return CoordinatorResult() if isinstance(outcome, ErrorCode) else outcome


# Expiry


def _remove_expired(shard: TransactionCoordinatorShard, now: Now) -> CoordinatorResult:
    _schedule_expiry(shard, now)
    expired = [
        transactional_id
        for transactional_id, metadata in shard.stored.latest().items()
        if _is_expired(shard, metadata, now)
    ]
    return _in_turns(shard, _EXPIRE, iter(expired), _remove, now)


def _is_expired(shard: TransactionCoordinatorShard, metadata: TransactionMetadata, now: Now) -> bool:
    return metadata.state.may_expire and metadata.last_update_ms <= now.wall_ms - shard.config.id_expiration_ms


def _remove(shard: TransactionCoordinatorShard, transactional_id: str, now: Now) -> CoordinatorResult:
    metadata = shard.stored.get(transactional_id)
    if metadata is None or not _is_expired(shard, metadata, now):
        return CoordinatorResult()
    shard.note_last_epoch(transactional_id, NO_EPOCH)
    return CoordinatorResult([tombstone_of(transactional_id)])
