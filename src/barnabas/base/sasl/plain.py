"""PLAIN (RFC 4616): user and password as they are; for connections that nobody else can read."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from typing import Final

from barnabas.base.sasl.exchange import Authenticated, SaslError

#: Of a user and a password, whether they belong together.
Verify = Callable[[str, str], bool]

#: As Kafka puts it, whatever was wrong with the two.
INVALID: Final = "Authentication failed: Invalid username or password"
_PARTS: Final = 3


class PlainClient:
    """Says user and password at once."""

    def __init__(self, user: str, password: str) -> None:
        self._user = user
        self._password = password

    def first(self) -> bytes:
        return f"\0{self._user}\0{self._password}".encode()

    def respond(self, challenge: bytes) -> None:
        """There is nothing more to say."""


class PlainServer:
    """Takes one message."""

    def __init__(self, verify: Verify) -> None:
        self._verify = verify
        self.outcome: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        # As in Kafka what is no UTF-8 belongs to no user: it is a wrong name or password like any other.
        parts = token.decode(errors="replace").split("\0")
        if len(parts) != _PARTS:
            told = f"Invalid SASL/PLAIN response: expected 3 tokens, got {len(parts)}"
            raise SaslError(f"the message has {len(parts)} parts, and not {_PARTS}", told)
        authorization_id, user, password = parts
        if not user:
            raise SaslError("there is no user", "Authentication failed: username not specified")
        if not password:
            raise SaslError("there is no password", "Authentication failed: password not specified")
        if not self._verify(user, password):
            raise SaslError("user and password do not belong together", INVALID)
        if authorization_id and authorization_id != user:
            told = "Authentication failed: Client requested an authorization id that is different from username"
            raise SaslError("it wants to be somebody else than its user", told)
        self.outcome = Authenticated(user)
        return b""


def verify_among(passwords: Mapping[str, str]) -> Verify:
    """For users that are named in a setting. A user who is not there takes as long as one who is."""

    def verify(user: str, password: str) -> bool:
        expected = passwords.get(user)
        is_equal = hmac.compare_digest(password.encode(), ("" if expected is None else expected).encode())
        return is_equal and expected is not None

    return verify
