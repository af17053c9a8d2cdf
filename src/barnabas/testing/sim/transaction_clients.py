"""Programs that read, compute and write in transactions, and readers of what they write.

A worker is a member of a group. What follows from the records that it is given goes to the output, together with the
group's offsets, in one transaction after the other. Some it aborts; now and then it falls asleep over one, or dies in
the middle and comes back with the same transactional id, or takes the id of another worker, which is fenced by that.
Who sleeps too long, or stands still altogether, is put out of the group, others have its partitions, and it goes on.
"""

from __future__ import annotations

import asyncio
from abc import abstractmethod
from collections.abc import Mapping, Sequence
from contextvars import Context
from dataclasses import dataclass
from typing import Any, Final, NoReturn

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.consumer.consumer import Consumer
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.client.errors import TransactionFatalError, TransactionTimeoutError
from barnabas.client.plugins import RebalanceListener
from barnabas.client.producer.producer import Producer
from barnabas.testing.sim.cluster_clients import ClientPlan, SimulatedClient, SimulatedReader
from barnabas.testing.sim.process import Process, ProcessState
from barnabas.testing.sim.transaction_checker import Effect, Readers, TransactionBook
from barnabas.testing.sim.transaction_stragglers import Stragglers

__all__ = ["IsolatedReader", "Worker", "WorkerPlan", "effects_of"]

GROUP: Final = "clerks"
KEYS: Final = 3
_POLL_S: Final = 0.5
_MANY: Final = 60
#: How often a call is made again that was not done in time.
_PATIENCE: Final = 40
_DYING_S: Final = 10**6
_SESSION_MS: Final = 3000
_NO_HURRY_MS: Final = 300_000


@dataclass(frozen=True, slots=True)
class WorkerPlan:
    """What the workers of a run have in common. The chances are for each transaction, that of a borrowed id for each
    life."""

    outputs: Sequence[TopicPartition]
    book: TransactionBook
    workers: Sequence[str]
    transaction_timeout_ms: int
    request_timeout_ms: int
    abort_chance: float
    sleep_chance: float
    death_chance: float
    borrow_chance: float
    pause_chance: float
    nap_chance: float
    straggler_chance: float
    max_poll_interval_ms: int
    stragglers: Stragglers


def effects_of(source: TopicPartition, offset: int, outputs: Sequence[TopicPartition]) -> list[TopicPartition]:
    """Where to write what follows from a record: one copy by its key, of some records another elsewhere."""
    first = (source.partition + offset % KEYS) % len(outputs)
    return [outputs[first], outputs[(first + 1) % len(outputs)]] if offset % 3 == 0 else [outputs[first]]


class MortalClient(SimulatedClient):
    """A program that may die: each of its lives is a process of its own."""

    def __init__(self, name: str, address: str, plan: ClientPlan) -> None:
        super().__init__(name, address, plan)
        self.life_count = 0
        self.death_count = 0
        self._died: asyncio.Future[None] | None = None

    def begin(self) -> None:
        self.task = self.plan.world.loop.create_task(self.use(), name=self.name)

    async def use(self) -> None:
        """Outside of the processes, as what starts them again."""
        loop = self.plan.world.loop
        while not self.is_over:
            self.life_count += 1
            who = f"{self.name}.{self.life_count}"
            self._process = Process(who, self.address)
            died = self._died = loop.create_future()
            with self._process.enter():
                life = loop.create_task(self.live(who), name=who)
            await asyncio.wait([life, died], return_when=asyncio.FIRST_COMPLETED)
            if died.done():
                await asyncio.sleep(self.chance.uniform(0.0, 2.0) * self.plan.pace)
            else:
                life.result()

    @abstractmethod
    async def live(self, who: str) -> None:
        """One life, until it is over or has enough."""

    async def pause(self, seconds: float) -> None:
        """Stand still, as a process does that is stopped, or collects garbage for long."""
        loop, process = self.plan.world.loop, self._process
        self.plan.tell(f"{process.name} stands still for {seconds:.2f} s")
        process.state = ProcessState.PAUSED
        loop.call_later(seconds, loop.resume, process, context=Context())
        await asyncio.sleep(0)

    async def die(self) -> NoReturn:
        """Nothing of this process happens any more."""
        self.death_count += 1
        self.plan.tell(f"{self._process.name} dies")
        self._process.state = ProcessState.DEAD
        self.plan.world.network.kill(self._process)
        assert self._died is not None
        self._died.set_result(None)
        await asyncio.sleep(_DYING_S)
        raise AssertionError("the dead do not rise")


