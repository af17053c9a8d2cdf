"""Stories of a sender as text: what happens stands first, what comes of it follows, indented by a sign.

set partitions=2 in_flight=5 idempotent=yes acks=-1 version=13 nodes=2
id 7                          the cluster gives us this producer id (or: id CLUSTER_AUTHORIZATION_FAILED)
send 0 3                      the program sends three records to partition 0
at 3000                       time passes until then (ms)
> #1 to 1: 0 e0 s0+3          request 1 leaves for node 1: of partition 0, epoch 0, from sequence 0, three records
answer #1 0=NONE@17           node 1 has written them from offset 17 on
answer #1 0=NOT_LEADER_OR_FOLLOWER leader=2/5
fail #1 disconnected          (or: timeout, unconnected, unsupported)
leader 0 2/5                  metadata came: node 2 leads partition 0, in epoch 5 (-1: nobody)
= 0: 1..3 at 17               records 1 to 3 of the partition are acknowledged, the first at offset 17
= 0: 1..3 failed ...          or were given up
! metadata                    the sender asks for metadata; `! id` for a producer id
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from contextlib import nullcontext
from random import Random
from typing import Any

from barnabas.base.error_codes import ErrorCode
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.producing.accumulator import Accumulator, AccumulatorSettings
from barnabas.client.core.producing.buffer_pool import BufferPool
from barnabas.client.core.producing.produce_requests import NodeRequest
from barnabas.client.core.producing.sender import Sender
from barnabas.client.core.producing.sender_ports import SenderSettings
from barnabas.net.errors import (
    ChannelError,
    ConnectError,
    DisconnectedError,
    RequestTimeoutError,
    UnsupportedRequestError,
)
from barnabas.records import BatchView
from barnabas.wire.messages.init_producer_id import InitProducerIdResponse
from barnabas.wire.messages.produce import (
    BatchIndexAndErrorMessage,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionProduceResponse,
    ProduceResponse,
    TopicProduceResponse,
)
from tests.client.core.producing.sender_world import POOL_BYTES, TOPIC, TOPIC_ID, CountingMetrics
from tests.stories import StoryPlayer

_FAILURES: dict[str, type[ChannelError]] = {
    "disconnected": DisconnectedError,
    "timeout": RequestTimeoutError,
    "unconnected": ConnectError,
    "unsupported": UnsupportedRequestError,
}


class StillMetadata:
    """Metadata that changes when the story says so."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self.last_error: Exception | None = None
        self.is_asked = False
        self.hints: list[Any] = []

    def want(self, topic: str, now_ms: int) -> bool:
        return False

    def request_update(self) -> int:
        self.is_asked = True
        return self.view.version

    def leader_hints(self, hints: Any, endpoints: Any = ()) -> int:
        self.hints += hints
        return len(hints)


class StillNodes:
    """Nodes that are always there."""

    def __init__(self, version: int, max_in_flight: int) -> None:
        self.version = version
        self.max_in_flight = max_in_flight
        self.in_flight: dict[int, int] = {}

    def delay_ms(self, node_id: int, now_ms: int) -> float:
        return 0.0 if self.in_flight.get(node_id, 0) < self.max_in_flight else math.inf

    def version_of(self, node_id: int, request: type[Any]) -> int | None:
        return self.version

    def connect_soon(self, node_id: int) -> None:
        """They are connected."""


