"""Which tokens a broker believes: signatures by keys that it has, and claims that say what they must."""

from __future__ import annotations

import json
import time
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from typing import Any

import pytest
from joserfc import jwt
from joserfc.jwk import ECKey, OctKey

from barnabas.base.sasl import Authenticated
from barnabas.base.sasl.jwt import JwtValidator, NoKeysError, TokenRules, keys_of, lifetime_ms
from barnabas.base.sasl.oauthbearer import TokenRefusedError
from barnabas.testing.oidc import OidcIssuer

NOW_S = int(time.time())


@pytest.fixture(scope="module")
def issuer() -> Iterator[OidcIssuer]:
    with OidcIssuer() as found:
        yield found


def validator(issuer: OidcIssuer, **rules: Any) -> JwtValidator:
    return JwtValidator(TokenRules(("kafka", "other"), issuer.url, **rules), keys_of(issuer.jwks()))


def validate(issuer: OidcIssuer, token: str, now_s: int = NOW_S, **rules: Any) -> Authenticated:
    return validator(issuer, **rules).validate(token, now_s * 1000)


def test_a_good_token_names_its_subject(issuer: OidcIssuer) -> None:
    found = validate(issuer, issuer.token("ann", iat=NOW_S, exp=NOW_S + 60))
    assert found == Authenticated("ann", expires_at_ms=(NOW_S + 60) * 1000)
    assert validate(issuer, issuer.token("ann", name="bob"), sub_claim_name="name").user == "bob"
    assert validate(issuer, issuer.token("ann", aud=["x", "other"])).user == "ann"
    assert validate(issuer, issuer.token("ann", scope=["a", "b"])).user == "ann"
    assert validate(issuer, issuer.token("ann", header={"kid": None})).user == "ann"


@pytest.mark.parametrize(
    ("claims", "why"),
    [
        ({"exp": NOW_S - 31}, "expired"),
        ({"exp": None}, "exp is no time"),
        ({"exp": "soon"}, "exp is no time"),
        ({"exp": True}, "exp is no time"),
        ({"iat": None}, "iat is no time"),
        ({"nbf": NOW_S + 31}, "not valid yet"),
        ({"iss": "https://elsewhere"}, "another issuer"),
        ({"iss": None}, "another issuer"),
        ({"aud": "somebody"}, "meant for others"),
        ({"aud": None}, "meant for others"),
        ({"sub": None}, "names nobody"),
        ({"sub": " "}, "names nobody"),
        ({"sub": 7}, "names nobody"),
        ({"scope": 7}, "scope"),
    ],
)
def test_claims_must_say_what_is_expected(issuer: OidcIssuer, claims: dict[str, Any], why: str) -> None:
    with pytest.raises(TokenRefusedError, match=why):
        validate(issuer, issuer.token("ann", **claims))


def test_clocks_may_differ_by_the_skew(issuer: OidcIssuer) -> None:
    token = issuer.token("ann", exp=NOW_S - 29, nbf=NOW_S + 29)
    assert validate(issuer, token).user == "ann"
    with pytest.raises(TokenRefusedError, match="expired"):
        validate(issuer, token, clock_skew_seconds=0)


def test_no_keys_no_start() -> None:
    """CVE-2026-110985 and CVE-2026-33557: without keys every signature would be believed."""
    for document in ('{"keys": []}', '{"keys": [{"kty": "oct", "k": "c2VjcmV0"}]}'):
        with pytest.raises(NoKeysError):
            JwtValidator(TokenRules(), keys_of(document))
    for text in ("", "[]", "{}", "nonsense", '{"keys": 7}', '{"keys": [{"kty": "RSA"}]}'):
        with pytest.raises(ValueError, match="no JWKS document"):
            keys_of(text)


def test_keys_are_never_taken_away(issuer: OidcIssuer) -> None:
    found = validator(issuer)
    with pytest.raises(NoKeysError):
        found.set_keys([])
    assert found.validate(issuer.token("ann"), NOW_S * 1000).user == "ann"


def _unsigned(header: dict[str, Any], claims: dict[str, Any], signature: str = "") -> str:
    parts = (urlsafe_b64encode(json.dumps(each).encode()).decode().rstrip("=") for each in (header, claims))
    return ".".join((*parts, signature))


def test_no_signature_no_entry(issuer: OidcIssuer) -> None:
    good = issuer.token("ann")
    head, body, signature = good.split(".")
    claims = {"sub": "root", "iss": issuer.url, "aud": "kafka", "iat": NOW_S, "exp": NOW_S + 60}
    kid = json.loads(issuer.jwks())["keys"][0]["kid"]
    forged = [
        f"{head}.{body}.",
        f"{head}.{body}",
        f"{head}.{body}.{signature[:-4]}AAAA",
        f"{head}.{_unsigned({}, claims).split('.')[1]}.{signature}",
        _unsigned({"alg": "none"}, claims),
        _unsigned({"alg": "none"}, claims, "AAAA"),
        _unsigned({"alg": "RS256", "kid": kid}, claims, "AAAA"),
        _unsigned({"alg": "RS256", "kid": "unknown"}, claims, "AAAA"),
        # Signed with a key of one's own, and with the public key as if both sides shared it.
        jwt.encode({"alg": "ES256", "kid": kid}, claims, ECKey.generate_key("P-256")),
        jwt.encode({"alg": "HS256", "kid": kid}, claims, OctKey.import_key(issuer.jwks())),
        "",
        "...",
        "a.b.c",
        "\u00e4.b.c",
    ]
    for token in forged:
        with pytest.raises(TokenRefusedError):
            validate(issuer, token)
    assert validate(issuer, good).user == "ann"


def test_a_key_that_is_missing_is_noted(issuer: OidcIssuer) -> None:
    with OidcIssuer() as other:
        found = validator(issuer)
        with pytest.raises(TokenRefusedError, match="not known"):
            found.validate(other.token("ann", iss=issuer.url), NOW_S * 1000)
        assert found.missing_key is not None
        found.set_keys([*keys_of(issuer.jwks()), *keys_of(other.jwks())])
        assert found.validate(other.token("ann", iss=issuer.url), NOW_S * 1000).user == "ann"


def test_whoever_shows_a_token_can_tell_its_times(issuer: OidcIssuer) -> None:
    assert lifetime_ms(issuer.token("ann", iat=5, exp=9)) == (5000, 9000)
    assert lifetime_ms("nonsense") == (None, None)
