"""A server of `examples.raft_kv` as it is, but reached by the others through a proxy, which can cut it off.

    python -m tests.raft.kv_server HOSTS ID --data-dir DIR --listen PORT [--plant stale-reads]

HOSTS names the proxies, and so does what a leader says of where it is reached; the server itself listens at PORT. Its
id stands in its requests, by which the proxies know whose connection they have.
"""

from __future__ import annotations

import argparse
import asyncio
import ctypes
import logging
import signal
import sys
from functools import partial
from random import Random

from examples.raft_kv import server

from barnabas.raft import Address, RaftNode, SocketTransport

_PR_SET_PDEATHSIG = 1


def client_id(node_id: int) -> str:
    return f"kv-{node_id}"


def die_with_parent() -> None:
    """However the one who started this process ends, it leaves no server behind."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


async def read_at_once(node: RaftNode) -> None:
    """The planted fault: whoever believes that it leads reads its own state. Another may lead already."""
    if not node.is_leader:
        raise node._not_leader()


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.raft.kv_server")
    parser.add_argument("hosts", metavar="HOSTS")
    parser.add_argument("id", metavar="ID", type=int)
    parser.add_argument("--data-dir", required=True)
    parser.add_argument("--listen", metavar="PORT", type=int, required=True)
    parser.add_argument("--plant", choices=["stale-reads"])
    asked = parser.parse_args()
    die_with_parent()
    logging.basicConfig(format="%(asctime)s %(levelname)s %(message)s", level=logging.INFO)
    logging.getLogger("barnabas.raft").setLevel(logging.DEBUG)
    listen = Address("127.0.0.1", asked.listen)
    transport = SocketTransport(listen, randomness=Random(), client_id=client_id(asked.id))
    setattr(server, "RaftNode", partial(RaftNode, transport=transport))  # noqa: B010
    if asked.plant:
        setattr(RaftNode, "read_barrier", read_at_once)  # noqa: B010
    asyncio.run(server.serve(asked.hosts, asked.id, asked.data_dir))


if __name__ == "__main__":
    main()
