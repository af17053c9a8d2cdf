"""`python -m examples.raft_kv server HOSTS ID --data-dir DIR` and `… client HOSTS KEY [VALUE]`."""

from __future__ import annotations

import argparse
import asyncio
import json
import sys

from examples import raft_kv
from examples.raft_kv.client import Client
from examples.raft_kv.server import serve

from barnabas.base.errors import BarnabasError


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python -m examples.raft_kv",
        description=raft_kv.__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    roles = parser.add_subparsers(required=True, metavar="server | client")
    server = roles.add_parser("server", help="one of the servers")
    server.add_argument("hosts", metavar="HOSTS", help="host:port:id of every server, with commas between")
    server.add_argument("id", metavar="ID", type=int, help="which of them this is")
    server.add_argument("--data-dir", required=True, help="where its files lie")
    server.set_defaults(run=lambda asked: serve(asked.hosts, asked.id, asked.data_dir))
    client = roles.add_parser("client", help="set a key, or get it")
    client.add_argument("hosts", metavar="HOSTS", help="as for the servers")
    client.add_argument("key", metavar="KEY")
    client.add_argument("value", metavar="VALUE", nargs="?", help="without it, the key is read")
    client.set_defaults(run=ask)
    asked = parser.parse_args()
    try:
        asyncio.run(asked.run(asked))
    except (BarnabasError, OSError) as problem:
        print(problem or "no server answered in time; do two of the three run?", file=sys.stderr)
        return 1
    return 0


async def ask(asked: argparse.Namespace) -> None:
    client = Client(asked.hosts)
    print(json.dumps(await (client.get(asked.key) if asked.value is None else client.set(asked.key, asked.value))))
    client.close()


if __name__ == "__main__":
    sys.exit(main())
