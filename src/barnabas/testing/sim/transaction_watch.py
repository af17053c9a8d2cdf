"""What comes first in a transaction, looked at while it happens, on the disks of all replicas.

- A marker is there only if the record that decides it is on as many replicas of `__transaction_state` as must be in
  sync; else a failure now could have it decided otherwise.
- A record that says that a transaction is complete is there only if all its markers are on as many replicas of their
  partitions; else nobody would ever write them again.
- Whoever leads a partition has the last stable offset where its log says, as far as it is committed. As in Kafka, a
  replica that was started again, or has cut its log, does not know any more which markers were not committed then.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from itertools import islice
from typing import Final

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import TopicPartition
from barnabas.records.batch import BatchView, iter_batches
from barnabas.records.control import read_marker
from barnabas.replication.leader_state import LeaderState
from barnabas.storage.log import PartitionLog
from barnabas.testing.sim.replica_checker import replica_of
from barnabas.testing.sim.replica_log import HEADER_BYTES, ReplicaLog, SeenBatch
from barnabas.testing.sim.transaction_checker import Break, TransactionInvariant
from barnabas.testing.sim.transaction_history import LoggedRecord, Outcome
from barnabas.testing.sim.transaction_log_checker import Decision, LoggedState, decisions_of, states_of
from barnabas.testing.sim.world import SimulatedNode

__all__ = ["MarkerView", "ReplicaLogView", "StateView", "TransactionWatch", "states_in"]

#: Ended transactions whose markers may not be committed yet are among the newest.
_REMEMBERED: Final = 200


class ReplicaLogView:
    """What was taken from the log of one replica, batch by batch; from its beginning again if it was cut."""

    def __init__(self, log: ReplicaLog) -> None:
        self.log = log
        self._taken = 0
        self._last = b""

    def refresh(self) -> None:
        log = self.log
        log.refresh()
        batches = log.batches
        if self._taken > len(batches) or (self._taken and batches[self._taken - 1].header != self._last):
            self._taken = 0
            self.clear()
        if self._taken == len(batches):
            return
        for batch in islice(batches, self._taken, None):
            content = log.content(batch)
            if content[:HEADER_BYTES] != batch.header:
                return  # power was lost over it, and the node will cut it off
            try:
                self.take(batch, content)
            except RemoteProtocolError:
                return
            self._taken, self._last = self._taken + 1, batch.header

    def clear(self) -> None:
        """Begin anew."""
        raise NotImplementedError

    def take(self, batch: SeenBatch, content: bytes) -> None:
        raise NotImplementedError


def _view(content: bytes) -> BatchView:
    for batch in iter_batches(content):
        return batch
    raise RemoteProtocolError("of the batch a power loss has left less than all")


def states_in(content: bytes) -> list[LoggedState]:
    """What a batch of `__transaction_state` says."""
    return states_of(
        LoggedRecord(each.offset, each.key, each.value, -1, -1, Outcome.PLAIN) for each in _view(content).records()
    )


class StateView(ReplicaLogView):
    """A replica of a partition of `__transaction_state`."""

    def __init__(self, log: ReplicaLog) -> None:
        super().__init__(log)
        self.clear()

    def clear(self) -> None:
        self.decided: Counter[Decision] = Counter()
        self._prepared: dict[str, list[Decision]] = {}
        #: Transactions that are said to be complete, and were not looked at, with their decisions and how often each
        #: was made by then.
        self.completed: list[tuple[LoggedState, Mapping[Decision, int]]] = []

    def take(self, batch: SeenBatch, content: bytes) -> None:
        for state in states_in(content):
            decisions = decisions_of(state)
            if state.status is not None and state.status.is_prepared:
                self.decided.update(decisions)
                self._prepared[state.transactional_id] = decisions
            elif state.status is not None and state.status.is_complete:
                wanted = self._prepared.pop(state.transactional_id, [])
                self.completed.append((state, {each: self.decided[each] for each in wanted}))


class MarkerView(ReplicaLogView):
    """A replica of a partition with transactions in it."""

    def __init__(self, partition: TopicPartition, log: ReplicaLog) -> None:
        super().__init__(log)
        self._partition = partition
        self.clear()

    def clear(self) -> None:
        self.found: Counter[Decision] = Counter()
        self.ended: Counter[Decision] = Counter()
        #: Decisions of which there are more since they were last looked at.
        self.news: set[Decision] = set()
        self._open: dict[int, int] = {}
        self._ended_at: dict[int, int] = {}

    def take(self, batch: SeenBatch, content: bytes) -> None:
        if not batch.is_transactional:
            return
        if not batch.is_control:
            self._open.setdefault(batch.producer_id, batch.base_offset)
            return
        marker = read_marker(_view(content))
        if marker is None:
            return
        decision = Decision(self._partition, marker.producer_id, marker.producer_epoch, marker.committed)
        self.found[decision] += 1
        first_offset = self._open.pop(marker.producer_id, None)
        if first_offset is not None:
            self.ended[decision] += 1
            self.news.add(decision)
            self._ended_at[first_offset] = batch.base_offset
            if len(self._ended_at) > _REMEMBERED:
                del self._ended_at[next(iter(self._ended_at))]

    def last_stable_offset(self, high_watermark: int, known_offset: int = 0) -> int:
        """Where the first transaction begins that is not decided below the high watermark. Of markers below
        `known_offset` it does not matter."""
        first_marker = max(high_watermark, known_offset)
        undecided = [first for first, marker in self._ended_at.items() if marker >= first_marker]
        return min([high_watermark, *self._open.values(), *undecided])


class TransactionWatch:
    """See the module.

    - `promised`: the partitions with transactions in them, and those of `__transaction_state`, with how many replicas
      must be in sync.
    - `log_of`: the log of a replica, by its node, as it lies on the disk.
    - `lost`: the hosts that have lost power, and are not back in sync.
    """

    def __init__(
        self,
        brokers: Sequence[SimulatedNode],
        promised: Mapping[TopicPartition, int],
        state_partitions: Sequence[TopicPartition],
        log_of: Callable[[int, TopicPartition], ReplicaLog],
        lost: Callable[[], set[str]],
        break_: Break,
    ) -> None:
        self._brokers = brokers
        self._hosts = {each.settings.node_id: each.host.address for each in brokers}
        self._min_isr = min(promised.values())
        self._lost = lost
        self._break = break_
        #: The log of each leader, with its end when it was first seen.
        self._opened: dict[tuple[int, TopicPartition], tuple[PartitionLog, int]] = {}
        self._states = {
            name: {node_id: StateView(log_of(node_id, name)) for node_id in self._hosts} for name in state_partitions
        }
        self._markers = {
            name: {node_id: MarkerView(name, log_of(node_id, name)) for node_id in self._hosts}
            for name in promised
            if name not in self._states
        }

    def look(self) -> None:
        for replicas in self._states.values():
            for state_view in replicas.values():
                state_view.refresh()
        for views in self._markers.values():
            for view in views.values():
                view.refresh()
        lost_count = len(self._lost())
        self._look_at_completed(self._min_isr - lost_count)
        self._look_at_markers(self._min_isr - lost_count)
        for name, views in self._markers.items():
            self._look_at_leader(name, views)

    def _look_at_completed(self, wanted: int) -> None:
        for views in self._states.values():
            for node_id, view in views.items():
                completed, view.completed = view.completed, []
                for state, decisions in completed:
                    for decision, times in decisions.items():
                        marked = self._markers.get(decision.partition, {})
                        if sum(each.found[decision] >= times for each in marked.values()) < wanted:
                            self._break(
                                TransactionInvariant.COMPLETE_LAST,
                                f"node {node_id} has {state}; too few replicas have a marker for the {decision}",
                            )

    def _look_at_markers(self, wanted: int) -> None:
        for views in self._markers.values():
            for node_id, view in views.items():
                news, view.news = view.news, set()
                for decision in sorted(news):
                    times = view.ended[decision]
                    has_it = [
                        sum(each.decided[decision] >= times for each in replicas.values())
                        for replicas in self._states.values()
                    ]
                    if max(has_it) < wanted:
                        self._break(
                            TransactionInvariant.DECIDED_FIRST,
                            f"node {node_id} has a marker for the {decision}; only {max(has_it)} replicas of "
                            "__transaction_state have that decision",
                        )

    def cut(self, address: str) -> None:
        """A log of this host was cut, and what is known of transactions was read again."""
        self._opened = {key: each for key, each in self._opened.items() if self._hosts[key[0]] != address}

    def _look_at_leader(self, name: TopicPartition, views: Mapping[int, MarkerView]) -> None:
        for node_id, log in self._led(name).items():
            key, view = (node_id, name), views[node_id]
            if self._opened.get(key, (None, 0))[0] is not log:
                self._opened[key] = log, view.log.end_offset
            wanted = view.last_stable_offset(log.high_watermark)
            most = view.last_stable_offset(log.high_watermark, self._opened[key][1])
            if not wanted <= log.last_stable_offset <= most:
                self._break(
                    TransactionInvariant.LAST_STABLE,
                    f"{name}: node {node_id}, which leads, has {log.last_stable_offset}; by its log it is {wanted} "
                    f"with the high watermark {log.high_watermark}",
                )

    def _led(self, name: TopicPartition) -> dict[int, PartitionLog]:
        """The logs of those who think that they lead a partition, by their nodes."""
        found = {member.settings.node_id: replica_of(member, name) for member in self._brokers}
        return {
            node_id: each.log
            for node_id, each in found.items()
            if each is not None and each.log is not None and isinstance(each.role, LeaderState)
        }

    # At the end

    def hanging(self) -> str:
        """Which partition has transactions that are not over; empty if none has."""
        for name in self._markers:
            for log in self._led(name).values():
                if log.last_stable_offset < log.high_watermark:
                    return f"{name} is stable up to {log.last_stable_offset}, and committed up to {log.high_watermark}"
        return ""
