"""confluent-kafka's consumer in groups: rebalances, commits, static members, patterns."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any

import pytest

from tests.compat.brokers import unique
from tests.compat.confluent_client import Confluent, ck, code_of, polled, values
from tests.compat.samples import TIMEOUT_S, Sample


@pytest.fixture(scope="module")
def client(node: str) -> Confluent:
    return Confluent(node)


def numbered(count: int) -> list[Sample]:
    return [Sample(str(number).encode()) for number in range(count)]


def owned(consumer: Any) -> set[int]:
    return {each.partition for each in consumer.assignment()}


def settle(consumers: list[Any], done: Callable[[], bool]) -> None:
    """Let all members poll until the group has come to rest."""
    deadline = time.monotonic() + TIMEOUT_S
    while not done():
        assert time.monotonic() < deadline, [sorted(owned(each)) for each in consumers]
        for each in consumers:
            each.poll(0.02)


def shared_out(consumers: list[Any], partitions: int) -> Callable[[], bool]:
    """Whether each has its share and nobody has what another has."""

    def done() -> bool:
        shares = [owned(each) for each in consumers]
        return all(shares) and sorted(number for share in shares for number in share) == list(range(partitions))

    return done


@pytest.mark.parametrize("assignor", ["range", "roundrobin", "cooperative-sticky"])
def test_members_come_and_go(client: Confluent, assignor: str) -> None:
    topic, group = client.topic(6), unique("group")
    settings = {"partition.assignment.strategy": assignor}
    with ExitStack() as stack:
        first, second = (stack.enter_context(client.consumer(group, settings)) for _ in range(2))
        for each in (first, second):
            each.subscribe([topic])
        settle([first, second], shared_out([first, second], 6))
        with client.consumer(group, settings) as third:
            third.subscribe([topic])
            settle([first, second, third], shared_out([first, second, third], 6))
            assert [len(owned(each)) for each in (first, second, third)] == [2, 2, 2]
        second.unsubscribe()
        settle([first, second], shared_out([first], 6))
        client.produce(topic, [Sample(b"for the last one")], partition=5)
        assert values(polled(first, 1)) == [b"for the last one"]


def test_a_cooperative_member_keeps_what_it_has(client: Confluent) -> None:
    topic, group = client.topic(4), unique("group")
    settings = {"partition.assignment.strategy": "cooperative-sticky"}
    revoked: list[int] = []

    def on_revoke(_consumer: Any, partitions: list[Any]) -> None:
        revoked.extend(each.partition for each in partitions)

    with client.consumer(group, settings) as first, client.consumer(group, settings) as second:
        first.subscribe([topic], on_revoke=on_revoke)
        settle([first], shared_out([first], 4))
        second.subscribe([topic])
        settle([first, second], shared_out([first, second], 4))
        assert sorted(revoked) == sorted(owned(second))


def test_a_static_member_comes_back_without_a_rebalance(client: Confluent) -> None:
    topic, group = client.topic(4), unique("group")
    rebalances: list[str] = []

    def listening(name: str) -> Callable[[Any, list[Any]], None]:
        return lambda _consumer, _partitions: rebalances.append(name)

    with ExitStack() as stack:
        stays = stack.enter_context(client.consumer(group, {"group.instance.id": "stays"}))
        stays.subscribe([topic], on_assign=listening("stays"))
        with client.consumer(group, {"group.instance.id": "returns"}) as leaves:
            leaves.subscribe([topic])
            settle([stays, leaves], shared_out([stays, leaves], 4))
            before = owned(leaves)
        rebalances.clear()
        returns = stack.enter_context(client.consumer(group, {"group.instance.id": "returns"}))
        returns.subscribe([topic], on_assign=listening("returns"))
        settle([stays, returns], lambda: bool(owned(returns)))
        assert owned(returns) == before
        assert rebalances == ["returns"]


def test_a_second_member_of_the_same_name_fences_the_first(client: Confluent) -> None:
    topic, group = client.topic(1), unique("group")
    settings = {"group.instance.id": "only-one"}
    with client.consumer(group, settings) as first, client.consumer(group, settings) as second:
        first.subscribe([topic])
        settle([first], lambda: owned(first) == {0})
        second.subscribe([topic])
        settle([second], lambda: owned(second) == {0})
        with pytest.raises(ck.KafkaException) as failure:
            polled(first, 1)
        assert code_of(failure) == "_FATAL"
        assert "group.instance.id" in failure.value.args[0].str()


def test_a_group_resumes_where_it_committed(client: Confluent) -> None:
    topic, group = client.topic(), unique("group")
    client.produce(topic, numbered(10))
    with client.consumer(group) as consumer:
        consumer.subscribe([topic])
        received = polled(consumer, 4)
        (committed,) = consumer.commit(message=received[3], asynchronous=False)
        assert (committed.offset, committed.error) == (4, None)
        polled(consumer, 3)
    with client.consumer(group) as consumer:
        consumer.subscribe([topic])
        assert values(polled(consumer, 6)) == [b"4", b"5", b"6", b"7", b"8", b"9"]
        assert consumer.committed([ck.TopicPartition(topic, 0)], timeout=TIMEOUT_S)[0].offset == 4


def test_commits_that_nobody_waits_for(client: Confluent) -> None:
    topic, group = client.topic(), unique("group")
    client.produce(topic, numbered(5))
    told: list[tuple[Any, list[int]]] = []
    settings = {"on_commit": lambda error, partitions: told.append((error, [each.offset for each in partitions]))}
    with client.consumer(group, settings) as consumer:
        consumer.subscribe([topic])
        polled(consumer, 5)
        consumer.commit(asynchronous=True)
        settle([consumer], lambda: bool(told))
        assert told == [(None, [5])]


def test_offsets_are_stored_and_committed_in_the_background(client: Confluent) -> None:
    topic, group = client.topic(), unique("group")
    client.produce(topic, numbered(5))
    with client.consumer(group, {"enable.auto.commit": True, "auto.commit.interval.ms": 50}) as consumer:
        consumer.subscribe([topic])
        polled(consumer, 5)
        partition = ck.TopicPartition(topic, 0)
        settle([consumer], lambda: consumer.committed([partition], timeout=TIMEOUT_S)[0].offset == 5)


def test_nothing_is_committed_at_first(client: Confluent) -> None:
    topic = client.topic()
    with client.consumer() as consumer:
        assert consumer.committed([ck.TopicPartition(topic, 0)], timeout=TIMEOUT_S)[0].offset == ck.OFFSET_INVALID


def test_a_commit_of_somebody_who_is_not_a_member(client: Confluent) -> None:
    topic, group = client.topic(), unique("group")
    with client.consumer(group) as member:
        member.subscribe([topic])
        settle([member], lambda: owned(member) == {0})
        with client.consumer(group) as stranger, pytest.raises(ck.KafkaException) as failure:
            stranger.commit(offsets=[ck.TopicPartition(topic, 0, 0)], asynchronous=False)
        assert code_of(failure) == "UNKNOWN_MEMBER_ID"


@pytest.mark.parametrize(("reset", "expected"), [("earliest", b"old"), ("latest", b"new")])
def test_where_a_new_group_begins(client: Confluent, reset: str, expected: bytes) -> None:
    topic = client.topic()
    client.produce(topic, [Sample(b"old")])
    with client.consumer(settings={"auto.offset.reset": reset}) as consumer:
        consumer.subscribe([topic])
        partition = ck.TopicPartition(topic, 0)
        if reset == "latest":
            settle([consumer], lambda: owned(consumer) == {0})
            settle([consumer], lambda: consumer.get_watermark_offsets(partition, cached=True) == (0, 1))
            client.produce(topic, [Sample(b"new")])
        assert values(polled(consumer, 1)) == [expected]


def test_a_pattern_finds_topics_that_come_later(client: Confluent) -> None:
    first = client.topic()
    with client.consumer(settings={"topic.metadata.refresh.interval.ms": 100}) as consumer:
        consumer.subscribe([f"^{re.escape(first)}.*"])
        client.produce(first, [Sample(b"now")])
        assert values(polled(consumer, 1)) == [b"now"]
        consumer.commit(asynchronous=False)
        client.produce(f"{first}-more", [Sample(b"later")])
        assert values(polled(consumer, 1)) == [b"later"]


def test_a_topic_that_is_not_there_is_told_to_its_readers(client: Confluent) -> None:
    with client.consumer(settings={"allow.auto.create.topics": False}) as consumer:
        consumer.subscribe([unique("nothing")])
        with pytest.raises(ck.KafkaException) as failure:
            polled(consumer, 1)
    assert code_of(failure) == "UNKNOWN_TOPIC_OR_PART"


def test_a_member_that_stops_beating_loses_its_partitions(client: Confluent) -> None:
    topic, group = client.topic(2), unique("group")
    with client.consumer(group, {"session.timeout.ms": 1000, "max.poll.interval.ms": 1000}) as silent:
        silent.subscribe([topic])
        settle([silent], lambda: owned(silent) == {0, 1})
        with client.consumer(group) as lively:
            lively.subscribe([topic])
            settle([lively], lambda: owned(lively) == {0, 1})


def test_the_newer_group_protocol_is_refused_and_not_waited_for(client: Confluent) -> None:
    settings = {"bootstrap.servers": client.bootstrap, "group.id": unique("group"), "log_level": 0}
    consumer = ck.Consumer({**settings, "group.protocol": "consumer"})
    try:
        consumer.subscribe([client.topic()])
        deadline = time.monotonic() + TIMEOUT_S
        while (message := consumer.poll(0.1)) is None:
            assert time.monotonic() < deadline, "no word about it"
        assert message.error().name() == "_FATAL"
        assert "API version not supported" in message.error().str()
    finally:
        consumer.close()
