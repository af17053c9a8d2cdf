"""A node of ours and an Apache Kafka with a listener of every kind that asks who is there, and conversations with them.

What a stranger sends is bytes; what is told of it is which answers came, as bytes, and whether the connection was
closed then.
"""

from __future__ import annotations

import socket
import ssl
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final, NamedTuple

from barnabas.base.sasl.mechanisms import Mechanism
from barnabas.base.sasl.scram import salted_password
from barnabas.testing.certificates import CertificateAuthority
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request
from barnabas.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    ScramCredentialUpsertion,
)
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest
from barnabas.wire.schema import default_of
from tests.compat.brokers import OVERRIDES, OurServer
from tests.oracles.kafka_server import FORMAT, KafkaServer
from tests.ports import free_ports

USERS: Final = {"node": "node-pw-7Qx~", "ann": "ann-pw-7Qx~"}
#: By name, what is spoken there; each asks for a password or for a certificate. The last two are the controllers'.
PROTOCOLS: Final = {
    "CLIENTS": "SASL_PLAINTEXT",
    "SECURED": "SASL_SSL",
    "CERTIFIED": "SSL",
    "CONTROLLERS": "SASL_PLAINTEXT",
    "CERTIFIEDCONTROLLERS": "SSL",
}
_CONTROLLERS: Final = ("CONTROLLERS", "CERTIFIEDCONTROLLERS")
_STORE_PASSWORD: Final = "store-pw-7Qx~"
_TIMEOUT_S: Final = 20
_SIZE: Final = struct.Struct(">i")


@dataclass(frozen=True)
class Place:
    """Where somebody listens, by the names of its listeners; and whose certificates are to be believed."""

    ports: dict[str, int]
    #: With the files of both sides in it.
    folder: Path
    context: ssl.SSLContext

    def connect_in_the_clear(self, listener: str) -> socket.socket:
        return socket.create_connection(("127.0.0.1", self.ports[listener]), timeout=_TIMEOUT_S)

    def connect(self, listener: str) -> socket.socket:
        raw = self.connect_in_the_clear(listener)
        if not PROTOCOLS[listener].endswith("SSL"):
            return raw
        return self.context.wrap_socket(raw, server_hostname="127.0.0.1")

    def showing(self, certificate: str) -> Place:
        """The same for who shows one of `CERTIFICATES`."""
        context = _context(self.folder)
        context.load_cert_chain(self.folder / f"{certificate}.pem")
        return replace(self, context=context)

    def speaking(self, version: ssl.TLSVersion) -> Place:
        """The same for who speaks no newer version, with the good certificate."""
        changed = self.showing("good")
        changed.context.set_ciphers("ALL:@SECLEVEL=0")
        changed.context.minimum_version = changed.context.maximum_version = version
        return changed


#: What a client may show, and whether it should be let in.
CERTIFICATES: Final = {"good": True, "expired": False, "early": False, "other": False}


def _context(folder: Path) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.load_verify_locations(folder / "ca.pem")
    return context


def _write_certificates(folder: Path, authority: CertificateAuthority) -> None:
    past, future = (datetime(year, 1, 1, tzinfo=UTC) for year in (2020, 2090))
    for name, issued in {
        "good": authority.issue("client"),
        "expired": authority.issue("client", starts=past, days=1),
        "early": authority.issue("client", starts=future, days=1),
        "other": CertificateAuthority.create("Another").issue("client"),
    }.items():
        (folder / f"{name}.pem").write_text(issued.pem)


def _settings(folder: Path, ports: dict[str, int]) -> dict[str, str]:
    authority = CertificateAuthority.create()
    _write_certificates(folder, authority)
    (folder / "ca.pem").write_text(authority.certificate_pem)
    (folder / "node.p12").write_bytes(authority.issue("node", ["127.0.0.1", "localhost"]).pkcs12(_STORE_PASSWORD))
    (folder / "trust.p12").write_bytes(authority.pkcs12(_STORE_PASSWORD))
    module = "org.apache.kafka.common.security"
    users = "".join(f' user_{name}="{password}"' for name, password in USERS.items())
    plain = f'{module}.plain.PlainLoginModule required username="node" password="{USERS["node"]}"{users};'
    found = {
        **OVERRIDES,
        "listeners": ",".join(f"{name}://127.0.0.1:{port}" for name, port in ports.items()),
        "advertised.listeners": ",".join(
            f"{name}://127.0.0.1:{port}" for name, port in ports.items() if name not in _CONTROLLERS
        ),
        "listener.security.protocol.map": ",".join(f"{name}:{protocol}" for name, protocol in PROTOCOLS.items()),
        "inter.broker.listener.name": "CLIENTS",
        "controller.listener.names": ",".join(_CONTROLLERS),
        "controller.quorum.voters": f"0@127.0.0.1:{ports['CONTROLLERS']}",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "ssl.keystore.location": str(folder / "node.p12"),
        "ssl.keystore.type": "PKCS12",
        "ssl.keystore.password": _STORE_PASSWORD,
        "ssl.key.password": _STORE_PASSWORD,
        "ssl.truststore.location": str(folder / "trust.p12"),
        "ssl.truststore.type": "PKCS12",
        "ssl.truststore.password": _STORE_PASSWORD,
        "ssl.client.auth": "required",
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node",
        "connection.failed.authentication.delay.ms": "0",
    }
    for listener in ("clients", "secured", "controllers"):
        found[f"listener.name.{listener}.plain.sasl.jaas.config"] = plain
        found[f"listener.name.{listener}.scram-sha-256.sasl.jaas.config"] = f"{module}.scram.ScramLoginModule required;"
    return found


