"""Where the records of a topic go: known once its metadata is."""

from __future__ import annotations

import asyncio

from barnabas.base.ids import TopicPartition
from barnabas.client.core.cluster_view import ClusterView
from barnabas.client.core.producing.lanes import TopicLane
from barnabas.client.errors import ClientTimeoutError
from barnabas.client.producer.parts import ProducerParts, unknown_partition


async def find_lane(
    parts: ProducerParts, topic: str, partition: int | None, timeout_s: float, *, refresh: bool = False
) -> tuple[TopicLane, ClusterView]:
    """Wait for the metadata of a topic; also for that of a partition which may have been added meanwhile, and for new
    metadata in any case with `refresh`."""
    network, loop = parts.network, asyncio.get_running_loop()
    start = loop.time()

    def left_ms() -> float:
        return max(0.0, start + timeout_s - loop.time()) * 1000

    parts.metadata.want(topic, parts.clock.monotonic_ms())
    view = network.view
    if view.partition_count(topic) is None:
        view = await network.topic_metadata(topic, left_ms())
    if refresh or (partition is not None and partition >= (view.partition_count(topic) or 0)):
        view = await network.update_metadata(left_ms())
        if partition is not None and partition >= (view.partition_count(topic) or 0):
            raise unknown_partition(TopicPartition(topic, partition), view)
    lane = parts.accumulator.lane(topic, view)
    if lane is None:
        raise ClientTimeoutError(f"topic {topic!r} went away while a record for it waited")
    parts.metrics.metadata_wait(int((loop.time() - start) * 1e9))
    return lane, view
