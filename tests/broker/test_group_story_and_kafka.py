"""The same requests to our coordinator and to Apache Kafka's: the same answers, and the same records in the log."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.topic_names import CONSUMER_OFFSETS
from barnabas.records.reading import iter_records
from barnabas.wire.apis import ApiKey
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.messages.find_coordinator import FindCoordinatorRequest
from barnabas.wire.messages.heartbeat import HeartbeatRequest
from barnabas.wire.stored.consumer_offsets import GroupKey, GroupValue
from tests.broker.group_bench import MemoryLog, ServiceBench
from tests.broker.group_story import Teller, ask_over_tcp, tell
from tests.oracles import needs_kafka
from tests.oracles.kafka_server import KafkaServer
from tests.virtual_time import virtual_loop

NEEDED = {"group.initial.rebalance.delay.ms": "0", "offsets.topic.num.partitions": "1"}


def ours() -> tuple[list[str], bytes]:
    log = MemoryLog()
    with virtual_loop(seed=None) as loop:

        async def story() -> list[str]:
            bench = ServiceBench(loop, log)
            await bench.start(1, t=2)

            async def ask(request: Any, version: int) -> Any:
                name = ApiKey(request.API_KEY).name.lower()
                # Between two requests a network lets the loop turn.
                await asyncio.sleep(0.001)
                return await bench.call(import_module(f"barnabas.broker.handlers.{name}"), request, version)

            try:
                return await tell(ask)
            finally:
                await bench.groups.stop()

        lines = loop.run_until_complete(story())
    return lines, b"".join(batch for batches in log.batches.values() for batch in batches)


def kafkas(folder: Path) -> tuple[list[str], bytes]:
    with KafkaServer(folder, NEEDED) as server:

        async def story() -> list[str]:
            async def ask(request: Any, version: int) -> Any:
                return await ask_over_tcp(server.bootstrap, request, version)

            topic = CreatableTopic(name="t", num_partitions=2, replication_factor=1, assignments=[], configs=[])
            await ask(CreateTopicsRequest(topics=[topic], timeout_ms=10_000), 5)
            async with asyncio.timeout(30):
                while (await ask(FindCoordinatorRequest(key="g"), 1)).error_code:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
                # The coordinator is found before it serves its partition.
                beat = HeartbeatRequest(group_id="g", generation_id=1, member_id="m")
                while (await ask(beat, 0)).error_code != ErrorCode.UNKNOWN_MEMBER_ID:  # noqa: ASYNC110
                    await asyncio.sleep(0.05)
            return await tell(ask)

        lines = asyncio.run(story())
    return lines, (folder / "data" / f"{CONSUMER_OFFSETS}-0" / f"{0:020}.log").read_bytes()


def records(log: bytes) -> Iterator[str]:
    """The records as text, without what differs from run to run."""
    teller = Teller(None)  # type: ignore[arg-type]
    for record in iter_records(log):
        key: Any = GroupKey.decode_key(record.key or b"")
        value = None
        version = None
        if record.value is not None:
            version = int.from_bytes(record.value[:2], "big")
            value = GroupValue.decode_value(key.TYPE, record.value)
            for name in ("commit_timestamp", "current_state_timestamp", "expire_timestamp"):
                if getattr(value, name, -1) != -1:
                    setattr(value, name, "some time")
            if hasattr(value, "topic_id"):
                value.topic_id = bool(any(value.topic_id))
            # Kafka keeps members in no order.
            if hasattr(value, "members"):
                value.members.sort(key=lambda each: each.assignment)
        yield teller.without_ids(f"{key} v{version} {value}")


@needs_kafka()
def test_our_coordinator_answers_and_writes_as_kafkas_does(tmp_path: Path) -> None:
    our_lines, our_log = ours()
    their_lines, their_log = kafkas(tmp_path)
    assert our_lines == their_lines
    assert list(records(our_log)) == list(records(their_log))