def _prepared(folder: Path) -> tuple[dict[str, str], Place]:
    folder.mkdir(parents=True, exist_ok=True)
    ports = dict(zip(PROTOCOLS, free_ports(len(PROTOCOLS)), strict=True))
    settings = _settings(folder, ports)
    return settings, Place(ports, folder, _context(folder))


@contextmanager
def served(folder: Path) -> Iterator[tuple[Place, OurServer]]:
    """Our node, and its process."""
    settings, place = _prepared(folder)
    with OurServer(folder, settings) as server:
        _add_scram_user(place)
        yield place, server


@contextmanager
def ours(folder: Path) -> Iterator[Place]:
    with served(folder) as (place, _):
        yield place


def _add_scram_user(place: Place) -> None:
    """As `storage format --add-scram` does at a Kafka."""
    salt, iterations = b"0123456789abcdef", 4096
    user = ScramCredentialUpsertion(
        name="ann",
        mechanism=1,
        iterations=iterations,
        salt=salt,
        salted_password=salted_password(USERS["ann"], Mechanism.SCRAM_SHA_256, salt, iterations),
    )
    alter = AlterUserScramCredentialsRequest(deletions=[], upsertions=[user])
    told = converse(
        place,
        "CLIENTS",
        [
            framed(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1)),
            framed(request_frame(SaslAuthenticateRequest(auth_bytes=f"\0node\0{USERS['node']}".encode()), 2)),
            framed(request_frame(alter, 0)),
        ],
    )
    _, answer = decode_response(AlterUserScramCredentialsResponse, 0, told.answers[2])
    assert [each.error_code for each in answer.results] == [0]


@contextmanager
def kafkas(folder: Path) -> Iterator[Place]:
    settings, place = _prepared(folder)
    user = f"{Mechanism.SCRAM_SHA_256}=[name=ann,password={USERS['ann']}]"
    server = KafkaServer(folder, settings, (*FORMAT, "--add-scram", user))
    server._port = place.ports["CLIENTS"]
    with server:
        yield place


# Conversations


class Told(NamedTuple):
    """The answers, without their sizes, and whether the connection was closed then."""

    answers: list[bytes]
    is_closed: bool


def request_frame(request: Request, version: int) -> bytes:
    return b"".join(map(bytes, encode_request(request, version, 7, "stranger")))


def any_frame(key: ApiKey, version: int) -> bytes:
    """A request as plain as can be."""
    return request_frame(default_of(api(key).request), version)


def framed(data: bytes) -> bytes:
    return _SIZE.pack(len(data)) + data


def converse(
    place: Place, listener: str, frames: Sequence[bytes | Callable[[bytes], bytes]], *, wait_s: float = 5.0
) -> Told:
    """Send frames one after the other, each after the answer to the one before, of which it may be made."""
    answers: list[bytes] = []
    try:
        with place.connect(listener) as stream:
            stream.settimeout(wait_s)
            for frame in frames:
                stream.sendall(frame(answers[-1]) if callable(frame) else frame)
                answer = _answer(stream)
                if answer is None:
                    return Told(answers, True)
                answers.append(answer)
            stream.settimeout(0.2)
            try:
                return Told(answers, stream.recv(1) == b"")
            except TimeoutError:
                return Told(answers, False)
    except (ConnectionError, ssl.SSLError):
        return Told(answers, True)


def _answer(stream: socket.socket) -> bytes | None:
    """The next answer; None at the end."""
    data = b""
    while len(data) < _SIZE.size or len(data) < _SIZE.size + _SIZE.unpack_from(data)[0]:
        received = stream.recv(1 << 16)
        if not received:
            return None
        data += received
    return data[_SIZE.size :]
