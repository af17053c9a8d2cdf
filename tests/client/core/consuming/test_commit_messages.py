"""Commits and lookups of offsets in every version that a broker may know, and what answers mean."""

from __future__ import annotations

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.cluster_view import ClusterView, TopicView
from barnabas.client.core.consuming.commits import (
    commit_request,
    commit_verdict,
    fetch_found,
    fetch_request,
    newest_version,
)
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

ID = Uuid(b"0123456789abcdef")
VIEW = ClusterView(topics=[TopicView("t", ID), TopicView("old")])
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
MEMBER = GroupMetadata("g", 3, "me")


def test_topics_go_by_id_only_where_all_are_known() -> None:
    assert newest_version(["t"], VIEW, 10) == 10
    assert newest_version(["t", "old"], VIEW, 10) == 9
    assert newest_version(["t", "unheard"], VIEW, 12) == 9
    assert newest_version(["old"], VIEW, 6) == 6


@pytest.mark.parametrize("version", range(2, 11))
def test_a_commit_in_every_version(version: int) -> None:
    request = commit_request(MEMBER, {T0: OffsetAndMetadata(5, "note", 2), T1: OffsetAndMetadata(6)}, VIEW)
    read = OffsetCommitRequest.decode(request.encode(version), version)
    assert (read.group_id, read.generation_id_or_member_epoch, read.member_id) == ("g", 3, "me")
    (topic,) = read.topics
    assert (topic.name or VIEW.topic_name(topic.topic_id)) == "t"
    first, second = topic.partitions
    assert (first.committed_offset, first.committed_metadata) == (5, "note")
    assert (first.committed_leader_epoch, second.committed_leader_epoch) == ((2, -1) if version >= 6 else (-1, -1))


def commit_answer(**codes: ErrorCode) -> OffsetCommitResponse:
    partitions = [
        OffsetCommitResponsePartition(partition_index=int(name[1:]), error_code=code) for name, code in codes.items()
    ]
    return OffsetCommitResponse(topics=[OffsetCommitResponseTopic(topic_id=ID, partitions=partitions)])


class TestCommitVerdicts:
    def test_all_is_well(self) -> None:
        verdict = commit_verdict(commit_answer(p0=ErrorCode.NONE, p1=ErrorCode.NONE), VIEW, "g")
        assert (verdict.retry, verdict.member, verdict.error) == (None, None, None)

    @pytest.mark.parametrize(
        ("code", "lost", "unknown"),
        [
            (ErrorCode.NOT_COORDINATOR, True, False),
            (ErrorCode.COORDINATOR_NOT_AVAILABLE, True, False),
            (ErrorCode.REQUEST_TIMED_OUT, True, False),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, False, False),
            (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, False, True),
            (ErrorCode.UNKNOWN_TOPIC_ID, False, True),
        ],
    )
    def test_what_is_tried_again(self, code: ErrorCode, lost: bool, unknown: bool) -> None:
        verdict = commit_verdict(commit_answer(p0=code), VIEW, "g")
        assert (verdict.retry, verdict.coordinator_lost, verdict.topics_unknown) == (code, lost, unknown)

    def test_the_gravest_counts(self) -> None:
        answer = commit_answer(p0=ErrorCode.NOT_COORDINATOR, p1=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        assert "commit offsets of t-1: READ on the topic" in str(commit_verdict(answer, VIEW, "g").error)
        answer = commit_answer(p0=ErrorCode.ILLEGAL_GENERATION, p1=ErrorCode.NOT_COORDINATOR)
        assert commit_verdict(answer, VIEW, "g").member is ErrorCode.ILLEGAL_GENERATION


@pytest.mark.parametrize("version", range(1, 11))
def test_a_lookup_in_every_version(version: int) -> None:
    request = fetch_request("g", [T0, T1], VIEW, version, require_stable=True)
    read = OffsetFetchRequest.decode(request.encode(version), version)
    assert read.require_stable == (version >= 7)
    if version < 8:
        assert read.topics is not None
        assert (read.group_id, read.topics[0].name, read.topics[0].partition_indexes) == ("g", "t", [0, 1])
    else:
        (group,) = read.groups
        assert group.topics is not None
        assert group.group_id == "g"
        assert (group.topics[0].name or VIEW.topic_name(group.topics[0].topic_id)) == "t"

    answer = fetch_answer(version, ErrorCode.NONE, ErrorCode.NONE)
    found = fetch_found(answer, version, VIEW, "g")
    epoch = 4 if version >= 5 else None
    assert found.offsets == {T0: OffsetAndMetadata(7, "note", epoch), T1: None}


def fetch_answer(version: int, group_code: ErrorCode, code: ErrorCode) -> OffsetFetchResponse:
    if version < 8:
        partitions = [
            OffsetFetchResponsePartition(
                partition_index=0, committed_offset=7, committed_leader_epoch=4, metadata="note", error_code=code
            ),
            OffsetFetchResponsePartition(partition_index=1, committed_offset=-1, metadata=""),
        ]
        topics = [OffsetFetchResponseTopic(name="t", partitions=partitions)]
        response = OffsetFetchResponse(topics=topics, error_code=group_code)
    else:
        many = [
            OffsetFetchResponsePartitions(
                partition_index=0, committed_offset=7, committed_leader_epoch=4, metadata="note", error_code=code
            ),
            OffsetFetchResponsePartitions(partition_index=1, committed_offset=-1, metadata=None),
        ]
        named = OffsetFetchResponseTopics(name="t", topic_id=ID, partitions=many)
        response = OffsetFetchResponse(
            groups=[OffsetFetchResponseGroup(group_id="g", topics=[named], error_code=group_code)]
        )
    return OffsetFetchResponse.decode(response.encode(version), version)


@pytest.mark.parametrize("version", [7, 9, 10])
def test_lookups_that_fail(version: int) -> None:
    lost = fetch_found(fetch_answer(version, ErrorCode.NOT_COORDINATOR, ErrorCode.NONE), version, VIEW, "g")
    assert (lost.verdict.retry, lost.verdict.coordinator_lost) == (ErrorCode.NOT_COORDINATOR, True)
    open_ = fetch_found(fetch_answer(version, ErrorCode.NONE, ErrorCode.UNSTABLE_OFFSET_COMMIT), version, VIEW, "g")
    assert (open_.verdict.retry, open_.verdict.coordinator_lost) == (ErrorCode.UNSTABLE_OFFSET_COMMIT, False)
    refused = fetch_found(
        fetch_answer(version, ErrorCode.NONE, ErrorCode.TOPIC_AUTHORIZATION_FAILED), version, VIEW, "g"
    )
    assert "offsets of t-0: DESCRIBE on the topic" in str(refused.verdict.error)
