"""Committed metadata is applied batch by batch, each in its turn, whenever it comes."""

from __future__ import annotations

import asyncio

from barnabas.broker.broker_publisher import BrokerMetadataPublisher
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.raft.types import CommittedBatch


def batch(offset: int) -> CommittedBatch:
    return CommittedBatch(offset, offset, 1, 0, 70, ())


def test_a_batch_at_the_very_end_of_another_is_applied_too() -> None:
    """The task that applies has ended, and nobody has heard of it yet."""

    async def story() -> None:
        loop = asyncio.get_running_loop()
        applied: list[int] = []
        is_done = asyncio.Event()

        async def apply(image: ClusterImage, _: ClusterDelta) -> None:
            applied.append(image.offset)
            if image.offset == 1:
                loop.call_soon(loader.on_commit, batch(2))
            elif image.offset == 2:
                is_done.set()

        loader = MetadataLoader()
        publisher = BrokerMetadataPublisher(loader, apply, failures.append)
        await publisher.start()
        loader.on_commit(batch(1))
        await asyncio.wait_for(is_done.wait(), 5)
        assert applied[-2:] == [1, 2]
        await publisher.stop()

    failures: list[BaseException] = []
    asyncio.run(story())
    assert not failures