class Worker(MortalClient):
    """See the module."""

    def __init__(self, name: str, address: str, plan: ClientPlan, work: WorkerPlan) -> None:
        super().__init__(name, address, plan)
        self._work = work
        self.fenced_count = 0
        self.aborted_count = 0
        self.committed_count = 0
        #: How often it has committed under its own id since this was last set.
        self.own_count = 0
        #: Once set, it does nothing on purpose that could go wrong.
        self.is_careful = False

    def _happens(self, chance: float) -> bool:
        return self.chance.random() < chance and not self.is_careful

    async def live(self, who: str) -> None:
        plan, work, chance = self.plan, self._work, self.chance
        transactional_id = chance.choice(work.workers) if self._happens(work.borrow_chance) else self.name
        producer = Producer(
            transactional_id=transactional_id,
            transaction_timeout_ms=work.transaction_timeout_ms,
            linger_ms=chance.choice((0, 5)),
            batch_size=chance.choice((300, 2000)),
            delivery_timeout_ms=plan.delivery_timeout_ms,
            max_block_ms=round(2000 * plan.pace),
            **{**plan.settings(who), "request_timeout_ms": work.request_timeout_ms},
        )
        consumer: Consumer[Any, Any] = Consumer(
            group_id=GROUP,
            auto_offset_reset="earliest",
            enable_auto_commit=False,
            isolation_level="read_committed",
            session_timeout_ms=round(_SESSION_MS * plan.pace),
            heartbeat_interval_ms=round(600 * plan.pace),
            max_poll_interval_ms=work.max_poll_interval_ms if not self.is_careful else _NO_HURRY_MS,
            max_poll_records=chance.choice((5, 20)),
            partition_assignment_strategy=plan.assignment_strategy,
            **plan.settings(who),
        )
        plan.tell(f"{who} begins as {transactional_id}")
        life = _Life(who, self, producer, consumer, is_own=transactional_id == self.name)
        try:
            await life.use(chance.randint(10, 60))
        except TransactionFatalError as failure:
            self.fenced_count += 1
            plan.tell(f"{who} gives up: {failure}")
        finally:
            await consumer.close(chance.choice((0, 1.0)))
            await self._close(producer, who)

    async def _close(self, producer: Producer, who: str) -> None:
        try:
            await producer.close(2.0)
        except BarnabasError as failure:
            self.plan.tell(f"{who} does not close cleanly: {failure}")

    @property
    def work(self) -> WorkerPlan:
        return self._work

    def happens(self, chance: float) -> bool:
        """Whether something goes wrong, unless it is careful."""
        return self._happens(chance)


