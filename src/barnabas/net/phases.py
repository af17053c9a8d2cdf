"""The phases of an accepted connection, how it moves between them, and what may be asked in each.

A listener says in which phase its connections begin: PLAINTEXT ones are ready at once, those with TLS begin with its
handshake. That a connection is muted, or waits for a place (`admission`), is no phase: both happen in any of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from types import MappingProxyType
from typing import Final

from barnabas.base.errors import known
from barnabas.wire.apis import ApiKey

#: What a peer may ask before it has shown who it is.
AUTHENTICATION_APIS: Final = frozenset({ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE})


class ConnectionPhase(Enum):
    """How far a connection has come: its name, whether what arrives is taken, and which APIs are served."""

    #: TLS is not set up, so that there are no frames yet.
    HANDSHAKING = ("in the TLS handshake", True, frozenset[ApiKey]())
    #: The peer has not shown who it is. Frames are small.
    AUTHENTICATING = ("authenticating", True, AUTHENTICATION_APIS)
    READY = ("ready", True, None)
    #: Nothing more is read. What was asked before is still answered.
    CLOSING_UNAUTHENTICATED = ("closing before it was authenticated", False, AUTHENTICATION_APIS)
    CLOSING = ("closing", False, None)
    CLOSED = ("closed", False, frozenset[ApiKey]())

    # Plain attributes, since they are asked several times per request.
    def __init__(self, text: str, is_open: bool, apis: frozenset[ApiKey] | None) -> None:
        self.text = text
        self.is_open = is_open
        #: None for all that the listener has.
        self.apis = apis

    def allows(self, api_key: int) -> bool:
        """Whether a request of this kind is served. One that is not ends the connection, as in Kafka."""
        return self.apis is None or api_key in self.apis

    def after(self, event: ConnectionEvent) -> ConnectionPhase:
        """The phase that follows. Raises `InvariantError` where such a thing cannot happen."""
        return known(TRANSITIONS[self].get(event), f"a connection that is {self.text} {event.value}")


class ConnectionEvent(Enum):
    """What moves a connection from one phase to the next."""

    #: The TLS handshake is done.
    SECURED = "was secured"
    AUTHENTICATED = "was authenticated"
    #: Nothing more is read from it: its peer is done, or was told to go, or makes no sense.
    ENDING = "is to end"
    CLOSED = "was closed"


TRANSITIONS: Final[Mapping[ConnectionPhase, Mapping[ConnectionEvent, ConnectionPhase]]] = MappingProxyType(
    {
        ConnectionPhase.HANDSHAKING: {
            ConnectionEvent.SECURED: ConnectionPhase.AUTHENTICATING,
            ConnectionEvent.ENDING: ConnectionPhase.CLOSING_UNAUTHENTICATED,
            ConnectionEvent.CLOSED: ConnectionPhase.CLOSED,
        },
        ConnectionPhase.AUTHENTICATING: {
            ConnectionEvent.AUTHENTICATED: ConnectionPhase.READY,
            ConnectionEvent.ENDING: ConnectionPhase.CLOSING_UNAUTHENTICATED,
            ConnectionEvent.CLOSED: ConnectionPhase.CLOSED,
        },
        ConnectionPhase.READY: {
            ConnectionEvent.ENDING: ConnectionPhase.CLOSING,
            ConnectionEvent.CLOSED: ConnectionPhase.CLOSED,
        },
        ConnectionPhase.CLOSING_UNAUTHENTICATED: {
            # What is still answered may be what authenticates.
            ConnectionEvent.AUTHENTICATED: ConnectionPhase.CLOSING,
            ConnectionEvent.CLOSED: ConnectionPhase.CLOSED,
        },
        ConnectionPhase.CLOSING: {ConnectionEvent.CLOSED: ConnectionPhase.CLOSED},
        ConnectionPhase.CLOSED: {},
    }
)
