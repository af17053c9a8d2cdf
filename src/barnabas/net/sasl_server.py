"""Who is there: the part of an accepted connection before its peer has shown who it is, and when it must do so again.

    [ApiVersions]* → SaslHandshake → tokens → ready → SaslHandshake → tokens → ready …

Until a connection is ready its requests come here and not to the handlers; only ApiVersions is passed on, so that the
answer is the same as later. A connection whose session ends comes here for every request, all others do not.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from struct import Struct
from typing import TYPE_CHECKING, Final, Protocol

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import RemoteProtocolError, known
from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.base.sasl import Authenticated, SaslError, SaslServer
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.compiler import Buffer
from barnabas.wire.frames import SIZE_BYTES
from barnabas.wire.headers import RequestHeader, decode_request_header, encode_response
from barnabas.wire.message import Response
from barnabas.wire.messages.api_versions import ApiVersionsResponse
from barnabas.wire.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from barnabas.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from barnabas.net.connection import Connection
    from barnabas.net.limits import ServerLimits
    from barnabas.net.request_channel import Dispatch

_log = logger("barnabas.net")

_KEY_AND_VERSION: Final = Struct(">hh")
#: Key, version and correlation id, which every header has.
_SHORTEST_BYTES: Final = 8
#: From this version of SaslHandshake on tokens travel in SaslAuthenticate; after older ones without any header.
_FIRST_WITH_HEADERS: Final = 1
#: The first version in which a client tells its software, so that it can be seen whether it was answered.
_FIRST_WITH_SOFTWARE: Final = 3
_UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
#: Who begins again sooner than this after the last time is answered as if that were not possible.
_SHORTEST_SESSION_S: Final = 1.0


@dataclass(slots=True)
class AuthenticationCounts:
    """How many connections of a listener came how far, as Kafka counts them."""

    successful: int = 0
    failed: int = 0
    successful_reauthentication: int = 0
    failed_reauthentication: int = 0
    #: Used after the end of their session without showing again who they are.
    expired_connections_killed: int = 0


@dataclass(slots=True, eq=False)
class SaslListener:
    """How the peers of a listener show who they are: what makes the server's side of each mechanism, by its name, and
    after how long they must do it again; 0 for never, unless what they showed runs out. Both may be exchanged: that
    counts for who begins after it."""

    mechanisms: Mapping[str, Callable[[], SaslServer]]
    clock: Clock
    max_reauth_ms: Mapping[str, int] = field(default_factory=dict)
    counts: AuthenticationCounts = field(default_factory=AuthenticationCounts)


class HasLimits(Protocol):
    """Where the limits are found that hold now."""

    @property
    def limits(self) -> ServerLimits: ...


class _State(Enum):
    #: ApiVersions or SaslHandshake may come; and later SaslHandshake alone.
    HANDSHAKE = auto()
    AUTHENTICATE = auto()
    #: It began again with another mechanism, and is told with its next request that this fails.
    OTHER_MECHANISM = auto()
    READY = auto()
    FAILED = auto()


class SaslAuthenticator:
    """One connection on its way to being ready. `serve` takes its requests then."""

    __slots__ = (
        "_around",
        "_before",
        "_began_again_s",
        "_expires_at_s",
        "_has_headers",
        "_listener",
        "_machine",
        "_mechanism",
        "_serve",
        "_state",
        "_versions_asked",
    )

    def __init__(self, listener: SaslListener, serve: Dispatch, around: HasLimits) -> None:
        self._listener = listener
        self._serve = serve
        self._around = around
        self._state = _State.HANDSHAKE
        self._mechanism = ""
        self._machine: SaslServer | None = None
        self._has_headers = False
        #: The version of ApiVersions that was passed on last.
        self._versions_asked: int | None = None
        #: Who was there before, while it shows again who it is.
        self._before: tuple[str, str] | None = None
        self._expires_at_s = 0.0
        self._began_again_s: float | None = None

    # What the connection gives

    def dispatch(self, connection: Connection, frame: bytearray) -> None:
        """Take a frame of a connection that is not ready, or not any more."""
        try:
            if self._state is _State.HANDSHAKE:
                self._take_request(connection, frame)
            elif self._state is _State.AUTHENTICATE:
                self._take_token(connection, frame)
            elif self._state is _State.OTHER_MECHANISM:
                self._fail(connection, "it wants to go on by another mechanism")
            else:
                connection.finish_without_response()
        except RemoteProtocolError as error:
            self._fail(connection, f"what it sent cannot be read: {error}")

    def dispatch_in_session(self, connection: Connection, frame: bytearray) -> None:
        """Take a request of a connection that is ready until its session ends."""
        now_s = asyncio.get_running_loop().time()
        if frame[:2] == _HANDSHAKE_KEY and self._may_begin_again(now_s):
            self._began_again_s = now_s
            self._before = (self._mechanism, connection.principal)
            self._state = _State.HANDSHAKE
            connection.dispatch = self.dispatch
            self.dispatch(connection, frame)
        elif now_s > self._expires_at_s:
            self._listener.counts.expired_connections_killed += 1
            connection.close("its session has ended, and it did not authenticate again")
        else:
            self._serve(connection, frame)

    def _may_begin_again(self, now_s: float) -> bool:
        return self._began_again_s is None or now_s - self._began_again_s >= _SHORTEST_SESSION_S

    # Before the tokens

    def _take_request(self, connection: Connection, frame: bytearray) -> None:
        if len(frame) < _SHORTEST_BYTES:
            raise RemoteProtocolError(f"{len(frame)} bytes are no request")
        key, version = _KEY_AND_VERSION.unpack_from(frame)
        if key == ApiKey.API_VERSIONS:
            if self._knows_versions(connection):
                self._fail(connection, "it asked for ApiVersions when SaslHandshake was due")
                return
            self._versions_asked = version
            self._serve(connection, frame)
        elif key == ApiKey.SASL_HANDSHAKE and version in api(ApiKey.SASL_HANDSHAKE).served:
            header, start = decode_request_header(frame)
            request, _ = SaslHandshakeRequest.decode_prefix(memoryview(frame), version, start)
            self._shake_hands(connection, header, request.mechanism)
        else:
            self._fail(connection, f"it asked for the API {key} v{version} before it was authenticated")

    def _knows_versions(self, connection: Connection) -> bool:
        """Whether ApiVersions was answered with more than a refusal."""
        asked = self._versions_asked
        if asked is None or asked not in api(ApiKey.API_VERSIONS).served:
            return False
        return asked < _FIRST_WITH_SOFTWARE or connection.client_software != _UNKNOWN_SOFTWARE

    def _shake_hands(self, connection: Connection, header: RequestHeader, mechanism: str) -> None:
        offered = list(self._listener.mechanisms)
        answer = SaslHandshakeResponse(mechanisms=offered)
        make = self._listener.mechanisms.get(mechanism)
        if make is None:
            answer.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            self._fail(connection, "it wants a mechanism that is not enabled", _framed(answer, header))
            return
        self._has_headers = header.request_api_version >= _FIRST_WITH_HEADERS
        if self._before is not None and self._before[0] != mechanism:
            self._state = _State.OTHER_MECHANISM
        else:
            self._mechanism = mechanism
            self._machine = make()
            self._state = _State.AUTHENTICATE
        connection.respond(_framed(answer, header))

    # Tokens

    def _take_token(self, connection: Connection, frame: bytearray) -> None:
        if not self._has_headers:
            self._respond(connection, bytes(frame), None)
            return
        header, start = decode_request_header(frame)
        key, version = header.request_api_key, header.request_api_version
        if key != ApiKey.SASL_AUTHENTICATE:
            self._fail(connection, f"it asked for the API {key} in the midst of SASL", _illegal_state(header))
        elif version not in api(ApiKey.SASL_AUTHENTICATE).served:
            self._fail(connection, f"it sent SaslAuthenticate v{version}, which is not served")
        else:
            request, _ = SaslAuthenticateRequest.decode_prefix(memoryview(frame), version, start)
            self._respond(connection, bytes(request.auth_bytes), header)

    def _respond(self, connection: Connection, token: bytes, header: RequestHeader | None) -> None:
        machine = known(self._machine, "a mechanism was chosen")
        try:
            answer = machine.respond(token)
            outcome = machine.outcome
            if outcome is not None:
                self._check_unchanged(outcome)
        except SaslError as failure:
            refusal = None
            if header is not None:
                told = failure.told or (
                    f"Authentication failed during {self._what} due to invalid credentials with SASL mechanism "
                    f"{self._mechanism}"
                )
                refused = SaslAuthenticateResponse(
                    error_code=ErrorCode.SASL_AUTHENTICATION_FAILED, error_message=told, auth_bytes=b""
                )
                refusal = _framed(refused, header)
            self._fail(connection, str(failure), refusal)
            return
        lifetime_ms = 0 if outcome is None else self._complete(connection, outcome)
        if header is None:
            # An empty answer has a frame, too.
            connection.respond_with_frame(len(answer).to_bytes(SIZE_BYTES, "big") + answer)
        else:
            done = SaslAuthenticateResponse(error_message="", auth_bytes=answer, session_lifetime_ms=lifetime_ms)
            connection.respond(_framed(done, header))

    @property
    def _what(self) -> str:
        return "authentication" if self._before is None else "re-authentication"

    def _check_unchanged(self, outcome: Authenticated) -> None:
        if self._before is not None and self._before[1] != outcome.principal:
            before, after = (each.replace(":", ".", 1) for each in (self._before[1], outcome.principal))
            told = f"Cannot change principals during re-authentication from {before}: {after}"
            raise SaslError("it wants to go on as another principal", told)

    # How it ends

    def _complete(self, connection: Connection, outcome: Authenticated) -> int:
        """The peer has shown who it is: how long that holds, in ms; 0 for as long as the connection."""
        counts = self._listener.counts
        if self._before is None:
            counts.successful += 1
            connection.become_ready(outcome.principal)
        else:
            counts.successful_reauthentication += 1
        connection.is_token_authenticated = outcome.is_token
        self._state, self._machine, self._before = _State.READY, None, None
        ends_ms = [] if outcome.expires_at_ms is None else [outcome.expires_at_ms - self._listener.clock.now_ms()]
        max_reauth_ms = self._listener.max_reauth_ms.get(self._mechanism, 0)
        if max_reauth_ms > 0:
            ends_ms.append(max_reauth_ms)
        if not ends_ms:
            connection.dispatch = self._serve
            return 0
        lifetime_ms = max(0, min(ends_ms))
        self._expires_at_s = asyncio.get_running_loop().time() + lifetime_ms / 1000
        connection.dispatch = self.dispatch_in_session
        return lifetime_ms

    def _fail(self, connection: Connection, why: str, answer: list[Buffer] | None = None) -> None:
        """Tell the peer that it has failed, and close, both after a while: who guesses is slowed down. Until then
        nothing is read, since the request stays in process."""
        counts = self._listener.counts
        if self._before is None:
            counts.failed += 1
        else:
            counts.failed_reauthentication += 1
        _log.info("Failed %s with %s on %s (%s)", self._what, connection.peer, connection.listener, why)
        self._state, self._machine = _State.FAILED, None

        def end() -> None:
            if answer is not None and not connection.is_closed:
                connection.respond(answer)
            connection.close(f"it failed to authenticate: {why}")

        delay_ms = self._around.limits.connection_failed_authentication_delay_ms
        if delay_ms <= 0:
            end()
        else:
            asyncio.get_running_loop().call_later(delay_ms / 1000, end)


_HANDSHAKE_KEY: Final = int(ApiKey.SASL_HANDSHAKE).to_bytes(2, "big")


def _framed(response: Response, header: RequestHeader) -> list[Buffer]:
    return encode_response(response, header.request_api_version, header.correlation_id)


def _illegal_state(header: RequestHeader) -> list[Buffer] | None:
    """For the two requests that belong to the phase and come at the wrong time; others learn nothing."""
    code = ErrorCode.ILLEGAL_SASL_STATE
    if header.request_api_version not in api(header.request_api_key).served:
        return None
    if header.request_api_key == ApiKey.SASL_HANDSHAKE:
        return _framed(SaslHandshakeResponse(error_code=code, mechanisms=[]), header)
    if header.request_api_key == ApiKey.API_VERSIONS:
        return _framed(ApiVersionsResponse(error_code=code, api_keys=[]), header)
    return None
