"""When a record counts as done: the program has come back for more, committed, or closed the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, TopicPartition
from barnabas.client.consumer.consumer import Consumer as AsyncConsumer
from barnabas.testing import EmbeddedBroker

PARTITION = TopicPartition("letters", 0)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker() as made:
        with Producer(bootstrap_servers=made.bootstrap_servers) as producer:
            for number in range(5):
                producer.send("letters", b"%d" % number, partition=0)
        yield made


def reader(broker: EmbeddedBroker, group: str, **settings: Any) -> Consumer:
    return Consumer(
        "letters", bootstrap_servers=broker.bootstrap_servers, group_id=group, auto_offset_reset="earliest", **settings
    )


def committed(broker: EmbeddedBroker, group: str) -> int | None:
    with reader(broker, group, enable_auto_commit=False) as consumer:
        found = consumer.committed([PARTITION])[PARTITION]
    return None if found is None else found.offset


def test_what_a_poll_returned_is_committed_at_close(broker: EmbeddedBroker) -> None:
    with reader(broker, "polls") as consumer:
        assert len(consumer.poll(10, max_records=3)) == 3
    assert committed(broker, "polls") == 3


def test_who_leaves_a_loop_is_done_with_its_last_record(broker: EmbeddedBroker) -> None:
    with reader(broker, "breaks") as consumer:
        for record in consumer:
            if record.value == b"3":
                break
    assert committed(broker, "breaks") == 4


def test_a_record_whose_handling_failed_comes_again(broker: EmbeddedBroker) -> None:
    with pytest.raises(ZeroDivisionError), reader(broker, "fails") as consumer:  # noqa: PT012
        for record in consumer:
            if record.value == b"3":
                raise ZeroDivisionError
    assert committed(broker, "fails") == 3


@pytest.mark.parametrize(
    ("instance_id", "leave_group", "stays"),
    [
        (None, None, False),
        (None, True, False),
        (None, False, True),
        ("static", None, True),
        ("static", True, False),
        ("static", False, True),
    ],
)
@pytest.mark.parametrize("is_async", [False, True], ids=["sync", "asyncio"])
def test_who_closes_a_consumer_may_say_whether_it_leaves_its_group(
    broker: EmbeddedBroker, instance_id: str | None, leave_group: bool | None, stays: bool, is_async: bool
) -> None:
    group = f"leaves-{instance_id}-{leave_group}-{is_async}"
    settings: Any = {
        "bootstrap_servers": broker.bootstrap_servers,
        "group_id": group,
        "group_instance_id": instance_id,
        "auto_offset_reset": "earliest",
    }

    async def read() -> None:
        consumer = AsyncConsumer("letters", **settings)
        assert await consumer.poll(10)
        await consumer.close(leave_group=leave_group)

    if is_async:
        asyncio.run(read())
    else:
        consumer = Consumer("letters", **settings)
        assert consumer.poll(10)
        consumer.close(leave_group=leave_group)
    with Admin(broker.bootstrap_servers) as admin:
        assert len(admin.describe_groups([group])[group].members) == stays
