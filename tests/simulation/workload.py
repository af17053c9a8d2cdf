"""A load on a node that keeps count: producers, readers, consumers that commit; and what must be true afterwards."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.checkers import LogChecker
from barnabas.testing.sim.world import SimulatedNode, World
from tests.simulation.players import Player, Refused

TOPIC = "ledger"
PARTITIONS = 3
GROUP = "clerks"
#: Small, so that segments are rolled under every load.
SEGMENT_BYTES = "5000"


@dataclass(slots=True)
class Commits:
    """What a consumer tried to commit on a partition since the last time that it was told it had worked."""

    acknowledged: int = -1
    tried: list[int] = field(default_factory=list)


class Workload:
    """Runs until it is told to stop. Whatever fails is tried again, and counted as what it is: of unknown fate."""

    def __init__(self, world: World, node: SimulatedNode, *, is_idempotent: bool) -> None:
        self.checker = LogChecker(allow_duplicates=not is_idempotent)
        self.commits = {each: Commits() for each in partitions()}
        self.failure_count = 0
        self._world = world
        self._node = node
        self._is_idempotent = is_idempotent
        self._is_stopping = False
        self._tasks: list[asyncio.Task[None]] = []

    async def start(self) -> None:
        founder = self._player("founder")
        await founder.create_topic(TOPIC, PARTITIONS, internal_segment_bytes=SEGMENT_BYTES)
        await founder.until_it_works(founder.find_coordinator, GROUP)
        await founder.close()
        start = asyncio.create_task
        self._tasks = [start(self._produce(f"producer-{each}", each)) for each in partitions()]
        self._tasks += [start(self._read("reader", each)) for each in partitions()]
        self._tasks += [start(self._consume("consumer", each)) for each in partitions()]

    async def stop(self) -> None:
        self._is_stopping = True
        await asyncio.gather(*self._tasks)

    def _player(self, name: str) -> Player:
        return Player(self._world, self._node, name, timeout_s=5.0)

    async def _produce(self, name: str, partition: TopicPartition) -> None:
        player = self._player(name)
        producer = await player.until_it_works(player.producer_id) if self._is_idempotent else None
        number = sequence = 0
        while not self._is_stopping:
            size = player.random.randint(1, 5)
            values = [b"%s/%d/%s" % (name.encode(), number + each, b"x" * 50) for each in range(size)]
            state = None if producer is None else (*producer, sequence)
            self.checker.sent(partition, values, name)

            async def send(values: list[bytes] = values, state: tuple[int, int, int] | None = state) -> int:
                try:
                    return await player.produce(partition, values, state)
                except (OSError, TimeoutError, Refused):
                    self.failure_count += 1
                    raise

            offset = await player.until_it_works(send)
            self.checker.acknowledged(partition, offset, values)
            number, sequence = number + size, sequence + size
            await asyncio.sleep(player.random.uniform(0, 0.1))
        await player.close()

    async def _read(self, name: str, partition: TopicPartition) -> None:
        player = self._player(f"{name}-{partition}")
        offset = 0
        while not self._is_stopping:
            values = await player.until_it_works(player.fetch, partition, offset)
            self.checker.read(partition, offset, values, name)
            offset += len(values)
        await player.close()

    async def _consume(self, name: str, partition: TopicPartition) -> None:
        """Commits as it goes; each time it begins where it left off."""
        player = self._player(f"{name}-{partition}")
        commits = self.commits[partition]
        while not self._is_stopping:
            offset = await player.until_it_works(player.committed, GROUP, partition)
            self.check_commit(partition, offset)
            for _ in range(10):
                values = await player.until_it_works(player.fetch, partition, max(offset, 0))
                offset = max(offset, 0) + len(values)
                commits.tried.append(offset)
                await player.until_it_works(player.commit, GROUP, partition, offset)
                commits.acknowledged, commits.tried = offset, []
                await asyncio.sleep(player.random.uniform(0, 0.1))
        await player.close()

    def check_commit(self, partition: TopicPartition, found: int) -> None:
        commits = self.commits[partition]
        possible = [commits.acknowledged, *commits.tried]
        assert found in possible, f"{partition}: the group is at {found}, committed were {possible}"

    async def check(self) -> None:
        """The node is up and undisturbed: it holds what it must."""
        player = self._player("auditor")
        for partition in partitions():
            self.checker.finish(partition, await player.until_it_works(player.read_all, partition))
            self.check_commit(partition, await player.until_it_works(player.committed, GROUP, partition))
        await player.close()
        self.checker.check()
        assert self.checker.acknowledged_count > 0


def partitions() -> list[TopicPartition]:
    return [TopicPartition(TOPIC, number) for number in range(PARTITIONS)]


Misfortune = Callable[[World, SimulatedNode], None]


async def survive(
    world: World,
    node: SimulatedNode,
    misfortunes: list[Misfortune],
    *,
    is_idempotent: bool = True,
) -> Workload:
    """Let one misfortune after the other strike a node under load, each followed by a start, then check."""
    chance = world.random("misfortune")
    workload = Workload(world, node, is_idempotent=is_idempotent)
    await workload.start()
    for misfortune in misfortunes:
        await asyncio.sleep(chance.uniform(0.2, 3.0))
        misfortune(world, node)
        await node.host.wait_until_dead()
        await asyncio.sleep(chance.uniform(0.05, 2.0))
        await node.start_if_dead()
    await asyncio.sleep(2.0)
    acknowledged = workload.checker.acknowledged_count
    await asyncio.sleep(3.0)
    assert workload.checker.acknowledged_count > acknowledged, "after all is well again nothing moves"
    await workload.stop()
    await workload.check()
    return workload
