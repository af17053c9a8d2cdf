"""Members that are slow, late or gone: what is committed for them, and what they are told."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import nullcontext
from typing import Any

import pytest

from barnabas import Consumer, Producer, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.client.errors import CommitFailedError
from barnabas.client.plugins import RebalanceListener
from barnabas.testing import EmbeddedBroker
from barnabas.wire.apis import ApiKey
from tests.client.faults.reading import LIMIT_S, wait_until


def fill(broker: EmbeddedBroker, topic: str, count: int, partitions: int = 1) -> None:
    with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=number % partitions)


def member(broker: EmbeddedBroker, topic: str, **settings: Any) -> Consumer:
    usual = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": f"g-{topic}",
        "auto_offset_reset": "earliest",
        "heartbeat_interval_ms": 30,
        "session_timeout_ms": 2000,
        "retry_backoff_ms": 10,
        "fetch_max_wait_ms": 50,
    }
    return Consumer(topic, **{**usual, **settings})


def committed(broker: EmbeddedBroker, topic: str, partition: int = 0) -> int | None:
    with Consumer(bootstrap_servers=broker.bootstrap_servers, group_id=f"g-{topic}") as auditor:
        wanted = TopicPartition(topic, partition)
        found = auditor.committed([wanted])[wanted]
        return None if found is None else found.offset


class DiedOverIt(Exception):  # noqa: N818
    """The program failed with a record in hand."""


@pytest.mark.parametrize("fails", [True, False], ids=["it fails", "it leaves"])
def test_a_record_in_hand_is_committed_when_the_program_says_that_it_is_done(
    broker: EmbeddedBroker, topic: str, fails: bool
) -> None:
    """Neither the interval commits it nor an exception that ends the `with`: whoever dies over a record gets it again.
    To leave the `with` in good order says that it is done."""
    fill(broker, topic, 5)

    def program() -> None:
        with member(broker, topic, auto_commit_interval_ms=10) as consumer:
            for record in consumer:
                if record.offset == 3:
                    if fails:
                        raise DiedOverIt
                    return

    with pytest.raises(DiedOverIt) if fails else nullcontext():
        program()
    assert committed(broker, topic) == (3 if fails else 4)


def test_a_list_in_hand_is_not_committed_before_the_next_poll(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 6)

    def program() -> None:
        with member(broker, topic, auto_commit_interval_ms=10, max_poll_records=2) as consumer:
            for _ in range(2):
                assert len(consumer.poll(LIMIT_S)) == 2
            raise DiedOverIt

    with pytest.raises(DiedOverIt):
        program()
    assert committed(broker, topic) == 2


def test_a_commit_of_the_program_is_not_taken_back_by_auto_commit(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 6)

    def program() -> None:
        with member(broker, topic, max_poll_records=4) as consumer:
            assert len(consumer.poll(LIMIT_S)) == 4
            consumer.commit()
            raise DiedOverIt

    with pytest.raises(DiedOverIt):
        program()
    assert committed(broker, topic) == 4


def test_without_auto_commit_nothing_is_committed(broker: EmbeddedBroker, topic: str) -> None:
    fill(broker, topic, 3)
    with member(broker, topic, enable_auto_commit=False) as consumer:
        assert len(consumer.poll(LIMIT_S)) == 3
        consumer.poll(0)
    assert committed(broker, topic) is None


class Story(RebalanceListener):
    """A listener that remembers."""

    def __init__(self) -> None:
        self.words: list[str] = []

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self.words.append("assigned")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        self.words.append("revoked")

    def on_partitions_lost(self, partitions: list[TopicPartition]) -> None:
        self.words.append("lost")


def test_a_program_that_does_not_poll_in_time_loses_its_partitions(broker: EmbeddedBroker, topic: str) -> None:
    """Another member gets them; the late one is told so when it commits, with the setting, and joins again at the
    next poll."""
    fill(broker, topic, 3)
    settings: dict[str, Any] = {"max_poll_interval_ms": 200, "enable_auto_commit": False, "heartbeat_interval_ms": 30}
    story = Story()
    with member(broker, topic, **settings) as late, member(broker, topic, **settings) as other:
        late.subscribe([topic], listener=story)
        assert len(late.poll(LIMIT_S)) == 3
        # It works on them for too long.
        assert len(other.poll(LIMIT_S)) == 3
        with pytest.raises(CommitFailedError, match=r"max.poll.interval.ms"):
            late.commit()
        other.commit()
        other.close()
        late.poll(0.3)
        wait_until(lambda: late.poll(0.05) is not None and late.assignment(), "it is in the group again")
        assert story.words[:3] == ["assigned", "lost", "assigned"]
    assert committed(broker, topic) == 3


def test_heartbeats_go_on_while_the_program_works(broker: EmbeddedBroker, topic: str) -> None:
    """Longer than the session timeout, and shorter than max.poll.interval.ms: nobody takes its partitions."""
    fill(broker, topic, 3)
    settings: dict[str, Any] = {"session_timeout_ms": 200, "heartbeat_interval_ms": 40}
    with member(broker, topic, **settings) as consumer:
        assert len(consumer.poll(LIMIT_S)) == 3
        generation = consumer.group_metadata().generation
        time.sleep(0.5)
        consumer.commit()
        assert consumer.group_metadata().generation == generation


def test_taking_records_one_by_one_counts_as_being_in_time(broker: EmbeddedBroker, topic: str) -> None:
    """An iteration over a large answer does not poll in between, but the program is not late as long as it takes."""
    fill(broker, topic, 12)
    with member(broker, topic, max_poll_interval_ms=250, heartbeat_interval_ms=30) as consumer:
        iterator = iter(consumer)
        for _ in range(12):
            next(iterator)
            time.sleep(0.05)
        consumer.commit()
    assert committed(broker, topic) == 12


@pytest.mark.parametrize("strategy", ["range", "cooperative-sticky"])
def test_a_second_member_gets_its_share_from_a_slow_one(
    broker: EmbeddedBroker, make_topic: Callable[..., str], strategy: str
) -> None:
    """Every record is handed out at least once, and what was done before the rebalance is not handed out again."""
    topic, count = make_topic(partitions=4), 400
    fill(broker, topic, count, partitions=4)
    seen: dict[str, list[tuple[int, int]]] = {"first": [], "second": []}
    stop = threading.Event()

    def consume(name: str) -> None:
        settings: dict[str, Any] = {"max_poll_records": 5, "auto_commit_interval_ms": 20}
        with member(broker, topic, partition_assignment_strategy=strategy, **settings) as consumer:
            while not stop.is_set():
                records = consumer.poll(0.05)
                seen[name] += [(record.partition, record.offset) for record in records]
                time.sleep(0.01)

    threads = [threading.Thread(target=consume, args=(name,)) for name in seen]
    threads[0].start()
    wait_until(lambda: len(seen["first"]) > 50, "the first reads")
    threads[1].start()
    wait_until(lambda: len({*seen["first"], *seen["second"]}) == count, "all was read")
    stop.set()
    for thread in threads:
        thread.join(LIMIT_S)
    assert len(seen["second"]) > 20, "the second has had a share"
    assert len(seen["first"]) + len(seen["second"]) <= count + 4 * 10, "hardly anything was read twice"
    assert sum(committed(broker, topic, number) or 0 for number in range(4)) >= count - 4 * 5


@pytest.mark.parametrize(
    "code", [ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS]
)
def test_a_member_that_the_coordinator_has_forgotten_joins_again(
    broker: EmbeddedBroker, topic: str, code: ErrorCode
) -> None:
    fill(broker, topic, 3)
    with member(broker, topic, enable_auto_commit=False, session_timeout_ms=300) as consumer:
        assert len(consumer.poll(LIMIT_S)) == 3
        consumer.commit()  # on a busy machine it may be forgotten, and join, more than once
        joins = broker.faults.seen[ApiKey.JOIN_GROUP]
        broker.faults.fail_next(ApiKey.HEARTBEAT, error=code)
        wait_until(
            lambda: consumer.poll(0.02) is not None and broker.faults.seen[ApiKey.JOIN_GROUP] > joins, "it joins again"
        )
        wait_until(lambda: consumer.poll(0.02) is not None and consumer.assignment(), "it has its partition again")
        fill(broker, topic, 1)
        assert [record.offset for record in consumer.poll(LIMIT_S)] == [3]
        consumer.commit()
    assert committed(broker, topic) == 4


def test_a_static_member_that_comes_back_finds_its_place(broker: EmbeddedBroker, topic: str) -> None:
    """Closed and started again within the session: no rebalance; a second one of the same name fences the first."""
    fill(broker, topic, 3)
    with member(broker, topic, group_instance_id="one") as consumer:
        assert len(consumer.poll(LIMIT_S)) == 3
        generation = consumer.group_metadata().generation
        consumer.poll(0)
    with member(broker, topic, group_instance_id="one") as consumer:
        consumer.poll(0.2)
        assert consumer.group_metadata().generation == generation
        with member(broker, topic, group_instance_id="one") as twin:
            twin.poll(0.2)
            with pytest.raises(Exception, match=r"(?i)instance|fenced"):
                wait_until(lambda: consumer.poll(0.05) is None, "it is fenced")
