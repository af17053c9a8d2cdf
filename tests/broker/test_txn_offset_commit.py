"""TxnOffsetCommit: pending until the marker, fenced by epoch and by membership, and gone with an abort."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.net.errors import ConnectError
from barnabas.records import iter_batches
from barnabas.wire.messages.delete_groups import DeleteGroupsRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup, OffsetFetchRequestTopics
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from barnabas.wire.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from tests.broker.transaction_plane import TXN, TransactionPlane

GROUP = "readers"


@pytest.fixture
def plane() -> TransactionPlane:
    return TransactionPlane(group_initial_rebalance_delay_ms=0)


def request_of(
    offsets: dict[tuple[str, int], int], *, group: str = GROUP, producer_id: int = 7, epoch: int = 0, **member: Any
) -> TxnOffsetCommitRequest:
    metadata = member.pop("metadata", "")
    topics: dict[str, list[TxnOffsetCommitRequestPartition]] = {}
    for (topic, number), offset in offsets.items():
        partition = TxnOffsetCommitRequestPartition(
            partition_index=number, committed_offset=offset, committed_metadata=metadata
        )
        topics.setdefault(topic, []).append(partition)
    return TxnOffsetCommitRequest(
        transactional_id=TXN,
        group_id=group,
        producer_id=producer_id,
        producer_epoch=epoch,
        topics=[TxnOffsetCommitRequestTopic(name=name, partitions=each) for name, each in topics.items()],
        **member,
    )


def commit(
    plane: TransactionPlane, offsets: dict[tuple[str, int], int], *, version: int = 5, **how: Any
) -> dict[tuple[str, int], ErrorCode]:
    response = plane.ask(request_of(offsets, **how), version)
    return {
        (topic.name, each.partition_index): ErrorCode.of(each.error_code)
        for topic in response.topics
        for each in topic.partitions
    }


def commit_one(plane: TransactionPlane, offset: int = 5, **how: Any) -> ErrorCode:
    [code] = commit(plane, {("t", 0): offset}, **how).values()
    return code


def fetch(plane: TransactionPlane, *, stable: bool = False, number: int = 0) -> tuple[int, ErrorCode]:
    asked = OffsetFetchRequestGroup(
        group_id=GROUP, topics=[OffsetFetchRequestTopics(name="t", partition_indexes=[number])]
    )
    response = plane.ask(OffsetFetchRequest(groups=[asked], require_stable=stable), 9)
    [partition] = response.groups[0].topics[0].partitions
    return partition.committed_offset, ErrorCode.of(partition.error_code)


def offsets_partition(plane: TransactionPlane, group: str = GROUP) -> tuple[str, int]:
    return CONSUMER_OFFSETS, plane.services.groups.partition_for(group)


def end(plane: TransactionPlane, **how: Any) -> None:
    plane.end(offsets_partition(plane), **how)


def test_offsets_count_once_the_marker_is_there(plane: TransactionPlane) -> None:
    assert commit_one(plane, 5) is ErrorCode.NONE
    assert fetch(plane) == (-1, ErrorCode.NONE)
    assert fetch(plane, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(plane)
    assert fetch(plane) == (5, ErrorCode.NONE)
    assert fetch(plane, stable=True) == (5, ErrorCode.NONE)


def test_aborted_offsets_never_count(plane: TransactionPlane) -> None:
    commit_one(plane, 5)
    end(plane)
    commit_one(plane, 9)
    assert fetch(plane) == (5, ErrorCode.NONE)
    end(plane, committed=False)
    assert fetch(plane, stable=True) == (5, ErrorCode.NONE)


def test_they_are_one_batch_of_the_producer(plane: TransactionPlane) -> None:
    commit(plane, {("t", 0): 1, ("t", 1): 2})
    topic, number = offsets_partition(plane)
    data = bytes(plane.fetch(topic, number=number).records or b"")
    [written] = list(iter_batches(memoryview(data)))
    assert (written.producer_id, written.producer_epoch, written.is_transactional) == (7, 0, True)
    assert written.record_count == 2


def test_the_partition_of_the_group_is_added_to_the_transaction(plane: TransactionPlane) -> None:
    commit_one(plane)
    commit_one(plane, 6)
    [asked] = plane.coordinator.transactions  # the second finds the transaction open
    assert (asked.transactional_id, asked.verify_only) == (TXN, False)
    assert [(each.name, each.partitions) for each in asked.topics] == [
        (CONSUMER_OFFSETS, [offsets_partition(plane)[1]])
    ]


@pytest.mark.parametrize("version", [0, 3, 4])
def test_older_clients_add_the_group_themselves(plane: TransactionPlane, version: int) -> None:
    expected = ErrorCode.TRANSACTION_ABORTABLE if version >= 4 else ErrorCode.INVALID_TXN_STATE
    assert commit_one(plane, version=version) is expected
    plane.coordinator.add(offsets_partition(plane))
    assert commit_one(plane, version=version) is ErrorCode.NONE
    end(plane)
    assert fetch(plane) == (5, ErrorCode.NONE)


@pytest.mark.parametrize(
    ("said", "version", "told"),
    [
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 5, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.CONCURRENT_TRANSACTIONS, 4, ErrorCode.CONCURRENT_TRANSACTIONS),
        (ErrorCode.PRODUCER_FENCED, 5, ErrorCode.INVALID_PRODUCER_EPOCH),
        (ErrorCode.INVALID_PRODUCER_ID_MAPPING, 5, ErrorCode.INVALID_PRODUCER_ID_MAPPING),
    ],
)
def test_what_the_coordinator_says_is_told(
    plane: TransactionPlane, said: ErrorCode, version: int, told: ErrorCode
) -> None:
    plane.coordinator.error = said
    assert commit_one(plane, version=version) is told


def test_a_coordinator_that_cannot_be_reached_does_not_make_the_client_look_for_ours(plane: TransactionPlane) -> None:
    plane.coordinator.failure = ConnectError("broker 2", "nobody listens")
    assert commit_one(plane) is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS


def test_an_older_producer_is_fenced_and_nobody_else_is_harmed(plane: TransactionPlane) -> None:
    commit_one(plane, 5, epoch=2)
    end(plane, epoch=2)
    assert commit_one(plane, 6, epoch=1) is ErrorCode.INVALID_PRODUCER_EPOCH
    # In one turn with commits of others, which go into the same partition.
    plain = OffsetCommitRequest(
        group_id=GROUP,
        topics=[
            OffsetCommitRequestTopic(
                name="t",
                partitions=[OffsetCommitRequestPartition(partition_index=1, committed_offset=3, committed_metadata="")],
            )
        ],
    )
    answers = [plane.begin(plain, 8), plane.begin(request_of({("t", 0): 7}, epoch=1)), plane.begin(plain, 8)]
    told = [plane.run(each).topics[0].partitions[0].error_code for each in answers]
    assert told == [0, ErrorCode.INVALID_PRODUCER_EPOCH, 0]
    assert fetch(plane) == (5, ErrorCode.NONE)


def join(plane: TransactionPlane) -> tuple[str, int]:
    """One member; its id and generation."""
    request = JoinGroupRequest(
        group_id=GROUP,
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    request.member_id = plane.ask(request, 5).member_id
    joined = plane.ask(request, 5)
    assignment = SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"a")
    plane.ask(
        SyncGroupRequest(
            group_id=GROUP, generation_id=joined.generation_id, member_id=joined.member_id, assignments=[assignment]
        ),
        3,
    )
    return joined.member_id, joined.generation_id


def test_who_takes_part_in_the_group_says_so(plane: TransactionPlane) -> None:
    member_id, generation = join(plane)
    member: dict[str, Any] = {"member_id": member_id, "generation_id": generation}
    assert commit_one(plane, **member) is ErrorCode.NONE
    assert commit_one(plane, member_id=member_id, generation_id=generation - 1) is ErrorCode.ILLEGAL_GENERATION
    assert commit_one(plane, member_id="other", generation_id=generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert commit_one(plane, **member, group_instance_id="x") is ErrorCode.UNKNOWN_MEMBER_ID
    # Who says nothing is believed: before version 3 nobody could say more.
    assert commit_one(plane) is ErrorCode.NONE
    assert commit_one(plane, version=2) is ErrorCode.NONE


def test_a_group_that_is_not_there_has_no_generation(plane: TransactionPlane) -> None:
    assert commit_one(plane, generation_id=3, member_id="m") is ErrorCode.ILLEGAL_GENERATION
    assert commit_one(plane, group="") is ErrorCode.INVALID_GROUP_ID


def test_partitions_that_are_not_there_are_refused_alone(plane: TransactionPlane) -> None:
    assert commit(plane, {("t", 0): 1, ("t", 9): 2, ("nowhere", 0): 3}) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("nowhere", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert commit_one(plane, metadata="x" * 4097) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_deletions_take_pending_offsets_along(plane: TransactionPlane) -> None:
    commit_one(plane)
    topic = OffsetDeleteRequestTopic(name="t", partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    assert plane.ask(OffsetDeleteRequest(group_id=GROUP, topics=[topic])).error_code == 0
    end(plane)
    assert fetch(plane) == (-1, ErrorCode.NONE)
    commit_one(plane)
    assert plane.ask(DeleteGroupsRequest(groups_names=[GROUP])).results[0].error_code == 0
    end(plane)
    assert fetch(plane) == (-1, ErrorCode.NONE)


def test_groups_with_pending_offsets_do_not_expire() -> None:
    plane = TransactionPlane(offsets_retention_minutes=1, offsets_retention_check_interval_ms=1000)
    commit_one(plane, 5)
    end(plane)
    commit_one(plane, 9)
    plane.pass_ms(120_000)
    assert fetch(plane) == (5, ErrorCode.NONE)
    end(plane, committed=False)
    plane.pass_ms(120_000)
    assert fetch(plane) == (-1, ErrorCode.NONE)


def test_another_coordinator_finds_what_is_pending(plane: TransactionPlane) -> None:
    commit_one(plane, 5)
    _, number = offsets_partition(plane)
    plane.change_partition(CONSUMER_OFFSETS, number, leader=1, leader_epoch=1)
    plane.pass_ms(1000)
    assert fetch(plane, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(plane)
    assert fetch(plane, stable=True) == (5, ErrorCode.NONE)


def test_a_marker_finds_no_coordinator_that_is_not_ready(plane: TransactionPlane) -> None:
    topic, number = offsets_partition(plane)
    plane.change_partition(topic, number, replicas=(1, 2), isr=(1, 2), leader=2, leader_epoch=1)
    outcome = plane.write_markers(plane.marker([(topic, number)]))
    assert outcome == {(7, topic, number): ErrorCode.NOT_LEADER_OR_FOLLOWER}
    assert commit_one(plane) is ErrorCode.NOT_COORDINATOR


def test_a_late_marker_is_refused_and_changes_nothing(plane: TransactionPlane) -> None:
    commit_one(plane, 5)
    end(plane, epoch=1, transaction_version=2)
    commit_one(plane, 6, epoch=1)
    late = plane.marker([offsets_partition(plane)], epoch=1, transaction_version=2, committed=False)
    assert set(plane.write_markers(late).values()) == {ErrorCode.INVALID_PRODUCER_EPOCH}
    assert fetch(plane, stable=True) == (-1, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    end(plane, epoch=2, transaction_version=2)
    assert fetch(plane, stable=True) == (6, ErrorCode.NONE)
