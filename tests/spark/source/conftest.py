"""Readers that are stopped when their test is over, whatever its end."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas import Admin
from barnabas.spark.streaming import StreamReader
from barnabas.testing import EmbeddedBroker
from tests.spark.source.support import Readers, stream_reader


@pytest.fixture
def readers(broker: EmbeddedBroker) -> Iterator[Readers]:
    """Streaming readers by their options: `readers(subscribe="clicks")`."""
    made: list[StreamReader] = []

    def make(**options: object) -> StreamReader:
        made.append(stream_reader(broker, **options))
        return made[-1]

    yield make
    for reader in made:
        reader.stop()


@pytest.fixture
def admin(broker: EmbeddedBroker) -> Iterator[Admin]:
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        yield admin
