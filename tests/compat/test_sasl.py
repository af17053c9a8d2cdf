"""Every mechanism with our node and with Apache Kafka, and the clients that have it: who is let in, and who is not."""

from __future__ import annotations

import asyncio
import os
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.sasl import Mechanism
from barnabas.base.sasl.tokens import token_hmac
from barnabas.base.system_runtime import new_randomness
from barnabas.net import Channel
from barnabas.net.sasl_client import PasswordLogin
from barnabas.net.security import ChannelSecurity
from barnabas.testing import EmbeddedBroker, OidcIssuer, Security
from barnabas.wire.message import Request
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from barnabas.wire.messages.describe_delegation_token import DescribeDelegationTokenRequest
from barnabas.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest, UserName
from barnabas.wire.messages.expire_delegation_token import ExpireDelegationTokenRequest
from barnabas.wire.messages.renew_delegation_token import RenewDelegationTokenRequest
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.schema import Struct
from tests.compat.brokers import unique
from tests.compat.our_client_peers import kafkajs_missing
from tests.compat.sasl_clients import CLIENTS, Login, java_tool
from tests.oracles import missing, needs_kafka, other_process
from tests.oracles.kafka_server import FORMAT, KafkaServer

USERS = {"admin": "admin-pw-7Qx~", "ann": "sword.fish-7Qx~"}
TOKEN_KEY = "token-key-7Qx~"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
_SECURITY = "org.apache.kafka.common.security"


@dataclass(frozen=True)
class Place:
    """A broker that asks for SASL, and whose tokens it takes."""

    bootstrap: str
    issuer: OidcIssuer

    def login(self, mechanism: str, password: str = USERS["ann"]) -> Login:
        is_good = password == USERS["ann"]
        claims: dict[str, Any] = {} if is_good else {"exp": 1}
        token = self.issuer.token("ann", **claims) if mechanism == "OAUTHBEARER" else None
        return Login(self.bootstrap, mechanism, "ann", password, token)


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    with OidcIssuer(USERS) as found:
        yield found


@pytest.fixture(scope="module")
def ours(issuer: OidcIssuer) -> Iterator[Place]:
    security = Security(USERS, issuer)
    with EmbeddedBroker(security=security, overrides={"delegation.token.secret.key": TOKEN_KEY}) as broker:
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
        "delegation.token.secret.key": TOKEN_KEY,
        "group.initial.rebalance.delay.ms": "0",
        "advertised.listeners": f"SASL_PLAINTEXT://{server.bootstrap}",
    }
    return {name: str(value) for name, value in found.items()}


def _marked(name: str) -> object:
    return pytest.param(name, marks=other_process(kafkajs_missing())) if name == "kafkajs" else name


each_mechanism = pytest.mark.parametrize("mechanism", MECHANISMS)
#: Of which one is enough for every day.
_EVERY_DAY = "SCRAM-SHA-512"
some_mechanisms = pytest.mark.parametrize(
    "mechanism", [each if each == _EVERY_DAY else pytest.param(each, marks=pytest.mark.slow) for each in MECHANISMS]
)
#: kafka-python does not tell that it was refused: it tries until its time is up.
each_client_that_tells = pytest.mark.parametrize(
    "client",
    [pytest.param(name, marks=pytest.mark.slow) if name == "kafka-python" else _marked(name) for name in CLIENTS],
)


def _clients_by_mechanisms() -> list[Any]:
    """Each client with each mechanism; every day ours with each, and the others with one."""
    found = []
    for client, mechanism in product(CLIENTS, MECHANISMS):
        marks = [other_process(kafkajs_missing())] if client == "kafkajs" else []
        if not client.startswith("ours") and mechanism != _EVERY_DAY:
            marks.append(pytest.mark.slow)
        found.append(pytest.param(client, mechanism, marks=marks))
    return found


@pytest.mark.parametrize(("client", "mechanism"), _clients_by_mechanisms())
def test_clients_log_in_at_our_node(ours: Place, client: str, mechanism: str) -> None:
    name = "aio" if client == "ours-aio" else client
    assert CLIENTS[client](ours.login(mechanism), unique(client)) == f"from {name}"


@some_mechanisms
@each_client_that_tells
def test_our_node_refuses_what_is_wrong(ours: Place, client: str, mechanism: str) -> None:
    with pytest.raises(Exception) as refusal:  # noqa: PT011  (each client has kinds of its own)
        CLIENTS[client](ours.login(mechanism, "wrong-7Qx~"), unique(client))
    assert not isinstance(refusal.value, AssertionError)
    assert "7Qx~" not in str(refusal.value)


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
            CLIENTS["ours"](place.login(mechanism, "wrong-7Qx~"), unique("refused"))
        told.append(str(refusal.value).replace(place.bootstrap, "broker"))
    assert told[0] == told[1]


