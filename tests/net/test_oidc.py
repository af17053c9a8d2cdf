"""Tokens and keys of an issuer: kept, asked for again in time, and never told in an error."""

from __future__ import annotations

import asyncio
from pathlib import Path
from random import Random

import pytest

from barnabas.base.runtime import ManualClock
from barnabas.base.sasl import SaslError
from barnabas.base.sasl.jwt import NoKeysError, TokenRules
from barnabas.base.sasl.oauthbearer import BearerToken
from barnabas.net.oidc import ClientCredentials, IssuedTokens, IssuerKeys, RenewalTimes, Retries
from barnabas.net.sasl_client import provider_of
from barnabas.testing.oidc import OidcIssuer

IMPATIENT = Retries(1000, 10, 30)


def test_a_token_is_kept_until_it_is_due() -> None:
    with OidcIssuer({"ann": "s3cret"}, lifetime_s=1000) as issuer:

        async def story() -> None:
            import time

            clock = ManualClock(int(time.time() * 1000))
            given = ClientCredentials(issuer.token_url, "ann", "s3cret", retries=IMPATIENT)
            tokens = IssuedTokens(given, RenewalTimes(0.8, 0.0, 60, 300), clock, Random(1))
            first = await tokens()
            assert await tokens() is first
            assert issuer.given == 1
            clock.advance(600_000)
            assert await tokens() is first
            clock.advance(150_000)  # 300 s before its end it is renewed at the latest
            await tokens()
            assert issuer.given == 2

        asyncio.run(story())


@pytest.mark.parametrize(("life_s", "after_s"), [(1000, 700), (10_000, 8000), (100, 80), (365, 65), (0, 0)])
def test_when_a_token_is_due(life_s: int, after_s: int) -> None:
    assert RenewalTimes(0.8, 0.0, 60, 300).renewed_after_ms(life_s * 1000, 0.5) == after_s * 1000


def test_a_refusal_of_the_issuer_is_told_without_the_secret() -> None:
    with OidcIssuer({"ann": "other"}) as issuer:

        async def ask(url: str) -> None:
            given = ClientCredentials(url, "ann", "s3cret", retries=IMPATIENT)
            assert "s3cret" not in repr(given)
            await IssuedTokens(given, RenewalTimes(), ManualClock(), Random(1))()

        for url, why in [
            (issuer.token_url, "answers 401"),
            ("http://127.0.0.1:1/token", "cannot be read"),
            ("ftp://127.0.0.1/token", "http, https and file are known"),
        ]:
            with pytest.raises(SaslError, match=why) as refusal:
                asyncio.run(ask(url))
            assert "s3cret" not in str(refusal.value)


def test_a_token_may_lie_in_a_file(tmp_path: Path) -> None:
    path = tmp_path / "token"
    path.write_text("a.b.c\n")
    given = ClientCredentials(path.as_uri(), "", "")
    found = asyncio.run(IssuedTokens(given, RenewalTimes(), ManualClock(), Random(1))())
    assert found == BearerToken("a.b.c")


def test_a_validator_without_keys_does_not_start(tmp_path: Path) -> None:
    """CVE-2026-110985, CVE-2026-33557."""
    empty = tmp_path / "jwks"
    empty.write_text('{"keys": []}')
    for url, problem in [
        (empty.as_uri(), NoKeysError),
        ((tmp_path / "missing").as_uri(), SaslError),
        ("http://127.0.0.1:1/jwks", SaslError),
    ]:
        with pytest.raises(problem):
            asyncio.run(IssuerKeys(url, TokenRules(), 1000, IMPATIENT).start())


def test_new_keys_are_found_when_a_token_names_one() -> None:
    with OidcIssuer() as issuer:

        async def story() -> None:
            keys = IssuerKeys(issuer.jwks_url, TokenRules(), 100, IMPATIENT)
            validator = await keys.start()
            issuer.rotate()
            token = issuer.token("ann")
            async with asyncio.timeout(10):
                while True:
                    try:
                        assert validator.validate(token, 0).user == "ann"
                        break
                    except Exception:
                        await asyncio.sleep(0.05)
            await keys.stop()

        asyncio.run(story())


def test_providers_may_be_of_many_kinds() -> None:
    class Provider:
        def token(self) -> str:
            return "a"

        def extensions(self) -> dict[str, str]:
            return {"k": "v"}

    async def later() -> str:
        return "b"

    assert asyncio.run(provider_of(Provider())()) == BearerToken("a", {"k": "v"})
    assert asyncio.run(provider_of(later)()) == BearerToken("b")
    assert asyncio.run(provider_of(lambda: ("c", 12.5))()) == BearerToken("c")

    def broken() -> str:
        raise RuntimeError("s3cret")

    for bad in (broken, lambda: None, lambda: b"bytes", lambda: ""):
        with pytest.raises(SaslError) as problem:
            asyncio.run(provider_of(bad)())
        assert "s3cret" not in str(problem.value)
