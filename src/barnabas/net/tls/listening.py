"""TLS on a listener: its contexts, and who the owners of certificates are."""

from __future__ import annotations

import asyncio
from typing import Final

from barnabas.net.tls.cipher_suites import openssl_names
from barnabas.net.tls.contexts import TlsContexts
from barnabas.net.tls.distinguished_names import subject_name
from barnabas.net.tls.layer import TlsLayer
from barnabas.net.tls.principal_mapping import PrincipalMapper

USER: Final = "User:"


class ListenerTls:
    """What each connection of a listener is secured with. The contexts may be replaced at any time."""

    __slots__ = ("_mapper", "contexts")

    def __init__(self, contexts: TlsContexts, mapper: PrincipalMapper) -> None:
        self.contexts = contexts
        self._mapper = mapper

    def layer(self, above: asyncio.BufferedProtocol, timeout_ms: float) -> TlsLayer:
        """TLS under a connection that was just accepted."""
        suites = frozenset(openssl_names(self.contexts.options.cipher_suites))
        return TlsLayer(self.contexts.server, above, timeout_ms=timeout_ms, suites=suites, server_side=True)

    def principal_of(self, certificate: bytes) -> str:
        """The principal that a certificate names. Raises `ValueError` if it names nobody."""
        return f"{USER}{self._mapper.name_of(subject_name(certificate))}"
