"""Listening on addresses, with errors that a person can act upon."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from barnabas.net.errors import ListenError, address_text
from barnabas.net.phases import ConnectionPhase
from barnabas.net.sasl_server import SaslListener
from barnabas.net.tls.listening import ListenerTls

#: All addresses: one socket for each family, since one for both is not the same on every system.
_ALL_ADDRESSES: Final = ("0.0.0.0", "::")
_ATTEMPTS: Final = 10


@dataclass(frozen=True, slots=True)
class ListenerSpec:
    """Where to listen: an empty host for all addresses, port 0 for any free one.

    On a privileged listener nodes of the cluster talk to each other; see `Connection.is_privileged`. With `tls` its
    connections begin with a handshake, whatever `first_phase` says; with `sasl` its peers must show who they are before
    anything else.
    """

    name: str
    host: str
    port: int
    is_privileged: bool = False
    first_phase: ConnectionPhase = ConnectionPhase.READY
    sasl: SaslListener | None = None
    tls: ListenerTls | None = None
    #: With what a person chooses where it listens.
    chosen_with: str = "--listen or listeners=..."


class Listener:
    """The open sockets of one listener."""

    def __init__(self, spec: ListenerSpec) -> None:
        self.spec = spec
        self.port = spec.port
        self._servers: list[asyncio.Server] = []

    async def open(self, make: Callable[[], asyncio.BaseProtocol], backlog: int) -> None:
        """Begin to accept connections. Raises `ListenError`."""
        for _ in range(_ATTEMPTS):
            try:
                if await self._try_open(make, backlog):
                    return
            except OSError as failure:
                self.close()
                if failure.errno != errno.EADDRINUSE or self.spec.port or self.port == self.spec.port:
                    raise self._explain(failure) from failure
                # The port that was free on one address is taken on another: look for another one.
                self.port = 0
        raise ListenError(f"{address_text(self.spec.host, 0)}: no port was found that is free on all its addresses")

    def close(self) -> None:
        """Accept no more; connections stay."""
        for server in self._servers:
            server.close()
        self._servers.clear()

    async def _try_open(self, make: Callable[[], asyncio.BaseProtocol], backlog: int) -> bool:
        """False when the system chose different ports for different addresses; `port` then says which one to try."""
        loop = asyncio.get_running_loop()
        for host in (self.spec.host,) if self.spec.host else _ALL_ADDRESSES:
            try:
                server = await loop.create_server(make, host, self.port, backlog=backlog)
            except OSError as failure:
                if self._servers and failure.errno != errno.EADDRINUSE:
                    continue  # A machine without IPv6.
                raise
            self._servers.append(server)
            ports = {bound.getsockname()[1] for bound in server.sockets}
            self.port = self.port or server.sockets[0].getsockname()[1]
            if ports != {self.port}:
                self.close()
                return False
        return True

    def _explain(self, failure: OSError) -> ListenError:
        address, how = address_text(self.spec.host, self.spec.port), self.spec.chosen_with
        if failure.errno == errno.EADDRINUSE:
            return ListenError(f"{address} is already in use by another process; choose another with {how}")
        if failure.errno == errno.EADDRNOTAVAIL:
            why = "this machine does not have the address; choose another"
        elif failure.errno == errno.EACCES:
            why = "permission denied; choose a port from 1024 on"
        else:
            why = f"{failure.strerror or failure}; choose another"
        return ListenError(f"{address} cannot be listened on: {why} with {how}")
