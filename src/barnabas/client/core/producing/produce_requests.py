"""Produce requests: which version and form a broker gets, and which batch an answer speaks of."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from barnabas.base.ids import Uuid
from barnabas.net.errors import UnsupportedRequestError
from barnabas.wire.messages.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
)

if TYPE_CHECKING:
    from barnabas.client.core.cluster_view import ClusterView
    from barnabas.client.core.producing.batch import ProducerBatch

#: The first with record batches of format 2, the only one that is written here.
FIRST_VERSION: Final = 3
ZSTD_VERSION: Final = 7
TOPIC_ID_VERSION: Final = 13
#: The first by which a partition becomes part of a transaction by itself (KIP-890).
TRANSACTIONS_V2_VERSION: Final = 12


class NodeRequest:
    """One request to one node, and the batches in it. Compares by identity."""

    __slots__ = ("batches", "message", "node_id", "sent_at_ms", "version")

    def __init__(
        self, node_id: int, message: ProduceRequest, version: int, batches: list[ProducerBatch], sent_at_ms: int
    ) -> None:
        self.node_id = node_id
        self.message = message
        self.version = version
        self.batches = batches
        self.sent_at_ms = sent_at_ms

    @property
    def expects_answer(self) -> bool:
        return bool(self.message.acks)

    def __repr__(self) -> str:
        return f"<produce request to node {self.node_id}: {self.batches}>"


def check_version(version: int, address: str, uses_zstd: bool) -> None:
    """Raise `UnsupportedRequestError` if a broker that knows Produce up to `version` cannot take our batches."""
    if version < FIRST_VERSION:
        raise UnsupportedRequestError(
            address,
            f"it takes records only in formats that Kafka had before 0.11 (Produce up to {version}), and these are not "
            "written here; brokers must be Kafka 2.1 or newer",
        )
    if uses_zstd and version < ZSTD_VERSION:
        raise UnsupportedRequestError(
            address,
            f"it does not take zstd (that needs Produce {ZSTD_VERSION}, of Kafka 2.1, and it knows up to {version}); "
            "set compression.type to lz4, snappy, gzip or none",
        )


def transactional_version(version: int, address: str, is_v2: bool) -> int:
    """The version in which a batch of a transaction goes to a broker that knows Produce up to `version`."""
    if not is_v2:
        return min(version, TRANSACTIONS_V2_VERSION - 1)
    if version < TRANSACTIONS_V2_VERSION:
        raise UnsupportedRequestError(
            address,
            f"the cluster has transaction.version 2, which needs Produce {TRANSACTIONS_V2_VERSION}, and this broker "
            f"knows up to {version}",
        )
    return version


def build_request(
    node_id: int,
    batches: list[ProducerBatch],
    version: int,
    view: ClusterView,
    *,
    acks: int,
    timeout_ms: int,
    now_ms: int,
    transactional_id: str | None = None,
) -> NodeRequest:
    """The request that carries these batches, at most one per partition."""
    topics: dict[str, TopicProduceData] = {}
    has_ids = True
    for batch in batches:
        name, number = batch.partition
        data = topics.get(name)
        if data is None:
            topic_id = view.topic_id(name)
            has_ids = has_ids and topic_id != Uuid.ZERO
            data = topics[name] = TopicProduceData(name=name, topic_id=topic_id, partition_data=[])
        data.partition_data.append(PartitionProduceData(index=number, records=batch.encoded()))
    if version >= TOPIC_ID_VERSION and not has_ids:
        version = TOPIC_ID_VERSION - 1
    message = ProduceRequest(
        transactional_id=transactional_id, acks=acks, timeout_ms=timeout_ms, topic_data=list(topics.values())
    )
    return NodeRequest(node_id, message, version, batches, now_ms)


def matched(
    request: NodeRequest, response: ProduceResponse
) -> Iterator[tuple[ProducerBatch, PartitionProduceResponse | None]]:
    """Each batch with what was answered for its partition; None if the broker left it out."""
    by_id = request.version >= TOPIC_ID_VERSION
    keys = {each.name: each.topic_id if by_id else each.name for each in request.message.topic_data}
    told = {
        (topic.topic_id if by_id else topic.name, each.index): each
        for topic in response.responses
        for each in topic.partition_responses
    }
    for batch in request.batches:
        name, number = batch.partition
        yield batch, told.get((keys[name], number))
