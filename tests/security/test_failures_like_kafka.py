"""Every way of failing to show who one is, at our node and at a Kafka: the same answers, the same words, the same end.
Where we differ on purpose it is said."""

from __future__ import annotations

from collections.abc import Iterator
from ssl import TLSVersion
from typing import NamedTuple

import pytest

from barnabas.base.sasl import Mechanism
from barnabas.base.sasl.scram import ScramClient
from barnabas.wire.apis import ApiKey
from barnabas.wire.headers import decode_response
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.oracles import needs_kafka
from tests.security.listeners import (
    CERTIFICATES,
    USERS,
    Place,
    any_frame,
    converse,
    framed,
    kafkas,
    ours,
    request_frame,
)

pytestmark = [needs_kafka(), pytest.mark.slow]

_SHA = Mechanism.SCRAM_SHA_256
_PASSWORD = USERS["ann"]


class Outcome(NamedTuple):
    """What a handshake and then each token were answered with: code and words; and whether that was the end."""

    handshake: tuple[int, tuple[str, ...]] | None
    tokens: list[tuple[int, str | None, bool]]
    is_closed: bool


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Place, Place]]:
    folder = tmp_path_factory.mktemp("failures")
    with kafkas(folder / "kafka") as kafka, ours(folder / "ours") as own:
        yield kafka, own


def _outcome(place: Place, mechanism: str, *tokens: bytes, version: int = 1, listener: str = "CLIENTS") -> Outcome:
    shake = framed(request_frame(SaslHandshakeRequest(mechanism=mechanism), version))
    if version:
        frames = [framed(request_frame(SaslAuthenticateRequest(auth_bytes=each), 2)) for each in tokens]
    else:
        frames = [framed(each) for each in tokens]
    told = converse(place, listener, [shake, *frames])
    if not told.answers:
        return Outcome(None, [], told.is_closed)
    _, shaken = decode_response(SaslHandshakeResponse, version, told.answers[0])
    shown: list[tuple[int, str | None, bool]] = []
    for answer in told.answers[1:]:
        if not version:
            shown.append((0, None, bool(answer)))
            continue
        _, each = decode_response(SaslAuthenticateResponse, 2, answer)
        shown.append((int(each.error_code), each.error_message, bool(each.auth_bytes)))
    return Outcome((int(shaken.error_code), tuple(sorted(shaken.mechanisms))), shown, told.is_closed)


_PLAIN = {
    "a wrong password": b"\0ann\0wrong",
    "nobody's name": b"\0nobody\0" + _PASSWORD.encode(),
    "another's name": b"node\0ann\0" + _PASSWORD.encode(),
    "its own name as another's": b"ann\0ann\0" + _PASSWORD.encode(),
    "no password": b"\0ann\0",
    "no user": b"\0\0" + _PASSWORD.encode(),
    "nothing": b"",
    "one part": b"ann",
    "four parts": b"\0ann\0" + _PASSWORD.encode() + b"\0",
    "no text": b"\0ann\0\xff\xfe\xfd",
    "what is right": b"\0ann\0" + _PASSWORD.encode(),
}


@pytest.mark.parametrize("name", _PLAIN)
@pytest.mark.parametrize("version", [0, 1])
@pytest.mark.parametrize("listener", ["CLIENTS", "SECURED", "CONTROLLERS"])
def test_plain(places: tuple[Place, Place], name: str, version: int, listener: str) -> None:
    theirs, own = (_outcome(place, "PLAIN", _PLAIN[name], version=version, listener=listener) for place in places)
    assert own == theirs


@pytest.mark.parametrize("mechanism", ["GSSAPI", "SCRAM-SHA-512", "plain", "", "OAUTHBEARER"])
def test_a_mechanism_that_is_not_there(places: tuple[Place, Place], mechanism: str) -> None:
    theirs, own = (_outcome(place, mechanism, b"\0ann\0x") for place in places)
    assert own == theirs


_SCRAM_FIRST = {
    "another's name": b"n,a=node,n=ann,r=abc",
    "a binding that it does not have": b"p=tls-unique,,n=ann,r=abc",
    "a binding that it would have": b"y,,n=ann,r=abc",
    "no nonce": b"n,,n=ann",
    "no name": b"n,,n=,r=abc",
    "nothing": b"",
    "no text": b"n,,n=\xff\xfe,r=abc",
    "an extension that nobody knows": b"n,,n=ann,r=abc,x=y",
    "a token": b"n,,n=ann,r=abc,tokenauth=true",
}


@pytest.mark.parametrize("name", _SCRAM_FIRST)
def test_first_messages_of_scram(places: tuple[Place, Place], name: str) -> None:
    theirs, own = (_outcome(place, _SHA, _SCRAM_FIRST[name]) for place in places)
    if name == "a token":
        # A token that is not there is asked for its proof all the same: nobody learns which there are.
        assert theirs.is_closed
        assert (own.tokens, own.is_closed) == ([(0, "", True)], False)
    else:
        assert own == theirs


