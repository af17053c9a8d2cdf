"""PLAIN: who is let in, and that nobody learns which part was wrong."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.sasl import Authenticated, SaslError
from barnabas.base.sasl.plain import INVALID, PlainClient, PlainServer, verify_among

USERS = {"ann": "swordfish", "bob": "tröt", "empty": ""}


def server() -> PlainServer:
    return PlainServer(verify_among(USERS))


@pytest.mark.parametrize("user", ["ann", "bob"])
def test_user_and_password_are_enough(user: str) -> None:
    asked, client = server(), PlainClient(user, USERS[user])
    assert asked.respond(client.first()) == b""
    assert asked.outcome == Authenticated(user)
    assert asked.outcome.principal == f"User:{user}"
    client.respond(b"")


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0ann\0wrong", INVALID),
        (b"\0nobody\0swordfish", INVALID),
        (b"\0empty\0x", INVALID),
        (b"\0ann\0", "Authentication failed: password not specified"),
        (b"\0\0swordfish", "Authentication failed: username not specified"),
        (b"ann", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0ann\0swordfish\0", "Invalid SASL/PLAIN response: expected 3 tokens, got 4"),
        (b"\xff\xfe", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        (b"\0ann\0\xff\xfe", INVALID),
        (b"\0\xff\0swordfish", INVALID),
        (b"", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
    ],
)
def test_anything_else_is_refused(token: bytes, told: str) -> None:
    asked = server()
    with pytest.raises(SaslError) as failure:
        asked.respond(token)
    assert failure.value.told == told
    assert asked.outcome is None
    assert "swordfish" not in str(failure.value)


def test_nobody_becomes_another_by_an_authorization_id() -> None:
    """CVE-2017-12610."""
    assert server().respond(b"ann\0ann\0swordfish") == b""
    asked = server()
    with pytest.raises(SaslError, match="somebody else"):
        asked.respond(b"bob\0ann\0swordfish")
    assert asked.outcome is None


def test_passwords_are_compared_in_constant_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """CVE-2021-38153: also for a user who is not there."""
    compared: list[tuple[bytes, bytes]] = []

    def compare(left: bytes, right: bytes) -> bool:
        compared.append((left, right))
        return left == right

    monkeypatch.setattr("barnabas.base.sasl.plain.hmac.compare_digest", compare)
    verify = verify_among(USERS)
    assert verify("ann", "swordfish")
    assert not verify("nobody", "swordfish")
    assert not verify("nobody", "")
    assert len(compared) == 3


@given(st.binary(max_size=200))
def test_no_bytes_do_more_than_fail(token: bytes) -> None:
    asked = server()
    with pytest.raises(SaslError):
        asked.respond(token)
