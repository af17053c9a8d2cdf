"""The consumer for programs with asyncio."""

from __future__ import annotations

import asyncio
import re
import warnings
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from itertools import chain
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Generic, Self, Unpack, overload

from barnabas.base.errors import SettingsError
from barnabas.base.ids import TopicPartition
from barnabas.base.log_context import speaking
from barnabas.base.runtime import Clock, SystemClock
from barnabas.base.system_runtime import new_randomness
from barnabas.client._kernel.receiving import Chunk, ConsumerRecord
from barnabas.client.arguments import TopicsOrConfig, topics_and_settings
from barnabas.client.consumer.committing import CommitCallback, Invoke
from barnabas.client.consumer.group import GroupDriver, GroupMetadata
from barnabas.client.consumer.parts import ConsumerParts, invoke_here
from barnabas.client.consumer.typed import Key, Value
from barnabas.client.core.cluster_view import PartitionInfo
from barnabas.client.core.consuming.offsets import OffsetAndMetadata, OffsetAndTimestamp, ResetStrategy
from barnabas.client.core.consuming.subscription import Mode
from barnabas.client.core.metadata import partition_info
from barnabas.client.core.metrics import prometheus_text
from barnabas.client.errors import ClientClosedError, WakeupError, WrongUseError
from barnabas.client.other_methods import CONSUMER_METHODS, ExplainsOtherMethods
from barnabas.client.plugins import RebalanceListener
from barnabas.client.settings import ConsumerSettings
from barnabas.client.settings.keywords import ConsumerKeywords
from barnabas.records.arrow import require_pyarrow
from barnabas.wire.messages.metadata import MetadataRequest, MetadataResponse, MetadataResponseTopic

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.client.consumer.typed import MadeKey, MadeValue, Makes, Text

#: How long one look at the group takes while it rebalances, so that a wakeup is noticed meanwhile.
_GROUP_SLICE_S: Final = 0.1
#: How many rows `poll_arrow` takes at most if nobody says.
_ARROW_ROWS: Final = 16_384
_DEFAULT_CLOSE_S: Final = 30.0
#: Whoever waits for records is alive, and says so to its group at least this often.
_LONGEST_WAIT_S: Final = 1.0


