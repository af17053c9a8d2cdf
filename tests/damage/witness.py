"""What a client sees of a node: everything that it can be asked for, as one account that can be compared with another.

The client asks for what it wants over and over while the node says that it should, for a bounded time, and checks the
CRC of every batch. Where it gets an error, the account has a `Failure`; where it waits in vain, a `Stuck`.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.records import BatchBuilder, iter_batches
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.messages.describe_cluster import DescribeClusterRequest
from barnabas.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.offset_fetch import OffsetFetchRequest, OffsetFetchRequestGroup
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

TIMEOUT_S: Final = 20.0
ATTEMPTS: Final = 8
RETRY_S: Final = 0.25
EARLIEST, LATEST = -2, -1
TOPIC, BROKER = 2, 4
#: Sources of settings that somebody set: of a topic, of a broker, of all brokers.
_SET_SOURCES: Final = (1, 2, 3)

#: What is asked for: a kind, and of what.
Subject = tuple[str, *tuple[Any, ...]]


@dataclass(frozen=True, slots=True)
class Failure:
    """The client was told of an error."""

    reason: str


@dataclass(frozen=True, slots=True)
class Stuck:
    """The client waits for what should be there, and is told nothing."""

    reason: str


@dataclass(frozen=True, slots=True)
class Retry:
    """A batch of an idempotent producer that was acknowledged: sent again, it must not be written again."""

    producer: tuple[int, int, int]
    values: tuple[bytes, ...]
    base_offset: int


@dataclass(slots=True)
class Truth:
    """What must be found again."""

    account: dict[Subject, Any] = field(default_factory=dict)
    retries: dict[TopicPartition, Retry] = field(default_factory=dict)
    producer_ids: set[int] = field(default_factory=set)

    @property
    def partitions(self) -> list[TopicPartition]:
        return [subject[1] for subject in self.account if subject[0] == "records"]

    @property
    def groups(self) -> list[str]:
        return [subject[1] for subject in self.account if subject[0] == "commits"]

    def questions(self, kind: str, partition: TopicPartition) -> list[Any]:
        return [each[2] for each in self.account if each[0] == kind and each[1] == partition]


class _Refused(Exception):  # noqa: N818
    def __init__(self, code: int, message: str | None = None) -> None:
        self.code = ErrorCode.of(code)
        super().__init__(f"{self.code.name} {message or ''}".strip())


class _Waiting(Exception):  # noqa: N818
    """Nothing came, and no error either."""


def _expect(code: int, message: str | None = None) -> None:
    if code:
        raise _Refused(code, message)


class Witness:
    """A client of one node, made for one look."""

    def __init__(self, client: ScriptedClient) -> None:
        self._client = client
        self._topic_ids: dict[str, Uuid] = {}

    @classmethod
    async def of(cls, world: World, node: SimulatedNode) -> Witness:
        return cls(await world.client(node.bootstrap, "witness", timeout_s=TIMEOUT_S))

    async def close(self) -> None:
        await self._client.close()

    # One question

    async def _answer(self, ask: Callable[[], Awaitable[Any]]) -> Any:
        """What `ask` gives in the end: a value, or how it failed."""
        problem: Exception | None = None
        for _ in range(ATTEMPTS):
            try:
                return await ask()
            except _Refused as refusal:
                problem = refusal
                if not refusal.code.retriable:
                    break
            except (BarnabasError, OSError, TimeoutError, AssertionError) as failure:
                return Failure(f"{type(failure).__name__}: {failure}")
            except _Waiting as nothing:
                return Stuck(str(nothing))
            await asyncio.sleep(RETRY_S)
        return Failure(str(problem))

    # Looking

    async def cluster(self) -> dict[Subject, Any]:
        """Who this is, which topics there are, and what is set."""
        account: dict[Subject, Any] = {}

        async def identity() -> Any:
            response = await self._client.ask(DescribeClusterRequest(include_cluster_authorized_operations=False))
            _expect(response.error_code)
            return response.cluster_id

        async def topics() -> Any:
            response = await self._client.ask(MetadataRequest(topics=None))
            return {each.name: (each.topic_id, len(each.partitions)) for each in response.topics}

        account["cluster id",] = await self._answer(identity)
        found = await self._answer(topics)
        account["topics",] = found
        names = sorted(found) if isinstance(found, dict) else []
        self._topic_ids = {name: found[name][0] for name in names}
        account["settings",] = await self._answer(lambda: self._settings(names))
        return account

    async def _settings(self, topics: Sequence[str]) -> dict[tuple[int, str], dict[str, str | None]]:
        """What somebody set, for topics, for the broker, and for all brokers."""
        resources = [*((TOPIC, name) for name in topics), (BROKER, "1"), (BROKER, "")]
        wanted = [
            DescribeConfigsResource(resource_type=kind, resource_name=name, configuration_keys=None)
            for kind, name in resources
        ]
        response = await self._client.ask(DescribeConfigsRequest(resources=wanted))
        found = {}
        for result in response.results:
            _expect(result.error_code, result.error_message)
            settings = {each.name: each.value for each in result.configs if each.config_source in _SET_SOURCES}
            found[result.resource_type, result.resource_name] = settings
        return found

    async def offset(self, partition: TopicPartition, time_ms: int) -> Any:
        """The offset of a time, or of the beginning or the end."""

        async def ask() -> int:
            wanted = ListOffsetsPartition(partition_index=partition.partition, timestamp=time_ms)
            topic = ListOffsetsTopic(name=partition.topic, partitions=[wanted])
            response = await self._client.ask(ListOffsetsRequest(replica_id=-1, topics=[topic]))
            result = response.topics[0].partitions[0]
            _expect(result.error_code)
            return int(result.offset)

        return await self._answer(ask)

    async def records(self, partition: TopicPartition, start: int, end: int, *, only_first: bool = False) -> Any:
        """Offset, timestamp, key and value of what lies between two offsets, as a consumer goes through it."""
        found: list[tuple[int, int, bytes | None, bytes | None]] = []
        offset = start
        while offset < end and not (only_first and found):
            part = await self._answer(lambda offset=offset: self._fetch(partition, offset))  # type: ignore[misc]
            if isinstance(part, Failure | Stuck):
                return part
            records, offset = part
            found += records
        return found[:1] if only_first else found

    async def _fetch(
        self, partition: TopicPartition, offset: int
    ) -> tuple[list[tuple[int, int, bytes | None, bytes | None]], int]:
        wanted = FetchPartition(partition=partition.partition, fetch_offset=offset, partition_max_bytes=1 << 20)
        topic_id = self._topic_ids.get(partition.topic)
        if topic_id is None:
            raise _Refused(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        topic = FetchTopic(topic=partition.topic, topic_id=topic_id, partitions=[wanted])
        response = await self._client.ask(FetchRequest(max_wait_ms=0, min_bytes=1, topics=[topic]))
        _expect(response.error_code)
        result = response.responses[0].partitions[0]
        _expect(result.error_code)
        records, next_offset = [], offset
        for batch in iter_batches(bytes(result.records or b"")):
            batch.check_crc()
            records += [
                (each.offset, each.timestamp_ms, each.key, each.value) for each in batch if each.offset >= offset
            ]
            next_offset = max(next_offset, batch.next_offset)
        if next_offset == offset:
            raise _Waiting(f"nothing comes at offset {offset}")
        return records, next_offset

    async def commits(self, group: str) -> Any:
        """What a group has committed, by partition."""

        async def ask() -> dict[TopicPartition, int]:
            wanted = OffsetFetchRequestGroup(group_id=group, topics=None)
            response = await self._client.ask(OffsetFetchRequest(groups=[wanted]), 8)
            result = response.groups[0]
            _expect(result.error_code)
            found = {}
            for topic in result.topics:
                for each in topic.partitions:
                    _expect(each.error_code)
                    found[TopicPartition(topic.name, each.partition_index)] = each.committed_offset
            return found

        return await self._answer(ask)

    # Writing

    async def produce(
        self, partition: TopicPartition, values: Sequence[bytes], producer: tuple[int, int, int] | None = None
    ) -> Any:
        """The offset of the first."""
        builder = BatchBuilder(1 << 20)
        for value in values:
            builder.append(value, b"key of " + value, timestamp_ms=1_700_000_000_000)
        if producer is not None:
            builder.set_producer_state(*producer)
        return await self.append(partition, builder)

    async def append(self, partition: TopicPartition, builder: BatchBuilder) -> Any:
        batch = bytes(builder.build())

        async def ask() -> int:
            topic = TopicProduceData(
                name=partition.topic,
                topic_id=self._topic_ids.get(partition.topic, Uuid.ZERO),
                partition_data=[PartitionProduceData(index=partition.partition, records=bytearray(batch))],
            )
            response = await self._client.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]))
            result = response.responses[0].partition_responses[0]
            _expect(result.error_code, result.error_message)
            return int(result.base_offset)

        return await self._answer(ask)

    async def producer_id(self) -> Any:
        async def ask() -> tuple[int, int]:
            response = await self._client.ask(
                InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            )
            _expect(response.error_code)
            return response.producer_id, response.producer_epoch

        return await self._answer(ask)


async def take_account(
    witness: Witness,
    partitions: Sequence[TopicPartition],
    groups: Sequence[str],
    places: Mapping[TopicPartition, Sequence[int]],
    times: Mapping[TopicPartition, Sequence[int]],
) -> dict[Subject, Any]:
    """Everything that can be asked for. `places` are offsets to begin reading at, beside the first."""
    account = await witness.cluster()
    for partition in partitions:
        start = account["start", partition] = await witness.offset(partition, EARLIEST)
        end = account["end", partition] = await witness.offset(partition, LATEST)
        if not isinstance(start, int) or not isinstance(end, int):
            account["records", partition] = start if not isinstance(start, int) else end
            continue
        account["records", partition] = await witness.records(partition, start, end)
        for place in places.get(partition, ()):
            account["from", partition, place] = await witness.records(partition, place, end, only_first=True)
        for time_ms in times.get(partition, ()):
            account["time", partition, time_ms] = await witness.offset(partition, time_ms)
    for group in groups:
        account["commits", group] = await witness.commits(group)
    return account
