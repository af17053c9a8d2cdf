"""What a change of the metadata costs as the cluster grows: it must cost what it changes, not what exists.

The ratio of a change is its time at ten partitions to that at so many more; one means that size does not matter. The
topics have ten partitions with three replicas each, on six brokers; one more topic has ten thousand.
"""

from __future__ import annotations

import gc
import time
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random

from barnabas.base.ids import Uuid
from barnabas.metadata.controller import Controller
from barnabas.metadata.elections import changes_when_unregistered
from barnabas.metadata.features import METADATA_VERSION, METADATA_VERSION_BUILT, encode_record
from barnabas.metadata.image import ClusterImage
from barnabas.metadata.options import ControllerOptions
from barnabas.metadata.replay import ImageBuilder
from barnabas.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from barnabas.wire.stored import cluster_metadata as log
from bench.measure import Result, best_seconds

BROKERS = 6
SMALL_BROKER = 7
PER_TOPIC = 10
SIZES = (10, 1_000, 100_000)
WIDE = 10_000


def uuid(kind: int, number: int) -> Uuid:
    return Uuid(bytes([kind]) + number.to_bytes(15, "big"))


def partition(topic_id: Uuid, number: int, first: int) -> log.PartitionRecord:
    replicas = [(first + step) % BROKERS + 1 for step in range(3)]
    return log.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=replicas,
        isr=list(replicas),
        removing_replicas=[],
        adding_replicas=[],
        leader=replicas[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=[uuid(2, each) for each in replicas],
    )


def topic(number: int, partitions: int = PER_TOPIC) -> Iterator[log.MetadataRecord]:
    topic_id = uuid(3, number)
    yield log.TopicRecord(name=f"team_{number % 50}.topic-{number}", topic_id=topic_id)
    for each in range(partitions):
        yield partition(topic_id, each, number + each)


def on_one_broker(partitions: int) -> Iterator[log.MetadataRecord]:
    topic_id = uuid(3, 10**7)
    yield log.TopicRecord(name="small", topic_id=topic_id)
    for number in range(partitions):
        record = partition(topic_id, number, 0)
        record.replicas = record.isr = [SMALL_BROKER]
        record.leader = SMALL_BROKER
        yield record