@needs_kafka()
@pytest.mark.parametrize("mechanism", [pytest.param("PLAIN", marks=pytest.mark.slow), "SCRAM-SHA-512"])
def test_java_logs_in_at_our_node(ours: Place, mechanism: str, tmp_path: Path) -> None:
    login = Login(ours.bootstrap, mechanism, "admin", USERS["admin"])
    topic = unique("java")
    told = java_tool(
        tmp_path, login, login.properties, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", topic
    )
    assert f"Created topic {topic}." in told
    wrong = Login(ours.bootstrap, mechanism, "admin", "wrong-7Qx~")
    with pytest.raises(RuntimeError, match="Authentication failed"):
        java_tool(tmp_path, wrong, wrong.properties, "org.apache.kafka.tools.TopicCommand", "--list")


@needs_kafka()
@pytest.mark.slow
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


def _upsertion(name: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=b"salted" * 5
    )


def _questions(secret: bytes) -> list[Request]:
    """About users and tokens, right and wrong, in an order in which each finds what the last one left."""
    users = [UserName(name=name) for name in ("new", "ann", "nobody", "twice", "twice", "")]
    return [
        AlterUserScramCredentialsRequest(
            deletions=[
                ScramCredentialDeletion(name="nobody", mechanism=1),
                ScramCredentialDeletion(name="both", mechanism=1),
                ScramCredentialDeletion(name="", mechanism=1),
            ],
            upsertions=[
                _upsertion("new"),
                _upsertion("both"),
                _upsertion("twice"),
                _upsertion("twice", mechanism=2),
                _upsertion("weak", iterations=4095),
                _upsertion("strong", iterations=16385),
                _upsertion("odd", mechanism=3),
            ],
        ),
        DescribeUserScramCredentialsRequest(users=users),
        DescribeUserScramCredentialsRequest(users=None),
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="new", mechanism=1)], upsertions=[]),
        DescribeUserScramCredentialsRequest(users=[]),
        RenewDelegationTokenRequest(hmac=b"unknown", renew_period_ms=-1),
        ExpireDelegationTokenRequest(hmac=b"unknown", expiry_time_period_ms=-1),
        CreateDelegationTokenRequest(
            renewers=[CreatableRenewers(principal_type="Robot", principal_name="x")],
            max_lifetime_ms=-1,
            owner_principal_type=None,
            owner_principal_name=None,
        ),
        DescribeDelegationTokenRequest(owners=[]),
        DescribeDelegationTokenRequest(owners=None),
        ExpireDelegationTokenRequest(hmac=secret, expiry_time_period_ms=-1),
        DescribeDelegationTokenRequest(owners=None),
        SaslHandshakeRequest(mechanism="PLAIN"),
        SaslAuthenticateRequest(auth_bytes=b""),
    ]


_CHANGES = (AlterUserScramCredentialsRequest, ExpireDelegationTokenRequest)


async def _answers(place: Place) -> list[Any]:
    login = PasswordLogin(Mechanism.PLAIN, "ann", USERS["ann"], new_randomness())
    host, _, port = place.bootstrap.rpartition(":")
    channel = Channel(host, int(port), client_id="duel", randomness=new_randomness(), security=ChannelSecurity(login))
    try:
        bob = [CreatableRenewers(principal_type="User", principal_name="bob")]
        asked = CreateDelegationTokenRequest(
            renewers=bob, max_lifetime_ms=60_000, owner_principal_type=None, owner_principal_name=None
        )
        token = await channel.request(asked)
        assert token.error_code == 0
        assert token.hmac == token_hmac(TOKEN_KEY, token.token_id)
        assert token.max_timestamp_ms - token.issue_timestamp_ms == 60_000
        # What a broker was told a moment ago another part of it may not know yet.
        await asyncio.sleep(0.3)
        answers: list[Any] = []
        for question in _questions(token.hmac):
            answers.append(await channel.request(question))
            if isinstance(question, _CHANGES):
                await asyncio.sleep(0.3)
        return answers
    finally:
        await channel.close()


def _plain(answer: Any) -> Any:
    """An answer without what differs each time, and with its lists in one order: Kafka's are in that of a hash map."""
    if isinstance(answer, Struct):
        names = [each.name for each in answer.FIELDS]
        found = {name: _plain(getattr(answer, name)) for name in names if hasattr(answer, name)}
        changing = ("token_id", "hmac", "issue_timestamp", "expiry_timestamp", "max_timestamp", "throttle_time_ms")
        kept = {name: value for name, value in found.items() if name not in changing}
        return {
            name: "a time" if name.endswith("_timestamp_ms") and value > 0 else value for name, value in kept.items()
        }
    return sorted(map(_plain, answer), key=str) if isinstance(answer, list) else answer


@needs_kafka()
def test_answers_about_users_and_tokens_are_kafkas(apache: Place, ours: Place) -> None:
    theirs, own = asyncio.run(_answers(apache)), asyncio.run(_answers(ours))
    for question, expected, found in zip(_questions(b""), theirs, own, strict=True):
        assert (question, _plain(found)) == (question, _plain(expected))
