"""Our consumers in one group with those of others: they share, take over, and go on where another stopped."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from barnabas import Admin, BrokerError, OffsetAndMetadata, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.client.admin import NewPartitions
from tests.compat import aiokafka_client, confluent_client, kafka_python_client, our_client
from tests.compat.brokers import unique
from tests.compat.kafka_python_client import kp
from tests.compat.our_client_members import MEMBERS, Company, ConfluentKafka, Member, Ours, OursInAsyncio, Stream
from tests.compat.our_client_peers import Peers
from tests.compat.samples import Sample, until
from tests.oracles import missing

PARTITIONS = 12


def play(peers: Peers, assignor: str, names: Sequence[str]) -> None:
    """One begins, all others join it at once, it and the last one leave, and all the while records are written."""
    reason = missing() if "Java" in names else None
    if reason is not None:
        pytest.skip(reason)
    topic, group = peers.ours.topic(PARTITIONS), unique("mixed")
    members = [MEMBERS[name](peers, topic, group, assignor) for name in names]
    with Stream(peers, topic, PARTITIONS) as stream:
        company = Company(PARTITIONS, stream)
        try:
            company.join(members[0])
            company.settle()
            company.join(*members[1:])
            company.settle()
            company.check_that_each_record_is_read_once()
            company.leave(members[0], members[-1])
            company.settle()
            company.check_that_each_record_is_read_once()
            company.check_that_nothing_is_missing()
        finally:
            company.stop()


@pytest.mark.parametrize(
    ("assignor", "names"),
    [
        ("range", ["ours", "confluent-kafka", "kafka-python", "ours in asyncio", "aiokafka", "Java"]),
        ("roundrobin", ["confluent-kafka", "ours", "aiokafka", "ours in Arrow", "kafka-python", "Java"]),
        ("sticky", ["Java", "ours", "kafka-python", "aiokafka", "ours in asyncio"]),
        ("cooperative-sticky", ["ours", "Java", "confluent-kafka", "ours in asyncio", "kafka-python"]),
        ("cooperative-sticky", ["confluent-kafka", "ours in asyncio", "Java", "ours"]),
    ],
)
def test_a_mixed_group(peers: Peers, assignor: str, names: list[str]) -> None:
    play(peers, assignor, names)


def test_partitions_that_are_added_are_shared_out(peers: Peers) -> None:
    """Who leads has to notice them."""
    topic, group = peers.ours.topic(3), unique("growing")
    with Stream(peers, topic, 3) as stream:
        company = Company(3, stream)
        try:
            for name in ("ours", "confluent-kafka", "ours in asyncio"):
                company.join(MEMBERS[name](peers, topic, group, "range"))
                company.settle()
            company.check_that_nothing_is_missing()
        except BaseException:
            company.stop()
            raise
    with Admin(bootstrap_servers=peers.bootstrap) as admin:
        admin.create_partitions({topic: NewPartitions(8)})
    try:
        company.grow(8)
        company.settle()
    finally:
        company.stop()


# Offsets


def _ours(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    with peers.ours.consumer(topic, group_id=group) as consumer:
        offsets = [each.offset for each in our_client.polled(consumer, count)]
        consumer.commit()
    return offsets


def _ours_iterated(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    with peers.ours.consumer(topic, group_id=group) as consumer:
        records = our_client.iterated(consumer, count)
        last = records[-1]
        consumer.commit({TopicPartition(topic, 0): OffsetAndMetadata(last.offset + 1, "by ours", last.leader_epoch)})
    return [each.offset for each in records]


def _ours_arrow(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    """Nothing is committed by hand: closing does that, also for the rows of the last poll."""
    with peers.ours.consumer(topic, group_id=group, enable_auto_commit=True) as consumer:
        offsets: list[int] = our_client.polled_arrow(consumer, count).column("offset").to_pylist()
    return offsets


def _ours_aio(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    async def story() -> list[int]:
        async with peers.ours.aio_consumer(topic, group_id=group) as consumer:
            offsets = [each.offset for each in await our_client.aio_polled(consumer, count)]
            await consumer.commit_async()  # which nobody waits for: closing does
            return offsets

    return asyncio.run(story())


def _confluent(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    with peers.confluent.consumer(group) as consumer:
        consumer.subscribe([topic])
        messages = confluent_client.polled(consumer, count)
        consumer.commit(message=messages[-1], asynchronous=False)
    return [each.offset() for each in messages]


def _kafka_python(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    with peers.kafka_python.consumer(topic, group=group) as consumer:
        records = kafka_python_client.polled(consumer, count)
        consumer.commit()
    return [each.offset for each in records]


def _aiokafka(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    async def story() -> list[int]:
        async with peers.aiokafka.consumer(topic, group=group) as consumer:
            records = await aiokafka_client.received(consumer, count)
            await consumer.commit()
            return [each.offset for each in records]

    return asyncio.run(story())


def _java(peers: Peers, topic: str, group: str, count: int) -> list[int]:
    told = peers.java("resume", topic=topic, settings={"group.id": group}, count=count)
    return [each["offset"] for each in told]


RESUMERS = {
    "ours": _ours,
    "ours by iteration": _ours_iterated,
    "ours in Arrow": _ours_arrow,
    "ours in asyncio": _ours_aio,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "Java": _java,
}


def test_each_goes_on_where_another_stopped(both_peers: Peers) -> None:
    """Every client of others before and after one of ours."""
    chain = [
        *(
            "ours",
            "confluent-kafka",
            "ours in asyncio",
            "kafka-python",
            "ours by iteration",
            "aiokafka",
            "ours in Arrow",
        ),
        *("ours in asyncio", "confluent-kafka", "ours"),
    ]
    if missing() is None:
        chain += ["Java", "ours by iteration", "Java"]
    topic, group = both_peers.ours.topic(), unique("chain")
    both_peers.ours.produce(topic, [Sample(b"%d" % number) for number in range(7 * len(chain))])
    for step, name in enumerate(chain):
        offsets = RESUMERS[name](both_peers, topic, group, 7)
        assert offsets == list(range(7 * step, 7 * step + 7)), f"{name} after {chain[step - 1]}"


def test_what_is_told_with_a_commit(both_peers: Peers) -> None:
    topic, group = both_peers.ours.topic(2), unique("notes")
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    both_peers.ours.produce(topic, [Sample(b"x")] * 5, partition=0)
    with both_peers.ours.consumer(group_id=group) as consumer:
        consumer.assign([first, second])
        consumer.commit({first: OffsetAndMetadata(3, "größer nicht")})
    with both_peers.kafka_python.consumer(group=group) as other:
        theirs = [kp.TopicPartition(topic, number) for number in range(2)]
        found = other.committed(theirs[0], metadata=True)
        assert (found.offset, found.metadata, other.committed(theirs[1])) == (3, "größer nicht", None)
        other.assign(theirs)
        other.commit({theirs[1]: kp.OffsetAndMetadata(9, "von drüben", -1)})
    with both_peers.ours.consumer(group_id=group) as consumer:
        committed = [consumer.committed([first, second])[each] for each in (first, second)]
        assert [(each.offset, each.metadata) for each in committed if each] == [(3, "größer nicht"), (9, "von drüben")]


# Static members


def test_a_static_member_of_ours_comes_back_without_a_rebalance(both_peers: Peers) -> None:
    topic, group = both_peers.ours.topic(4), unique("static")
    other = ConfluentKafka(both_peers, topic, group, "range", **{"group.instance.id": "stays"})
    with Stream(both_peers, topic, 4) as stream:
        company = Company(4, stream)
        try:
            company.join(other)
            company.settle()
            returns: Member = Ours(both_peers, topic, group, "range", group_instance_id="returns")
            company.join(returns)
            company.settle()
            before, assignments = returns.partitions, other.assignments
            kinds: list[type[Member]] = [OursInAsyncio, Ours]
            for kind in kinds:
                company.leave(returns)
                returns = kind(both_peers, topic, group, "range", group_instance_id="returns")
                company.join(returns)
                until(lambda member=returns: member.partitions == before)  # type: ignore[misc]
            company.check_that_each_record_is_read_once(80)
            assert other.assignments == assignments
            company.check_that_nothing_is_missing()
        finally:
            company.stop()


def test_a_static_member_of_ours_is_sent_away(peers: Peers) -> None:
    topic, group = peers.ours.topic(2), unique("static")
    with Stream(peers, topic, 2) as stream:
        company = Company(2, stream)
        try:
            stays = ConfluentKafka(peers, topic, group, "range")
            leaves = Ours(peers, topic, group, "range", group_instance_id="leaves", session_timeout_ms=30_000)
            company.join(stays, leaves)
            company.settle()
            company.leave(leaves)
            with Admin(bootstrap_servers=peers.bootstrap) as admin:
                (described,) = admin.describe_groups([group]).values()
                assert {each.group_instance_id for each in described.members} == {"leaves", None}
                admin.remove_group_members(group, instance_ids=["leaves"])
            company.settle()
            assert stays.partitions == {0, 1}
        finally:
            company.stop()


def test_a_second_member_of_the_same_name_fences_the_first(both_peers: Peers) -> None:
    topic, group = both_peers.ours.topic(), unique("static")
    settings = {"group_id": group, "group_instance_id": "only-one"}
    with both_peers.ours.consumer(topic, **settings) as first:
        until(lambda: first.poll(0.05) or first.assignment())
        with both_peers.confluent.consumer(group, {"group.instance.id": "only-one"}) as second:
            second.subscribe([topic])
            until(lambda: second.poll(0.05) or second.assignment())
            with pytest.raises(BrokerError) as failure:
                until(lambda: first.poll(0.5))
            assert failure.value.code == ErrorCode.FENCED_INSTANCE_ID
            assert "only-one" in str(failure.value)
