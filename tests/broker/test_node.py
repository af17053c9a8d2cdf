"""A whole node in a simulated world: how it starts and stops, what happens when it fails, and who waits for it."""

from __future__ import annotations

import asyncio
import errno
import gc
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.broker.node import Node
from barnabas.records import BatchBuilder
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.process import ProcessState
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire.messages.api_versions import ApiVersionsRequest
from barnabas.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from barnabas.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

METADATA_LOG = "__cluster_metadata-0"
LONG_MS = 3_600_000


def now_s() -> float:
    return asyncio.get_running_loop().time()


def create(*names: str, timeout_ms: int = 30_000) -> CreateTopicsRequest:
    topics = [
        CreatableTopic(name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in names
    ]
    return CreateTopicsRequest(topics=topics, timeout_ms=timeout_ms)


def fetch(topic: str, *, max_wait_ms: int = LONG_MS) -> FetchRequest:
    wanted = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    return FetchRequest(max_wait_ms=max_wait_ms, min_bytes=1, topics=[FetchTopic(topic=topic, partitions=[wanted])])


def produce(topic: str) -> ProduceRequest:
    builder = BatchBuilder(1000)
    builder.append(b"value", None, 1_700_000_000_000)
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=builder.build())])
    return ProduceRequest(acks=-1, timeout_ms=1000, topic_data=[data])


