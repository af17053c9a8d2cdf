"""Methods by the names of other clients: the error says what to write here."""

from __future__ import annotations

from typing import Any

import aiokafka
import aiokafka.admin
import confluent_kafka
import confluent_kafka.admin
import kafka
import kafka.admin
import pytest

from barnabas import Admin, BrokerError, ConfigResource, ConfigResourceType, Consumer, Producer, aio
from barnabas.client.admin import NewTopic
from barnabas.client.other_methods import ADMIN_METHODS, CONSUMER_METHODS, PRODUCER_METHODS
from barnabas.testing import EmbeddedBroker

NOWHERE = "127.0.0.1:1"
#: What nobody needs to replace, or nothing here does.
LEFT_OUT = {
    *("bootstrap", "bootstrap_connected", "cluster_id", "set_sasl_credentials", "purge", "max_usable_produce_magic"),
    *("last_poll_timestamp", "last_stable_offset", "api_versions", "get_broker_version_data", "wait_for_topics"),
    *("find_coordinator", "find_hanging_transactions", "reset_configs", "reset_group_offsets"),
    "describe_topic_partitions",
}

KINDS: list[tuple[type[Any], Any, Any]] = [
    (Producer, PRODUCER_METHODS, (kafka.KafkaProducer, aiokafka.AIOKafkaProducer, confluent_kafka.Producer)),
    (Consumer, CONSUMER_METHODS, (kafka.KafkaConsumer, aiokafka.AIOKafkaConsumer, confluent_kafka.Consumer)),
    (
        Admin,
        ADMIN_METHODS,
        (
            kafka.admin.KafkaAdminClient,
            aiokafka.admin.AIOKafkaAdminClient,
            confluent_kafka.admin.AdminClient,
        ),
    ),
]


@pytest.mark.parametrize(("ours", "hints", "theirs"), KINDS, ids=["producer", "consumer", "admin"])
def test_every_method_of_the_others_is_there_or_has_a_hint(ours: type[Any], hints: Any, theirs: Any) -> None:
    public = {name for each in theirs for name in dir(each) if name.islower() and not name.startswith("_")}
    there = {name for name in dir(ours) if hasattr(ours, name)}
    assert public - there - set(hints) - LEFT_OUT == set()
    assert not set(hints) & there, "a hint for what is there"


def test_the_error_says_what_to_write() -> None:
    with Producer(NOWHERE) as producer:
        client: Any = producer
        with pytest.raises(AttributeError, match=r"'Producer' .* no attribute 'produce'; .*: send\(topic, value"):
            client.produce("t", b"v")
        with pytest.raises(AttributeError, match=r"'Producer' object has no attribute 'nonsense'$"):
            client.nonsense()
        assert not hasattr(client, "poll")
    with Consumer(bootstrap_servers=NOWHERE) as consumer, pytest.raises(AttributeError, match=r"getone: poll\("):
        consumer.getone()  # type: ignore[attr-defined]
    with Admin(NOWHERE) as admin, pytest.raises(AttributeError, match=r"list_groups\(\)"):
        admin.list_consumer_groups()  # type: ignore[attr-defined]
    for each in (aio.Producer(NOWHERE), aio.Consumer(bootstrap_servers=NOWHERE)):
        assert hasattr(each, "start"), "those with asyncio have it"
        with pytest.raises(AttributeError, match=r"stop: close\(\)"):
            each.stop()  # type: ignore[union-attr]


@pytest.mark.parametrize("ours", [Producer, Consumer, Admin, aio.Producer, aio.Consumer, aio.Admin])
def test_hints_cost_those_nothing_who_need_none(ours: type[Any]) -> None:
    """`__getattr__` would slow down every look at an attribute, and `send` is one for each record."""
    assert not hasattr(ours, "__getattr__")


def test_who_looks_around_or_adds_a_method_does_not_meet_them() -> None:
    class Compatible(Producer):
        def produce(self, topic: str, value: bytes) -> None:
            self.send(topic, value)

    with Compatible(NOWHERE) as producer:
        assert "send" in dir(producer)
        assert "produce" in dir(producer)
        assert "poll" not in dir(producer)
        assert producer.produce.__name__ == "produce"


def test_one_thing_in_the_place_of_a_list_is_explained() -> None:
    with Admin(NOWHERE) as admin:
        lone: list[tuple[str, Any]] = [
            ("create_topics", NewTopic("t")),
            ("describe_topics", "t"),
            ("delete_topics", 5),
        ]
        for call, argument in lone:
            with pytest.raises(TypeError, match=r"a list is expected, such as \["):
                getattr(admin, call)(argument)
        with pytest.raises(TypeError, match=r"a list is expected, such as \[ConfigResource"):
            admin.describe_configs(ConfigResource(ConfigResourceType.TOPIC, "t"))  # type: ignore[arg-type]
        wrong: Any = ConfigResource("topic", "t")  # type: ignore[arg-type]
        with pytest.raises(TypeError, match=r"ConfigResource\(ConfigResourceType.TOPIC"):
            admin.describe_configs([wrong])
        with pytest.raises(TypeError, match=r"ConfigResource\(ConfigResourceType.TOPIC"):
            admin.alter_configs({wrong: []})


def test_a_pattern_by_confluents_habit_is_explained() -> None:
    with Consumer(bootstrap_servers=NOWHERE) as consumer:
        with pytest.raises(ValueError, match=r"subscribe\(pattern='\^click"):
            consumer.subscribe(["^click.*"])
        consumer.subscribe(pattern="^click.*")


def test_numbers_of_types_still_do() -> None:
    with EmbeddedBroker() as broker, Admin(broker.bootstrap_servers) as admin:
        topic: Any = ConfigResource(2, "t")  # type: ignore[arg-type]
        with pytest.raises(BrokerError, match="there is no topic t"):
            admin.describe_configs([topic])
