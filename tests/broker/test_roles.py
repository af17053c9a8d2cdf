"""A broker and a controller that share nothing: what they have of each other is messages, and what was committed."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random
from typing import Any, TypeVar, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker.broker_server import BrokerServer
from barnabas.broker.controller.controller_channel import BrokerCaller, broker_caller
from barnabas.broker.controller.quorum_controller import QuorumController
from barnabas.broker.handlers import broker_handlers
from barnabas.broker.quorum.formatting import NodeIdentity
from barnabas.broker.router import Router
from barnabas.broker.settings import BrokerSettings
from barnabas.broker.turns import Turns
from barnabas.metadata.authorizer import AuthorizableRequestContext
from barnabas.metadata.loader import MetadataLoader
from barnabas.raft.types import CommittedBatch
from barnabas.records.builder import BatchBuilder
from barnabas.testing.sim.disk import SimulatedDisk
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.headers import decode_response, encode_request
from barnabas.wire.message import Request, Response
from barnabas.wire.messages.broker_heartbeat import BrokerHeartbeatRequest, BrokerHeartbeatResponse
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.describe_quorum import DescribeQuorumRequest, PartitionData, TopicData
from barnabas.wire.messages.init_producer_id import InitProducerIdRequest
from barnabas.wire.messages.metadata import MetadataRequest
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from tests.broker.connections import FakeConnection
from tests.broker.metadata_files import CLUSTER_ID, RunningQuorum, formatted_disk, node_settings
from tests.broker.test_quorum_of_one import GatedRuntime
from tests.storage.runtime import InlineRuntime

T = TypeVar("T")

CONTROLLER, BROKER = 1, 2


class LoopbackChannel:
    """Takes requests to the controller and answers back, as bytes."""

    def __init__(self, controller: QuorumController, until_applied: Callable[[], Awaitable[bool]]) -> None:
        self._controller = controller
        self._until_applied = until_applied
        self.asked: list[str] = []

    async def submit(self, request: Request, version: int, caller: AuthorizableRequestContext) -> Response:
        self.asked.append(type(request).__name__)
        received = type(request).decode(request.encode(version), version)
        answer = await self._controller.submit(received, version, caller)
        if not isinstance(caller, BrokerCaller):
            await self._until_applied()
        return type(answer).decode(answer.encode(version), version)


class Broker:
    """A broker on a disk of its own, which learns what was committed from a controller elsewhere."""

    def __init__(self, running: RunningQuorum) -> None:
        self.running = running
        self.disk = SimulatedDisk(Random(2))
        self.disk.make_directory("/broker")
        self.failures: list[BaseException] = []
        settings = BrokerSettings.load(
            {
                "process.roles": "broker",
                "node.id": str(BROKER),
                "controller.quorum.voters": f"{CONTROLLER}@127.0.0.1:9093",
                "controller.listener.names": "CONTROLLER",
                "listeners": "PLAINTEXT://127.0.0.1:9092",
                "log.dirs": "/broker",
                "offsets.topic.replication.factor": "1",
            }
        )
        self.loader = MetadataLoader()
        self.router = Router(broker_handlers(), Turns())
        self.server = BrokerServer(
            settings,
            NodeIdentity(CLUSTER_ID, BROKER, {"/broker": Uuid.random(Random(3))}),
            self.loader,
            files=self.disk,
            runtime=InlineRuntime(),
            router=self.router,
            response_room=lambda: 1 << 30,
            on_settings=lambda _: None,
            on_failure=self.failures.append,
        )
        self.channel = LoopbackChannel(running.controller, self._until_applied)

    def _until_applied(self) -> Awaitable[bool]:
        return self.server.until_applied(self.running.quorum.high_watermark - 1)

    async def start(self) -> None:
        """Fetch what was committed, and from then on hear of it."""
        for batch in self.running.quorum.read():
            self.loader.on_commit(batch)
        owner = self.running.owner
        tell = owner.on_commit

        def tell_both(batch: CommittedBatch) -> None:
            tell(batch)
            self.loader.on_commit(batch)

        owner.on_commit = tell_both  # type: ignore[method-assign]
        self.server.open_directories()
        await self.server.start(self.channel, {"PLAINTEXT": ("127.0.0.1", 9092)})
        self.server.open()

    async def ask(self, request: Request, version: int | None = None) -> Any:
        version = api(request.API_KEY).served.high if version is None else version
        connection = FakeConnection()
        frame = bytearray(b"".join(encode_request(request, version, 1, "tests")))
        self.router.dispatch(cast(Any, connection), frame)
        while not connection.answers:
            assert connection.closed is None
            await asyncio.sleep(0)
        return decode_response(api(request.API_KEY).response, version, connection.answers[0])[1]

    async def stop(self) -> None:
        await self.server.stop_serving()
        await self.server.stop()
        await self.server.close()


async def cluster() -> tuple[RunningQuorum, Broker]:
    running = await RunningQuorum(formatted_disk(), node_settings()).start()
    broker = Broker(running)
    await broker.start()
    return running, broker


def create(name: str) -> CreateTopicsRequest:
    topic = CreatableTopic(name=name, num_partitions=2, replication_factor=1, assignments=[], configs=[])
    return CreateTopicsRequest(topics=[topic], timeout_ms=60_000)


def test_a_broker_without_a_controller_serves_clients_through_messages() -> None:
    async def story() -> None:
        running, broker = await cluster()
        created = (await broker.ask(create("t"))).topics[0]
        assert created.error_code == ErrorCode.NONE
        # Whoever is told that a topic exists can use it.
        batch = BatchBuilder(1000)
        batch.append(b"value", None, 1)
        data = PartitionProduceData(index=0, records=memoryview(batch.build()))
        topic = TopicProduceData(topic_id=created.topic_id, partition_data=[data])
        produced = await broker.ask(ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[topic]))
        assert produced.responses[0].partition_responses[0].error_code == ErrorCode.NONE
        assert (
            await broker.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1))
        ).producer_id == 0
        metadata = await broker.ask(MetadataRequest(topics=None))
        assert [each.node_id for each in metadata.brokers] == [BROKER]
        assert [each.leader_id for each in metadata.topics[0].partitions] == [BROKER, BROKER]
        asked = TopicData(topic_name="__cluster_metadata", partitions=[PartitionData(partition_index=0)])
        described = (await broker.ask(DescribeQuorumRequest(topics=[asked]))).topics[0].partitions[0]
        assert (described.leader_id, described.error_code) == (CONTROLLER, ErrorCode.NONE)
        assert broker.channel.asked == [
            "BrokerRegistrationRequest",
            "BrokerHeartbeatRequest",
            "CreateTopicsRequest",
            "AllocateProducerIdsRequest",
            "DescribeQuorumRequest",
        ]
        assert not broker.failures
        await broker.stop()
        await running.stop()

    asyncio.run(story())


def test_a_controller_without_a_broker_goes_on_when_its_brokers_leave() -> None:
    async def story() -> None:
        running, broker = await cluster()
        await broker.ask(create("t"))
        await broker.stop()
        image = running.owner.loader.image
        assert image.brokers[BROKER].in_controlled_shutdown
        assert [each.leader for each in image.topics["t"].partitions] == [-1, -1]
        await running.stop()

    asyncio.run(story())


def test_what_the_controller_cannot_decide_is_told_by_its_answer() -> None:
    async def story() -> None:
        running, broker = await cluster()
        running.controller.close("it has gone")
        answer = await broker.ask(create("t"))
        assert answer.topics[0].error_code == ErrorCode.NOT_CONTROLLER
        await broker.stop()
        await running.stop()

    asyncio.run(story())


def test_a_heartbeat_is_answered_while_the_disk_of_the_controller_is_slow() -> None:
    async def story() -> None:
        runtime = GatedRuntime()
        running = await RunningQuorum(formatted_disk(), node_settings(), runtime).start()
        broker = Broker(running)
        await broker.start()
        runtime.gate = asyncio.Event()
        change = asyncio.ensure_future(broker.ask(create("t")))
        while "CreateTopicsRequest" not in broker.channel.asked:  # noqa: ASYNC110
            await asyncio.sleep(0)
        submit, version = running.controller.submit, api(ApiKey.BROKER_HEARTBEAT).served.high
        beat = BrokerHeartbeatRequest(
            broker_id=BROKER,
            broker_epoch=broker.server.broker_epoch,
            current_metadata_offset=running.quorum.high_watermark,
            want_fence=False,
            want_shut_down=False,
        )
        answer = cast(BrokerHeartbeatResponse, await submit(beat, version, broker_caller(BROKER)))
        assert not answer.is_fenced
        assert not change.done()
        # One that leaves must know for certain that others lead.
        beat.want_shut_down = True
        leaving = asyncio.ensure_future(submit(beat, version, broker_caller(BROKER)))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not leaving.done()
        runtime.gate.set()
        await asyncio.gather(change, leaving)
        await broker.stop()
        await running.stop()

    asyncio.run(story())
