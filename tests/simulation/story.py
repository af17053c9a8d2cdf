"""Stories of one node, as a program: `python -m tests.simulation.story day SEED` prints the hash of the trace, and with
`--lines` the trace itself, so that two runs that should not differ can be compared.

The test of determinism plays them in this process and in others.
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Callable

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.world import World
from tests.simulation.players import Member, Player
from tests.simulation.workload import survive

TOPIC = "orders"
FIRST = TopicPartition(TOPIC, 0)
SECOND = TopicPartition(TOPIC, 1)
GROUP = "shoppers"


async def a_day(world: World) -> None:
    """Create, produce, wait for records, a group that rebalances, commits, a crash, and what is left of it all."""
    node = await world.start_node("10.0.0.1")
    ann, bob = Player(world, node, "ann"), Player(world, node, "bob")
    await ann.create_topic(TOPIC, partitions=2)

    waiting = asyncio.create_task(bob.fetch(FIRST, 0, max_wait_ms=30_000))
    await asyncio.sleep(3)
    assert not waiting.done()
    assert await ann.produce(FIRST, [b"one", b"two"]) == 0
    assert (await waiting)[0] == b"one"
    producer_id, epoch = await ann.producer_id()
    for sequence in (0, 1, 1, 2):
        offset = await ann.produce(SECOND, [b"value %d" % sequence], (producer_id, epoch, sequence))
        assert offset == sequence
    assert await bob.read_all(SECOND) == [b"value 0", b"value 1", b"value 2"]

    carl = Member(world, node, "carl", GROUP, TOPIC, 2)
    await carl.join()
    assert carl.assignment == [0, 1]
    await carl.commit_own(1)
    dora = Member(world, node, "dora", GROUP, TOPIC, 2)
    joining = asyncio.create_task(dora.join())
    await carl.notice_rebalance()
    await asyncio.gather(carl.join(), joining)
    assert sorted(carl.assignment + dora.assignment) == [0, 1]
    assert carl.generation == dora.generation == 2
    await dora.commit_own(2)

    node.kill()
    await asyncio.sleep(1)
    await node.start()
    assert await bob.until_it_works(bob.read_all, FIRST) == [b"one", b"two"]
    assert sorted([await bob.until_it_works(bob.committed, GROUP, each) for each in (FIRST, SECOND)]) == [1, 2]
    for member in (carl, dora):
        assert await member.until_it_works(member.heartbeat) is ErrorCode.NONE
    await dora.leave()
    await carl.notice_rebalance()
    await carl.join()
    assert carl.assignment == [0, 1]
    assert await ann.until_it_works(ann.produce, FIRST, [b"three"]) == 2
    await node.stop()
    await node.start()
    assert await bob.until_it_works(bob.read_all, FIRST) == [b"one", b"two", b"three"]


async def a_storm(world: World) -> None:
    """Many clients at once, and a node that dies under them."""
    node = await world.start_node("10.0.0.1")
    await survive(world, node, [lambda _, node: node.kill(), lambda _, node: node.host.die_at(20)])


STORIES = {"day": a_day, "storm": a_storm}


def trace_of(story: str, seed: int, tell: Callable[[str], object] | None = None) -> str:
    """Play the story; the hash of all that happened."""
    with World(seed, keep_trace=tell is not None) as world:
        try:
            world.run(STORIES[story](world))
        finally:
            if tell is not None:
                for line in world.trace.tail:
                    tell(line)
        return world.trace.hexdigest()


if __name__ == "__main__":
    wants_lines = "--lines" in sys.argv
    write = (lambda line: sys.stdout.write(line + "\n")) if wants_lines else None
    sys.stdout.write(trace_of(sys.argv[1], int(sys.argv[2]), write) + "\n")
