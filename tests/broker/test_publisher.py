"""Committed metadata is applied batch by batch, each in its turn, whenever it comes."""

from __future__ import annotations

import asyncio

from barnabas.broker.publisher import MetadataPublisher
from barnabas.metadata.committer import CommittedBatch
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from tests.metadata.clusters import Cluster, new_topic


def batch(offset: int) -> CommittedBatch:
    return CommittedBatch(offset, offset, 1, 0, ())


def test_a_batch_at_the_very_end_of_another_is_applied_too() -> None:
    """The task that applies has ended, and nobody has heard of it yet."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        applied: list[int] = []
        is_done = asyncio.Event()

        async def apply(image: ClusterImage, _: ClusterDelta) -> None:
            applied.append(image.offset)
            if image.offset == 1:
                loop.call_soon(publisher.on_commit, batch(2))
            elif image.offset == 2:
                is_done.set()

        publisher = MetadataPublisher(apply, failures.append)
        await publisher.start()
        publisher.on_commit(batch(1))
        await asyncio.wait_for(is_done.wait(), 5)
        assert applied[-2:] == [1, 2]
        await publisher.stop()

    failures: list[BaseException] = []
    asyncio.run(story())
    assert not failures


def test_beside_a_controller_images_are_made_once_and_without_one_they_are_the_same() -> None:
    cluster = Cluster(brokers=1)
    cluster.controller.commit(len(cluster.log) - 1)
    start, first = cluster.image, len(cluster.log)
    cluster.create(new_topic("t", 2, 1))
    change = CommittedBatch(first, len(cluster.log) - 1, 1, 0, tuple(cluster.log[first:]))
    heard: dict[str, tuple[ClusterImage, ClusterDelta]] = {}

    async def story(name: str, *, has_controller: bool) -> None:
        async def apply(image: ClusterImage, delta: ClusterDelta) -> None:
            heard[name] = image, delta

        publisher = MetadataPublisher(apply, failures.append)
        publisher.committed = start
        if has_controller:
            publisher.decided = cluster.controller.decided
        await publisher.start()
        publisher.on_commit(change)
        await publisher.until_applied(change.last_offset)
        await publisher.stop()

    failures: list[BaseException] = []
    asyncio.run(story("beside it", has_controller=True))
    asyncio.run(story("alone", has_controller=False))
    assert not failures
    assert heard["beside it"] == heard["alone"]
    assert heard["beside it"][0].topics is cluster.image.topics
    assert heard["alone"][0].topics is not cluster.image.topics
