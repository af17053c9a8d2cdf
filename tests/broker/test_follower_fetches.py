"""Fetches of followers, and requests that wait for them: what they are told, when, and what it does to the leader."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.broker.services import Services
from barnabas.metadata.authorizer import AllowEverything
from barnabas.metadata.image import BrokerImage, TopicImage
from barnabas.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsPartitionResult,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ReplicaState
from barnabas.wire.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from tests.broker.connections import FakeConnection, over_the_wire
from tests.broker.data_plane import (
    DataPlane,
    answers_of,
    batch,
    broker,
    fetch_request,
    only,
    partitions_of,
    produce_request,
)

WAIT_MS = 500


class Follower:
    """A follower's side of a session with node 1, by hand."""

    def __init__(self, plane: DataPlane, topic: TopicImage, broker_id: int = 2, broker_epoch: int = 1) -> None:
        self.plane = plane
        self.topic = topic
        self.state = ReplicaState(replica_id=broker_id, replica_epoch=broker_epoch)
        self.connection = FakeConnection()
        self.session_id = self.epoch = 0

    def request(
        self, offsets: dict[int, int], *, start: int = 0, max_wait_ms: int = WAIT_MS, **how: Any
    ) -> FetchRequest:
        asked = {"current_leader_epoch": 0, "last_fetched_epoch": -1, "log_start_offset": start, **how}
        partitions = [
            FetchPartition(partition=number, fetch_offset=offset, partition_max_bytes=1 << 20, **asked)
            for number, offset in offsets.items()
        ]
        topics = [FetchTopic(topic_id=self.topic.topic_id, partitions=partitions)] if partitions else []
        return FetchRequest(
            replica_state=self.state,
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            session_id=self.session_id,
            session_epoch=self.epoch,
            topics=topics,
        )

    def begin(self, offsets: dict[int, int], **how: Any) -> Any:
        return self.plane.begin(self.request(offsets, **how), 17, connection=self.connection)

    def take(self, answer: Any) -> FetchResponse:
        """The answer; the session goes on with it."""
        response: FetchResponse = over_the_wire(answer.result(), 17) if isinstance(answer, asyncio.Future) else answer
        assert response.error_code == 0
        self.session_id, self.epoch = response.session_id, self.epoch + 1
        return response

    def fetch(self, offsets: dict[int, int], **how: Any) -> FetchResponse:
        """At once, whatever there is."""
        answer = self.begin(offsets, **{"max_wait_ms": 0, **how})
        if isinstance(answer, asyncio.Future):
            self.plane.run(answer)
        return self.take(answer)


@pytest.fixture
def plane() -> DataPlane:
    return DataPlane()


def led(plane: DataPlane, partitions: int = 1, replicas: tuple[int, ...] = (1, 2)) -> TopicImage:
    return plane.create_topic("r", partitions, replicas=replicas)


def write(plane: DataPlane, *values: bytes, number: int = 0) -> None:
    plane.produce({("r", number): batch(values or [b"a"])}, acks=1)


def test_a_follower_sees_the_log_to_its_end_and_commits_by_coming_back(plane: DataPlane) -> None:
    follower = Follower(plane, led(plane))
    write(plane)
    first = only(follower.fetch({0: 0}))
    assert (bool(first.records), first.high_watermark, first.log_start_offset) == (True, 0, 0)
    assert first.aborted_transactions is None
    assert plane.partition("r").led_log().high_watermark == 0
    again = only(follower.fetch({0: 1}))
    assert (again.records, again.high_watermark) == (b"", 1)


def test_a_follower_that_waits_is_answered_when_something_is_written(plane: DataPlane) -> None:
    follower = Follower(plane, led(plane))
    follower.fetch({0: 0})
    waiting = follower.begin({})
    plane.pass_ms(100)
    assert not waiting.done()
    write(plane)
    plane.pass_ms(0)
    assert only(follower.take(waiting)).records
    # It was where it was when it asked: what was written later does not make it look behind, or caught up.
    known = plane.partition("r").leading().followers[2]
    assert known.last_fetch_leader_log_end_offset == 0
    assert known.last_caught_up_ms == known.last_fetch_ms < plane.services.runtime.clock.monotonic_ms()


def test_a_follower_hears_of_a_high_watermark_soon_and_once(plane: DataPlane) -> None:
    topic = led(plane, replicas=(1, 2, 3))
    second, third = Follower(plane, topic), Follower(plane, topic, 3)
    write(plane)
    for each in (second, third):
        each.fetch({0: 0})
    waiting = second.begin({0: 1})
    assert only(third.fetch({0: 1})).high_watermark == 1
    assert not waiting.done()
    plane.pass_ms(20)
    told = only(second.take(waiting))
    assert (told.high_watermark, told.records) == (1, b"")
    # There is no more to tell: it waits as long as it may, and a cluster at rest stays at rest.
    waiting = second.begin({})
    plane.pass_ms(WAIT_MS - 1)
    assert not waiting.done()
    plane.pass_ms(2)
    assert not second.take(waiting).responses