class _Life(RebalanceListener):
    """One life of a worker, with its clients."""

    def __init__(
        self, who: str, worker: Worker, producer: Producer, consumer: Consumer[Any, Any], *, is_own: bool
    ) -> None:
        self.who = who
        self._worker = worker
        self._plan = worker.plan
        self._book = worker.work.book
        self._chance = worker.chance
        self._producer = producer
        self._consumer = consumer
        self._is_own = is_own
        self._number = 0
        #: Where the open transaction has begun to read, as far as its partitions are still ours, and where it ends.
        self._starts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, OffsetAndMetadata] = {}
        self._has_lost_partitions = False
        #: The partitions that the open transaction has records in.
        self._written: set[TopicPartition] = set()

    async def use(self, transactions: int) -> None:
        plan, worker = self._plan, self._worker
        await self._patiently(self._producer.init_transactions)
        if worker.is_careful:
            worker.own_count += self._is_own
        self._consumer.subscribe(sorted({each.topic for each in plan.partitions}), listener=self)
        for _ in range(transactions):
            if worker.is_over or (worker.is_careful and not worker.own_count):
                return  # it has to get on, and may have no partition
            try:
                # In the end it must not matter how long a transaction takes.
                records = await self._consumer.poll(_POLL_S, max_records=_MANY if worker.is_careful else None)
            except BarnabasError as failure:
                plan.tell(f"{self.who}: a poll failed: {failure}")
                continue
            if records or worker.chance.random() < 0.2:
                await self._transact(records)

    async def _patiently(self, call: Any, *arguments: Any) -> None:
        """Make a call again while it only takes long."""
        for _ in range(_PATIENCE):
            try:
                await call(*arguments)
            except TransactionTimeoutError as failure:
                self._plan.tell(f"{self.who}: {failure}")
            else:
                return
        raise TransactionFatalError(f"{self.who} has waited long enough")

    # Transactions

    async def _transact(self, records: Sequence[Any]) -> None:
        worker, work = self._worker, self._worker.work
        self._number += 1
        tag = f"{self.who}/{self._number}"
        self._starts, self._ends, self._has_lost_partitions = {}, {}, False
        self._written.clear()
        await self._producer.begin_transaction()
        self._book.begun(tag)
        try:
            await self._compute(tag, records)
            if worker.happens(0.3):
                await self._compute(tag, await self._consumer.poll(0.1))
            await self._sleep_perhaps()
            if worker.happens(work.abort_chance) or self._has_lost_partitions:
                await self._abort(tag, "by itself")
                return
            await self._straggle()
            if self._ends:
                self._book.sent_offsets(tag, {partition: each.offset for partition, each in self._ends.items()})
                metadata = self._consumer.group_metadata()
                await self._patiently(self._producer.send_offsets_to_transaction, dict(self._ends), metadata)
            await self._die_perhaps()
            await self._sleep_perhaps()
            await self._straggle()
            if worker.happens(work.death_chance):
                # In the middle of it: when it dies its request is on the way, or there, or the answer is.
                asyncio.get_running_loop().call_later(
                    self._chance.uniform(0.0, 0.05), lambda: asyncio.ensure_future(worker.die())
                )
            handle = self._handle()
            await self._patiently(self._producer.commit_transaction)
            work.stragglers.ended(handle, is_commit=True)
        except TransactionFatalError:
            raise
        except BarnabasError as failure:
            await self._abort(tag, str(failure))
        else:
            self._book.told(tag, is_committed=True)
            worker.committed_count += 1
            worker.own_count += self._is_own

    async def _compute(self, tag: str, records: Sequence[Any]) -> None:
        """Write what follows from records."""
        outputs = self._worker.work.outputs
        for record in records:
            source = TopicPartition(record.topic, record.partition)
            self._starts.setdefault(source, record.offset)
            end = OffsetAndMetadata(record.offset + 1, metadata=tag, leader_epoch=record.leader_epoch)
            self._ends[source] = end
            key = b"%d/%d" % (source.partition, record.offset % KEYS)
            for copy, partition in enumerate(effects_of(source, record.offset, outputs)):
                effect = Effect(tag, source, record.offset, copy)
                self._book.wrote(partition, effect)
                self._written.add(partition)
                await self._producer.send(partition.topic, effect.encode(), key=key, partition=partition.partition)
            if self._chance.random() < 0.02:
                await self._die_perhaps()

    async def _sleep_perhaps(self) -> None:
        """Meanwhile its transaction may run out of time, or somebody else come with its id."""
        worker = self._worker
        if worker.happens(worker.work.pause_chance):
            await worker.pause(self._chance.uniform(0.3, 1.7) * _SESSION_MS / 1000 * self._plan.pace)
        if worker.happens(worker.work.nap_chance):
            # Long enough for others to be given its partitions, and to get on with them.
            await asyncio.sleep(self._chance.uniform(1.0, 3.0) * self._plan.pace)
        if worker.happens(worker.work.sleep_chance):
            await asyncio.sleep(self._chance.uniform(0.1, 2.0) * self._worker.work.transaction_timeout_ms / 1000)

    def _handle(self) -> TransactionHandle:
        """Of the open transaction."""
        driver = self._producer._parts.transactions
        assert driver is not None
        manager = driver.manager
        return TransactionHandle(
            manager.transactional_id, manager.producer_id, manager.epoch, 2 if manager.is_v2 else 1
        )

    async def _straggle(self) -> None:
        """What was on its way for long arrives now. A coordinator is seldom replaced between decision and markers, so
        what it may have sent always does, where this transaction has records."""
        work = self._worker.work
        if self._worker.happens(work.straggler_chance):
            work.stragglers.end_again(self._handle())
        if self._worker.is_careful or not work.stragglers.has_markers_for(self._handle(), self._written):
            return
        await self._producer.flush()
        await work.stragglers.mark_again(self._handle(), self._written)

    async def _die_perhaps(self) -> None:
        if self._worker.happens(self._worker.work.death_chance):
            await self._worker.die()

    async def _abort(self, tag: str, why: str) -> None:
        self._plan.tell(f"{self.who} aborts {tag}: {why}")
        await self._die_perhaps()
        handle = self._handle()
        await self._patiently(self._producer.abort_transaction)
        self._worker.work.stragglers.ended(handle, is_commit=False)
        self._book.told(tag, is_committed=False)
        self._worker.aborted_count += 1
        for partition, offset in self._starts.items():
            if partition in self._consumer.assignment():
                self._consumer.seek(partition, offset)

    # Rebalances

    def on_partitions_assigned(self, partitions: list[TopicPartition]) -> None:
        self._plan.tell(f"{self.who} is assigned {', '.join(map(str, partitions)) or 'nothing'}")

    def on_partitions_revoked(self, partitions: list[TopicPartition]) -> None:
        """Whoever has them now begins where the group has committed: an open transaction must not tell otherwise."""
        for partition in partitions:
            if self._starts.pop(partition, None) is not None:
                self._has_lost_partitions = True


class IsolatedReader(SimulatedReader):
    """Reads all that workers write from the beginning, again and again: what is committed, or everything."""

    def __init__(self, name: str, address: str, plan: ClientPlan, readers: Readers, *, is_read_committed: bool) -> None:
        super().__init__(name, address, plan)
        self._readers = readers
        self._is_read_committed = is_read_committed
        self._who = ""

    def options(self) -> dict[str, Any]:
        level = "read_committed" if self._is_read_committed else "read_uncommitted"
        return {**super().options(), "isolation_level": level}

    def begins(self, who: str) -> None:
        self._who = who

    def saw(self, who: str, records: Sequence[Any]) -> None:
        for record in records:
            partition = TopicPartition(record.topic, record.partition)
            self._readers.read(who, partition, record.offset, record.value, is_read_committed=self._is_read_committed)

    def behind(self, last_offsets: Mapping[TopicPartition, int]) -> str:
        """Where it has not come to the last record that it must see."""
        for partition, last in last_offsets.items():
            found = self._readers.last_offset(self._who, partition)
            if found < last:
                return f"{self.name} is at {found} of {last} in {partition}"
        return ""
