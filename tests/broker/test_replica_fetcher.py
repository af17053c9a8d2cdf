"""The fetches of a follower, from leaders that say what a test tells them to, on virtual time."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Iterator
from dataclasses import replace
from itertools import pairwise
from random import Random
from typing import Any, ClassVar

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.data import replica_fetcher
from barnabas.broker.data.replica_fetcher import FollowerParts
from barnabas.broker.data.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.net.errors import DisconnectedError
from barnabas.records.batch import iter_batches
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.message import Request
from barnabas.wire.messages.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    PartitionData,
)
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from tests.broker.connections import over_the_wire
from tests.broker.data_plane import DataPlane, batch

VERSION = 18


def stamped(*offsets: int, epoch: int = 0, value: bytes = b"x") -> bytes:
    """Batches of one record each."""
    data = b""
    for offset in offsets:
        each = batch([value])
        next(iter_batches(memoryview(each))).stamp(base_offset=offset, leader_epoch=epoch)
        data += each
    return data


class Leader:
    """A broker that leads: it keeps a session for whoever asks, and answers what `answers` holds for a partition."""

    #: By node; a fetcher finds the one that its channel is for.
    all_of_them: ClassVar[dict[int, Leader]] = {}

    def __init__(self, node_id: int) -> None:
        self.all_of_them[node_id] = self
        self.requests: list[Request] = []
        self.times_s: list[float] = []
        self.is_down = False
        self.session: dict[tuple[Uuid, int], FetchPartition] = {}
        #: What a partition is answered next, by number; one that has nothing to say is left out.
        self.answers: dict[int, list[dict[str, Any]]] = {}
        self.offsets: dict[int, int] = {}

    @property
    def fetches(self) -> list[FetchRequest]:
        return [each for each in self.requests if isinstance(each, FetchRequest)]

    async def answer(self, request: Request) -> Any:
        self.times_s.append(asyncio.get_running_loop().time())
        self.requests.append(request)
        if self.is_down:
            await asyncio.sleep(0.001)
            raise DisconnectedError("leader:9092", "it closed the connection")
        if isinstance(request, ListOffsetsRequest):
            return self._list_offsets(request)
        assert isinstance(request, FetchRequest)
        if request.session_epoch == 0:
            self.session = {}
        for topic in request.topics:
            for each in topic.partitions:
                self.session[topic.topic_id, each.partition] = each
        for forgotten in request.forgotten_topics_data:
            for number in forgotten.partitions:
                del self.session[forgotten.topic_id, number]
        found = self._found(is_full=request.session_epoch == 0)
        if not found:
            # Not all of it at once: what comes meanwhile is answered.
            for _ in range(request.max_wait_ms // 10 or 1):
                await asyncio.sleep(min(10, request.max_wait_ms) / 1000)
                if found := self._found(is_full=False):
                    break
        return FetchResponse(session_id=7, responses=found)

    def _found(self, *, is_full: bool) -> list[FetchableTopicResponse]:
        responses = []
        for topic_id, number in self.session:
            scripted = self.answers.get(number)
            if scripted or is_full:
                fields: dict[str, Any] = {"high_watermark": 0, "log_start_offset": 0, "records": b""}
                data = PartitionData(partition_index=number, **fields | (scripted.pop(0) if scripted else {}))
                responses.append(FetchableTopicResponse(topic_id=topic_id, partitions=[data]))
        return responses

    def _list_offsets(self, request: ListOffsetsRequest) -> ListOffsetsResponse:
        return ListOffsetsResponse(
            topics=[
                ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=[
                        ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=self.offsets[each.timestamp]
                        )
                        for each in topic.partitions
                    ],
                )
                for topic in request.topics
            ]
        )


class ScriptedChannel:
    """In place of a channel over the network."""

    def __init__(self, host: str, port: int, *, node_id: int, **how: Any) -> None:
        self.host, self.port, self._node_id = host, port, node_id
        self._lost: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def connect(self) -> None:
        pass

    def version_of(self, request: type[Request]) -> int:
        return VERSION

    def request(self, message: Request) -> asyncio.Future[Any]:
        self._asked = asyncio.ensure_future(self._answer(message))
        return self._asked

    async def _answer(self, message: Request) -> Any:
        version = VERSION if isinstance(message, FetchRequest) else 10
        answer = asyncio.ensure_future(Leader.all_of_them[self._node_id].answer(over_the_wire(message, version)))
        try:
            await asyncio.wait([answer, self._lost], return_when=asyncio.FIRST_COMPLETED)
            if not answer.done():
                self._lost = asyncio.get_running_loop().create_future()
                raise DisconnectedError("leader:9092", "it was given up")
            return over_the_wire(answer.result(), version)
        finally:
            answer.cancel()

    def disconnect(self, why: str) -> None:
        self._lost.set_result(None)

    async def close(self) -> None:
        pass


class Follower(DataPlane):
    """Node 1, which follows nodes 2 and 3."""

    def __init__(self, *, directories: str = "/one", **settings: Any) -> None:
        super().__init__(SimulatedDisk(Random(1)), **{"log_dirs": directories} | settings)
        self.broker_epoch = 42
        self.fetchers = self.replica_manager.fetchers = ReplicaFetcherManager(
            FollowerParts(
                1, self.logs, self.services.runtime, self.settings, lambda: self.broker_epoch,
                self.replica_manager.log_failed,
            )
        )  # fmt: skip
        self.two, self.three = Leader(2), Leader(3)
        self.fetchers.update_brokers(self.image, (2, 3))

    def run_in_loop(self, work: Callable[[], object]) -> None:
        async def done() -> None:
            work()

        self.run(done())

    def follow(self, partitions: int = 1) -> None:
        self.run_in_loop(lambda: self.create_topic("t", partitions, replicas=(2, 1)))

    def end_of(self, number: int = 0) -> int:
        log = self.partition("t", number).log
        assert log is not None
        return log.log_end_offset


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Iterator[Follower]:
    monkeypatch.setattr(replica_fetcher, "Channel", ScriptedChannel)
    plane = Follower()
    yield plane
    plane.run(plane.fetchers.stop())


def test_what_the_leader_has_is_appended_and_only_news_are_sent(plane: Follower) -> None:
    plane.two.answers = {0: [{"records": stamped(0, 1), "high_watermark": 1}], 2: [{"records": stamped(0)}]}
    plane.follow(3)
    plane.pass_ms(100)
    assert [plane.end_of(number) for number in range(3)] == [2, 0, 1]
    log = plane.partition("t").log
    assert log is not None
    assert log.high_watermark == 1
    first, second = plane.two.fetches[:2]
    assert (first.session_id, first.session_epoch, len(first.topics[0].partitions)) == (0, 0, 3)
    assert first.replica_state is not None
    assert (first.replica_state.replica_id, first.replica_state.replica_epoch) == (1, 42)
    assert (first.max_wait_ms, first.min_bytes, first.max_bytes) == (500, 1, 10 * 1024 * 1024)
    assert (second.session_id, second.session_epoch) == (7, 1)
    asked = {each.partition: each for each in second.topics[0].partitions}
    assert {number: each.fetch_offset for number, each in asked.items()} == {0: 2, 2: 1}
    assert {each.last_fetched_epoch for each in asked.values()} == {0}


def test_without_news_nothing_is_said_of_any_partition(plane: Follower) -> None:
    plane.follow(50)
    plane.pass_ms(10_000)
    assert 18 <= len(plane.two.fetches) <= 22
    assert all(not each.topics and not each.forgotten_topics_data for each in plane.two.fetches[1:])


def test_nobody_is_asked_before_the_broker_has_an_epoch(plane: Follower) -> None:
    plane.broker_epoch = -1
    plane.follow()
    plane.pass_ms(1000)
    assert plane.two.requests == []
    plane.broker_epoch = 43
    plane.pass_ms(100)
    assert plane.two.fetches[0].replica_state is not None
    assert plane.two.fetches[0].replica_state.replica_epoch == 43


def test_a_dead_leader_is_asked_as_often_as_the_backoff_says_until_another_leads(plane: Follower) -> None:
    plane.follow()
    plane.pass_ms(100)
    plane.two.is_down = True
    plane.pass_ms(10_000)
    assert 9 <= len(plane.two.requests) <= 12
    plane.three.answers = {0: [{"records": stamped(0, epoch=1)}]}
    plane.run_in_loop(lambda: plane.change_partition("t", leader=3, leader_epoch=1))
    plane.pass_ms(50)
    assert plane.end_of() == 1
    asked = len(plane.two.requests)
    plane.pass_ms(10_000)
    assert len(plane.two.requests) == asked
    assert [each.leader_id for each in plane.fetchers.fetchers] == [3]


def test_a_leader_that_comes_back_is_asked_for_all_again(plane: Follower) -> None:
    plane.follow(3)
    plane.pass_ms(100)
    plane.two.is_down = True
    plane.pass_ms(3000)
    plane.two.is_down = False
    plane.two.requests.clear()
    plane.pass_ms(2000)
    assert plane.two.fetches[0].session_epoch == 0
    assert len(plane.two.fetches[0].topics[0].partitions) == 3


def test_a_partition_that_must_wait_keeps_no_other_waiting_and_is_not_forgotten(plane: Follower) -> None:
    plane.two.answers = {0: [{"error_code": ErrorCode.UNKNOWN_TOPIC_ID}], 1: [{"records": stamped(0)}]}
    plane.follow(2)
    plane.pass_ms(5)
    assert (plane.end_of(0), plane.end_of(1)) == (0, 1)
    plane.two.answers = {0: [{"records": stamped(0)}]}
    # The leader would hold the fetch for half a second, but the wait of the other is shorter.
    plane.pass_ms(60)
    assert plane.end_of(0) == 1
    assert any(each.forgotten_topics_data for each in plane.two.fetches)


def test_a_partition_that_is_added_does_not_wait_for_a_fetch_that_is_held(plane: Follower) -> None:
    """Nor does it for ever when many are added: they share what is given up."""
    plane.follow()
    plane.pass_ms(100)
    before = len(plane.two.requests)
    plane.run_in_loop(lambda: plane.create_topic("u", replicas=(2, 1)))
    plane.pass_ms(30)
    again = plane.two.fetches[before]
    assert (again.session_id, again.session_epoch) == (7, 0)
    assert len(again.topics) == 2
    for number in range(20):
        plane.run_in_loop(lambda number=number: plane.create_topic(f"v{number}", replicas=(2, 1)))  # type: ignore[misc]
        plane.pass_ms(10)
    assert len(plane.two.requests) < before + 5


def test_who_is_fenced_asks_no_more_until_the_metadata_log_says_why(plane: Follower) -> None:
    plane.two.answers = {0: [{"error_code": ErrorCode.FENCED_LEADER_EPOCH}]}
    plane.follow()
    plane.pass_ms(60_000)
    assert len(plane.two.requests) == 1
    plane.run_in_loop(lambda: plane.change_partition("t", leader=2, leader_epoch=1))
    plane.two.answers = {0: [{"records": stamped(0, epoch=1)}]}
    plane.pass_ms(100)
    assert plane.end_of() == 1


def test_a_log_that_went_another_way_is_cut_with_its_checkpoints(plane: Follower) -> None:
    plane.two.answers = {0: [{"records": stamped(0, 1, 2)}]}
    plane.follow()
    plane.pass_ms(50)
    log = plane.partition("t").log
    assert log is not None
    log.flush()
    plane.run(plane.logs.save_recovery_points())
    plane.run_in_loop(lambda: plane.change_partition("t", leader=2, leader_epoch=1))
    plane.pass_ms(600)
    plane.two.answers = {
        0: [{"diverging_epoch": EpochEndOffset(epoch=0, end_offset=1)}, {"records": stamped(1, epoch=1)}]
    }
    plane.pass_ms(600)
    assert [(each.base_offset, each.leader_epoch) for each in log.batches(0)] == [(0, 0), (1, 1)]
    assert "t 0 1\n" in _checkpoint(plane)


def _checkpoint(plane: Follower) -> str:
    path = "/one/recovery-point-offset-checkpoint"
    return plane.files.open(path).read_at(0, plane.files.size(path)).decode()


def test_an_offset_that_the_leader_does_not_have_is_looked_up(plane: Follower) -> None:
    plane.two.offsets = {-1: 9, -2: 5}
    plane.two.answers = {0: [{"error_code": ErrorCode.OFFSET_OUT_OF_RANGE}, {"records": stamped(5)}]}
    plane.follow()
    plane.pass_ms(100)
    assert plane.end_of() == 6
    asked = [each for each in plane.two.requests if isinstance(each, ListOffsetsRequest)]
    assert [(each.replica_id, each.topics[0].partitions[0].timestamp) for each in asked] == [(1, -1), (1, -2)]


def test_a_full_disk_is_waited_for(plane: Follower, caplog: pytest.LogCaptureFixture) -> None:
    disk = plane.files
    assert isinstance(disk, SimulatedDisk)
    plane.follow(2)
    plane.pass_ms(20)
    disk.fail_next(errno.ENOSPC, name="write_at", path="t-0", count=2)
    plane.two.answers = {0: [{"records": stamped(0)}] * 3, 1: [{"records": stamped(0)}]}
    plane.pass_ms(500)
    assert (plane.end_of(0), plane.end_of(1)) == (0, 1)
    plane.pass_ms(3000)
    assert plane.end_of(0) == 1
    assert "cannot follow" not in caplog.text


def test_what_nobody_foresaw_stops_one_partition_alone(
    plane: Follower, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    plane.follow(2)
    plane.pass_ms(20)
    log = plane.partition("t").log

    def fail(*_: object, **__: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(log, "append_as_follower", fail)
    plane.two.answers = {0: [{"records": stamped(0)}] * 9, 1: [{"records": stamped(0)}]}
    plane.pass_ms(5000)
    assert (plane.end_of(0), plane.end_of(1)) == (0, 1)
    assert caplog.text.count("t-0 cannot follow node 2") <= 6
    monkeypatch.undo()
    monkeypatch.setattr(replica_fetcher, "Channel", ScriptedChannel)
    plane.pass_ms(2000)
    assert plane.end_of(0) == 1


def test_a_failed_directory_takes_out_its_replicas_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replica_fetcher, "Channel", ScriptedChannel)
    plane = Follower(directories="/one,/two")
    disk = plane.files
    assert isinstance(disk, SimulatedDisk)
    plane.follow(2)
    plane.pass_ms(20)
    where = {number: plane.logs.logs[TopicPartition("t", number)].directory for number in (0, 1)}
    assert sorted(where.values()) == ["/one/t-0", "/two/t-1"]
    disk.fail_next(errno.EIO, name="write_at", path="/one/t-0")
    plane.two.answers = {0: [{"records": stamped(0)}], 1: [{"records": stamped(0)}]}
    plane.pass_ms(1000)
    assert plane.partition("t", 0).role is None
    assert plane.end_of(1) == 1
    assert [len(each) for each in plane.fetchers.fetchers] == [1]
    assert plane.two.session.keys() == {(plane.partition("t", 1).topic_id, 1)}
    plane.run(plane.fetchers.stop())


def test_others_have_their_turn_while_a_large_answer_is_appended(plane: Follower) -> None:
    value = bytes(100_000)
    plane.follow(40)
    plane.pass_ms(20)
    plane.two.answers = {number: [{"records": stamped(0, 1, 2, value=value)}] for number in range(40)}
    ends: list[int] = []

    async def watch() -> None:
        while sum(map(plane.end_of, range(40))) < 120:
            ends.append(sum(map(plane.end_of, range(40))))
            # Once it has begun no time passes, only turns.
            await asyncio.sleep(0 if ends[-1] else 0.0001)

    plane.run(watch())
    steps = [after - before for before, after in pairwise(ends)]
    assert max(steps) <= 6, "half a mebibyte at a time"


def test_a_broker_that_moves_is_asked_where_it_is(plane: Follower) -> None:
    plane.follow()
    plane.pass_ms(50)
    (fetcher,) = plane.fetchers.fetchers
    known = plane.image.brokers[2]
    moved = replace(known, endpoints=(replace(known.endpoints[0], port=1),))
    image = replace(plane.image, brokers=plane.image.brokers.set(2, moved))
    plane.run_in_loop(lambda: plane.fetchers.update_brokers(image, (2,)))
    plane.pass_ms(50)
    (other,) = plane.fetchers.fetchers
    assert other is not fetcher
    assert other.address[1] == 1
    assert len(other) == 1


def test_more_fetchers_share_the_partitions(plane: Follower) -> None:
    plane.follow(20)
    plane.pass_ms(50)
    plane.run_in_loop(lambda: plane.fetchers.configure(3))
    assert sum(map(len, plane.fetchers.fetchers)) == 20
    assert len(plane.fetchers.fetchers) == 3


def test_a_deleted_topic_is_forgotten(plane: Follower) -> None:
    plane.follow(2)
    plane.pass_ms(50)
    plane.run_in_loop(lambda: plane.delete_topic("t"))
    plane.pass_ms(1000)
    assert plane.fetchers.fetchers == []