def test_under_load_the_high_watermark_comes_with_the_records(plane: DataPlane) -> None:
    follower = Follower(plane, led(plane))
    follower.fetch({0: 0})
    for offset in range(20):
        write(plane)
        got = only(follower.fetch({0: offset}))
        assert got.records
        waiting = follower.begin({0: offset + 1})
        plane.pass_ms(5)
        # It is the one by whom the record was committed, and is not told so by an answer of its own.
        assert not waiting.done()
        write(plane)
        plane.pass_ms(0)
        assert only(follower.take(waiting)).high_watermark == offset + 1
        plane.partition("r").led_log().truncate_to(offset + 1, 0)


def test_where_the_log_begins_is_told_as_soon(plane: DataPlane) -> None:
    follower = Follower(plane, led(plane))
    write(plane, b"a", b"b")
    follower.fetch({0: 0})
    follower.fetch({0: 2})
    waiting = follower.begin({})
    plane.partition("r").delete_records(1)
    plane.pass_ms(20)
    assert only(follower.take(waiting)).log_start_offset == 1


def test_who_is_no_replica_or_has_started_again_is_refused(plane: DataPlane) -> None:
    topic = led(plane)
    assert only(Follower(plane, topic, 3).fetch({0: 0})).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    follower = Follower(plane, topic)
    assert only(follower.fetch({0: 0}, current_leader_epoch=7)).error_code == ErrorCode.UNKNOWN_LEADER_EPOCH
    assert only(follower.fetch({0: 9})).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
    register(plane, broker(2), epoch=5)
    stale = Follower(plane, topic)
    assert only(stale.fetch({0: 0})).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert plane.partition("r").leading().followers[2].broker_epoch is None
    assert only(Follower(plane, topic, broker_epoch=5).fetch({0: 0})).error_code == 0


def register(plane: DataPlane, image: BrokerImage, **changes: Any) -> None:
    changed = replace(image, **changes)
    brokers = plane.image.brokers.set(changed.broker_id, changed)
    plane.apply(replace(plane.image, brokers=brokers), brokers_changed=(changed.broker_id,))
    plane.replica_manager.brokers_changed()


def test_a_log_that_left_ours_is_told_where(plane: DataPlane) -> None:
    topic = led(plane)
    write(plane)
    plane.change_partition("r", leader_epoch=3)
    follower = Follower(plane, topic)
    told = only(follower.fetch({0: 1}, current_leader_epoch=3, last_fetched_epoch=1))
    assert told.diverging_epoch is not None
    assert (told.diverging_epoch.epoch, told.diverging_epoch.end_offset, told.records) == (0, 1, b"")
    assert plane.partition("r").leading().followers[2].log_end_offset == -1


def test_a_role_that_ends_is_told_to_who_waits(plane: DataPlane) -> None:
    follower = Follower(plane, led(plane))
    follower.fetch({0: 0})
    waiting = follower.begin({})
    plane.change_partition("r", leader=2, leader_epoch=1)
    plane.pass_ms(0)
    told = only(follower.take(waiting))
    assert told.error_code == ErrorCode.FENCED_LEADER_EPOCH
    assert told.current_leader is not None
    assert (told.current_leader.leader_id, told.current_leader.leader_epoch) == (2, 1)


def test_a_follower_that_has_caught_up_is_proposed(plane: DataPlane) -> None:
    topic = led(plane, replicas=(1, 2, 3))
    plane.change_partition("r", isr=(1, 3))
    Follower(plane, topic).fetch({0: 0})
    [(leader, change)] = plane.proposals
    assert (leader.maximal_isr, change.proposal.isr) == ((1, 3, 2), ((1, 1), (3, -1), (2, 1)))


# Writers that wait


def test_writers_of_several_partitions_hear_when_the_last_is_committed(plane: DataPlane) -> None:
    topic = led(plane, 2)
    follower = Follower(plane, topic)
    request = produce_request({("r", 0): batch([b"a"]), ("r", 1): batch([b"b"])}, timeout_ms=1000)
    waiting = plane.begin(request, 12)
    follower.fetch({0: 0, 1: 0})
    follower.fetch({0: 1})
    plane.pass_ms(1)
    assert not waiting.done()
    plane.pass_ms(1000)
    answers = answers_of(over_the_wire(waiting.result(), 12))
    assert {key: (each.error_code, each.base_offset) for key, each in answers.items()} == {
        ("r", 0): (0, 0),
        ("r", 1): (ErrorCode.REQUEST_TIMED_OUT, 0),
    }


