"""All clients behind one face: what one of them writes, any other reads, field by field.

A writer puts records into one partition with one codec; a reader takes the first records of all partitions of a topic.
Ours come several times: without asyncio, with it, and in Arrow.
"""

from __future__ import annotations

import asyncio
import base64
import hashlib
import json
import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from threading import Timer
from typing import Any, Final

from tests.compat import aiokafka_client, confluent_client, kafka_python_client, our_client
from tests.compat.aiokafka_client import AioKafka, ak
from tests.compat.confluent_client import Confluent, ck
from tests.compat.kafka_python_client import KafkaPython, kp
from tests.compat.our_client import Ours, as_table, rows_of
from tests.compat.samples import TIMEOUT_S, Sample
from tests.oracles import CURRENT, ROOT, java_program

KAFKAJS_SCRIPT: Final = Path(__file__).parent / "kafkajs" / "keys.js"
KAFKAJS_MODULES: Final = Path(os.environ.get("BARNABAS_ORACLES", ROOT / ".oracles")) / "kafkajs" / "node_modules"

#: Values that are larger come from Java as their digest.
_TOLD_BYTES: Final = 50_000
_ANSWER_TIMEOUT_S: Final = 90


class JavaPeer:
    """Java's clients, in a process that does what it is told: tests/oracles/JavaPeer.java."""

    def __init__(self, release: str = CURRENT) -> None:
        self._process = subprocess.Popen(
            java_program("JavaPeer.java", release),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )

    def ask(self, bootstrap: str, do: str, **command: Any) -> Any:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        timer = Timer(_ANSWER_TIMEOUT_S, self._process.kill)
        timer.start()
        try:
            print(json.dumps({"do": do, "bootstrap": bootstrap, **command}), file=self._process.stdin, flush=True)
            line = self._process.stdout.readline()
        finally:
            timer.cancel()
        assert line, f"Java's clients did not answer to {do} within {_ANSWER_TIMEOUT_S} s"
        answer = json.loads(line)
        assert "error" not in answer, answer["error"]
        return answer["answer"]

    def close(self) -> None:
        try:
            self._process.communicate(timeout=_ANSWER_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.communicate()


class Peers:
    """Every client that there is, for one broker."""

    def __init__(self, bootstrap: str, java: Callable[[], JavaPeer]) -> None:
        self.bootstrap = bootstrap
        self.ours = Ours(bootstrap)
        self.confluent = Confluent(bootstrap)
        self.kafka_python = KafkaPython(bootstrap)
        self.aiokafka = AioKafka(bootstrap)
        self._java = java

    def java(self, do: str, **command: Any) -> Any:
        return self._java().ask(self.bootstrap, do, **command)

    def close(self) -> None:
        self.kafka_python.close()


Records = Mapping[int, list[Sample]]
Write = Callable[[Peers, str, int, str, Sequence[Sample]], list[int] | None]
Read = Callable[[Peers, str, int, int], Records]


# Writers: each answers with the offsets that were acknowledged, if it is told them one by one


def _ours(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    sent = peers.ours.produce(topic, samples, partition, compression_type=codec, linger_ms=5)
    assert {(each.topic, each.partition) for each in sent} == {(topic, partition)}
    return [each.offset for each in sent]


def _ours_aio(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    sent = asyncio.run(peers.ours.aio_produce(topic, samples, partition, compression_type=codec, linger_ms=5))
    assert {(each.topic, each.partition) for each in sent} == {(topic, partition)}
    return [each.offset for each in sent]


def _ours_arrow(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    ranges = peers.ours.produce_arrow(topic, as_table(samples), partition, compression_type=codec)
    assert {each.partition for each in ranges} == {partition}
    return [each.base_offset + index for each in ranges for index in range(each.row_count)]


def _ours_aio_arrow(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    ranges = asyncio.run(peers.ours.aio_produce_arrow(topic, as_table(samples), partition, compression_type=codec))
    return [each.base_offset + index for each in ranges for index in range(each.row_count)]


def _confluent(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    sent = peers.confluent.produce(topic, samples, {"compression.codec": codec}, partition)
    return [each.offset() for each in sent]


def _kafka_python(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    sent = peers.kafka_python.produce(
        topic, samples, partition, compression_type=None if codec == "none" else codec, linger_ms=5
    )
    return [each.offset for each in sent]


def _aiokafka(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    compression = None if codec == "none" else codec
    sent = asyncio.run(peers.aiokafka.produce(topic, samples, partition, compression_type=compression, linger_ms=5))
    return [each.offset for each in sent]


def _java(peers: Peers, topic: str, partition: int, codec: str, samples: Sequence[Sample]) -> list[int]:
    sent = peers.java(
        "produce",
        topic=topic,
        settings={"compression.type": codec},
        records=[java_record(each, partition) for each in samples],
    )
    return [offset for _, offset in sent]


WRITERS: Final[Mapping[str, Write]] = {
    "ours": _ours,
    "ours in asyncio": _ours_aio,
    "ours in Arrow": _ours_arrow,
    "ours in Arrow and asyncio": _ours_aio_arrow,
    "confluent-kafka": _confluent,
    "kafka-python": _kafka_python,
    "aiokafka": _aiokafka,
    "Java": _java,
}


# Readers


def _grouped(found: Sequence[tuple[int, int, Sample]]) -> Records:
    """By partition; offsets must follow each other."""
    by_partition: dict[int, list[Sample]] = {}
    for partition, offset, sample in found:
        samples = by_partition.setdefault(partition, [])
        assert offset == len(samples), f"partition {partition}: offset {offset} came after {len(samples)} records"
        samples.append(sample)
    return by_partition


def _of_ours(records: Sequence[Any]) -> Records:
    for each in records:
        assert each.serialized_value_size == (-1 if each.value is None else len(each.value))
        assert each.serialized_key_size == (-1 if each.key is None else len(each.key))
        assert each.timestamp_type == 0
    return _grouped([(each.partition, each.offset, our_client.as_sample(each)) for each in records])


def _read_iterated(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    return _of_ours(peers.ours.read(topic, partitions, count, our_client.iterated))


def _read_polled(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    return _of_ours(peers.ours.read(topic, partitions, count, our_client.polled))


def _read_arrow(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    return _grouped(rows_of(peers.ours.read(topic, partitions, count, our_client.polled_arrow)))


def _read_aio_iterated(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    return _of_ours(asyncio.run(peers.ours.aio_read(topic, partitions, count, our_client.aio_iterated)))


def _read_aio_polled(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    return _of_ours(asyncio.run(peers.ours.aio_read(topic, partitions, count, our_client.aio_polled)))


def _read_aio_arrow(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    return _grouped(rows_of(asyncio.run(peers.ours.aio_read(topic, partitions, count, our_client.aio_polled_arrow))))


def _read_confluent(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    with peers.confluent.consumer() as consumer:
        consumer.assign([ck.TopicPartition(topic, number, ck.OFFSET_BEGINNING) for number in range(partitions)])
        messages = confluent_client.polled(consumer, count)
    return _grouped([(each.partition(), each.offset(), confluent_client.as_sample(each)) for each in messages])


def _read_kafka_python(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    with peers.kafka_python.consumer() as consumer:
        consumer.assign([kp.TopicPartition(topic, number) for number in range(partitions)])
        consumer.seek_to_beginning()
        records = kafka_python_client.polled(consumer, count)
    return _grouped([(each.partition, each.offset, kafka_python_client.as_sample(each)) for each in records])


def _read_aiokafka(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    async def read() -> list[Any]:
        async with peers.aiokafka.consumer() as consumer:
            consumer.assign([ak.TopicPartition(topic, number) for number in range(partitions)])
            return await aiokafka_client.received(consumer, count)

    records = asyncio.run(read())
    return _grouped([(each.partition, each.offset, aiokafka_client.as_sample(each)) for each in records])


def _read_java(peers: Peers, topic: str, partitions: int, count: int) -> Records:
    told = peers.java("read", topic=topic, partitions=partitions, count=count)
    return _grouped([(each["partition"], each["offset"], java_sample(each)) for each in told])


READERS: Final[Mapping[str, Read]] = {
    "ours by iteration": _read_iterated,
    "ours by poll": _read_polled,
    "ours in Arrow": _read_arrow,
    "ours in asyncio by iteration": _read_aio_iterated,
    "ours in asyncio by poll": _read_aio_polled,
    "ours in asyncio in Arrow": _read_aio_arrow,
    "confluent-kafka": _read_confluent,
    "kafka-python": _read_kafka_python,
    "aiokafka": _read_aiokafka,
    "Java": _read_java,
}


# What travels to Java and back


def _text(value: bytes | None) -> str | None:
    return None if value is None else base64.b64encode(value).decode()


def _bytes(text: str | None) -> bytes | None:
    return None if text is None else base64.b64decode(text)


def java_record(sample: Sample, partition: int | None = None) -> dict[str, Any]:
    return {
        "partition": partition,
        "key": _text(sample.key),
        "value": _text(sample.value),
        "headers": [[name, _text(value)] for name, value in sample.headers],
        "timestamp": sample.timestamp_ms,
    }


def java_sample(told: Mapping[str, Any]) -> Sample:
    assert told["timestamp_type"] == "CREATE_TIME"
    headers = tuple((name, _bytes(value)) for name, value in told["headers"])
    return Sample(_bytes(told["value"]), _bytes(told["key"]), headers, told["timestamp"])


def as_java_tells(sample: Sample) -> Sample:
    if sample.value is None or len(sample.value) <= _TOLD_BYTES:
        return sample
    return replace(sample, value=hashlib.sha256(sample.value).digest())


# kafkajs


def kafkajs_missing() -> str | None:
    if shutil.which("node") is None:
        return "node (Node.js) is not installed"
    return None if (KAFKAJS_MODULES / "kafkajs").is_dir() else "kafkajs is not in .oracles: run 'make oracles'"


def kafkajs_send(bootstrap: str, topic: str, keys: Sequence[bytes]) -> None:
    """A record for each key, into the partition that kafkajs chooses for it."""
    done = subprocess.run(
        ["node", str(KAFKAJS_SCRIPT), bootstrap, topic],
        input=json.dumps([_text(key) for key in keys]),
        env=os.environ | {"NODE_PATH": str(KAFKAJS_MODULES), "KAFKAJS_NO_PARTITIONER_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stderr[-4000:]
