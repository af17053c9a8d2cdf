"""Nodes of a quorum in a simulated world: each a process on a host of its own, with its own disk."""

from __future__ import annotations

from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

from barnabas.raft import Address, QuorumOptions, RaftNode, RaftOptions
from barnabas.testing.sim.world import Host, World
from tests.virtual_time import until

T = TypeVar("T")

PORT = 16010


class Journal:
    """A state machine that shows what it was told: every command, in order. A command's result is its number."""

    def __init__(self) -> None:
        self.commands: list[bytes] = []
        self.snapshot_count = 0
        self.restored: list[int] = []

    def apply(self, command: bytes) -> int:
        self.commands.append(command)
        return len(self.commands)

    def snapshot(self) -> Iterable[bytes]:
        self.snapshot_count += 1
        return list(self.commands)

    def restore(self, values: Iterable[bytes]) -> None:
        self.commands = list(values)
        self.restored.append(len(self.commands))


class NodeWorld:
    """So many nodes, with ids from 1 on; `start` begins a new process with an empty state machine."""

    def __init__(self, world: World, count: int = 3, *, quorum: QuorumOptions | None = None, **options: Any) -> None:
        self.world = world
        self.addresses = {node_id: Address(f"10.0.0.{node_id}", PORT) for node_id in range(1, count + 1)}
        self._options = {"data_dir": "/data", "quorum": quorum or QuorumOptions(), **options}
        self.nodes: dict[int, RaftNode] = {}
        #: What `on_leader_change` was told, by each node.
        self.told: dict[int, list[int | None]] = {node_id: [] for node_id in self.addresses}

    def host(self, node_id: int) -> Host:
        return self.world.host(self.addresses[node_id].host)

    def journal(self, node_id: int) -> Journal:
        machine = self.nodes[node_id].state_machine
        assert isinstance(machine, Journal)
        return machine

    def make(self, node_id: int, **options: Any) -> RaftNode:
        """A node in the present process of its host."""
        host = self.host(node_id)
        return RaftNode(
            node_id,
            self.addresses,
            Journal(),
            RaftOptions(**{**self._options, **options}),
            on_leader_change=self.told[node_id].append,
            runtime=host.runtime(),
            files=host.disk,
        )

    async def start(self, *node_ids: int, **options: Any) -> None:
        """Start these, or all."""
        for node_id in node_ids or self.addresses:
            self.host(node_id).start_process("raft")
            self.nodes[node_id] = self.make(node_id, **options)
            await self.do(node_id, self.nodes[node_id].start())

    async def stop(self, node_id: int) -> None:
        await self.do(node_id, self.nodes[node_id].stop())
        self.host(node_id).kill()

    async def do(self, node_id: int, work: Coroutine[Any, Any, T]) -> T:
        return await self.host(node_id).do(work)

    @property
    def leading(self) -> list[int]:
        return [each for each, node in self.nodes.items() if self.host(each).is_running and node.is_leader]

    async def leader(self, *, other_than: int = -1) -> int:
        """Wait for a leader; who."""
        await until(lambda: [each for each in self.leading if each != other_than])
        return next(each for each in self.leading if each != other_than)

    def followers(self, leader_id: int) -> list[int]:
        return [each for each in self.addresses if each != leader_id]

    async def propose(self, command: bytes, *, at: int | None = None) -> Any:
        node_id = await self.leader() if at is None else at
        return await self.do(node_id, self.nodes[node_id].propose(command))

    async def until_all_have(self, commands: list[bytes], *node_ids: int) -> None:
        await until(lambda: all(self.journal(each).commands == commands for each in node_ids or self.addresses))

    def cut_off(self, node_id: int) -> None:
        others = [address.host for each, address in self.addresses.items() if each != node_id]
        self.world.network.partition([self.addresses[node_id].host], others)
