from __future__ import annotations

import os
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.compat.brokers import OVERRIDES, serve
from tests.compat.players import KafkaPlayer
from tests.compat.transacting import require_transactions
from tests.oracles import missing
from tests.oracles.kafka_server import KafkaServer

if TYPE_CHECKING:
    from tests.compat.our_client_peers import JavaPeer, Peers


@pytest.fixture(scope="package")
def kafka() -> Iterator[KafkaPlayer]:
    """Kafka's own code, started once for all tests."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    player = KafkaPlayer()
    yield player
    player.close()


_BROKER_FOLDER = pytest.StashKey[Path]()


@pytest.fixture(scope="package")
def node(tmp_path_factory: pytest.TempPathFactory, pytestconfig: pytest.Config) -> Iterator[str]:
    """The address of the broker that the clients' tests talk to; `brokers` tells which one that is."""
    folder = pytestconfig.stash[_BROKER_FOLDER] = tmp_path_factory.mktemp("broker")
    yield from serve(folder)


def _node_is_kafka() -> bool:
    return os.environ.get("BARNABAS_COMPAT_BROKER") == "kafka"


@pytest.fixture(scope="package")
def apache_kafka(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of an Apache Kafka, for what our node does not do yet and for what must hold on both."""
    if _node_is_kafka():
        yield request.getfixturevalue("node")
        return
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    with KafkaServer(
        tmp_path_factory.mktemp("kafka"), {**OVERRIDES, "transaction.state.log.num.partitions": "2"}
    ) as it:
        yield it.bootstrap


@pytest.fixture(scope="package")
def java_peer() -> Iterator[JavaPeer]:
    """Java's clients, in one process for all tests."""
    from tests.compat.our_client_peers import JavaPeer

    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    peer = JavaPeer()
    yield peer
    peer.close()


def _peers(bootstrap: str, request: pytest.FixtureRequest) -> Iterator[Peers]:
    from tests.compat.our_client_peers import Peers

    found = Peers(bootstrap, lambda: request.getfixturevalue("java_peer"))
    yield found
    found.close()


@pytest.fixture(scope="package")
def peers(request: pytest.FixtureRequest, node: str) -> Iterator[Peers]:
    """All clients, ours and others', of the broker that tests talk to."""
    yield from _peers(node, request)


@pytest.fixture(scope="package")
def kafka_peers(request: pytest.FixtureRequest, apache_kafka: str) -> Iterator[Peers]:
    """The same for Apache Kafka."""
    yield from _peers(apache_kafka, request)


@pytest.fixture(scope="package")
def transacting(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The broker that tests talk to, if it has transactions. A Kafka is one with all that is new in them (v2)."""
    if _node_is_kafka():
        levels = ("--release-version", "4.0-IV3", "--feature", "group.version=0", "--feature", "transaction.version=2")
        with KafkaServer(tmp_path_factory.mktemp("transacting"), OVERRIDES, levels) as it:
            yield it.bootstrap
    else:
        yield require_transactions(request.getfixturevalue("node"))


@pytest.fixture(scope="package")
def transacting_peers(request: pytest.FixtureRequest, transacting: str) -> Iterator[Peers]:
    """All clients of that broker."""
    yield from _peers(transacting, request)


@pytest.fixture(scope="package", params=["node", "kafka"])
def both_peers(request: pytest.FixtureRequest) -> Peers:
    """First those of the one broker, then those of the other."""
    if request.param == "kafka" and _node_is_kafka():
        pytest.skip("the node is an Apache Kafka already")
    found: Peers = request.getfixturevalue("peers" if request.param == "node" else "kafka_peers")
    return found


#: Transactions v1 and v2, as a Kafka is formatted for them.
_TRANSACTION_LEVELS = {
    "v1": ("--release-version", "4.0-IV3", "--feature", "transaction.version=0"),
    "v2": ("--release-version", "4.0-IV3", "--feature", "transaction.version=2"),
}


@pytest.fixture(scope="package", params=list(_TRANSACTION_LEVELS))
def both_transaction_versions(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Peers, int]]:
    """The clients of an Apache Kafka with transactions of the one kind, then of the other, and which."""
    reason = missing()
    if reason is not None:
        pytest.skip(reason)
    overrides = {
        **OVERRIDES,
        "transaction.state.log.num.partitions": "2",
        "transaction.max.timeout.ms": "100000",
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": "200",
    }
    folder = tmp_path_factory.mktemp(f"kafka-{request.param}")
    with KafkaServer(folder, overrides, _TRANSACTION_LEVELS[request.param]) as it:
        for each in _peers(it.bootstrap, request):
            yield each, int(request.param[1:])


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """A client's failure says little without the broker's side of the story."""
    report = yield
    if report.failed and isinstance(item, pytest.Function) and "node" in item.fixturenames:
        folder = item.config.stash.get(_BROKER_FOLDER, None)
        for log in sorted(folder.glob("*.log")) if folder else ():
            report.sections.append((log.name, log.read_text(errors="replace")[-4000:]))
    return report
