"""OAUTHBEARER (RFC 7628): a token of somebody whom the server trusts says who this is."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from barnabas.base.sasl.exchange import Authenticated, SaslError, text_of

_SEPARATOR: Final = "\x01"
#: What a client sends when it was told why its token was refused.
_UNDERSTOOD: Final = b"\x01"
_CLIENT_FIRST: Final = re.compile(
    r"n,(?:a=(?P<authzid>(?:[^\x00=,]|=2C|=3D)+))?,\x01(?P<pairs>(?:[A-Za-z]+=[\x21-\x7e \t\r\n]*\x01)*)\x01"
)
_BEARER: Final = re.compile(r"(?i:bearer)\s+(?P<token>[-_~+/.a-zA-Z0-9]+=*)\s*")
_EXTENSION_NAME: Final = re.compile(r"[A-Za-z]+")
_EXTENSION_VALUE: Final = re.compile(r"[\x21-\x7e \t\r\n]+")


@dataclass(frozen=True, slots=True)
class BearerToken:
    """What a client shows. `extensions` go beside it. The token itself is not shown by `repr`."""

    value: str = field(repr=False)
    extensions: Mapping[str, str] = field(default_factory=dict)


class TokenRefusedError(Exception):
    """Why a token is not taken: `status` for the client, the text for our log."""

    def __init__(self, why: str, status: str = "invalid_token", scope: str | None = None) -> None:
        self.status = status
        self.scope = scope
        super().__init__(why)


#: Of a token, whom it names. Raises `TokenRefusedError`.
Validate = Callable[[str], Authenticated]


class OAuthBearerClient:
    """Shows its token at once."""

    def __init__(self, token: BearerToken) -> None:
        self._token = token
        for name, value in token.extensions.items():
            if name.lower() == "auth" or not _EXTENSION_NAME.fullmatch(name) or not _EXTENSION_VALUE.fullmatch(value):
                raise SaslError(f"no extension can be called {name!r} or have such a value")

    def first(self) -> bytes:
        more = "".join(f"{name}={value}{_SEPARATOR}" for name, value in self._token.extensions.items())
        return f"n,,{_SEPARATOR}auth=Bearer {self._token.value}{_SEPARATOR}{more}{_SEPARATOR}".encode()

    def respond(self, challenge: bytes) -> bytes | None:
        """A refusal comes in two steps: why, which is to be acknowledged, and then that it has failed."""
        return _UNDERSTOOD if challenge else None


class OAuthBearerServer:
    """Has a token shown, and asks `validate` whom it names."""

    def __init__(self, validate: Validate) -> None:
        self._validate = validate
        self._refusal: str | None = None
        self.outcome: Authenticated | None = None

    def respond(self, token: bytes) -> bytes:
        if self._refusal is not None:
            if token != _UNDERSTOOD:
                raise SaslError("what follows a refusal is neither understanding nor anything else that is expected")
            raise SaslError("the token was refused", self._refusal)
        match = _CLIENT_FIRST.fullmatch(text_of(token, "the client's message"))
        if match is None:
            raise SaslError("the client's message is not one of OAUTHBEARER")
        pairs = dict(each.split("=", 1) for each in match["pairs"].split(_SEPARATOR) if each)
        shown = _BEARER.fullmatch(pairs.get("auth", ""))
        if shown is None:
            raise SaslError("the client shows no bearer token")
        try:
            outcome = self._validate(shown["token"])
        except TokenRefusedError as refusal:
            told = {"status": refusal.status}
            if refusal.scope is not None:
                told["scope"] = refusal.scope
            self._refusal = json.dumps(told, separators=(",", ":"))
            return self._refusal.encode()
        authorization_id = (match["authzid"] or "").replace("=2C", ",").replace("=3D", "=")
        if authorization_id and authorization_id != outcome.user:
            told_id = (
                "Authentication failed: Client requested an authorization id that is different from the token's "
                "principal name"
            )
            raise SaslError("it wants to be somebody else than its token says", told_id)
        self.outcome = outcome
        return b""
