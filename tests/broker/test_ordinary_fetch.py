"""Fetches that are answered in their frame, beside the rules: the same bytes, whatever is in the logs; and what must be
left to the rules is.
"""

from __future__ import annotations

from random import Random
from typing import Any, cast

import pytest

from barnabas.base.ids import Uuid
from barnabas.broker.data.ordinary_fetch import answer_ordinary
from barnabas.net import Connection
from barnabas.storage.real_files import RealFileSystem
from barnabas.wire import encode_request
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import RequestHeader
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic, ReplicaState
from tests.broker.connections import FakeConnection
from tests.broker.data_plane import DataPlane, batch
from tests.sweeps import IS_FULL

FIRST_BY_ID, FIRST_FLEXIBLE, FIRST_STATE = 13, 12, 15
VERSIONS = range(api(ApiKey.FETCH).served.low, api(ApiKey.FETCH).served.high + 1)
TOPICS: dict[str, dict[str, Any]] = {
    "plain": {"partitions": 3},
    "short-segments": {"internal_segment_bytes": "600"},
    "replicated": {"replicas": (1, 2)},
    "in-transactions": {},
}


def framed(request: FetchRequest, version: int) -> bytearray:
    return bytearray(b"".join(map(bytes, encode_request(request, version, 77, "tests"))))


def in_frame(plane: DataPlane, request: FetchRequest, version: int) -> bytes | None:
    return answer_ordinary(plane.services, cast(Connection, FakeConnection()), version, framed(request, version))


def by_the_rules(plane: DataPlane, request: FetchRequest, version: int) -> bytes:
    answer = plane.ask(request, version).encode(version)
    header = (77).to_bytes(4, "big") + b"\0" * (version >= FIRST_FLEXIBLE)
    return (len(header) + len(answer)).to_bytes(4, "big") + header + bytes(answer)


class Story:
    """Logs that change, and readers that ask, from a seed."""

    def __init__(self, seed: int, plane: DataPlane) -> None:
        self.random = Random(seed)
        self.plane = plane
        self.ids = {name: plane.create_topic(name, **{"partitions": 1, **how}).topic_id for name, how in TOPICS.items()}
        self.answered = 0

    def play(self, steps: int) -> None:
        for _ in range(steps):
            self.random.choices(
                [self.write, self.fetch, self.replicate, self.transact, self.delete], [4, 10, 1, 0.2, 0.5]
            )[0]()

    def write(self) -> None:
        topic = self.random.choice(list(TOPICS))
        number = self.random.randrange(TOPICS[topic].get("partitions", 1))
        values = [self.random.randbytes(self.random.randint(0, 80)) for _ in range(self.random.randint(1, 4))]
        self.plane.produce({(topic, number): batch(values, timestamp_ms=self.plane.now_ms)}, acks=1)

    def replicate(self) -> None:
        """The follower has some more, up to the end of a batch."""
        leader = self.plane.partition("replicated").leading(-1)
        ends = [each.next_offset for each in leader.log.batches(leader.log.high_watermark)]
        if ends:
            leader.update_follower_fetch_state(2, self.random.choice(ends), 0, 1)

    def transact(self) -> None:
        producer_id = self.random.choice([7, 8])
        self.plane.append_in_transaction("in-transactions", producer_id, b"a")
        if self.random.random() < 0.8:
            self.plane.end_transaction("in-transactions", producer_id, committed=self.random.random() < 0.5)

    def delete(self) -> None:
        log = self.plane.partition("plain").led_log()
        log.advance_log_start(self.random.randint(log.log_start_offset, log.high_watermark))

    def fetch(self) -> None:
        version = self.random.choice(VERSIONS)
        request = self.request(version)
        found, expected = in_frame(self.plane, request, version), by_the_rules(self.plane, request, version)
        if found is not None:
            self.answered += 1
            assert found == expected, (version, request)

    def request(self, version: int) -> FetchRequest:
        topics = []
        for name in self.random.sample(list(TOPICS), self.random.randint(1, 2)):
            partitions = [self.partition(name, number, version) for number in self.numbers(name)]
            named = {"topic_id": self.ids[name]} if version >= FIRST_BY_ID else {"topic": name}
            topics.append(FetchTopic(partitions=partitions, **named))
        return FetchRequest(
            max_wait_ms=0,
            min_bytes=self.random.choice([0, 1, 1, 300]),
            max_bytes=1 << 20 if self.random.random() < 0.9 else self.random.choice([100, 1_000]),
            isolation_level=self.random.choice([0, 1]),
            session_epoch=-1,
            topics=topics,
        )

    def numbers(self, name: str) -> list[int]:
        count = TOPICS[name].get("partitions", 1)
        numbers = self.random.sample(range(count), self.random.randint(1, count))
        return [*numbers, numbers[0]] if self.random.random() < 0.05 else numbers

    def partition(self, name: str, number: int, version: int) -> FetchPartition:
        log = self.plane.partition(name, number).led_log()
        recent = [each.base_offset for each in log.batches(log.log_start_offset)][-20:]
        recent = [each for each in recent if each < log.high_watermark]
        offset = self.random.choice([log.high_watermark, *recent[-5:], *recent[-2:]])
        if self.random.random() < 0.1:
            offset = self.random.choice([*recent, 0, -1, 10**6, log.high_watermark + 1])
        return FetchPartition(
            partition=number if self.random.random() > 0.02 else 99,
            current_leader_epoch=self.random.choice([-1, 0]) if self.random.random() > 0.02 else 1,
            fetch_offset=offset,
            last_fetched_epoch=0 if version >= FIRST_FLEXIBLE and self.random.random() < 0.02 else -1,
            partition_max_bytes=1 << 20 if self.random.random() < 0.9 else self.random.choice([50, 500]),
        )


