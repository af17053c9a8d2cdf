"""Images share structure with those before them: none of that can be seen, only what it costs."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import replace
from random import Random
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.error_codes import ErrorCode
from barnabas.base.persistent_map import PersistentMap
from barnabas.metadata.controller import Controller
from barnabas.metadata.elections import changes_when_fenced, changes_when_unfenced, leads_anything
from barnabas.metadata.image import NO_LEADER, ClusterImage, PartitionImage, PlacedPartition, TopicImage
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import image_records
from barnabas.wire.messages.create_topics import CreateTopicsRequest
from barnabas.wire.stored import cluster_metadata as log
from tests.metadata.clusters import Cluster, new_topic, uuid
from tests.metadata.images import topics_image

NAMES = ["a", "b", "a.b", "a_b"]
BROKERS = [1, 2, 3]

_replicas = st.lists(st.sampled_from(BROKERS), unique=True, min_size=1)
_leaders = st.sampled_from([NO_LEADER, *BROKERS])


def built(image: ClusterImage, *records: log.MetadataRecord) -> ClusterImage:
    builder = ImageBuilder(image)
    for record in records:
        builder.replay(record)
    return builder.build(image.offset + len(records), 1)


# Records that fit an image


def _new_topic(draw: st.DrawFn, image: ClusterImage) -> log.MetadataRecord | None:
    names = [name for name in NAMES if name not in image.topics]
    # Few ids, so that one comes back after it was removed.
    ids = [topic_id for topic_id in map(uuid, range(200, 206)) if topic_id not in image.topic_names]
    return log.TopicRecord(name=draw(st.sampled_from(names)), topic_id=draw(st.sampled_from(ids))) if names else None


def _removed_topic(draw: st.DrawFn, image: ClusterImage) -> log.MetadataRecord | None:
    ids = sorted(image.topic_names)
    return log.RemoveTopicRecord(topic_id=draw(st.sampled_from(ids))) if ids else None


def _partition(draw: st.DrawFn, image: ClusterImage) -> log.MetadataRecord | None:
    if not image.topics:
        return None
    topic = image.topics[draw(st.sampled_from(list(image.topics)))]
    replicas = draw(_replicas)
    return log.PartitionRecord(
        partition_id=draw(st.integers(0, len(topic.partitions))),
        topic_id=topic.topic_id,
        replicas=replicas,
        isr=replicas[:2],
        removing_replicas=[],
        adding_replicas=[],
        leader=draw(_leaders),
        leader_epoch=0,
        partition_epoch=0,
        eligible_leader_replicas=draw(st.none() | st.just(replicas[2:])),
    )


def _changed_partition(draw: st.DrawFn, image: ClusterImage) -> log.MetadataRecord | None:
    topics = [topic for topic in image.topics.values() if topic.partitions]
    if not topics:
        return None
    topic = draw(st.sampled_from(topics))
    change = log.PartitionChangeRecord(
        partition_id=draw(st.integers(0, len(topic.partitions) - 1)), topic_id=topic.topic_id
    )
    change.replicas = draw(st.none() | _replicas)
    change.leader = draw(_leaders | st.just(-2))
    return change


def _other(draw: st.DrawFn, image: ClusterImage) -> log.MetadataRecord:
    number = draw(st.integers(0, 2))
    user, value = draw(st.sampled_from(["x", "y"])), draw(st.none() | st.just("1"))
    names = [
        log.EntityData(entity_type="user", entity_name=user),
        log.EntityData(entity_type="client-id", entity_name=None),
    ]
    return draw(
        st.sampled_from(
            [
                log.ClearElrRecord(topic_name=""),
                log.ConfigRecord(resource_type=2, resource_name=NAMES[number], name=f"c{number}", value=value),
                log.FeatureLevelRecord(name=f"f{number}", feature_level=number),
                log.ProducerIdsRecord(broker_id=1, next_producer_id=number * 1000),
                log.ClientQuotaRecord(entity=names, key=f"k{number}", value=1.0, remove=value is None),
                log.ClientQuotaRecord(entity=names[::-1], key=f"k{number}", value=2.0, remove=value is None),
                log.UserScramCredentialRecord(
                    name=user, mechanism=1, salt=b"s", stored_key=b"k", server_key=b"v", iterations=4096 + number
                ),
                log.RemoveUserScramCredentialRecord(name=user, mechanism=1),
                log.RemoveAccessControlEntryRecord(id=uuid(500 + number)),
                log.AccessControlEntryRecord(
                    id=uuid(500 + number),
                    resource_type=2,
                    resource_name=user,
                    pattern_type=3,
                    principal="User:a",
                    host="*",
                    operation=3,
                    permission_type=3,
                ),
            ]
        )
    )


_KINDS: list[Callable[[st.DrawFn, ClusterImage], log.MetadataRecord | None]] = [
    _new_topic,
    _removed_topic,
    _partition,
    _partition,
    _changed_partition,
    _other,
]


@st.composite
def histories(draw: st.DrawFn) -> list[list[log.MetadataRecord]]:
    """Batches of records, each of which fits what came before."""
    image = ClusterImage()
    batches = []
    for size in draw(st.lists(st.integers(1, 6), min_size=1, max_size=8)):
        batch = []
        for _ in range(size):
            record = draw(st.sampled_from(_KINDS))(draw, image) or _other(draw, image)
            image = built(image, record)
            batch.append(record)
        batches.append(batch)
    return batches


def assert_indexed(image: ClusterImage) -> None:
    """The index by broker says what counting all partitions says."""
    assert image.topics == topics_image(image.topics.values())

    def where(matches: Callable[[PartitionImage], bool]) -> list[PlacedPartition]:
        found = [
            PlacedPartition(topic, number, state)
            for topic in image.topics.values()
            for number, state in enumerate(topic.partitions)
            if matches(state)
        ]
        return sorted(found, key=lambda each: (each.topic.topic_id, each.number))

    for broker_id in BROKERS:
        assert list(image.topics.hosted_by(broker_id)) == where(lambda state, each=broker_id: each in state.replicas)  # type: ignore[misc]
        assert list(image.topics.led_by(broker_id)) == where(lambda state, each=broker_id: state.leader == each)  # type: ignore[misc]
        assert list(image.topics.without_leader_on(broker_id)) == where(
            lambda state, each=broker_id: state.leader == NO_LEADER and each in state.replicas  # type: ignore[misc]
        )


@settings(max_examples=150, deadline=None)
@given(histories(), st.data())
def test_images_made_by_changes_are_those_made_from_scratch(
    history: list[list[log.MetadataRecord]], data: st.DataObject
) -> None:
    image = one_by_one = ClusterImage()
    builder = ImageBuilder(image)
    taken: list[tuple[ClusterImage, list[log.MetadataRecord], Any]] = []
    for batch in history:
        if data.draw(st.booleans()):
            builder = ImageBuilder(image)
        for record in batch:
            builder.replay(record)
            one_by_one = built(one_by_one, record)
        image = builder.build(one_by_one.offset, 1)
        assert image == one_by_one
        assert list(image_records(image)) == list(image_records(one_by_one))
        from_scratch = built(ClusterImage(), *image_records(image))
        assert list(image_records(from_scratch)) == list(image_records(image))
        assert replace(from_scratch, offset=image.offset) == image
        assert_indexed(image)
        taken.append((image, list(image_records(image)), dict(image.topics)))
    for old, records, topics in taken:
        assert list(image_records(old)) == records
        assert dict(old.topics) == topics
        assert_indexed(old)


# What is shared


def many_topics(count: int) -> Iterator[log.MetadataRecord]:
    for number in range(count):
        yield log.TopicRecord(name=f"t{number}", topic_id=uuid(1000 + number))
        for each in range(2):
            yield log.PartitionRecord(
                partition_id=each,
                topic_id=uuid(1000 + number),
                replicas=[1, 2],
                isr=[1, 2],
                removing_replicas=[],
                adding_replicas=[],
                leader=1,
                leader_epoch=0,
                partition_epoch=0,
            )


def test_what_a_change_does_not_touch_is_the_same_object() -> None:
    image = built(ClusterImage(), *many_topics(50))
    changed = built(image, log.PartitionChangeRecord(partition_id=0, topic_id=uuid(1000), isr=[1]))
    assert all(changed.topics[name] is image.topics[name] for name in image.topics if name != "t0")
    assert changed.topics["t0"].partitions[1] is image.topics["t0"].partitions[1]
    assert (changed.topics.replicas, changed.topics.leaders) == (image.topics.replicas, image.topics.leaders)
    for part in ("brokers", "configs", "features", "acls", "scram", "client_quotas", "delegation_tokens"):
        assert getattr(changed, part) is getattr(image, part)
    assert built(image, log.NoOpRecord()).has_state_of(image)
    assert not changed.has_state_of(image)


def test_partitions_on_the_same_brokers_share_their_lists() -> None:
    image = built(ClusterImage(), *many_topics(3))
    states = [state for topic in image.topics.values() for state in topic.partitions]
    assert len({id(state.replicas) for state in states} | {id(state.isr) for state in states}) == 1
    assert len({id(state.directories) for state in states}) == 1


class Unwalked(PersistentMap[str, TopicImage]):
    """Topics that can be looked up, which is counted, and not walked over."""

    __slots__ = ("looked_up",)

    looked_up: list[str]

    def __getitem__(self, name: str) -> TopicImage:
        self.looked_up.append(name)
        return super().__getitem__(name)

    def __iter__(self) -> Iterator[str]:
        raise AssertionError("all topics are walked over")


def unwalked(image: ClusterImage) -> tuple[ClusterImage, list[str]]:
    by_name = Unwalked(image.topics.by_name)
    by_name.looked_up = []
    return replace(image, topics=replace(image.topics, by_name=by_name)), by_name.looked_up


def test_brokers_come_and_go_at_the_cost_of_what_they_have() -> None:
    cluster = Cluster(brokers=2)
    cluster.create(*(new_topic(f"on_1_{number}", assignment={0: [1]}) for number in range(20)))
    cluster.create(new_topic("on_2", assignment={0: [2], 1: [1], 2: [2]}))
    image, looked_up = unwalked(cluster.image)
    changes = changes_when_fenced(image, cluster.controller.options, 2)
    assert [each.partition_id for each in changes if isinstance(each, log.PartitionChangeRecord)] == [0, 2]
    assert looked_up == ["on_2"]
    assert leads_anything(image, 2)
    assert not leads_anything(image, 3)
    image, looked_up = unwalked(built(cluster.image, *changes))
    assert not leads_anything(image, 2)
    assert len(changes_when_unfenced(image, cluster.controller.options, 2)) == 2
    assert looked_up == ["on_2"]


def test_a_topic_is_created_without_a_look_at_all_others() -> None:
    cluster = Cluster(brokers=1)
    cluster.create(new_topic("a.b", 1, 1), *(new_topic(f"x_{number}", 1, 1) for number in range(20)))
    image, looked_up = unwalked(cluster.image)
    controller = Controller(image, cluster.controller.options, Random(1))
    asked = CreateTopicsRequest(topics=[new_topic("a_b", 1, 1), new_topic("c_d", 1, 1)])
    codes = [each.error_code for each in controller.create_topics(asked).response.topics]
    assert codes == [ErrorCode.INVALID_TOPIC_EXCEPTION, ErrorCode.NONE]
    assert not looked_up


# The controller and whoever follows the log in the same process
