"""Clusters of made-up topics, for assignors and groups that look at nothing else."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView


def view_of(topics: Mapping[str, int | Sequence[Sequence[str]]], version: int = 1) -> ClusterView:
    """A view from partition counts, or from the racks of the replicas of each partition."""
    racked = {
        topic: [()] * spec if isinstance(spec, int) else [tuple(racks) for racks in spec]
        for topic, spec in topics.items()
    }
    racks = sorted({rack for partitions in racked.values() for replicas in partitions for rack in replicas})
    node_of = {rack: number for number, rack in enumerate(racks)}
    nodes = {number: Node(number, "host", 9092, rack) for rack, number in node_of.items()}
    views = [
        TopicView(
            topic,
            partitions=tuple(
                PartitionInfo(topic, number, 0, replicas=tuple(node_of[rack] for rack in replicas))
                for number, replicas in enumerate(partitions)
            ),
        )
        for topic, partitions in racked.items()
    ]
    return ClusterView(version, "cluster", None, nodes, views)
