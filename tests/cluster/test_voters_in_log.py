"""Kafka 4's way of formatting: the log names the voters (kraft.version 1), and nodes find them by bootstrap servers."""

from __future__ import annotations

import random
from collections.abc import Mapping
from pathlib import Path

from barnabas import Admin
from barnabas.base.ids import Uuid
from barnabas.cli.main import main
from tests.cluster.asking import active, all_unfenced, create, created, topics, until
from tests.cluster.nodes import COMBINED, Cluster, Node

_BROKER = 4


class FormattedByHand(Cluster):
    """Formatted by our tool, with `--initial-controllers`."""

    def __init__(self, folder: Path, roles: Mapping[int, str]) -> None:
        super().__init__(folder, roles)
        self._initial = ",".join(
            f"{each.node_id}@{each.controller}:{Uuid.random(random.Random(each.node_id))}" for each in self.controllers
        )

    def properties(self, node: Node, changes: Mapping[str, str] | None = None) -> dict[str, str]:
        found = super().properties(node, changes)
        del found["controller.quorum.voters"]
        servers = ",".join(each.controller for each in self.controllers)
        return found | {"controller.quorum.bootstrap.servers": servers}

    def format(self, node: Node, cluster_id: str | None = None) -> None:
        first = ["--initial-controllers", self._initial] if node.is_controller else []
        code = main(["storage", "format", "-t", cluster_id or self.cluster_id, "-c", str(node.file), *first])
        assert code == 0


def test_three_nodes_and_a_broker(tmp_path: Path) -> None:
    with FormattedByHand(tmp_path, dict.fromkeys((1, 2, 3), COMBINED) | {_BROKER: "broker"}) as cluster:
        all_unfenced(cluster)
        broker = cluster[_BROKER]
        created(broker, "first")
        with Admin(bootstrap_servers=broker.bootstrap) as admin:
            assert admin.describe_features().finalized["kraft.version"].max_level == 1
            voters = admin.describe_metadata_quorum().voters
        assert sorted(each.replica_id for each in voters) == [1, 2, 3]
        assert len({each.directory_id for each in voters} - {Uuid.ZERO}) == 3
        leader, epoch = active(cluster)
        leader.kill()
        until("another leads", lambda: create(broker, "second", timeout_ms=5000)[0] in (0, 36))
        cluster.start_missing()
        active(cluster, above=epoch)
        all_unfenced(cluster)
        for each in cluster.brokers:
            until("all is known", lambda each=each: {"first", "second"} <= topics(each))  # type: ignore[misc]
