"""The consumer for programs without asyncio: it works on a thread in the background, and is read from any other."""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, Generic, Self, TypeVar, Unpack, overload

from barnabas.base.ids import TopicPartition
from barnabas.client._kernel.receiving import ConsumerRecord
from barnabas.client.arguments import TopicsOrConfig
from barnabas.client.consumer.committing import CommitCallback
from barnabas.client.consumer.consumer import Consumer as AsyncConsumer
from barnabas.client.consumer.group import GroupMetadata
from barnabas.client.consumer.parts import ConsumerParts
from barnabas.client.consumer.typed import Key, Value
from barnabas.client.core.cluster_view import PartitionInfo
from barnabas.client.core.consuming.offsets import OffsetAndMetadata, OffsetAndTimestamp
from barnabas.client.errors import ClientClosedError, WrongUseError
from barnabas.client.other_methods import CONSUMER_METHODS, ExplainsOtherMethods
from barnabas.client.plugins import RebalanceListener
from barnabas.client.settings.keywords import ConsumerKeywords
from barnabas.client.sync import LoopThread, invoke

if TYPE_CHECKING:
    import pyarrow as pa

    from barnabas.client.consumer.typed import MadeKey, MadeValue, Makes, Text

T = TypeVar("T")


class Consumer(ExplainsOtherMethods, Generic[Key, Value]):
    """Reads records from topics.

        with Consumer("clicks", bootstrap_servers="127.0.0.1:9092", group_id="g") as consumer:
            for record in consumer:
                print(record.partition, record.offset, record.value)

    Topics may be given here, or later with `subscribe`; `assign` takes partitions by hand. Settings have Kafka's names:
    as keywords with underscores, or in a dict with dots. Without `group_id` a consumer gets all partitions of its
    topics, and nothing is committed.

    With auto-commit a record counts as done when the program comes back for the next one. A consumer is for one thread
    at a time; only `wakeup` may be called by others. Listeners and callbacks run in the thread that polls.
    """

    _other_methods = CONSUMER_METHODS

    @overload
    def __init__(
        self: Consumer[MadeKey, MadeValue],
        *topics: TopicsOrConfig,
        key_deserializer: Makes[MadeKey] = ...,
        value_deserializer: Makes[MadeValue] = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[MadeKey, str],
        *topics: TopicsOrConfig,
        key_deserializer: Makes[MadeKey] = ...,
        value_deserializer: Text,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[MadeKey, Any],
        *topics: TopicsOrConfig,
        key_deserializer: Makes[MadeKey] = ...,
        value_deserializer: str,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[str, MadeValue],
        *topics: TopicsOrConfig,
        key_deserializer: Text,
        value_deserializer: Makes[MadeValue] = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[str, str],
        *topics: TopicsOrConfig,
        key_deserializer: Text,
        value_deserializer: Text,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[str, Any],
        *topics: TopicsOrConfig,
        key_deserializer: Text,
        value_deserializer: str,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, MadeValue],
        *topics: TopicsOrConfig,
        key_deserializer: str,
        value_deserializer: Makes[MadeValue] = ...,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, str],
        *topics: TopicsOrConfig,
        key_deserializer: str,
        value_deserializer: Text,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    @overload
    def __init__(
        self: Consumer[Any, Any],
        *topics: TopicsOrConfig,
        key_deserializer: str,
        value_deserializer: str,
        **settings: Unpack[ConsumerKeywords],
    ) -> None: ...

    def __init__(
        self,
        *topics: TopicsOrConfig,
        key_deserializer: Any = None,
        value_deserializer: Any = None,
        **settings: Unpack[ConsumerKeywords],
    ) -> None:
        self._consumer: AsyncConsumer[Key, Value] = AsyncConsumer(
            *topics,
            key_deserializer=key_deserializer,
            value_deserializer=value_deserializer,
            invoke=invoke,
            **settings,
        )
        try:
            self._thread = LoopThread(self._consumer.parts.client_id)
        except BaseException:
            self._consumer.parts.dispose()
            raise
        self._user: int | None = None
        self._depth = 0
        self._turn = threading.Lock()

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
        self._do(self._consumer.subscribe, topics, pattern=pattern, listener=listener)

    def assign(self, partitions: Iterable[TopicPartition]) -> None:
        """Read these partitions and no others, without a group's help. Those that were read before go on where they
        were. With auto-commit, how far the others were read is committed."""
        self._do(self._consumer.assign, list(partitions))

    def unsubscribe(self) -> None:
        """Read nothing any more, and leave the group. What the program was given counts as done."""
        self._wait(self._consumer.unsubscribe())

    def subscription(self) -> frozenset[str]:
        """The topics that are subscribed to."""
        return self._do(self._consumer.subscription)

    def assignment(self) -> list[TopicPartition]:
        """The partitions that are read at present."""
        return self._do(self._consumer.assignment)

    # Reading

    def poll(self, timeout: float | None = None, *, max_records: int | None = None) -> list[ConsumerRecord[Key, Value]]:
        """Records that are there, at most max.poll.records; waits for some up to `timeout` seconds, or for ever.

        What an earlier poll returned counts as done. An empty list means that the time is over. `NoBrokersError` is
        raised if no broker was ever reached, default.api.timeout.ms after the first use. A poll that Ctrl-C interrupts
        has returned nothing: the next one begins with the same records.
        """
        return self._wait(self._consumer.poll(timeout, max_records=max_records), self._consumer._put_back)

    def poll_arrow(self, timeout: float | None = None, *, max_rows: int | None = None) -> pa.RecordBatch:
        """The same as an Arrow record batch, with the columns topic, partition, offset, timestamp, key, value and
        headers; empty if the time is over. Keys and values are bytes: a consumer with deserializers is refused, and
        interceptors are for records.
        """
        return self._wait(self._consumer.poll_arrow(timeout, max_rows=max_rows), self._consumer._put_back)

    def __iter__(self) -> Iterator[ConsumerRecord[Key, Value]]:
        """Records for ever, one by one. Each counts as done when the next is asked for."""
        while True:
            chunk = self._wait(self._consumer._next_chunk(None))
            if chunk is not None:
                yield from self._consumer._intercepted(chunk)

    def wakeup(self) -> None:
        """Let the poll that is under way, or the next one, end with `WakeupError`. For other threads."""
        self._thread.call_soon(self._consumer.wakeup)

    # Positions

    def seek(self, partition: TopicPartition, offset: int | OffsetAndMetadata) -> None:
        """Read on from this offset."""
        self._do(self._consumer.seek, partition, offset)

    def seek_to_beginning(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read on from the first record that is there; all assigned partitions if none is named."""
        self._do(self._consumer.seek_to_beginning, list(partitions))

    def seek_to_end(self, partitions: Iterable[TopicPartition] = ()) -> None:
        """Read on with what is written from now on; all assigned partitions if none is named."""
        self._do(self._consumer.seek_to_end, list(partitions))

    def position(self, partition: TopicPartition, timeout: float | None = None) -> int:
        """The offset that is read next; found out if that is still open."""
        return self._wait(self._consumer.position(partition, timeout))

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        """Return no records of these until `resume`. They stay assigned."""
        self._do(self._consumer.pause, list(partitions))

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        self._do(self._consumer.resume, list(partitions))

    def paused(self) -> list[TopicPartition]:
        return self._do(self._consumer.paused)

    def current_lag(self, partition: TopicPartition) -> int | None:
        """How many offsets this consumer is behind; None if that is not known yet."""
        return self._do(self._consumer.current_lag, partition)

    # Commits

    def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None, timeout: float | None = None
    ) -> None:
        """Commit what was handed out so far, or these offsets, and return when that is done."""
        self._wait(self._consumer.commit(offsets, timeout))

    def commit_async(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata | int] | None = None,
        on_commit: CommitCallback | None = None,
    ) -> None:
        """The same without waiting: `on_commit(offsets, error)` is called in a later poll, commit or close."""
        self._wait(self._consumer.commit_async(offsets, on_commit))

    def committed(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """What the group has committed; None where it has not."""
        return self._wait(self._consumer.committed(partitions, timeout))

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group, for producers that commit offsets in transactions."""
        return self._do(self._consumer.group_metadata)

    def enforce_rebalance(self, reason: str = "the program asked for it") -> None:
        """Have the group share its partitions anew at the next poll."""
        self._do(self._consumer.enforce_rebalance, reason)

    # The cluster

    def beginning_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The first offset that each partition holds."""
        return self._wait(self._consumer.beginning_offsets(partitions, timeout))

    def end_offsets(
        self, partitions: Iterable[TopicPartition], timeout: float | None = None
    ) -> dict[TopicPartition, int]:
        """The offset behind the last record that this consumer can see in each partition."""
        return self._wait(self._consumer.end_offsets(partitions, timeout))

    def offsets_for_times(
        self, timestamps_ms: Mapping[TopicPartition, int], timeout: float | None = None
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """The first record at or after a time, by partition; None if there is none."""
        return self._wait(self._consumer.offsets_for_times(timestamps_ms, timeout))

    def partitions_for(self, topic: str, timeout: float | None = None) -> tuple[PartitionInfo, ...]:
        """The partitions of a topic, with their leaders."""
        return self._wait(self._consumer.partitions_for(topic, timeout))

    def list_topics(self, timeout: float | None = None) -> dict[str, tuple[PartitionInfo, ...]]:
        """All topics of the cluster that this client may see."""
        return self._wait(self._consumer.list_topics(timeout))

    def metrics(self) -> dict[str, dict[str, float]]:
        """What the consumer tells about itself, under Kafka's names: by group, then by metric with its tags."""
        return self._consumer.metrics()

    def prometheus(self) -> str:
        """The same as text for Prometheus."""
        return self._consumer.prometheus()

    # The end

    def close(self, timeout: float | None = None, *, leave_group: bool | None = None) -> None:
        """Commit if auto-commit is on, leave the group, and end; within 30 seconds unless `timeout` says otherwise.

        What the program was given counts as done, except when an exception takes it out of `with`.

        A dynamic member leaves the group, so that others get its partitions at once; a static one (`group.instance.id`)
        stays until its session ends, and goes on with what it had if it comes back before. `leave_group` says it for
        either: True to leave, False to stay.
        """
        self._end(timeout, is_done=True, leave_group=leave_group)

    def _end(self, timeout: float | None, *, is_done: bool, leave_group: bool | None = None) -> None:
        if not self._thread.is_usable:
            self._thread.close()
            return
        self._thread.check()
        self._enter()
        try:
            self._thread.run(self._consumer._end(timeout, is_done=is_done, leave_group=leave_group))
        finally:
            self._leave()
            self._thread.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._end(None, is_done=error is None)

    # How calls reach the background

    @property
    def parts(self) -> ConsumerParts:
        """What works in the background. For what builds on consumers, such as readers of ranges; not for programs."""
        return self._consumer.parts

    def _wait(self, coroutine: Coroutine[Any, Any, T], on_dropped: Callable[[], object] | None = None) -> T:
        """Run it there, and run here what it wants the program to do meanwhile."""
        try:
            self._enter()
        except BaseException:
            coroutine.close()
            raise
        try:
            return self._thread.run(coroutine, on_dropped)
        finally:
            self._leave()

    def _enter(self) -> None:
        me = threading.get_ident()
        if self._user != me:
            if not self._turn.acquire(blocking=False):
                raise WrongUseError("the consumer is used by two threads at once: give each a consumer of its own")
            self._user = me
        self._depth += 1

    def _leave(self) -> None:
        self._depth -= 1
        if not self._depth:
            self._user = None
            self._turn.release()

    def _do(self, function: Callable[..., T], *arguments: Any, **keywords: Any) -> T:
        """The same for a function that only the background thread may call."""
        if not self._thread.is_usable:
            self._thread.check_process()
            raise ClientClosedError("the consumer is closed")

        async def call() -> T:
            return function(*arguments, **keywords)

        return self._wait(call())


def run_beneath(
    consumer: Consumer[Key, Value], work: Callable[[AsyncConsumer[Key, Value]], Coroutine[Any, Any, T]]
) -> T:
    """Have work done with the consumer for asyncio that is beneath this one, on its event loop, and wait for it.

    For what builds on consumers. Not a method: both kinds of consumers have the same ones.
    """
    return consumer._wait(work(consumer._consumer))
