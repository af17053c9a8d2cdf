"""What people do with a cluster, through one of its brokers."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from typing import Final

from barnabas import Admin, BarnabasError, Consumer, Producer, TopicPartition
from barnabas.client.admin import AlterConfig, ConfigResource, ConfigResourceType, NewTopic

TIMEOUT_S: Final = 30.0


class Work:
    """Through a broker at an address. Each call tries again while nobody leads, and is seen in the end."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap

    def create(self, topic: str, partitions: int = 2) -> None:
        with self._admin() as admin:
            self._until(lambda: _create(admin, topic, partitions), f"topic {topic} is there")
            self._until(lambda: _leaders(admin, topic) == partitions, f"topic {topic} is led")

    def delete(self, topic: str) -> None:
        with self._admin() as admin:
            admin.delete_topics([topic])
            self._until(lambda: topic not in admin.list_topics(), f"topic {topic} is gone")

    def add_partitions(self, topic: str, count: int) -> None:
        with self._admin() as admin:
            admin.create_partitions({topic: count})
            self._until(lambda: _leaders(admin, topic) == count, f"topic {topic} has {count} partitions")

    def set_option(self, topic: str, name: str, value: str) -> None:
        resource = ConfigResource(ConfigResourceType.TOPIC, topic)
        with self._admin() as admin:
            admin.alter_configs({resource: [AlterConfig(name, value)]})
            self._until(lambda: admin.describe_configs([resource])[resource][name].value == value, f"{name} is {value}")

    def produce(self, topic: str, values: list[str]) -> None:
        """With a producer id, which the controller gives out."""
        with Producer(bootstrap_servers=self._bootstrap) as producer:
            sent = [producer.send(topic, each.encode()) for each in values]
            producer.flush(TIMEOUT_S)
            for each in sent:
                each.result(TIMEOUT_S)

    def read(self, topic: str, count: int, group: str | None = None) -> list[str]:
        """The first records of a topic, sorted; with a group, from where that stands, which is committed."""
        found: list[str] = []
        deadline = time.monotonic() + TIMEOUT_S
        with Consumer(
            bootstrap_servers=self._bootstrap,
            group_id=group,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
        ) as consumer:
            if group is None:
                with self._admin() as admin:
                    partitions = _leaders(admin, topic)
                consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            else:
                consumer.subscribe([topic])
            while len(found) < count and time.monotonic() < deadline:
                found += [(each.value or b"").decode() for each in consumer.poll(0.5)]
            if group is not None:
                consumer.commit()
        return sorted(found)

    def retention(self, topics: Iterable[str]) -> dict[str, str | None]:
        resources = [ConfigResource(ConfigResourceType.TOPIC, each) for each in topics]
        with self._admin() as admin:
            described = admin.describe_configs(resources)
        return {each.name: described[each]["retention.ms"].value for each in resources}

    def leaders_of(self, topic: str) -> set[int]:
        """The brokers that lead its partitions."""
        with self._admin() as admin:
            partitions = admin.describe_topics([topic])[topic].partitions
        return {each.leader.node_id for each in partitions if each.leader is not None}

    def leader(self) -> int:
        """Which controller leads."""
        with self._admin() as admin:
            return admin.describe_metadata_quorum().leader_id

    def kraft_version(self) -> int:
        with self._admin() as admin:
            return admin.describe_features().finalized.get("kraft.version", (0, 0))[1]

    def voters(self) -> set[int]:
        """The controllers that vote."""
        with self._admin() as admin:
            return {each.replica_id for each in admin.describe_metadata_quorum().voters}

    def observers(self) -> set[int]:
        with self._admin() as admin:
            return {each.replica_id for each in admin.describe_metadata_quorum().observers}

    def brokers(self) -> set[int]:
        with self._admin() as admin:
            return {each.node_id for each in admin.describe_cluster().nodes}

    def topics(self) -> set[str]:
        with self._admin() as admin:
            return set(admin.list_topics())

    def _admin(self) -> Admin:
        return Admin(bootstrap_servers=self._bootstrap)

    def _until(self, condition: Callable[[], object], what: str) -> None:
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            problem: BarnabasError | None = None
            try:
                if condition():
                    return
            except BarnabasError as failure:
                problem = failure
            if time.monotonic() > deadline:
                raise AssertionError(f"it did not happen that {what}: {problem}")
            time.sleep(0.05)


def _create(admin: Admin, topic: str, partitions: int) -> bool:
    if topic not in admin.list_topics():
        admin.create_topics([NewTopic(topic, partitions, 1)])
    return topic in admin.list_topics()


def _leaders(admin: Admin, topic: str) -> int:
    """How many partitions of a topic have a leader."""
    described = admin.describe_topics([topic])[topic]
    return sum(each.leader is not None for each in described.partitions)
