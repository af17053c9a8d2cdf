"""Random operations against a model that keeps only names and numbers, with every invariant checked on the way."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from barnabas.base.error_codes import ErrorCode
from barnabas.metadata.image import NO_LEADER, ClusterImage, ConfigResourceType
from barnabas.metadata.replay import ImageBuilder
from barnabas.metadata.snapshot import image_records
from tests.metadata.clusters import Cluster, new_topic
from tests.metadata.test_configs import DELETE, SET, alter

NAMES = ["a", "b", "a.b", "a_b", "c"]
BROKERS = [1, 2, 3]


class MetadataMachine(RuleBasedStateMachine):
    """The model: how many partitions each topic has, its settings, which brokers work, and all ids ever used."""

    @initialize(seed=st.integers(0, 1000))
    def start(self, seed: int) -> None:
        self.cluster = Cluster(brokers=3, seed=seed)
        self.topics: dict[str, int] = {}
        self.factors: dict[str, int] = {}
        self.settings: dict[str, dict[str, str]] = {}
        self.working = set(BROKERS)
        self.ids: set[bytes] = set()
        self.producer_ids = 0
        self.lives = dict.fromkeys(BROKERS, 1)

    @rule(
        name=st.sampled_from(NAMES),
        count=st.integers(-1, 4),
        factor=st.integers(-1, 4),
        retention=st.none() | st.integers(1, 9),
    )
    def create(self, name: str, count: int, factor: int, retention: int | None) -> None:
        configs: dict[str, str | None] = {} if retention is None else {"retention.ms": str(retention)}
        (result,) = self.cluster.create(new_topic(name, count, factor, configs=configs))
        collides = any(name != each and name.replace(".", "_") == each.replace(".", "_") for each in self.topics)
        if name in self.topics:
            expected = ErrorCode.TOPIC_ALREADY_EXISTS
        elif collides:
            expected = ErrorCode.INVALID_TOPIC_EXCEPTION
        elif factor == 0:
            expected = ErrorCode.INVALID_REPLICATION_FACTOR
        elif count == 0:
            expected = ErrorCode.INVALID_PARTITIONS
        elif factor > len(BROKERS) or not self.working:
            expected = ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            expected = ErrorCode.NONE
            self.topics[name] = 1 if count == -1 else count
            self.factors[name] = 1 if factor == -1 else factor
            self.settings[name] = {key: value for key, value in configs.items() if value is not None}
            assert result.topic_id not in self.ids
            self.ids.add(result.topic_id)
        assert ErrorCode.of(result.error_code) is expected

    @rule(name=st.sampled_from(NAMES), count=st.integers(0, 8))
    def grow(self, name: str, count: int) -> None:
        result = self.cluster.grow(name, count)
        if name not in self.topics:
            assert result.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif count <= self.topics[name]:
            assert result.error_code == ErrorCode.INVALID_PARTITIONS
        elif not self.working:
            assert result.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
        else:
            assert result.error_code == ErrorCode.NONE
            self.topics[name] = count

    @rule(name=st.sampled_from(NAMES), by_id=st.booleans())
    def delete(self, name: str, by_id: bool) -> None:
        topic = self.cluster.image.topics.get(name)
        (result,) = self.cluster.delete(topic.topic_id if topic is not None and by_id else name)
        assert (result.error_code == ErrorCode.NONE) == (name in self.topics)
        for model in (self.topics, self.factors, self.settings):
            model.pop(name, None)

    @rule(
        name=st.sampled_from(NAMES),
        key=st.sampled_from(["retention.ms", "flush.ms"]),
        value=st.none() | st.integers(1, 9),
    )
    def configure(self, name: str, key: str, value: int | None) -> None:
        change: Any = (key, DELETE, None) if value is None else (key, SET, str(value))
        ((code, _),) = alter(self.cluster, (2, name, [change]))
        if name not in self.topics:
            assert code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        elif value is None:
            self.settings[name].pop(key, None)
        else:
            self.settings[name][key] = str(value)

    @rule(broker_id=st.sampled_from(BROKERS))
    def fence(self, broker_id: int) -> None:
        self.cluster.beat(broker_id, fence=True)
        self.working.discard(broker_id)

    @rule(broker_id=st.sampled_from(BROKERS))
    def unfence(self, broker_id: int) -> None:
        self.cluster.beat(broker_id)
        self.working.add(broker_id)

    @rule(broker_id=st.sampled_from(BROKERS))
    def restart(self, broker_id: int) -> None:
        self.cluster.now_ms += 10_000
        self.lives[broker_id] += 1
        self.cluster.join(broker_id, life=self.lives[broker_id])
        self.working.add(broker_id)

    @rule()
    def allocate(self) -> None:
        first, count = self.cluster.do(
            self.cluster.controller.allocate_producer_ids(1, self.cluster.image.brokers[1].epoch)
        )
        assert first == self.producer_ids
        self.producer_ids += count

    @rule()
    def change_the_controller(self) -> None:
        """All is committed; another node takes over with what it has replayed."""
        controller = self.cluster.controller
        controller.commit(len(self.cluster.log) - 1)
        controller.roll_back()
        self.cluster.do(controller.activate(controller.image.epoch + 1, len(self.cluster.log), self.cluster.now_ms))

    @precondition(lambda self: self.topics)
    @rule()
    def lose_what_is_not_committed(self) -> None:
        controller = self.cluster.controller
        controller.commit(len(self.cluster.log) - 1)
        before, log = controller.image, list(self.cluster.log)
        self.cluster.delete(next(iter(self.topics)))
        controller.roll_back()
        self.cluster.log = log
        assert controller.image == before

    @invariant()
    def the_image_is_the_model(self) -> None:
        image = self.cluster.image
        assert {name: len(topic.partitions) for name, topic in image.topics.items()} == self.topics
        assert {name: dict(image.config(ConfigResourceType.TOPIC, name)) for name in self.topics} == self.settings
        assert {broker_id for broker_id, each in image.brokers.items() if not each.is_fenced} == self.working
        assert image.next_producer_id == self.producer_ids
        assert dict(image.topic_names) == {topic.topic_id: name for name, topic in image.topics.items()}

    @invariant()
    def partitions_are_sound(self) -> None:
        for name, topic in self.cluster.image.topics.items():
            for each in topic.partitions:
                assert len(each.replicas) == len(set(each.replicas)) == len(each.directories) == self.factors[name]
                assert each.isr
                assert set(each.isr) <= set(each.replicas)
                assert each.leader == NO_LEADER or (each.leader in each.isr and each.leader in self.working)
                # Whoever could lead without losing anything does.
                assert (each.leader == NO_LEADER) == self.working.isdisjoint(each.isr)

    @invariant()
    def a_node_that_starts_sees_the_same(self) -> None:
        image = self.cluster.image
        assert self.cluster.replayed() == image
        builder = ImageBuilder(ClusterImage())
        for record in image_records(image):
            builder.replay(record)
        assert builder.build(image.offset, image.epoch) == image


TestMetadata = MetadataMachine.TestCase
TestMetadata.settings = settings(max_examples=60, stateful_step_count=20, deadline=None)
