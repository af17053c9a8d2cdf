"""OAUTHBEARER: the form of the messages, and a refusal in two steps."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.sasl import Authenticated, SaslError
from barnabas.base.sasl.oauthbearer import BearerToken, OAuthBearerClient, OAuthBearerServer, TokenRefusedError


def validate(token: str) -> Authenticated:
    if token != "good.token":
        raise TokenRefusedError("it is not the good one")
    return Authenticated("ann", expires_at_ms=5)


def test_a_token_is_enough() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient(BearerToken("good.token", {"traceId": "7"}))
    assert client.first() == b"n,,\x01auth=Bearer good.token\x01traceId=7\x01\x01"
    assert server.respond(client.first()) == b""
    assert client.respond(b"") is None
    assert server.outcome == Authenticated("ann", expires_at_ms=5)


def test_a_refusal_comes_in_two_steps() -> None:
    server, client = OAuthBearerServer(validate), OAuthBearerClient(BearerToken("bad"))
    challenge = server.respond(client.first())
    assert json.loads(challenge) == {"status": "invalid_token"}
    understood = client.respond(challenge)
    assert understood == b"\x01"
    with pytest.raises(SaslError) as failure:
        server.respond(understood)
    assert failure.value.told == challenge.decode()
    assert server.outcome is None


def test_after_a_refusal_a_good_token_comes_too_late() -> None:
    server = OAuthBearerServer(validate)
    server.respond(OAuthBearerClient(BearerToken("bad")).first())
    with pytest.raises(SaslError):
        server.respond(OAuthBearerClient(BearerToken("good.token")).first())
    assert server.outcome is None


def test_nobody_becomes_another_by_an_authorization_id() -> None:
    assert OAuthBearerServer(validate).respond(b"n,a=ann,\x01auth=Bearer good.token\x01\x01") == b""
    server = OAuthBearerServer(validate)
    with pytest.raises(SaslError, match="somebody else"):
        server.respond(b"n,a=root,\x01auth=Bearer good.token\x01\x01")
    assert server.outcome is None


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,",
        b"n,,\x01\x01",
        b"n,,\x01auth=Basic good.token\x01\x01",
        b"n,,\x01auth=Bearer \x01\x01",
        b"n,,\x01auth=Bearer good.token\x01",
        b"y,,\x01auth=Bearer good.token\x01\x01",
        b"n,,\x01auth=Bearer good.token\x00\x01\x01",
        b"\xff",
    ],
)
def test_a_message_outside_the_grammar_is_refused(message: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthBearerServer(validate).respond(message)


@pytest.mark.parametrize("extensions", [{"auth": "x"}, {"a1": "x"}, {"": "x"}, {"a": ""}, {"a": "x\x01auth=Bearer y"}])
def test_extensions_cannot_break_out_of_the_message(extensions: dict[str, str]) -> None:
    with pytest.raises(SaslError):
        OAuthBearerClient(BearerToken("good.token", extensions))


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_fail(token: bytes) -> None:
    with pytest.raises(SaslError):
        OAuthBearerServer(validate).respond(token)


def test_a_token_is_not_shown() -> None:
    assert "good.token" not in repr(BearerToken("good.token"))
