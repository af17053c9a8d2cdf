"""What can go wrong between two nodes, each with the address of the other."""

from __future__ import annotations

from barnabas.base.errors import BarnabasError


class ListenError(BarnabasError):
    """A listener cannot be opened."""


class AnswerTooLargeError(BarnabasError):
    """An answer would take more memory than any answer may."""

    def __init__(self, size_bytes: int, limit_bytes: int) -> None:
        self.size_bytes = size_bytes
        self.limit_bytes = limit_bytes
        super().__init__(f"an answer of {size_bytes} bytes was to be made; at most {limit_bytes} are possible")


class ChannelError(BarnabasError):
    """Something failed between us and the node at `address`."""

    def __init__(self, address: str, message: str) -> None:
        self.address = address
        self.reason = message
        super().__init__(f"{address}: {message}")


class ConnectError(ChannelError):
    """No connection was made. What was to be sent was not. `is_refused` if the host is there and nobody listens."""

    is_refused = False


class RefusedError(ChannelError):
    """Trying again does not help."""


class AuthenticationFailedError(RefusedError, ConnectError):
    """The two sides could not show each other who they are. Nothing was sent."""


class SslAuthenticationError(AuthenticationFailedError):
    """The TLS handshake failed: a certificate, a host name, a version or the cipher suites were refused."""


class NotSentError(ConnectError):
    """It waited for its turn as long as it may: behind others, for a connection, or since the node is to be spared."""


class DisconnectedError(ChannelError):
    """The connection ended while an answer was awaited: the request may have been carried out or not."""


class RequestTimeoutError(DisconnectedError):
    """The answer did not come in time. The connection was closed: later answers could not be told apart."""


class UnsupportedRequestError(RefusedError):
    """The two sides have no version of a request in common."""


def address_text(host: str, port: int) -> str:
    """`host:port`, with brackets around an IPv6 address; `*` for all addresses."""
    if ":" in host:
        return f"[{host}]:{port}"
    return f"{host or '*'}:{port}"
