"""Clients for stories: what a producer, a reader and a member of a group say, over the scripted client.

They speak any version that nodes serve, drawn from the random numbers that they were given, so that a sweep of seeds is
also one over versions.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.records import BatchBuilder, Codec, iter_records
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.apis import api
from barnabas.wire.embedded.consumer_protocol import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from barnabas.wire.embedded.consumer_protocol import TopicPartition as AssignedTopic
from barnabas.wire.message import Request
from barnabas.wire.messages.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from barnabas.wire.messages.leave_group import LeaveGroupRequest, MemberIdentity
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from barnabas.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from barnabas.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

TIMESTAMP_MS = 1_700_000_000_000
RETRY_S = 0.1


class Refused(Exception):  # noqa: N818
    """The node answered with an error."""

    def __init__(self, code: int) -> None:
        self.code = ErrorCode.of(code)
        super().__init__(self.code.name)


def expect(*codes: int) -> None:
    for code in codes:
        if code:
            raise Refused(code)


class Player:
    """A client that connects again when its connection is gone."""

    def __init__(self, world: World, node: SimulatedNode, name: str, *, timeout_s: float = 30.0) -> None:
        self.name = name
        self.random: Random = world.random(f"player {name}")
        self._world = world
        self._node = node
        self._timeout_s = timeout_s
        self._client: ScriptedClient | None = None
        self._topic_ids: dict[str, Uuid] = {}

    async def ask(self, request: Request, *, lowest: int = 0) -> tuple[Any, int]:
        """The response, and the version in which it came."""
        if self._client is None or not self._client.is_connected:
            self._client = await self._world.client(self._node.bootstrap, self.name, timeout_s=self._timeout_s)
        served = api(request.API_KEY).served
        version = self.random.randint(max(lowest, served.low), served.high)
        try:
            return await self._client.ask(request, version), version
        except TimeoutError:
            self._client.abort()  # an answer that comes later would be taken for that of the next request
            raise

    async def close(self) -> None:
        if self._client is not None:
            await self._client.close()

    # Topics

    async def create_topic(self, name: str, partitions: int = 1, **settings: str) -> None:
        configs = [CreatableTopicConfig(name=key.replace("_", "."), value=value) for key, value in settings.items()]
        topic = CreatableTopic(
            name=name, num_partitions=partitions, replication_factor=1, assignments=[], configs=configs
        )
        response, _ = await self.ask(CreateTopicsRequest(topics=[topic]))
        expect(response.topics[0].error_code)

    async def topic_id(self, name: str) -> Uuid:
        if name not in self._topic_ids:
            wanted = [MetadataRequestTopic(name=name)]
            response, _ = await self.ask(MetadataRequest(topics=wanted, allow_auto_topic_creation=False), lowest=10)
            expect(response.topics[0].error_code)
            self._topic_ids[name] = response.topics[0].topic_id
        return self._topic_ids[name]

    # Records

    async def producer_id(self) -> tuple[int, int]:
        response, _ = await self.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000))
        expect(response.error_code)
        return response.producer_id, response.producer_epoch

    async def produce(
        self, partition: TopicPartition, values: Sequence[bytes], producer: tuple[int, int, int] | None = None
    ) -> int:
        """Append a batch, waiting for it; its first offset. `producer` is id, epoch and sequence."""
        builder = BatchBuilder(1 << 20, codec=self.random.choice([Codec.NONE, Codec.LZ4, Codec.ZSTD]))
        for value in values:
            builder.append(value, None, timestamp_ms=TIMESTAMP_MS)
        if producer is not None:
            builder.set_producer_state(*producer)
        topic = TopicProduceData(
            name=partition.topic,
            topic_id=await self.topic_id(partition.topic),
            partition_data=[PartitionProduceData(index=partition.partition, records=builder.build())],
        )
        # The oldest versions do not know zstd.
        response, _ = await self.ask(ProduceRequest(acks=-1, timeout_ms=10_000, topic_data=[topic]), lowest=7)
        result = response.responses[0].partition_responses[0]
        expect(result.error_code)
        return int(result.base_offset)

    async def fetch(
        self, partition: TopicPartition, offset: int, *, max_wait_ms: int = 500, min_bytes: int = 1
    ) -> list[bytes]:
        """What lies at `offset` and after it, as far as the node gives it."""
        wanted = FetchPartition(
            partition=partition.partition,
            fetch_offset=offset,
            partition_max_bytes=self.random.choice([1000, 1 << 20]),
        )
        topic = FetchTopic(topic=partition.topic, topic_id=await self.topic_id(partition.topic), partitions=[wanted])
        request = FetchRequest(max_wait_ms=max_wait_ms, min_bytes=min_bytes, topics=[topic])
        response, version = await self.ask(request, lowest=10)
        if version >= 7:
            expect(response.error_code)
        if not response.responses:
            return []
        result = response.responses[0].partitions[0]
        expect(result.error_code)
        records = [record for record in iter_records(bytes(result.records or b"")) if record.offset >= offset]
        offsets = [record.offset for record in records]
        assert offsets == list(range(offset, offset + len(records))), (offset, offsets)
        return [record.value or b"" for record in records]

    async def read_all(self, partition: TopicPartition, start: int = 0) -> list[bytes]:
        """All that a partition holds."""
        found: list[bytes] = []
        while more := await self.fetch(partition, start + len(found), max_wait_ms=0):
            found += more
        return found

    # Offsets of groups

    async def find_coordinator(self, group: str) -> None:
        """Also what makes a new cluster create the topic of the offsets."""
        response, _ = await self.ask(FindCoordinatorRequest(coordinator_keys=[group]), lowest=4)
        expect(response.coordinators[0].error_code)

    async def commit(
        self, group: str, partition: TopicPartition, offset: int, generation: int = -1, member_id: str = ""
    ) -> None:
        one = OffsetCommitRequestPartition(
            partition_index=partition.partition, committed_offset=offset, committed_metadata="here"
        )
        topic = OffsetCommitRequestTopic(
            name=partition.topic, topic_id=await self.topic_id(partition.topic), partitions=[one]
        )
        request = OffsetCommitRequest(
            group_id=group, generation_id_or_member_epoch=generation, member_id=member_id, topics=[topic]
        )
        response, _ = await self.ask(request)
        expect(response.topics[0].partitions[0].error_code)

    async def committed(self, group: str, partition: TopicPartition) -> int:
        """-1 if nothing was committed."""
        topics = OffsetFetchRequestTopics(
            name=partition.topic,
            topic_id=await self.topic_id(partition.topic),
            partition_indexes=[partition.partition],
        )
        request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[topics])])
        response, _ = await self.ask(request, lowest=8)
        expect(response.groups[0].error_code)
        result = response.groups[0].topics[0].partitions[0]
        expect(result.error_code)
        return int(result.committed_offset)

    async def until_it_works(self, what: Any, *args: Any, patience_s: float = 120.0) -> Any:
        """Do something again and again while the node is away or asks to be asked again."""
        loop = asyncio.get_running_loop()
        end_s = loop.time() + patience_s
        while True:
            try:
                return await what(*args)
            except (OSError, TimeoutError) as failure:
                if loop.time() > end_s:
                    raise AssertionError(f"{self.name} could not {what.__name__} for {patience_s} s") from failure
            except Refused as failure:
                if not failure.code.retriable or loop.time() > end_s:
                    raise
            await asyncio.sleep(RETRY_S)


class Member(Player):
    """A member of a classic group. Whoever leads gives each member its share of the partitions, in turn."""

    def __init__(self, world: World, node: SimulatedNode, name: str, group: str, topic: str, partitions: int) -> None:
        super().__init__(world, node, name)
        self.group = group
        self.member_id = ""
        self.generation = -1
        self.assignment: list[int] = []
        self._topic = topic
        self._partitions = partitions

    async def join(self) -> None:
        """Join and sync, until there is an assignment."""
        await self.until_it_works(self.find_coordinator, self.group)
        while True:
            joined = await self._join()
            if joined.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                self.member_id = joined.member_id
                continue
            if joined.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.member_id = ""
                continue
            if joined.error_code == ErrorCode.REBALANCE_IN_PROGRESS:
                continue
            expect(joined.error_code)
            self.member_id, self.generation = joined.member_id, joined.generation_id
            if await self._sync(joined):
                return

    async def _join(self) -> JoinGroupResponse:
        subscription = ConsumerProtocolSubscription(topics=[self._topic])
        protocol = JoinGroupRequestProtocol(name="range", metadata=b"\0\1" + subscription.encode(1))
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            member_id=self.member_id,
            protocol_type="consumer",
            protocols=[protocol],
        )
        response, _ = await self.ask(request, lowest=1)
        assert isinstance(response, JoinGroupResponse)
        return response

    async def _sync(self, joined: JoinGroupResponse) -> bool:
        shares = []
        if joined.leader == joined.member_id:
            ids = sorted(member.member_id for member in joined.members)
            for place, member_id in enumerate(ids):
                mine = list(range(place, self._partitions, len(ids)))
                share = ConsumerProtocolAssignment(
                    assigned_partitions=[AssignedTopic(topic=self._topic, partitions=mine)]
                )
                shares.append(SyncGroupRequestAssignment(member_id=member_id, assignment=b"\0\1" + share.encode(1)))
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="consumer",
            protocol_name="range",
            assignments=shares,
        )
        response, _ = await self.ask(request)
        if response.error_code in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.UNKNOWN_MEMBER_ID):
            return False
        expect(response.error_code)
        assigned = ConsumerProtocolAssignment.decode(bytes(response.assignment)[2:], 1)
        self.assignment = [number for each in assigned.assigned_partitions for number in each.partitions]
        return True

    async def heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=self.group, generation_id=self.generation, member_id=self.member_id)
        response, _ = await self.ask(request)
        return ErrorCode.of(response.error_code)

    async def notice_rebalance(self) -> None:
        """Beat until the coordinator says that the group is to form anew."""
        for _ in range(60):
            code = await self.heartbeat()
            if code is ErrorCode.REBALANCE_IN_PROGRESS:
                return
            expect(code)
            await asyncio.sleep(1)
        raise AssertionError(f"{self.name} heard of no rebalance")

    async def commit_own(self, offset: int) -> None:
        for number in self.assignment:
            partition = TopicPartition(self._topic, number)
            await self.commit(self.group, partition, offset, self.generation, self.member_id)

    async def leave(self) -> None:
        request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self.member_id)])
        response, _ = await self.ask(request, lowest=3)
        expect(response.error_code)
