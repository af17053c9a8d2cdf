"""A metadata log that lost what was committed: the start is refused by name, and nothing is changed or renamed."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from random import Random
from typing import Any

import pytest

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import Uuid
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage
from barnabas.raft.snapshots import find_snapshots
from barnabas.records import iter_batches
from barnabas.storage.files import read_file
from barnabas.storage.meta_properties import META_PROPERTIES_FILE
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.metadata import MetadataRequest
from tests.broker.metadata_files import (
    LOG_DIRECTORY,
    RunningQuorum,
    config,
    formatted_disk,
    node_settings,
    started,
)

FIRST_SEGMENT = f"{LOG_DIRECTORY}/00000000000000000000.log"
NOTE = "/data/metadata-committed-offset"

Damage = Callable[[SimulatedDisk], None]


def run(story: Coroutine[Any, Any, None]) -> None:
    asyncio.run(story)


def rewritten(path: str, change: Callable[[bytes], bytes]) -> Damage:
    def damage(disk: SimulatedDisk) -> None:
        content = change(read_file(disk, path))
        file = disk.open(path)
        file.truncate(0)
        file.write_at(0, content)
        file.close()

    return damage


def flipped(position: int) -> Callable[[bytes], bytes]:
    def flip(content: bytes) -> bytes:
        changed = bytearray(content)
        changed[position] ^= 4
        return bytes(changed)

    return flip


def removed(path: str) -> Damage:
    return lambda disk: disk.remove(path)


def remove_directory(disk: SimulatedDisk) -> None:
    for name in disk.names(LOG_DIRECTORY):
        disk.remove(f"{LOG_DIRECTORY}/{name}")
    disk.remove_directory(LOG_DIRECTORY)


async def some_life(disk: SimulatedDisk, *, stops: bool = True) -> None:
    """Two leaders, some changes of each."""
    for name in ("a", "b"):
        running = await started(disk)
        for number in range(3):
            await running.commit(config(f"{name} {number}"))
        if stops or name == "a":
            await running.stop()
    disk.crash(power=False)


DAMAGES: dict[str, Damage] = {
    "a flipped bit in a record": rewritten(FIRST_SEGMENT, flipped(70)),
    "a flipped bit in a base offset": rewritten(FIRST_SEGMENT, flipped(7)),
    "a flipped bit in a length": rewritten(FIRST_SEGMENT, flipped(10)),
    "a flipped bit in the middle": rewritten(FIRST_SEGMENT, lambda content: flipped(len(content) // 2)(content)),
    "a flipped bit in the last batch": rewritten(FIRST_SEGMENT, flipped(-1)),
    "half of it": rewritten(FIRST_SEGMENT, lambda content: content[: len(content) // 2]),
    "all but the last batch": rewritten(
        FIRST_SEGMENT, lambda content: content[: -list(iter_batches(content))[-1].size_bytes]
    ),
    "an empty file": rewritten(FIRST_SEGMENT, lambda content: b""),
    "no file": removed(FIRST_SEGMENT),
    "no directory": remove_directory,
}


@pytest.mark.parametrize("stops", [True, False], ids=["after a stop", "after a kill"])
@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES.keys())
def test_damage_below_what_was_committed_refuses_the_start_and_changes_nothing(damage: Damage, stops: bool) -> None:
    async def story() -> None:
        disk = formatted_disk()
        await some_life(disk, stops=stops)
        damage(disk)
        before = disk.contents()
        for _ in range(2):
            with pytest.raises(BarnabasError, match=f"lost what was committed: {LOG_DIRECTORY}.*from a backup"):
                await started(disk)
            assert disk.contents() == before

    run(story())


def test_a_tail_that_was_never_committed_is_cut_with_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        disk = formatted_disk()
        await some_life(disk)
        file = disk.open(FIRST_SEGMENT)
        whole = read_file(disk, FIRST_SEGMENT)
        last = list(iter_batches(whole))[-1]
        torn = bytes(last.data)[:-5]
        file.write_at(len(whole), last.next_offset.to_bytes(8, "big") + torn[8:])
        again = await started(disk)
        assert again.owner.configs == {f"{name} {number}": "1" for name in "ab" for number in range(3)}
        await again.quorum.stop()
        assert f"byte {len(whole)}: offset {last.next_offset} should begin there" in caplog.text
        assert f"{len(torn)} bytes that were never committed" in caplog.text

    with caplog.at_level(logging.WARNING):
        run(story())


def test_a_commit_costs_no_sync_beside_that_of_the_log() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        await running.commit(config("first"))
        synced: list[str] = []
        disk.hook = lambda number, name, path: synced.append(path) if name.startswith("sync") else None
        await running.commit(config("second"))
        assert synced == [FIRST_SEGMENT]
        disk.hook = None
        await running.stop()

    run(story())


@pytest.mark.parametrize("note", [None, b"", b"no note", b"9" * 106], ids=["none", "empty", "nonsense", "digits"])
def test_without_a_note_that_counts_the_log_is_taken_as_it_is(note: bytes | None) -> None:
    async def story() -> None:
        disk = formatted_disk()
        await some_life(disk)
        disk.remove(NOTE)
        if note is not None:
            disk.open(NOTE, create=True).write_at(0, note)
        again = await started(disk)
        assert len(again.owner.configs) == 6
        await again.quorum.stop()
        rewritten(FIRST_SEGMENT, lambda content: b"")(disk)
        with pytest.raises(BarnabasError, match="lost what was committed"):
            await started(disk)

    run(story())


def test_a_note_of_a_directory_that_was_formatted_anew_does_not_count() -> None:
    async def story() -> None:
        disk = formatted_disk()
        await some_life(disk)
        remove_directory(disk)
        other = Uuid.random(Random(99))
        path = f"/data/{META_PROPERTIES_FILE}"
        lines = read_file(disk, path).decode().splitlines(keepends=True)
        changed = [f"directory.id={other}\n" if line.startswith("directory.id") else line for line in lines]
        rewritten(path, lambda content: "".join(changed).encode())(disk)
        again = await started(disk)
        assert again.owner.configs == {}
        await again.quorum.stop()

    run(story())


def test_without_a_note_records_of_a_later_leader_tell_that_it_is_no_torn_tail() -> None:
    async def story() -> None:
        disk = formatted_disk()
        await some_life(disk)
        disk.remove(NOTE)
        rewritten(FIRST_SEGMENT, flipped(70))(disk)
        with pytest.raises(BarnabasError, match="records of the leader epochs 1 and 2 lie from there on"):
            await started(disk)

    run(story())


def test_snapshots_that_changed_places_are_noticed() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = await started(disk)
        for number in range(2):
            running.runtime.clock.advance(1000)
            await running.commit(config(f"setting {number}"))
            await running.take_snapshot()
        await running.stop()
        first, second = (f"{LOG_DIRECTORY}/{each.file_name}" for each in find_snapshots(disk, LOG_DIRECTORY))
        contents = read_file(disk, first), read_file(disk, second)
        rewritten(first, lambda _: contents[1])(disk)
        rewritten(second, lambda _: contents[0])(disk)
        with pytest.raises(BarnabasError, match=f"{second} is not the snapshot that its name says"):
            await started(disk)

    run(story())


def test_a_snapshot_waits_until_its_owner_has_done_what_it_will_forget() -> None:
    async def story() -> None:
        disk = formatted_disk()
        running = RunningQuorum(disk, node_settings(metadata_log_max_record_bytes_between_snapshots=1))
        asked: list[int] = []
        done = asyncio.Event()

        async def until_applied(offset: int) -> bool:
            asked.append(offset)
            await done.wait()
            return True

        await running.start(takes_snapshots=True, until_applied=until_applied)
        offset = running.append(config("a"))
        while "a" not in running.owner.configs:  # noqa: ASYNC110
            await asyncio.sleep(0)
        assert not find_snapshots(disk, LOG_DIRECTORY)
        done.set()
        await running.settled()
        assert asked
        assert [each.end_offset - 1 for each in find_snapshots(disk, LOG_DIRECTORY)] == [asked[0]]
        assert asked[0] <= offset
        await running.stop()

    run(story())


# A whole node


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic])


def delete(name: str) -> DeleteTopicsRequest:
    return DeleteTopicsRequest(topics=[DeleteTopicState(name=name, topic_id=Uuid.ZERO)], timeout_ms=10_000)


async def topics(client: ScriptedClient) -> list[str]:
    return sorted(each.name for each in (await client.ask(MetadataRequest(topics=None))).topics)


async def a_node_with_topics(world: World, **settings: Any) -> SimulatedNode:
    node = await world.start_node(**settings)
    client = await world.client(node.bootstrap)
    for name in ("ledger", "letters"):
        assert (await client.ask(create(name))).topics[0].error_code == 0
    await client.close()
    return node


def names(node: SimulatedNode) -> list[str]:
    """Of what lies there of partitions."""
    return [name for name in node.host.disk.names("/data") if name.startswith("l")]


async def refused(node: SimulatedNode, match: str) -> None:
    before = names(node)
    assert before == ["ledger-0", "letters-0", "log-start-offset-checkpoint"]
    with pytest.raises(BarnabasError, match=match):
        await node.start()
    node.kill()
    assert names(node) == before


def copied(disk: SimulatedDisk, source: str, target: str) -> None:
    rewritten(target, lambda _: read_file(disk, source))(disk)


def test_a_node_without_its_metadata_and_note_refuses_partitions_that_nobody_named() -> None:
    async def story() -> None:
        node = await a_node_with_topics(world)
        await node.stop()
        remove_directory(node.host.disk)
        node.host.disk.remove(NOTE)
        await refused(node, r"never named /data/ledger-0 \(topic id .*\), /data/letters-0 ")
        await refused(node, "never named /data/ledger-0")

    with World(1) as world:
        world.run(story())


def test_partitions_with_the_ids_of_each_other_refuse_the_start() -> None:
    async def story() -> None:
        node = await a_node_with_topics(world)
        await node.stop()
        disk = node.host.disk
        paths = "/data/ledger-0/partition.metadata", "/data/letters-0/partition.metadata"
        first = read_file(disk, paths[0])
        copied(disk, paths[1], paths[0])
        rewritten(paths[1], lambda _: first)(disk)
        await refused(node, "never named /data/ledger-0")

    with World(2) as world:
        world.run(story())


def test_a_partition_with_the_id_of_a_deleted_topic_of_another_name_refuses_the_start() -> None:
    """Also where the log does not reach back to the creation of that topic: a snapshot does."""
    overrides = {
        "internal.metadata.log.segment.bytes": 1500,
        "metadata.log.max.record.bytes.between.snapshots": 1200,
        "metadata.max.retention.bytes": 8000,
    }

    async def story() -> None:
        node = await a_node_with_topics(world, overrides=overrides)
        client = await world.client(node.bootstrap)
        assert (await client.ask(create("old"))).topics[0].error_code == 0
        old = read_file(node.host.disk, "/data/old-0/partition.metadata")
        for number in range(150):
            change = AlterableConfig(name="retention.ms", config_operation=0, value=str(10_000_000 + number))
            resource = AlterConfigsResource(resource_type=2, resource_name="letters", configs=[change])
            await client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
            await asyncio.sleep(0.1)
        assert (await client.ask(delete("old"))).responses[0].error_code == 0
        await client.close()
        await node.stop()
        assert f"{0:020d}.log" not in node.host.disk.names("/data/__cluster_metadata-0"), "it begins with a snapshot"
        rewritten("/data/ledger-0/partition.metadata", lambda _: old)(node.host.disk)
        await refused(node, "never named /data/ledger-0")

    with World(3) as world:
        world.run(story())


def test_a_deletion_that_a_crash_interrupted_is_finished_at_the_next_start() -> None:
    async def story() -> None:
        node = await a_node_with_topics(world)
        client = await world.client(node.bootstrap)
        node.host.disk.hook = lambda number, name, path: node.kill() if name == "sync" else None
        with pytest.raises(ConnectionError):
            await client.ask(delete("ledger"))
        node.host.disk.hook = None
        assert "ledger-0" in names(node)
        await node.start()
        again = await world.client(node.bootstrap)
        assert await topics(again) == ["letters"]
        assert "ledger-0" not in names(node)
        assert [name for name in names(node) if name.startswith("ledger-0.") and name.endswith("-stray")]
        await again.close()
        await node.stop()

    with World(3) as world:
        world.run(story())


SNAPSHOT_AT_EACH_CHANGE: dict[str, Any] = {
    "metadata_log_max_record_bytes_between_snapshots": 1,
    "metadata_max_retention_bytes": 1,
    "internal_metadata_log_segment_bytes": 150,
}


def test_no_snapshot_forgets_a_deletion_whose_files_are_still_there() -> None:
    async def story() -> None:
        node = await a_node_with_topics(world, **SNAPSHOT_AT_EACH_CHANGE)
        assert node.node is not None
        partitions = node.node.services.replica_manager
        prepare, may_go_on = partitions.prepare, asyncio.Event()

        async def slow_prepare(image: ClusterImage, delta: ClusterDelta) -> None:
            await may_go_on.wait()
            await prepare(image, delta)

        partitions.prepare = slow_prepare  # type: ignore[method-assign]
        client = await world.client(node.bootstrap)
        deleting = client.send(delete("ledger"))
        await asyncio.sleep(10)
        committed = node.node.quorum.high_watermark
        assert "ledger-0" in names(node)
        assert all(each.end_offset < committed for each in find_snapshots(node.host.disk, LOG_DIRECTORY))
        may_go_on.set()
        await deleting
        await asyncio.sleep(10)
        assert "ledger-0" not in names(node)
        assert find_snapshots(node.host.disk, LOG_DIRECTORY)[-1].end_offset >= committed
        await node.stop()

    with World(5) as world:
        world.run(story())


def test_kills_amid_deletions_and_snapshots_never_refuse_a_start() -> None:
    async def story() -> None:
        node = await a_node_with_topics(world, **SNAPSHOT_AT_EACH_CHANGE)
        for number in range(12):
            node.host.die_at(15 + 13 * number)
            try:
                client = await world.client(node.bootstrap)
                for name in ("ledger", "letters", "lists"):
                    await client.ask(delete(name))
                    await client.ask(create(name))
            except (OSError, TimeoutError):
                pass
            await node.host.wait_until_dead()
            await asyncio.sleep(1)
            await node.start_if_dead()
        await node.stop()

    with World(6) as world:
        world.run(story())


def test_a_directory_with_partitions_is_not_formatted_as_a_new_cluster() -> None:
    async def story() -> None:
        node = await a_node_with_topics(world)
        await node.stop()
        node.host.disk.remove(f"/data/{META_PROPERTIES_FILE}")
        await refused(node, r"/data/meta\.properties is missing, but /data holds")

    with World(4) as world:
        world.run(story())