def test_a_writer_that_waits_is_sent_on_to_the_new_leader(plane: DataPlane) -> None:
    led(plane)
    waiting = plane.begin(produce_request({("r", 0): batch([b"a"])}), 12)
    plane.change_partition("r", leader=2, leader_epoch=1)
    plane.pass_ms(0)
    response = over_the_wire(waiting.result(), 12)
    [answer] = answers_of(response).values()
    assert answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert answer.current_leader is not None
    assert (answer.current_leader.leader_id, answer.current_leader.leader_epoch) == (2, 1)
    assert [(each.node_id, each.host) for each in response.node_endpoints] == [(2, "host-2")]


# Deleting records


def deletion(offset: int, timeout_ms: int = 1000) -> DeleteRecordsRequest:
    partition = DeleteRecordsPartition(partition_index=0, offset=offset)
    return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name="r", partitions=[partition])], timeout_ms=timeout_ms)


def deleted(answer: Any) -> tuple[str, int]:
    response = over_the_wire(answer.result(), 2) if isinstance(answer, asyncio.Future) else answer
    [told] = response.topics[0].partitions
    assert isinstance(told, DeleteRecordsPartitionResult)
    return ErrorCode.of(told.error_code).name, told.low_watermark


@pytest.fixture
def follower(plane: DataPlane) -> Follower:
    """It has all of three records."""
    made = Follower(plane, led(plane))
    write(plane, b"a", b"b", b"c")
    made.fetch({0: 0})
    made.fetch({0: 3})
    return made


def test_records_are_gone_when_followers_say_so(plane: DataPlane, follower: Follower) -> None:
    waiting = plane.begin(deletion(2), 2)
    plane.pass_ms(10)
    assert not waiting.done()
    assert len(plane.replica_manager.delete_records_purgatory) == 1
    follower.fetch({0: 3}, start=2)
    plane.pass_ms(0)
    assert deleted(waiting) == ("NONE", 2)
    assert not plane.replica_manager.delete_records_purgatory
    # Both are there already.
    assert deleted(plane.begin(deletion(1), 2)) == ("NONE", 2)


def test_deletions_time_out_end_and_do_not_wait_for_the_dead(plane: DataPlane, follower: Follower) -> None:
    late = plane.begin(deletion(2, timeout_ms=100), 2)
    plane.pass_ms(101)
    assert deleted(late) == ("REQUEST_TIMED_OUT", 0)
    waiting = plane.begin(deletion(-1), 2)
    register(plane, broker(2), is_fenced=True)
    plane.pass_ms(0)
    assert deleted(waiting) == ("NONE", 3)
    register(plane, broker(2))
    waiting = plane.begin(deletion(3), 2)
    plane.change_partition("r", leader=2, leader_epoch=1)
    plane.pass_ms(0)
    assert deleted(waiting) == ("NOT_LEADER_OR_FOLLOWER", -1)


def test_a_node_that_stops_answers_who_deletes(plane: DataPlane, follower: Follower) -> None:
    waiting = plane.begin(deletion(2), 2)
    plane.replica_manager.close_purgatories()
    plane.pass_ms(0)
    assert deleted(waiting)[0] == "NOT_LEADER_OR_FOLLOWER"
    assert deleted(plane.begin(deletion(3), 2))[0] == "NOT_LEADER_OR_FOLLOWER"


def test_a_client_that_is_gone_waits_for_nothing(plane: DataPlane, follower: Follower) -> None:
    connection = FakeConnection()
    waiting = plane.begin(deletion(2), 2, connection=connection)
    connection.close()
    plane.pass_ms(0)
    assert waiting.cancelled()
    assert not plane.replica_manager.delete_records_purgatory
    assert plane.partition("r").leading().delayed_count == 0


# Epochs


def test_brokers_may_ask_for_the_end_of_an_epoch_of_any_topic(plane: DataPlane) -> None:
    class OnlyBrokers(AllowEverything):
        def is_allowed(
            self,
            caller: Any,
            operation: Any,
            resource_type: Any,
            resource_name: str,
            *,
            log_if_denied: bool = True,
            log_if_allowed: bool = True,
        ) -> bool:
            return resource_name == "kafka-cluster"

    led(plane)
    services: Services = plane.services
    services.authorizer = OnlyBrokers()
    asked = OffsetForLeaderPartition(partition=0, current_leader_epoch=0, leader_epoch=0)
    request = OffsetForLeaderEpochRequest(replica_id=2, topics=[OffsetForLeaderTopic(topic="r", partitions=[asked])])
    [told] = plane.ask(request, 4).topics[0].partitions
    assert (told.error_code, told.leader_epoch, told.end_offset) == (0, 0, 0)


def test_older_followers_name_no_broker_epoch(plane: DataPlane) -> None:
    led(plane, replicas=(1, 2, 3))
    plane.change_partition("r", isr=(1, 3))
    answers = partitions_of(plane.ask(fetch_request({("r", 0): 0}, replica_id=2, leader_epoch=0), 12))
    assert answers["r", 0].error_code == 0
    [(_, change)] = plane.proposals
    assert change.proposal.isr[-1] == (2, -1)
