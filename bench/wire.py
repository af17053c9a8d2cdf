"""Encoding and decoding of messages against kafka-python, which compiles codecs too, and kio, whose decoder is Rust."""

from __future__ import annotations

import importlib
import io
import warnings
from typing import Any

from barnabas.base.ids import Uuid
from barnabas.wire import Message
from barnabas.wire.messages.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from barnabas.wire.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from bench.measure import Result, best_seconds


def metadata_response() -> MetadataResponse:
    """100 topics of 12 partitions."""

    def partition(index: int) -> MetadataResponsePartition:
        return MetadataResponsePartition(
            partition_index=index, leader_id=index % 3, leader_epoch=5, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )

    return MetadataResponse(
        brokers=[MetadataResponseBroker(node_id=node, host=f"broker-{node}", port=9092) for node in range(3)],
        cluster_id="abcdefghijklmnopqrstuv",
        controller_id=1,
        topics=[
            MetadataResponseTopic(
                name=f"topic-{number}",
                topic_id=Uuid(bytes([number]) * 16),
                partitions=[partition(i) for i in range(12)],
            )
            for number in range(100)
        ],
    )


def produce_request() -> ProduceRequest:
    data = [PartitionProduceData(index=3, records=bytes(1000))]
    return ProduceRequest(acks=-1, timeout_ms=30000, topic_data=[TopicProduceData(name="clicks", partition_data=data)])


def kafka_python(message: Message) -> Any:
    place = "metadata.metadata" if isinstance(message, MetadataResponse) else "producer.produce"
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return getattr(importlib.import_module(f"kafka.protocol.{place}"), type(message).__name__)


def kio(message: Message, version: int) -> tuple[Any, Any]:
    from kio.serial import entity_reader, entity_writer

    place = "metadata" if isinstance(message, MetadataResponse) else "produce"
    kind = "response" if isinstance(message, MetadataResponse) else "request"
    module = importlib.import_module(f"kio.schema.{place}.v{version}.{kind}")
    entity = getattr(module, type(message).__name__)
    return entity_reader(entity), entity_writer(entity)


def compare(name: str, message: Message, version: int, repeat: int) -> list[Result]:
    data = message.encode(version)
    cls = type(message)
    peer = kafka_python(message)
    peer_message = peer.decode(data, version=version)
    peer_message._header = None
    kio_read, kio_write = kio(message, version)
    kio_message, _ = kio_read(data, 0)

    def kio_encode() -> bytes:
        buffer = io.BytesIO()
        kio_write(buffer, kio_message)
        return buffer.getvalue()

    assert peer_message.encode(version=version) == data == kio_encode()

    def repeated(action: Any) -> Any:
        return lambda: [action() for _ in range(repeat)]

    ours, theirs, kios = best_seconds(
        repeated(lambda: cls.decode(data, version)),
        repeated(lambda: peer.decode(data, version=version)),
        repeated(lambda: kio_read(data, 0)),
    )
    unit = f"{ours / repeat * 1e6:.1f} µs"
    results = [
        Result(f"decode {name} v{version} / kafka-python", theirs / ours, 1.0, unit),
        Result(f"decode {name} v{version} / kio (Rust)", kios / ours, None, unit),
    ]
    ours, theirs, kios = best_seconds(
        repeated(lambda: message.encode(version)),
        repeated(lambda: peer_message.encode(version=version)),
        repeated(kio_encode),
    )
    unit = f"{ours / repeat * 1e6:.1f} µs"
    return [
        *results,
        Result(f"encode {name} v{version} / kafka-python", theirs / ours, 1.0, unit),
        Result(f"encode {name} v{version} / kio", kios / ours, None, unit),
    ]


def run() -> list[Result]:
    return [
        *compare("Metadata response, 1,200 partitions", metadata_response(), 12, repeat=1),
        *compare("Produce request, one partition", produce_request(), 9, repeat=200),
    ]
