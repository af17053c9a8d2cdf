"""Faults of other systems in which somebody came in, or kept a broker busy: what must hold, and the fault planted.

Each check passes on this tree and must fail with every fault that is planted for it: so none of them looks away.
"""

from __future__ import annotations

import asyncio
import hmac
import json
import sys
import tracemalloc
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any, Final
from unittest.mock import patch

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import Uuid
from barnabas.base.sasl import Authenticated, Mechanism, SaslError, plain, scram
from barnabas.base.sasl import jwt as tokens
from barnabas.base.sasl.jwt import JwtValidator, NoKeysError, TokenRules, keys_of
from barnabas.base.sasl.oauthbearer import TokenRefusedError
from barnabas.base.sasl.plain import PlainServer, verify_among
from barnabas.base.sasl.scram import ScramClient, ScramCredential, ScramLogin, ScramServer
from barnabas.base.sasl.scram_messages import ClientFirst, base64_text
from barnabas.metadata.access_images import AclsImage, StandardAcl
from barnabas.metadata.authorizer import AclOperation, AclPermissionType, PatternType, Resource
from barnabas.metadata.standard_authorizer import StandardAuthorizer
from barnabas.net.connection import Connection
from barnabas.testing.oidc import OidcIssuer
from barnabas.wire import decoder_source
from barnabas.wire.decoder_source import MAX_ELEMENTS, MAX_TAGS, DecoderSource
from barnabas.wire.message import Message
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from tests.net.test_sasl_phase import World
from tests.net.worlds import run_simulated

Plant = Callable[[], AbstractContextManager[Any]]


@dataclass(frozen=True, slots=True)
class KnownFault:
    """What must hold, by the names of the faults; and the ways in which it was otherwise elsewhere."""

    check: Callable[[], None]
    plants: dict[str, Plant] = field(default_factory=dict)

    def planted(self, plant: Plant) -> Plant:
        self.plants[plant.__name__] = plant
        return plant


KNOWN: Final[dict[str, KnownFault]] = {}


def known(names: str) -> Callable[[Callable[[], None]], KnownFault]:
    def register(check: Callable[[], None]) -> KnownFault:
        KNOWN[names] = KnownFault(check)
        return KNOWN[names]

    return register


# Tokens without keys


def _unsigned(header: Mapping[str, Any], claims: Mapping[str, Any], signature: str) -> str:
    parts = (urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims))
    return ".".join((*parts, signature))


@known("CVE-2026-110985, CVE-2026-33557")
def token_validator() -> None:
    """No keys, no start; no signature, no entry."""
    for document in ('{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'):
        try:
            JwtValidator(TokenRules(), keys_of(document))
        except NoKeysError:
            continue
        raise AssertionError("a validator without keys was made")
    with OidcIssuer() as issuer:
        document, good = issuer.jwks(), issuer.token("ann")
    validator = JwtValidator(TokenRules(), keys_of(document))
    assert validator.validate(good, 0).user == "ann"
    kid = json.loads(document)["keys"][0]["kid"]
    claims = {"sub": "root", "iat": 1, "exp": 2**33}
    for header, signature in (
        ({"alg": "none"}, ""),
        ({"alg": "none"}, "AAAA"),
        ({"alg": "RS256", "kid": kid}, "AAAA"),
        ({"alg": "RS256", "kid": "unknown"}, "AAAA"),
        ({"alg": "RS256"}, "AAAA"),
        ({"alg": "HS256", "kid": kid}, "AAAA"),
    ):
        try:
            validator.validate(_unsigned(header, claims, signature), 0)
        except TokenRefusedError:
            continue
        raise AssertionError(f"a token that nobody signed was believed: {header}")


@token_validator.planted
@contextmanager
def starts_without_keys() -> Iterator[None]:
    def take(self: JwtValidator, keys: Any) -> None:
        self._keys = tuple(keys)

    with patch.object(JwtValidator, "set_keys", take):
        yield


