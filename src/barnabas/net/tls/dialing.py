"""TLS on connections that we open."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

from barnabas.net.tls.cipher_suites import openssl_names
from barnabas.net.tls.contexts import GivenContext, TlsContexts
from barnabas.net.tls.layer import TlsLayer

if TYPE_CHECKING:
    from barnabas.net.outgoing import OutgoingConnection


class ClientTls:
    """What each connection of a client, or of a node to other nodes, is secured with."""

    __slots__ = ("contexts",)

    def __init__(self, contexts: TlsContexts | GivenContext) -> None:
        self.contexts = contexts

    def maker(
        self, make: Callable[[], OutgoingConnection], host: str, timeout_ms: float
    ) -> Callable[[], asyncio.BaseProtocol]:
        """What makes a connection with TLS to `host`, which its certificate must name."""

        def made() -> TlsLayer:
            above = make()
            above.handshake = asyncio.get_running_loop().create_future()
            suites = frozenset(openssl_names(self.contexts.options.cipher_suites))
            name = host.partition("%")[0]  # without the zone of an address
            return TlsLayer(self.contexts.client, above, timeout_ms=timeout_ms, host=name, suites=suites)

        return made
