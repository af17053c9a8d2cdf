"""Groups and transactions that this node coordinates."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.metrics.exposition import Exposition, Family, labels
from barnabas.broker.coordinators.coordinator_service import CoordinatorService
from barnabas.broker.metrics.naming import of_mbean, own
from barnabas.broker.metrics.sources import NodeParts
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.transactions.states import TransactionState

_GROUPS: Final = "kafka.coordinator.group:type=GroupMetadataManager,name="
_METRICS: Final = "kafka.server:type=group-coordinator-metrics"
_PER_STEP: Final = 100


def _groups(name: str, text: str) -> Family:
    return of_mbean(f"{_GROUPS}{name}", "gauge", text)


NUM_GROUPS: Final = _groups("NumGroups", "Groups that this node coordinates.")
NUM_OFFSETS: Final = _groups("NumOffsets", "Offsets that they have committed.")
BY_STATE: Final = {
    ClassicGroupState.PREPARING_REBALANCE: _groups("NumGroupsPreparingRebalance", "Groups that wait for members."),
    ClassicGroupState.COMPLETING_REBALANCE: _groups(
        "NumGroupsCompletingRebalance", "Groups that wait for what their leader assigns."
    ),
    ClassicGroupState.STABLE: _groups("NumGroupsStable", "Groups at work."),
    ClassicGroupState.DEAD: _groups("NumGroupsDead", "Groups that are about to be forgotten."),
    ClassicGroupState.EMPTY: _groups("NumGroupsEmpty", "Groups without members."),
}
BY_PROTOCOL: Final = of_mbean(f"{_METRICS},protocol=classic#group-count", "gauge", "Groups by their protocol.")
GROUP_SHARDS: Final = of_mbean(
    f"{_METRICS},state=active#num-partitions", "gauge", "Partitions of __consumer_offsets that are coordinated here."
)
MEMBERS: Final = own("group_members", "gauge", "Members of a group.")

TRANSACTION_SHARDS: Final = own(
    "transaction_coordinator_partitions", "gauge", "Partitions of __transaction_state that are coordinated here."
)
TRANSACTIONAL_IDS: Final = own("transactional_ids", "gauge", "Transactional ids by the state of their transaction.")
OPEN: Final = own("transactions_open", "gauge", "Open transactions that are at least so old, in seconds.")
OLDEST: Final = own("transactions_open_oldest_seconds", "gauge", "How long the oldest of them has been open.")
FAMILIES: Final = (
    *(NUM_GROUPS, NUM_OFFSETS, *BY_STATE.values(), BY_PROTOCOL, GROUP_SHARDS, MEMBERS),
    *(TRANSACTION_SHARDS, TRANSACTIONAL_IDS, OPEN, OLDEST),
)
_AGES_S: Final = (0, 10, 60, 300, 900, 3600)
_OPEN_STATES: Final = (TransactionState.ONGOING, TransactionState.PREPARE_COMMIT, TransactionState.PREPARE_ABORT)


def collect(parts: NodeParts, out: Exposition) -> Iterator[None]:
    services = parts.services
    if services is None:
        return
    yield from _collect_groups(parts, out)
    yield from _collect_transactions(parts, out)


def _shard_states(service: CoordinatorService[Any], family: Family, out: Exposition) -> None:
    counts = Counter(
        {ErrorCode.NONE: "active", ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: "loading"}.get(error, "failed")
        for error in service.shard_errors
    )
    for state in ("active", "loading", "failed"):
        out.add(family, counts[state], labels(state=state))


def _collect_groups(parts: NodeParts, out: Exposition) -> Iterator[None]:
    services = parts.services
    assert services is not None
    states: Counter[ClassicGroupState] = Counter()
    groups = offsets = 0
    _shard_states(services.groups, GROUP_SHARDS, out)
    for shard in services.groups.shards:
        for number, group_id in enumerate(shard.groups.ids()):
            if number % _PER_STEP == 0:
                yield
            group = shard.groups.peek(group_id)
            if group is None:
                continue
            groups += 1
            states[group.state] += 1
            offsets += len(shard.offsets.committed(group_id))
            out.add(MEMBERS, len(group.members), labels(group=group_id))
    out.add(NUM_GROUPS, groups)
    out.add(NUM_OFFSETS, offsets)
    for state, family in BY_STATE.items():
        out.add(family, states[state])
    out.add(BY_PROTOCOL, groups, labels(protocol="classic"))


def _collect_transactions(parts: NodeParts, out: Exposition) -> Iterator[None]:
    services = parts.services
    assert services is not None
    now_ms = parts.runtime.clock.now_ms()
    states: Counter[TransactionState] = Counter()
    ages_s: list[float] = []
    _shard_states(services.transactions, TRANSACTION_SHARDS, out)
    for shard in services.transactions.shards:
        # A list: while others have a turn, transactional ids come and go.
        for number, metadata in enumerate(list(shard.stored.latest().values())):
            if number % (10 * _PER_STEP) == 0:
                yield
            states[metadata.state] += 1
            if metadata.state in _OPEN_STATES and metadata.start_ms >= 0:
                ages_s.append(max(0, now_ms - metadata.start_ms) / 1000)
    for state in TransactionState:
        out.add(TRANSACTIONAL_IDS, states[state], labels(state=state.value))
    for limit_s in _AGES_S:
        out.add(OPEN, sum(age_s >= limit_s for age_s in ages_s), labels(older_than=limit_s))
    out.add(OLDEST, max(ages_s, default=0.0))
    yield