def _claims_of(token: str) -> Mapping[str, Any]:
    return tokens._json(token.split(".")[1])


@token_validator.planted
@contextmanager
def believes_what_no_key_is_known_for() -> Iterator[None]:
    """As if verifying were skipped where there is nothing to verify with."""
    validate = JwtValidator.validate

    def believe(self: JwtValidator, token: str, now_ms: int) -> Authenticated:
        try:
            return validate(self, token, now_ms)
        except TokenRefusedError as refusal:
            if "not known" not in str(refusal):
                raise
            return self._check(_claims_of(token), now_ms)

    with patch.object(JwtValidator, "validate", believe):
        yield


@token_validator.planted
@contextmanager
def believes_every_signature() -> Iterator[None]:
    with patch.object(tokens, "_verified", lambda token, *_: _claims_of(token)):
        yield


@token_validator.planted
@contextmanager
def takes_tokens_without_a_signature() -> Iterator[None]:
    verified = tokens._verified

    def believe(token: str, key: Any, algorithm: str) -> Mapping[str, Any] | None:
        return _claims_of(token) if algorithm == "none" else verified(token, key, algorithm)

    with (
        patch.object(tokens, "ALGORITHMS", (*tokens.ALGORITHMS, "none")),
        patch.object(tokens, "_verified", believe),
    ):
        yield


# Small bytes, large memory


def _uvarint(value: int) -> bytes:
    data = b""
    while value > 127:
        data += bytes([value & 127 | 128])
        value >>= 7
    return data + bytes([value])


@known("CVE-2026-111108, CVE-2026-111115")
def decoding() -> None:
    """What a request holds is bounded by its bytes, and by a number of elements and of tags."""
    announced = b"\0" + _uvarint(MAX_ELEMENTS) + b"\x01" * 10
    keys = b"\0" + _uvarint(MAX_ELEMENTS + 2) + b"\x01" * (MAX_ELEMENTS + 1) + b"\0"
    tags = b"".join(_uvarint(99 + number) + b"\0" for number in range(MAX_TAGS + 1))
    tagged = b"\x01\x01" + _uvarint(MAX_TAGS + 1) + tags
    wide: list[tuple[type[Message], int, bytes]] = [
        (FindCoordinatorRequest, 4, announced),
        (FindCoordinatorRequest, 4, keys),
        (ApiVersionsRequest, 3, tagged),
    ]
    for cls, version, data in wide:
        tracemalloc.start()
        try:
            next(cls.decode_in_slices(memoryview(data), version, 0, MAX_ELEMENTS))
        except RemoteProtocolError:
            assert tracemalloc.get_traced_memory()[1] < 1024 * 1024
        else:
            raise AssertionError(f"{cls.__name__} of {len(data)} bytes was begun to be read")
        finally:
            tracemalloc.stop()


@contextmanager
def _compiled_anew(*classes: type[Message]) -> Iterator[None]:
    """What is compiled with a fault in it is gone afterwards."""
    kept = [(each, each._codecs, each._sliced_codecs) for each in classes]
    for each in classes:
        each._codecs, each._sliced_codecs = {}, {}
    try:
        yield
    finally:
        for each, codecs, sliced in kept:
            each._codecs, each._sliced_codecs = codecs, sliced


@decoding.planted
@contextmanager
def any_number_of_elements() -> Iterator[None]:
    decode = Message.decode_in_slices.__func__  # type: ignore[attr-defined]

    def unbounded(cls: type[Message], data: Any, version: int, start: int, max_elements: int) -> Any:
        return decode(cls, data, version, start, sys.maxsize)

    with patch.object(Message, "decode_in_slices", classmethod(unbounded)):
        yield


@decoding.planted
@contextmanager
def any_number_of_tags() -> Iterator[None]:
    with _compiled_anew(ApiVersionsRequest), patch.object(decoder_source, "MAX_TAGS", sys.maxsize):
        yield


