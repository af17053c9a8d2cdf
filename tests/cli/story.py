"""A cluster with something in it, made by our tools, so that there is something to show."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from confluent_kafka import Consumer, Producer

from barnabas.cli.main import main
from barnabas.cli.output import compact_json

LONG_GROUP = "a-group-with-quite-a-long-name"


def play(bootstrap: str) -> None:
    """Topics `clicks` (two partitions, five records in the first) and `a.b_c`, settings, and two groups."""
    for call in (
        "topics --create --topic clicks --partitions 2 --config retention.bytes=123456",
        "topics --create --topic a.b_c --replica-assignment 1,1,1 --config cleanup.policy=compact",
        "configs --alter --broker-defaults --add-config log.retention.ms=7200000",
        "configs --alter --broker 1 --add-config log.cleaner.threads=2",
        "configs --alter --topic clicks --add-config cleanup.policy=[compact,delete],retention.ms=-1",
    ):
        tool, *arguments = call.split()
        assert main([tool, "--bootstrap-server", bootstrap, *arguments]) == 0
    produce(bootstrap, "clicks", 5)
    for group, offset in (("readers", "3"), (LONG_GROUP, "99")):
        reset = ("--reset-offsets", "--group", group, "--topic", "clicks", "--to-offset", offset, "--execute")
        assert main(["consumer-groups", "--bootstrap-server", bootstrap, *reset]) == 0


def produce(bootstrap: str, topic: str, count: int) -> None:
    """Records in partition 0, a second apart."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(count):
        producer.produce(
            topic,
            b"value",
            b"key %d" % number,
            partition=0,
            timestamp=1_700_000_000_000 + 1000 * number,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )
    assert (producer.flush(10), failures) == (0, [])


@contextmanager
def member(bootstrap: str, group: str, **settings: Any) -> Iterator[Consumer]:
    """A consumer of `clicks` that has its partitions."""
    given = {name.replace("_", "."): value for name, value in settings.items()}
    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "client.id": "reader", "enable.auto.commit": False} | given
    )
    consumer.subscribe(["clicks"])
    try:
        while not consumer.assignment():
            consumer.poll(0.05)
        yield consumer
    finally:
        consumer.close()


def offsets_file(*partitions: tuple[str, int, int]) -> str:
    """What `delete-records` reads."""
    entries = [{"topic": topic, "partition": number, "offset": offset} for topic, number, offset in partitions]
    return compact_json({"partitions": entries, "version": 1})
