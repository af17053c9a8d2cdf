"""Who has no credential learns from any port what ApiVersions tells, and which mechanisms there are; nothing else."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import decode_response
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from tests.oracles import needs_kafka
from tests.security.listeners import PROTOCOLS, Place, Told, any_frame, converse, framed, kafkas, ours, request_frame

_WITH_SASL = [name for name, protocol in PROTOCOLS.items() if protocol.startswith("SASL_")]
_WITH_CERTIFICATES = [name for name, protocol in PROTOCOLS.items() if protocol == "SSL"]
#: What may be asked before anybody is known.
_OPEN = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)
_HANDSHAKE = framed(request_frame(SaslHandshakeRequest(mechanism="PLAIN"), 1))
_CLOSED = Told([], True)
#: APIs that there are not, and what is no request at all.
_NOISE = [bytes(40), b"\x27\x0f\0\0\0\0\0\x07\xff\xff", b"\xff\xff\0\0\0\0\0\x07\xff\xff", b"GET / HTTP/1.1\r\n\r\n"]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with ours(tmp_path_factory.mktemp("ours")) as place:
        yield place


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    with kafkas(tmp_path_factory.mktemp("kafka")) as place:
        yield place


def _newest(key: ApiKey) -> int:
    return api(key).request.VERSIONS.high


def _told_before(place: Place, listener: str, key: ApiKey, version: int) -> Told:
    return converse(place, listener, [framed(any_frame(key, version))])


def _told_in_the_midst(place: Place, listener: str, key: ApiKey, version: int) -> Told:
    """After the handshake of SASL, when a token is due."""
    return converse(place, listener, [_HANDSHAKE, framed(any_frame(key, version))])


@pytest.mark.parametrize("listener", _WITH_SASL)
def test_before_anybody_is_known_two_apis_answer(node: Place, listener: str) -> None:
    for key in ApiKey:
        told = _told_before(node, listener, key, _newest(key))
        if key not in _OPEN:
            assert told == _CLOSED, key
    for noise in _NOISE:
        assert converse(node, listener, [framed(noise)]) == _CLOSED
    versions, mechanisms = (converse(node, listener, [framed(any_frame(key, 1))]).answers[0] for key in _OPEN)
    _, offered = decode_response(ApiVersionsResponse, 1, versions)
    assert offered.error_code == 0
    _, shaken = decode_response(SaslHandshakeResponse, 1, mechanisms)
    assert shaken.mechanisms == ["PLAIN", "SCRAM-SHA-256"]


@pytest.mark.parametrize(
    "listener", [pytest.param(each, marks=pytest.mark.slow) if each == "SECURED" else each for each in _WITH_SASL]
)
def test_in_the_midst_of_sasl_nothing_but_its_errors_is_answered(node: Place, listener: str) -> None:
    for key in ApiKey:
        told = _told_in_the_midst(node, listener, key, _newest(key))
        assert told.is_closed, key
        if key not in (*_OPEN, ApiKey.SASL_AUTHENTICATE):
            assert len(told.answers) == 1, key  # which is that of the handshake


@pytest.mark.parametrize("listener", _WITH_CERTIFICATES)
def test_without_a_certificate_nothing_is_answered(node: Place, listener: str) -> None:
    for key in (ApiKey.API_VERSIONS, ApiKey.METADATA, ApiKey.FETCH, ApiKey.DESCRIBE_QUORUM, ApiKey.SASL_HANDSHAKE):
        assert _told_before(node, listener, key, _newest(key)) == _CLOSED
    # In the clear, too.
    for noise in (any_frame(ApiKey.API_VERSIONS, 0), *_NOISE):
        with node.connect_in_the_clear(listener) as stream:
            stream.sendall(framed(noise))
            received = stream.recv(100)
            assert not received or received[0] in (0x15, 0x16), "an alert of TLS at the most"


@needs_kafka()
@pytest.mark.slow
@pytest.mark.parametrize("listener", _WITH_SASL)
def test_every_version_of_every_api_is_met_as_kafka_meets_it(node: Place, kafka: Place, listener: str) -> None:
    """In the midst of SASL a Kafka reads any request, to refuse it in the form of its API. We read none: nobody who is
    not known makes us decode more than SASL needs."""
    differing = []
    for key in ApiKey:
        for version in api(key).request.VERSIONS:
            for ask in (_told_before, _told_in_the_midst):
                theirs, own = (ask(place, listener, key, version) for place in (kafka, node))
                if key is ApiKey.API_VERSIONS:  # which lists what each has
                    theirs, own = (Told([each[:6] for each in told.answers], told.is_closed) for told in (theirs, own))
                elif ask is _told_in_the_midst and key not in (*_OPEN, ApiKey.SASL_AUTHENTICATE):
                    theirs = Told(theirs.answers[:1], theirs.is_closed)
                if theirs != own:
                    differing.append(f"{ask.__name__} {key.name} v{version}: Kafka {theirs}, ours {own}"[:300])
    assert differing == []
