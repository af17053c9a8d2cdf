"""One member of a classic group."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from barnabas.coordinator.results import Token

NO_MEMBER_ID: Final = ""
NO_ASSIGNMENT: Final = b""


class Client(NamedTuple):
    """Who sent a request, as it is stored with the member."""

    client_id: str
    #: With the slash in front that Java prints before addresses; tools show it as it is.
    host: str


class Protocol(NamedTuple):
    """A way of assigning that a member supports, and what it has to say to a leader who chooses that way."""

    name: str
    metadata: bytes


@dataclass(slots=True, eq=False)
class Member:
    """A member and the requests of it that are parked: at the join barrier, or waiting for the assignment."""

    member_id: str
    instance_id: str | None
    client: Client
    rebalance_timeout_ms: int
    session_timeout_ms: int
    #: In the member's order of preference.
    protocols: tuple[Protocol, ...]
    assignment: bytes = NO_ASSIGNMENT
    join_token: Token | None = None
    sync_token: Token | None = None
    #: Has never been in a generation: it does not know its id yet, or not that it was taken in.
    is_new: bool = False

    @property
    def is_static(self) -> bool:
        return self.instance_id is not None

    @property
    def is_kept_waiting(self) -> bool:
        """Whether it is for us to speak next, so that its silence means nothing."""
        return not self.is_new and (self.join_token is not None or self.sync_token is not None)

    def metadata(self, protocol: str | None) -> bytes:
        return next((each.metadata for each in self.protocols if each.name == protocol), b"")
