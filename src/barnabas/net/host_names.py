"""The addresses of hosts that settings and quotas name."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from ipaddress import IPv6Address, ip_address
from typing import Final

from barnabas.net.sockets import SOCK_STREAM

#: How many names are remembered.
_MOST_NAMES: Final = 10_000


def address_of(text: str) -> str | None:
    """An address as connections show theirs; None if it is no address.

    >>> address_of("127.0.0.1"), address_of("::FFFF:127.0.0.1"), address_of("0:0::1"), address_of("localhost")
    ('127.0.0.1', '127.0.0.1', '::1', None)
    """
    try:
        address = ip_address(text)
    except ValueError:
        return None
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    return str(address)


class HostNames:
    """What names stand for. They are looked up away from the loop, so whoever uses them has that done before."""

    def __init__(self) -> None:
        self._addresses: dict[str, str | None] = {}

    async def look_up(self, names: Iterable[str]) -> None:
        """Find out what these stand for now; addresses stand for themselves."""
        wanted = [name for name in dict.fromkeys(names) if address_of(name) is None]
        if len(self._addresses) + len(wanted) > _MOST_NAMES:
            self._addresses.clear()
        for name, address in zip(wanted, await asyncio.gather(*map(self._resolved, wanted)), strict=True):
            self._addresses[name] = address

    def address(self, name: str) -> str | None:
        """What a name stood for when it was looked up; None if nobody knows it."""
        return address_of(name) or self._addresses.get(name)

    def is_known(self, name: str) -> bool:
        return self.address(name) is not None

    @staticmethod
    async def _resolved(name: str) -> str | None:
        try:
            found = await asyncio.get_running_loop().getaddrinfo(name, None, type=SOCK_STREAM)
        except (OSError, UnicodeError):
            return None
        return address_of(str(found[0][4][0])) if found else None
