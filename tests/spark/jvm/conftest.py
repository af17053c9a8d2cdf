from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.oracles import missing
from tests.oracles.kafka_server import KafkaServer
from tests.spark.rig import sessions


@pytest.fixture(scope="package", autouse=True)
def _connector() -> None:
    """All tests here need the JVM connector."""
    reason = sessions.connector_missing()
    if reason is not None:
        pytest.skip(reason)


@pytest.fixture(scope="package")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka: for transactions, and because readers must not care whose broker it is."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    settings = {"transaction.state.log.num.partitions": "1", "log.cleaner.backoff.ms": "200"}
    with KafkaServer(tmp_path_factory.mktemp("kafka"), settings) as server:
        yield server.bootstrap
