"""A node whose disk is full when a topic is made: its partitions, and the groups in them, work once there is room."""

from __future__ import annotations

import errno

from barnabas.base.ids import TopicPartition
from barnabas.testing.sim.world import World
from tests.simulation.players import Player

#: Each attempt to make a log fails at its first operation; some are made twice, away from the loop and on it.
_REFUSALS = 5


def test_a_topic_that_was_made_on_a_full_disk_works_when_there_is_room() -> None:
    clicks = TopicPartition("clicks", 0)
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node()
            for name in ("clicks-0", "__consumer_offsets-"):
                node.host.disk.fail_next(errno.ENOSPC, path=name, count=_REFUSALS)
            player = Player(world, node, "player")
            await player.create_topic("clicks")
            began_s = world.loop.time()
            assert await player.until_it_works(player.produce, clicks, [b"x"]) == 0
            # Not at once, and without a restart, an election, or anything else of the metadata log.
            assert world.loop.time() > began_s + 1
            await player.until_it_works(player.find_coordinator, "clerks")
            await player.until_it_works(player.commit, "clerks", clicks, 1)
            assert await player.until_it_works(player.committed, "clerks", clicks) == 1
            await player.close()

        world.run(story(), limit_s=200)
