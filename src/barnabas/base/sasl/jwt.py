"""Tokens of OAUTHBEARER: what a broker believes of a JWT, and by whose keys.

The signature is checked by joserfc (the extra `security`); what the claims must say is checked here.
"""

from __future__ import annotations

import json
from base64 import urlsafe_b64decode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.errors import BarnabasError
from barnabas.base.extras import how_to_install
from barnabas.base.sasl.exchange import Authenticated
from barnabas.base.sasl.oauthbearer import TokenRefusedError

if TYPE_CHECKING:
    from joserfc.jwk import Key

#: With a public key alone nobody can make these. Keys that both sides share are not among them, nor is `none`.
ALGORITHMS: Final = (
    *("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"),
    *("ES256", "ES384", "ES512", "Ed25519", "Ed448", "EdDSA"),
)
_PARTS: Final = 3


@dataclass(frozen=True, slots=True)
class TokenRules:
    """What a token must say, under the names of Kafka's settings."""

    expected_audience: tuple[str, ...] = ()
    expected_issuer: str | None = None
    clock_skew_seconds: int = 30
    sub_claim_name: str = "sub"
    scope_claim_name: str = "scope"


class NoKeysError(BarnabasError):
    """There is nothing to check a signature with."""


class JwtValidator:
    """Says whom a token names. It never is without keys: one that has none is not made."""

    def __init__(self, rules: TokenRules, keys: Iterable[Key]) -> None:
        self._rules = rules
        self._keys: tuple[Key, ...] = ()
        self.set_keys(keys)
        #: A key that a token named and that was not there; whoever loads keys looks at it.
        self.missing_key: str | None = None

    def set_keys(self, keys: Iterable[Key]) -> None:
        found = tuple(keys)
        if not found:
            raise NoKeysError(
                "there are no keys to check tokens with, so that every signature would have to be believed"
            )
        self._keys = found

    def validate(self, token: str, now_ms: int) -> Authenticated:
        """Raises `TokenRefusedError`."""
        header = _header(token)
        algorithm, key_id = header.get("alg"), header.get("kid")
        if algorithm not in ALGORITHMS:
            raise TokenRefusedError("it is signed by an algorithm that is not taken, or not at all")
        usable = [each for each in self._keys if key_id is None or each.kid == key_id]
        if not usable:
            self.missing_key = str(key_id)
            raise TokenRefusedError("it is signed with a key that is not known")
        for key in usable:
            claims = _verified(token, key, str(algorithm))
            if claims is not None:
                return self._check(claims, now_ms)
        raise TokenRefusedError("its signature is wrong")

    def _check(self, claims: Mapping[str, Any], now_ms: int) -> Authenticated:
        rules = self._rules
        skew_ms = rules.clock_skew_seconds * 1000
        expires_ms = _time_ms(claims, "exp")
        _time_ms(claims, "iat")
        if now_ms >= expires_ms + skew_ms:
            raise TokenRefusedError("it has expired")
        if "nbf" in claims and now_ms < _time_ms(claims, "nbf") - skew_ms:
            raise TokenRefusedError("it is not valid yet")
        if rules.expected_issuer is not None and claims.get("iss") != rules.expected_issuer:
            raise TokenRefusedError("it is of another issuer")
        if rules.expected_audience:
            given = claims.get("aud")
            audience = given if isinstance(given, list) else [given]
            if not any(each in rules.expected_audience for each in audience):
                raise TokenRefusedError("it is meant for others")
        scope = claims.get(rules.scope_claim_name)
        if scope is not None and not isinstance(scope, str | list):
            raise TokenRefusedError("its scope is neither a text nor a list")
        subject = claims.get(rules.sub_claim_name)
        if not isinstance(subject, str) or not subject.strip():
            raise TokenRefusedError(f"its claim {rules.sub_claim_name} names nobody")
        return Authenticated(subject, expires_at_ms=expires_ms)


def keys_of(text: str | bytes) -> list[Key]:
    """The keys of a JWKS document that signatures can be checked with. Raises `ValueError` for people to read."""
    try:
        from joserfc.errors import JoseError
        from joserfc.jwk import KeySet
    except ImportError:
        raise BarnabasError(f"OAUTHBEARER needs joserfc: {how_to_install('security')}") from None
    try:
        document = json.loads(text)
        given = [each for each in document["keys"] if each.get("kty") != "oct" and each.get("use", "sig") == "sig"]
        return list(KeySet.import_key_set({"keys": given}).keys) if given else []
    except (JoseError, ValueError, KeyError, TypeError, AttributeError) as problem:
        raise ValueError(f"that is no JWKS document ({type(problem).__name__})") from None


def lifetime_ms(token: str) -> tuple[int | None, int | None]:
    """When a token was issued and when it expires by its own words, in ms since 1970; for whoever shows it."""
    try:
        claims = _json(token.split(".")[1])
    except (ValueError, IndexError):
        return None, None
    times = (claims.get("iat"), claims.get("exp"))
    issued, expires = (int(each * 1000) if isinstance(each, int | float) else None for each in times)
    return issued, expires


def _verified(token: str, key: Key, algorithm: str) -> Mapping[str, Any] | None:
    """The claims if this key signed them."""
    from joserfc import jwt
    from joserfc.errors import JoseError

    try:
        return jwt.decode(token, key, algorithms=[algorithm]).claims
    except (JoseError, ValueError, TypeError):
        return None


def _header(token: str) -> Mapping[str, Any]:
    parts = token.split(".")
    if len(parts) != _PARTS or not all(parts):
        raise TokenRefusedError("it is not a signed token of three parts")
    try:
        return _json(parts[0])
    except ValueError:
        raise TokenRefusedError("its header cannot be read") from None


def _json(part: str) -> Mapping[str, Any]:
    found = json.loads(urlsafe_b64decode(part + "=" * (-len(part) % 4)))
    if not isinstance(found, dict):
        raise ValueError("an object was expected")
    return found


def _time_ms(claims: Mapping[str, Any], name: str) -> int:
    value = claims.get(name)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value < 2**53:
        raise TokenRefusedError(f"its claim {name} is no time")
    return int(value * 1000)