class Player(StoryPlayer):
    OUTPUT = (">", "=", "!")

    def __init__(self) -> None:
        self._begin({})

    def _begin(self, options: dict[str, str]) -> None:
        self.now_ms = 0
        self.random = Random(1)
        self.metadata = StillMetadata()
        in_flight = int(options.get("in_flight", 5))
        self.nodes = StillNodes(int(options.get("version", 13)), in_flight)
        self.leaders = dict.fromkeys(range(int(options.get("partitions", 1))), (1, 0))
        self.has_ids = options.get("ids", "yes") == "yes"
        self._take_metadata()
        self.pool = BufferPool(POOL_BYTES, 1024)
        timeout_ms = int(options.get("delivery_timeout", 1000))
        self.accumulator = Accumulator(
            AccumulatorSettings(
                batch_bytes=1024,
                linger_ms=0,
                delivery_timeout_ms=timeout_ms,
                retry_backoff_ms=100,
                retry_backoff_max_ms=100,
            ),
            self.pool,
            randomness=self.random,
            lock=nullcontext(),
        )
        self.sender = Sender(
            SenderSettings(
                acks=int(options.get("acks", -1)),
                is_idempotent=options.get("idempotent", "yes") == "yes",
                retries=int(options.get("retries", 2**31 - 1)),
                max_in_flight=in_flight,
                delivery_timeout_ms=timeout_ms,
                retry_backoff_ms=100,
                retry_backoff_max_ms=100,
                uses_zstd=options.get("zstd") == "yes",
            ),
            self.metadata,  # type: ignore[arg-type]
            self.accumulator,
            self.nodes,
            randomness=self.random,
            metrics=CountingMetrics(),
        )
        self.requests: dict[str, NodeRequest] = {}
        self.sent_counts: dict[int, int] = {}
        self.news: list[tuple[int, int, str]] = []

    def step(self, words: list[str]) -> Iterator[str]:
        self._happen(words)
        yield from self._turn()

    def _happen(self, words: list[str]) -> None:
        match words:
            case ["set", *pairs]:
                self._begin(dict(each.split("=") for each in pairs))
            case ["id", told]:
                code = ErrorCode.NONE if told.isdigit() else ErrorCode[told]
                number = int(told) if told.isdigit() else -1
                answer = InitProducerIdResponse(error_code=code, producer_id=number, producer_epoch=0)
                self.sender.producer_id_answered(answer, self.now_ms)
            case ["send", partition, count]:
                for _ in range(int(count)):
                    self._send(int(partition))
            case ["at", moment]:
                self.now_ms = int(moment)
            case ["answer", token]:
                self._end(token, None)
            case ["answer", token, *answers]:
                self._end(token, self._response(self.requests[token], answers))
            case ["fail", token, how]:
                self._end(token, _FAILURES[how]("b:9092", how))
            case ["leader", partition, told]:
                node_id, _, epoch = told.partition("/")
                self.leaders[int(partition)] = (int(node_id), int(epoch or 0))
                self._take_metadata()
                self.accumulator.metadata_updated(self.metadata.view)
            case ["close"]:
                self.sender.close()
            case ["abort", *reason]:
                self.sender.close(RuntimeError(" ".join(reason)))
            case _:
                raise ValueError(f"not understood: {words}")

    def _turn(self) -> Iterator[str]:
        leaving: list[str] = []
        while True:
            step = self.sender.step(self.now_ms)
            for request in step.requests:
                token = f"#{len(self.requests) + 1}"
                self.requests[token] = request
                self.nodes.in_flight[request.node_id] = self.nodes.in_flight.get(request.node_id, 0) + 1
                leaving.append(f"> {token} to {request.node_id}: {_shown(request)}")
            if step.wants_producer_id:
                self.sender.producer_id_request()
                leaving.append("! id")
            if not step.requests:
                break
        yield from self._told()
        if self.metadata.hints:
            yield "! hint " + " ".join(f"{tp.partition}={leader}/{epoch}" for tp, leader, epoch in self.metadata.hints)
            self.metadata.hints.clear()
        if self.metadata.is_asked:
            yield "! metadata"
            self.metadata.is_asked = False
        yield from leaving

    def _told(self) -> Iterator[str]:
        """Neighbours with the same fate in one line."""
        news, self.news = self.news, []
        at = 0
        while at < len(news):
            partition, first, text = news[at]
            end = at + 1
            while end < len(news) and news[end][0] == partition and news[end][2].split(" ")[0] == text.split(" ")[0]:
                if not text.startswith("at") and news[end][2] != text:
                    break
                end += 1
            yield f"= {partition}: {first}..{news[end - 1][1]} {text}"
            at = end

    def _send(self, partition: int) -> None:
        number = self.sent_counts[partition] = self.sent_counts.get(partition, 0) + 1

        def told(metadata: Any, error: Exception | None) -> None:
            fate = f"at {metadata.offset}" if error is None else f"failed {type(error).__name__}: {error}"
            self.news.append((partition, number, fate))

        lane = self.accumulator.lane(TOPIC, self.metadata.view)
        assert lane is not None
        self.accumulator.append(lane, partition, b"%d" % number, None, None, 1, told, self.now_ms)

    def _end(self, token: str, outcome: Any) -> None:
        request = self.requests[token]
        self.nodes.in_flight[request.node_id] -= 1
        if isinstance(outcome, Exception):
            self.sender.failed(request, outcome, self.now_ms)
        else:
            self.sender.answered(request, outcome, self.now_ms)

    def _response(self, request: NodeRequest, words: list[str]) -> ProduceResponse:
        hint, log_start, refused = None, 0, []
        answers: list[tuple[int, ErrorCode, int]] = []
        for word in words:
            name, _, value = word.partition("=")
            match name:
                case "leader":
                    node_id, _, epoch = value.partition("/")
                    hint = LeaderIdAndEpoch(leader_id=int(node_id), leader_epoch=int(epoch))
                case "start":
                    log_start = int(value)
                case "records":
                    refused = [
                        BatchIndexAndErrorMessage(batch_index=int(each), batch_index_error_message="no key")
                        for each in value.split(",")
                    ]
                case _:
                    code, _, offset = value.partition("@")
                    answers.append((int(name), ErrorCode[code], int(offset or -1)))
        parts = [
            PartitionProduceResponse(
                index=number,
                error_code=code,
                base_offset=offset,
                log_start_offset=log_start,
                current_leader=hint,
                record_errors=refused,
            )
            for number, code, offset in answers
        ]
        topic = TopicProduceResponse(name=TOPIC, topic_id=TOPIC_ID, partition_responses=parts)
        endpoints = [NodeEndpoint(node_id=number, host=f"b{number}", port=9092) for number in (1, 2)]
        return ProduceResponse(responses=[topic], node_endpoints=endpoints)

    def _take_metadata(self) -> None:
        nodes = {number: Node(number, f"b{number}", 9092) for number in (1, 2)}
        partitions = tuple(
            PartitionInfo(TOPIC, number, leader, epoch) for number, (leader, epoch) in self.leaders.items()
        )
        topic = (
            TopicView(TOPIC, TOPIC_ID, partitions=partitions)
            if self.has_ids
            else TopicView(TOPIC, partitions=partitions)
        )
        self.metadata.view = ClusterView(self.metadata.view.version + 1, "c", nodes[1], nodes, [topic])


def _shown(request: NodeRequest) -> str:
    shown = []
    for topic in request.message.topic_data:
        for each in topic.partition_data:
            batch = BatchView(each.records or b"")
            batch.check_crc()
            numbers = f"e{batch.producer_epoch} s{batch.base_sequence}+" if batch.has_producer_id else "+"
            shown.append(f"{each.index} {numbers}{batch.record_count}")
    version = "" if request.version == 13 else f" (v{request.version})"
    return ", ".join(shown) + version


def play(script: str) -> str:
    """The dialogue that a script leads to; comments and blank lines stay."""
    return Player().played(script)
