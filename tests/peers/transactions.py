"""Clients with open transactions, and leaders that change while they are open."""

from __future__ import annotations

import time
from typing import Any, Final, Protocol

import confluent_kafka

import barnabas
from barnabas import Admin, TopicPartition
from barnabas.client.admin import NewTopic, TransactionState
from barnabas.coordinator.routing import partition_for

_CALL_S: Final = 60.0
_PATIENCE_S: Final = 90.0
STATES: Final = "__transaction_state"
OFFSETS: Final = "__consumer_offsets"
#: As many as `create_internal_topics` makes: brokers count on what the settings say.
SETTINGS: Final = {"offsets.topic.num.partitions": "2", "transaction.state.log.num.partitions": "2"}


class Transacting(Protocol):
    """A producer with a transactional id, and the group whose offset it commits."""

    name: str
    group: str

    def begin(self) -> None: ...

    def send(self, topic: str, partition: int, value: str) -> None:
        """Until it is acknowledged."""

    def send_offset(self, topic: str, offset: int) -> None:
        """Of partition 0, for the group."""

    def end(self, *, commit: bool) -> None: ...

    def close(self) -> None: ...


class OurTransactions:
    """Our producer."""

    def __init__(self, bootstrap: str, name: str, group: str) -> None:
        self.name = name
        self.group = group
        self._producer = barnabas.Producer(bootstrap_servers=bootstrap, transactional_id=name)
        self._consumer = barnabas.Consumer(bootstrap_servers=bootstrap, group_id=group)
        self._producer.init_transactions()

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        self._producer.send(topic, value.encode(), partition=partition).result(_CALL_S)

    def send_offset(self, topic: str, offset: int) -> None:
        offsets = {TopicPartition(topic, 0): offset}
        self._producer.send_offsets_to_transaction(offsets, self._consumer.group_metadata())

    def end(self, *, commit: bool) -> None:
        self._producer.commit_transaction() if commit else self._producer.abort_transaction()

    def close(self) -> None:
        self._consumer.close()
        self._producer.close()


class LibrdkafkaTransactions:
    """confluent-kafka."""

    def __init__(self, bootstrap: str, name: str, group: str) -> None:
        self.name = name
        self.group = group
        common = {"bootstrap.servers": bootstrap, "log_level": 0}
        self._producer = confluent_kafka.Producer({**common, "transactional.id": name, "linger.ms": 0})
        self._consumer = confluent_kafka.Consumer({**common, "group.id": group})
        self._producer.init_transactions(_CALL_S)

    def begin(self) -> None:
        self._producer.begin_transaction()

    def send(self, topic: str, partition: int, value: str) -> None:
        told: list[Any] = []
        self._producer.produce(
            topic, value.encode(), partition=partition, on_delivery=lambda error, _: told.append(error)
        )
        self._producer.flush(_CALL_S)
        assert told == [None], f"{value}: {told}"

    def send_offset(self, topic: str, offset: int) -> None:
        offsets = [confluent_kafka.TopicPartition(topic, 0, offset)]
        self._producer.send_offsets_to_transaction(offsets, self._consumer.consumer_group_metadata(), _CALL_S)

    def end(self, *, commit: bool) -> None:
        self._producer.commit_transaction(_CALL_S) if commit else self._producer.abort_transaction(_CALL_S)

    def close(self) -> None:
        self._consumer.close()


