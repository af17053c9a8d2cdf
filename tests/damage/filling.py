"""A node that has lived: topics of several kinds in many small segments, groups, settings, deletions; then it stops.

It lives in a simulated world, so its files are a dictionary, and the same every time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.records import BatchBuilder, Codec
from barnabas.storage.checkpoints import RECOVERY_POINT_FILE
from barnabas.testing.sim.world import DATA_DIRECTORY, World
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tests.damage.witness import BROKER, EARLIEST, TOPIC, Retry, Truth, Witness, take_account

After = Literal["clean", "kill"]

SETTINGS: Final[Mapping[str, object]] = {
    "offsets.topic.num.partitions": 2,
    "log.index.interval.bytes": 150,
    "log.initial.task.delay.ms": 1000,
    "log.flush.scheduler.interval.ms": 6000,
    "log.retention.check.interval.ms": 6000,
    "log.flush.offset.checkpoint.interval.ms": 7000,
    "log.flush.start.offset.checkpoint.interval.ms": 7000,
    "log.cleaner.backoff.ms": 5000,
    "log.cleaner.min.cleanable.ratio": 0.1,
    "internal.metadata.log.segment.bytes": 1500,
    "metadata.log.max.record.bytes.between.snapshots": 1200,
    "metadata.max.retention.bytes": 8000,
}
PLAIN: Final = [TopicPartition("plain", 0), TopicPartition("plain", 1)]
COMPACTED: Final = TopicPartition("compacted", 0)
KEYED: Final = TopicPartition("keyed", 0)
TRIMMED: Final = TopicPartition("trimmed", 0)
UNTOUCHED: Final = TopicPartition("untouched", 0)
OFFSETS: Final = [TopicPartition("__consumer_offsets", 0), TopicPartition("__consumer_offsets", 1)]
PARTITIONS: Final = [*PLAIN, COMPACTED, KEYED, TRIMMED, UNTOUCHED]
GROUPS: Final = ["readers", "writers", "auditors"]
PAGES: Final = 6
START_MS: Final = 1_699_999_000_000


@dataclass(frozen=True, slots=True)
class Filled:
    """What a node left, what it had promised, and what it had synced of it."""

    after: After
    contents: Mapping[str, bytes | None]
    truth: Truth
    recovery_points: Mapping[TopicPartition, int]


def fill(after: After) -> Filled:
    """Let a node live and stop."""
    with World(7, tolerates_logged_errors=True) as world:
        return world.run(_live(world, after))


async def _live(world: World, after: After) -> Filled:
    node = await world.start_node(overrides=SETTINGS)
    story = _Story(await Witness.of(world, node))
    await story.create()
    for chapter in range(3):
        await story.write(chapter)
        # Long enough for flushes, checkpoints and compaction.
        await asyncio.sleep(20)
    await story.write(3)
    truth = await story.truth()
    await story.witness.close()
    if after == "clean":
        await node.stop()
    else:
        node.kill()
    contents = {f"/{path}": content for path, content in world.host(node.host.address).disk.contents().items()}
    return Filled(after, contents, truth, _recovery_points(contents))


def _recovery_points(contents: Mapping[str, bytes | None]) -> dict[TopicPartition, int]:
    lines = (contents[f"{DATA_DIRECTORY}/{RECOVERY_POINT_FILE}"] or b"").decode().splitlines()[2:]
    fields = [line.split() for line in lines]
    return {TopicPartition(topic, int(number)): int(offset) for topic, number, offset in fields}


class _Story:
    def __init__(self, witness: Witness) -> None:
        self.witness = witness
        self._client = witness._client
        self._retries: dict[TopicPartition, Retry] = {}
        self._producer: tuple[int, int] = (-1, -1)
        self._sequences: dict[TopicPartition, int] = {}
        self._first_offsets: dict[TopicPartition, list[int]] = {}

    async def create(self) -> None:
        small = {"internal.segment.bytes": "1100", "index.interval.bytes": "150"}
        await self._create("plain", 2, small)
        await self._create("compacted", 1, {**small, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.1"})
        await self._create("keyed", 1, {**small, "max.message.bytes": "90000"})
        await self._create("trimmed", 1, small)
        await self._create("untouched", 1, {"retention.ms": "123456789"})
        await self._create("doomed", 1, small)
        await self.witness.cluster()
        self._producer = await self.witness.producer_id()
        for group in GROUPS:
            response = await self._client.ask(FindCoordinatorRequest(coordinator_keys=[group]))
            assert response.coordinators
        await asyncio.sleep(1)
        await self._set(TOPIC, "__consumer_offsets", "internal.segment.bytes", "900")

    async def _create(self, name: str, partitions: int, settings: Mapping[str, str]) -> None:
        configs = [CreatableTopicConfig(name=key, value=value) for key, value in settings.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        response = await self._client.ask(CreateTopicsRequest(topics=[topic]))
        assert response.topics[0].error_code == 0, response.topics[0].error_message

    async def write(self, chapter: int) -> None:
        for page in range(PAGES):
            for partition in PLAIN:
                await self._append(partition, chapter, page)
            await self._append(COMPACTED, chapter, page, keys=5)
            await self._append(KEYED, chapter, page, codec=Codec.LZ4, is_idempotent=True)
            await self._append(TRIMMED, chapter, page)
        if chapter == 0:
            await self._append(TopicPartition("doomed", 0), chapter, 0)
            doomed = DeleteTopicState(name="doomed", topic_id=Uuid.ZERO)
            response = await self._client.ask(DeleteTopicsRequest(topics=[doomed], timeout_ms=10_000))
            assert response.responses[0].error_code == 0
        if chapter == 1:
            wanted = DeleteRecordsPartition(partition_index=0, offset=25)
            topic = DeleteRecordsTopic(name="trimmed", partitions=[wanted])
            response = await self._client.ask(DeleteRecordsRequest(topics=[topic], timeout_ms=10_000))
            assert response.topics[0].partitions[0].error_code == 0
        for group in GROUPS:
            await self._commit(group, chapter)
        await self._set(BROKER, "", "log.cleaner.threads", str(chapter + 1))
        await self._set(BROKER, "1", "message.max.bytes", str(1_000_000 + chapter))

    async def _append(
        self,
        partition: TopicPartition,
        chapter: int,
        page: int,
        *,
        keys: int = 0,
        codec: Codec = Codec.NONE,
        is_idempotent: bool = False,
    ) -> None:
        builder = BatchBuilder(1 << 20, codec=codec)
        values = [f"{partition} {chapter}/{page}/{line} {'x' * 40}".encode() for line in range(3)]
        for line, value in enumerate(values):
            number = page * 3 + line
            key = b"key %d" % (number % keys if keys else number)
            builder.append(value, key, timestamp_ms=START_MS + chapter * 100_000 + page * 1000 + line)
        state = (*self._producer, self._sequences.get(partition, 0))
        if is_idempotent:
            builder.set_producer_state(*state)
            self._sequences[partition] = state[2] + len(values)
        offset = await self.witness.append(partition, builder)
        assert isinstance(offset, int), offset
        self._first_offsets.setdefault(partition, []).append(offset)
        if is_idempotent:
            self._retries[partition] = Retry(state, tuple(values), offset)

    async def _commit(self, group: str, chapter: int) -> None:
        for partition in PLAIN:
            one = OffsetCommitRequestPartition(
                partition_index=partition.partition,
                committed_offset=chapter * 10 + len(group) + partition.partition,
                committed_metadata="here",
            )
            topic = OffsetCommitRequestTopic(
                name=partition.topic, topic_id=self.witness._topic_ids[partition.topic], partitions=[one]
            )
            response = await self._client.ask(OffsetCommitRequest(group_id=group, topics=[topic]))
            code = response.topics[0].partitions[0].error_code
            assert code == 0, code

    async def _set(self, kind: int, name: str, setting: str, value: str) -> None:
        change = AlterableConfig(name=setting, config_operation=0, value=value)
        resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[change])
        response = await self._client.ask(IncrementalAlterConfigsRequest(resources=[resource], validate_only=False))
        assert response.responses[0].error_code == 0, response.responses[0].error_message

    async def truth(self) -> Truth:
        starts = {each: await self.witness.offset(each, EARLIEST) for each in PARTITIONS}
        places = {
            each: [offset for offset in offsets[1::2] if offset > starts[each]]
            for each, offsets in self._first_offsets.items()
            if each in starts
        }
        times = {
            partition: [START_MS + chapter * 100_000 + page * 1000 + 1 for chapter in range(4) for page in (0, 2, 5)]
            for partition in PARTITIONS
            if partition != UNTOUCHED
        }
        account: dict[Any, Any] = await take_account(self.witness, [*PARTITIONS, *OFFSETS], GROUPS, places, times)
        return Truth(account, dict(self._retries), {self._producer[0]})
