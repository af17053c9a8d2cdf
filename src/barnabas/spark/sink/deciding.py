"""The driver of a write that is exactly once: takes the steps of the protocol, with clients."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BarnabasError, BrokerError
from barnabas.base.ids import TopicPartition
from barnabas.client.core.consuming.membership_steps import GroupMetadata
from barnabas.client.core.consuming.offsets import OffsetAndMetadata
from barnabas.client.core.producing.transaction_states import TransactionHandle
from barnabas.client.errors import KeyedError, ProducerFencedError
from barnabas.net.errors import UnsupportedRequestError
from barnabas.spark.core.exactly_once import steps
from barnabas.spark.core.exactly_once.control import Control, LostControl, Receipt, TaskPart
from barnabas.spark.core.exactly_once.names import Stream, prefix_of_query, stream_of
from barnabas.spark.core.exactly_once.refusals import DeliveryError
from barnabas.spark.sink.advice import advice_for, with_advice
from barnabas.spark.sink.control_topic import create_control_topic, has_topic
from barnabas.spark.sink.driver_clients import driver_clients
from barnabas.spark.sink.settings import transaction_timeout_ms

if TYPE_CHECKING:
    from barnabas import ConsumerRecord, Producer
    from barnabas.client.admin.transactions import TransactionDescription, TransactionListing, TransactionState

T = TypeVar("T")

#: A decision has some 260 bytes for each task, a twelfth of that when it is packed; brokers take a megabyte.
_FOR_MANY_TASKS: Final = {"compression.type": "gzip", "max.request.size": str(32 << 20)}
#: Longer than the transactions of other drivers, which hold back what can be read of the control topic.
_READ_S: Final = 60.0
_log: Final = logging.getLogger("barnabas.spark")


class DecidingCluster:
    """The cluster as the driver of one batch asks it. One of these per `commit` or `abort`."""

    def __init__(self, client: Mapping[str, str], control_topic: str, *, creates: bool = True) -> None:
        self._client = client
        self._place = TopicPartition(control_topic, 0)
        #: Whether the control topic comes to be if it is not there; who only looks finds it empty.
        self._creates = creates
        self._has_topic = True
        self._open = ExitStack()
        self._producer: Producer | None = None
        #: When the record of this driver was written, by the clock of the cluster.
        self._written_ms: int | None = None
        #: Transactions that were decided so long ago that no coordinator knows them any more.
        self._forgotten: list[str] = []

    def __enter__(self) -> Self:
        self._clients = self._open.enter_context(driver_clients.lend(self._client))
        self._admin = self._clients.admin
        try:
            if self._creates:
                create_control_topic(self._admin, self._place.topic)
                self._clients.check_control_topic(self._place.topic)
            else:
                self._has_topic = has_topic(self._admin, self._place.topic)
        except BaseException:
            self.__exit__(*sys.exc_info())
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # Of clients that were in use when something failed, nobody knows whether they are of use.
        self._open.__exit__(kind, error, traceback)

    def perform(self, asked: steps.Steps[T]) -> T:
        """Take one step after the other until there are no more."""
        answer: Any = None
        try:
            while True:
                answer = self.take(asked.send(answer))
        except StopIteration as end:
            if self._forgotten:
                _log.warning(
                    "The brokers have forgotten what became of %d transactions of a batch before, the first being %s. "
                    "That they were committed is what receipts or the checkpoint say.",
                    len(self._forgotten),
                    self._forgotten[0],
                )
            result: T = end.value
            return result

    def take(self, step: steps.DriverStep[Any]) -> Any:
        with self._advised(step.stream):
            return _TAKEN[type(step)](self, step)

    @contextmanager
    def _advised(self, stream: Stream) -> Iterator[None]:
        """What the cluster refuses is told with what helps."""
        try:
            yield
        except BarnabasError as error:
            topic = self._place.topic
            if isinstance(error, DeliveryError) or advice_for(error, stream, topic) is None:
                raise
            raise DeliveryError(
                f"the driver of query {stream.query} is refused what delivery=exactly-once needs:"
                f" {with_advice(error, stream, topic)}"
            ) from error

    def newest_done(self, stream: Stream) -> tuple[str, int]:
        """Which batch was the newest that was seen to come to its end in this process, behind the run that wrote it."""
        return self._clients.newest_done.get((self._place.topic, stream), ("", -1))

    def done(self, stream: Stream, run: str, batch: int) -> None:
        self._clients.newest_done[self._place.topic, stream] = run, batch

    # The control topic.

    def seen(self, stream: Stream) -> Control | LostControl | None:
        """The newest control record as it is committed now, or that it is lost."""
        with self._advised(stream):
            return self._control(stream, is_stable=False)

    def _peek_control(self, step: steps.PeekControl) -> Control | None:
        found = self._control(step.stream, is_stable=False)
        return self._newest_record(step.stream.name, is_stable=False) if isinstance(found, LostControl) else found

    def _read_control(self, step: steps.ReadControl) -> Control | LostControl | None:
        return self._control(step.stream, is_stable=True)

    def _control(self, stream: Stream, *, is_stable: bool) -> Control | LostControl | None:
        """By the offset that was committed with the newest record, or else by reading all. Brokers may have lost the
        end of their offsets, and not that of the control topic: so what may be newer is looked for."""
        key = stream.name
        committed = self._admin.list_group_offsets({key: [self._place]}, require_stable=is_stable)[key]
        if self._place not in committed:
            return self._newest_record(key, is_stable=is_stable)
        offset = committed[self._place].offset
        found, is_last = self._record_at(key, offset)
        if found is None:
            return LostControl(self._place.topic, offset)
        return found if is_last or not is_stable else self._newest_record(key, is_stable=True)

    def _record_at(self, key: str, offset: int) -> tuple[Control | None, bool]:
        """What is there, and whether none of that key is behind it, be it committed or not."""
        found, is_last = None, True
        # It is known to be committed: whatever others have open before it need not be waited for.
        with self._clients.reading(self._place, "read_uncommitted") as consumer:
            first, end = consumer.beginning_offsets([self._place]), consumer.end_offsets([self._place])
            if not first[self._place] <= offset < end[self._place]:
                return None, is_last
            consumer.seek(self._place, offset)
            deadline_s = time.monotonic() + _READ_S
            while consumer.position(self._place) < end[self._place]:
                for record in consumer.poll(1.0):
                    if record.key == key.encode() and record.value is not None:
                        if record.offset == offset:
                            found = Control.decode(record.value)
                        else:
                            is_last = False
                if time.monotonic() > deadline_s:
                    raise DeliveryError(f"the control topic '{self._place.topic}' cannot be read")
        return found, is_last

    def _read_others(self, step: steps.ReadOthers) -> dict[str, Control]:
        newest: dict[str, bytes] = {}
        for record in self._records(is_stable=True):
            stream = stream_of((record.key or b"").decode(errors="replace"), step.stream.query)
            if stream is not None and stream != step.stream and record.value is not None:
                newest[stream.sink] = record.value
        return {sink: Control.decode(value) for sink, value in newest.items()}

    def _newest_record(self, key: str, *, is_stable: bool) -> Control | None:
        newest = None
        for record in self._records(is_stable=is_stable):
            if record.key == key.encode() and record.value is not None:
                newest = record.value
        return None if newest is None else Control.decode(newest)

    def _records(self, *, is_stable: bool) -> Iterator[ConsumerRecord]:
        """All committed records; if `is_stable`, once what is there now is committed or aborted."""
        if not self._has_topic:
            return
        isolation_level = "read_uncommitted" if is_stable else "read_committed"
        with self._clients.reading(self._place, isolation_level) as consumer:
            end = consumer.end_offsets([self._place])[self._place]
        deadline_s = time.monotonic() + _READ_S
        with self._clients.reading(self._place, "read_committed") as consumer:
            consumer.seek_to_beginning([self._place])
            while consumer.position(self._place) < end:
                yield from consumer.poll(1.0)
                if time.monotonic() > deadline_s:
                    raise DeliveryError(
                        f"the control topic '{self._place.topic}' cannot be read to its end: a transaction in it was"
                        f" open for {_READ_S:.0f} s"
                    )

    def _fence_driver(self, step: steps.FenceDriver) -> None:
        from barnabas import Producer

        settings = {
            **self._client,
            "transactional.id": step.stream.driver_id,
            "transaction.timeout.ms": str(steps.DRIVER_TIMEOUT_MS),
            **_FOR_MANY_TASKS,
        }
        self._producer = Producer(settings)
        self._open.callback(self._producer.close)
        self._producer.init_transactions()

    def _write_control(self, step: steps.WriteControl) -> None:
        producer, key = self._fenced(), step.stream.name
        producer.begin_transaction()
        sent = producer.send(self._place.topic, step.control.encode(), key=key.encode(), partition=0)
        producer.flush()
        metadata = sent.result()
        self._written_ms = metadata.timestamp_ms
        producer.send_offsets_to_transaction({self._place: OffsetAndMetadata(metadata.offset)}, GroupMetadata(key))

    def _commit_control(self, step: steps.CommitControl) -> None:
        self._fenced().commit_transaction()

    def _drop_control(self, step: steps.DropControl) -> None:
        self._fenced().abort_transaction()

    def _fenced(self) -> Producer:
        assert self._producer is not None
        return self._producer

    def streams_of(self, query: str) -> list[Stream]:
        """All sinks of a query, by their decisions and by what they have open."""
        names = [record.key.decode(errors="replace") for record in self._records(is_stable=False) if record.key]
        names += self._listed(prefix_of_query(query), "Ongoing")
        found = {stream for name in names if (stream := stream_of(name, query)) is not None}
        return sorted(found, key=lambda stream: stream.sink)

    # The transactions of tasks.

    def _list_open(self, step: steps.ListOpen) -> tuple[str, ...]:
        return self._listed(step.stream.task_prefix, "Ongoing")

    def _has_committed(self, step: steps.HasCommitted) -> bool:
        return bool(self._listed(step.stream.task_prefix, "PrepareCommit", "CompleteCommit"))

    def _listed(self, prefix: str, *states: str) -> tuple[str, ...]:
        """What the cluster tells; brokers older than 3.0 tell nothing."""
        try:
            listed = self._admin.list_transactions(states=states, pattern=prefix.replace(".", "[.]") + ".*")
        except (UnsupportedRequestError, KeyedError) as error:
            _told_by_newer_brokers(error)  # raises what is wrong beside that
            try:
                listed = self._admin.list_transactions(states=states)
            except (UnsupportedRequestError, KeyedError) as older:
                listed = _told_by_newer_brokers(older)
        return tuple(each.transactional_id for each in listed if each.transactional_id.startswith(prefix))

    def _probe(self, step: steps.Probe) -> dict[str, int]:
        if not step.parts:
            return {}
        now_ms = self._written_ms or int(time.time() * 1000)
        handles = [each.handle for each in step.parts]
        found = self._described(step.parts)
        if found is None:
            return self._probed_one_by_one(step)
        return {
            each.transactional_id: described.started_ms + described.timeout_ms - now_ms
            for each in handles
            if (described := found.get(each.transactional_id)) is not None
            and described.started_ms is not None
            and _is_open(described.state, (described.producer_id, described.producer_epoch), each)
        }

    def _probed_one_by_one(self, step: steps.Probe) -> dict[str, int]:
        """As clusters before 3.0 tell it: whether a producer may go on. When it began is told by the clocks of tasks
        and driver."""
        now_ms, timeout_ms = int(time.time() * 1000), transaction_timeout_ms(self._client)
        return {
            part.handle.transactional_id: part.begun_ms + timeout_ms - now_ms
            for part in step.parts
            if self._admin.is_transaction_open(part.handle, step.stream.group_of(part.task))
        }

    def described(self, stream: Stream, parts: Sequence[TaskPart]) -> Mapping[str, TransactionDescription] | None:
        """By id, as far as they are known; None if the cluster, or part of it, does not tell, being older than 3.0."""
        with self._advised(stream):
            return self._described(parts)

    def _described(self, parts: Sequence[TaskPart]) -> Mapping[str, TransactionDescription] | None:
        if not parts:
            return {}
        try:
            return self._admin.describe_transactions([part.handle.transactional_id for part in parts])
        except KeyedError as error:
            if any(isinstance(each, UnsupportedRequestError) for each in error.errors.values()):
                return None
            if any(not _is_unknown(each) for each in error.errors.values()):
                raise
            return error.results
        except BrokerError as error:
            if not _is_unknown(error):
                raise
            return {}
        except UnsupportedRequestError:
            return None

    def _commit_task(self, step: steps.CommitTask) -> bool | None:
        try:
            self._admin.end_transaction(step.handle)
        except ProducerFencedError:
            return False
        except BrokerError as error:
            if error.code is ErrorCode.INVALID_PRODUCER_ID_MAPPING:
                self._forgotten.append(step.handle.transactional_id)
                return None
            if error.code is not ErrorCode.INVALID_TXN_STATE:
                raise
            return False
        return True

    def _abort_tasks(self, step: steps.AbortTasks) -> None:
        self._admin.fence_producers(step.transactional_ids)

    def _read_receipt(self, step: steps.ReadReceipt) -> Receipt | None:
        return self._receipt(step.stream, step.task, is_stable=True)

    def _peek_receipt(self, step: steps.PeekReceipt) -> Receipt | None:
        return self._receipt(step.stream, step.task, is_stable=False)

    def _receipt(self, stream: Stream, task: int, *, is_stable: bool) -> Receipt | None:
        group = stream.group_of(task)
        committed = self._admin.list_group_offsets({group: [self._place]}, require_stable=is_stable)[group]
        found = committed.get(self._place)
        return None if found is None else Receipt(found.offset, found.metadata)


def _told_by_newer_brokers(error: UnsupportedRequestError | KeyedError) -> list[TransactionListing]:
    """What those brokers tell that know the question. Raises what else went wrong."""
    if isinstance(error, UnsupportedRequestError):
        return []
    if not all(isinstance(each, UnsupportedRequestError) for each in error.errors.values()):
        raise error
    return [each for listed in error.results.values() for each in listed]


def _is_unknown(error: Exception) -> bool:
    return isinstance(error, BrokerError) and error.code is ErrorCode.TRANSACTIONAL_ID_NOT_FOUND


def _is_open(state: TransactionState, identity: tuple[int, int], handle: TransactionHandle) -> bool:
    return state == "Ongoing" and identity == (handle.producer_id, handle.producer_epoch)


_TAKEN: Final[Mapping[type, Callable[[DecidingCluster, Any], Any]]] = {
    steps.PeekControl: DecidingCluster._peek_control,
    steps.ReadControl: DecidingCluster._read_control,
    steps.ReadOthers: DecidingCluster._read_others,
    steps.HasCommitted: DecidingCluster._has_committed,
    steps.FenceDriver: DecidingCluster._fence_driver,
    steps.ListOpen: DecidingCluster._list_open,
    steps.WriteControl: DecidingCluster._write_control,
    steps.CommitControl: DecidingCluster._commit_control,
    steps.DropControl: DecidingCluster._drop_control,
    steps.Probe: DecidingCluster._probe,
    steps.CommitTask: DecidingCluster._commit_task,
    steps.AbortTasks: DecidingCluster._abort_tasks,
    steps.ReadReceipt: DecidingCluster._read_receipt,
    steps.PeekReceipt: DecidingCluster._peek_receipt,
}