class Transactors:
    """Of each client four: their coordinators are of either kind, that of their group of the other; half abort."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.topic = topic
        self._partitions = partitions
        self._clients: dict[Transacting, bool] = {}
        #: What read_committed must show in each partition.
        self.shown: list[str] = []
        self._open: list[str] = []
        #: The last that each sent in a transaction.
        self._offsets: dict[Transacting, int] = {}
        for client in (OurTransactions, LibrdkafkaTransactions):
            for partition in (0, 1):
                for is_committed in (True, False):
                    prefix = f"{client.__name__}-{'commits' if is_committed else 'aborts'}"
                    name, group = name_for(prefix, partition), name_for(f"group-{prefix}", 1 - partition)
                    self._clients[client(bootstrap, name, group)] = is_committed

    def begin(self) -> None:
        for each in self._clients:
            each.begin()

    def write(self, number: int, *, with_offset: bool = True) -> None:
        """Everybody in every partition, and an offset; without, only our own client sends one.

        librdkafka waits for ever for a group's coordinator that has moved (its issue 5511), whatever time-out it is
        given.
        """
        for each, is_committed in self._clients.items():
            value = f"{number} by {each.name}"
            for partition in range(self._partitions):
                each.send(self.topic, partition, value)
            if with_offset or isinstance(each, OurTransactions):
                each.send_offset(self.topic, number)
                self._offsets[each] = number
            if is_committed:
                self._open.append(value)

    def end(self) -> None:
        for each, is_committed in self._clients.items():
            each.end(commit=is_committed)
        self.shown += self._open
        self._open.clear()

    def check(self, bootstrap: str) -> None:
        """Records and offsets of whoever committed are there, and nothing else."""
        assert read_committed(bootstrap, self.topic, self._partitions) == [self.shown] * self._partitions
        place = TopicPartition(self.topic, 0)
        ends = {True: TransactionState.COMPLETE_COMMIT, False: TransactionState.COMPLETE_ABORT}
        with Admin(bootstrap_servers=bootstrap) as admin:
            told = admin.describe_transactions([each.name for each in self._clients])
            for each, is_committed in self._clients.items():
                offset = admin.list_group_offsets(each.group, require_stable=True).get(place)
                assert (offset and offset.offset) == (self._offsets[each] if is_committed else None), each.group
                assert told[each.name].state is ends[is_committed], each.name

    def close(self) -> None:
        for each in self._clients:
            each.close()


def create_internal_topics(bootstrap: str, ours: int, kafkas: int) -> None:
    """With a first replica of either kind: there are coordinators of both."""
    mixed = {0: [ours, kafkas], 1: [kafkas, ours]}
    with Admin(bootstrap_servers=bootstrap) as admin:
        settings = {"cleanup.policy": "compact"}
        admin.create_topics([NewTopic(each, assignments=mixed, configs=settings) for each in (STATES, OFFSETS)])


def name_for(prefix: str, partition: int) -> str:
    """A transactional id, or a group, that belongs to this one of the two partitions of its topic."""
    return next(name for number in range(100) if partition_for(name := f"{prefix}-{number}", 2) == partition)


def read_committed(bootstrap: str, topic: str, partitions: int) -> list[list[str]]:
    """What each partition shows to its last stable offset, as our consumer and librdkafka's both say."""
    ours = [_read_with_ours(bootstrap, topic, each) for each in range(partitions)]
    theirs = [_read_with_librdkafka(bootstrap, topic, each) for each in range(partitions)]
    assert ours == theirs
    return ours


def _read_with_ours(bootstrap: str, topic: str, partition: int) -> list[str]:
    found: list[str] = []
    place = TopicPartition(topic, partition)
    with barnabas.Consumer(bootstrap_servers=bootstrap, isolation_level="read_committed") as consumer:
        consumer.assign([place])
        consumer.seek_to_beginning([place])
        end = consumer.end_offsets([place])[place]
        deadline_s = time.monotonic() + _PATIENCE_S
        while consumer.position(place) < end:
            assert time.monotonic() < deadline_s, f"{place} was read to {consumer.position(place)}, not to {end}"
            found += [(each.value or b"").decode() for each in consumer.poll(0.5)]
    return found


def _read_with_librdkafka(bootstrap: str, topic: str, partition: int) -> list[str]:
    found: list[str] = []
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "checker", "isolation.level": "read_committed", "log_level": 0}
        | {"enable.auto.commit": False, "enable.partition.eof": True}
    )
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    while True:
        message = consumer.poll(_PATIENCE_S)
        assert message is not None, f"partition {partition} of {topic} cannot be read"
        if message.error() is not None:
            break
        found.append((message.value() or b"").decode())
    consumer.close()
    return found
