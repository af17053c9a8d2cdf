"""Requests about transactions that arrive when nobody expects them any more.

A network may hold a request back while its sender gives it up, sends it again and goes on; and a coordinator that was
replaced may have markers on their way. Waiting for that to happen at the right moment takes many seeds. So what was
once asked is asked again from a host of its own, in the middle of a later transaction:

- an EndTxn of an earlier epoch of the same transactional id;
- the markers that a coordinator could have sent whose successor wrote them in its place.

Neither may have any effect. With transactions v1 an EndTxn of the *same* epoch, or a marker of the same coordinator,
cannot be told from one of the next transaction, in Kafka neither: such are not sent.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any, Final, NamedTuple

from barnabas.base.errors import BarnabasError
from barnabas.base.ids import TopicPartition
from barnabas.client.admin import Admin
from barnabas.client.admin.driver import RequestSpec
from barnabas.client.admin.routes import each_leader
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.testing.sim.cluster_clients import ClientPlan, SimulatedClient
from barnabas.testing.sim.replica_log import ReplicaLog, SeenBatch
from barnabas.testing.sim.transaction_log_checker import LoggedState, Status
from barnabas.testing.sim.transaction_watch import ReplicaLogView, states_in
from barnabas.wire.messages.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

__all__ = ["StaleMarker", "Stragglers"]

_LATEST_S: Final = 0.03
_TIMEOUT_S: Final = 3.0
#: How often a marker comes again: to have an effect it must meet an open transaction.
_TIMES: Final = 4


class StaleMarker(NamedTuple):
    """What a coordinator may have sent before another one took over and did the same."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool
    partitions: frozenset[TopicPartition]


class StaleMarkers(ReplicaLogView):
    """Of transactions that one leader of a partition of `__transaction_state` has prepared, and a later one has
    completed; by what lies on the disk of a replica."""

    def __init__(self, log: ReplicaLog) -> None:
        super().__init__(log)
        self.clear()

    def clear(self) -> None:
        self.found: list[StaleMarker] = []
        self._prepared: dict[str, tuple[int, LoggedState]] = {}

    @property
    def undone_count(self) -> int:
        """How many transactions are decided, and not complete."""
        return len(self._prepared)

    def take(self, batch: SeenBatch, content: bytes) -> None:
        for state in states_in(content):
            if state.status is not None and state.status.is_prepared:
                self._prepared[state.transactional_id] = batch.leader_epoch, state
                continue
            coordinator_epoch, before = self._prepared.pop(state.transactional_id, (batch.leader_epoch, state))
            if state.status is not None and state.status.is_complete and coordinator_epoch < batch.leader_epoch:
                self.found.append(
                    StaleMarker(
                        before.producer_id,
                        before.producer_epoch,
                        coordinator_epoch,
                        before.status is Status.PREPARE_COMMIT,
                        before.partitions,
                    )
                )


