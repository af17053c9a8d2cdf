"""Committed metadata is applied batch by batch, each in its turn, whenever it comes."""

from __future__ import annotations

import asyncio

from barnabas.base.ids import TopicPartition
from barnabas.broker.broker_publisher import BrokerMetadataPublisher
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.loader import MetadataLoader
from barnabas.raft.types import CommittedBatch

T0 = TopicPartition("t", 0)


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


def test_what_is_committed_while_the_first_image_is_applied_comes_after_it() -> None:
    """Logs may have to be made for the first one, away from the loop; what comes meanwhile may need no time at all."""

    async def story() -> None:
        began: list[int] = []
        ended: list[int] = []
        may_end = asyncio.Event()

        async def apply(image: ClusterImage, _: ClusterDelta) -> None:
            began.append(image.offset)
            if image.offset < 1:
                await may_end.wait()
            ended.append(image.offset)

        loader = MetadataLoader()
        publisher = BrokerMetadataPublisher(loader, apply, failures.append)
        starting = asyncio.get_running_loop().create_task(publisher.start())
        await asyncio.sleep(0)
        loader.on_commit(batch(1))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert began == [-1]
        may_end.set()
        await starting
        assert await publisher.until_applied(1)
        assert ended == [-1, 1]
        await publisher.stop()

    failures: list[BaseException] = []
    asyncio.run(story())
    assert not failures


def test_partitions_are_applied_again_by_the_newest_image_and_in_their_turn() -> None:
    async def story() -> None:
        applied: list[tuple[int, tuple[TopicPartition, ...]]] = []

        async def apply(image: ClusterImage, delta: ClusterDelta) -> None:
            applied.append((image.offset, delta.partitions_changed))

        loader = MetadataLoader()
        publisher = BrokerMetadataPublisher(loader, apply, failures.append)
        publisher.apply_again((T0,))  # nothing is applied yet
        await publisher.start()
        loader.on_commit(batch(1))
        publisher.apply_again((T0,))
        loader.on_commit(batch(2))
        assert await publisher.until_applied(2)
        assert applied[1:] == [(1, ()), (1, (T0,)), (2, ())]
        await publisher.stop()
        publisher.apply_again((T0,))
        assert len(applied) == 4

    failures: list[BaseException] = []
    asyncio.run(story())
    assert not failures
