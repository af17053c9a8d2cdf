"""Opening a connection: every address of a host is tried, and the peer is asked for its versions before all else."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from ipaddress import ip_address
from typing import Final, cast

from barnabas._version import package_version
from barnabas.base.error_codes import ErrorCode
from barnabas.base.log_context import logger
from barnabas.net.errors import (
    AuthenticationFailedError,
    ChannelError,
    ConnectError,
    DisconnectedError,
    RequestTimeoutError,
)
from barnabas.net.outgoing import ClientRequest, OutgoingConnection, RequestForm
from barnabas.net.sockets import SOCK_STREAM, Socket, SocketBuffers, buffers_text, open_socket, smaller_buffers
from barnabas.net.tls.dialing import ClientTls
from barnabas.net.tls.layer import TlsLayer
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

_log = logger("barnabas.net")

_SOFTWARE: Final = "barnabas"


async def connect(
    make: Callable[[], OutgoingConnection],
    host: str,
    port: int,
    address: str,
    timeout_ms: float,
    buffers: SocketBuffers,
    tls: ClientTls | None = None,
) -> OutgoingConnection:
    """Connect to the first address of the host that takes us; each has the whole timeout, or one that is silent would
    keep us from the others. Raises `ConnectError`, with TLS also `SslAuthenticationError`."""
    failures: list[str] = []
    refusals = 0
    try:
        async with asyncio.timeout(timeout_ms / 1000):
            hosts = [host] if _is_address(host) else await _addresses(host, port)
    except TimeoutError:
        raise ConnectError(address, f"no connection: the name was not found within {timeout_ms / 1000:.1f} s") from None
    except OSError as failure:
        raise ConnectError(address, f"no connection: {failure.strerror or failure}") from failure
    except UnicodeError as failure:
        # Of a label that is empty or too long: what no name server could be asked for.
        raise ConnectError(address, "no connection: no host can have this name") from failure
    maker = make if tls is None else tls.maker(make, host, timeout_ms)
    for each in hosts:
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                return await _connect_to(each, port, buffers, maker)
        except AuthenticationFailedError:
            raise  # it is there, so no other address of it would say anything else
        except TimeoutError:
            failures.append(f"{each}: no answer within {timeout_ms / 1000:.1f} s")
        except OSError as failure:
            failures.append(f"{each}: {_reason(failure)}")
            refusals += isinstance(failure, ConnectionRefusedError)
        except ConnectError as failure:
            failures.append(f"{each}: {failure.reason}")
    causes = "; ".join(failures) if len(failures) > 1 else failures[0].removeprefix(f"{hosts[0]}: ")
    refused = ConnectError(address, f"no connection: {causes}")
    refused.is_refused = refusals == len(hosts)
    raise refused


async def _connect_to(
    host: str, port: int, buffers: SocketBuffers, make: Callable[[], asyncio.BaseProtocol]
) -> OutgoingConnection:
    """One connection, with TLS set up if that is wanted."""
    loop = asyncio.get_running_loop()
    opened = await open_socket(loop, host, port, buffers)
    if opened is None:
        transport, protocol = await loop.create_connection(make, host, port)
    else:
        transport, protocol = await loop.create_connection(make, sock=opened)
    if _log.isEnabledFor(logging.DEBUG):
        _log.debug("Created socket with %s to %s:%d", buffers_text(transport), host, port)
    if opened is not None:
        _tell_smaller_buffers(opened, buffers)
    if isinstance(protocol, OutgoingConnection):
        return protocol
    connection = cast(OutgoingConnection, cast(TlsLayer, protocol).above)
    try:
        await cast("asyncio.Future[None]", connection.handshake)
    except BaseException:
        transport.abort()
        raise
    return connection


#: What was told already: it is the same of every connection.
_told: Final[set[str]] = set()


def _tell_smaller_buffers(opened: Socket, asked: SocketBuffers) -> None:
    """The system has a limit for what a program may ask for, and keeps to it without a word."""
    for line in smaller_buffers(opened, asked):
        if line not in _told:
            _told.add(line)
            _log.warning("%s", line)


def _reason(failure: OSError) -> str:
    # Loops have words of their own for the commonest one.
    if isinstance(failure, ConnectionRefusedError):
        return "Connection refused"
    return failure.strerror or str(failure)


def _is_address(host: str) -> bool:
    try:
        ip_address(host.partition("%")[0])
    except ValueError:
        return False
    return True


async def _addresses(host: str, port: int) -> list[str]:
    found = await asyncio.get_running_loop().getaddrinfo(host, port, type=SOCK_STREAM)
    return list(dict.fromkeys(str(place[0]) for *_, place in found))


async def negotiate(
    connection: OutgoingConnection,
    address: str,
    client_id: str,
    timeout_ms: float,
    on_sent: Callable[[int], None],
    *,
    is_plain: bool = False,
) -> ApiVersionsResponse:
    """Ask for the versions of the peer, in a version that it knows; what it knows may be told by a refusal. If that
    fails the connection is closed. Where it `is_plain`, perhaps a listener with TLS was asked, which ends it at once or
    answers with an alert."""
    try:
        return await _negotiate(connection, address, client_id, timeout_ms, on_sent)
    except BaseException as failure:
        connection.close(DisconnectedError(address, "its versions could not be learned"), by_us=True)
        if isinstance(failure, AuthenticationFailedError):
            raise
        if isinstance(failure, ChannelError):
            has_ended = is_plain and not isinstance(failure, RequestTimeoutError)
            hint = "; if its listener is one with TLS, security.protocol must say so" if has_ended else ""
            raise ConnectError(address, f"it did not tell its versions: {failure.reason}{hint}") from failure
        raise


async def _negotiate(
    connection: OutgoingConnection, address: str, client_id: str, timeout_ms: float, on_sent: Callable[[int], None]
) -> ApiVersionsResponse:
    version = ApiVersionsRequest.VERSIONS.high
    question = ApiVersionsRequest(client_software_name=_SOFTWARE, client_software_version=_software_version())
    loop = asyncio.get_running_loop()
    while True:
        future: asyncio.Future[ApiVersionsResponse] = loop.create_future()
        asked = ClientRequest(question, version, timeout_ms, future=future)
        on_sent(connection.send(asked, RequestForm(ApiVersionsRequest, version, client_id), loop.time()))
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                answer = await future
        except TimeoutError:
            raise RequestTimeoutError(address, f"ApiVersions was not answered in {timeout_ms:.0f} ms") from None
        if answer.error_code != ErrorCode.UNSUPPORTED_VERSION or not version:
            break
        offered = [each.max_version for each in answer.api_keys if each.api_key == ApiKey.API_VERSIONS]
        # Lower each time, so that this ends also with a peer that contradicts itself.
        version = max(0, min([version - 1, *offered])) if offered else 0
    if connection.failure is not None:
        raise connection.failure
    if answer.error_code:
        raise ConnectError(address, f"it answers ApiVersions with {_code_text(answer.error_code)}")
    return answer


def _software_version() -> str:
    """Peers refuse what is not made of letters, digits, dots and dashes."""
    version = package_version()
    return version if version.replace(".", "").replace("-", "").isalnum() else "unknown"


def _code_text(code: int) -> str:
    known = {each.value: each.name for each in ErrorCode}
    return f"{known.get(code, 'an unknown error')} ({code})"
