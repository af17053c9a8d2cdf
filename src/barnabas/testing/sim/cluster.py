"""Clusters of simulated nodes: who is what, and where."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from barnabas.base.ids import Uuid
from barnabas.testing.sim.world import BROKER_PORT, CONTROLLER_PORT, SimulatedNode, World

if TYPE_CHECKING:
    from barnabas.broker.node import Node

__all__ = ["ClusterPlan"]


@dataclass(frozen=True, slots=True)
class ClusterPlan:
    """`controllers` vote. Without `brokers` each of them is a broker, too; else the brokers are nodes of their own."""

    controllers: int = 3
    brokers: int = 0

    def addresses(self) -> dict[int, str]:
        """Where each node is, by its id; controllers first."""
        return {node_id: f"10.0.0.{node_id}" for node_id in range(1, self.controllers + self.brokers + 1)}

    def is_broker(self, node_id: int) -> bool:
        return not self.brokers or node_id > self.controllers

    def members(
        self,
        world: World,
        overrides: Mapping[str, object],
        on_made: Callable[[int, Node], None] | None = None,
        levels: Mapping[str, int] | None = None,
    ) -> list[SimulatedNode]:
        """The nodes, of one cluster, not started. `on_made` sees each node, with its id, whenever one is made. They are
        formatted with these `levels` of features (see `SimulatedNode`), others with the newest."""
        cluster_id = str(Uuid.random(world.random("cluster")))

        def member(node_id: int, address: str) -> SimulatedNode:
            return SimulatedNode(
                world.host(address),
                {**self._settings(node_id, address), **overrides},
                {},
                cluster_id=cluster_id,
                levels=levels,
                on_made=None if on_made is None else lambda node: on_made(node_id, node),
            )

        return [member(node_id, address) for node_id, address in self.addresses().items()]

    def _settings(self, node_id: int, address: str) -> dict[str, object]:
        voters = [
            f"{each}@{where}:{CONTROLLER_PORT}" for each, where in self.addresses().items() if each <= self.controllers
        ]
        serves_clients, decides = f"PLAINTEXT://{address}:{BROKER_PORT}", f"CONTROLLER://{address}:{CONTROLLER_PORT}"
        if not self.brokers:
            roles, listeners = "broker,controller", f"{serves_clients},{decides}"
        elif self.is_broker(node_id):
            roles, listeners = "broker", serves_clients
        else:
            roles, listeners = "controller", decides
        return {
            "node.id": node_id,
            "process.roles": roles,
            "listeners": listeners,
            "controller.quorum.voters": ",".join(voters),
        }
