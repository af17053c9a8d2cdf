"""A small world around a real `Sender`, `Accumulator` and `Metadata`: virtual time, a bad network, model brokers.

Everything that happens comes from one seed. Connections keep their order, as TCP does; when one is cut, each side may
or may not have got what was under way, and a broker may find requests in its buffers when the client has moved on.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Callable
from contextlib import nullcontext
from dataclasses import dataclass, field
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.client.core.metadata import Metadata, MetadataPolicy
from barnabas.client.core.producing.accumulator import Accumulator, AccumulatorSettings
from barnabas.client.core.producing.buffer_pool import BufferPool
from barnabas.client.core.producing.produce_requests import NodeRequest
from barnabas.client.core.producing.sender import Sender
from barnabas.client.core.producing.sender_ports import SenderSettings
from barnabas.client.core.producing.sequences import Sequences
from barnabas.net.errors import ConnectError, DisconnectedError, RequestTimeoutError
from barnabas.records import BatchView
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.produce import (
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.core.producing.broker_model import PartitionModel

TOPIC = "t"
TOPIC_ID = Uuid(bytes(15) + b"\x63")
POOL_BYTES = 1 << 20

BEFORE_APPEND = (
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.CORRUPT_MESSAGE,
    ErrorCode.KAFKA_STORAGE_ERROR,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
)
AFTER_APPEND = (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT)


@dataclass
class Faults:
    """How likely what is, per request or per event of chaos."""

    before_append: float = 0.0
    after_append: float = 0.0
    refusal: float = 0.0
    too_large_records: int = 10**9
    cut: float = 0.0
    move: float = 0.0
    hang: float = 0.0
    forget: float = 0.0
    lost_metadata: float = 0.0


class CountingMetrics:
    """Stands in for `ProducerMetrics`."""

    def __init__(self) -> None:
        self.counts: Counter[str] = Counter()

    def __getattr__(self, name: str) -> Callable[..., None]:
        def count(*arguments: Any) -> None:
            self.counts[name] += 1

        return count


class Connection:
    def __init__(self) -> None:
        self.is_open = True
        # The broker reads nothing from it any more.
        self.is_dead = False
        self.asked: list[NodeRequest] = []
        # What was sent last arrives last.
        self.last_arrival_ms = 0
        self.last_answer_ms = 0


class SimNodes:
    """The network as the sender sees it."""

    def __init__(self, world: World) -> None:
        self._world = world
        self.connections: dict[int, Connection | None] = {}
        self.connecting: set[int] = set()
        self.all_connections: dict[int, list[Connection]] = {}

    def delay_ms(self, node_id: int, now_ms: int) -> float:
        connection = self.connections.get(node_id)
        if connection is None or len(connection.asked) >= self._world.max_in_flight:
            return math.inf
        return 0.0

    def version_of(self, node_id: int, request: type[Any]) -> int | None:
        assert request is ProduceRequest
        return self._world.produce_version if self.connections.get(node_id) is not None else None

    def connect_soon(self, node_id: int) -> None:
        if self.connections.get(node_id) is None and node_id not in self.connecting:
            self.connecting.add(node_id)
            self._world.after(self._world.delay(1, 60), self._connected, node_id)

    def _connected(self, node_id: int) -> None:
        self.connecting.discard(node_id)
        connection = self.connections[node_id] = Connection()
        self.all_connections.setdefault(node_id, []).append(connection)


@dataclass
class Sent:
    """A record that the program sent, and what it was told."""

    partition: int
    value: bytes
    sent_ms: int
    outcomes: list[tuple[int, int, Exception | None]] = field(default_factory=list)  # when, offset, error


class World:
    def __init__(
        self,
        seed: int,
        *,
        partitions: int = 1,
        nodes: int = 1,
        is_idempotent: bool = True,
        max_in_flight: int = 5,
        acks: int = -1,
        retries: int = 2**31 - 1,
        delivery_timeout_ms: int = 5000,
        request_timeout_ms: int = 600,
        batch_bytes: int = 160,
        largest_batch_bytes: int = 0,
        produce_version: int = 13,
        faults: Faults | None = None,
        sequences: Sequences | None = None,
        accumulator_class: type[Accumulator] = Accumulator,
        sender_class: type[Sender] = Sender,
        refuses_unknown: bool = False,
    ) -> None:
        self.random = Random(seed)
        self.now_ms = 1000
        self.max_in_flight = max_in_flight
        self.produce_version = produce_version
        self.request_timeout_ms = request_timeout_ms
        self.delivery_timeout_ms = delivery_timeout_ms
        self.faults = faults or Faults()
        self.is_chaotic = True
        self.node_ids = list(range(1, nodes + 1))
        self.leaders = [(1 + number % nodes, 0) for number in range(partitions)]
        self.logs = [PartitionModel(refuses_unknown=refuses_unknown) for _ in range(partitions)]
        self.sent: list[Sent] = []
        self.trace: list[str] = []
        self._events: list[tuple[int, int, Callable[..., None], tuple[Any, ...]]] = []
        self._event_count = 0
        self._timer_at: float = math.inf
        self._next_producer_id = 1000
        self.metadata = Metadata(MetadataPolicy(retry_backoff_ms=20, retry_backoff_max_ms=100), randomness=self.random)
        self.pool = BufferPool(POOL_BYTES, batch_bytes)
        self.accumulator = accumulator_class(
            AccumulatorSettings(
                batch_bytes=batch_bytes,
                largest_batch_bytes=largest_batch_bytes,
                linger_ms=5,
                delivery_timeout_ms=delivery_timeout_ms,
                retry_backoff_ms=20,
                retry_backoff_max_ms=200,
            ),
            self.pool,
            randomness=self.random,
            lock=nullcontext(),
        )
        self.nodes = SimNodes(self)
        self.metrics = CountingMetrics()
        self.sender = sender_class(
            SenderSettings(
                acks=acks,
                is_idempotent=is_idempotent,
                retries=retries,
                max_in_flight=max_in_flight,
                request_timeout_ms=request_timeout_ms,
                delivery_timeout_ms=delivery_timeout_ms,
                retry_backoff_ms=20,
                retry_backoff_max_ms=200,
            ),
            self.metadata,
            self.accumulator,
            self.nodes,
            randomness=self.random,
            metrics=self.metrics,
        )
        if sequences is not None:
            self.sender._sequences = sequences
        self.metadata.want(TOPIC, self.now_ms)
        self._take_metadata(self._metadata_response())

    # Time

    def after(self, delay_ms: float, action: Callable[..., None], *arguments: Any) -> None:
        self._event_count += 1
        heapq.heappush(self._events, (self.now_ms + int(delay_ms), self._event_count, action, arguments))

    def delay(self, low: int, high: int) -> int:
        return self.random.randint(low, high)

    def run_until(self, end_ms: int, until: Callable[[], bool] = lambda: False) -> None:
        """Let things happen. After each event the sender has its turn, as the driver gives it one."""
        self.turn()
        while not until():
            next_ms = min(self._events[0][0] if self._events else math.inf, self._timer_at)
            if next_ms > end_ms:
                self.now_ms = max(self.now_ms, end_ms)
                return
            self.now_ms = max(self.now_ms, math.ceil(next_ms))
            while self._events and self._events[0][0] <= self.now_ms:
                _, _, action, arguments = heapq.heappop(self._events)
                action(*arguments)
            self.turn()

    def turn(self) -> None:
        self._timer_at = math.inf
        for _ in range(1000):
            step = self.sender.step(self.now_ms)
            for request in step.requests:
                self._request(request)
            if step.wants_producer_id:
                self.sender.producer_id_request()
                self.after(self.delay(1, 20), self._answer_id)
            if not step.requests:
                break
        else:
            raise AssertionError("the sender never stops sending")
        self._timer_at = self.now_ms + max(step.wait_ms, 1.0)
        wait_ms = self.metadata.next_update_in_ms(self.now_ms)
        if wait_ms <= 0:
            self.metadata.request(self.now_ms)
            if self.is_chaotic and self.random.random() < self.faults.lost_metadata:
                self.after(self.delay(1, 100), self._lose_metadata)
            else:
                # What it says may be old when it comes.
                self.after(self.delay(1, 30), self._take_metadata, self._metadata_response())
        else:
            self._timer_at = min(self._timer_at, self.now_ms + wait_ms)

    # Programs

    def send(self, partition: int) -> Sent:
        number = sum(1 for each in self.sent if each.partition == partition)
        sent = Sent(partition, b"%d/%d" % (partition, number), self.now_ms)
        self.sent.append(sent)

        def told(metadata: Any, error: Exception | None) -> None:
            sent.outcomes.append((self.now_ms, metadata.offset, error))

        lane = self.accumulator.lane(TOPIC, self.metadata.view)
        assert lane is not None
        self.accumulator.append(lane, partition, sent.value, None, None, 1, told, self.now_ms)
        return sent

    # Metadata and ids

    def _metadata_response(self) -> MetadataResponse:
        return MetadataResponse(
            brokers=[MetadataResponseBroker(node_id=each, host=f"b{each}", port=9092) for each in self.node_ids],
            cluster_id="c",
            controller_id=1,
            topics=[
                MetadataResponseTopic(
                    name=TOPIC,
                    topic_id=TOPIC_ID,
                    partitions=[
                        MetadataResponsePartition(
                            partition_index=number,
                            leader_id=leader,
                            leader_epoch=epoch,
                            replica_nodes=self.node_ids,
                            isr_nodes=self.node_ids,
                        )
                        for number, (leader, epoch) in enumerate(self.leaders)
                    ],
                )
            ],
        )

    def _take_metadata(self, response: MetadataResponse) -> None:
        self.metadata.answered(response, self.now_ms)
        self.accumulator.metadata_updated(self.metadata.view)

    def _lose_metadata(self) -> None:
        self.metadata.failed(self.now_ms, ConnectError("b1:9092", "no connection"))

    def _answer_id(self) -> None:
        if self.is_chaotic and self.random.random() < self.faults.before_append:
            code = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            answer = InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
        else:
            self._next_producer_id += 1
            answer = InitProducerIdResponse(producer_id=self._next_producer_id, producer_epoch=0)
        self.sender.producer_id_answered(answer, self.now_ms)

    # Requests

    def _request(self, request: NodeRequest) -> None:
        connection = self.nodes.connections[request.node_id]
        assert connection is not None
        if not request.expects_answer:
            self.after(0, self.sender.answered, request, None)
        connection.asked.append(request)
        late_ms = 10_000 if self._happens(self.faults.hang) else self.delay(1, 40)
        connection.last_arrival_ms = max(connection.last_arrival_ms, self.now_ms + late_ms)
        self.after(connection.last_arrival_ms - self.now_ms, self._arrived, connection, request)
        self.after(self.request_timeout_ms, self._timed_out, connection, request)
        if self._happens(self.faults.cut):
            self.after(self.delay(0, 60), self.cut, request.node_id)

    def _happens(self, likelihood: float) -> bool:
        return self.is_chaotic and likelihood > 0 and self.random.random() < likelihood

    def _arrived(self, connection: Connection, request: NodeRequest) -> None:
        """The broker reads a request; also from a connection that the client has left."""
        if not connection.is_open and self.random.random() < 0.5:
            connection.is_dead = True
        if connection.is_dead:
            return
        response = self._handle(request)
        connection.last_answer_ms = max(connection.last_answer_ms, self.now_ms + self.delay(1, 30))
        self.after(connection.last_answer_ms - self.now_ms, self._answered, connection, request, response)

    def _answered(self, connection: Connection, request: NodeRequest, response: ProduceResponse) -> None:
        if connection.is_open and request in connection.asked:
            connection.asked.remove(request)
            self.sender.answered(request, response, self.now_ms)

    def _timed_out(self, connection: Connection, request: NodeRequest) -> None:
        if connection.is_open and request in connection.asked:
            self._close(request.node_id, RequestTimeoutError(f"b{request.node_id}:9092", "no answer in time"))

    def cut(self, node_id: int) -> None:
        self._close(node_id, DisconnectedError(f"b{node_id}:9092", "the connection broke"))

    def _close(self, node_id: int, error: DisconnectedError) -> None:
        connection = self.nodes.connections.get(node_id)
        if connection is None:
            return
        self.nodes.connections[node_id] = None
        connection.is_open = False
        asked, connection.asked = connection.asked, []
        for request in asked:
            self.sender.failed(request, error, self.now_ms)

    # Brokers

    def move_leader(self, partition: int) -> None:
        _, epoch = self.leaders[partition]
        self.leaders[partition] = (self.random.choice(self.node_ids), epoch + 1)

    def restart_forgetting(self, partition: int) -> None:
        """The brokers start again, and have lost what they knew of the producers of a partition.

        Nothing that was on its way arrives. If something did, no client could keep order: brokers that do not know a
        producer take any sequence.
        """
        for node_id, connections in self.nodes.all_connections.items():
            for connection in connections:
                connection.is_dead = True
            self.cut(node_id)
        self.logs[partition].forget_producers()

    def _handle(self, request: NodeRequest) -> ProduceResponse:
        if self._happens(self.faults.move):
            self.move_leader(self.random.randrange(len(self.leaders)))
        if self._happens(self.faults.forget):
            self.after(0, self.restart_forgetting, self.random.randrange(len(self.leaders)))
        topics = []
        for topic in request.message.topic_data:
            answers = [
                self._append(request.node_id, each.index, BatchView(each.records or b""))
                for each in topic.partition_data
            ]
            topics.append(TopicProduceResponse(name=topic.name, topic_id=topic.topic_id, partition_responses=answers))
        endpoints = [NodeEndpoint(node_id=each, host=f"b{each}", port=9092) for each in self.node_ids]
        return ProduceResponse(responses=topics, node_endpoints=endpoints)

    def _append(self, node_id: int, partition: int, batch: BatchView) -> PartitionProduceResponse:
        leader, epoch = self.leaders[partition]
        log, faults = self.logs[partition], self.faults
        hint = None
        if leader != node_id:
            code, offset = ErrorCode.NOT_LEADER_OR_FOLLOWER, -1
            if self.random.random() < 0.5:
                hint = LeaderIdAndEpoch(leader_id=leader, leader_epoch=epoch)
        elif self._happens(faults.before_append):
            code, offset = self.random.choice(BEFORE_APPEND), -1
        elif batch.record_count > faults.too_large_records:
            code, offset = ErrorCode.MESSAGE_TOO_LARGE, -1
        elif self._happens(faults.refusal):
            code, offset = ErrorCode.INVALID_RECORD, -1
        else:
            code, offset = log.append(batch)
            if code is ErrorCode.NONE and self._happens(faults.after_append):
                code, offset = self.random.choice(AFTER_APPEND), -1
        self.trace.append(
            f"{self.now_ms} p{partition} node {node_id} epoch {batch.producer_epoch} sequence {batch.base_sequence}+"
            f"{batch.record_count} {code.name} {offset}"
        )
        return PartitionProduceResponse(
            index=partition,
            error_code=code,
            base_offset=offset,
            log_start_offset=log.log_start_offset,
            current_leader=hint,
        )


def chaos(world: World, records: int) -> None:
    """Send records at random moments while everything fails, then let all be well until each has its outcome."""
    for _ in range(records):
        partition = world.random.randrange(len(world.logs))
        for _ in range(world.random.randint(1, 4)):
            world.send(partition)
        world.run_until(world.now_ms + world.random.choice((0, 0, 1, 5, 20, 60)))
    world.is_chaotic = False
    end_ms = world.now_ms + world.delivery_timeout_ms + world.request_timeout_ms + 1000
    world.run_until(end_ms, until=lambda: world.sender.is_drained)


def check_world(world: World, *, is_idempotent: bool, keeps_order: bool) -> None:
    """What must hold when everything is over."""
    assert world.sender.is_drained, "something has no outcome"
    assert world.pool.available_bytes == POOL_BYTES, "memory was not given back"
    for sent in world.sent:
        assert len(sent.outcomes) == 1, f"{sent} has {len(sent.outcomes)} outcomes"
        told_ms = sent.outcomes[0][0]
        assert told_ms - sent.sent_ms <= world.delivery_timeout_ms + 1, f"{sent} was told too late"
    for number, log in enumerate(world.logs):
        check_partition([each for each in world.sent if each.partition == number], log, is_idempotent, keeps_order)


def check_partition(sent: list[Sent], log: PartitionModel, is_idempotent: bool, keeps_order: bool) -> None:
    places: dict[bytes, list[int]] = {}
    for offset, value in enumerate(log.records):
        places.setdefault(value, []).append(offset)
    acked = [each for each in sent if each.outcomes[0][2] is None]
    for each in acked:
        assert each.value in places, f"{each.value!r} was acknowledged and is lost"
        offset = each.outcomes[0][1]
        assert offset == -1 or log.records[offset] == each.value, f"{each.value!r} is not at offset {offset}"
    if is_idempotent:
        for value, offsets in places.items():
            # A broker that forgets its producers cannot know what came before.
            kept = [sum(1 for at in log.forgot_at if at <= offset) for offset in offsets]
            assert len(set(kept)) == len(kept), f"{value!r} is there twice: {offsets}"
    if keeps_order:
        order = [places[each.value][0] for each in acked]
        assert order == sorted(order), f"not in the order of send: {order}"
