"""Programs that use a cluster with our own clients, and keep count of what they were told.

Producers send without waiting. Members of a group read, commit, come and go. A reader looks at everything from the
beginning, again and again. An operator has leaders elected. What any of them sees goes to the checkers.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.errors import ClientClosedError
from barnabas.client.plugins import RebalanceListener
from barnabas.client.producer.producer import Producer
from barnabas.testing.sim.checkers import GroupCommits, LogChecker
from barnabas.testing.sim.process import Process
from barnabas.testing.sim.runtime import SimulatedClock
from barnabas.testing.sim.world import World

__all__ = ["ClientPlan", "GroupMember", "Operator", "SimulatedClient", "SimulatedProducer", "SimulatedReader"]

GROUP: Final = "clerks"
_POLL_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class ClientPlan:
    """What the clients of a run have in common. `acknowledged` hears of each record that was."""

    world: World
    bootstraps: Sequence[str]
    partitions: Sequence[TopicPartition]
    pace: float
    checker: LogChecker
    commits: GroupCommits
    tell: Callable[[str], None]
    acknowledged: Callable[[TopicPartition, int], None]
    delivery_timeout_ms: int
    assignment_strategy: str
    #: Producers send for a while, then nothing for a while, so that followers catch up and leaders are at rest.
    has_bursts: bool = False

    def settings(self, name: str) -> dict[str, Any]:
        """Those of every client."""
        return {
            "bootstrap_servers": ",".join(self.bootstraps),
            "client_id": name,
            "clock": SimulatedClock(self.world.loop),
            "randomness": self.world.random(name),
            "request_timeout_ms": round(2000 * self.pace),
            "reconnect_backoff_max_ms": round(1000 * self.pace),
            "retry_backoff_max_ms": round(500 * self.pace),
            "metadata_max_age_ms": 5000,
        }


class SimulatedClient(ABC):
    """A program on a host of its own. `begin` starts it; it ends in its own time once `is_over`."""

    def __init__(self, name: str, address: str, plan: ClientPlan) -> None:
        self.name = name
        self.address = address
        self.plan = plan
        self.chance = plan.world.random(f"{name} program")
        self.is_over = False
        self._process = Process(name, address)
        self.task: asyncio.Task[None] | None = None

    def begin(self) -> None:
        with self._process.enter():
            self.task = self.plan.world.loop.create_task(self.use(), name=self.name)

    @abstractmethod
    async def use(self) -> None:
        """What it does until it is over."""

    async def end(self) -> None:
        self.is_over = True
        if self.task is not None:
            await self.task


class SimulatedProducer(SimulatedClient):
    """Sends to all partitions, idempotent, with acks=all."""

    def __init__(self, name: str, address: str, plan: ClientPlan) -> None:
        super().__init__(name, address, plan)
        self.failed_count = 0
        self.acknowledged_count = 0
        #: Where it has had an answer since this was last cleared.
        self.served: set[TopicPartition] = set()

    async def use(self) -> None:
        plan, chance = self.plan, self.chance
        outcomes: set[asyncio.Task[None]] = set()
        settings: dict[str, Any] = {
            "linger_ms": chance.choice((0, 5, 20)),
            "batch_size": chance.choice((300, 2000)),
            "delivery_timeout_ms": plan.delivery_timeout_ms,
            "max_block_ms": 3000,
            "acks": "all",
            "enable_idempotence": True,
        }
        mean_pause_s = chance.choice((0.02, 0.05))
        async with Producer(**settings, **plan.settings(self.name)) as producer:
            number = 0
            while not self.is_over:
                number += 1
                partition = chance.choice(plan.partitions)
                value = b"%s/%d/%s" % (self.name.encode(), number, b"x" * chance.randrange(80))
                plan.checker.sent(partition, [value], self.name)
                try:
                    future = await producer.send(partition.topic, value, partition=partition.partition)
                except BarnabasError:
                    self.failed_count += 1
                else:
                    outcome = asyncio.create_task(self._learn(partition, value, future))
                    outcomes.add(outcome)
                    outcome.add_done_callback(outcomes.discard)
                await asyncio.sleep(chance.expovariate(1 / mean_pause_s))
                if plan.has_bursts and chance.random() < 0.05:
                    await asyncio.sleep(chance.uniform(1.0, 3.0))
        if outcomes:
            await asyncio.wait(outcomes)

    async def _learn(self, partition: TopicPartition, value: bytes, future: Any) -> None:
        try:
            metadata = await future
        except BarnabasError as failure:
            self.failed_count += 1  # it may be written all the same
            self.plan.tell(f"{self.name}: a record for {partition} failed: {failure}")
            return
        self.acknowledged_count += 1
        self.served.add(partition)
        self.plan.checker.acknowledged(partition, metadata.offset, [value])
        self.plan.acknowledged(partition, metadata.offset)


class SimulatedConsumer(SimulatedClient):
    """When it has read a while, it begins anew with another consumer."""

    async def use(self) -> None:
        life = 0
        while not self.is_over:
            life += 1
            await self._live(f"{self.name}.{life}")

    @abstractmethod
    async def _live(self, who: str) -> None:
        """What one consumer does, from its first poll to its last."""


class SimulatedReader(SimulatedConsumer):
    """Reads everything from the beginning, each time."""

    def __init__(self, name: str, address: str, plan: ClientPlan) -> None:
        super().__init__(name, address, plan)
        self.positions: dict[TopicPartition, int] = {}

    def options(self) -> dict[str, Any]:
        """Settings of its consumers."""
        return {"auto_offset_reset": "earliest"}

    async def _live(self, who: str) -> None:
        plan = self.plan
        consumer: Consumer[Any, Any] = Consumer(**self.options(), **plan.settings(self.name))
        consumer.assign(plan.partitions)
        self.begins(who)
        try:
            for _ in range(self.chance.randint(30, 120)):
                if self.is_over:
                    break
                await self._poll(consumer, who)
        finally:
            await consumer.close(1.0)

    async def _poll(self, consumer: Consumer[Any, Any], who: str) -> None:
        try:
            records = await consumer.poll(_POLL_S)
        except BarnabasError as failure:
            self.plan.tell(f"{who}: a poll failed: {failure}")
            return
        self.saw(who, records)

    def begins(self, who: str) -> None:
        """A new life, at the beginning of everything."""
        self.positions = dict.fromkeys(self.plan.partitions, 0)
        for partition in self.plan.partitions:
            self.plan.checker.seek(partition, who, 0)

    def saw(self, who: str, records: Sequence[Any]) -> None:
        """What a poll returned."""
        for partition, offset, values, _ in _runs(records):
            self.plan.checker.read(partition, offset, values, who)
            self.positions[partition] = offset + len(values)


class GroupMember(SimulatedConsumer):
    """Reads what the group gives it, and commits. Now and then it leaves, or is gone without a word."""

    def __init__(self, name: str, address: str, plan: ClientPlan) -> None:
        super().__init__(name, address, plan)
        #: How far the group has come, by this member's account.
        self.committed: dict[TopicPartition, int] = {}

    async def _live(self, who: str) -> None:
        plan, chance = self.plan, self.chance
        consumer: Consumer[Any, Any] = Consumer(
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            session_timeout_ms=round(3000 * plan.pace),
            heartbeat_interval_ms=round(600 * plan.pace),
            max_poll_records=20,
            partition_assignment_strategy=plan.assignment_strategy,
            **plan.settings(self.name),
        )
        owned = _Owned(who, plan)
        consumer.subscribe(sorted({each.topic for each in plan.partitions}), listener=owned)
        try:
            for _ in range(chance.randint(20, 150)):
                if self.is_over:
                    break
                await self._step(consumer, owned)
        finally:
            await consumer.close(chance.choice((0, 1.0)))

    async def _step(self, consumer: Consumer[Any, Any], owned: _Owned) -> None:
        plan = self.plan
        try:
            owned.read(_runs(await consumer.poll(_POLL_S)))
            if owned.done and self.chance.random() < 0.7:
                await self._commit(consumer, owned)
        except ClientClosedError:
            raise
        except BarnabasError as failure:
            plan.tell(f"{owned.who}: {failure}")

    async def _commit(self, consumer: Consumer[Any, Any], owned: _Owned) -> None:
        owners, done = dict(owned.partitions), dict(owned.done)
        for partition, position in done.items():
            self.plan.commits.trying(partition, position.offset)
        await consumer.commit(done, 5.0)
        for partition, position in done.items():
            self.plan.commits.committed(partition, owners.get(partition), position.offset)
            self.committed[partition] = position.offset
            if owned.done.get(partition) == position:
                del owned.done[partition]


class Operator(SimulatedClient):
    """Has preferred leaders elected now and then, and looks at topics."""

    def __init__(self, name: str, address: str, plan: ClientPlan) -> None:
        super().__init__(name, address, plan)
        self.elected_count = 0

    async def use(self) -> None:
        plan, chance = self.plan, self.chance
        topics = sorted({each.topic for each in plan.partitions})
        async with Admin(**plan.settings(self.name)) as admin:
            while not self.is_over:
                await asyncio.sleep(chance.expovariate(1 / 2.0))
                try:
                    if chance.random() < 0.5:
                        self.elected_count += sum((await admin.elect_leaders(timeout=2.0)).values())
                    else:
                        await admin.describe_topics(topics, timeout=2.0)
                except BarnabasError as failure:
                    plan.tell(f"{self.name}: {failure}")


class _Owned(RebalanceListener):
    """Which partitions a member has, each with an object that stands for this assignment of it."""

    def __init__(self, who: str, plan: ClientPlan) -> None:
        self.who = who
        self._plan = plan
        self.partitions: dict[TopicPartition, object] = {}
        #: Up to where it has read, where that is not committed. Without the epoch, a leader of old that has not heard
        #: of its successor could say that there is no such offset, and be believed.
        self.done: dict[TopicPartition, OffsetAndMetadata] = {}

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._plan.tell(f"{self.who} is assigned {', '.join(map(str, partitions)) or 'nothing'}")
        for partition in partitions:
            owner = self.partitions[partition] = object()
            self._plan.commits.assigned(partition, owner)
            self._plan.checker.seek(partition, self.who)

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        for partition in partitions:
            self.partitions.pop(partition, None)
            self.done.pop(partition, None)

    def read(self, runs: Sequence[_Run]) -> None:
        for partition, offset, values, leader_epoch in runs:
            owner = self.partitions.get(partition)
            self._plan.commits.began(partition, owner, offset)
            self._plan.checker.read(partition, offset, values, self.who)
            self.done[partition] = OffsetAndMetadata(offset + len(values), leader_epoch=leader_epoch)


class _Run(NamedTuple):
    """Records of one partition without a hole; the epoch is that of the last one."""

    partition: TopicPartition
    offset: int
    values: list[bytes]
    leader_epoch: int | None


def _runs(records: Sequence[Any]) -> list[_Run]:
    """What a poll returned, in pieces."""
    runs: list[_Run] = []
    for record in records:
        partition = TopicPartition(record.topic, record.partition)
        last = runs[-1] if runs else None
        if last is not None and last.partition == partition and last.offset + len(last.values) == record.offset:
            last.values.append(record.value)
            runs[-1] = last._replace(leader_epoch=record.leader_epoch)
        else:
            runs.append(_Run(partition, record.offset, [record.value], record.leader_epoch))
    return runs
