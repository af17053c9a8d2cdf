"""This broker proposes to the controller who is in sync where it leads (Kafka's AlterPartitionManager).

One request is under way at a time; what comes up meanwhile goes with the next one, all partitions together. A proposal
is sent again until it is decided, or until newer metadata has ended it: whether a request that was not answered had
effect cannot be known, and the leader counts with both until then.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple, cast

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.log_context import logger
from barnabas.base.runtime import Clock
from barnabas.broker.controller.controller_channel import ControllerChannel, broker_caller
from barnabas.broker.services import MetadataCache
from barnabas.broker.told_names import MOST_LINES, names_text
from barnabas.metadata.image import BrokerImage
from barnabas.replication.isr import AlteredPartition, PendingExpandIsr, PendingPartitionChange, PendingShrinkIsr
from barnabas.replication.leader_state import LeaderState
from barnabas.wire.apis import ApiKey, api
from barnabas.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    PartitionResult,
    TopicData,
)

_log = logger("barnabas.broker")

#: How soon what was not decided is sent again.
_RETRY_MS: Final = 50


class BrokerLeaderPorts:
    """The `LeaderPorts` of a broker."""

    __slots__ = ("_epoch", "_metadata", "monotonic_ms", "replica_lag_time_max_ms", "submit")

    def __init__(
        self,
        metadata: MetadataCache,
        clock: Clock,
        epoch: Callable[[], int],
        replica_lag_time_max_ms: int,
        submit: Callable[[LeaderState, PendingPartitionChange], None],
    ) -> None:
        self._metadata = metadata
        self._epoch = epoch
        self.monotonic_ms = clock.monotonic_ms
        self.replica_lag_time_max_ms = replica_lag_time_max_ms
        self.submit = submit

    @property
    def broker_epoch(self) -> int:
        return self._epoch()

    def broker(self, broker_id: int) -> BrokerImage | None:
        return self._metadata.image.brokers.get(broker_id)


class _Unsettled(NamedTuple):
    """A proposal that the controller has not decided yet."""

    leader: LeaderState
    change: PendingPartitionChange

    @property
    def is_open(self) -> bool:
        return not self.leader.is_over and self.leader.isr_state is self.change


class _Joined(NamedTuple):
    """A partition in whose ISR the controller has taken a follower."""

    name: str
    reason: str
    version: int


class AlterPartitionManager:
    """`epoch` is this broker's; -1 until it is registered."""

    def __init__(self, controller: ControllerChannel, node_id: int, epoch: Callable[[], int]) -> None:
        self._controller = controller
        self._node_id = node_id
        self._caller = broker_caller(node_id)
        self._epoch = epoch
        # One for each partition: what a leader proposes in a later epoch takes the place of what it did before.
        self._unsettled: dict[TopicPartition, _Unsettled] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_over = False
        #: What the controller has accepted, and what it refused.
        self.expanded_count = self.shrunk_count = self.failed_count = 0

    def submit(self, leader: LeaderState, change: PendingPartitionChange) -> None:
        """Take a proposal to the controller, with all others that are made by then."""
        _tell_proposal(leader, change)
        self._unsettled[leader.partition.name] = _Unsettled(leader, change)
        if self._task is None and not self._is_over:
            self._task = asyncio.get_running_loop().create_task(self._settle_all(), name="alter partitions")

    async def _settle_all(self) -> None:
        try:
            while self._unsettled:
                try:
                    is_settled = await self._settle_some()
                except Exception:
                    # Whatever it was: without this no ISR would ever change again.
                    _log.exception("changes of ISRs could not be sent")
                    is_settled = False
                if not is_settled:
                    await asyncio.sleep(_RETRY_MS / 1000)
        finally:
            self._task = None

    async def _settle_some(self) -> bool:
        """Send what is open; false if some of it should be sent again after a while."""
        for name in [name for name, each in self._unsettled.items() if not each.is_open]:
            del self._unsettled[name]
        sent = dict(self._unsettled)
        epoch = self._epoch()
        if not sent:
            return True
        if epoch < 0:
            return False
        request = AlterPartitionRequest(broker_id=self._node_id, broker_epoch=epoch, topics=_by_topic(sent.values()))
        try:
            version = api(ApiKey.ALTER_PARTITION).served.high
            response = cast(AlterPartitionResponse, await self._controller.submit(request, version, self._caller))
            if response.error_code:
                raise BrokerError(ErrorCode.of(response.error_code))
        except BarnabasError as refusal:
            _log.warning("the controller has not decided on %d changes of ISRs, retrying: %s", len(sent), refusal)
            return False
        return self._take_results(sent, response)

    def _take_results(self, sent: dict[TopicPartition, _Unsettled], response: AlterPartitionResponse) -> bool:
        results = {
            (topic.topic_id, result.partition_index): result for topic in response.topics for result in topic.partitions
        }
        is_settled = True
        joined: list[_Joined] = []
        for name, unsettled in sent.items():
            result = results.get((unsettled.leader.partition.topic_id, name.partition))
            if result is None:
                _log.warning("%s was sent but not included in the answer to AlterPartition", name)
            elif not self._take(unsettled, result, joined):
                if self._unsettled.get(name) is unsettled:
                    del self._unsettled[name]
                continue
            is_settled = False
        for line in joined_lines(joined):
            _log.info("%s", line)
        return is_settled

    def _take(self, unsettled: _Unsettled, result: PartitionResult, joined: list[_Joined]) -> bool:
        if result.error_code:
            self.failed_count += 1
        elif isinstance(unsettled.change, PendingShrinkIsr):
            self.shrunk_count += 1
        else:
            self.expanded_count += 1
        return _take(unsettled, result, joined)

    async def stop(self) -> None:
        self._is_over = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)


