"""The part of a coordinator that does not ask what is coordinated: the shards that this node leads, which are taken
over, loaded, given up and reminded of the time; and which of them a key belongs to."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Iterator
from typing import Generic, TypeAlias, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import TopicPartition
from barnabas.base.runtime import Runtime
from barnabas.broker.coordinators.coordinator_runner import CoordinatorRunner, Words, WriteSettings
from barnabas.coordinator.routing import partition_for
from barnabas.coordinator.runtime import CoordinatorRuntime, CoordinatorShard
from barnabas.coordinator.writer import PartitionWriter
from barnabas.metadata.delta import ClusterDelta
from barnabas.metadata.image import ClusterImage

T = TypeVar("T")
S = TypeVar("S", bound=CoordinatorShard)
#: An answer that is there, or one that will be.
Answer: TypeAlias = T | asyncio.Future[T]


class CoordinatorService(ABC, Generic[S]):
    """The shards of one internal topic that this node leads. Each coordinator says what a shard is."""

    def __init__(
        self, topic: str, words: Words, runtime: Runtime, node_id: int, writer: PartitionWriter, partition_count: int
    ) -> None:
        self._topic = topic
        self._words = words
        self._runtime = runtime
        self._node_id = node_id
        self._writer = writer
        self._image = ClusterImage()
        self._runners: dict[int, CoordinatorRunner[S]] = {}
        self._partition_count = partition_count
        #: With what each is loaded into: whoever begins anew meanwhile waits anew, too.
        self._to_load: list[tuple[CoordinatorRunner[S], CoordinatorRuntime[S]]] = []
        self._loader: asyncio.Task[None] | None = None
        self._waiting: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._timer_deadline_ms: int | None = None
        self._is_started = False
        self._is_stopped = False

    # What each coordinator says

    @abstractmethod
    def _new_shard(self, index: int) -> S:
        """An empty shard, for what its partition holds to be replayed into."""

    @abstractmethod
    def _write_settings(self) -> WriteSettings:
        """How it reads and writes its partitions."""

    @abstractmethod
    def _reconfigure_shard(self, shard: S) -> None:
        """Settings of the node have changed."""

    def _topics_deleted(self, names: list[str]) -> None:
        """Others than the coordinator's own."""

    # Following the cluster

    def _reconfigure(self) -> None:
        write_settings = self._write_settings()
        for runner in self._runners.values():
            runner.settings = write_settings
            self._reconfigure_shard(runner.shard)

    def start(self) -> None:
        """Load what this node leads. Until it has joined the cluster it leads what a former life of it led, and that is
        taken from it when it joins: all would be loaded twice."""
        self._is_started = True
        self._follow_leaders()

    def apply(self, image: ClusterImage, delta: ClusterDelta) -> None:
        """Take over what this node leads now, give up what it does not."""
        if self._is_stopped:
            return
        self._image = image
        if any(each.name == self._topic for each in delta.configs_changed):
            self._reconfigure()
        deleted = [each.name for each in delta.topics_deleted]
        if self._topic in deleted:
            for index in list(self._runners):
                self._give_up(index)
        others = [name for name in deleted if name != self._topic]
        if others:
            self._topics_deleted(others)
        if self._is_started and any(each.topic == self._topic for each in delta.partitions_changed):
            self._follow_leaders()

    def _follow_leaders(self) -> None:
        topic = self._image.topics.get(self._topic)
        partitions = topic.partitions if topic is not None else ()
        if partitions:
            self._partition_count = len(partitions)
        for index, partition in enumerate(partitions):
            is_led_here = partition.leader == self._node_id
            if is_led_here and index not in self._runners:
                self._take_over(index, partition.leader_epoch)
            elif is_led_here:
                runner = self._runners[index]
                # In another epoch what was in memory may not be what the log has; and what kept it from being loaded
                # may be over.
                if runner.leader_epoch != partition.leader_epoch or runner.has_failed:
                    runner.leader_epoch = partition.leader_epoch
                    runner.reload()
            elif not is_led_here and index in self._runners:
                self._give_up(index)

    def _take_over(self, index: int, leader_epoch: int) -> None:
        runner: CoordinatorRunner[S] = CoordinatorRunner(
            TopicPartition(self._topic, index),
            lambda: self._new_shard(index),
            self._writer,
            self._runtime,
            self._write_settings(),
            self._words,
            on_deadline=self._arm,
            on_reload=self._load_later,
            leader_epoch=leader_epoch,
        )
        self._runners[index] = runner
        self._load_later(runner)

    def _load_later(self, runner: CoordinatorRunner[S]) -> None:
        """As soon as it can be told what its partition holds: that may take until followers are heard of, and others
        must not wait for it."""
        waiting = asyncio.get_running_loop().create_task(self._load_when_readable(runner, runner.core))
        self._waiting.add(waiting)
        waiting.add_done_callback(self._waiting.discard)

    async def _load_when_readable(self, runner: CoordinatorRunner[S], core: CoordinatorRuntime[S]) -> None:
        # Why it is not readable, if it is not, is told when it is read.
        await runner.until_readable()
        self._to_load.append((runner, core))
        if self._loader is None:
            self._loader = asyncio.get_running_loop().create_task(self._load())

    async def _load(self) -> None:
        """One after the other: together they would be no faster, and the first shard would wait for the last."""
        try:
            while self._to_load:
                runner, core = self._to_load.pop(0)
                await runner.load(core)
        finally:
            self._loader = None

    def _give_up(self, index: int) -> None:
        self._runners.pop(index).close()

    async def stop(self) -> None:
        """Whoever waits is sent away; what was committed is in the log."""
        self._is_stopped = True
        for waiting in self._waiting:
            waiting.cancel()
        self._to_load.clear()
        for index in list(self._runners):
            self._give_up(index)
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        loader, self._loader = self._loader, None
        if loader is not None:
            await loader
        await asyncio.gather(*self._waiting, return_exceptions=True)

    # Time: one timer for all shards

    def _arm(self, deadline_ms: int) -> None:
        if self._timer_deadline_ms is not None and self._timer_deadline_ms <= deadline_ms:
            return
        if self._timer is not None:
            self._timer.cancel()
        self._timer_deadline_ms = deadline_ms
        delay_ms = max(deadline_ms - self._runtime.clock.monotonic_ms(), 0)
        self._timer = asyncio.get_running_loop().call_later(delay_ms / 1000, self._tick)

    def _tick(self) -> None:
        self._timer = self._timer_deadline_ms = None
        for runner in list(self._runners.values()):
            # Also those that have nothing to do yet: each tells its next deadline again.
            runner.tick()

    # Finding the shard

    def partition_for(self, key: str) -> int:
        return partition_for(key, self._partition_count)

    def _find(self, key: str) -> CoordinatorRunner[S] | ErrorCode:
        if self._is_stopped:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE
        runner = self._runners.get(partition_for(key, self._partition_count))
        if runner is None:
            return ErrorCode.NOT_COORDINATOR
        error = runner.error
        return runner if error is ErrorCode.NONE else error

    @property
    def shards(self) -> list[S]:
        """Those that serve."""
        return [each.shard for each in self._runners.values() if each.error is ErrorCode.NONE]

    @property
    def shard_errors(self) -> list[ErrorCode]:
        """Of each that is led here: what it would answer now."""
        return [each.error for each in self._runners.values()]

    def _serving(self) -> Iterator[S | ErrorCode]:
        """The shards, for whoever lists all that they hold; or an error and no more, since a list with holes would look
        as if things were deleted."""
        if self._is_stopped:
            yield ErrorCode.COORDINATOR_NOT_AVAILABLE
            return
        for runner in list(self._runners.values()):
            if runner.error is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                yield runner.error
                return
            if runner.error is ErrorCode.NONE:
                yield runner.shard