@decoding.planted
@contextmanager
def makes_room_for_what_is_announced() -> Iterator[None]:
    """A list as long as a request says it will be, before its elements are there."""
    emit = DecoderSource.emit

    def careless(self: DecoderSource, line: str, *places: Any) -> None:
        if "elements are announced" in line:
            line = f"room = bytearray(64 << 20); {line}"
        emit(self, line, *places)

    with _compiled_anew(FindCoordinatorRequest), patch.object(DecoderSource, "emit", careless):
        yield


# Large frames of strangers


@known("CVE-2022-34917")
def frames_of_strangers() -> None:
    """Until somebody has shown who it is, a large frame ends the connection when its size is announced."""

    async def story() -> None:
        async with World() as world:
            peer = await world.peer()
            peer.transport.write((90 * 1024 * 1024).to_bytes(4, "big") + bytes(60_000))
            try:
                async with asyncio.timeout(60):
                    await peer.closed()
            except TimeoutError:
                raise AssertionError("somebody unknown may send a large frame") from None
            assert world.server.request_bytes == 0
            assert not world.desk.frames

    run_simulated(story)


@frames_of_strangers.planted
@contextmanager
def strangers_may_send_as_much_as_others() -> Iterator[None]:
    with patch.object(Connection, "_max_frame_bytes", lambda self: self._around.limits.socket_request_max_bytes):
        yield


# Passwords compared until they differ


class SecretText(str):
    """A text that tells when it is compared in a way that ends at the first difference."""

    __slots__ = ()
    __hash__ = str.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a secret was compared in a time that tells how much of it was right")

    def encode(self, *_: str) -> bytes:
        return SecretBytes(str.encode(self))


class SecretBytes(bytes):
    """The same of bytes."""

    __hash__ = bytes.__hash__

    def __eq__(self, other: object) -> bool:
        raise AssertionError("a secret was compared in a time that tells how much of it was right")


def _scram_server(user: str, credential: ScramCredential) -> ScramServer:
    secret = ScramCredential(
        credential.salt, SecretBytes(credential.stored_key), SecretBytes(credential.server_key), credential.iterations
    )
    known_users = {user: ScramLogin(secret, Authenticated(user))}
    return ScramServer(Mechanism.SCRAM_SHA_256, lambda name, _: known_users.get(name), "server", SecretBytes(b"decoy"))


@known("CVE-2021-38153")
def comparisons() -> None:
    """Passwords, keys and signatures are compared in constant time, also where there is no such user."""
    verify = verify_among({"ann": SecretText("swordfish")})
    for user, password in (("ann", "swordfish"), ("ann", "wrong"), ("ann", "swordfisk"), ("bob", "swordfish")):
        assert verify(user, password) == ((user, password) == ("ann", "swordfish"))
    credential = ScramCredential.of_password("swordfish", Mechanism.SCRAM_SHA_256, b"salt", 4096)
    for user, password in (("ann", "swordfish"), ("ann", "wrong"), ("bob", "swordfish")):
        server = _scram_server("ann", credential)
        client = ScramClient(Mechanism.SCRAM_SHA_256, user, password, "client")
        proof = client.respond(server.respond(client.first()))
        assert proof is not None
        client._signature = SecretBytes(client._signature or b"")
        try:
            assert client.respond(server.respond(proof)) is None
        except SaslError:
            assert (user, password) != ("ann", "swordfish")


@comparisons.planted
@contextmanager
def compares_passwords_as_texts() -> Iterator[None]:
    def careless(passwords: Mapping[str, str]) -> plain.Verify:
        return lambda user, password: user in passwords and password == passwords[user]

    with patch(f"{__name__}.verify_among", careless):
        yield


@comparisons.planted
@contextmanager
def compares_keys_as_bytes() -> Iterator[None]:
    with patch.object(hmac, "compare_digest", lambda left, right: left == right):
        yield


