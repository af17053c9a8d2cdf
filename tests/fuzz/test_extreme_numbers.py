"""The least and the greatest number in every numeric field of every request that the node serves, in every version.

All else in the request is sensible, so that the number is looked at. Whatever it is, the node has an answer, or waits
as it was told to: it neither fails nor logs an error.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, Final

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.broker.handlers import broker_handlers
from barnabas.records import BatchBuilder
from barnabas.testing.scripted_client import ScriptedClient
from barnabas.testing.sim.world import SimulatedNode, World
from barnabas.wire import Api, ApiKey, Struct, api
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from barnabas.wire.messages.sync_group import SyncGroupRequest
from barnabas.wire.schema import Array, Field, WireType
from barnabas.wire.types import BYTES, INT64, RECORDS, STRING, UUID, Primitive

BITS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
TOPIC: Final = "target"
#: Long enough for whatever answers at all; who waits longer than this was told to.
#: Without a transactional id these are about no transaction.
_MAY_HAVE_NO_TRANSACTION: Final = (ApiKey.PRODUCE, ApiKey.INIT_PRODUCER_ID)
PATIENCE_S: Final = 20
START_MS: Final = 1_700_000_000_000

SERVED: Final = [
    pytest.param(each, id=each.key.camel_name) for each in (api(handler.API_KEY) for handler in broker_handlers())
]


class Known:
    """What exists on the node, for requests that make sense."""

    def __init__(self, topic_id: Uuid, member_id: str, generation: int) -> None:
        self.topic_id = topic_id
        self.member_id = member_id
        self.generation = generation

    def request(self, each: Api, version: int) -> Any:
        return self._struct(each.request, each.key, version)

    def _struct(self, cls: type[Struct], key: ApiKey, version: int) -> Any:
        values = {field.name: self._field(field, key, version) for field in cls.FIELDS}
        return cls(**values)

    def _field(self, field: Field, key: ApiKey, version: int) -> Any:
        if version not in field.versions:
            return field.make_default()
        return self._value(field.type, field.name, key, version)

    def _value(self, kind: WireType, name: str, key: ApiKey, version: int) -> Any:
        if isinstance(kind, Array):
            return [self._value(kind.element, name, key, version)]
        if not isinstance(kind, Primitive):
            return self._struct(kind, key, version)
        if kind is STRING:
            return self._text(name, key)
        if kind is UUID:
            return self.topic_id if key is not ApiKey.DELETE_TOPICS else Uuid(b"nobody has this!")
        if kind in (BYTES, RECORDS):
            return batch() if kind is RECORDS else b""
        return self._number(name, key)

    def _text(self, name: str, key: ApiKey) -> str | None:
        if name == "member_id":
            return self.member_id
        if name == "rack_id":
            return ""
        if name == "group_instance_id" or (name == "transactional_id" and key in _MAY_HAVE_NO_TRANSACTION):
            return None
        if key in (ApiKey.CREATE_TOPICS, ApiKey.DELETE_TOPICS) and name in ("name", "topic_names"):
            return "another"
        if key is ApiKey.DELETE_GROUPS:
            return "another"
        if key is ApiKey.DESCRIBE_QUORUM:
            return "__cluster_metadata"
        named = {
            "protocol_type": "consumer",
            "protocol_name": "range",
            "config_operation": "0",
            "resource_name": TOPIC,
            "key": "group",
            "coordinator_keys": "group",
            "value": "1",
        }
        if key in (ApiKey.ALTER_CONFIGS, ApiKey.INCREMENTAL_ALTER_CONFIGS, ApiKey.DESCRIBE_CONFIGS) and name in (
            "name",
            "configuration_keys",
        ):
            return "retention.ms"
        if key is ApiKey.JOIN_GROUP and name == "name":
            return "range"
        if "group" in name:
            return "group"
        return named.get(name, TOPIC)

    def _number(self, name: str, key: ApiKey) -> int:
        if name in ("generation_id", "generation_id_or_member_epoch", "member_epoch"):
            return self.generation
        if name == "resource_type":
            return 2
        if name == "count":
            return 2
        if name == "acks":
            return -1
        if name in ("replication_factor", "num_partitions"):
            return -1 if key is not ApiKey.CREATE_TOPICS else 1
        if name in ("replica_id", "leader_epoch", "current_leader_epoch", "last_fetched_epoch", "session_epoch"):
            return -1
        if name in ("session_timeout_ms", "rebalance_timeout_ms"):
            return 10_000
        if name in ("timeout_ms", "max_wait_ms"):
            return 1000
        if name.endswith("max_bytes"):
            return 1 << 20
        return 1 if name == "min_bytes" else 0


def batch(timestamp_ms: int = START_MS) -> bytes:
    builder = BatchBuilder(1 << 16)
    builder.append(b"value", b"key", timestamp_ms)
    return bytes(builder.build())


def numbers(cls: type[Struct], version: int) -> Iterator[tuple[tuple[str, ...], Primitive]]:
    """The paths of all fields that hold numbers."""
    for field in cls.FIELDS:
        if version not in field.versions:
            continue
        kind = field.type.element if isinstance(field.type, Array) else field.type
        if not isinstance(kind, Primitive):
            for path, number in numbers(kind, version):
                yield (field.name, *path), number
        elif kind.name in BITS:
            yield (field.name,), kind


def put(message: Any, path: tuple[str, ...], value: int) -> None:
    name, *rest = path
    if rest:
        below = getattr(message, name)
        put(below[0] if isinstance(below, list) else below, tuple(rest), value)
    else:
        setattr(message, name, [value] if isinstance(getattr(message, name), list) else value)


def strip(message: Any, path: tuple[str, ...], version: int) -> None:
    """Leave out the lists that are not on the path."""
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if version in field.versions and isinstance(value, list) and field.name != path[0]:
            setattr(message, field.name, None if version in field.nullable else [])
        elif field.name == path[0] and len(path) > 1:
            strip(value[0] if isinstance(value, list) else value, path[1:], version)


def extremes(kind: Primitive) -> list[int]:
    edge: int = 2 ** (BITS[kind.name] - 1)
    # Close to the edge, too: what is added to a number must not carry it over.
    return [-edge, -2, -1, edge - START_MS, edge - 1] if kind.name == "int64" else [-edge, -2, -1, edge - 1]


def requests(make: Callable[[], Any], cls: type[Struct], version: int) -> Iterator[tuple[str, Any]]:
    fields = list(numbers(cls, version))
    for path, kind in fields:
        for value in extremes(kind):
            request = make()
            put(request, path, value)
            yield f"{'.'.join(path)}={value}", request
            # A number may count only where a list is not given: partitions are counted or assigned.
            request = make()
            put(request, path, value)
            strip(request, path, version)
            yield f"{'.'.join(path)}={value} alone", request
    for index in (0, -1):
        request = make()
        for path, kind in fields:
            put(request, path, extremes(kind)[index])
        yield f"all of them at their {'least' if index == 0 else 'greatest'}", request


def server_errors(message: Any) -> Iterator[str]:
    for field in type(message).FIELDS:
        value = getattr(message, field.name)
        if field.name.endswith("error_code") and value == ErrorCode.UNKNOWN_SERVER_ERROR:
            yield field.name
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, Struct):
                yield from server_errors(each)


class ErrorLines(logging.Handler):
    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())


async def known_things(client: ScriptedClient) -> Known:
    """A topic, and a group with one member."""
    topic = CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await client.ask(CreateTopicsRequest(topics=[topic], timeout_ms=1000), 5)
    (topic_answer,) = (await client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)]), 12)).topics
    await client.ask(FindCoordinatorRequest(key="group", key_type=0), 3)
    joining = JoinGroupRequest(
        group_id="group",
        session_timeout_ms=1_800_000,
        rebalance_timeout_ms=1000,
        member_id="",
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    for _ in range(100):
        joined = await client.ask(joining, 3)
        if joined.error_code == ErrorCode.NONE:
            break
        await asyncio.sleep(0.1)  # its coordinator is being made
    sync = SyncGroupRequest(
        group_id="group", generation_id=joined.generation_id, member_id=joined.member_id, assignments=[]
    )
    assert (await client.ask(sync, 2)).error_code == ErrorCode.NONE
    return Known(topic_answer.topic_id, joined.member_id, joined.generation_id)


@pytest.fixture
def errors() -> Iterator[list[str]]:
    """What was logged as an error."""
    lines = ErrorLines()
    logging.getLogger("barnabas").addHandler(lines)
    yield lines.lines
    logging.getLogger("barnabas").removeHandler(lines)


async def live_on(world: World, node: SimulatedNode) -> None:
    """The timers and logs that are left of what was sent do no harm either, nor does a start from what was written."""
    await asyncio.sleep(700)
    await node.stop()
    await node.start()
    client = await world.client(node.bootstrap)
    assert (await client.ask(MetadataRequest(topics=None), 12)).topics
    await node.stop()


@pytest.mark.parametrize("each", SERVED)
def test_no_number_makes_the_node_fail(each: Api, errors: list[str]) -> None:
    failed: list[str] = []
    with World(seed=1) as world:

        async def ask(bootstrap: str, version: int, what: str, request: Any) -> None:
            client = await world.client(bootstrap)
            answering = client.send(request, version)
            await asyncio.wait([answering], timeout=PATIENCE_S)
            if not answering.done():
                client.abort()
            elif answering.exception() is not None:
                failed.append(f"v{version}, {what}: {answering.exception()}")
            else:
                failed.extend(f"v{version}, {what}: {name}" for name in server_errors(answering.result()))
                await client.close()

        async def story() -> None:
            node = await world.start_node(overrides={"group.max.session.timeout.ms": 2**31 - 1})
            known = await known_things(await world.client(node.bootstrap))
            for version in each.served:
                cases = requests(partial(known.request, each, version), each.request, version)
                await asyncio.gather(*(ask(node.bootstrap, version, *case) for case in cases))
            await live_on(world, node)

        world.run(story())
    assert (failed, errors) == ([], [])


def test_no_timestamp_of_a_record_makes_the_node_fail(errors: list[str]) -> None:
    any_time = {"log.message.timestamp.after.max.ms": 2**63 - 1, "log.message.timestamp.before.max.ms": 2**63 - 1}
    codes: list[int] = []
    with World(seed=1) as world:

        async def story() -> None:
            node = await world.start_node(overrides={**any_time, "log.roll.ms": 1000})
            client = await world.client(node.bootstrap)
            known = await known_things(client)
            for timestamp_ms in [*extremes(INT64), 0]:
                request = known.request(api(ApiKey.PRODUCE), 9)
                request.topic_data[0].partition_data[0].records = batch(timestamp_ms)
                (topic,) = (await client.ask(request, 9)).responses
                codes.append(topic.partition_responses[0].error_code)
                for asked_ms in extremes(INT64):
                    look = known.request(api(ApiKey.LIST_OFFSETS), 7)
                    look.topics[0].partitions[0].timestamp = asked_ms
                    assert not list(server_errors(await client.ask(look, 7)))
            await live_on(world, node)

        world.run(story())
    assert ErrorCode.UNKNOWN_SERVER_ERROR not in codes
    assert ErrorCode.NONE in codes
    assert errors == []


def test_a_retention_without_end_keeps_an_offset() -> None:
    with World(seed=1) as world:

        async def story() -> int:
            node = await world.start_node()
            client = await world.client(node.bootstrap)
            known = await known_things(client)
            commit = known.request(api(ApiKey.OFFSET_COMMIT), 2)
            commit.retention_time_ms = 2**63 - 1
            commit.topics[0].partitions[0].committed_offset = 7
            assert not list(server_errors(await client.ask(commit, 2)))
            await asyncio.sleep(3600)
            client = await world.client(node.bootstrap)  # the other one was idle for too long
            fetch = known.request(api(ApiKey.OFFSET_FETCH), 7)
            (topic,) = (await client.ask(fetch, 7)).topics
            return int(topic.partitions[0].committed_offset)

        assert world.run(story()) == 7
