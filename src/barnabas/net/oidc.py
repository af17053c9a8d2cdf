"""Tokens and keys from elsewhere: the two things that OAUTHBEARER asks of an issuer, over HTTP or out of a file.

It is asked seldom, and away from the event loop. What it answers is not repeated in any message: secrets are in it.
"""

from __future__ import annotations

import asyncio
import json
from base64 import b64encode
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.error import HTTPError
from urllib.parse import quote, urlencode, urlsplit
from urllib.request import HTTPRedirectHandler, Request, build_opener

from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.base.sasl import SaslError
from barnabas.base.sasl.jwt import JwtValidator, TokenRules, keys_of, lifetime_ms
from barnabas.base.sasl.oauthbearer import BearerToken

if TYPE_CHECKING:
    from joserfc.jwk import Key

_log = logger("barnabas.net")

T = TypeVar("T")

_MAX_ANSWER_BYTES: Final = 1024 * 1024
_SERVER_ERRORS: Final = 500
#: A token that names a key which is not there has the keys loaded again, but not more often than this.
_SOONEST_REFRESH_S: Final = 10.0
_DEFAULT_TIMEOUT_MS: Final = 10_000


@dataclass(frozen=True, slots=True)
class Retries:
    """How patiently an issuer is asked."""

    timeout_ms: int = _DEFAULT_TIMEOUT_MS
    backoff_ms: int = 100
    backoff_max_ms: int = 10_000


@dataclass(frozen=True, slots=True)
class ClientCredentials:
    """What a client shows to an issuer in exchange for a token."""

    url: str
    client_id: str
    client_secret: str = field(repr=False)
    scope: str | None = None
    is_url_encoded: bool = False
    retries: Retries = Retries()


@dataclass(frozen=True, slots=True)
class RenewalTimes:
    """When a token is replaced, under the names of Kafka's `sasl.login.refresh.*`."""

    window_factor: float = 0.8
    window_jitter: float = 0.05
    min_period_seconds: int = 60
    buffer_seconds: int = 300

    def renewed_after_ms(self, life_ms: int, chance: float) -> float:
        """How long a token of this life is used; what is left of it counts where it is too short for the rest."""
        wanted_ms = life_ms * (self.window_factor + self.window_jitter * chance)
        least_ms, buffer_ms = self.min_period_seconds * 1000, self.buffer_seconds * 1000
        if life_ms <= least_ms + buffer_ms:
            return wanted_ms
        return max(least_ms, min(wanted_ms, life_ms - buffer_ms))


class IssuerError(SaslError):
    """The issuer did not give what was asked for. `may_pass` if it may, later."""

    def __init__(self, why: str, *, may_pass: bool) -> None:
        self.may_pass = may_pass
        super().__init__(why)


class IssuedTokens:
    """A provider of tokens: one token, kept as long as it is good, and asked for again before it ends."""

    def __init__(self, credentials: ClientCredentials, times: RenewalTimes, clock: Clock, randomness: Random) -> None:
        self._credentials = credentials
        self._times = times
        self._clock = clock
        self._randomness = randomness
        self._token: BearerToken | None = None
        self._renewed_at_ms = 0.0
        self._asking = asyncio.Lock()

    async def __call__(self) -> BearerToken:
        async with self._asking:
            now_ms = self._clock.now_ms()
            if self._token is None or now_ms >= self._renewed_at_ms:
                given = self._credentials
                value = await _patiently(lambda: _token_from(given), given.retries)
                _, expires_ms = lifetime_ms(value)
                life_ms = max(0, expires_ms - now_ms) if expires_ms is not None else 0
                self._renewed_at_ms = now_ms + self._times.renewed_after_ms(life_ms, self._randomness.random())
                self._token = BearerToken(value)
            return self._token