# Somebody else's name


@known("CVE-2017-12610")
def authorization_ids() -> None:
    """Who has shown to be ann is ann, and not whom she says she is."""
    server = PlainServer(verify_among({"ann": "swordfish", "root": "other"}))
    try:
        server.respond(b"root\0ann\0swordfish")
    except SaslError:
        assert server.outcome is None
    else:
        raise AssertionError(f"the authorization id of PLAIN was believed: {server.outcome}")
    credential = ScramCredential.of_password("swordfish", Mechanism.SCRAM_SHA_256, b"salt", 4096)
    known_users = {"ann": ScramLogin(credential, Authenticated("ann"))}
    asked = ScramServer(Mechanism.SCRAM_SHA_256, lambda name, _: known_users.get(name), "server", b"decoy")
    client = ScramClient(Mechanism.SCRAM_SHA_256, "ann", "swordfish", "client")
    first = client.first().replace(b"n,,", b"n,a=root,")
    try:
        # The header, with the other name in it, is part of what is proven.
        with patch.object(scram, "base64_text", lambda data: base64_text(first[:9] if data == b"n,," else data)):
            proof = client.respond(asked.respond(first))
            asked.respond(proof or b"")
    except SaslError:
        assert asked.outcome is None
    else:
        raise AssertionError(f"the authorization id of SCRAM was let pass: {asked.outcome}")


@authorization_ids.planted
@contextmanager
def plain_believes_the_authorization_id() -> Iterator[None]:
    def believe(self: PlainServer, token: bytes) -> bytes:
        authorization_id, user, password = token.decode().split("\0")
        if not self._verify(user, password):
            raise SaslError("wrong")
        self.outcome = Authenticated(authorization_id or user)
        return b""

    with patch.object(PlainServer, "respond", believe):
        yield


@authorization_ids.planted
@contextmanager
def scram_believes_the_authorization_id() -> Iterator[None]:
    parse = ClientFirst.parse

    def as_if_nobody_else_were_named(text: str) -> ClientFirst:
        return replace(parse(text), authorization_id="")

    with patch.object(ClientFirst, "parse", as_if_nobody_else_were_named):
        yield


# Rules of others


def _decision_calls(rules: int, topics: int) -> int:
    """How many calls one decision takes, with so many rules of other people, most about other topics."""
    acls = AclsImage(
        (
            Uuid(number.to_bytes(16, "big")),
            StandardAcl(
                Resource.TOPIC,
                f"topic-{number % topics}",
                PatternType.PREFIXED if number % 3 else PatternType.LITERAL,
                f"User:{number}",
                "*",
                AclOperation.READ,
                AclPermissionType.ALLOW,
            ),
        )
        for number in range(rules)
    )
    authorizer = StandardAuthorizer()
    authorizer.apply(acls, list(acls))
    calls = 0

    def note(frame: Any, event: str, argument: Any) -> None:
        nonlocal calls
        calls += event in ("call", "c_call")

    sys.setprofile(note)
    try:
        authorizer.is_allowed("User:ann", "10.0.0.1", AclOperation.READ, Resource.TOPIC, "topic-7")
    finally:
        sys.setprofile(None)
    return calls


@known("KAFKA-20667")
def decisions() -> None:
    """A decision does not walk the rules of other resources, nor those of other people."""
    few, many = _decision_calls(8, 8), _decision_calls(7000, 500)
    assert many < few + 20, f"with a thousand times the rules a decision takes {many} calls, not {few}"


@decisions.planted
@contextmanager
def walks_all_rules() -> Iterator[None]:
    def walk(self: StandardAuthorizer, principal: str, host: str, operation: Any, kind: Any, name: str) -> bool:
        return any(
            acl.resource_type == kind and name.startswith(acl.resource_name) and acl.principal == principal
            for acl in self._acls.values()
        )

    with patch.object(StandardAuthorizer, "is_allowed", walk):
        yield
