"""Tests of code that needs Kafka: the fixtures come with the package, and start a real broker in the tests' process.

python -m pytest examples/test_with_a_broker.py
"""

import json

from barnabas import Consumer, ErrorCode, Producer
from barnabas.testing import EmbeddedBroker
from barnabas.wire import ApiKey


class Till:
    """What is to be tested. It may use any Kafka client: the broker is a real one, on a real port."""

    def __init__(self, bootstrap_servers: str, topic: str) -> None:
        self._producer = Producer(bootstrap_servers=bootstrap_servers, value_serializer="json")
        self._topic = topic

    def sell(self, what: str, cents: int) -> None:
        self._producer.send(self._topic, {"what": what, "cents": cents})

    def close(self) -> None:
        self._producer.close()


def sold(bootstrap_servers: str, topic: str) -> list[str]:
    with Consumer(topic, bootstrap_servers=bootstrap_servers, auto_offset_reset="earliest") as consumer:
        return [json.loads(record.value)["what"] for record in consumer.poll(timeout=30)]


def test_a_sale_is_written(barnabas_bootstrap: str, barnabas_topic: str) -> None:
    # `barnabas_topic` is a fresh topic for each test, so that tests do not see each other's records.
    till = Till(barnabas_bootstrap, barnabas_topic)
    till.sell("coffee", 250)
    till.close()
    assert sold(barnabas_bootstrap, barnabas_topic) == ["coffee"]


def test_a_sale_is_written_once_though_the_broker_stumbles(
    barnabas_broker: EmbeddedBroker, barnabas_bootstrap: str, barnabas_topic: str
) -> None:
    # The next two Produce requests fail: one with an error that may be tried again, one with a cut connection.
    barnabas_broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    barnabas_broker.faults.fail_next(ApiKey.PRODUCE, close=True)
    till = Till(barnabas_bootstrap, barnabas_topic)
    till.sell("tea", 200)
    till.close()
    assert barnabas_broker.faults.pending == 0  # both were met
    assert sold(barnabas_bootstrap, barnabas_topic) == ["tea"]
