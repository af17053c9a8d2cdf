"""The little that is asked of sockets themselves. Transports without one, as in simulations, are left alone."""

from __future__ import annotations

import asyncio
import socket
from typing import Final

#: So that each address of a host comes once.
SOCK_STREAM: Final = socket.SOCK_STREAM


def tune(transport: asyncio.BaseTransport) -> None:
    """Send small responses at once, and let the kernel find out about peers that are gone without a word."""
    found = transport.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
