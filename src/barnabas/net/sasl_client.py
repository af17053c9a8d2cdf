"""Showing a peer who we are: on a connection that was just opened, and again before its session ends."""

from __future__ import annotations

import asyncio
import inspect
from base64 import b64encode
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any, Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.sasl import Mechanism, SaslClient, SaslError
from barnabas.base.sasl.oauthbearer import BearerToken, OAuthBearerClient
from barnabas.base.sasl.plain import PlainClient
from barnabas.base.sasl.scram import TOKEN_AUTH, ScramClient
from barnabas.net.errors import AuthenticationFailedError, RequestTimeoutError, UnsupportedRequestError
from barnabas.net.outgoing import ClientRequest, OutgoingConnection, RequestForm
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

_NONCE_BYTES: Final = 24
#: From this version on tokens travel in SaslAuthenticate; every broker since Kafka 1.0 knows it.
_HANDSHAKE_VERSION: Final = 1
#: So many messages are more than any mechanism has.
_MAX_MESSAGES: Final = 8

#: Gives a token, or a token and its extensions.
TokenProvider = Callable[[], Coroutine[Any, Any, BearerToken]]


class SaslLogin(Protocol):
    """What a client or a node has to show. `repr` tells no secret."""

    @property
    def mechanism(self) -> Mechanism: ...

    async def new_client(self) -> SaslClient:
        """Our side of one exchange. Raises `SaslError` where there is nothing to show."""
        ...


@dataclass(frozen=True, slots=True, repr=False)
class PasswordLogin:
    """A user and a password, for PLAIN and SCRAM; or a delegation token: its id, and its secret in base64."""

    mechanism: Mechanism
    user: str
    password: str
    randomness: Random
    is_token: bool = False

    async def new_client(self) -> SaslClient:
        if self.mechanism is Mechanism.PLAIN:
            return PlainClient(self.user, self.password)
        extensions = {TOKEN_AUTH: "true"} if self.is_token else None
        nonce = new_nonce(self.randomness)
        return ScramClient(self.mechanism, self.user, self.password, nonce, extensions=extensions)

    def __repr__(self) -> str:
        return f"<{self.mechanism} as {self.user}>"


class TokenLogin:
    """A token for OAUTHBEARER, asked for anew for each exchange; whoever gives it may keep it for a while."""

    mechanism = Mechanism.OAUTHBEARER

    def __init__(self, provide: TokenProvider) -> None:
        self._provide = provide

    async def new_client(self) -> SaslClient:
        return OAuthBearerClient(await self._provide())

    def __repr__(self) -> str:
        return "<OAUTHBEARER by a token>"


def new_nonce(randomness: Random) -> str:
    return b64encode(randomness.randbytes(_NONCE_BYTES)).decode()


def provider_of(given: Any) -> TokenProvider:
    """Of what people give as a provider of tokens: a function, or an object with `token()` and perhaps `extensions()`,
    as kafka-python and aiokafka have it. What blocks is called away from the event loop."""
    ask = given.token if hasattr(given, "token") else given
    extensions_of: Callable[[], Mapping[str, str]] | None = getattr(given, "extensions", None)

    async def provide() -> BearerToken:
        try:
            found = await ask() if inspect.iscoroutinefunction(ask) else await asyncio.to_thread(ask)
            if inspect.isawaitable(found):
                found = await found
            extensions = dict(extensions_of() or {}) if extensions_of is not None else {}
        except SaslError:
            raise
        except Exception as problem:
            # Only its kind: what a provider says may hold the token, or what it was asked for with.
            raise SaslError(f"the provider of tokens failed with {type(problem).__name__}") from problem
        if isinstance(found, BearerToken):
            return found
        value = found[0] if isinstance(found, tuple) else found  # confluent-kafka's gives the time of expiry, too
        if not isinstance(value, str) or not value:
            raise SaslError(f"the provider of tokens gave no text, but {type(value).__name__}")
        return BearerToken(value, extensions)

    return provide


