"""Bugs planted on purpose in coordinators, partitions and clients, which the scenario "transactions" must find.

python -m tests.cluster.planted_transactions                       # a table of all, with the seeds that each took
python -m tests.cluster.planted_transactions forgets_what_was_prepared    # one of them, with the story of the seed
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Awaitable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final
from unittest.mock import patch

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.broker.data.replica_manager import ReplicaManager
from barnabas.broker.data.transaction_verification import Verification
from barnabas.broker.transactions import marker_sender
from barnabas.broker.transactions.marker_sender import MarkerSender, ShardMarkers
from barnabas.client.core.consuming.membership import Membership
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.producing.transaction_manager import TransactionManager
from barnabas.coordinator.offsets import txn_commits
from barnabas.coordinator.offsets.manager import OffsetMetadataManager
from barnabas.coordinator.results import NO_RECORDS, Now, Records
from barnabas.coordinator.transactions import end_txn, init_producer_id, shard, timeouts
from barnabas.coordinator.transactions.metadata import NO_EPOCH, TransactionMetadata, begun, prepared
from barnabas.coordinator.transactions.shard import TransactionCoordinatorShard
from barnabas.coordinator.transactions.states import TransactionState
from barnabas.metadata.topic_names import TRANSACTION_STATE
from barnabas.records.control import TransactionMarker
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.roles import Isolation
from barnabas.replication.verification import VerificationStates
from barnabas.storage.aborted import AbortedTransactions
from barnabas.storage.log import PartitionLog
from barnabas.storage.producer_state import ProducerStates
from barnabas.testing.sim.transaction_setting import OUTPUT
from barnabas.wire.messages.end_txn import EndTxnRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from tests.cluster.planting import PlantedBugs

PLANTED: Final = PlantedBugs("transactions", max_seeds=120)
planted = PLANTED.planted


# What a coordinator decides


@contextmanager
def _without_waiting(topic: str) -> Iterator[None]:
    """What is written to a topic counts as committed at once."""
    wait = ReplicaManager.wait_for_high_watermark

    def at_once(self: ReplicaManager, name: TopicPartition, offset: int, timeout_ms: int) -> Awaitable[ErrorCode]:
        return wait(self, name, 0 if name.topic == topic else offset, timeout_ms)

    with patch.object(ReplicaManager, "wait_for_high_watermark", at_once):
        yield


@planted("EndTxn is answered, and carried out, before the followers have the decision")
@contextmanager
def answers_before_the_decision_is_committed() -> Iterator[None]:
    with _without_waiting(TRANSACTION_STATE):
        yield


@planted("markers are sent before the decision is committed")
@contextmanager
def sends_markers_before_the_decision_is_committed() -> Iterator[None]:
    appended = shard._Written.appended

    def send(self: Any, now: Now) -> Records:
        appended(self, now)
        if self._metadata.state.is_prepared:
            self._shard.send_committed_markers(self._transactional_id)
        return NO_RECORDS

    with patch.object(shard._Written, "appended", send):
        yield


@planted("a transaction is complete as soon as its markers are on their way")
@contextmanager
def completes_before_the_markers_are_written() -> Iterator[None]:
    send = ShardMarkers.send

    def complete(self: ShardMarkers, transactional_id: str, metadata: TransactionMetadata) -> None:
        send(self, transactional_id, metadata)
        asyncio.get_running_loop().call_soon(self.on_written, transactional_id, metadata)

    with patch.object(ShardMarkers, "send", complete):
        yield


@planted("a coordinator that takes over leaves what is prepared as it is")
@contextmanager
def forgets_what_was_prepared() -> Iterator[None]:
    def loaded(self: TransactionCoordinatorShard, now: Now) -> tuple[()]:
        timeouts.schedule(self, now)
        return ()

    with patch.object(TransactionCoordinatorShard, "loaded", loaded):
        yield


def _abort_only(
    coordinator: TransactionCoordinatorShard,
    transactional_id: str,
    metadata: TransactionMetadata,
    response: Any,
    now: Now,
) -> Any:
    version = coordinator.config.transaction_version
    aborted = prepared(metadata, TransactionState.PREPARE_ABORT, version, now.wall_ms, epoch=metadata.producer_epoch)
    return coordinator.written(transactional_id, aborted, response, NO_EPOCH)


@planted("a producer that begins gets the epoch that its predecessor has")
@contextmanager
def fences_nobody() -> Iterator[None]:
    def begin(coordinator: TransactionCoordinatorShard, request: Any, metadata: Any, expected: Any, now: Now) -> Any:
        epoch = max(metadata.producer_epoch, 0)
        after = begun(metadata, metadata.producer_id, epoch, request.transaction_timeout_ms, now.wall_ms)
        response = InitProducerIdResponse(producer_id=metadata.producer_id, producer_epoch=epoch)
        return coordinator.written(request.transactional_id, after, response, NO_EPOCH)

    with (
        patch.object(init_producer_id, "_begin", begin),
        patch.object(init_producer_id, "abort_and_fence", _abort_only),
    ):
        yield


@planted("a transaction that took too long is aborted, and its producer does not hear of it")
@contextmanager
def times_out_without_fencing() -> Iterator[None]:
    with patch.object(timeouts, "abort_and_fence", _abort_only):
        yield


@planted("EndTxn is carried out whatever its epoch is")
@contextmanager
def ends_whatever_epoch_is_named() -> Iterator[None]:
    def without_check(end: Any) -> Any:
        def ended(coordinator: Any, metadata: TransactionMetadata, request: EndTxnRequest, *rest: Any) -> Any:
            if metadata.state is TransactionState.ONGOING and metadata.producer_id == request.producer_id:
                request.producer_epoch = metadata.producer_epoch
            return end(coordinator, metadata, request, *rest)

        return ended

    with (
        patch.object(end_txn, "_end_v1", without_check(end_txn._end_v1)),
        patch.object(end_txn, "_end_v2", without_check(end_txn._end_v2)),
    ):
        yield


# Markers


@planted("a partition takes markers of a coordinator that was replaced")
@contextmanager
def believes_former_coordinators() -> Iterator[None]:
    check = ProducerStates._check_marker

    def believe(self: ProducerStates, batch: Any, producer: Any, marker: TransactionMarker, version: int) -> None:
        check(self, batch, producer, replace(marker, coordinator_epoch=2**31 - 1), version)

    with patch.object(ProducerStates, "_check_marker", believe):
        yield


@planted("what was aborted is marked as committed")
@contextmanager
def commits_what_was_aborted() -> Iterator[None]:
    marker = marker_sender._Pending.marker

    def committed(self: Any, partitions: Any) -> Any:
        made = marker(self, partitions)
        made.transaction_result = True
        return made

    with patch.object(marker_sender._Pending, "marker", committed):
        yield


@planted("a marker that did not arrive is not sent again")
@contextmanager
def sends_markers_once() -> Iterator[None]:
    with patch.object(MarkerSender, "_route_later", lambda *_: None):
        yield


@planted("a leader says that a marker is written before its followers have it")
@contextmanager
def acknowledges_markers_at_once() -> Iterator[None]:
    with _without_waiting(OUTPUT):
        yield


# Partitions


@planted("records are taken without asking whether their transaction is open")
@contextmanager
def skips_verification() -> Iterator[None]:
    with (
        patch.object(Verification, "begin", lambda *_, **__: None),
        patch.object(VerificationStates, "check", lambda *_, **__: None),
    ):
        yield


@planted("the last stable offset moves on before a marker is replicated")
@contextmanager
def is_stable_before_replication() -> Iterator[None]:
    def of_open_ones(self: ProducerStates) -> None:
        self.first_unstable_offset = next(iter(self._open), None)

    with patch.object(ProducerStates, "_find_first_unstable", of_open_ones):
        yield


@planted("who reads committed data reads up to the high watermark")
@contextmanager
def shows_what_is_open() -> Iterator[None]:
    read = LeaderState.read

    def all_of_it(self: LeaderState, offset: int, max_bytes: int, isolation: Isolation, **rest: Any) -> Any:
        wanted = Isolation.READ_UNCOMMITTED if isolation is Isolation.READ_COMMITTED else isolation
        return read(self, offset, max_bytes, wanted, **rest)

    with patch.object(LeaderState, "read", all_of_it):
        yield


@planted("followers do not note what was aborted, so a new leader does not know")
@contextmanager
def followers_forget_what_was_aborted() -> Iterator[None]:
    append = PartitionLog.append_as_follower

    def forget(self: PartitionLog, *arguments: Any, **rest: Any) -> Any:
        with patch.object(AbortedTransactions, "append", lambda *_: None):
            return append(self, *arguments, **rest)

    with patch.object(PartitionLog, "append_as_follower", forget):
        yield


# Groups


@planted("offsets count before the marker of their transaction has come")
@contextmanager
def shows_pending_offsets() -> Iterator[None]:
    replay = OffsetMetadataManager.replay

    def at_once(self: OffsetMetadataManager, group_id: str, partition: Any, stored: Any, offset: int, *_: Any) -> None:
        replay(self, group_id, partition, stored, offset)

    with patch.object(OffsetMetadataManager, "replay", at_once):
        yield


@planted("offsets are told also where a transaction is about to change them")
@contextmanager
def tells_unstable_offsets() -> Iterator[None]:
    with patch.object(OffsetMetadataManager, "pending", lambda *_: frozenset()):
        yield


@planted("offsets are taken from who is not a member of the group any more, or not in this generation")
@contextmanager
def takes_offsets_of_former_members() -> Iterator[None]:
    with patch.object(txn_commits, "commit_error", lambda *_: ErrorCode.NONE):
        yield


# Clients


@planted("a producer commits before its records are acknowledged")
@contextmanager
def commits_before_records_are_acknowledged() -> Iterator[None]:
    next_request = TransactionManager.next_request

    def too_early(self: TransactionManager, now_ms: int, has_incomplete: bool) -> Any:
        return next_request(self, now_ms, False)

    with patch.object(TransactionManager, "next_request", too_early):
        yield


@planted("a consumer that has fallen out of its group commits as somebody who was never in it")
@contextmanager
def commits_as_nobody_after_falling_out() -> Iterator[None]:
    reset = Membership._reset

    def forget(self: Membership, *arguments: Any, **rest: Any) -> None:
        reset(self, *arguments, **rest)
        self.metadata = GroupMetadata(self.policy.group_id, instance_id=self.policy.instance_id)

    with patch.object(Membership, "_reset", forget):
        yield


if __name__ == "__main__":
    sys.exit(PLANTED.main(sys.argv[1:]))
