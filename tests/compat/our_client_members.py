"""Members of groups, each a client of another make, that poll as an application would: all the time, by themselves."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Mapping
from importlib import import_module
from threading import Event, Thread
from types import TracebackType
from typing import Any, Final, Self

from barnabas import TopicPartition
from barnabas.client.errors import WakeupError
from barnabas.client.plugins import RebalanceListener
from tests.compat.brokers import unique
from tests.compat.confluent_client import ck
from tests.compat.our_client_peers import Peers
from tests.compat.samples import TIMEOUT_S, until

#: Offsets are committed often, so that little comes twice when partitions move.
_COMMIT_INTERVAL_MS: Final = 100
_POLL_S: Final = 0.1

Read = tuple[int, int, int]


class Member(ABC):
    """One consumer of a group. `partitions` are its own at present, `read` holds partition, offset and number of each
    record that it was given."""

    def __init__(self, peers: Peers, topic: str, group: str, assignor: str, **settings: Any) -> None:
        self.peers, self.topic, self.group, self.assignor, self.settings = peers, topic, group, assignor, settings
        self.partitions: frozenset[int] = frozenset()
        self.read: list[Read] = []
        self.failure: BaseException | str | None = None
        self.assignments = 0
        self._stopping = Event()
        self._thread = Thread(target=self._guarded, daemon=True, name=type(self).__name__)

    def start(self) -> Self:
        self._thread.start()
        return self

    def stop(self) -> None:
        """Leave the group, as one who closes a consumer does."""
        self.begin_to_stop()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), f"{self} did not end"
        assert self.failure is None, self.failure

    def begin_to_stop(self) -> None:
        if not self._stopping.is_set():
            self._stopping.set()
            self._interrupt()

    def refresh(self) -> None:
        """Bring what is told here up to date; most keep it so by themselves."""
        return

    def __str__(self) -> str:
        return f"{type(self).__name__} with {sorted(self.partitions)}, failure {self.failure}"

    def _guarded(self) -> None:
        try:
            self._run()
        except BaseException as failure:
            self.failure = failure

    def _interrupt(self) -> None:
        """Wake it up, if it does not look by itself whether it should stop."""
        return

    @abstractmethod
    def _run(self) -> None: ...


class _Follower(RebalanceListener):
    """Keeps the partitions of a member of ours by what its listener is told, which must be enough to know them."""

    def __init__(self, member: Member) -> None:
        self._member = member

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._member.assignments += 1
        assert not self._member.partitions & {each.partition for each in partitions}, "assigned twice"
        self._member.partitions |= {each.partition for each in partitions}

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        assert self._member.partitions >= {each.partition for each in partitions}, "revoked without being assigned"
        self._member.partitions -= {each.partition for each in partitions}


class Ours(Member):
    """Ours without asyncio, by iteration; a wakeup ends it."""

    def _run(self) -> None:
        settings = _ours(self)
        with self.peers.ours.consumer(**settings) as self._consumer:
            self._consumer.subscribe([self.topic], listener=_Follower(self))
            try:
                for record in self._consumer:
                    self.read.append((record.partition, record.offset, int(record.value)))
            except WakeupError:
                assert self._stopping.is_set()
            assert {each.partition for each in self._consumer.assignment()} == self.partitions

    def _interrupt(self) -> None:
        self._consumer.wakeup()


class OursInArrow(Member):
    """Ours without asyncio, by poll_arrow."""

    def _run(self) -> None:
        with self.peers.ours.consumer(**_ours(self)) as consumer:
            consumer.subscribe([self.topic], listener=_Follower(self))
            while not self._stopping.is_set():
                batch = consumer.poll_arrow(_POLL_S)
                columns = (batch.column(name).to_pylist() for name in ("partition", "offset", "value"))
                self.read += [
                    (partition, offset, int(value)) for partition, offset, value in zip(*columns, strict=True)
                ]


class OursInAsyncio(Member):
    """Ours with asyncio, by iteration in a task; cancellation ends it."""

    def _run(self) -> None:
        asyncio.run(self._until_cancelled())

    async def _until_cancelled(self) -> None:
        self._loop, self._task = asyncio.get_running_loop(), asyncio.current_task()
        async with self.peers.ours.aio_consumer(**_ours(self)) as consumer:
            consumer.subscribe([self.topic], listener=_Follower(self))
            try:
                async for record in consumer:
                    self.read.append((record.partition, record.offset, int(record.value)))
            except asyncio.CancelledError:
                assert self._stopping.is_set()

    def _interrupt(self) -> None:
        assert self._task is not None
        self._loop.call_soon_threadsafe(self._task.cancel)


def _ours(member: Member) -> dict[str, Any]:
    return {
        "group_id": member.group,
        "partition_assignment_strategy": member.assignor,
        "enable_auto_commit": True,
        "auto_commit_interval_ms": _COMMIT_INTERVAL_MS,
        **member.settings,
    }


class ConfluentKafka(Member):
    def _run(self) -> None:
        settings = {
            "partition.assignment.strategy": self.assignor,
            "enable.auto.commit": True,
            "auto.commit.interval.ms": _COMMIT_INTERVAL_MS,
            "topic.metadata.refresh.interval.ms": 500,
            **self.settings,
        }
        with self.peers.confluent.consumer(self.group, settings) as consumer:
            consumer.subscribe([self.topic], on_assign=self._assigned)
            while not self._stopping.is_set():
                messages = consumer.consume(100, _POLL_S)
                self.partitions = frozenset(each.partition for each in consumer.assignment())
                for each in messages:
                    if each.error() is not None:
                        raise ck.KafkaException(each.error())
                    self.read.append((each.partition(), each.offset(), int(each.value())))

    def _assigned(self, _consumer: Any, _partitions: list[Any]) -> None:
        self.assignments += 1


class KafkaPython(Member):
    def _run(self) -> None:
        settings = {
            "partition_assignment_strategy": [_class_of("kafka", self.assignor)],
            "enable_auto_commit": True,
            "auto_commit_interval_ms": _COMMIT_INTERVAL_MS,
            **self.settings,
        }
        with self.peers.kafka_python.consumer(self.topic, group=self.group, **settings) as consumer:
            while not self._stopping.is_set():
                polled = consumer.poll(_POLL_S * 1000)
                self.partitions = frozenset(each.partition for each in consumer.assignment())
                for batch in polled.values():
                    self.read += [(each.partition, each.offset, int(each.value)) for each in batch]


class AioKafka(Member):
    def _run(self) -> None:
        asyncio.run(self._until_stopped())

    async def _until_stopped(self) -> None:
        settings = {
            "partition_assignment_strategy": [_class_of("aiokafka", self.assignor)],
            "enable_auto_commit": True,
            "auto_commit_interval_ms": _COMMIT_INTERVAL_MS,
            **self.settings,
        }
        async with self.peers.aiokafka.consumer(self.topic, group=self.group, **settings) as consumer:
            while not self._stopping.is_set():
                polled = await consumer.getmany(timeout_ms=int(_POLL_S * 1000))
                self.partitions = frozenset(each.partition for each in consumer.assignment())
                for batch in polled.values():
                    self.read += [(each.partition, each.offset, int(each.value)) for each in batch]


def _class_of(package: str, assignor: str) -> Any:
    """Where the two relatives keep an assignor."""
    module, name = {
        "range": ("range", "RangePartitionAssignor"),
        "roundrobin": ("roundrobin", "RoundRobinPartitionAssignor"),
        "sticky": ("sticky.sticky_assignor", "StickyPartitionAssignor"),
        "cooperative-sticky": ("cooperative_sticky", "CooperativeStickyAssignor"),
    }[assignor]
    return getattr(import_module(f"{package}.coordinator.assignors.{module}"), name)


class Java(Member):
    """Lives in another process, and is asked how it is."""

    _CLASSES: Final = {
        "range": "RangeAssignor",
        "roundrobin": "RoundRobinAssignor",
        "sticky": "StickyAssignor",
        "cooperative-sticky": "CooperativeStickyAssignor",
    }

    def start(self) -> Self:
        self._name = unique("member")
        settings = {
            "group.id": self.group,
            "partition.assignment.strategy": f"org.apache.kafka.clients.consumer.{self._CLASSES[self.assignor]}",
            "enable.auto.commit": "true",
            "auto.commit.interval.ms": str(_COMMIT_INTERVAL_MS),
            **self.settings,
        }
        self.peers.java("join", name=self._name, topic=self.topic, settings=settings)
        return self

    def stop(self) -> None:
        self._take(self.peers.java("leave", name=self._name))
        assert self.failure is None, self.failure

    def refresh(self) -> None:
        self._take(self.peers.java("state", name=self._name))

    def _take(self, state: Mapping[str, Any]) -> None:
        self.partitions, self.failure = frozenset(state["assigned"]), state["failure"]
        self.read += [(partition, offset, number) for partition, offset, number in state["read"]]

    def _run(self) -> None:
        raise NotImplementedError


MEMBERS: Final[Mapping[str, type[Member]]] = {
    "ours": Ours,
    "ours in Arrow": OursInArrow,
    "ours in asyncio": OursInAsyncio,
    "confluent-kafka": ConfluentKafka,
    "kafka-python": KafkaPython,
    "aiokafka": AioKafka,
    "Java": Java,
}


class Stream:
    """Somebody who writes numbers all the time, spread over the partitions."""

    def __init__(self, peers: Peers, topic: str, partitions: int, pause_s: float = 0.01) -> None:
        self._peers, self._topic, self._partitions, self._pause_s = peers, topic, partitions, pause_s
        self._stopping = Event()
        self._thread = Thread(target=self._guarded, daemon=True)
        self.failures: list[Exception] = []
        self.count = 0

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """After this all numbers below `count` are written."""
        self._stopping.set()
        self._thread.join(TIMEOUT_S)
        assert not self._thread.is_alive(), "whoever writes does not end"
        assert not self.failures, self.failures[0]

    def _guarded(self) -> None:
        try:
            self._run()
        except Exception as failure:
            self.failures.append(failure)

    def _run(self) -> None:
        with self._peers.ours.producer() as producer:
            while not self._stopping.wait(self._pause_s):
                for _ in range(self._partitions):
                    number = self.count
                    producer.send(
                        self._topic, b"%d" % number, partition=number % self._partitions, on_delivery=self._delivered
                    )
                    self.count += 1

    def _delivered(self, _metadata: Any, error: Exception | None) -> None:
        if error is not None:
            self.failures.append(error)


class Company:
    """The members that are there now, those that were, and what all of them should have read."""

    def __init__(self, partitions: int, stream: Stream) -> None:
        self._partitions = partitions
        self._stream = stream
        self.present: list[Member] = []
        self._gone: list[Member] = []

    def join(self, *members: Member) -> None:
        self.present += [each.start() for each in members]

    def leave(self, *members: Member) -> None:
        for each in members:
            each.stop()
            self.present.remove(each)
            self._gone.append(each)

    def grow(self, partitions: int) -> None:
        """From now on there are so many; nobody writes any more."""
        self._partitions = partitions

    def settle(self) -> None:
        """Wait until everybody has a share and nobody has what another has."""
        everything = list(range(self._partitions))

        def is_settled() -> bool:
            self._refresh()
            shares = [each.partitions for each in self.present]
            return all(shares) and sorted(number for share in shares for number in share) == everything

        self._until(is_settled)

    def check_that_each_record_is_read_once(self, count: int = 200) -> None:
        """What is written while nothing changes comes to one member only."""
        # What is on its way at this moment may have been read by two.
        first = self._stream.count + 2 * self._partitions
        wanted = range(first, first + count)
        self._until(lambda: self._have_read(set(wanted)))
        counts = self._counts()
        often = {number: counts[number] for number in wanted if counts[number] != 1}
        assert not often, f"read more than once: {often}; {self._story()}"

    def check_that_nothing_is_missing(self) -> None:
        self._stream.stop()
        wanted = set(range(self._stream.count))
        self._until(lambda: self._have_read(wanted))
        places = {(partition, offset): number for each in self._all() for partition, offset, number in each.read}
        for (partition, offset), number in places.items():
            assert (partition, offset) == (number % self._partitions, number // self._partitions)

    def stop(self) -> None:
        for each in self.present:
            each.begin_to_stop()
        self.leave(*self.present)

    def _all(self) -> list[Member]:
        return [*self.present, *self._gone]

    def _counts(self) -> Counter[int]:
        return Counter(number for each in self._all() for _, _, number in list(each.read))

    def _have_read(self, numbers: set[int]) -> bool:
        self._refresh()
        return self._counts().keys() >= numbers

    def _refresh(self) -> None:
        for each in self.present:
            each.refresh()
            assert each.failure is None, each
        assert not self._stream.failures, self._stream.failures[0]

    def _until(self, done: Callable[[], object]) -> None:
        try:
            until(done)
        except AssertionError as failure:
            raise AssertionError(f"{failure}; {self._story()}") from failure

    def _story(self) -> str:
        return "; ".join(f"{each}, {len(each.read)} read" for each in self._all())
