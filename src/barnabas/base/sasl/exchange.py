"""What all mechanisms have in common: two machines that take turns, and how it ends."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from barnabas.base.errors import BarnabasError


@dataclass(frozen=True, slots=True)
class Authenticated:
    """Who the other side has shown to be."""

    user: str
    #: When what it showed runs out, in ms since 1970; None if it does not.
    expires_at_ms: int | None = None
    #: Whether it logged in with a delegation token, and so may not ask for others.
    is_token: bool = False

    @property
    def principal(self) -> str:
        return f"User:{self.user}"


class SaslError(BarnabasError):
    """The exchange has failed. The text is for our own log, and holds no secret; `told` may go to the other side, and
    is None where that gets the same sentence for everything that can be wrong."""

    def __init__(self, why: str, told: str | None = None) -> None:
        self.told = told
        super().__init__(why)


class SaslServer(Protocol):
    """The side that is to be convinced. One for each exchange."""

    @property
    def outcome(self) -> Authenticated | None:
        """Who it is, once the exchange is complete."""
        ...

    def respond(self, token: bytes) -> bytes:
        """What to send for what came. Raises `SaslError`."""
        ...


class SaslClient(Protocol):
    """The side that shows who it is. One for each exchange."""

    def first(self) -> bytes:
        """What to send first."""
        ...

    def respond(self, challenge: bytes) -> bytes | None:
        """What to send for what came; None when all is said and the other side is convinced. Raises `SaslError`."""
        ...


def text_of(token: bytes, what: str) -> str:
    """The text of a message. Raises `SaslError`."""
    try:
        return token.decode()
    except UnicodeDecodeError:
        raise SaslError(f"{what} is not UTF-8") from None
