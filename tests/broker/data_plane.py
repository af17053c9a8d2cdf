"""A node's data plane by itself: partitions on a simulated disk, handlers, virtual time; no network, no quorum.

Requests and responses go through their codecs, as if they came over the wire.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable
from importlib import import_module
from random import Random
from types import MappingProxyType
from typing import Any, TypeVar, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.persistent_map import PersistentMap
from barnabas.broker.configs.config_resources import effective_topic_settings
from barnabas.broker.context import NoQuotas
from barnabas.broker.data.alter_partition_manager import BrokerLeaderPorts
from barnabas.broker.data.producer_ids import ProducerIdPool
from barnabas.broker.data.replica_manager import ReplicaManager
from barnabas.broker.services import MetadataCache, Services
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.turns import Turns
from barnabas.metadata.authorizer import AllowEverything, AuthorizableRequestContext
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import (
    BrokerEndpointImage,
    BrokerImage,
    ClusterImage,
    ConfigResource,
    ConfigResourceType,
    ConfigurationsImage,
    PartitionImage,
    TopicImage,
)
from barnabas.records import BatchBuilder, BatchView, Codec, TransactionMarker, build_marker, iter_batches
from barnabas.replication.fetch_sessions import FetchSessionCache
from barnabas.replication.isr import PendingPartitionChange
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.storage.files import FileSystem
from barnabas.storage.manager import LogManager
from barnabas.storage.settings import TopicSettings
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.runtime import EPOCH_MS, SimulatedRuntime
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest, AllocateProducerIdsResponse
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, PartitionData
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)
from tests.broker.connections import FakeConnection, call, context_of, over_the_wire
from tests.metadata.images import topics_image

NODE = 1
T = TypeVar("T")


class DataPlane:
    """Node 1 of a cluster of the given brokers."""

    def __init__(self, files: FileSystem | None = None, *, brokers: Iterable[int] = (1, 2, 3), **settings: Any) -> None:
        self.loop = VirtualTimeLoop()
        self.files = files or SimulatedDisk(Random(1))
        runtime = SimulatedRuntime(self.loop, Random(7))
        given = {name.replace("_", "."): value for name, value in settings.items()}
        node = {
            "node.id": NODE,
            "process.roles": "broker,controller",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "PLAINTEXT://localhost:9092,CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "/one",
        }
        self.settings = BrokerSettings.load(node, given)
        self.room_bytes = 1 << 40
        self.image = ClusterImage(brokers=PersistentMap({number: broker(number) for number in brokers}))
        self.metadata = MetadataCache()
        self.metadata.image = self.image
        self.logs = LogManager(
            self.files,
            self.settings.data_dirs,
            lambda topic: effective_topic_settings(self.settings, self.image, topic),
            runtime,
        )
        #: Changes of ISRs that were proposed; no controller decides on them.
        self.proposals: list[tuple[LeaderState, PendingPartitionChange]] = []
        ports = BrokerLeaderPorts(
            self.metadata,
            runtime.clock,
            lambda: 1,
            self.settings.replica_lag_time_max_ms,
            lambda leader, change: self.proposals.append((leader, change)),
        )
        self.replica_manager = ReplicaManager(NODE, self.logs, self._settings_of, ports)
        self.blocks = 0
        nothing: Any = None
        self.services = Services(
            settings=self.settings,
            runtime=runtime,
            node_id=NODE,
            cluster_id="cluster",
            metadata=self.metadata,
            logs=self.logs,
            authorizer=AllowEverything(),
            quotas=NoQuotas(),
            controller=nothing,
            replica_manager=self.replica_manager,
            fetch_sessions=FetchSessionCache(
                self.settings.max_incremental_fetch_session_cache_slots, runtime.randomness
            ),
            groups=nothing,
            transactions=nothing,
            producer_ids=ProducerIdPool(cast(Any, self), NODE, lambda: 7),
            auto_topic_creation=nothing,
            brokers=nothing,
            transaction_partitions=nothing,
            endpoints={},
            advertised=list,
            turns=Turns(),
            response_room=lambda: self.room_bytes,
        )
        self.connection = FakeConnection()
        self.run(self.logs.start())

    def _settings_of(self, image: ClusterImage, topic: str) -> TopicSettings:
        return effective_topic_settings(self.settings, image, topic)

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        """The controller, which is only asked for producer ids."""
        assert isinstance(request, AllocateProducerIdsRequest)
        self.blocks += 1
        return AllocateProducerIdsResponse(producer_id_start=1000 * (self.blocks - 1), producer_id_len=1000)

    @property
    def now_ms(self) -> int:
        return self.services.runtime.clock.now_ms()

    def run(self, awaitable: Awaitable[T]) -> T:
        return self.loop.run_until_complete(awaitable)

    def pass_ms(self, duration_ms: float) -> None:
        self.loop.run_for(duration_ms / 1000)

    # What the cluster does

    def apply(self, image: ClusterImage, **changes: Any) -> None:
        self.image = image
        self.replica_manager.apply(image, ClusterDelta(**changes))
        self.metadata.image = image

    def create_topic(
        self, name: str, partitions: int = 1, *, replicas: tuple[int, ...] = (NODE,), **configs: str
    ) -> TopicImage:
        topic_id = Uuid.random(self.services.runtime.randomness)
        state = PartitionImage(replicas, replicas, replicas[0], leader_epoch=0, partition_epoch=0)
        topic = TopicImage(name, topic_id, (state,) * partitions)
        resource = ConfigResource(ConfigResourceType.TOPIC, name)
        given = {setting.replace("_", "."): value for setting, value in configs.items()}
        self.apply(
            with_topic(self.image, topic, configs=self.image.configs.set(resource, MappingProxyType(given))),
            topics_created=(name,),
            partitions_changed=tuple(TopicPartition(name, number) for number in range(partitions)),
            configs_changed=(resource,) if configs else (),
        )
        return topic

    def delete_topic(self, name: str) -> None:
        topic = self.image.topics[name]
        topics = topics_image(each for each in self.image.topics.values() if each.name != name)
        self.apply(
            ClusterImage(brokers=self.image.brokers, topics=topics, configs=self.image.configs),
            topics_deleted=(topic,),
        )

    def change_partition(self, name: str, number: int = 0, **state: Any) -> None:
        topic = self.image.topics[name]
        old = topic.partitions[number]
        fields: dict[str, Any] = {
            "replicas": old.replicas,
            "isr": old.isr,
            "leader": old.leader,
            "leader_epoch": old.leader_epoch,
            "partition_epoch": old.partition_epoch + 1,
        }
        changed = PartitionImage(**{**fields, **state})
        partitions = (*topic.partitions[:number], changed, *topic.partitions[number + 1 :])
        self.apply(
            with_topic(self.image, TopicImage(name, topic.topic_id, partitions)),
            partitions_changed=(TopicPartition(name, number),),
        )

    def partition(self, topic: str, number: int = 0) -> Partition:
        found = self.replica_manager.get(TopicPartition(topic, number))
        assert found is not None
        return found

    # What clients do

    def begin(
        self,
        request: Request,
        version: int | None = None,
        *,
        client_id: str = "tests",
        connection: FakeConnection | None = None,
    ) -> Any:
        """Hand a request over; the answer, or a future of it."""
        version = api(request.API_KEY).served.high if version is None else version
        key = ApiKey(request.API_KEY)
        handler = import_module(f"barnabas.broker.handlers.{key.name.lower()}")
        # A frame of its own, which the node may write into.
        received = type(request).decode(memoryview(bytearray(request.encode(version))), version)
        context = context_of(key, version, connection or self.connection, client_id)

        async def calling() -> Any:
            answer = call(handler, self.services, context, received, connection or self.connection)
            return [answer if answer is None or isinstance(answer, Response) else asyncio.ensure_future(answer)]

        [answer] = self.run(calling())
        return over_the_wire(answer, version) if isinstance(answer, Response) else answer

    def ask(self, request: Request, version: int | None = None, **how: Any) -> Any:
        """Hand a request over, and wait for the answer however long that takes."""
        version = api(request.API_KEY).served.high if version is None else version
        answer = self.begin(request, version, **how)
        return over_the_wire(self.run(answer), version) if isinstance(answer, asyncio.Future) else answer

    def append(self, topic: str, *values: bytes, number: int = 0, **header: Any) -> PartitionProduceResponse:
        """Produce one batch, acks=all; its answer."""
        return self.produce({(topic, number): batch(values, timestamp_ms=self.now_ms, **header)})[topic, number]

    def produce(
        self, batches: dict[tuple[str, int], bytes | bytearray], *, acks: int = -1, version: int = 12
    ) -> dict[tuple[str, int], PartitionProduceResponse]:
        response = self.ask(produce_request(batches, acks=acks), version)
        return answers_of(response)

    def end_transaction(self, topic: str, producer_id: int, *, committed: bool, epoch: int = 0) -> None:
        """What the transaction coordinator does."""
        marker = build_marker(TransactionMarker(producer_id, epoch, 0, committed), self.now_ms)
        self.replica_manager.append_as_coordinator(TopicPartition(topic, 0), marker, self.now_ms)

    def append_in_transaction(self, topic: str, producer_id: int, *values: bytes) -> int:
        """Until transactions are served, they come in by the door of the coordinators."""
        data = batch(values, timestamp_ms=self.now_ms, producer_id=producer_id, producer_epoch=0, transactional=True)
        return self.replica_manager.append_as_coordinator(TopicPartition(topic, 0), data, self.now_ms)

    def fetch(self, topic: str, offset: int = 0, *, number: int = 0, version: int = 12, **how: Any) -> PartitionData:
        """Fetch from one partition; its answer."""
        response = self.ask(fetch_request({(topic, number): offset}, **how), version)
        return only(response)


def broker(number: int) -> BrokerImage:
    endpoint = BrokerEndpointImage("PLAINTEXT", f"host-{number}", 9000 + number, 0)
    return BrokerImage(number, 1, Uuid.ZERO, (endpoint,), {}, None, is_fenced=False, in_controlled_shutdown=False)


def with_topic(image: ClusterImage, topic: TopicImage, configs: ConfigurationsImage | None = None) -> ClusterImage:
    return ClusterImage(
        brokers=image.brokers,
        topics=topics_image({**image.topics, topic.name: topic}.values()),
        configs=image.configs if configs is None else configs,
    )


def batch(
    values: Iterable[bytes | None],
    *,
    key: bytes | None = b"key",
    timestamp_ms: int = EPOCH_MS,
    codec: Codec = Codec.NONE,
    **header: Any,
) -> bytearray:
    builder = BatchBuilder(10_000_000, codec=codec, **header)
    for value in values:
        assert builder.append(value, key, timestamp_ms) is not None
    return builder.build()


def produce_request(
    batches: dict[tuple[Any, int], bytes | bytearray], *, acks: int = -1, timeout_ms: int = 1000, **how: Any
) -> ProduceRequest:
    """Topics are strings, or ids."""
    topics: dict[Any, TopicProduceData] = {}
    for (topic, number), data in batches.items():
        if topic not in topics:
            named = {"topic_id": topic} if isinstance(topic, Uuid) else {"name": topic}
            topics[topic] = TopicProduceData(partition_data=[], **named)
        topics[topic].partition_data.append(PartitionProduceData(index=number, records=data))
    return ProduceRequest(
        **{"transactional_id": None, "acks": acks, "timeout_ms": timeout_ms, **how}, topic_data=list(topics.values())
    )


def answers_of(response: ProduceResponse) -> dict[tuple[str, int], PartitionProduceResponse]:
    return {(topic.name, each.index): each for topic in response.responses for each in topic.partition_responses}


def fetch_request(
    offsets: dict[tuple[Any, int], int],
    *,
    partition_max_bytes: int = 1 << 20,
    leader_epoch: int = -1,
    last_fetched_epoch: int = -1,
    **how: Any,
) -> FetchRequest:
    topics: dict[Any, FetchTopic] = {}
    for (topic, number), offset in offsets.items():
        if topic not in topics:
            named = {"topic_id": topic} if isinstance(topic, Uuid) else {"topic": topic}
            topics[topic] = FetchTopic(partitions=[], **named)
        topics[topic].partitions.append(
            FetchPartition(
                partition=number,
                fetch_offset=offset,
                partition_max_bytes=partition_max_bytes,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_fetched_epoch,
            )
        )
    fields: dict[str, Any] = {"max_wait_ms": 0, "min_bytes": 1, "max_bytes": 50 << 20}
    return FetchRequest(topics=list(topics.values()), **{**fields, **how})


def only(response: FetchResponse) -> PartitionData:
    [topic] = response.responses
    [data] = topic.partitions
    return data


def partitions_of(response: FetchResponse) -> dict[tuple[Any, int], PartitionData]:
    return {
        (topic.topic or topic.topic_id, data.partition_index): data
        for topic in response.responses
        for data in topic.partitions
    }


def batches_of(data: PartitionData) -> list[BatchView]:
    """The whole batches of an answer."""
    return list(iter_batches(bytes(data.records or b"")))


def values_of(data: PartitionData, from_offset: int = 0) -> list[bytes | None]:
    """The values of an answer, as a client sees them that asked for `from_offset`."""
    return [record.value for each in batches_of(data) if not each.is_control for record in each.records(from_offset)]


def code_of(answer: Any) -> str:
    return ErrorCode.of(answer.error_code).name
