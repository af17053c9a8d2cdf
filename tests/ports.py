"""Ports for servers that must know theirs before they start."""

from __future__ import annotations

import atexit
import contextlib
from typing import Final

from barnabas.net.sockets import reserved_ports

_held: Final = contextlib.ExitStack()
atexit.register(_held.close)


def free_ports(count: int, host: str = "127.0.0.1") -> list[int]:
    """Ports that nobody has, and that nobody gets by chance as long as the tests run: not even while the server that
    has one is killed and started again."""
    return _held.enter_context(reserved_ports(host, count))