def _by_topic(unsettled: Iterable[_Unsettled]) -> list[TopicData]:
    topics: dict[Uuid, list[PartitionData]] = {}
    for leader, change in unsettled:
        proposal = change.proposal
        topics.setdefault(leader.partition.topic_id, []).append(
            PartitionData(
                partition_index=leader.partition.name.partition,
                leader_epoch=proposal.leader_epoch,
                new_isr_with_epochs=[BrokerState(broker_id=each, broker_epoch=epoch) for each, epoch in proposal.isr],
                leader_recovery_state=proposal.leader_recovery_state,
                partition_epoch=proposal.partition_epoch,
            )
        )
    return [TopicData(topic_id=topic_id, partitions=partitions) for topic_id, partitions in topics.items()]


def _take(unsettled: _Unsettled, result: PartitionResult, joined: list[_Joined]) -> bool:
    """Tell the leader what has become of its proposal; true if it should be sent again. Who joined is told later, all
    together: a broker that comes back joins many at a time."""
    leader, change = unsettled
    name = leader.partition.name
    if result.error_code:
        code = ErrorCode.of(result.error_code)
        is_again = leader.refused(change, code)
        _log.log(
            logging.WARNING if is_again else logging.INFO,
            "%s: failed to alter the ISR from %s to %s: %s%s",
            name,
            _listed(change.isr),
            _listed(each for each, _ in change.proposal.isr),
            code.text,
            "; retrying" if is_again else "",
        )
        return is_again
    outcome = AlteredPartition(
        tuple(result.isr), result.leader_recovery_state, result.leader_epoch, result.partition_epoch
    )
    if leader.altered(change, outcome):
        under = " (under-min-isr)" if leader.is_under_min_isr else ""
        isr = f"{_listed(leader.isr)}{under}"
        if isinstance(change, PendingExpandIsr):
            text = f"broker {change.new_in_sync_replica} has caught up, and is in sync"
            reason = f"{text} (ISR {_listed(change.isr)} -> {isr})"
            joined.append(_Joined(str(name), reason, leader.partition_epoch))
        else:
            _log.info("%s: ISR updated to %s and version updated to %d", name, isr, leader.partition_epoch)
    return False


def joined_lines(joined: Sequence[_Joined]) -> list[str]:
    """A line for each of a few partitions; for more of them one for each reason."""
    if len(joined) <= MOST_LINES:
        return [f"{each.name}: {each.reason}; version {each.version}" for each in joined]
    by_reason: dict[str, list[str]] = {}
    for each in joined:
        by_reason.setdefault(each.reason, []).append(each.name)
    return [
        f"{len(names):,} partition{'' if len(names) == 1 else 's'}: {reason}: {names_text(names)}"
        for reason, names in by_reason.items()
    ]


def _tell_proposal(leader: LeaderState, change: PendingPartitionChange) -> None:
    if not isinstance(change, PendingShrinkIsr):
        return
    now_ms = leader.partition.ports.monotonic_ms()
    behind = []
    for broker_id in change.out_of_sync_replicas:
        known = leader.followers.get(broker_id)
        if known is None:
            behind.append(f"(brokerId: {broker_id}, endOffset: unknown)")
        else:
            since_ms = now_ms - known.last_caught_up_ms
            behind.append(f"(brokerId: {broker_id}, endOffset: {known.log_end_offset}, caught up {since_ms} ms ago)")
    _log.info(
        "%s: Shrinking ISR from %s to %s. Leader: (highWatermark: %d, endOffset: %d). Out of sync replicas: %s.",
        leader.partition.name,
        _listed(change.isr),
        _listed(each for each, _ in change.proposal.isr),
        leader.log.high_watermark,
        leader.log.log_end_offset,
        " ".join(behind),
    )


def _listed(brokers: Iterable[int]) -> str:
    return ",".join(map(str, brokers))
