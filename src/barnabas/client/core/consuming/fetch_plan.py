"""Which partitions are asked for next, and of whom."""

from __future__ import annotations

from collections.abc import Container, Mapping
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.consuming.fetch_sessions import WantedFetch
from barnabas.client.core.consuming.partition_state import PartitionState
from barnabas.client.settings.consumer import ConsumerSettings


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchLimits:
    """Under Kafka's names."""

    fetch_min_bytes: int
    fetch_max_bytes: int
    fetch_max_wait_ms: int
    max_partition_fetch_bytes: int
    client_rack: str
    is_read_committed: bool

    @classmethod
    def of(cls, settings: ConsumerSettings) -> FetchLimits:
        return cls(
            fetch_min_bytes=settings.fetch_min_bytes,
            fetch_max_bytes=settings.fetch_max_bytes,
            fetch_max_wait_ms=settings.fetch_max_wait_ms,
            max_partition_fetch_bytes=settings.max_partition_fetch_bytes,
            client_rack=settings.client_rack,
            is_read_committed=settings.isolation_level == "read_committed",
        )


@dataclass(slots=True)
class NodePlan:
    """What one node is asked for, in the order of assignment."""

    wanted: dict[TopicPartition, WantedFetch] = field(default_factory=dict)
    #: Whether some partitions of the node are left out, because enough of them waits to be taken.
    is_partial: bool = False
    #: Whether the answer will hold something for certain.
    has_data: bool = False

    def max_wait_ms(self, limits: FetchLimits) -> int:
        """A fetch that waits at the broker would keep those that were left out from being asked for in their turn."""
        return 0 if self.is_partial else limits.fetch_max_wait_ms


@dataclass(slots=True)
class FetchPlan:
    """What to ask now."""

    by_node: dict[int, NodePlan] = field(default_factory=dict)
    #: How many bytes an answer may bring.
    max_bytes: int = 0
    #: Whether some partition has no leader that is known, or its topic is not the one that is wanted.
    wants_metadata: bool = False
    #: When the first partition is ready that was left out to back off.
    next_at_ms: int | None = None
    #: How many nodes there are to be asked, now or when they have answered; None if that was not looked at.
    node_count: int | None = None


class FetchPlanner:
    """Decides by rules alone.

    - A partition is asked for when it has a position, is not paused nor at the end that is wanted, does not back off,
      and no more than one answer's worth of it (`max.partition.fetch.bytes`) waits to be taken. So the next records
      are on their way while the program works on those before.
    - It is not asked for while its name stands for another topic than the one that is wanted: the view may be old, and
      the next one is asked for.
    - It is asked of its leader, or of the replica nearby that the leader has named.
    - A node has one fetch at a time, and gets none while `fetch.max.bytes` wait to be taken.
    - While enough waits of some partitions of a node, the others are asked for only if there is something new in one of
      them for certain, and without waiting for more.
    """

    def __init__(self, limits: FetchLimits) -> None:
        self.limits = limits
        self._queue_bytes = max(limits.max_partition_fetch_bytes, 1)

    def plan(
        self,
        view: ClusterView,
        states: Mapping[TopicPartition, PartitionState],
        busy: Container[int],
        now_ms: int,
    ) -> FetchPlan:
        """`busy` are the nodes with a fetch under way."""
        limits = self.limits
        # What waits of paused partitions may wait for ever, and must not keep the others from being read.
        buffered_bytes = sum(state.queued_bytes for state in states.values() if state.is_fetchable)
        plan = FetchPlan(max_bytes=limits.fetch_max_bytes - buffered_bytes)
        if plan.max_bytes <= 0 and buffered_bytes:
            return plan
        busy_ids: set[int] = set()
        for partition, state in states.items():
            if not state.is_fetchable or state.is_fetched_to_the_end:
                continue
            if state.backs_off(now_ms):
                if plan.next_at_ms is None or state.retry_at_ms < plan.next_at_ms:
                    plan.next_at_ms = state.retry_at_ms
                continue
            node_id = self.node_for(view, partition, state, now_ms)
            topic_id = view.topic_id(partition.topic)
            is_another = state.topic_id is not None and topic_id not in (Uuid.ZERO, state.topic_id)
            if node_id < 0 or is_another:
                plan.wants_metadata = True
                continue
            if node_id in busy:
                busy_ids.add(node_id)
                continue
            node = plan.by_node.get(node_id)
            if node is None:
                node = plan.by_node[node_id] = NodePlan()
            if state.queued_bytes >= self._queue_bytes:
                node.is_partial = True
                continue
            node.has_data = node.has_data or self._has_data(state)
            node.wanted[partition] = WantedFetch(
                topic_id,
                state.fetch.offset,
                state.leader_epoch,
                state.fetch_bytes(limits.max_partition_fetch_bytes),
            )
        plan.node_count = len(plan.by_node) + len(busy_ids)
        plan.by_node = {
            node_id: node
            for node_id, node in plan.by_node.items()
            if node.wanted and (node.has_data or not node.is_partial)
        }
        return plan

    def _has_data(self, state: PartitionState) -> bool:
        end = state.last_stable_offset if self.limits.is_read_committed else state.high_watermark
        # Of one that was never fetched nothing is known; the first answer changes that.
        return end is None or state.fetch.offset < end

    def node_for(self, view: ClusterView, partition: TopicPartition, state: PartitionState, now_ms: int) -> int:
        """-1 if nobody is known who could be asked."""
        if state.preferred_replica >= 0:
            info = view.partition(partition)
            if (
                now_ms < state.preferred_until_ms
                and state.preferred_replica in view.nodes
                and (info is None or state.preferred_replica not in info.offline_replicas)
            ):
                return state.preferred_replica
            state.preferred_replica = -1
        leader = view.leader_of(partition)
        return -1 if leader is None else leader.node_id
