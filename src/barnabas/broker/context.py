"""Who asks, and how fast they may: what every handler gets with its request.

The hook for quotas is called from the first day and slows nobody down, so that the day quotas are built no handler must
change.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from barnabas.net import Connection
from barnabas.wire.apis import ApiKey
from barnabas.wire.message import Request, Response

#: What a response says when operations were not asked for.
NOT_ASKED: Final = -2147483648


class RequestContext(NamedTuple):
    """One request's circumstances, as values: a request that is forwarded takes them along. Made for every request."""

    api_key: ApiKey
    version: int
    correlation_id: int
    client_id: str | None
    listener: str
    principal: str
    client_host: str
    #: Whether it has shown who it is by a delegation token.
    is_token_authenticated: bool = False

    @property
    def is_own(self) -> bool:
        """Whether this node asks itself, within its process."""
        return False


class OwnRequestContext(RequestContext):
    """Of what this node asks itself: nothing that comes from outside is ever one."""

    __slots__ = ()

    @property
    def is_own(self) -> bool:
        return True


def context_of_frame(api_key: ApiKey, version: int, connection: Connection, frame: bytearray) -> RequestContext:
    """Of a request that was not decoded."""
    size_bytes = int.from_bytes(frame[8:10], "big", signed=True)
    client_id = frame[10 : 10 + size_bytes].decode() if size_bytes >= 0 else None
    correlation_id = int.from_bytes(frame[4:8], "big", signed=True)
    principal, host, by_token = connection.principal, connection.peer_host, connection.is_token_authenticated
    return RequestContext(api_key, version, correlation_id, client_id, connection.listener, principal, host, by_token)


class Quotas(Protocol):
    """Decides who must slow down."""

    @property
    def limits_frames(self) -> bool:
        """Whether requests must be decoded for it: those that are answered in their frames slow nobody down."""
        ...

    def throttle_ms(self, context: RequestContext, request: Request, response: Response) -> int:
        """How long the connection stays unread after this answer; told to the client in the answer."""
        ...


class NoQuotas:
    """The quotas of a node that has none."""

    limits_frames = False

    def throttle_ms(self, context: RequestContext, request: Request, response: Response) -> int:
        return 0
