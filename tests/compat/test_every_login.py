"""Every mechanism, with TLS and without, at our node and at Apache Kafka, by every client that has it.

python -m pytest -m slow tests/compat/test_every_login.py
python -m tests.compat.test_every_login                     # prints which cells there are
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, Final

import pytest

from barnabas.base.properties import format_properties
from barnabas.testing import EmbeddedBroker, OidcIssuer, Security
from tests.compat.brokers import unique
from tests.compat.our_client_peers import kafkajs_missing
from tests.compat.sasl_clients import CLIENTS, Login
from tests.oracles import java_program, missing, other_process
from tests.oracles.kafka_server import FORMAT, KafkaServer

USERS: Final = {"admin": "admin-pw-7Qx~", "ann": "sword.fish-7Qx~"}
MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")
SERVERS: Final = ("barnabas", "kafka")
PROTOCOLS: Final = ("SASL_PLAINTEXT", "SASL_SSL")
_SECURITY: Final = "org.apache.kafka.common.security"
_JAVA: Final = Path(__file__).parent / "JavaLogin.java"


@dataclass(frozen=True)
class Place:
    """A broker that asks for SASL, and what its clients need."""

    bootstrap: str
    issuer: OidcIssuer
    ca: str | None
    java: Callable[[str], str]

    def login(self, mechanism: str) -> Login:
        token = self.issuer.token("ann") if mechanism == "OAUTHBEARER" else None
        return Login(self.bootstrap, mechanism, "ann", USERS["ann"], token, self.ca)


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    with OidcIssuer(USERS) as found:
        yield found


@pytest.fixture(scope="module")
def place(
    request: pytest.FixtureRequest, issuer: OidcIssuer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Place]:
    server, protocol = request.param
    folder = tmp_path_factory.mktemp(f"{server}-{protocol}")
    security = Security(USERS, issuer, tls=protocol == "SASL_SSL")
    ca = None
    if security.is_encrypted:
        (folder / "ca.pem").write_text(security.ca_pem)
        ca = str(folder / "ca.pem")
    with running(server, security, folder) as bootstrap:
        known: dict[str, str] = {}

        def by_java(mechanism: str) -> str:
            """One program tries all, since it takes long to start."""
            if not known:
                known.update(zip(MECHANISMS, java_logins(bootstrap, security), strict=True))
            return known[mechanism]

        yield Place(bootstrap, issuer, ca, by_java)


class running:  # noqa: N801  (read as a word: with running(…))
    """Our node or Kafka, with these users."""

    def __init__(self, server: str, security: Security, folder: Path) -> None:
        self._ours = EmbeddedBroker(security=security) if server == "barnabas" else None
        if self._ours is None and missing() is not None:
            pytest.skip(str(missing()))
        self._kafka = None if self._ours is not None else kafka_server(security, folder)
        self._issuer = security.issuer

    def __enter__(self) -> str:
        if self._ours is not None:
            self._ours.start()
            return self._ours.bootstrap_servers
        assert self._kafka is not None
        assert self._issuer is not None
        os.environ["JAVA_TOOL_OPTIONS"] = allowed(self._issuer)
        self._kafka.start()
        return self._kafka.bootstrap

    def __exit__(self, *_: object) -> None:
        os.environ.pop("JAVA_TOOL_OPTIONS", None)
        (self._ours or self._kafka).stop()  # type: ignore[union-attr]


def allowed(issuer: OidcIssuer) -> str:
    """Java asks no address that it was not told to trust."""
    return f"-Dorg.apache.kafka.sasl.oauthbearer.allowed.urls={issuer.jwks_url},{issuer.token_url}"


class SecuredKafka(KafkaServer):
    """One that is there when its port takes connections: it answers nobody who speaks no TLS."""

    def _wait_until_it_answers(self) -> None:
        import socket
        import time

        deadline_s = time.monotonic() + 60
        while time.monotonic() < deadline_s:
            assert self._process is not None
            assert self._process.poll() is None, self.log_tail()
            try:
                socket.create_connection(("127.0.0.1", self._port), 2).close()
            except OSError:
                time.sleep(0.1)
            else:
                return
        raise AssertionError(self.log_tail())


def kafka_server(security: Security, folder: Path) -> KafkaServer:
    users = [
        word
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for name, password in USERS.items()
        for word in ("--add-scram", f"{mechanism}=[name={name},password={password}]")
    ]
    server = SecuredKafka(folder, format_options=(*FORMAT, *users))
    prefix = f"listener.name.{security.protocol.lower()}"
    found = security.settings("127.0.0.1", server._port, "127.0.0.1", server._controller_port)
    found |= {f"{prefix}.{each}.sasl.jaas.config": f"{_SECURITY}.scram.ScramLoginModule required;"
              for each in ("scram-sha-256", "scram-sha-512")}  # fmt: skip
    found |= {
        f"{prefix}.oauthbearer.sasl.jaas.config": f"{_SECURITY}.oauthbearer.OAuthBearerLoginModule required;",
        f"{prefix}.oauthbearer.sasl.server.callback.handler.class": (
            f"{_SECURITY}.oauthbearer.OAuthBearerValidatorCallbackHandler"
        ),
        "group.initial.rebalance.delay.ms": "0",
        "advertised.listeners": f"{security.protocol}://{server.bootstrap}",
    }
    # Java's properties have backslashes of their own, and no values of several lines.
    plain = {name: str(value).replace("\\", "\\\\").replace("\n", "\\n") for name, value in found.items()}
    server._overrides |= plain
    return server


def java_logins(bootstrap: str, security: Security) -> list[str]:
    """What Java's clients read with each mechanism, or what they were told."""
    assert security.issuer is not None
    parts = []
    for mechanism in MECHANISMS:
        given = {"bootstrap.servers": bootstrap, "topic": unique("java"), **security.properties("ann", mechanism)}
        if mechanism == "OAUTHBEARER":
            given["sasl.login.callback.handler.class"] = f"{_SECURITY}.oauthbearer.OAuthBearerLoginCallbackHandler"
        parts.append(format_properties(given))
    environment = os.environ | {"JAVA_TOOL_OPTIONS": allowed(security.issuer)}
    done = subprocess.run(
        java_program(str(_JAVA)),
        input="\n----\n".join(parts),
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=200,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return done.stdout.strip().splitlines()


def cells() -> Iterator[tuple[str, str, str, str]]:
    """All of them: server, protocol, client, mechanism."""
    yield from product(SERVERS, PROTOCOLS, (*CLIENTS, "java"), MECHANISMS)


def _marked(server: str, protocol: str, client: str, mechanism: str) -> Any:
    marks = [other_process(kafkajs_missing())] if client == "kafkajs" else [other_process()]
    marks.append(pytest.mark.slow)
    return pytest.param(
        (server, protocol), client, mechanism, marks=marks, id=f"{server}-{protocol}-{client}-{mechanism}"
    )


@pytest.mark.parametrize(("place", "client", "mechanism"), [_marked(*each) for each in cells()], indirect=["place"])
def test_who_logs_in_writes_and_reads(place: Place, client: str, mechanism: str) -> None:
    if client == "java":
        if missing() is not None:
            pytest.skip(str(missing()))
        assert place.java(mechanism) == "from java"
        return
    login = place.login(mechanism)
    told = CLIENTS[client](login, unique(client))
    assert told == f"from {client.removeprefix('ours-')}"
    wrong = replace(
        login, password="wrong-7Qx~", token=None if login.token is None else place.issuer.token("ann", exp=1)
    )
    if client in ("ours", "ours-aio"):
        with pytest.raises(Exception, match="SASL_AUTHENTICATION_FAILED"):
            CLIENTS[client](wrong, unique(client))


if __name__ == "__main__":
    for server, protocol, client, mechanism in cells():
        print(f"{server:<10} {protocol:<15} {client:<13} {mechanism}")  # noqa: T201
