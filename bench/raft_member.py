"""One of three replicas, ours or pysyncobj's, in a process of its own; whoever leads makes the load.

    python -m bench.raft_member ours ID PORTS DIR --clients 1,64 --seconds 3 [--sync]

Each client proposes a command, waits until it is committed and applied, and proposes the next. That happens in the
leader's process, so that what is measured is the replication and not a way to it. The leader prints a line of JSON for
each number of clients. With syncs the store of `examples.raft_kv` is replicated; without them a plain table, the same
in both, since there the time that JSON takes would be most of what is compared.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import json
import logging
import time
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any

import pysyncobj
from examples.raft_kv.store import KeyValueStore

from barnabas.net.runtime import new_event_loop
from barnabas.raft import Address, RaftNode, RaftOptions

HOST = "127.0.0.1"
KEYS = 1000
WARM_UP_S = 0.5


class Table:
    """Keys and values, with next to nothing to do."""

    def __init__(self) -> None:
        self.values: dict[bytes, bytes] = {}

    def apply(self, command: bytes) -> None:
        key, _, value = command.partition(b"=")
        self.values[key] = value

    def snapshot(self) -> Iterable[bytes]:
        return [key + b"=" + value for key, value in self.values.items()]

    def restore(self, values: Iterable[bytes]) -> None:
        self.values.clear()
        for each in values:
            self.apply(each)


def table_command(number: int) -> bytes:
    return b"key-%d=%020d" % (number % KEYS, number)


def kv_command(number: int) -> bytes:
    """As the server of the example makes it of a client's request."""
    request = {"id": f"{number:032x}", "key": f"key-{number % KEYS}", "value": "v" * 20}
    return json.dumps(request).encode()


def tell(clients: int, seconds: float, latencies_s: list[float]) -> None:
    latencies_s.sort()
    place = int(len(latencies_s) * 0.99)
    result = {"clients": clients, "per_s": len(latencies_s) / seconds, "p99_ms": latencies_s[place] * 1000}
    print(json.dumps(result), flush=True)


# Ours


async def ours(asked: argparse.Namespace) -> None:
    voters = {node_id: Address(HOST, port) for node_id, port in enumerate(asked.ports, 1)}
    store, command_of = (KeyValueStore(), kv_command) if asked.sync else (Table(), table_command)
    node = RaftNode(asked.id, voters, store, RaftOptions(data_dir=asked.folder, sync=asked.sync))
    async with node:
        if await node.leader_known() == asked.id:
            await asyncio.sleep(1)
            for clients in asked.clients:
                await _load(node, command_of, clients, WARM_UP_S)
                tell(clients, asked.seconds, await _load(node, command_of, clients, asked.seconds))
        await node.until_failed()


async def _load(node: RaftNode, command_of: Callable[[int], bytes], clients: int, seconds: float) -> list[float]:
    latencies_s: list[float] = []
    clock, end_s = time.perf_counter, time.perf_counter() + seconds
    numbers = itertools.count()

    async def client() -> None:
        now_s = clock()
        while now_s < end_s:
            began_s = now_s
            await node.propose(command_of(next(numbers)))
            now_s = clock()
            latencies_s.append(now_s - began_s)

    await asyncio.gather(*(client() for _ in range(clients)))
    return latencies_s


# pysyncobj's


class Peer(pysyncobj.SyncObj):  # type: ignore[misc]
    """The same table, replicated by pysyncobj. Its log stays in memory."""

    def __init__(self, own: str, others: list[str], **options: Any) -> None:
        # Ticks are ours to make: without its thread it is faster. No log of this run is long enough to compact.
        conf = pysyncobj.SyncObjConf(autoTick=False, logCompactionMinEntries=1 << 40, logCompactionMinTime=1 << 20)
        for name, value in options.items():
            setattr(conf, name, value)
        super().__init__(own, others, conf)
        self._table = Table()

    @pysyncobj.replicated  # type: ignore[untyped-decorator]
    def apply(self, command: bytes) -> None:
        self._table.apply(command)


def peer(asked: argparse.Namespace) -> None:
    addresses = [f"{HOST}:{port}" for port in asked.ports]
    own = addresses.pop(asked.id - 1)
    options = {"appendEntriesUseBatch": asked.batch_ms > 0}
    if asked.batch_ms:
        options["appendEntriesPeriod"] = asked.batch_ms / 1000
    node = Peer(own, addresses, **options)
    is_done = False
    while True:
        node.doTick(0.05)
        if not is_done and node.isReady() and str(node._getLeader()) == own:
            _tick_for(node, 1.0)
            for clients in asked.clients:
                _peer_load(node, clients, WARM_UP_S)
                tell(clients, asked.seconds, _peer_load(node, clients, asked.seconds))
            is_done = True


def _tick_for(node: Peer, seconds: float) -> None:
    end_s = time.perf_counter() + seconds
    while time.perf_counter() < end_s:
        node.doTick(0.01)


def _peer_load(node: Peer, clients: int, seconds: float) -> list[float]:
    latencies_s: list[float] = []
    clock, end_s = time.perf_counter, time.perf_counter() + seconds
    numbers = itertools.count()
    # A callback comes in the midst of a tick: its client goes on after it.
    idle: deque[None] = deque([None] * clients)

    def done_at(began_s: float) -> Callable[[Any, Any], None]:
        def done(_: Any, error: Any) -> None:
            idle.append(None)
            if error == pysyncobj.FAIL_REASON.SUCCESS:
                latencies_s.append(clock() - began_s)

        return done

    while clock() < end_s or len(idle) < clients:
        while idle and clock() < end_s:
            idle.popleft()
            node.apply(table_command(next(numbers)), callback=done_at(clock()))
        node.doTick(0.001)
    return latencies_s


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.raft_member")
    parser.add_argument("who", choices=["ours", "pysyncobj"])
    parser.add_argument("id", type=int)
    parser.add_argument("ports", type=lambda text: [int(each) for each in text.split(",")])
    parser.add_argument("folder")
    parser.add_argument("--clients", type=lambda text: [int(each) for each in text.split(",")], required=True)
    parser.add_argument("--seconds", type=float, required=True)
    parser.add_argument("--sync", action="store_true")
    parser.add_argument("--batch-ms", type=float, default=0, help="how long pysyncobj collects; 0 not at all")
    asked = parser.parse_args()
    if asked.who == "pysyncobj":
        logging.disable()  # it complains of itself, thousands of times
        peer(asked)
    with contextlib.suppress(KeyboardInterrupt), asyncio.Runner(loop_factory=new_event_loop) as runner:
        runner.run(ours(asked))


if __name__ == "__main__":
    main()
