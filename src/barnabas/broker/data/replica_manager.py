"""The partitions that this node has a replica of: made, changed and deleted as the metadata log says.

Each is found by the name and by the id of its topic. What goes wrong with a log ends up here: a failed disk takes its
partitions offline, a corrupt log only itself, and both answer with an error from then on. Requests that wait for
partitions are in the purgatories.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, RemoteProtocolError, SettingsError
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.log_context import logger
from barnabas.base.runtime import Runtime
from barnabas.broker.data.replica_fetcher_manager import ReplicaFetcherManager
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import LOST_DIRECTORY, NO_LEADER, ClusterImage, ConfigResourceType, PartitionImage
from barnabas.records.batch import BatchView
from barnabas.records.legacy import LegacyMessage
from barnabas.records.reading import iter_entries
from barnabas.replication.fetch_sessions import PartitionKey
from barnabas.replication.leader_state import LeaderState
from barnabas.replication.partition import Partition
from barnabas.replication.ports import LeaderPorts
from barnabas.replication.purgatory import DelayedProduce, Purgatory
from barnabas.replication.roles import PartitionError
from barnabas.replication.topic_meters import TopicMeters
from barnabas.replication.verification import VerificationGuard
from barnabas.storage.errors import CorruptLogError, LogDirectoryError, LogError, PassingError
from barnabas.storage.log import PartitionLog
from barnabas.storage.manager import LogManager
from barnabas.storage.segment import FileRange
from barnabas.storage.settings import TopicSettings
from barnabas.storage.validation import Buffer, prepare_from_coordinator

if TYPE_CHECKING:
    from barnabas.broker.data.deleting import DeleteRecords
    from barnabas.broker.data.fetching import Fetch
    from barnabas.broker.data.waiting_produce import WaitingProduce

_log = logger("barnabas.broker")

#: How long after this node others learn from the metadata log who leads: nearly all, and those that were busy.
_FOLLOWERS_LEARN_S: Final = (0.03, 0.15)

#: How long somebody waits at a time who has all the time that it takes.
_PATIENCE_MS: Final = 60_000


class ReplicaManager:
    """All partitions of this node. `settings_of` tells the effective settings of a topic under an image."""

    def __init__(
        self,
        node_id: int,
        logs: LogManager,
        settings_of: Callable[[ClusterImage, str], TopicSettings],
        leader_ports: LeaderPorts | None = None,
    ) -> None:
        self._node_id = node_id
        self._leader_ports = leader_ports
        self._logs = logs
        self._settings_of = settings_of
        #: By (name, number) and by (id, number): requests know a topic by one or the other.
        self.index: dict[PartitionKey, Partition] = {}
        self._by_name: dict[TopicPartition, Partition] = {}
        #: What is written to topics, and read from them.
        self.topic_meters = TopicMeters()
        # An ordered set: those whose logs could not be made, or not opened, for a reason that passes.
        self._without_room: dict[TopicPartition, None] = {}
        self.produce_purgatory: Purgatory[WaitingProduce[Any]] = Purgatory()
        self.fetch_purgatory: Purgatory[Fetch] = Purgatory()
        self.delete_records_purgatory: Purgatory[DeleteRecords] = Purgatory()
        #: Who fetches what other nodes lead; None where nothing is followed.
        self.fetchers: ReplicaFetcherManager | None = None
        #: Told of each partition whose log turned out to be corrupt while the node runs.
        self.on_corrupt: Callable[[TopicPartition], None] = lambda name: None
        self._calls_of_followers = 0
        #: `transaction.partition.verification.enable` of the moment.
        self.must_be_verified: Callable[[], bool] = lambda: True
        logs.on_offline = self._take_offline

    def close_purgatories(self) -> None:
        """The node stops: who waits for partitions is answered, and from now on nobody waits."""
        self.fetch_purgatory.close()
        self.produce_purgatory.close()
        self.delete_records_purgatory.close()

    # Finding

    def get(self, name: TopicPartition) -> Partition | None:
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid, partition: int) -> Partition | None:
        return self.index.get((topic_id, partition))

    @property
    def all(self) -> list[Partition]:
        return list(self._by_name.values())

    @property
    def without_room(self) -> tuple[TopicPartition, ...]:
        """Partitions that have no log since the disk was full. They get one if an image is applied to them again, when
        that has passed; nothing else would bring it about, since for the metadata log all is as it should be."""
        return tuple(self._without_room)

    def why_missing(self, image: ClusterImage, key: PartitionKey) -> ErrorCode:
        """Why a partition is not in `index`: nobody has it, or others do."""
        topic, number = key
        if isinstance(topic, Uuid):
            known = image.topic_by_id(topic)
            if known is None:
                return ErrorCode.UNKNOWN_TOPIC_ID
        else:
            known = image.topics.get(topic)
        if known is None or not 0 <= number < len(known.partitions):
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return ErrorCode.NOT_LEADER_OR_FOLLOWER

    def _existing(self, name: TopicPartition) -> Partition:
        partition = self._by_name.get(name)
        if partition is None:
            raise PartitionError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{name} has no replica on node {self._node_id}")
        return partition

    # Following the metadata log

    async def prepare(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Do away from the event loop what `apply` would do on it: delete logs, and make new ones. May be left out."""
        leaving = self._leaving(image, delta)
        if leaving:
            for partition in leaving.values():
                self._forget(partition)
            await self._logs.delete_many(leaving)
        missing = []
        for name in delta.partitions_changed:
            state, topic = image.partition(*name), image.topics.get(name.topic)
            if state is not None and topic is not None and self._node_id in state.replicas and self._may_make(name):
                missing.append((name, topic.topic_id))
        if missing:
            await self._logs.create_many(missing)

    def _may_make(self, name: TopicPartition) -> bool:
        try:
            return self._logs.get(name) is None
        except LogError:
            return False

    def apply(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Bring the partitions to the state of `image`, of which `delta` says what is new."""
        leaving = self._leaving(image, delta)
        for partition in leaving.values():
            self._forget(partition)
        self._logs.delete(*leaving)
        for name in delta.partitions_changed:
            self._update(image, name)
        self._apply_settings(image, delta)
        self._follow(image, delta)

    def _follow(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Fetch what others lead from whoever leads it now."""
        fetchers = self.fetchers
        if fetchers is None:
            return
        fetchers.update_brokers(image, delta.brokers_changed)
        for name in delta.partitions_changed:
            partition = self._by_name.get(name)
            if partition is not None:
                fetchers.update(partition)
        fetchers.stop_idle()

    def _leaving(self, image: ClusterImage, delta: ClusterDelta) -> dict[TopicPartition, Partition]:
        """Partitions that are not this node's any more, perhaps because another topic has taken their name."""
        found = [
            self.index.get((each.topic_id, number))
            for each in delta.topics_deleted
            for number in range(len(each.partitions))
        ]
        for name in delta.partitions_changed:
            partition, topic, state = self._by_name.get(name), image.topics.get(name.topic), image.partition(*name)
            is_same = partition is not None and topic is not None and partition.topic_id == topic.topic_id
            if not is_same or state is None or self._node_id not in state.replicas:
                found.append(partition)
        return {partition.name: partition for partition in found if partition is not None}

    def _update(self, image: ClusterImage, name: TopicPartition) -> None:
        state, topic = image.partition(*name), image.topics.get(name.topic)
        if state is None or topic is None or self._node_id not in state.replicas:
            return
        partition = self._by_name.get(name)
        role = None if partition is None else partition.role
        if partition is None:
            meter = self.topic_meters.of(name.topic)
            partition = Partition(name, topic.topic_id, self._node_id, self._leader_ports, meter)
            self._by_name[name] = partition
            self.index[name] = self.index[topic.topic_id, name.partition] = partition
            self._attach_log(image, partition)
        elif name in self._without_room:
            self._attach_log(image, partition)
        if partition.log is None and self._may_fetch_again(name, state):
            self._logs.set_aside(
                name, what=f"{name} is damaged here, node {state.leader} has it; it is fetched anew, and"
            )
            self._attach_log(image, partition)
        partition.update(state)
        if partition.role is not role and isinstance(partition.role, LeaderState) and len(state.replicas) > 1:
            self._call_followers_soon()

    def _call_followers_soon(self) -> None:
        """Followers that wait here for news of other partitions are to ask for the one that this node begins to lead.

        They know of it by now, or will in a moment; but a fetch that waits does not name it, and would keep everybody
        who writes there waiting for up to `replica.fetch.wait.max.ms`.
        """
        if not self._calls_of_followers and self.fetchers is not None:
            loop = asyncio.get_running_loop()
            for delay_s in _FOLLOWERS_LEARN_S:
                self._calls_of_followers += 1
                loop.call_later(delay_s, self._call_followers)

    def _call_followers(self) -> None:
        self._calls_of_followers -= 1
        for fetch in self.fetch_purgatory:
            if fetch.is_of_follower:
                fetch.complete_now()

    def _may_fetch_again(self, name: TopicPartition, state: PartitionImage) -> bool:
        """Whether a damaged log can be replaced by what another node has. Not before the controller knows that this
        replica is not to lead: as long as it counts on it, nobody else may have what is left here.

        For what was found at the start, that is known by the new broker epoch. For what is found later, the controller
        must have been told that the replica is lost: or else a leader that heard from it before may still bring it back
        into the ISR, when it is empty already.
        """
        is_counted_on = self._node_id in (*state.isr, *state.eligible_leader_replicas)
        if is_counted_on or state.leader in (NO_LEADER, self._node_id):
            return False
        is_told = state.directory_of(self._node_id) == LOST_DIRECTORY
        return self._logs.is_damaged(name) or (is_told and self._logs.is_corrupt(name))

    def _attach_log(self, image: ClusterImage, partition: Partition) -> None:
        try:
            log = self._open_log(partition.name, partition.topic_id)
        except LogError as failure:
            self._note_room(partition.name, failure)
            self.log_failed(partition, failure)
            partition.take_offline(failure)
            return
        self._note_room(partition.name, None)
        self._set(log, image)
        partition.attach(log)

    def _note_room(self, name: TopicPartition, failure: LogError | None) -> None:
        if isinstance(failure, PassingError):
            if name not in self._without_room:
                _log.warning("%s has no log; it is made when there is room", name)
            self._without_room[name] = None
        elif name in self._without_room:
            del self._without_room[name]
            if failure is None:
                _log.info("%s has its log now", name)

    def _open_log(self, name: TopicPartition, topic_id: Uuid) -> PartitionLog:
        log = None if self._logs.is_of_another(name, topic_id) else self._logs.get(name)
        if log is None and self._logs.knows(name):
            # Of a topic that was deleted, and created again, while this node was away.
            self._logs.set_aside(name)
        if log is None:
            return self._logs.create(name, topic_id)
        if log.topic_id is None:
            self._logs.adopt(log, topic_id)
        return log

    def _forget(self, partition: Partition) -> None:
        del self._by_name[partition.name]
        del self.index[partition.name]
        del self.index[partition.topic_id, partition.name.partition]
        self._without_room.pop(partition.name, None)
        self.topic_meters.let_go(partition.name.topic)
        if self.fetchers is not None:
            self.fetchers.remove(partition)
        partition.delete()

    def _apply_settings(self, image: ClusterImage, delta: ClusterDelta) -> None:
        topics = [each.name for each in delta.configs_changed if each.type == ConfigResourceType.TOPIC]
        # What the node itself is set to is the default of all topics.
        concerns_all = any(each.type == ConfigResourceType.BROKER for each in delta.configs_changed)
        concerned = self.all if concerns_all else [each for topic in topics for each in self._of_topic(image, topic)]
        for partition in concerned:
            if partition.log is not None:
                self._set(partition.log, image)
                partition.settings_changed()

    def _of_topic(self, image: ClusterImage, name: str) -> list[Partition]:
        topic = image.topics.get(name)
        numbers = range(len(topic.partitions)) if topic is not None else ()
        found = (self._by_name.get(TopicPartition(name, number)) for number in numbers)
        return [partition for partition in found if partition is not None]

    def _set(self, log: PartitionLog, image: ClusterImage) -> None:
        try:
            log.settings = self._settings_of(image, log.partition.topic)
        except SettingsError as problem:
            _log.error("the settings of the topic %s stay as they were: %s", log.partition.topic, problem)

    def set_aside_strays(self, image: ClusterImage) -> list[TopicPartition]:
        """Move logs out of the way that belong to no partition of this node.

        To be called once, after a start, when `image` holds all that was committed: a log that is only not known yet
        would be hidden by this.
        """

        def is_ours(name: TopicPartition) -> bool:
            state = image.partition(*name)
            return state is not None and self._node_id in state.replicas

        strays = []
        for name, log in self._logs.logs.items():
            topic = image.topics.get(name.topic)
            if not is_ours(name) or (topic is not None and log.topic_id not in (None, topic.topic_id)):
                strays.append(name)
        self._logs.set_aside(*strays)
        self._logs.settle_missing(is_ours)
        return strays

    # Leading

    @property
    def led_with_others(self) -> list[LeaderState]:
        """The partitions that this node leads and has not for itself."""
        roles = [each.role for each in self._by_name.values()]
        return [role for role in roles if isinstance(role, LeaderState) and not role.is_alone]

    def brokers_changed(self) -> None:
        """Other brokers are live, or may be in sync, than before; to be called when the image is applied."""
        for leader in self.led_with_others:
            leader.brokers_changed()

    async def maybe_shrink_isrs(self) -> None:
        for leader in self.led_with_others:
            leader.maybe_shrink_isr()

    # When logs fail

    def log_failed(self, partition: Partition, failure: LogError) -> None:
        """A log could not do what it was asked for. It goes offline if that is because of its data or its disk."""
        if isinstance(failure, LogDirectoryError):
            for directory in self._logs.directories:
                if directory.path == failure.directory:
                    self._logs.directory_failed(directory, failure.reason)
        elif isinstance(failure, CorruptLogError):
            self._logs.partition_failed(partition.name, failure)

    def _take_offline(self, name: TopicPartition, failure: BarnabasError) -> None:
        partition = self._by_name.get(name)
        if partition is not None:
            if self.fetchers is not None:
                self.fetchers.remove(partition)
            partition.take_offline(failure)
            if isinstance(failure, CorruptLogError):
                self.on_corrupt(name)

    # For coordinators

    def append_as_coordinator(self, name: TopicPartition, batch: Buffer, now_ms: int) -> int:
        """Append a batch that this node made; the offset that the high watermark must reach for it to be committed."""
        partition = self._existing(name)
        try:
            leader = partition.leading()
            prepared = prepare_from_coordinator(batch, leader.log.settings)
            return leader.append(prepared, acks_all=True, now_ms=now_ms).last_offset + 1
        except LogError as failure:
            self.log_failed(partition, failure)
            raise

    def append_in_transaction(
        self, name: TopicPartition, batch: Buffer, guard: object, now_ms: int, transaction_version: int
    ) -> int:
        """The same for a batch that belongs to a transaction, or ends it."""
        partition = self._existing(name)
        try:
            leader = partition.leading()
            prepared = prepare_from_coordinator(batch, leader.log.settings, transaction_version)
            appended = leader.append_in_transaction(
                prepared,
                guard if isinstance(guard, VerificationGuard) else None,
                acks_all=True,
                now_ms=now_ms,
                must_be_verified=self.must_be_verified(),
            )
            return appended.last_offset + 1
        except LogError as failure:
            self.log_failed(partition, failure)
            raise

    def wait_for_high_watermark(self, name: TopicPartition, offset: int, timeout_ms: int) -> Awaitable[ErrorCode]:
        """Whether everything below `offset` was committed in time. Done at once if that is known at once."""
        loop = asyncio.get_running_loop()
        outcome: asyncio.Future[ErrorCode] = loop.create_future()
        partition = self._by_name.get(name)
        leader = partition.role if partition is not None else None
        if not isinstance(leader, LeaderState):
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER if partition is None else partition.unusable().code
            outcome.set_result(code)
            return outcome

        def finish() -> None:
            delayed.expire()
            if not outcome.done():
                outcome.set_result(delayed.outcomes[leader])

        delayed = DelayedProduce(finish)
        delayed.add(leader, offset)
        if delayed.is_over:
            finish()
        else:
            timer = loop.call_later(timeout_ms / 1000, finish)

            def clean_up(_: object) -> None:
                timer.cancel()
                delayed.expire()

            outcome.add_done_callback(clean_up)
        return outcome

    async def until_readable(self, name: TopicPartition) -> ErrorCode:
        """A new leader does not know what its predecessor had committed of the end of its log, until its followers have
        that, too: NONE when all of it is committed, or why it will not be."""
        partition = self._by_name.get(name)
        leader = None if partition is None else partition.role
        while isinstance(leader, LeaderState):
            outcome = await self.wait_for_high_watermark(name, leader.leader_epoch_start_offset, _PATIENCE_MS)
            if outcome is not ErrorCode.REQUEST_TIMED_OUT or leader.is_over:
                return ErrorCode.NONE if outcome is ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND else outcome
        return ErrorCode.NOT_LEADER_OR_FOLLOWER if partition is None else partition.unusable().code

    async def read_all(self, name: TopicPartition, max_bytes: int, runtime: Runtime) -> AsyncIterator[bytes]:
        """All that is committed in a partition, for those who must know all of it.

        Each batch is as it was written, or the partition goes offline as damaged: half of it would look like all of it.
        """
        partition = self._existing(name)
        leader = partition.leading()
        log = leader.log
        offset = 0
        try:
            while True:
                if leader.is_over:
                    # What another leader makes of the log would be mixed with what was read.
                    raise partition.unusable()
                offset = max(offset, log.log_start_offset)
                end_offset = log.high_watermark
                found = log.read(offset, max_bytes, end_offset=end_offset).range
                if found is None:
                    return
                try:
                    data, offset = await runtime.offload(partial(_read_batches, found, offset, end_offset))
                except (OSError, LogError) as failure:
                    if log.holds(found):
                        raise (failure if isinstance(failure, LogError) else log.failed(failure)) from None
                    # The file went while it was read, by retention or compaction. What it held may be in another.
                else:
                    yield data
        except LogError as failure:
            if partition.log is log:
                self.log_failed(partition, failure)
            raise


def _read_batches(found: FileRange, offset: int, end_offset: int) -> tuple[bytes, int]:
    """Batches from `offset` on, and the offset after them. The CRC does not cover where a batch says that it begins and
    ends, so that is checked as well: what goes back, or beyond the end, would hide all that follows."""
    data = found.read()
    walk = iter_entries(data)
    position = 0
    try:
        for entry in walk:
            entry.check_crc()
            # A log may start within its first batch.
            is_in_order = entry.next_offset > offset if position == 0 else _first_offset(entry) >= offset
            if not is_in_order or entry.next_offset > end_offset:
                raise _damaged(found, position, offset, f"a batch follows that ends at offset {entry.last_offset}")
            offset, position = entry.next_offset, walk.position
    except RemoteProtocolError as reason:
        raise _damaged(found, position, offset, str(reason)) from None
    if not position:
        raise _damaged(found, position, offset, "no whole batch follows")
    return data, offset


def _first_offset(entry: BatchView | LegacyMessage) -> int:
    return entry.base_offset if isinstance(entry, BatchView) else entry.offset


def _damaged(found: FileRange, position: int, offset: int, reason: str) -> CorruptLogError:
    return CorruptLogError(found.file.path, found.position + position, f"damaged at offset {offset}: {reason}")