class Stragglers(SimulatedClient):
    """See the module. `state_logs` are those of the leaders of `__transaction_state`, as they lie on the disks;
    `version` is the level of transaction.version."""

    def __init__(
        self,
        name: str,
        address: str,
        plan: ClientPlan,
        state_logs: Callable[[], Iterable[ReplicaLog]],
        version: int,
    ) -> None:
        super().__init__(name, address, plan)
        self._state_logs = state_logs
        self._views: dict[ReplicaLog, StaleMarkers] = {}
        self._version = version
        self._ended: dict[str, list[tuple[TransactionHandle, bool]]] = {}
        self._sent: Counter[object] = Counter()
        self._tasks: set[asyncio.Task[None]] = set()
        self._admin: _Admin | None = None
        self._over = asyncio.Event()
        self.late_count = 0

    async def use(self) -> None:
        await self._over.wait()
        if self._tasks:
            await asyncio.wait(self._tasks)
        if self._admin is not None:
            await self._admin.close()

    async def end(self) -> None:
        self._over.set()
        await super().end()

    # What workers tell

    def ended(self, handle: TransactionHandle, *, is_commit: bool) -> None:
        """A transaction was ended so."""
        self._ended.setdefault(handle.transactional_id, []).append((handle, is_commit))

    def end_again(self, current: TransactionHandle) -> None:
        """Now a request arrives that once ended an earlier transaction of this id."""
        earlier = [
            each
            for each in self._ended.get(current.transactional_id, ())
            # Not a later one: somebody else may have the id by now.
            if each[0].producer_id == current.producer_id and each[0].producer_epoch < current.producer_epoch
        ]
        if earlier:
            handle, is_commit = earlier[-1] if self.chance.random() < 0.7 else self.chance.choice(earlier)
            what = f"an EndTxn ({'commit' if is_commit else 'abort'}) of {handle} arrives late"
            self._later(what, lambda admin: admin.end_transaction(handle, commit=is_commit, timeout=_TIMEOUT_S))

    def has_markers_for(self, current: TransactionHandle, partitions: Iterable[TopicPartition]) -> bool:
        return bool(self._stale(current, partitions))

    async def mark_again(self, current: TransactionHandle, partitions: Iterable[TopicPartition]) -> None:
        """Now the markers of a former coordinator arrive where this producer writes; returns when they are there."""
        found = self._stale(current, partitions)
        self._sent.update(found)
        tasks = [self._mark(stale, partition) for stale, partition in found]
        if tasks:
            await asyncio.wait(tasks)

    def _stale(
        self, current: TransactionHandle, partitions: Iterable[TopicPartition]
    ) -> list[tuple[StaleMarker, TopicPartition]]:
        wanted = set(partitions)
        found = []
        for log in self._state_logs():
            view = self._views.get(log)
            if view is None:
                view = self._views[log] = StaleMarkers(log)
            view.refresh()
            for stale in view.found:
                if (stale.producer_id, stale.producer_epoch) == (current.producer_id, current.producer_epoch):
                    found += [(stale, each) for each in sorted(stale.partitions & wanted)]
        return [each for each in found if self._sent[each] < _TIMES]

    def _mark(self, stale: StaleMarker, partition: TopicPartition) -> asyncio.Task[None]:
        what = f"a marker of a former coordinator arrives late in {partition}: {stale}"
        return self._later(what, lambda admin: admin.write_marker(stale, partition, self._version))

    def _later(self, what: str, send: Callable[[_Admin], Any]) -> asyncio.Task[None]:
        with self._process.enter():
            task = self.plan.world.loop.create_task(self._send(what, send), name=f"{self.name}: {what}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _send(self, what: str, send: Callable[[_Admin], Any]) -> None:
        if self._admin is None:
            self._admin = _Admin(**self.plan.settings(self.name))
        await asyncio.sleep(self.chance.uniform(0.0, _LATEST_S))
        self.late_count += 1
        try:
            await send(self._admin)
        except BarnabasError as failure:
            self.plan.tell(f"{what}, in vain: {failure}")
        else:
            self.plan.tell(what)


class _Admin(Admin):
    async def write_marker(self, stale: StaleMarker, partition: TopicPartition, version: int) -> None:
        call = await self._driver.begin("write_marker", _TIMEOUT_S)
        marker = WritableTxnMarker(
            producer_id=stale.producer_id,
            producer_epoch=stale.producer_epoch,
            transaction_result=stale.is_commit,
            topics=[WritableTxnMarkerTopic(name=partition.topic, partition_indexes=[partition.partition])],
            coordinator_epoch=stale.coordinator_epoch,
            transaction_version=version,
        )

        def build(_: RequestSpec[TopicPartition]) -> WriteTxnMarkersRequest:
            return WriteTxnMarkersRequest(markers=[marker])

        def read(
            _: RequestSpec[TopicPartition], response: WriteTxnMarkersResponse
        ) -> Iterable[tuple[TopicPartition, Exception | None]]:
            code = response.markers[0].topics[0].partitions[0].error_code
            yield partition, BarnabasError(f"error {code}") if code else None

        await self._driver.ask_each(call, [partition], each_leader(), WriteTxnMarkersRequest, build, read)