def cluster(partitions: int) -> Iterator[log.MetadataRecord]:
    yield log.FeatureLevelRecord(name=METADATA_VERSION, feature_level=METADATA_VERSION_BUILT)
    for broker_id in range(1, BROKERS + 1):
        yield log.RegisterBrokerRecord(
            broker_id=broker_id,
            incarnation_id=uuid(1, broker_id),
            broker_epoch=broker_id,
            end_points=[log.BrokerEndpoint(name="PLAINTEXT", host="localhost", port=9092, security_protocol=0)],
            features=[],
            rack=None,
            fenced=False,
            log_dirs=[uuid(2, broker_id)],
        )
    for number in range(partitions // PER_TOPIC):
        yield from topic(number)
        yield setting(number, "1")


def setting(topic_number: int, value: str) -> log.ConfigRecord:
    name = f"team_{topic_number % 50}.topic-{topic_number}"
    return log.ConfigRecord(resource_type=2, resource_name=name, name="flush.ms", value=value)


def applied(image: ClusterImage, records: Sequence[log.MetadataRecord]) -> ClusterImage:
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.build(image.offset + len(records), 1)


def decoded(records: Iterator[log.MetadataRecord]) -> list[log.MetadataRecord]:
    """As they come from a log: with lists, text and ids of their own."""
    return [log.MetadataRecord.decode_framed(encode_record(record))[0] for record in records]


def kept_bytes(change: Callable[[], ClusterImage]) -> int:
    """What one more image costs while the one before it is still held."""
    change()
    gc.collect()
    tracemalloc.start()
    before, _ = tracemalloc.get_traced_memory()
    image = change()
    after, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return after - before if image is not None else 0


def changes(image: ClusterImage) -> dict[str, Callable[[], ClusterImage]]:
    new_topic = list(topic(10**9))
    shrunk = [log.PartitionChangeRecord(partition_id=0, topic_id=uuid(3, 0), isr=[1, 2], leader=2)]
    config = [setting(0, "2")]
    return {
        "create a topic of 10": lambda: applied(image, new_topic),
        "change one partition": lambda: applied(image, shrunk),
        "change one config": lambda: applied(image, config),
    }


def of_changes(images: dict[int, ClusterImage]) -> list[Result]:
    contestants = {size: changes(image) for size, image in images.items()}
    results = []
    for name in next(iter(contestants.values())):
        times = best_seconds(*(contestants[size][name] for size in SIZES), rounds=200)
        kept = [kept_bytes(contestants[size][name]) for size in SIZES]
        detail = ", ".join(
            f"{size:,}: {seconds * 1e6:.1f} µs {bytes_:,} B"
            for size, seconds, bytes_ in zip(SIZES, times, kept, strict=True)
        )
        results.append(Result(f"image: {name}, 10 / 100,000 partitions", times[0] / times[-1], 0.5, detail))
    return results


def of_wide_topics(image: ClusterImage) -> list[Result]:
    """One topic with very many partitions: one of them changes, and half of them."""
    wide_id = uuid(3, 10**8)
    wide = applied(image, list(topic(10**8, WIDE)))
    one = [log.PartitionChangeRecord(partition_id=WIDE // 2, topic_id=wide_id, isr=[1, 2], leader=2)]
    half = [log.PartitionChangeRecord(partition_id=each, topic_id=wide_id, leader=2) for each in range(0, WIDE, 2)]
    tenth = half[: len(half) // 10]
    alone, tenths, halves = best_seconds(
        lambda: applied(wide, one),
        lambda: applied(wide, tenth),
        lambda: applied(wide, half),
        rounds=20,
        clock=time.process_time,
    )
    times = f"{tenths * 1e3:.1f} ms and {halves * 1e3:.1f} ms, one alone {alone * 1e6:.0f} µs"
    name = f"image: {len(half):,} of {WIDE:,} partitions of a topic"
    return [Result(f"{name}, each / each of {len(tenth)}", 10 * tenths / halves, 0.7, times)]


def of_decisions(images: dict[int, ClusterImage]) -> list[Result]:
    """The controller: what it looks at before it decides on a topic, and on a broker that has ten partitions."""
    options = ControllerOptions(cluster_id="bench")
    controllers = [Controller(images[size], options, Random(1)) for size in SIZES]
    asked = CreateTopicsRequest(
        topics=[CreatableTopic(name="one_more", num_partitions=1, replication_factor=1, assignments=[], configs=[])]
    )
    small = [applied(images[size], list(on_one_broker(PER_TOPIC))) for size in SIZES]
    decisions: dict[str, list[Callable[[], object]]] = {
        "decide on a topic": [partial(each.create_topics, asked) for each in controllers],
        "fence a broker of 10 partitions": [
            partial(changes_when_unregistered, each, ControllerOptions(), SMALL_BROKER) for each in small
        ],
    }
    results = []
    for name, contestants in decisions.items():
        times = best_seconds(*contestants, rounds=50)
        detail = ", ".join(f"{size:,}: {seconds * 1e6:.0f} µs" for size, seconds in zip(SIZES, times, strict=True))
        results.append(Result(f"controller: {name}, 10 / 100,000 partitions", times[0] / times[-1], 0.5, detail))
    return results


def of_loading(partitions: int) -> Result:
    """Time to make an image of records that are decoded already, and its memory. Told only."""
    records = decoded(cluster(partitions))
    gc.collect()
    start = time.process_time()
    applied(ClusterImage(), records)
    seconds = time.process_time() - start
    del records
    gc.collect()
    tracemalloc.start()
    builder = ImageBuilder(ClusterImage())
    for record in cluster(partitions):
        builder.replay(log.MetadataRecord.decode_framed(encode_record(record))[0])
    image = builder.build(partitions, 1)
    del builder, record
    gc.collect()
    size, _ = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    detail = (
        f"{seconds:.2f} s, {size / 2**20:.1f} MiB, {size // partitions} B per partition, {len(image.topics):,} topics"
    )
    return Result(f"image: load {partitions:,} partitions", 1.0, None, detail)


def run() -> list[Result]:
    images = {size: applied(ClusterImage(), decoded(cluster(size))) for size in SIZES}
    return [
        *of_changes(images),
        *of_wide_topics(images[SIZES[-1]]),
        *of_decisions(images),
        of_loading(SIZES[-1]),
    ]
