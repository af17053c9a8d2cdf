"""A cluster of three brokers whose leaders move all the time, and which throttle: played, on virtual time."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from barnabas import TopicPartition, aio
from barnabas.base.error_codes import ErrorCode
from barnabas.records import iter_batches
from barnabas.wire import ApiKey
from barnabas.wire.message import Response
from barnabas.wire.messages.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.wire.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from barnabas.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.cluster import Broker, Cluster, LoopClock
from tests.client.core.consuming.logs import batch
from tests.client.core.producing.broker_model import PartitionModel
from tests.net.worlds import run_simulated

TOPIC = "t"
NODES = (1, 2, 3)


class DataCluster(Cluster):
    """Brokers that share one log per partition, as if replication took no time; only its leader may be asked."""

    def __init__(self, partition_count: int, *, gives_hints: bool) -> None:
        super().__init__(len(NODES))
        self.logs = [PartitionModel() for _ in range(partition_count)]
        self.add_topic(TOPIC, *[(NODES[number % 3], 0) for number in range(partition_count)])
        self.throttle_ms = 0
        self.refusal_count = 0
        self._gives_hints = gives_hints
        for broker in self.brokers.values():
            broker.versions |= {
                ApiKey.PRODUCE: (3, 12),
                ApiKey.FETCH: (4, 12),
                ApiKey.INIT_PRODUCER_ID: (0, 4),
                ApiKey.LIST_OFFSETS: (1, 6),
            }
            broker.answers = {
                ApiKey.PRODUCE: self._produce,
                ApiKey.FETCH: self._fetch,
                ApiKey.INIT_PRODUCER_ID: lambda *_: InitProducerIdResponse(producer_id=7, producer_epoch=0),
                ApiKey.LIST_OFFSETS: self._list_offsets,
            }

    def move(self, number: int, leader: int) -> None:
        leaders = self.topics[TOPIC][1]
        leaders[number] = (leader, leaders[number][1] + 1)

    def _refusal(self, broker: Broker, number: int) -> ErrorCode:
        if self.topics[TOPIC][1][number][0] == broker.node_id:
            return ErrorCode.NONE
        self.refusal_count += 1
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _produce(self, broker: Broker, request: Any, version: int) -> Response:
        assert isinstance(request, ProduceRequest)
        answers = []
        for each in request.topic_data[0].partition_data:
            code, offset = self._refusal(broker, each.index), -1
            hint = None
            if code and self._gives_hints and version >= 10:
                leader, epoch = self.topics[TOPIC][1][each.index]
                hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
            if not code:
                (view,) = iter_batches(each.records or b"")
                code, offset = self.logs[each.index].append(view)
            answers.append(
                PartitionProduceResponse(index=each.index, error_code=code, base_offset=offset, current_leader=hint)
            )
        endpoints = [NodeEndpoint(node_id=node, host="127.0.0.1", port=self.brokers[node].port) for node in NODES]
        return ProduceResponse(
            responses=[TopicProduceResponse(name=TOPIC, partition_responses=answers)],
            throttle_time_ms=self.throttle_ms,
            node_endpoints=endpoints if self._gives_hints and version >= 10 else [],
        )

    def _fetch(self, broker: Broker, request: Any, version: int) -> Response:
        assert isinstance(request, FetchRequest)
        answers = []
        for topic in request.topics:
            for each in topic.partitions:
                code, records = self._refusal(broker, each.partition), self.logs[each.partition].records
                epoch = self.topics[TOPIC][1][each.partition][1]
                if not code and -1 < each.current_leader_epoch < epoch:
                    code = ErrorCode.FENCED_LEADER_EPOCH
                wanted = [] if code else records[each.fetch_offset : each.fetch_offset + 5]
                data = batch(each.fetch_offset, wanted) if wanted else b""
                answers.append(
                    PartitionData(
                        partition_index=each.partition,
                        error_code=code,
                        high_watermark=len(records),
                        records=memoryview(data),
                    )
                )
        responses = [FetchableTopicResponse(topic=TOPIC, partitions=answers)] if answers else []
        return FetchResponse(responses=responses, throttle_time_ms=self.throttle_ms)

    def _list_offsets(self, broker: Broker, request: Any, version: int) -> Response:
        assert isinstance(request, ListOffsetsRequest)
        answers = [
            ListOffsetsPartitionResponse(
                partition_index=each.partition_index, error_code=self._refusal(broker, each.partition_index), offset=0
            )
            for each in request.topics[0].partitions
        ]
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name=TOPIC, partitions=answers)])


def settings(cluster: Cluster, seed: int) -> dict[str, Any]:
    return {
        "bootstrap_servers": cluster.bootstrap_servers,
        "clock": LoopClock(),
        "randomness": Random(seed),
        "retry_backoff_ms": 20,
        "retry_backoff_max_ms": 100,
    }


@pytest.mark.parametrize("gives_hints", [False, True], ids=["asks", "is told"])
@pytest.mark.parametrize("seed", range(2))
def test_every_record_is_written_once_and_read_once_in_order(seed: int, gives_hints: bool) -> None:
    """The producer learns of a move by refusals, and either asks anew or is told; so does the consumer."""

    async def story() -> None:
        cluster, chance, count = DataCluster(3, gives_hints=gives_hints), Random(seed), 600
        await cluster.start()

        async def shuffle() -> None:
            while True:
                await asyncio.sleep(chance.uniform(0.02, 0.3))
                cluster.move(chance.randrange(3), chance.choice(NODES))

        shuffling = asyncio.create_task(shuffle())
        seen: dict[int, list[bytes]] = {0: [], 1: [], 2: []}
        async with (
            aio.Producer(linger_ms=5, batch_size=100, **settings(cluster, seed)) as producer,
            aio.Consumer(auto_offset_reset="earliest", **settings(cluster, seed)) as consumer,
        ):
            consumer.assign([TopicPartition(TOPIC, number) for number in range(3)])
            futures = []
            for number in range(count):
                futures.append(await producer.send(TOPIC, b"%d" % number, partition=number % 3))
                await asyncio.sleep(0.005)
            metadata = [await future for future in futures]
            while sum(map(len, seen.values())) < count:
                for record in await consumer.poll(60):
                    seen[record.partition].append(record.value)
        shuffling.cancel()
        assert [each.offset for each in metadata] == [number // 3 for number in range(count)]
        for number, log in enumerate(cluster.logs):
            assert log.records == [b"%d" % each for each in range(number, count, 3)]
            assert seen[number] == log.records
        assert cluster.refusal_count > 5
        await cluster.stop()

    run_simulated(story)


def test_throttle_times_are_obeyed_and_nothing_is_lost_by_them() -> None:
    """A broker that asks for a second of rest gets it before the next request."""

    async def story() -> None:
        cluster = DataCluster(1, gives_hints=False)
        await cluster.start()
        loop = asyncio.get_running_loop()
        times: list[float] = []
        answer = cluster[1].answers[ApiKey.PRODUCE]

        def noted(*arguments: Any) -> Any:
            times.append(loop.time())
            return answer(*arguments)

        cluster[1].answers[ApiKey.PRODUCE] = noted
        async with aio.Producer(linger_ms=0, **settings(cluster, 1)) as producer:
            cluster.throttle_ms = 1000
            for number in range(4):
                await (await producer.send(TOPIC, b"%d" % number))
        assert cluster.logs[0].records == [b"0", b"1", b"2", b"3"]
        assert all(later - earlier >= 1.0 for earlier, later in pairwise(times))
        await cluster.stop()

    run_simulated(story)