def _client(password: str = _PASSWORD) -> ScramClient:
    return ScramClient(_SHA, "ann", password, "abcdef")


def _replayed(place: Place) -> Outcome:
    """The first and the last message of an exchange that went well, once more."""
    client = _client()
    sent: list[bytes] = []
    outcome = _in_one_conversation(place, client, (b"", b""), sent)
    assert not outcome.is_closed
    return _outcome(place, _SHA, client.first(), *sent)


def _in_one_conversation(
    place: Place, client: ScramClient, change: tuple[bytes, bytes], sent: list[bytes] | None = None
) -> Outcome:
    """The whole exchange, with something changed in the last message, which is noted in `sent`."""

    def last(asked: bytes) -> bytes:
        _, answer = decode_response(SaslAuthenticateResponse, 2, asked)
        proof = (client.respond(answer.auth_bytes) or b"").replace(*change, 1)
        if sent is not None:
            sent.append(proof)
        return framed(request_frame(SaslAuthenticateRequest(auth_bytes=proof), 2))

    shake = framed(request_frame(SaslHandshakeRequest(mechanism=_SHA), 1))
    first = framed(request_frame(SaslAuthenticateRequest(auth_bytes=client.first()), 2))
    told = converse(place, "CLIENTS", [shake, first, last])
    shown = [decode_response(SaslAuthenticateResponse, 2, each)[1] for each in told.answers[1:]]
    tokens = [(int(each.error_code), each.error_message, bool(each.auth_bytes)) for each in shown]
    return Outcome(None, tokens, told.is_closed)


@pytest.mark.parametrize(
    "change",
    [(b"c=biws", b"c=eSws"), (b"r=abcdef", b"r=abcdeg"), (b"p=", b"q=")],
    ids=["another binding", "another nonce", "no proof"],
)
def test_last_messages_of_scram(places: tuple[Place, Place], change: tuple[bytes, bytes]) -> None:
    theirs, own = (_in_one_conversation(place, _client(), change) for place in places)
    assert own == theirs
    assert own.is_closed


def test_a_proof_of_another_length(places: tuple[Place, Place]) -> None:
    """Kafka's code fails over it, and the connection ends without a word; we say what is said of every wrong proof."""
    theirs, own = (_in_one_conversation(place, _client(), (b"p=", b"p=AAAA")) for place in places)
    assert theirs.is_closed
    assert own == _in_one_conversation(places[1], _client("wrong"), (b"", b""))


def test_a_right_and_a_wrong_password_of_scram(places: tuple[Place, Place]) -> None:
    for password in (_PASSWORD, "wrong"):
        theirs, own = (_in_one_conversation(place, _client(password), (b"", b"")) for place in places)
        assert own == theirs
        assert own.is_closed == (password == "wrong")


def test_a_proof_of_an_earlier_exchange(places: tuple[Place, Place]) -> None:
    theirs, own = (_replayed(place) for place in places)
    assert own == theirs
    assert own.is_closed


@pytest.mark.parametrize("size", [-1, 524_289, 100 * 1024 * 1024, 2**31 - 1])
@pytest.mark.parametrize("listener", ["CLIENTS", "SECURED", "CONTROLLERS"])
def test_large_frames(places: tuple[Place, Place], size: int, listener: str) -> None:
    data = size.to_bytes(4, "big", signed=True) + bytes(1000)
    theirs, own = (converse(place, listener, [data]) for place in places)
    assert own == theirs == ([], True)


@pytest.mark.parametrize("certificate", CERTIFICATES)
@pytest.mark.parametrize("listener", ["CERTIFIED", "CERTIFIEDCONTROLLERS"])
def test_certificates(places: tuple[Place, Place], certificate: str, listener: str) -> None:
    asked = framed(any_frame(ApiKey.API_VERSIONS, 0))
    theirs, own = (converse(place.showing(certificate), listener, [asked]) for place in places)
    assert (len(own.answers), own.is_closed) == (len(theirs.answers), theirs.is_closed)
    assert own.is_closed != CERTIFICATES[certificate]


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("version", [TLSVersion.TLSv1, TLSVersion.TLSv1_1, TLSVersion.TLSv1_2, TLSVersion.TLSv1_3])
def test_versions_of_tls(places: tuple[Place, Place], version: TLSVersion) -> None:
    asked = framed(any_frame(ApiKey.API_VERSIONS, 0))
    theirs, own = (converse(place.speaking(version), "CERTIFIED", [asked]) for place in places)
    assert (len(own.answers), own.is_closed) == (len(theirs.answers), theirs.is_closed)
    assert own.is_closed == (version < TLSVersion.TLSv1_2)
