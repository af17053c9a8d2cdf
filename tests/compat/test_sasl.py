"""Every mechanism with our node and with Apache Kafka, and the clients that have it: who is let in, and who is not."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker, OidcIssuer, Security
from tests.compat.brokers import unique
from tests.compat.our_client_peers import kafkajs_missing
from tests.compat.sasl_clients import CLIENTS, Login, java_tool
from tests.oracles import missing, needs_kafka, other_process
from tests.oracles.kafka_server import FORMAT, KafkaServer

USERS = {"admin": "admin-pw-7Qx", "ann": "sword.fish-7Qx"}
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SECURITY = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Place:
    """A broker that asks for SASL, and whose tokens it takes."""

    bootstrap: str
    issuer: OidcIssuer

    def login(self, mechanism: str, password: str = USERS["ann"]) -> Login:
        is_good = password == USERS["ann"]
        claims = {} if is_good else {"exp": 1}
        token = self.issuer.token("ann", **claims) if mechanism == "OAUTHBEARER" else None
        return Login(self.bootstrap, mechanism, "ann", password, token)


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    with OidcIssuer(USERS) as found:
        yield found


@pytest.fixture(scope="module")
def ours(issuer: OidcIssuer) -> Iterator[Place]:
    security = Security(USERS, issuer)
    with EmbeddedBroker(security=security, overrides={"delegation.token.secret.key": "token-key-7Qx"}) as broker:
        yield Place(broker.bootstrap_servers, issuer)


@pytest.fixture(scope="module")
def apache(issuer: OidcIssuer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    if missing() is not None:
        pytest.skip(str(missing()))
    folder = tmp_path_factory.mktemp("kafka")
    server = KafkaServer(folder, format_options=(*FORMAT, *_scram_options()))
    server._overrides |= _kafka_settings(server, issuer)
    os.environ["JAVA_TOOL_OPTIONS"] = f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url}"
    try:
        with server:
            yield Place(server.bootstrap, issuer)
    finally:
        del os.environ["JAVA_TOOL_OPTIONS"]


def _scram_options() -> list[str]:
    quoted = {name: each.replace("\\", "\\\\").replace('"', '\\"') for name, each in USERS.items()}
    return [
        word
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, password in quoted.items()
        for word in ("--add-scram", f'{mechanism}=[name={name},password="{password}"]')
    ]


def _kafka_settings(server: KafkaServer, issuer: OidcIssuer) -> dict[str, str]:
    found = dict(Security(USERS, issuer).settings("127.0.0.1", server._port, "127.0.0.1", server._controller_port))
    prefix = "listener.name.sasl_plaintext"
    # Java's properties have backslashes of their own.
    plain = f"{prefix}.plain.sasl.jaas.config"
    found[plain] = str(found[plain]).replace("\\", "\\\\")
    for mechanism in ("scram-sha-256", "scram-sha-512"):
        found[f"{prefix}.{mechanism}.sasl.jaas.config"] = f"{_SECURITY}.scram.ScramLoginModule required;"
    found |= {
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "advertised.listeners": f"SASL_PLAINTEXT://{server.bootstrap}",
    }
    return {name: str(value) for name, value in found.items()}


def _marked(name: str) -> object:
    return pytest.param(name, marks=other_process(kafkajs_missing())) if name == "kafkajs" else name


each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
each_client = pytest.mark.parametrize("client", [_marked(name) for name in CLIENTS])


@each_mechanism
@each_client
def test_clients_log_in_at_our_node(ours: Place, client: str, mechanism: str) -> None:
    name = "aio" if client == "ours-aio" else client
    assert CLIENTS[client](ours.login(mechanism), unique(client)) == f"from {name}"


@each_mechanism
@each_client
def test_our_node_refuses_what_is_wrong(ours: Place, client: str, mechanism: str) -> None:
    with pytest.raises(Exception) as refusal:  # noqa: PT011  (each client has kinds of its own)
        CLIENTS[client](ours.login(mechanism, "wrong-7Qx"), unique(client))
    assert not isinstance(refusal.value, AssertionError)
    assert "7Qx" not in str(refusal.value)


@needs_kafka()
@each_mechanism
@pytest.mark.parametrize("client", ["ours", "ours-aio"])
def test_our_clients_log_in_at_kafka(apache: Place, client: str, mechanism: str) -> None:
    assert CLIENTS[client](apache.login(mechanism), unique(client)) == f"from {client.removeprefix('ours-')}"


@needs_kafka()
@each_mechanism
def test_kafka_and_our_node_refuse_in_the_same_words(apache: Place, ours: Place, mechanism: str) -> None:
    told = []
    for place in (apache, ours):
        with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED") as refusal:
            CLIENTS["ours"](place.login(mechanism, "wrong-7Qx"), unique("refused"))
        told.append(str(refusal.value).replace(place.bootstrap, "broker"))
    assert told[0] == told[1]


@needs_kafka()
@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-512"])
def test_java_logs_in_at_our_node(ours: Place, mechanism: str, tmp_path: Path) -> None:
    login = Login(ours.bootstrap, mechanism, "admin", USERS["admin"])
    topic = unique("java")
    told = java_tool(
        tmp_path, login, login.properties, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic
    )
    assert f"Created topic {topic}." in told
    wrong = Login(ours.bootstrap, mechanism, "admin", "wrong-7Qx")
    with pytest.raises(RuntimeError, match="Authentication failed"):
        java_tool(tmp_path, wrong, wrong.properties, "org.apache.kafka.tools.TopicCommand", "--list")


@needs_kafka()
def test_java_logs_in_at_our_node_by_a_token_that_it_asks_for(ours: Place, tmp_path: Path) -> None:
    login = Login(ours.bootstrap, "OAUTHBEARER", "admin", USERS["admin"])
    properties = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "OAUTHBEARER",
        "sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required "
        f'clientId="admin" clientSecret="{USERS["admin"]}";',
        "sasl.login.callback.handler.class": f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler",
        "sasl.oauthbearer.token.endpoint.url": ours.issuer.token_url,
    }
    allowed = (f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={ours.issuer.token_url}",)
    tool = ("org.apache.kafka.tools.TopicCommand", "--list")
    assert java_tool(tmp_path, login, properties, *tool, options=allowed) is not None
