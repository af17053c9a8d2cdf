"""Who asks, and how fast they may: what every handler gets with its request.

Quotas are asked by the router for every answer, and by fetches before they read.
"""

from __future__ import annotations

from typing import Final, NamedTuple, Protocol

from barnabas.broker._kernel.credits import Allowance
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
        """Whether anybody has a quota: else nobody need be asked about requests that are answered in their frames."""
        ...

    def allowance(self, connection: Connection) -> Allowance:
        """What the sender of the request in process may use before the rules must be asked; remembered in the
        connection until it is stale."""
        ...

    def frame_throttle_ms(self, connection: Connection, answer_bytes: int) -> int:
        """The same as `throttle_ms` for a request that was answered in its frame, and not covered by the allowance."""
        ...

    def charge_given_up(self, connection: Connection) -> None:
        """A produce request that would have been answered in its frame is not, as its client is gone, or it failed:
        what was done counts."""
        ...

    def throttle_ms(
        self, context: RequestContext, request: Request, response: Response | None, connection: Connection
    ) -> int:
        """How long the connection stays muted after this answer, or without one; told to the client in the answer.

        Asked also where the client is gone before its answer: what was done for it counts.
        """
        ...

    def fetch_max_bytes(self, context: RequestContext, max_bytes: int) -> int:
        """How many bytes a consumer may fetch at once: more than its quota lets it have in a whole window would have to
        wait whenever they are asked for."""
        ...

    def fetch_throttle_ms(self, context: RequestContext, connection: Connection, size_bytes: int) -> tuple[int, bool]:
        """Asked before a fetch of a consumer reads so many bytes: how long its connection stays muted, and whether it
        gets them all the same. Otherwise it gets nothing, and they do not count.

        Whoever has fetched nothing in the whole window gets what is there, and waits for it afterwards: a batch that is
        larger than the quota for a window would never be read.
        """
        ...

    def charge_rest(self, context: RequestContext, connection: Connection) -> None:
        """The answer is made: what it took since its sender was charged counts, too. As in Kafka, where the time of
        network threads does, that makes only the next request wait."""
        ...


class NoQuotas:
    """The quotas of a node that has none."""

    limits_frames = False

    def allowance(self, connection: Connection) -> Allowance:
        return Allowance(None, None, None)

    def frame_throttle_ms(self, connection: Connection, answer_bytes: int) -> int:
        return 0

    def charge_given_up(self, connection: Connection) -> None:
        pass

    def throttle_ms(
        self, context: RequestContext, request: Request, response: Response | None, connection: Connection
    ) -> int:
        told_ms: int = getattr(response, "throttle_time_ms", 0)
        return told_ms

    def fetch_max_bytes(self, context: RequestContext, max_bytes: int) -> int:
        return max_bytes

    def fetch_throttle_ms(self, context: RequestContext, connection: Connection, size_bytes: int) -> tuple[int, bool]:
        return 0, True

    def charge_rest(self, context: RequestContext, connection: Connection) -> None:
        pass
