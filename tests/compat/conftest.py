from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.players import KafkaPlayer
from tests.oracles import missing


@pytest.fixture(scope="session")
def kafka() -> Iterator[KafkaPlayer]:
    """Kafka's own code, started once for all tests."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    player = KafkaPlayer()
    yield player
    player.close()