class Consumer(ExplainsOtherMethods, Generic[Key, Value]):
    """Reads records from topics.

        async with Consumer("clicks", bootstrap_servers="127.0.0.1:9092", group_id="g") as consumer:
            async for record in consumer:
                print(record.partition, record.offset, record.value)

    Topics may be given here, or later with `subscribe`; `assign` takes partitions by hand. Settings have Kafka's names:
    as keywords with underscores, or in a dict with dots. Without `group_id` a consumer gets all partitions of its
    topics, and nothing is committed.

    With auto-commit a record counts as done when the program comes back for the next one. A consumer belongs to the
    event loop and the task in which it is used: two tasks cannot poll it at once.
    """

    _other_methods = CONSUMER_METHODS

    @overload
    def __init__(
        self: Consumer[MadeKey, MadeValue],
        *topics: TopicsOrConfig,
        key_deserializer: Makes[MadeKey] = ...,
        value_deserializer: Makes[MadeValue] = ...,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[MadeKey, str],
        *topics: TopicsOrConfig,
        key_deserializer: Makes[MadeKey] = ...,
        value_deserializer: Text,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[MadeKey, Any],
        *topics: TopicsOrConfig,
        key_deserializer: Makes[MadeKey] = ...,
        value_deserializer: str,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[str, MadeValue],
        *topics: TopicsOrConfig,
        key_deserializer: Text,
        value_deserializer: Makes[MadeValue] = ...,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[str, str],
        *topics: TopicsOrConfig,
        key_deserializer: Text,
        value_deserializer: Text,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[str, Any],
        *topics: TopicsOrConfig,
        key_deserializer: Text,
        value_deserializer: str,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, MadeValue],
        *topics: TopicsOrConfig,
        key_deserializer: str,
        value_deserializer: Makes[MadeValue] = ...,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, str],
        *topics: TopicsOrConfig,
        key_deserializer: str,
        value_deserializer: Text,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, Any],
        *topics: TopicsOrConfig,
        key_deserializer: str,
        value_deserializer: str,
        clock: Clock | None = ...,
        randomness: Random | None = ...,
        invoke: Invoke = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        *topics: TopicsOrConfig,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        clock: Clock | None = None,
        randomness: Random | None = None,
        invoke: Invoke = invoke_here,
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        names, sources = topics_and_settings(topics)
        loaded = ConsumerSettings.load(
            *sources, key_deserializer=key_deserializer, value_deserializer=value_deserializer, **settings
        )
        self._settings = loaded
        self._parts = ConsumerParts(
            loaded, clock=clock or SystemClock(), randomness=randomness or new_randomness(), invoke=invoke
        )
        self._subscription = self._parts.subscription
        self._group: GroupDriver | None = self._parts.group
        self._loop: asyncio.AbstractEventLoop | None = None
        self._chunk: Chunk | None = None
        self._is_closed = False
        self._is_closing = False
        self._is_polling = False
        self._is_woken = False
        self._denial: Exception | None = None
        # Until when a first broker must have answered; None once one has.
        self._reach_by: float | None = None
        if self._group is not None:
            self._group.on_attention = self._group_calls
            self._group.progress = self._progress
        if names:
            try:
                self.subscribe(names)
            except BaseException:
                self._parts.dispose()
                raise

    @property
    def parts(self) -> ConsumerParts:
        """What works in the background. For what builds on consumers, such as readers of ranges; not for programs."""
        return self._parts

    async def start(self) -> None:
        """Begin to work on the running loop. Need not be called: the first use does it."""
        loop = asyncio.get_running_loop()
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")
        if self._loop is loop:
            return
        if self._loop is not None:
            raise WrongUseError("this consumer belongs to another event loop: make one in each loop")
        self._loop = loop
        self._reach_by = loop.time() + self._settings.default_api_timeout_ms / 1000
        # Topics that have come to be known may give this consumer partitions, or its group a reason to rebalance.
        self._parts.network.on_update(lambda _: self._parts.fetcher.wake())
        self._parts.network.on_denial(self._denied)
        await self._parts.start()

    # What to read

    def subscribe(
        self,
        topics: Iterable[str] = (),
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read topics, by name or by pattern, shared with the other members of the group. Replaces what was subscribed.

        The listener is told when partitions come and go. A pattern must match the whole name of a topic.
        """
        self._check_open()
        if pattern is not None:
            if topics:
                raise ValueError("give topics or a pattern, not both")
            self._subscription.subscribe_pattern(pattern, listener)
        else:
            self._subscription.subscribe(topics, listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, without a group's help. Those that were read before go on where they
        were. With auto-commit, how far the others were read is committed."""
        self._check_open()
        wanted = list(partitions)
        if self._group is not None and self._subscription.mode is Mode.PARTITIONS:
            self._group.commit_except(wanted)
        self._subscription.assign(wanted)

    async def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group. What the program was given counts as done."""
        await self.start()
        self._done_with_all()
        if self._group is not None:
            with speaking(self._parts.network.who):
                await self._group.leave("the consumer has unsubscribed")
        self._subscription.unsubscribe()

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._subscription.topics if self._subscription.uses_group else frozenset()

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read at present."""
        return self._subscription.assigned()

    # Reading

    async def poll(
        self, timeout: float | None = None, *, max_records: int | None = None
    ) -> list[ConsumerRecord[Key, Value]]:
        """Records that are there, at most max.poll.records; waits for some up to `timeout` seconds, or for ever.

        What an earlier poll returned counts as done. An empty list means that the time is over. `NoBrokersError` is
        raised if no broker was ever reached, default.api.timeout.ms after the first use.
        """
        limit = self._settings.max_poll_records if max_records is None else max_records
        if limit < 1:
            raise ValueError(f"max_records must be at least 1, not {limit}")
        interceptors = self._parts.interceptors
        left = self._time_left(timeout)
        while await self._next_chunk(left()) is not None:
            records = self._parts.fetcher.take_records(limit)
            if records and interceptors:
                try:
                    records = interceptors.on_consume(records)
                except BaseException:
                    self._put_back()
                    raise
            if records:
                return records
        return []

    async def poll_arrow(self, timeout: float | None = None, *, max_rows: int | None = None) -> pa.RecordBatch:
        """The same as an Arrow record batch, with the columns topic, partition, offset, timestamp, key, value and
        headers; empty if the time is over. Keys and values are bytes: a consumer with deserializers is refused, and
        interceptors are for records.
        """
        limit = _ARROW_ROWS if max_rows is None else max_rows
        if limit < 1:
            raise ValueError(f"max_rows must be at least 1, not {limit}")
        if self._parts.arrow_refusal is not None:
            raise WrongUseError(self._parts.arrow_refusal)
        require_pyarrow()
        left = self._time_left(timeout)
        while await self._next_chunk(left()) is not None:
            batch = self._parts.fetcher.take_arrow(limit)
            if batch is not None:
                return batch
        from barnabas.client.consumer.arrow_batches import empty_batch

        return empty_batch()

    def _time_left(self, timeout: float | None) -> Callable[[], float | None]:
        if timeout is None:
            return lambda: None
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        return lambda: max(0.0, deadline - loop.time())

    def _put_back(self) -> None:
        """What the last poll returned did not get to the program."""
        self._parts.fetcher.put_back()

    async def __aiter__(self) -> AsyncIterator[ConsumerRecord[Key, Value]]:
        """Records for ever, one by one. Each counts as done when the next is asked for."""
        while True:
            chunk = await self._next_chunk(None)
            if chunk is not None:
                for record in self._intercepted(chunk):
                    yield record

    def _intercepted(self, chunk: Chunk) -> Iterable[ConsumerRecord[Key, Value]]:
        """Interceptors see a loop's records one by one: what they have seen counts as handed out, and who leaves the
        loop has got no more than that."""
        interceptors = self._parts.interceptors
        if not interceptors:
            return chunk
        return chain.from_iterable(interceptors.on_consume([record]) for record in chunk)

    def wakeup(self) -> None:
        """Let the poll that is under way, or the next one, end with `WakeupError`."""
        self._is_woken = True
        self._parts.fetcher.wake()

    async def _next_chunk(self, timeout: float | None) -> Chunk | None:
        """Records of one partition, to be iterated; None if there are none in time. The program has come back for more.

        Left before its end, the same chunk comes again.
        """
        await self.start()
        if self._is_polling:
            raise WrongUseError("the consumer is polled by two tasks at once: give each a consumer of its own")
        self._is_polling = True
        self._parts.metrics.poll_started()
        try:
            return await self._chunk_within(timeout)
        finally:
            self._is_polling = False
            self._parts.metrics.poll_ended()

    async def _chunk_within(self, timeout: float | None) -> Chunk | None:
        assert self._loop is not None
        deadline = None if timeout is None else self._loop.time() + timeout
        # Heartbeats and fetches want their turn, also if the program never waits for anything.
        await asyncio.sleep(0)
        self._done_with_all()
        if self._subscription.mode is Mode.NONE:
            raise WrongUseError("nothing to read: subscribe to topics, or assign partitions")
        while True:
            if self._is_closing:
                raise ClientClosedError("the consumer is closed")
            self._raise_if_woken()
            self._raise_if_denied()
            left = None if deadline is None else max(0.0, deadline - self._loop.time())
            slice_s = _GROUP_SLICE_S if left is None else min(_GROUP_SLICE_S, left)
            is_settled = True
            if self._group is None or not self._subscription.uses_group:
                self._parts.topics.follow()
            self._parts.topics.raise_errors()
            if self._group is not None and self._group.needs_poll():
                # Who has something to read need not wait for the others of its group.
                is_settled = await self._group.poll(0 if self._parts.fetcher.has_news() else slice_s * 1000)
            chunk = self._ready_chunk()
            if chunk is not None:
                return chunk
            self._raise_if_nobody_answers()
            if left is not None and left <= 0:
                return None
            await self._parts.fetcher.wait_for_data(slice_s if not is_settled else self._patience(left))

    def _ready_chunk(self) -> Chunk | None:
        self._chunk = self._parts.fetcher.take_chunk()
        return self._chunk

    def _patience(self, left: float | None) -> float:
        """How long to wait for data before the group has to be looked at: offsets may be due to be committed, and it
        wants to hear that the program is still there."""
        group_s = None if self._group is None else self._group.next_poll_s()
        hope_s = None if self._reach_by is None else max(0.0, self._reach_by - self._now_s())
        return min(each for each in (left, group_s, hope_s, _LONGEST_WAIT_S) if each is not None)

    def _raise_if_nobody_answers(self) -> None:
        """A program that has a wrong address shall hear of it, and one whose brokers come late shall not mind."""
        if self._reach_by is None:
            return
        network, now_s = self._parts.network, self._now_s()
        if network.view.nodes:
            self._reach_by = None
        elif now_s >= self._reach_by:
            timeout_ms = self._settings.default_api_timeout_ms
            self._reach_by = now_s + timeout_ms / 1000
            raise network.gave_up("records were to be read", timeout_ms)

    def _now_s(self) -> float:
        assert self._loop is not None
        return self._loop.time()

    def _raise_if_woken(self) -> None:
        if self._is_woken:
            self._is_woken = False
            raise WakeupError("wakeup() was called")

    def _denied(self, error: Exception) -> None:
        self._denial = error
        self._parts.fetcher.wake()

    def _raise_if_denied(self) -> None:
        """A broker does not believe who we are. Each try that fails is told once."""
        denial, self._denial = self._denial, None
        if denial is not None:
            raise denial

    def _group_calls(self) -> None:
        """The group rebalances: the program is interrupted between two records, so that it does not keep others up."""
        if self._chunk is not None:
            self._chunk.halt()
        self._parts.fetcher.wake()

    def _progress(self) -> object:
        """Something that changes while the program takes records, also without polling."""
        chunk = self._chunk
        return (id(chunk), chunk.record_count if chunk is not None else 0)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        self._check_open()
        self._subscription.seek(partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read on from the first record that is there; all assigned partitions if none is named."""
        self._reset(partitions, "earliest")

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read on with what is written from now on; all assigned partitions if none is named."""
        self._reset(partitions, "latest")

    def _reset(self, partitions: Iterable[TopicPartition], strategy: str) -> None:
        self._check_open()
        for partition in list(partitions) or self.assignment():
            self._subscription.request_reset(partition, ResetStrategy.parse(strategy))

    async def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset that is read next; found out if that is still open."""
        await self.start()
        self._follow_assigned()
        timeout_ms = self._timeout_ms(timeout)
        if not await self._parts.fetcher.ensure_positions(int(timeout_ms), [partition]):
            raise self._parts.network.gave_up(f"the position in {partition} was to be found out", timeout_ms)
        position = self._subscription.position(partition)
        assert position is not None
        return position.offset

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`. They stay assigned."""
        self._check_open()
        self._subscription.pause(list(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._check_open()
        self._subscription.resume(list(partitions))

    def paused(self) -> list[TopicPartition]:
        return self._subscription.paused()

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind; None if that is not known yet."""
        return self._parts.fetcher.current_lag(partition)

    # Commits

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout: float | None = None
    ) -> None:
        """Commit what was handed out so far, or these offsets, and return when that is done."""
        await self.start()
        chosen = _offsets(offsets)
        self._done_with(chosen)
        started = self._parts.clock.monotonic_ms()
        await self._in_group("commit").commit(chosen, self._timeout_ms(timeout))
        self._parts.metrics.commit_sync((self._parts.clock.monotonic_ms() - started) * 1_000_000)

    async def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        on_commit: CommitCallback | None = None,
    ) -> None:
        """The same without waiting: `on_commit(offsets, error)` is called in a later poll, commit or close."""
        await self.start()
        chosen = _offsets(offsets)
        self._done_with(chosen)
        self._in_group("commit").commit_soon(chosen, on_commit)

    def _done_with(self, offsets: Mapping[TopicPartition, OffsetAndMetadata] | None) -> None:
        """Who commits is done with that, or with everything: auto-commit must not fall behind it again."""
        if offsets is None:
            self._done_with_all()
        else:
            self._parts.fetcher.keep_taken()
            self._subscription.done_up_to(offsets)

    def _done_with_all(self) -> None:
        self._parts.fetcher.keep_taken()
        self._subscription.begin_poll()

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        await self.start()
        started = self._parts.clock.monotonic_ms()
        found = await self._in_group("look up commits").committed(list(partitions), self._timeout_ms(timeout))
        self._parts.metrics.committed((self._parts.clock.monotonic_ms() - started) * 1_000_000)
        return found

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for producers that commit offsets in transactions."""
        return self._in_group("tell about membership").group_metadata()

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group share its partitions anew at the next poll."""
        self._in_group("rebalance").request_rejoin(reason)

    def _in_group(self, what: str) -> GroupDriver:
        self._check_open()
        if self._group is None:
            raise SettingsError(f"a consumer without group_id cannot {what}: give it one")
        return self._group

    # The cluster

    async def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition holds."""
        await self.start()
        return await self._parts.fetcher.lookup.beginning_offsets(list(partitions), int(self._timeout_ms(timeout)))

    async def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer can see in each partition."""
        await self.start()
        return await self._parts.fetcher.lookup.end_offsets(list(partitions), int(self._timeout_ms(timeout)))

    async def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, by partition; None if there is none."""
        await self.start()
        return await self._parts.fetcher.lookup.offsets_for_times(dict(timestamps_ms), int(self._timeout_ms(timeout)))

    async def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders."""
        await self.start()
        view = await self._parts.network.topic_metadata(topic, self._timeout_ms(timeout))
        return view.partitions(topic)

    async def list_topics(self, timeout: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """All topics of the cluster that this client may see."""
        await self.start()
        request = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        answer: MetadataResponse = await self._parts.network.request_any(request, timeout_ms=self._timeout_ms(timeout))
        return {topic.name: _partitions(topic) for topic in answer.topics if topic.name and not topic.error_code}

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the consumer tells about itself, under Kafka's names: by group, then by metric with its tags."""
        return self._parts.registry.as_dict()

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return prometheus_text(self._parts.registry.metrics())

    # The end

    async def close(self, timeout: float | None = None, *, leave_group: bool | None = None) -> None:
        """Commit if auto-commit is on, leave the group, and end; within 30 seconds unless `timeout` says otherwise.

        What the program was given counts as done, except when an exception takes it out of `async with`.

        A dynamic member leaves the group, so that others get its partitions at once; a static one (`group.instance.id`)
        stays until its session ends, and goes on with what it had if it comes back before. `leave_group` says it for
        either: True to leave, False to stay.
        """
        await self._end(timeout, is_done=True, leave_group=leave_group)

    async def _end(self, timeout: float | None, *, is_done: bool, leave_group: bool | None = None) -> None:
        """Close; `is_done` says whether the program is done with what it was given."""
        if self._is_closed or self._is_closing:
            return
        loop = self._loop
        if loop is not None and loop is not asyncio.get_running_loop() and not loop.is_closed():
            raise WrongUseError("this consumer belongs to another event loop: close it there")
        # Listeners are told of what they lose, and may still commit it.
        self._is_closing = True
        self._parts.fetcher.keep_taken()
        if is_done:
            self._subscription.begin_poll()
        self._parts.fetcher.wake()
        try:
            # Of a loop that is closed nothing is left that could be ended.
            if loop is not None and not loop.is_closed():
                timeout_s = _DEFAULT_CLOSE_S if timeout is None else max(0.0, timeout)
                await self._parts.close(timeout_s * 1000, leave_group=leave_group)
        finally:
            self._is_closed = True

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._end(None, is_done=error is None)

    def __del__(self) -> None:
        if getattr(self, "_loop", None) is not None and not self._is_closed:
            warnings.warn(f"{self._parts.client_id} was not closed", ResourceWarning, source=self, stacklevel=2)

    def _check_open(self) -> None:
        if self._is_closed:
            raise ClientClosedError("the consumer is closed")

    def _timeout_ms(self, timeout: float | None) -> float:
        return self._settings.default_api_timeout_ms if timeout is None else timeout * 1000

    def _follow_assigned(self) -> None:
        if self._group is None or not self._subscription.uses_group:
            self._parts.topics.follow()
        else:
            self._group.needs_poll()


def _partitions(topic: MetadataResponseTopic) -> tuple[PartitionInfo, ...]:
    told = sorted(topic.partitions, key=lambda each: each.partition_index)
    return tuple(partition_info(topic.name or "", each) for each in told)


def _offsets(
    given: Mapping[TopicPartition, OffsetAndMetadata | int] | None,
) -> dict[TopicPartition, OffsetAndMetadata] | None:
    if given is None:
        return None
    return {
        TopicPartition(*partition): each if isinstance(each, OffsetAndMetadata) else OffsetAndMetadata(each)
        for partition, each in given.items()
    }