async def authenticate(
    connection: OutgoingConnection,
    address: str,
    client_id: str,
    offered: Mapping[int, tuple[int, int]],
    login: SaslLogin,
    timeout_ms: float,
    on_sent: Callable[[int], None],
) -> int:
    """Show a peer who we are; how long the session lasts, in ms, or 0 for as long as the connection.

    Raises `AuthenticationFailedError`, which says what was refused, or another `ChannelError`. The caller closes the
    connection then.
    """
    exchange = _Exchange(connection, address, client_id, timeout_ms, on_sent)
    mechanism = login.mechanism
    if offered.get(ApiKey.SASL_HANDSHAKE, (0, -1))[1] < _HANDSHAKE_VERSION:
        raise UnsupportedRequestError(address, f"it does not offer SaslHandshake {_HANDSHAKE_VERSION}")
    version = min(offered.get(ApiKey.SASL_AUTHENTICATE, (0, -1))[1], SaslAuthenticateRequest.VERSIONS.high)
    if version < 0:
        raise UnsupportedRequestError(address, "it does not offer SaslAuthenticate")
    try:
        client = await login.new_client()
        asked = SaslHandshakeRequest(mechanism=mechanism)
        _check_handshake(address, mechanism, await exchange.ask(asked, _HANDSHAKE_VERSION))
        token = client.first()
        for _ in range(_MAX_MESSAGES):
            answer: SaslAuthenticateResponse = await exchange.ask(SaslAuthenticateRequest(auth_bytes=token), version)
            if answer.error_code:
                raise AuthenticationFailedError(address, f"{login!r} was refused: {_refusal(answer)}")
            following = client.respond(bytes(answer.auth_bytes))
            if following is None:
                return answer.session_lifetime_ms
            token = following
    except SaslError as failure:
        raise AuthenticationFailedError(address, f"{login!r} failed: {failure}") from failure
    raise AuthenticationFailedError(address, f"{login!r} came to no end")


def _check_handshake(address: str, mechanism: Mechanism, answer: SaslHandshakeResponse) -> None:
    if answer.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
        enabled = ", ".join(answer.mechanisms) or "nothing"
        raise AuthenticationFailedError(address, f"it does not take {mechanism} (sasl.mechanism), but {enabled}")
    if answer.error_code == ErrorCode.ILLEGAL_SASL_STATE:
        raise AuthenticationFailedError(address, "its listener does not ask for SASL: look at security.protocol")
    if answer.error_code:
        raise AuthenticationFailedError(address, f"it answers SaslHandshake with {_code_text(answer.error_code)}")


def _refusal(answer: SaslAuthenticateResponse) -> str:
    code = _code_text(answer.error_code)
    return f"{answer.error_message} ({code})" if answer.error_message else code


def _code_text(code: int) -> str:
    names = {each.value: each.name for each in ErrorCode}
    return f"{names.get(code, 'an unknown error')} {code}"


class _Exchange:
    """Requests on a connection that serves nobody else meanwhile."""

    def __init__(
        self,
        connection: OutgoingConnection,
        address: str,
        client_id: str,
        timeout_ms: float,
        on_sent: Callable[[int], None],
    ) -> None:
        self._connection = connection
        self._address = address
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._on_sent = on_sent

    async def ask(self, message: Request, version: int) -> Any:
        connection, loop = self._connection, asyncio.get_running_loop()
        future: asyncio.Future[Any] = loop.create_future()
        asked = ClientRequest(message, version, self._timeout_ms, future=future)
        self._on_sent(connection.send(asked, RequestForm(type(message), version, self._client_id), loop.time()))
        try:
            async with asyncio.timeout(self._timeout_ms / 1000):
                return await future
        except TimeoutError:
            why = f"{asked.name} was not answered in {self._timeout_ms:.0f} ms"
            raise RequestTimeoutError(self._address, why) from None