class IssuerKeys:
    """Keeps the keys of a validator: loaded at the start, and again from time to time, or when one is missing."""

    def __init__(self, url: str, rules: TokenRules, refresh_ms: int, retries: Retries) -> None:
        self._url = url
        self._rules = rules
        self._refresh_s = refresh_ms / 1000
        self._retries = retries
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> JwtValidator:
        """Load the keys. Raises a `BarnabasError` if there are none: then nobody may be let in."""
        validator = JwtValidator(self._rules, await self._load())
        self._task = asyncio.get_running_loop().create_task(self._keep_up(validator), name="keys of an issuer")
        return validator

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait([self._task])

    async def _load(self) -> list[Key]:
        text = await _patiently(lambda: _read(self._url, self._retries.timeout_ms), self._retries)
        try:
            return keys_of(text)
        except ValueError as problem:
            raise IssuerError(f"{self._url}: {problem}", may_pass=True) from None

    async def _keep_up(self, validator: JwtValidator) -> None:
        loop = asyncio.get_running_loop()
        loaded_at_s = loop.time()
        while True:
            # Whoever shows a token with a new key fails once; those after it find the key.
            await asyncio.sleep(min(1.0, self._refresh_s))
            age_s = loop.time() - loaded_at_s
            is_missed = validator.missing_key is not None and age_s >= min(_SOONEST_REFRESH_S, self._refresh_s)
            if age_s < self._refresh_s and not is_missed:
                continue
            validator.missing_key = None
            loaded_at_s = loop.time()
            try:
                validator.set_keys(await self._load())
            except Exception as problem:
                _log.warning("the keys of %s were not loaded again, and the old ones stay: %s", self._url, problem)


async def _patiently(work: Callable[[], T], retries: Retries) -> T:
    """Do something that blocks, away from the loop, and again if that may help."""
    loop = asyncio.get_running_loop()
    end_s = loop.time() + retries.backoff_max_ms / 1000
    wait_s = retries.backoff_ms / 1000
    while True:
        try:
            return await asyncio.to_thread(work)
        except IssuerError as problem:
            if not problem.may_pass or loop.time() + wait_s > end_s:
                raise
        await asyncio.sleep(wait_s)
        wait_s *= 2


def _token_from(given: ClientCredentials) -> str:
    if urlsplit(given.url).scheme == "file":
        return _read(given.url, given.retries.timeout_ms).decode().strip()
    user, secret = given.client_id, given.client_secret
    if given.is_url_encoded:
        user, secret = quote(user, safe=""), quote(secret, safe="")
    asked = {"grant_type": "client_credentials"}
    if given.scope:
        asked["scope"] = given.scope
    headers = {
        "Authorization": "Basic " + b64encode(f"{user}:{secret}".encode()).decode(),
        "Content-Type": "application/x-www-form-urlencoded",
        "Accept": "application/json",
    }
    answer = _read(given.url, given.retries.timeout_ms, urlencode(asked).encode(), headers)
    try:
        token = json.loads(answer)["access_token"]
    except (ValueError, KeyError, TypeError):
        token = None
    if not isinstance(token, str) or not token.strip():
        raise IssuerError(f"{given.url}: its answer holds no access_token", may_pass=False)
    return token.strip()


class _NoRedirects(HTTPRedirectHandler):
    """An issuer that sends elsewhere would have us show a secret there."""

    def redirect_request(self, *_: object) -> None:
        return None


def _read(url: str, timeout_ms: int, body: bytes | None = None, headers: dict[str, str] | None = None) -> bytes:
    scheme = urlsplit(url).scheme
    if scheme not in ("http", "https", "file"):
        raise IssuerError(f"{url}: http, https and file are known", may_pass=False)
    asked = Request(url, data=body, headers=headers or {})
    try:
        with build_opener(_NoRedirects).open(asked, timeout=timeout_ms / 1000) as answer:
            found: bytes = answer.read(_MAX_ANSWER_BYTES + 1)
    except HTTPError as problem:
        raise IssuerError(f"{url} answers {problem.code}", may_pass=problem.code >= _SERVER_ERRORS) from None
    except OSError as problem:
        reason = getattr(problem, "reason", None) or problem.strerror or type(problem).__name__
        raise IssuerError(f"{url} cannot be read: {reason}", may_pass=scheme != "file") from None
    if len(found) > _MAX_ANSWER_BYTES:
        raise IssuerError(f"{url} answers with more than {_MAX_ANSWER_BYTES} bytes", may_pass=False)
    return found
