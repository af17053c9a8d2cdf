"""The little that is asked of sockets themselves. Transports without one, as in simulations, are left alone."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import sys
from collections.abc import Iterator
from typing import Final, NamedTuple

Socket = socket.socket

#: So that each address of a host comes once.
SOCK_STREAM: Final = socket.SOCK_STREAM

#: Who waits for an answer that may take minutes, as that to a JoinGroup, hears nothing from a machine without power.
#: The system asks at first after so many seconds, then so often; by default it begins with that after two hours.
KEEPALIVE_IDLE_S: Final = 20
KEEPALIVE_INTERVAL_S: Final = 5
KEEPALIVE_COUNT: Final = 3
_KEEPALIVE: Final = {
    "TCP_KEEPIDLE": KEEPALIVE_IDLE_S,
    "TCP_KEEPINTVL": KEEPALIVE_INTERVAL_S,
    "TCP_KEEPCNT": KEEPALIVE_COUNT,
}


class SocketBuffers(NamedTuple):
    """Sizes for the kernel; -1 leaves one to the system, which lets it grow as needed."""

    send_bytes: int = -1
    receive_bytes: int = -1


async def open_socket(
    loop: asyncio.AbstractEventLoop, host: str, port: int, buffers: SocketBuffers
) -> socket.socket | None:
    """A socket that is connected to an address and has such buffers; None where the loop may open one as it likes.

    The sizes are set before it connects: what window a peer may use is agreed on then.
    """
    if max(buffers) < 0 or not getattr(loop, "has_sockets", True):
        return None
    family, kind, protocol, _, place = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_NUMERICHOST
    )[0]
    opened = socket.socket(family, kind, protocol)
    try:
        opened.setblocking(False)
        if buffers.send_bytes >= 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, buffers.send_bytes)
        if buffers.receive_bytes >= 0:
            opened.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffers.receive_bytes)
        await loop.sock_connect(opened, place)
    except BaseException:
        opened.close()
        raise
    return opened


@contextlib.contextmanager
def reserved_ports(host: str, count: int) -> Iterator[list[int]]:
    """Ports that nobody has, all different, and that nobody gets by chance as long as this lasts.

    They are bound, but nobody listens there. Linux lets a server listen all the same, and gives such a port neither to
    whoever asks for any nor to a connection that goes out. Other systems would refuse the server: there the ports are
    given back as soon as the last is drawn.
    """
    with contextlib.ExitStack() as held:
        ports = []
        for _ in range(count):
            bound = held.enter_context(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET))
            bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            bound.bind((host, 0))
            ports.append(bound.getsockname()[1])
        if sys.platform != "linux":
            held.close()
        yield ports


def buffers_text(transport: asyncio.BaseTransport) -> str:
    """What buffers a connection has, as Kafka's clients log it."""
    found = transport.get_extra_info("socket")
    if found is None:
        return "buffers of its own"
    sizes = (found.getsockopt(socket.SOL_SOCKET, option) for option in (socket.SO_RCVBUF, socket.SO_SNDBUF))
    return "SO_RCVBUF = {}, SO_SNDBUF = {}".format(*sizes)


def smaller_buffers(opened: Socket, asked: SocketBuffers) -> list[str]:
    """Of buffers that are smaller than was asked for: which, how large they are, and what limits them. Linux counts its
    own bookkeeping as well, and doubles what is asked for."""
    lines = []
    for wanted, option, name, limit in (
        (asked.send_bytes, socket.SO_SNDBUF, "send.buffer.bytes", "net.core.wmem_max"),
        (asked.receive_bytes, socket.SO_RCVBUF, "receive.buffer.bytes", "net.core.rmem_max"),
    ):
        has_bytes = opened.getsockopt(socket.SOL_SOCKET, option)
        got_bytes = has_bytes // 2 if sys.platform == "linux" else has_bytes
        if wanted > got_bytes:
            lines.append(f"{name}={wanted} was asked for, and the system gives {got_bytes}: {limit} limits it")
    return lines


def sends_untouched(transport: asyncio.BaseTransport) -> bool:
    """Whether what is written goes to a system call as it is. uvloop neither looks at it nor copies it, but for TLS."""
    kind = type(transport)
    return (kind.__module__, kind.__name__) == ("uvloop.loop", "TCPTransport")


def tune(transport: asyncio.BaseTransport) -> None:
    """Send small responses at once, and let the kernel find out about peers that are gone without a word."""
    found = transport.get_extra_info("socket")
    if found is not None and found.family in (socket.AF_INET, socket.AF_INET6):
        found.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE.items():
            if hasattr(socket, option):
                found.setsockopt(socket.IPPROTO_TCP, getattr(socket, option), value)
