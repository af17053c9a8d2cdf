"""Transactions of other people's clients, one at a time and side by side, and what readers are shown of them.

Java comes twice: 4.3 adds partitions by writing to them and gets a new epoch with each transaction (KIP-890, v2), 3.9
asks for both as it always did (v1), as librdkafka and aiokafka do.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from itertools import count
from typing import Any, Final

import pytest

from barnabas import Admin, OffsetSpec, TopicPartition
from tests.compat import aiokafka_client, confluent_client, our_client
from tests.compat.aiokafka_client import ak
from tests.compat.brokers import unique
from tests.compat.confluent_client import ck
from tests.compat.our_client_peers import JavaPeer, Peers
from tests.compat.samples import TIMEOUT_S, Sample, until
from tests.compat.transactional_clients import PYTHON, FencedError, Java, Make, Writer
from tests.oracles import CURRENT, OLDEST_VERSIONS, missing, other_process

pytestmark = other_process(missing())

PARTITIONS: Final = 2
WRITERS: Final = (*PYTHON, f"Java {CURRENT}", f"Java {OLDEST_VERSIONS}")


class Place:
    """A broker, all clients of it, and names that nobody else has."""

    def __init__(self, peers: Peers, old_java: Callable[[], JavaPeer], new_java: Callable[[], JavaPeer]) -> None:
        self.peers = peers
        self._java = {f"Java {CURRENT}": new_java, f"Java {OLDEST_VERSIONS}": old_java}

    def make(self, kind: str) -> Make:
        if kind in PYTHON:
            return PYTHON[kind]
        return partial(Java, self._java[kind]())

    @contextmanager
    def writer(self, kind: str, transactional_id: str = "", timeout_ms: int = 60_000) -> Iterator[Writer]:
        made = self.make(kind)(self.peers.bootstrap, transactional_id or unique("id"), timeout_ms)
        try:
            yield made
        finally:
            made.close()

    def topic(self, partitions: int = PARTITIONS) -> str:
        return self.peers.confluent.topic(partitions)

    def admin(self) -> Admin:
        return Admin(bootstrap_servers=self.peers.bootstrap)


@pytest.fixture(scope="module")
def old_java() -> Iterator[Callable[[], JavaPeer]]:
    made: list[JavaPeer] = []

    def peer() -> JavaPeer:
        reason = missing(OLDEST_VERSIONS)
        if reason is not None:
            pytest.skip(reason)
        if not made:
            made.append(JavaPeer(OLDEST_VERSIONS))
        return made[0]

    yield peer
    for each in made:
        each.close()


@pytest.fixture
def place(request: pytest.FixtureRequest, transacting_peers: Peers, old_java: Callable[[], JavaPeer]) -> Place:
    return Place(transacting_peers, old_java, lambda: request.getfixturevalue("java_peer"))


# Readers: the values of each partition, in order


def read_confluent(place: Place, topic: str, total: int, level: str) -> list[list[bytes]]:
    with place.peers.confluent.consumer(settings={"isolation.level": level}) as consumer:
        consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING) for number in range(PARTITIONS)])
        return _by_partition([(each.partition(), each.value()) for each in confluent_client.polled(consumer, total)])


def read_aiokafka(place: Place, topic: str, total: int, level: str) -> list[list[bytes]]:
    async def read() -> list[Any]:
        async with place.peers.aiokafka.consumer(isolation_level=level) as consumer:
            consumer.assign([ak.TopicPartition(topic, number) for number in range(PARTITIONS)])
            return await aiokafka_client.received(consumer, total)

    return _by_partition([(each.partition, each.value) for each in asyncio.run(read())])


def read_java(place: Place, topic: str, total: int, level: str) -> list[list[bytes]]:
    from tests.compat.our_client_peers import java_sample

    settings = {"isolation.level": level}
    told = place.peers.java("read", topic=topic, partitions=PARTITIONS, count=total, settings=settings)
    return _by_partition([(each["partition"], java_sample(each).value or b"") for each in told])


def read_ours(place: Place, topic: str, total: int, level: str) -> list[list[bytes]]:
    found = place.peers.ours.read(topic, PARTITIONS, total, our_client.polled, isolation_level=level)
    return _by_partition([(each.partition, each.value) for each in found])


READERS: Final = (read_confluent, read_aiokafka, read_java, read_ours)


def _by_partition(found: Sequence[tuple[int, bytes]]) -> list[list[bytes]]:
    return [[value for partition, value in found if partition == number] for number in range(PARTITIONS)]


# One client


def write(writer: Writer, topic: str, numbers: Sequence[int]) -> None:
    for each in numbers:
        writer.send(topic, each % PARTITIONS, b"%d" % each)


def finish(writer: Writer, topic: str, numbers: Sequence[int]) -> None:
    """Some clients learn with the next record that they are fenced, others with the commit."""
    write(writer, topic, numbers)
    writer.commit()


def expected(*numbers: Sequence[int]) -> list[list[bytes]]:
    return _by_partition([(each % PARTITIONS, b"%d" % each) for some in numbers for each in some])


@pytest.mark.parametrize("kind", WRITERS)
def test_what_is_committed_is_shown_and_what_is_aborted_is_not(place: Place, kind: str) -> None:
    topic = place.topic()
    with place.writer(kind) as writer:
        for numbers, is_committed in ((range(4), True), (range(4, 8), False), (range(8, 12), True), (range(0), True)):
            writer.begin()
            write(writer, topic, numbers)
            writer.commit() if is_committed else writer.abort()
    for read in READERS:
        assert read(place, topic, 8, "read_committed") == expected(range(4), range(8, 12)), read.__name__
    assert read_confluent(place, topic, 12, "read_uncommitted") == expected(range(12))
    with place.admin() as admin:
        places = {TopicPartition(topic, number): OffsetSpec.latest() for number in range(PARTITIONS)}
        ends = [each.offset for each in admin.list_offsets(places).values()]
        # Six records each, and a marker for each of three transactions.
        assert ends == [9, 9]


@pytest.mark.parametrize("kind", WRITERS)
def test_a_newer_producer_fences_the_older(place: Place, kind: str) -> None:
    topic, transactional_id = place.topic(), unique("fenced")
    with ExitStack() as writers:
        older = writers.enter_context(place.writer(kind, transactional_id))
        older.begin()
        write(older, topic, [0, 1])
        newer = writers.enter_context(place.writer(kind, transactional_id))
        with pytest.raises(FencedError):
            finish(older, topic, [2, 3])
        newer.begin()
        write(newer, topic, [4, 5])
        newer.commit()
    for read in READERS:
        assert read(place, topic, 2, "read_committed") == expected([4, 5]), read.__name__


@pytest.mark.parametrize("kind", WRITERS)
def test_offsets_are_committed_with_the_transaction(place: Place, kind: str) -> None:
    topic, group = place.topic(), unique("group")
    partition = TopicPartition(topic, 1)
    with place.writer(kind) as writer, place.admin() as admin:

        def committed() -> int | None:
            found = admin.list_group_offsets(group).get(partition)
            return None if found is None else found.offset

        for offset, is_committed, after in ((5, True, 5), (7, False, 5), (9, True, 9)):
            before = committed()
            writer.begin()
            write(writer, topic, [offset])
            writer.offsets(topic, 1, offset, group)
            assert committed() == before
            writer.commit() if is_committed else writer.abort()
            assert until(lambda after=after: committed() == after)  # type: ignore[misc]
    assert read_java(place, topic, 2, "read_committed") == expected([5, 9])


@pytest.mark.parametrize("kind", WRITERS)
def test_an_open_transaction_holds_readers_back_until_its_time_is_up(place: Place, kind: str) -> None:
    """The coordinator aborts it; whoever had it is fenced, or must abort."""
    topic = place.topic()
    partition = TopicPartition(topic, 0)
    with place.admin() as admin:

        def end(level: str) -> int:
            return admin.list_offsets({partition: OffsetSpec.latest()}, isolation_level=level)[partition].offset

        with place.writer(kind, timeout_ms=1500) as writer:
            writer.begin()
            write(writer, topic, [0])
            place.peers.ours.produce(topic, [Sample(b"2")], 0)
            assert (end("read_committed"), end("read_uncommitted")) == (0, 2)
            until(lambda: end("read_committed") == 3)
            with pytest.raises(Exception):  # noqa: B017, PT011 (each client has its own)
                writer.commit()
    for read in READERS:
        assert read(place, topic, 1, "read_committed") == expected([2]), read.__name__


# Several


def test_transactions_of_all_clients_side_by_side(place: Place) -> None:
    """Open at once in the same partitions, ended in other orders than begun: all readers see the same, in one order."""
    topic = place.topic()
    numbers = count()
    committed: set[bytes] = set()
    with ExitStack() as stack:
        writers = [stack.enter_context(place.writer(kind)) for kind in WRITERS]
        for turn in range(4):
            shares: list[list[int]] = [[] for _ in writers]
            for writer in writers:
                writer.begin()
            for _ in range(2):
                for share, writer in zip(shares, writers, strict=True):
                    mine = [next(numbers) for _ in range(2)]
                    write(writer, topic, mine)
                    share += mine
            order = range(len(writers)) if turn % 2 else range(len(writers) - 1, -1, -1)
            for index in order:
                if (turn + index) % 3:
                    writers[index].commit()
                    committed.update(b"%d" % each for each in shares[index])
                else:
                    writers[index].abort()
    seen = [read(place, topic, len(committed), "read_committed") for read in READERS]
    assert all(each == seen[0] for each in seen)
    assert {value for partition in seen[0] for value in partition} == committed


def test_offsets_of_a_group_that_has_moved_on_are_refused(place: Place) -> None:
    """librdkafka's producer commits for a member of the group, whose place another has taken: it must abort."""
    topic, group = place.topic(), unique("group")
    producer = ck.Producer(
        {"bootstrap.servers": place.peers.bootstrap, "transactional.id": unique("id"), "log_level": 0}
    )
    producer.init_transactions(TIMEOUT_S)
    with place.peers.confluent.consumer(group) as member:
        member.subscribe([topic])
        until(lambda: member.poll(0.05) is None and len(member.assignment()) == PARTITIONS)
        old = member.consumer_group_metadata()
        member.close()
    with place.peers.confluent.consumer(group) as member:
        member.subscribe([topic])
        until(lambda: member.poll(0.05) is None and len(member.assignment()) == PARTITIONS)
        offsets = [ck.TopicPartition(topic, 0, 3)]
        producer.begin_transaction()
        with pytest.raises(ck.KafkaException) as raised:
            producer.send_offsets_to_transaction(offsets, old, TIMEOUT_S)
        assert raised.value.args[0].txn_requires_abort(), raised.value
        producer.abort_transaction(TIMEOUT_S)
        producer.begin_transaction()
        producer.send_offsets_to_transaction(offsets, member.consumer_group_metadata(), TIMEOUT_S)
        producer.commit_transaction(TIMEOUT_S)
        (committed,) = member.committed([ck.TopicPartition(topic, 0)], TIMEOUT_S)
        assert committed.offset == 3


def test_a_time_out_above_the_limit_is_refused(place: Place) -> None:
    began_s = time.monotonic()
    for kind in ("confluent-kafka", f"Java {CURRENT}"):
        with pytest.raises(Exception, match=r"(?i)timeout is larger than the maximum"):
            place.make(kind)(place.peers.bootstrap, unique("id"), 16 * 60_000)
    assert time.monotonic() - began_s < TIMEOUT_S
