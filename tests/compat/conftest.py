from __future__ import annotations

from collections.abc import Generator, Iterator
from pathlib import Path

import pytest

from tests.compat.brokers import serve
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


_BROKER_FOLDER = pytest.StashKey[Path]()


@pytest.fixture(scope="session")
def node(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of the broker that the clients' tests talk to; `brokers` tells which one that is."""
    folder = pytestconfig.stash[_BROKER_FOLDER] = tmp_path_factory.mktemp("broker")
    yield from serve(folder)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A client's failure says little without the broker's side of the story."""
    report = yield
    if report.failed and isinstance(item, pytest.Function) and "node" in item.fixturenames:
        folder = item.config.stash.get(_BROKER_FOLDER, None)
        for log in sorted(folder.glob("*.log")) if folder else ():
            report.sections.append((log.name, log.read_text(errors="replace")[-4000:]))
    return report
