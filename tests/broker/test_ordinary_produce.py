"""A node that appends ordinary batches in their frames does what one does that asks the rules for each of them.

Both are told the same (`produce_twins`): what clients send, what none should send, and what happens meanwhile to the
partitions, the disk and the time.
"""

from __future__ import annotations

import errno
import os
import resource
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.records import Codec
from tests.broker.data_plane import DataPlane
from tests.broker.produce_twins import (
    BATCH_HARMS,
    FRAME_HARMS,
    NO_TIME,
    PRODUCERS,
    TOPICS,
    UNKNOWN,
    Producer,
    Request,
    Sent,
    Twins,
)
from tests.sweeps import IS_FULL

VERSIONS: Final = range(3, 14)
#: Above what is written without letting other threads run.
LARGE_BYTES: Final = 70_000

Operation = Callable[[Twins, Producer], Any]


# What may happen

topics = st.sampled_from(["plain"] * 4 + [*TOPICS, UNKNOWN])
ordinary = st.builds(
    Sent,
    topic=topics,
    number=st.sampled_from((0, 0, 1)),
    count=st.integers(1, 3),
    producer=st.sampled_from((None, *PRODUCERS)),
    value_bytes=st.sampled_from((0, 3, 40)),
    age_ms=st.sampled_from((0, 0, 1, 900)),
)
turns = st.builds(
    Sent,
    topic=topics,
    count=st.integers(1, 3),
    producer=st.sampled_from(PRODUCERS),
    turn=st.sampled_from(("next", "again", "gap", "up", "down")),
    back=st.integers(1, 6),
)
unusual = st.builds(
    Sent,
    topic=topics,
    number=st.sampled_from((0, 1, 2, -1)),
    count=st.integers(1, 4),
    producer=st.sampled_from((None, *PRODUCERS, 2**62)),
    turn=st.sampled_from(("next", "again", "gap")),
    key=st.sampled_from((b"key", None)),
    value_bytes=st.sampled_from((3, 200, 1200, LARGE_BYTES)),
    age_ms=st.sampled_from((0, 6000, -6000, -4_000_000, 10**12, NO_TIME)),
    codec=st.sampled_from((Codec.NONE, Codec.NONE, Codec.GZIP, Codec.LZ4)),
    harm=st.sampled_from(("", "", *BATCH_HARMS)),
)
requests = st.builds(
    Request,
    parts=st.lists(st.one_of(ordinary, ordinary, ordinary, turns, unusual), min_size=1, max_size=4).map(tuple),
    version=st.sampled_from(VERSIONS),
    acks=st.sampled_from((1, 1, -1, -1, 0)),
)
odd_requests = st.builds(
    Request,
    parts=st.lists(ordinary, max_size=3).map(tuple),
    version=st.sampled_from(VERSIONS),
    acks=st.sampled_from((1, -1, 0, 2, -2)),
    timeout_ms=st.sampled_from((500, 0, -1)),
    client_id=st.sampled_from(("tests", None, "", "__admin_client")),
    transactional_id=st.sampled_from((None, None, None, "", "transactional")),
    harm=st.sampled_from(("", *FRAME_HARMS)),
    place=st.floats(0, 1, exclude_max=True),
)
#: What most requests of most clients are like: there each batch has to be what keeps its request from being ordinary.
plain_topics = ("plain", "compacted", "short-segments", "young-segments", "dense", "flushed", "on-time", "replicated")
plain_requests = st.builds(
    Request,
    parts=st.lists(
        st.builds(
            Sent,
            topic=st.sampled_from(plain_topics),
            count=st.integers(1, 3),
            producer=st.sampled_from((None, PRODUCERS[0], PRODUCERS[-1])),
            age_ms=st.sampled_from((0, 0, 1, 900)),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda part: part.topic,
    ).map(tuple),
    version=st.sampled_from(VERSIONS),
    acks=st.sampled_from((1, -1)),
)


def send(request: Request) -> Operation:
    return lambda twins, producer: twins.send(producer.frame(request))


def to_both(act: Callable[[DataPlane], Any]) -> Operation:
    return lambda twins, _: twins.both(act)


def fail_writes(code: int, count: int, path: str) -> Operation:
    def operate(twins: Twins, _: Producer) -> None:
        for disk in twins.disks():
            disk.fail_next(code, name="write_at", path=path, count=count)

    return operate


def fill_disk(room_bytes: int | None) -> Operation:
    def operate(twins: Twins, _: Producer) -> None:
        for disk in twins.disks():
            disk.capacity_bytes = None if room_bytes is None else disk.used_bytes + room_bytes

    return operate


def lead_again(topic: str) -> Operation:
    """In the next epoch, or in one after others may have led."""

    def act(plane: DataPlane) -> None:
        plane.change_partition(topic, leader_epoch=plane.image.topics[topic].partitions[0].leader_epoch + 1)

    return to_both(act)


def in_sync(isr: tuple[int, ...]) -> Operation:
    return to_both(lambda plane: plane.change_partition("replicated", isr=isr))


def follower_fetches(behind: int) -> Operation:
    def act(plane: DataPlane) -> None:
        leader = plane.partition("replicated").leading()
        leader.update_follower_fetch_state(2, max(leader.log.log_end_offset - behind, 0))

    return to_both(act)


def begin_transaction(topic: str, producer_id: int) -> Operation:
    return to_both(lambda plane: plane.append_in_transaction(topic, producer_id, b"in transaction"))


def end_transaction(topic: str, producer_id: int, is_committed: bool) -> Operation:
    return to_both(lambda plane: plane.end_transaction(topic, producer_id, committed=is_committed))


def delete_records(topic: str) -> Operation:
    return to_both(lambda plane: plane.partition(topic).delete_records(-1))


def flush(topic: str) -> Operation:
    return to_both(lambda plane: plane.partition(topic).led_log().flush())


def forget_indexes(topic: str) -> Operation:
    return to_both(lambda plane: plane.partition(topic).led_log().active_segment.unload_indexes())


def create_again(topic: str) -> Operation:
    def operate(twins: Twins, _: Producer) -> None:
        twins.both(lambda plane: plane.delete_topic(topic))
        twins.both(lambda plane: plane.create_topic(topic, **TOPICS[topic]))
        twins.topic_ids[topic] = twins.ruled.plane.image.topics[topic].topic_id

    return operate


def restart(twins: Twins, _: Producer) -> None:
    twins.restart()


some_topics = st.sampled_from(("plain", "replicated", "dense", "short-segments"))
meanwhile = st.one_of(
    st.sampled_from((1, 300, 2000, 41_000)).map(lambda ms: to_both(lambda plane: plane.pass_ms(ms))),
    st.builds(
        fail_writes,
        st.sampled_from((errno.ENOSPC, errno.ENOSPC, errno.EIO)),
        st.integers(1, 2),
        st.sampled_from((".log", "plain", "replicated")),
    ),
    st.sampled_from((0, 30, 100, None, None)).map(fill_disk),
    some_topics.map(lead_again),
    st.sampled_from(((1,), (1, 2))).map(in_sync),
    st.sampled_from((0, 0, 1)).map(follower_fetches),
    st.builds(begin_transaction, some_topics, st.sampled_from(PRODUCERS[:2])),
    st.builds(end_transaction, some_topics, st.sampled_from(PRODUCERS[:2]), st.booleans()),
    some_topics.map(delete_records),
    some_topics.map(flush),
    some_topics.map(forget_indexes),
    some_topics.map(create_again),
    st.just(restart),
)


def weighted(*choices: tuple[int, st.SearchStrategy[Operation]]) -> st.SearchStrategy[Operation]:
    """One of several, each so often; `one_of` would give each alternative of an alternative the same share."""
    each_so_often = [strategy for weight, strategy in choices for _ in range(weight)]
    return st.sampled_from(each_so_often).flatmap(lambda strategy: strategy)


operations = weighted(
    (6, plain_requests.map(send)), (3, requests.map(send)), (1, odd_requests.map(send)), (2, meanwhile)
)
#: What a disk that is not made up can do.
calm = weighted(
    (6, plain_requests.map(send)), (2, requests.map(send)), (1, st.just(restart)), (1, some_topics.map(lead_again))
)


def play(twins: Twins, story: list[Operation]) -> None:
    producer = Producer(twins)
    for operation in story:
        operation(twins, producer)
        twins.compare()
    twins.finish()


def test_a_frame_has_the_same_effect_with_the_kernel_and_by_the_rules() -> None:
    counted: Counter[str] = Counter()

    @settings(max_examples=3000 if IS_FULL else 100)
    @given(st.lists(operations, min_size=10, max_size=40))
    def run(story: list[Operation]) -> None:
        twins = Twins()
        play(twins, story)
        counted.update(sent=twins.sent, taken=twins.taken)

    run()
    # Else it would be the rules beside the rules.
    assert counted["taken"], counted  # which way each goes is told below


def test_the_same_on_a_disk_of_the_machine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("fsync", "fdatasync"):  # no machine crashes here
        monkeypatch.setattr(os, name, lambda _: None)
    counted: Counter[str] = Counter()

    @settings(max_examples=300 if IS_FULL else 10)
    @given(st.lists(calm, min_size=5, max_size=20))
    def run(story: list[Operation]) -> None:
        counted["runs"] += 1
        twins = Twins(tmp_path / str(counted["runs"]))
        play(twins, story)
        counted.update(sent=twins.sent, taken=twins.taken)

    run()
    assert counted["taken"], counted  # which way each goes is told below


#: Harms that may be done anywhere in a frame.
_PLACED: Final = ("cut", "flip", "bit", "drop", "repeat")


# What is ordinary, so that it is known which way was gone


@pytest.fixture
def twins() -> Twins:
    return Twins()


def taken(twins: Twins, *parts: Sent, **how: Any) -> bool:
    return twins.send(Producer(twins).frame(Request(parts, **how)))


@pytest.mark.parametrize("acks", [1, 0, -1])
@pytest.mark.parametrize("version", VERSIONS)
def test_ordinary_batches_are_appended_in_their_frame(twins: Twins, version: int, acks: int) -> None:
    assert taken(twins, Sent(), version=version, acks=acks)
    assert taken(twins, Sent(count=3), Sent(number=1), Sent("compacted"), Sent("flushed"), version=version, acks=acks)
    assert taken(twins, Sent(), version=version, acks=acks, harm="tail"), "as Kafka, we do not look there"
    assert taken(twins, Sent(), version=version, acks=acks, client_id=None)
    assert twins.compiled.plane.partition("plain").led_log().log_end_offset == 6
    twins.finish()


def test_a_known_producer_is_ordinary_as_long_as_its_batches_are_in_order(twins: Twins) -> None:
    for producer in PRODUCERS:
        assert not taken(twins, Sent(producer=producer)), "nobody knows it"
        assert all(taken(twins, Sent(producer=producer, count=2)) for _ in range(7)), "also when its sequences wrap"
        assert not taken(twins, Sent(producer=producer, turn="again"))
        assert not taken(twins, Sent(producer=producer, turn="gap"))
        assert not taken(twins, Sent(producer=producer, turn="up"))
        assert taken(twins, Sent(producer=producer))
        assert not taken(twins, Sent(producer=producer, turn="down"))
        assert taken(twins, Sent(producer=producer))
    twins.restart()
    assert not taken(twins, Sent(producer=PRODUCERS[0])), "nothing is known yet of what the segment holds"
    assert taken(twins, Sent(producer=PRODUCERS[0]))
    twins.finish()


NOT_ORDINARY: Final = (
    Sent(UNKNOWN),
    Sent("elsewhere"),
    Sent("append-time"),
    Sent("recoded"),
    Sent("compacted", key=None),
    Sent("small", value_bytes=200),
    Sent("on-time", age_ms=6000),
    Sent("on-time", age_ms=-6000),
    Sent("__consumer_offsets"),
    Sent(codec=Codec.GZIP, value_bytes=500),
    Sent(age_ms=-4_000_000),
)
#: Harms that are none: the leader's epoch is overwritten, no record has attributes, and any id below 0 is none.
HARMLESS: Final = ("leader epoch", "producer -5", "record attributes")


@pytest.mark.parametrize("version", [3, 5, 8, 9, 12, 13])
def test_what_is_not_ordinary_is_left_to_the_rules(twins: Twins, version: int) -> None:
    harmed = (Sent(count=2, producer=10, harm=each) for each in BATCH_HARMS if each not in HARMLESS)
    taken(twins, Sent(producer=10), version=version)
    for part in (*NOT_ORDINARY, *harmed):
        assert not taken(twins, part, version=version), part
        end = twins.compiled.plane.partition("plain", 1).led_log().log_end_offset
        assert not taken(twins, Sent(number=1), part, version=version), "and so is all that came with it"
        assert twins.compiled.plane.partition("plain", 1).led_log().log_end_offset == end + 1
    for harm in HARMLESS:
        assert taken(twins, Sent(count=2, producer=10, harm=harm), version=version)
    twins.finish()


@pytest.mark.parametrize("version", VERSIONS)
def test_a_frame_with_anything_wrong_is_dealt_with_alike(twins: Twins, version: int) -> None:
    for harm in FRAME_HARMS:
        for place in range(0, 100, 7 if harm in _PLACED else 100):
            taken(twins, Sent(), Sent("dense"), version=version, harm=harm, place=place / 100)
    twins.finish()


def test_the_same_partition_twice_is_left_to_the_rules(twins: Twins) -> None:
    assert not taken(twins, Sent(), Sent())
    assert not taken(twins, Sent(), Sent("dense"), Sent())
    assert not taken(twins)
    twins.finish()


# When the disk refuses


@pytest.mark.parametrize("acks", [1, 0, -1])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
@pytest.mark.parametrize("failing", ["plain-0", "replicated", "dense"])
def test_a_write_that_fails_leaves_the_rest_to_the_rules(twins: Twins, failing: str, code: int, acks: int) -> None:
    parts = [Sent(producer=10), Sent("replicated", producer=10), Sent("dense", count=2, producer=10)]
    taken(twins, *parts)
    fail_writes(code, 1, failing)(twins, Producer(twins))
    assert taken(twins, *parts, acks=acks)
    assert not taken(twins, *(Sent(each.topic, producer=10) for each in parts), acks=acks)
    taken(twins, *parts, acks=acks)
    taken(twins, *parts, acks=acks)
    twins.both(lambda plane: plane.partition("replicated").leading().update_follower_fetch_state(2, 3))
    twins.finish()


def test_a_write_that_the_machine_does_in_part_is_undone(tmp_path: Path) -> None:
    twins = Twins(tmp_path)
    for _ in range(64):
        assert taken(twins, Sent(value_bytes=60_000))
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    size_bytes = twins.compiled.plane.partition("plain").led_log().active_segment.size_bytes
    resource.setrlimit(resource.RLIMIT_FSIZE, (size_bytes + 50, limits[1]))
    try:
        taken(twins, Sent(number=1), Sent(value_bytes=100), Sent("dense"))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    for each in twins.twins:
        assert "File too large" in str(each.plane.partition("plain").failure)
    paths = [each for each in twins.files_of(twins.compiled) if "plain-0" in each and each.endswith(".log")]
    assert [len(twins.files_of(twins.compiled)[each] or b"") for each in paths] == [size_bytes]
    twins.compare_files()


# When others have to have it


@pytest.mark.parametrize("version", [3, 8, 9, 12, 13])
def test_who_waits_for_followers_is_answered_alike(twins: Twins, version: int) -> None:
    producer = Producer(twins)
    for acts in (
        [follower_fetches(0)],
        [in_sync((1,))],
        [lead_again("replicated")],
        [to_both(lambda plane: plane.pass_ms(600))],
        [fail_writes(errno.EIO, 1, "replicated")],
        [create_again("replicated")],
    ):
        twins = Twins()
        producer = Producer(twins)
        assert taken(twins, Sent("replicated"), Sent(), acks=-1, version=version)
        assert twins.compiled.connections, "it waits"
        for act in acts:
            act(twins, producer)
        taken(twins, Sent("replicated"), acks=-1, version=version)
        twins.compare()
        twins.finish()
