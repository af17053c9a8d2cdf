"""`RaftNode`, over sockets and disks of a simulated world: what its callers see, and what survives."""

from __future__ import annotations

import asyncio
import errno
import logging
from collections.abc import Iterable
from pathlib import Path
from random import Random

import pytest

from barnabas.base.errors import BarnabasError, SettingsError
from barnabas.raft import (
    Address,
    NotLeaderError,
    OutcomeUnknownError,
    QuorumOptions,
    RaftNode,
    RaftOptions,
    SocketTransport,
    parse_voters,
)
from barnabas.raft.node import MAX_COMMAND_BYTES
from barnabas.storage.errors import DirectoryInUseError, LogDirectoryError, PassingError
from barnabas.testing.sim.world import World
from tests.raft.node_world import Journal, NodeWorld
from tests.virtual_time import until

#: Of virtual time; what has not happened by then never will.
LIMIT_S = 500.0
SEEDS = pytest.mark.parametrize("seed", range(5))


# Commands and reads


@SEEDS
def test_what_is_proposed_to_the_leader_is_applied_everywhere_once_and_in_one_order(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            commands = [b"%d" % number for number in range(20)]
            results = await asyncio.gather(*(quorum.propose(each, at=leader_id) for each in commands))
            assert sorted(results) == [*range(1, 21)]
            applied = [*quorum.journal(leader_id).commands]
            # Each is told the result of its own command.
            assert [applied[result - 1] for result in results] == commands
            assert await quorum.propose(b"more") == 21
            await quorum.until_all_have([*applied, b"more"])

        world.run(story(), limit_s=LIMIT_S)


def test_proposals_of_one_turn_of_the_loop_share_a_batch() -> None:
    with World(1) as world:
        quorum = NodeWorld(world, 1)

        async def story() -> None:
            await quorum.start()
            node = quorum.nodes[await quorum.leader()]
            disk, log = world.host("10.0.0.1").disk, f"data/log-0/{0:020d}.log"
            size_bytes = len(disk.contents()[log] or b"")

            async def all_at_once() -> None:
                await asyncio.gather(*(node.propose(b"x") for _ in range(100)))

            await quorum.do(1, all_at_once())
            grown_bytes = len(disk.contents()[log] or b"") - size_bytes
            assert 100 * 8 < grown_bytes < 100 * 8 + 200

        world.run(story(), limit_s=LIMIT_S)


@SEEDS
def test_followers_apply_a_command_a_moment_after_the_leader(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            await quorum.propose(b"a")
            await quorum.until_all_have([b"a"])
            await asyncio.sleep(2)
            await quorum.propose(b"b")
            began_s = world.loop.time()
            await quorum.until_all_have([b"a", b"b"])
            # Not when the leader answers a Fetch for want of news, half a second later.
            assert world.loop.time() - began_s < 0.05

        world.run(story(), limit_s=LIMIT_S)


@SEEDS
def test_a_barrier_shows_what_was_committed_before_it(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            old_id = await quorum.leader()
            await quorum.propose(b"a")
            quorum.host(old_id).kill()
            new_id = await quorum.leader(other_than=old_id)
            await quorum.do(new_id, quorum.nodes[new_id].read_barrier())
            assert quorum.journal(new_id).commands == [b"a"]
            # It is no command, and no state machine hears of it.
            await quorum.propose(b"b", at=new_id)
            assert quorum.journal(new_id).commands == [b"a", b"b"]

        world.run(story(), limit_s=LIMIT_S)


def test_a_follower_names_the_leader_and_does_nothing() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            follower_id = quorum.followers(leader_id)[0]
            node = quorum.nodes[follower_id]
            assert await quorum.do(follower_id, node.leader_known()) == leader_id
            for work in (node.propose(b"x"), node.read_barrier()):
                with pytest.raises(
                    NotLeaderError, match=f"node {follower_id} does not lead: {leader_id} leads"
                ) as told:
                    await quorum.do(follower_id, work)
                assert told.value.leader_id == leader_id
                assert told.value.address == quorum.addresses[leader_id] == node.address_of(leader_id)
            await quorum.propose(b"y")
            await quorum.until_all_have([b"y"])

        world.run(story(), limit_s=LIMIT_S)


def test_before_anybody_leads_nobody_is_named() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start(1)
            await asyncio.sleep(10)
            with pytest.raises(NotLeaderError, match="nobody leads") as told:
                await quorum.propose(b"x", at=1)
            assert told.value.leader_id is None
            assert not quorum.nodes[1].is_leader

        world.run(story(), limit_s=LIMIT_S)


@SEEDS
def test_who_loses_its_leadership_cannot_say_what_became_of_a_command(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            old_id = await quorum.leader()
            await quorum.propose(b"a")
            quorum.cut_off(old_id)
            waiting = [
                asyncio.ensure_future(quorum.propose(b"lost", at=old_id)),
                asyncio.ensure_future(quorum.do(old_id, quorum.nodes[old_id].read_barrier())),
            ]
            new_id = await quorum.leader(other_than=old_id)
            await quorum.propose(b"b", at=new_id)
            for each in waiting:
                with pytest.raises(OutcomeUnknownError, match=f"node {old_id} lost its leadership"):
                    await each
            world.network.heal()
            await quorum.until_all_have([b"a", b"b"])

        world.run(story(), limit_s=LIMIT_S)


@pytest.mark.parametrize("command", [b"", b"x" * (MAX_COMMAND_BYTES + 1)], ids=["empty", "too large"])
def test_a_command_of_a_size_that_no_log_takes_is_refused_at_once(command: bytes) -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            with pytest.raises(ValueError, match=r"a command has from 1 to 8,\d+,\d+ bytes, not [\d,]+"):
                await quorum.propose(command)
            assert await quorum.propose(b"small") == 1

        world.run(story(), limit_s=LIMIT_S)


def test_the_largest_commands_arrive_also_several_at_once() -> None:
    with World(1) as world:
        quorum = NodeWorld(world, quorum=QuorumOptions(fetch_timeout_ms=20_000))
        largest = [bytes([number]) * MAX_COMMAND_BYTES for number in (1, 2)]

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            node = quorum.nodes[leader_id]

            async def all_at_once() -> list[int]:
                return list(await asyncio.gather(*(node.propose(each) for each in largest)))

            assert await quorum.do(leader_id, all_at_once()) == [1, 2]
            await quorum.until_all_have(largest)

        world.run(story(), limit_s=LIMIT_S)


def test_a_caller_that_gives_up_disturbs_nobody() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            node = quorum.nodes[leader_id]

            async def impatient() -> None:
                with pytest.raises(TimeoutError):
                    await asyncio.wait_for(node.propose(b"a"), 0)
                others = asyncio.gather(node.propose(b"b"), node.propose(b"c"))
                given_up = asyncio.ensure_future(node.propose(b"d"))
                await asyncio.sleep(0)
                await asyncio.sleep(0)
                given_up.cancel()
                await others

            await quorum.do(leader_id, impatient())
            await until(lambda: quorum.journal(leader_id).commands[-1:] == [b"d"])

        world.run(story(), limit_s=LIMIT_S)


# Who leads


@SEEDS
def test_everybody_is_told_who_leads_and_when_nobody_does(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            old_id = await quorum.leader()
            await until(lambda: all(told[-1:] == [old_id] for told in quorum.told.values()))
            quorum.host(old_id).kill()
            new_id = await quorum.leader(other_than=old_id)
            for node_id in quorum.followers(old_id):
                told = quorum.told[node_id]
                await until(lambda told=told: told[-1] == new_id)  # type: ignore[misc]
                assert None in told[told.index(old_id) :]
                assert quorum.nodes[node_id].leader_id == new_id

        world.run(story(), limit_s=LIMIT_S)


def test_a_leader_that_stops_hands_over_within_a_moment() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            old_id = await quorum.leader()
            await quorum.propose(b"a")
            began_s = world.loop.time()
            await quorum.stop(old_id)
            assert not quorum.nodes[old_id].is_leader
            assert quorum.told[old_id][-1] is None
            new_id = await quorum.leader(other_than=old_id)
            assert world.loop.time() - began_s < 0.5
            assert await quorum.propose(b"b", at=new_id) == 2

        world.run(story(), limit_s=LIMIT_S)


def test_a_single_voter_leads_at_once_and_until_it_stops() -> None:
    with World(1) as world:
        quorum = NodeWorld(world, 1)

        async def story() -> None:
            began_s = world.loop.time()
            await quorum.start()
            assert await quorum.leader() == 1
            assert world.loop.time() - began_s < 0.2
            assert await quorum.propose(b"a") == 1
            await asyncio.sleep(400)
            assert await quorum.propose(b"b") == 2
            assert quorum.told[1] == [1]
            await quorum.stop(1)
            assert quorum.told[1] == [1, None]
            assert not quorum.nodes[1].is_leader

        world.run(story(), limit_s=LIMIT_S)


@SEEDS
def test_five_voters_survive_the_loss_of_any_two(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world, 5)

        async def story() -> None:
            await quorum.start()
            lost = [await quorum.leader()]
            await quorum.propose(b"a")
            for _ in range(2):
                quorum.host(lost[-1]).power_off()
                lost.append(await quorum.leader(other_than=lost[-1]))
                await quorum.propose(b"b", at=lost[-1])
            alive = [each for each in quorum.addresses if quorum.host(each).is_running]
            assert len(alive) == 3
            await quorum.until_all_have([b"a", b"b", b"b"], *alive)
            quorum.host(lost.pop()).power_off()
            await asyncio.sleep(60)
            assert quorum.leading == []

        world.run(story(), limit_s=LIMIT_S)


# What survives


@SEEDS
@pytest.mark.parametrize("power", [False, True], ids=["kill", "power"])
def test_all_of_them_restart_from_their_disks(seed: int, power: bool) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world, snapshot_bytes=400)
        commands: list[bytes] = []

        async def story() -> None:
            for generation in range(3):
                await quorum.start()
                for number in range(10):
                    commands.append(b"%d-%d" % (generation, number))
                    assert await quorum.propose(commands[-1]) == len(commands)
                for node_id in quorum.addresses:
                    if power:
                        quorum.host(node_id).power_off()
                    else:
                        quorum.host(node_id).kill()
            await quorum.start()
            await quorum.until_all_have(commands)
            assert all(quorum.journal(each).restored for each in quorum.addresses)

        world.run(story(), limit_s=LIMIT_S)


@SEEDS
def test_a_follower_that_lost_its_disk_loads_a_snapshot(seed: int) -> None:
    with World(seed) as world:
        quorum = NodeWorld(world, snapshot_bytes=1000, segment_bytes=2000)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            follower_id = quorum.followers(leader_id)[0]
            quorum.host(follower_id).kill()
            commands = [b"%d" % number for number in range(200)]
            for each in commands:
                await quorum.propose(each, at=leader_id)
            assert quorum.journal(leader_id).snapshot_count >= 2
            await quorum.start(follower_id, data_dir="/new")
            await quorum.until_all_have(commands, follower_id)
            assert quorum.journal(follower_id).restored
            assert await quorum.propose(b"more") == 201
            await quorum.until_all_have([*commands, b"more"])

        world.run(story(), limit_s=LIMIT_S)


def test_a_snapshot_is_taken_after_a_while_if_anything_changed() -> None:
    with World(1) as world:
        quorum = NodeWorld(world, 1, snapshot_interval_s=30)

        async def story() -> None:
            await quorum.start()
            await quorum.leader()
            await quorum.propose(b"a")
            await asyncio.sleep(31)
            assert quorum.journal(1).snapshot_count == 1
            await asyncio.sleep(300)
            assert quorum.journal(1).snapshot_count == 1
            await quorum.propose(b"b")
            await asyncio.sleep(31)
            assert quorum.journal(1).snapshot_count == 2
            names = [each for each in world.host("10.0.0.1").disk.contents() if each.endswith(".checkpoint")]
            assert names

        world.run(story(), limit_s=LIMIT_S)


def test_what_a_snapshot_covers_is_deleted_from_the_log() -> None:
    with World(1) as world:
        quorum = NodeWorld(world, 1, snapshot_bytes=10_000, segment_bytes=5_000)

        async def story() -> None:
            await quorum.start()
            await quorum.leader()
            for number in range(2_000):
                await quorum.propose(b"%0100d" % number)
                quorum.journal(1).commands.clear()
            # Files go a minute after they were deleted.
            await asyncio.sleep(70)
            for _ in range(200):
                await quorum.propose(b"x" * 100)
            await asyncio.sleep(1)
            assert world.host("10.0.0.1").disk.used_bytes < 400_000

        world.run(story(), limit_s=LIMIT_S)


def test_a_record_of_a_snapshot_may_have_any_size() -> None:
    with World(1) as world:
        quorum = NodeWorld(world, 1, snapshot_interval_s=30)
        state = b"s" * (9 * 1024 * 1024)

        async def story() -> None:
            await quorum.start()
            await quorum.propose(b"a")
            quorum.journal(1).commands = [state]
            await asyncio.sleep(40)
            quorum.host(1).kill()
            await quorum.start()
            await quorum.leader()
            assert quorum.journal(1).commands == [state]

        world.run(story(), limit_s=LIMIT_S)


# What is refused


@pytest.mark.parametrize(
    "text",
    ["", "localhost", "localhost:1", "localhost:x:1", "localhost:1:x", ":1:1", "localhost:0:1", "localhost:65536:1",
     "localhost:1:-1", "localhost:1:1,", "localhost:1:1;localhost:2:2"],
)  # fmt: skip
def test_voters_that_make_no_sense_are_named(text: str) -> None:
    with pytest.raises(SettingsError, match="is not a voter: host:port:id is expected"):
        parse_voters(text)


def test_voters_are_read_from_text() -> None:
    found = parse_voters("localhost:16010:1, [::1]:16020:2,10.0.0.3:16030:3")
    assert found[1] == Address("localhost", 16010)
    assert found[3] == Address("10.0.0.3", 16030)
    assert found[2] == Address("::1", 16020)
    with pytest.raises(SettingsError, match="voter 1 is named twice"):
        parse_voters("a:1:1,b:2:1")
    with pytest.raises(SettingsError, match=r"node 4 is not among the voters \[1\]"):
        RaftNode(4, "a:1:1", Journal(), RaftOptions(data_dir="d"))


@pytest.mark.parametrize("whose", [{"node_id": 2}, {"cluster_id": "another"}], ids=["node", "cluster"])
def test_the_directory_of_another_is_refused(whose: dict[str, object]) -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start(1)
            await quorum.stop(1)
            host = world.host("10.0.0.1")
            host.start_process("another")
            node = RaftNode(
                int(str(whose.get("node_id", 1))),
                {1: quorum.addresses[1], 2: Address("10.0.0.1", 99)},
                Journal(),
                RaftOptions(data_dir="/data", cluster_id=str(whose.get("cluster_id", "barnabas-raft"))),
                runtime=host.runtime(),
                files=host.disk,
            )
            with pytest.raises(BarnabasError, match="/data belongs to node 1 of cluster barnabas-raft, not to node"):
                await host.do(node.start())

        world.run(story(), limit_s=LIMIT_S)


def test_two_nodes_cannot_share_a_directory() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start(1)
            second = quorum.make(1)
            with pytest.raises(DirectoryInUseError, match="another process is using it"):
                await quorum.do(1, second.start())
            await quorum.start(2, 3)
            assert await quorum.propose(b"a") == 1

        world.run(story(), limit_s=LIMIT_S)


def test_a_node_whose_port_is_taken_leaves_its_directory_free() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            host = world.host("10.0.0.1")
            host.start_process("raft")
            taken = SocketTransport(quorum.addresses[1], randomness=Random(1))
            await host.do(taken.start(lambda *_: None, lambda _: None))
            node = quorum.make(1)
            with pytest.raises(OSError, match="in use"):
                await host.do(node.start())
            await host.do(taken.stop())
            await host.do(quorum.make(1).start())

        world.run(story(), limit_s=LIMIT_S)


# Failure


def test_a_leader_whose_disk_is_full_refuses_commands_until_there_is_room() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            await quorum.propose(b"a")
            disk = quorum.host(leader_id).disk
            disk.capacity_bytes = disk.used_bytes + 10
            with pytest.raises(PassingError, match="the disk is full"):
                await quorum.propose(b"b" * 1000, at=leader_id)
            disk.capacity_bytes = None
            await quorum.propose(b"c", at=leader_id)
            await quorum.until_all_have([b"a", b"c"])

        world.run(story(), limit_s=LIMIT_S)


def test_a_follower_whose_disk_is_full_goes_on_when_there_is_room() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            follower_id = next(each for each in quorum.nodes if each != leader_id)
            await quorum.propose(b"a")
            disk = quorum.host(follower_id).disk
            disk.capacity_bytes = disk.used_bytes + 10
            await quorum.propose(b"b" * 1000, at=leader_id)
            await asyncio.sleep(1.5)
            disk.capacity_bytes = None
            await quorum.until_all_have([b"a", b"b" * 1000])

        world.run(story(), limit_s=LIMIT_S)


def test_disks_that_take_seconds_move_no_leader_and_are_told_of(caplog: pytest.LogCaptureFixture) -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            leader_id = await quorum.leader()
            await quorum.propose(b"a")
            await quorum.until_all_have([b"a"])
            for node_id in quorum.addresses:
                quorum.host(node_id).slow_disk(5.0)
            for _ in range(5):
                await quorum.propose(b"b", at=leader_id)
            assert quorum.leading == [leader_id]

        world.run(story(), limit_s=LIMIT_S)
        assert all(len(told) <= 2 for told in quorum.told.values())
    assert "a sync of its log took" in caplog.text
    assert "give its log a disk of its own" in caplog.text


def test_a_leader_is_elected_though_every_vote_takes_seconds_to_save() -> None:
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            old_id = await quorum.leader()
            await quorum.propose(b"a")
            for node_id in quorum.addresses:
                quorum.host(node_id).slow_disk(1.5)
            quorum.host(old_id).kill()
            await quorum.propose(b"b", at=await quorum.leader(other_than=old_id))

        world.run(story(), limit_s=LIMIT_S)


def test_a_node_whose_disk_fails_ends_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL)
    with World(1) as world:
        quorum = NodeWorld(world)

        async def story() -> None:
            await quorum.start()
            old_id = await quorum.leader()
            await quorum.propose(b"a")
            quorum.host(old_id).disk.fail_next(errno.EIO, name="sync", path=".log")
            failing = asyncio.ensure_future(quorum.do(old_id, quorum.nodes[old_id].until_failed()))
            with pytest.raises(OutcomeUnknownError):
                await quorum.propose(b"b", at=old_id)
            with pytest.raises(LogDirectoryError, match="a sync failed"):
                await failing
            assert not quorum.nodes[old_id].is_leader
            with pytest.raises(NotLeaderError, match="nobody leads"):
                await quorum.propose(b"c", at=old_id)
            with pytest.raises(LogDirectoryError, match="a sync failed"):
                await quorum.do(old_id, quorum.nodes[old_id].leader_known())
            # The others go on once its process has ended.
            await quorum.stop(old_id)
            await quorum.propose(b"d", at=await quorum.leader(other_than=old_id))

        world.run(story(), limit_s=LIMIT_S)
    assert "has failed" in caplog.text


def test_a_state_machine_that_raises_ends_the_node() -> None:
    class Broken(Journal):
        def apply(self, command: bytes) -> int:
            raise ZeroDivisionError("a bug")

    with World(1) as world:
        quorum = NodeWorld(world, 1)

        async def story() -> None:
            await quorum.start()
            node = quorum.nodes[1]
            await quorum.leader()
            node.state_machine = Broken()
            with pytest.raises(OutcomeUnknownError):
                await quorum.propose(b"a")
            with pytest.raises(ZeroDivisionError, match="a bug"):
                await quorum.do(1, node.until_failed())

        world.run(story(), limit_s=LIMIT_S)


# On a real machine


def test_it_runs_with_nothing_but_a_relative_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Counter:
        def __init__(self) -> None:
            self.value = 0

        def apply(self, command: bytes) -> int:
            self.value += int(command)
            return self.value

        def snapshot(self) -> list[bytes]:
            return [b"%d" % self.value]

        def restore(self, values: Iterable[bytes]) -> None:
            self.value = sum(int(each) for each in values)

    async def story() -> None:
        for place in range(1, 3):
            node = RaftNode(1, {1: Address("127.0.0.1", 0)}, Counter(), RaftOptions(data_dir="d1"))
            async with node:
                assert await node.leader_known() == 1
                assert await node.propose(b"5") == 5 * place

    monkeypatch.chdir(tmp_path)
    asyncio.run(asyncio.wait_for(story(), 30))