def join(group: str, member_id: str = "") -> JoinGroupRequest:
    return JoinGroupRequest(
        group_id=group,
        session_timeout_ms=300_000,
        rebalance_timeout_ms=LONG_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


def codes(response: Any) -> list[str]:
    return [ErrorCode.of(topic.error_code).name for topic in response.topics]


def inside(node: SimulatedNode) -> Node:
    assert node.node is not None
    return node.node


def delayed(node: SimulatedNode, topic: str) -> int:
    partition = inside(node).services.replica_manager.get(TopicPartition(topic, 0))
    assert partition is not None
    return partition.leading().delayed_count


async def with_topic(
    world: World, overrides: Mapping[str, object] | None = None
) -> tuple[SimulatedNode, ScriptedClient]:
    node = await world.start_node(overrides=overrides)
    client = await world.client(node.bootstrap)
    assert codes(await client.ask(create("t"))) == ["NONE"]
    return node, client


async def until(holds: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if holds():
            return
        await asyncio.sleep(0.01)
    raise AssertionError("it has not come true")


async def asked_until(client: ScriptedClient, request: Any, version: int, wanted: ErrorCode) -> Any:
    """Ask again, as clients do, while the groups' topic is made and loaded."""
    for _ in range(100):
        response = await client.ask(request, version)
        if response.error_code == wanted:
            return response
        await asyncio.sleep(0.1)
    raise AssertionError(f"{wanted.name} was never answered")


# Failing


@pytest.mark.parametrize("operation", ["sync", "write_at"])
def test_when_the_metadata_log_fails_who_waits_is_told_and_the_node_stops(operation: str) -> None:
    with World(1, tolerates_logged_errors=True) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            node.host.disk.fail_next(errno.EIO, path=METADATA_LOG, name=operation)
            response = await client.ask(create("a", "b"))
            assert codes(response) == ["NOT_CONTROLLER", "NOT_CONTROLLER"]
            assert "Input/output error" in response.topics[0].error_message
            began_s = now_s()
            assert codes(await client.ask(create("c"))) == ["NOT_CONTROLLER"]
            assert "Input/output error" in str(await inside(node).failed())
            await node.stop()
            assert now_s() - began_s < 1

        world.run(story())


def test_after_a_change_that_cannot_be_applied_no_other_is(monkeypatch: pytest.MonkeyPatch) -> None:
    with World(1, tolerates_logged_errors=True) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            services = inside(node).services
            others = [await world.client(node.bootstrap) for _ in range(3)]

            def fail(*_: object) -> None:
                monkeypatch.undo()
                raise ZeroDivisionError

            monkeypatch.setattr(services.groups, "apply", fail)
            clients = [client, *others]
            answers = await asyncio.gather(*(each.ask(create(f"new-{n}")) for n, each in enumerate(clients)))
            assert [codes(each) for each in answers] == [["NOT_CONTROLLER"]] * 4
            assert len(services.metadata.image.topics) <= 2, "the first, and at most that which failed on its way"
            assert "ZeroDivisionError" in str(inside(node).failure)
            began_s = now_s()
            await node.stop()
            assert now_s() - began_s < 1

        world.run(story())


def test_topics_that_could_not_be_created_on_the_way_leave_no_error_behind() -> None:
    with World(1, tolerates_logged_errors=True) as world:
        left: list[dict[str, Any]] = []
        world.loop.set_exception_handler(lambda loop, context: left.append(context))

        async def story() -> None:
            node, client = await with_topic(world)
            node.host.disk.fail_next(errno.EIO, path=METADATA_LOG, name="write_at")
            await client.ask(
                MetadataRequest(topics=[MetadataRequestTopic(name="wanted")], allow_auto_topic_creation=True)
            )
            await inside(node).failed()
            await node.stop()

        world.run(story())
        gc.collect()
        assert left == []


def test_a_node_without_a_directory_that_works_fails() -> None:
    with World(1, tolerates_logged_errors=True) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            node.host.disk.fail_next(errno.EIO, path="/t-0/", name="write_at")
            answer = await client.ask(produce("t"), 11)
            assert answer.responses[0].partition_responses[0].error_code == ErrorCode.KAFKA_STORAGE_ERROR
            assert "metadata log" in str(await inside(node).failed())
            await node.stop()

        world.run(story())


@pytest.mark.parametrize("failing", [["/one"], ["/one", "/two"]])
def test_a_node_goes_on_as_long_as_one_directory_and_its_metadata_are_left(failing: list[str]) -> None:
    with World(1, tolerates_logged_errors=True) as world:

        async def story() -> None:
            node = await world.start_node(overrides={"log.dirs": "/one,/two", "metadata.log.dir": "/data"})
            logs = inside(node).services.logs
            for directory in logs.directories:
                if directory.path in failing:
                    logs.directory_failed(directory, "it is gone")
            failure = inside(node).failure
            assert (failure is None) == (len(failing) < 2)
            assert failure is None or "the last log directory" in str(failure)
            await node.stop()

        world.run(story())


# Time


def test_a_change_that_takes_too_long_is_told_as_late_and_may_still_happen() -> None:
    with World(1) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            log = inside(node).quorum.log
            begin_sync, log.begin_sync = log.begin_sync, lambda: None  # type: ignore[method-assign]
            began_s = now_s()
            growth = CreatePartitionsTopic(name="t", count=2, assignments=None)
            assert codes(await client.ask(create("late", timeout_ms=3000))) == ["REQUEST_TIMED_OUT"]
            assert now_s() - began_s == pytest.approx(3, abs=0.1)
            grown = await client.ask(CreatePartitionsRequest(topics=[growth], timeout_ms=1, validate_only=False))
            assert grown.results[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            doomed = DeleteTopicsRequest(topics=[DeleteTopicState(name="t", topic_id=Uuid.ZERO)], timeout_ms=1)
            assert (await client.ask(doomed)).responses[0].error_code == ErrorCode.REQUEST_TIMED_OUT
            log.begin_sync = begin_sync  # type: ignore[method-assign]
            assert codes(await client.ask(create("next"))) == ["NONE"]
            assert sorted(inside(node).services.metadata.image.topics) == ["late", "next"]
            await node.stop()

        world.run(story())


@pytest.mark.parametrize("timeout_ms", [0, -1])
def test_without_any_time_nothing_is_changed(timeout_ms: int) -> None:
    with World(1) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            assert codes(await client.ask(create("never", timeout_ms=timeout_ms))) == ["REQUEST_TIMED_OUT"]
            assert list(inside(node).services.metadata.image.topics) == ["t"]
            await node.stop()

        world.run(story())


# Waiting


def test_stopping_answers_the_fetches_that_wait() -> None:
    with World(1) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            late = await world.client(node.bootstrap)
            waiting = client.send(fetch("t"), 12)
            await until(lambda: delayed(node, "t") == 1)
            began_s = now_s()
            stopping = asyncio.ensure_future(node.stop())
            last_moment = late.send(fetch("t"), 12)
            await stopping
            assert now_s() - began_s < 1
            assert (await waiting).responses[0].partitions[0].error_code == ErrorCode.NONE
            await asyncio.wait([last_moment])

        world.run(story())


@pytest.mark.parametrize("leave", ["close", "abort", "half-close"])
def test_a_client_that_goes_while_it_waits_leaves_nothing_behind(leave: str) -> None:
    with World(1) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            client.send(fetch("t"), 12)
            await until(lambda: delayed(node, "t") == 1)
            if leave == "half-close":
                client._transport.write_eof()
            else:
                getattr(client._transport, leave)()
            await until(lambda: delayed(node, "t") == 0)
            assert not list(inside(node)._server.connections)
            await node.stop()

        world.run(story())


def test_who_sends_requests_and_shuts_down_its_side_gets_what_is_ready() -> None:
    with World(1) as world:

        async def story() -> None:
            node, client = await with_topic(world)
            answers = [client.send(produce("t"), 11), client.send(create("u")), client.send(fetch("u"), 12)]
            client._transport.write_eof()
            await asyncio.wait(answers)
            assert answers[0].result().responses[0].partition_responses[0].error_code == ErrorCode.NONE
            assert codes(answers[1].result()) == ["NONE"]
            assert isinstance(answers[2].exception(), ConnectionError), "nobody waits for records without listening"
            await until(lambda: delayed(node, "u") == 0)
            await node.stop()

        world.run(story())


def test_a_member_whose_connection_ends_while_it_joins_does_not_disturb_its_group() -> None:
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node(overrides={"group.initial.rebalance.delay.ms": 3000})
            first, second = await world.client(node.bootstrap), await world.client(node.bootstrap)
            await asked_until(first, FindCoordinatorRequest(key="g"), 3, ErrorCode.NONE)
            named = await asked_until(first, join("g"), 5, ErrorCode.MEMBER_ID_REQUIRED)
            first.send(join("g", named.member_id), 5)
            await asyncio.sleep(0.5)
            first._transport.write_eof()
            other = await second.ask(join("g"), 5)
            joined = await second.ask(join("g", other.member_id), 5)
            assert (joined.error_code, joined.generation_id) == (0, 1)
            assert len(list(inside(node)._server.connections)) == 1
            await node.stop()

        world.run(story())


def test_waiting_for_records_is_silence_like_any_other() -> None:
    with World(1) as world:

        async def story() -> None:
            node, client = await with_topic(world, overrides={"connections.max.idle.ms": 10_000})
            await asyncio.sleep(9)
            began_s = now_s()
            waiting = client.send(fetch("t"), 12)
            await asyncio.wait([waiting])
            assert isinstance(waiting.exception(), ConnectionError)
            assert now_s() - began_s == pytest.approx(10, abs=0.5), "counted from the request"
            assert delayed(node, "t") == 0
            await node.stop()

        world.run(story())


# Starting and stopping


@pytest.mark.parametrize("turns", [0, 1, 3, 5, 8, 12, 16, 20, 30])
def test_a_node_can_be_stopped_while_it_starts(turns: int) -> None:
    with World(1) as world:

        async def story() -> None:
            simulated = await world.start_node()
            await simulated.stop()
            for _ in range(2):
                simulated.host.start_process("node")
                node = Node(simulated.settings, files=simulated.host.disk, runtime=simulated.host.runtime())

                async def start_and_stop(node: Node = node) -> tuple[BaseException | None]:
                    starting = asyncio.ensure_future(node.start())
                    await asyncio.sleep(turns / 1000)
                    await node.stop()
                    assert not node._server.endpoints or all(each.is_closed for each in node._server.connections)
                    return await asyncio.gather(starting, return_exceptions=True)

                [outcome] = await simulated.host.do(start_and_stop())
                assert outcome is None or (
                    isinstance(outcome, BarnabasError) and "stopped before it was ready" in str(outcome)
                )
                simulated.host.kill()
            await simulated.start()
            client = await world.client(simulated.bootstrap)
            assert (await client.ask(ApiVersionsRequest(), 0)).error_code == 0
            await simulated.stop()

        world.run(story())


def test_who_stops_a_node_second_waits_for_the_first() -> None:
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node()
            stops = [asyncio.ensure_future(node.host.do(inside(node).stop())) for _ in range(2)]
            await asyncio.wait(stops, return_when=asyncio.FIRST_COMPLETED)
            ended_s = now_s()
            await asyncio.gather(*stops)
            assert now_s() == ended_s
            await inside(node).stop()
            node.host.kill()

        world.run(story())


def test_a_node_is_started_once() -> None:
    with World(1) as world:

        async def story() -> None:
            node = await world.start_node()
            with pytest.raises(BarnabasError, match="once"):
                await inside(node).start()
            assert node.host.process is not None
            assert node.host.process.state is ProcessState.RUNNING
            await node.stop()

        world.run(story())
