"""The partitions of one request that begin a transaction: who may append to them, as the coordinator says."""

from __future__ import annotations

import asyncio
from typing import Final, NamedTuple

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.data.add_partitions_to_txn_manager import Refusals, TransactionSupportedOperation
from barnabas.broker.services import Services
from barnabas.records.batch import ATTRIBUTES_AT, HEADER, NO_SEQUENCE, TRANSACTIONAL_BIT
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.roles import PartitionError
from barnabas.replication.verification import VerificationGuard
from barnabas.storage.validation import Buffer

_MAGIC_AT: Final = 16
_MAGIC: Final = 2

#: What a coordinator says that is not ready. Old clients give up when they hear that from a partition; this one they
#: wait out, and do not ask for metadata either.
_TRY_AGAIN: Final = frozenset(
    {
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)


class TransactionalBatch(NamedTuple):
    """Who sent a batch in a transaction."""

    producer_id: int
    producer_epoch: int
    base_sequence: int


def transactional_batch(records: Buffer) -> TransactionalBatch | None:
    """The producer of a batch that says that it belongs to a transaction. Whether it is sound is checked later."""
    if len(records) < HEADER.size or records[_MAGIC_AT] != _MAGIC or not records[ATTRIBUTES_AT + 1] & TRANSACTIONAL_BIT:
        return None
    *_, producer_id, producer_epoch, base_sequence, _ = HEADER.unpack_from(records)
    return TransactionalBatch(producer_id, producer_epoch, base_sequence) if producer_id >= 0 else None


class Verification:
    """Of the partitions that one producer writes to with one request.

    `begin` for each, `ask` once, and then an append with `guard_of` each.
    """

    __slots__ = (
        "_guards",
        "_operation",
        "_producer_epoch",
        "_producer_id",
        "_refusals",
        "_sequences",
        "_services",
        "_transactional_id",
    )

    def __init__(
        self,
        services: Services,
        transactional_id: str,
        producer_id: int,
        producer_epoch: int,
        operation: TransactionSupportedOperation,
    ) -> None:
        self._services = services
        self._transactional_id = transactional_id
        self._producer_id = producer_id
        self._producer_epoch = producer_epoch
        self._operation = operation
        self._guards: dict[Partition, VerificationGuard] = {}
        self._sequences: dict[Partition, int] = {}
        self._refusals: Refusals = {}

    @property
    def is_required(self) -> bool:
        return self._services.settings.transaction_partition_verification_enable

    def begin(self, partition: Partition, base_sequence: int = NO_SEQUENCE) -> None:
        """Note that a partition is to be asked for, unless its transaction is open, or it is not led here: then the
        append tells."""
        self._guards.pop(partition, None)
        supports_epoch_bump = self._operation.supports_epoch_bump
        leader = partition.role
        if not isinstance(leader, LeaderState) or not (self.is_required or supports_epoch_bump):
            return
        guard = leader.maybe_start_verification(
            self._producer_id, self._producer_epoch, base_sequence, supports_epoch_bump=supports_epoch_bump
        )
        if guard is not None:
            self._guards[partition] = guard
            self._sequences[partition] = base_sequence

    @property
    def must_ask(self) -> bool:
        return bool(self._guards)

    async def ask(self) -> None:
        """Clients that leave the adding to us do not expect to hear that the transaction before is still being ended,
        so for a while that is asked again: with new guards, since its marker takes those away that are there."""
        loop, settings = asyncio.get_running_loop(), self._services.settings
        longest_ms = min(settings.add_partitions_to_txn_retry_backoff_max_ms, settings.request_timeout_ms)
        deadline_s = loop.time() + longest_ms / 1000
        while self._guards:
            self._refusals = await self._services.transaction_partitions.add_or_verify(
                self._transactional_id,
                self._producer_id,
                self._producer_epoch,
                [partition.name for partition in self._guards],
                self._operation,
            )
            if (
                loop.time() >= deadline_s
                or ErrorCode.CONCURRENT_TRANSACTIONS not in self._refusals.values()
                or not self._operation.supports_epoch_bump
            ):
                return
            await asyncio.sleep(settings.add_partitions_to_txn_retry_backoff_ms / 1000)
            self._refusals = {}
            for partition in list(self._guards):
                self.begin(partition, self._sequences[partition])

    def refusal_of(self, name: TopicPartition) -> ErrorCode:
        """What the coordinator said of a partition."""
        return self._refusals.get(name, ErrorCode.NONE)

    def guard_of(self, partition: Partition) -> VerificationGuard | None:
        return self._guards.get(partition)

    def produce_error(self, partition: Partition) -> PartitionError | None:
        """What a producer is told of a partition that the coordinator refused."""
        code = self.refusal_of(partition.name)
        if code is ErrorCode.NONE:
            return None
        if code in _TRY_AGAIN:
            reason = f"whether {partition.name} belongs to the transaction could not be found out: {code.name}"
            return PartitionError(ErrorCode.NOT_ENOUGH_REPLICAS, reason)
        if code is ErrorCode.INVALID_TXN_STATE:
            return PartitionError(code, f"{partition.name} was not added to the transaction")
        return PartitionError(code, f"{partition.name}: {code.text}")
