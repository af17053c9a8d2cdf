"""A server: a replica of the store, and a port for clients that takes and gives lines of JSON."""

from __future__ import annotations

import asyncio
import json
import signal
from typing import Any

from examples.raft_kv.store import KeyValueStore

from barnabas.raft import NotLeaderError, OutcomeUnknownError, RaftNode, RaftOptions, parse_voters


async def serve(hosts: str, node_id: int, data_dir: str, *, sync: bool = True) -> None:
    """Run until a signal ends it."""
    options = RaftOptions(
        data_dir=data_dir, snapshot_bytes=10 * 1024, snapshot_interval_s=30, segment_bytes=1024 * 1024, sync=sync
    )
    store = KeyValueStore()

    def tell(leader_id: int | None) -> None:
        print("nobody leads" if leader_id is None else f"{leader_id} leads", flush=True)

    node = RaftNode(node_id, hosts, store, options, on_leader_change=tell)
    stopping = asyncio.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(each, stopping.set)

    async def talk(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while line := await reader.readline():
                writer.write(json.dumps(await answer(node, store, json.loads(line))).encode() + b"\n")
                await writer.drain()
        except (ConnectionError, ValueError):
            pass  # the client went away, or is none
        finally:
            writer.close()

    async with node:
        address = parse_voters(hosts)[node_id]
        clients = await asyncio.start_server(talk, address.host, address.port + 1)
        print(f"node {node_id} listens at {address}, for clients at {address.host}:{address.port + 1}", flush=True)
        ends = [asyncio.ensure_future(stopping.wait()), asyncio.ensure_future(node.until_failed())]
        done, _ = await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        clients.close()
        for ended in done:
            ended.result()


async def answer(node: RaftNode, store: KeyValueStore, request: dict[str, Any]) -> dict[str, Any]:
    """What a client is told: the value, or who leads, or that the outcome is not known and it should ask again."""
    key = request["key"]
    try:
        if "value" in request:
            await node.propose(json.dumps(request).encode())
            return {"key": key, "value": request["value"]}
        await node.read_barrier()
        return {"key": key, "value": store.values.get(key)}
    except NotLeaderError as elsewhere:
        return {"leader": elsewhere.leader_id}
    except OutcomeUnknownError:
        return {"leader": node.leader_id}
