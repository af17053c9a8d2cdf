"""What people give to a client by the habits that they bring from others: it works, or says what to write."""

from __future__ import annotations

import re
from typing import Any

import pytest

from barnabas import Admin, Consumer, Producer, SettingsError, TopicPartition, aio

NOWHERE = "127.0.0.1:1"


@pytest.mark.parametrize("kind", [Consumer, aio.Consumer])
@pytest.mark.parametrize(
    ("given", "topics"),
    [
        (("clicks",), {"clicks"}),
        (("clicks", "orders"), {"clicks", "orders"}),
        ((["clicks", "orders"],), {"clicks", "orders"}),
        ((("clicks",),), {"clicks"}),
        (({"clicks"}, "orders"), {"clicks", "orders"}),
        (({"group.id": "g"}, ["clicks"]), {"clicks"}),
        ((), set()),
    ],
)
def test_topics_come_one_by_one_or_in_a_list(kind: Any, given: tuple[Any, ...], topics: set[str]) -> None:
    assert kind(*given, bootstrap_servers=NOWHERE).subscription() == topics


def test_a_generator_of_topics_is_read_once() -> None:
    assert Consumer(iter(["clicks", "orders"]), bootstrap_servers=NOWHERE).subscription() == {"clicks", "orders"}


@pytest.mark.parametrize("given", [NOWHERE, [NOWHERE, "127.0.0.1:2"], (NOWHERE,), {"bootstrap.servers": NOWHERE}])
def test_brokers_are_taken_without_a_keyword(given: Any) -> None:
    expected = tuple(given) if isinstance(given, list) else (NOWHERE,)
    with Producer(given) as producer:
        assert producer._parts.settings.bootstrap_servers == expected
    with Admin(given) as admin:
        assert admin.settings.bootstrap_servers == expected
    assert aio.Producer(given)._parts.settings.bootstrap_servers == expected
    assert aio.Admin(given).settings.bootstrap_servers == expected


@pytest.mark.parametrize(
    ("kind", "given", "sentence"),
    [
        (Consumer, (NOWHERE,), f"write Consumer(\"topic\", bootstrap_servers='{NOWHERE}')"),
        (
            Consumer,
            (
                "clicks",
                "group",
                ["kafka-1.example.com:9092"],
            ),
            "that is an address",
        ),
        (Consumer, ("[::1]:9092",), "that is an address"),
        (Consumer, ("PLAINTEXT://host:9092,other:9092",), "that is an address"),
        (Consumer, (TopicPartition("clicks", 0),), "partitions are given to assign"),
        (Consumer, ([TopicPartition("clicks", 0)],), "partitions are given to assign"),
        (Consumer, (re.compile("clicks-.*"),), "consumer.subscribe(pattern='clicks-.*')"),
        (Consumer, (5,), 'topics are expected here, such as Consumer("clicks")'),
        (Consumer, (b"clicks",), "topics are expected here"),
        (Consumer, (["clicks", 5],), "topics are expected here"),
        (Consumer, ([],), "topics are expected here"),
        (Producer, (5,), 'Producer(bootstrap_servers="host:9092")'),
        (Producer, (b"host:9092",), 'Producer(bootstrap_servers="host:9092")'),
        (Producer, ([],), 'Producer(bootstrap_servers="host:9092")'),
        (Producer, ("clicks",), "each host:port"),
        (Admin, (object(),), 'Admin(bootstrap_servers="host:9092")'),
    ],
)
def test_what_has_no_clear_meaning_is_one_sentence(kind: Any, given: tuple[Any, ...], sentence: str) -> None:
    with pytest.raises(SettingsError) as refused:
        kind(*given)
    assert sentence in str(refused.value)
    assert "\n" not in str(refused.value)


def test_brokers_that_are_given_twice_are_refused() -> None:
    with pytest.raises(SettingsError, match="brokers are given twice"):
        Producer(NOWHERE, bootstrap_servers=NOWHERE)
