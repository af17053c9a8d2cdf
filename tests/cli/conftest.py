from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.cli import output
from barnabas.testing import EmbeddedBroker
from tests.cli import story
from tests.cli.tools import Tools
from tests.oracles.kafka_server import KafkaServer
from tests.ports import free_ports


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Tools:
    """The `barnabas` command, as a function."""
    return Tools(capsys)


@pytest.fixture
def unused_port() -> int:
    return free_ports(1)[0]


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody looks at what is printed."""
    monkeypatch.setattr(output, "has_colours", lambda stream: True)
    monkeypatch.setenv("TTY_COMPATIBLE", "1")
    monkeypatch.setenv("COLUMNS", "200")


@pytest.fixture(scope="package")
def our_node() -> Iterator[str]:
    """The address of a node of ours on which the story was played."""
    with EmbeddedBroker() as broker:
        story.play(broker.bootstrap_servers)
        yield broker.bootstrap_servers


@pytest.fixture(scope="package")
def apache_kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka that all tests here share, as its start takes longer than they do."""
    with KafkaServer(tmp_path_factory.mktemp("kafka")) as server:
        yield server.bootstrap
