"""One broker for a file of tests; those that break it make their own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest

from barnabas.testing import EmbeddedBroker

_numbers = count(1)


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    with EmbeddedBroker(group_min_session_timeout_ms=100, group_initial_rebalance_delay_ms=0) as running:
        yield running


@pytest.fixture(autouse=True)
def _without_old_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "broker" in request.fixturenames:
        request.getfixturevalue("broker").faults.clear()


@pytest.fixture
def topic(broker: EmbeddedBroker) -> str:
    name = f"topic-{next(_numbers)}"
    broker.create_topic(name)
    return name


@pytest.fixture
def make_topic(broker: EmbeddedBroker) -> Callable[..., str]:
    def make(partitions: int = 1, **config: Any) -> str:
        name = f"topic-{next(_numbers)}"
        broker.create_topic(name, partitions, **config)
        return name

    return make
