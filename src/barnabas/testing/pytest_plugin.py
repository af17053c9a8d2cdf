"""Fixtures for pytest, there for everybody who has the package installed.

- `barnabas_broker`: a broker in memory, one for the whole run;
- `barnabas_bootstrap`: its address, for `bootstrap.servers`;
- `barnabas_topic`: the name of a fresh topic, for one test;
- `barnabas_settings`: override it in a `conftest.py` to give the broker settings, by Kafka's names;
- `barnabas_secured_broker`: a broker with TLS, users, rules and an issuer of tokens, one for the whole run;
- `barnabas_security`: override it for other users, or without some of that;
- `barnabas_cluster`: a cluster of three nodes in memory, for one test, which may kill them;
- `barnabas_cluster_nodes`, `barnabas_cluster_settings`: override them for another number, or for settings.

Nothing but pytest is imported until a test asks for one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from itertools import count
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from barnabas.testing.embedded import EmbeddedBroker
    from barnabas.testing.embedded_cluster import EmbeddedCluster
    from barnabas.testing.security import Security

_MAX_NAME_LENGTH = 200


@pytest.fixture(scope="session")
def barnabas_settings() -> Mapping[str, object]:
    """Settings of the session's broker, by Kafka's names."""
    return {}


@pytest.fixture(scope="session")
def barnabas_broker(barnabas_settings: Mapping[str, object]) -> Iterator[EmbeddedBroker]:
    """A broker in memory, for the whole run."""
    from barnabas.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(overrides=barnabas_settings) as broker:
        yield broker


@pytest.fixture(scope="session")
def barnabas_bootstrap(barnabas_broker: EmbeddedBroker) -> str:
    """`host:port` of the session's broker."""
    return barnabas_broker.bootstrap_servers


@pytest.fixture(scope="session")
def _barnabas_topic_numbers() -> Iterator[int]:
    return count(1)


@pytest.fixture
def barnabas_topic(
    request: pytest.FixtureRequest, barnabas_broker: EmbeddedBroker, _barnabas_topic_numbers: Iterator[int]
) -> str:
    """A topic with one partition that no other test uses, named after the test."""
    name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:_MAX_NAME_LENGTH]
    topic = f"{name}-{next(_barnabas_topic_numbers)}"
    barnabas_broker.create_topic(topic)
    return topic


@pytest.fixture(scope="session")
def barnabas_security() -> Security:
    """What `barnabas_secured_broker` asks of its clients."""
    from barnabas.testing.security import Security

    users = {"admin": "admin-secret", "ann": "ann-secret", "bob": "bob-secret"}
    return Security(users, tls=True, oidc=True, super_users=["admin"])


@pytest.fixture(scope="session")
def barnabas_secured_broker(
    barnabas_settings: Mapping[str, object], barnabas_security: Security
) -> Iterator[EmbeddedBroker]:
    """A broker in memory that asks who is there, for the whole run."""
    from barnabas.testing.embedded import EmbeddedBroker

    with EmbeddedBroker(overrides=barnabas_settings, security=barnabas_security) as broker:
        yield broker


@pytest.fixture
def barnabas_cluster_nodes() -> int:
    """How many nodes the test's cluster has."""
    return 3


@pytest.fixture
def barnabas_cluster_settings() -> Mapping[str, object]:
    """Settings of the nodes of the test's cluster, by Kafka's names."""
    return {}


@pytest.fixture
def barnabas_cluster(
    barnabas_cluster_nodes: int, barnabas_cluster_settings: Mapping[str, object]
) -> Iterator[EmbeddedCluster]:
    """A cluster in memory, for one test: what the test does to its nodes, no other test sees."""
    from barnabas.testing.embedded_cluster import EmbeddedCluster

    with EmbeddedCluster(barnabas_cluster_nodes, overrides=barnabas_cluster_settings) as cluster:
        yield cluster