@pytest.mark.parametrize("disk", ["simulated", "real"])
@pytest.mark.parametrize("seed", range(200 if IS_FULL else 6))
def test_the_same_bytes_as_by_the_rules(seed: int, disk: str, tmp_path: Any) -> None:
    files = None if disk == "simulated" else RealFileSystem()
    where: dict[str, Any] = {} if files is None else {"log_dirs": str(tmp_path)}
    story = Story(seed, DataPlane(files, **where))
    story.play(300)
    assert story.answered > 20, "hardly anything was answered in its frame: the test compares little"


@pytest.fixture
def plane() -> DataPlane:
    made = DataPlane()
    made.create_topic("plain")
    made.append("plain", b"a")
    return made


def asked(plane: DataPlane, offset: int = 0, **how: Any) -> FetchRequest:
    partition = FetchPartition(partition=0, fetch_offset=offset, partition_max_bytes=1000)
    topic = FetchTopic(topic="plain", partitions=[partition])
    return FetchRequest(**{"max_wait_ms": 0, "min_bytes": 1, "session_epoch": -1, "topics": [topic], **how})


def test_what_asks_for_a_decision_is_left_to_the_rules(plane: DataPlane) -> None:
    assert in_frame(plane, asked(plane), 11) is not None
    assert in_frame(plane, asked(plane, offset=1), 11) is None, "nothing there: it would wait"
    assert in_frame(plane, asked(plane, min_bytes=10_000), 11) is None, "too little there"
    assert in_frame(plane, asked(plane, session_epoch=0), 11) is None, "a session is wanted"
    assert in_frame(plane, asked(plane, session_id=5), 11) is None, "a session ends"
    assert in_frame(plane, asked(plane, replica_id=2), 11) is None, "a follower"
    assert in_frame(plane, asked(plane, isolation_level=2), 11) is None
    assert in_frame(plane, asked(plane, topics=[]), 11) is None
    by_id = [FetchTopic(topic_id=Uuid(b"\1" * 16), partitions=asked(plane).topics[0].partitions)]
    assert in_frame(plane, asked(plane, topics=by_id), 17) is None, "an unknown topic"
    state = ReplicaState(replica_id=2, replica_epoch=1)
    assert in_frame(plane, asked(plane, topics=by_id, replica_state=state), FIRST_STATE) is None
    plane.room_bytes = 1000
    assert in_frame(plane, asked(plane), 11) is None, "little memory for answers"


def test_a_frame_that_ends_too_early_is_not_read_beyond_its_end(plane: DataPlane) -> None:
    for version in (4, 11, 12):
        whole = framed(asked(plane), version)
        for size in range(8, len(whole)):
            connection = cast(Connection, FakeConnection())
            assert answer_ordinary(plane.services, connection, version, whole[:size]) is None


@pytest.mark.parametrize("seed", range(400 if IS_FULL else 20))
def test_of_frames_with_wrong_bytes_the_same_is_understood(seed: int) -> None:
    random = Random(seed)
    story = Story(seed, DataPlane())
    story.play(60)
    answered = 0
    for _ in range(100):
        version = random.choice(VERSIONS)
        frame = framed(story.request(version), version)
        for _ in range(random.choice([1, 1, 2, 4])):
            frame[random.randrange(8, len(frame))] = random.choice([0, 1, 2, 255, random.randrange(256)])
        found = answer_ordinary(story.plane.services, cast(Connection, FakeConnection()), version, bytearray(frame))
        if found is not None:
            answered += 1
            _, start = RequestHeader.decode_prefix(frame, 2 if version >= FIRST_FLEXIBLE else 1)
            request, _ = FetchRequest.decode_prefix(memoryview(frame), version, start)
            request.max_wait_ms = 0
            assert found == by_the_rules(story.plane, request, version), (version, request)
    assert answered, "none was answered in its frame"
