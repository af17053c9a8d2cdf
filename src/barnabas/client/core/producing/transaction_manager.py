"""The transactions of one producer: where they stand, and what is to be asked of coordinators next. No I/O, no clock.

`next_request` gives what to send; it ends in one `answered` or `failed`. One request is on its way at a time.

What must hold, whatever fails:

1. A record is taken only between `begin` and `commit` or `abort` (`on_change` lets the accumulator know), and leaves
   only when its partition is part of the transaction; with transactions v2 the broker makes it so.
2. The end of a transaction is asked for only when no record of it is open or on its way. So nothing of it can come
   after its marker.
3. A batch that failed makes a commit impossible. After it the epoch changes: by InitProducerId with v1, by EndTxn
   itself with v2. So whatever of the old numbers still turns up is refused.
4. An error is abortable or fatal. Fatal stays, and everybody who waits is told at once.
5. A transaction is of one kind from its first request to its end, also if the cluster's transaction.version changes
   meanwhile. The kind is chosen at `init_transactions` and at each end, for the transaction that follows.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Final, NoReturn, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, RemoteProtocolError, check
from barnabas.base.log_context import logger
from barnabas.client.core.producing.transaction_answers import errors_of, worst
from barnabas.client.core.producing.transaction_requests import (
    Consequence,
    CoordinatorKey,
    Kind,
    TransactionRequest,
    add_offsets_request,
    add_partitions_request,
    end_request,
    init_request,
    txn_offset_commit_request,
    verdict,
)
from barnabas.client.core.producing.transaction_states import SOURCES, State, TransactionHandle, TransactionResult
from barnabas.client.errors import (
    ClientTimeoutError,
    ProducerFencedError,
    TransactionAbortableError,
    TransactionAbortedError,
    TransactionError,
    TransactionFatalError,
    TransactionStateError,
)
from barnabas.net.errors import ChannelError, RefusedError

if TYPE_CHECKING:
    from barnabas.base.ids import TopicPartition
    from barnabas.client.core.producing.transaction_requests import Offsets, OffsetsOwner

_log = logger(__name__)

E = TypeVar("E", bound=TransactionError)

#: How long to wait while the transaction before is still being completed.
_CONCURRENT_BACKOFF_MS: Final = 20
#: From here on the epoch of a producer can be raised.
_BUMPING_INIT: Final = 3
_V2: Final = 2
#: By these a coordinator counts a transaction as begun, with v1.
_OPENING: Final = frozenset({Kind.ADD_PARTITIONS, Kind.ADD_OFFSETS})
#: With these a producer is not allowed to go on, whatever it was about.
_FATAL_OF_BATCHES: Final = frozenset(
    {
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.UNSUPPORTED_VERSION,
    }
)


class TransactionManager:
    """See the module. Everything belongs to the thread of the sender, but `check_accepts`, which only looks."""

    def __init__(
        self,
        transactional_id: str,
        *,
        timeout_ms: int,
        retry_backoff_ms: int,
        finalized: Callable[[], tuple[int, int]] = lambda: (-1, 0),
        assign: Callable[[int, int], None] = lambda producer_id, epoch: None,
    ) -> None:
        self.transactional_id = transactional_id
        self._timeout_ms = timeout_ms
        self._backoff_ms = retry_backoff_ms
        # The newest finalised features that are known: their epoch, and the level of transaction.version.
        self._finalized = finalized
        self._features_epoch = -1
        #: Told each new id and epoch; sequences begin at 0 then.
        self.assign = assign
        #: Called after each change of the state.
        self.on_change: Callable[[], object] = lambda: None
        self.state = State.UNINITIALIZED
        #: Why a transaction must be aborted, or the producer cannot go on.
        self.error: TransactionError | None = None
        self.producer_id = -1
        self.epoch = -1
        self.is_v2 = False
        self._can_bump = False
        self._must_bump = False
        self._is_started = False
        self._partitions: set[TopicPartition] = set()
        self._new: set[TopicPartition] = set()
        self._asked: frozenset[TopicPartition] = frozenset()
        self._queue: list[TransactionRequest] = []
        self._in_flight: TransactionRequest | None = None
        self._coordinators: dict[tuple[CoordinatorKey, str], int] = {}
        # The last call that changes the state and has to be heard of before another.
        self._pending: TransactionResult | None = None

    # What the program calls

    def init(self) -> TransactionResult:
        pending = self._same_call("init_transactions()")
        if pending is not None:
            return pending
        self._check_error()
        if self.state is not State.UNINITIALIZED:
            self._refuse("init_transactions()", "it was called already: once is enough")
        result = self._began("init_transactions()")
        self._move(State.INITIALIZING)
        self._enqueue(init_request(result, self.transactional_id, self._timeout_ms))
        return result

    def begin(self) -> None:
        self._check_no_other("begin_transaction()")
        self._check_error()
        if self.state is State.UNINITIALIZED:
            self._refuse("begin_transaction()", "call init_transactions() first")
        if self.state is not State.READY:
            self._refuse("begin_transaction()", "commit or abort the transaction before")
        self._move(State.IN_TRANSACTION)

    def commit(self) -> TransactionResult:
        pending = self._same_call("commit_transaction()")
        if pending is not None:
            return pending
        self._check_error()
        if self.state is not State.IN_TRANSACTION:
            self._refuse("commit_transaction()", "call begin_transaction() first")
        return self._complete("commit_transaction()", State.COMMITTING)

    def abort(self) -> TransactionResult:
        pending = self._same_call("abort_transaction()")
        if pending is not None:
            return pending
        if self.state is State.FATAL_ERROR:
            self._check_error()
        if self.state not in (State.IN_TRANSACTION, State.ABORTABLE_ERROR):
            self._refuse("abort_transaction()", "call begin_transaction() first")
        self._new.clear()
        self._drop_what_groups_are_asked()
        return self._complete("abort_transaction()", State.ABORTING)

    def send_offsets(self, offsets: Offsets, group: OffsetsOwner) -> TransactionResult:
        name = "send_offsets_to_transaction()"
        self._check_no_other(name)
        self._check_error()
        if self.state is not State.IN_TRANSACTION:
            self._refuse(name, "call begin_transaction() first")
        result = TransactionResult(name)
        if not offsets:
            result.finish()
        elif self.is_v2:
            self._is_started = True
            self._enqueue(self._offset_commit(result, offsets, group))
        else:
            self._enqueue(add_offsets_request(result, self.transactional_id, self._producer, offsets, group))
        return result

    @property
    def pending(self) -> TransactionResult:
        """The last call that changes the state."""
        return self._pending or TransactionResult("close()")

    def forget_pending(self) -> None:
        """Nobody will call again what has timed out: the program is about to abort."""
        if self._pending is not None and not self.is_completing:
            self._pending.is_told = True

    def check_prepare(self) -> None:
        name = "transaction_handle()"
        self._check_no_other(name)
        self._check_error()
        if self.state is not State.IN_TRANSACTION:
            self._refuse(name, "call begin_transaction() first")

    def prepare(self) -> TransactionHandle:
        """Let go of the transaction, whose records are all acknowledged: somebody else will end it."""
        self.check_prepare()
        self._move(State.PREPARED)
        version = _V2 if self.is_v2 else 1
        return TransactionHandle(
            self.transactional_id, self.producer_id, self.epoch, version, is_empty=not self._is_started
        )

    def check_accepts(self) -> None:
        """Raise why a record cannot be taken now. May be called by any thread."""
        state = self.state
        if state is State.IN_TRANSACTION:
            return
        self._check_error()
        if state in (State.UNINITIALIZED, State.INITIALIZING):
            self._refuse("send()", "call init_transactions() and begin_transaction() first")
        self._refuse("send()", "call begin_transaction() first" if state is State.READY else "")

    # What the sender asks

    @property
    def accepts_records(self) -> bool:
        return self.state is State.IN_TRANSACTION

    @property
    def is_completing(self) -> bool:
        return self.state in (State.COMMITTING, State.ABORTING)

    @property
    def is_open(self) -> bool:
        """Whether there is a transaction that somebody has to end."""
        return self.is_completing or self.state in (State.IN_TRANSACTION, State.ABORTABLE_ERROR)

    @property
    def drops_records(self) -> bool:
        """Whether what was never sent shall not be sent any more."""
        return self.state in (State.ABORTABLE_ERROR, State.ABORTING)

    @property
    def is_fatal(self) -> bool:
        return self.state is State.FATAL_ERROR

    @property
    def has_requests(self) -> bool:
        return self._in_flight is not None or bool(self._queue)

    def add_partitions(self, partitions: Iterable[TopicPartition]) -> None:
        """Records wait for these."""
        if self.state not in (State.IN_TRANSACTION, State.COMMITTING):
            return
        for each in partitions:
            if each not in self._partitions and each not in self._asked:
                self._new.add(each)
        if self.is_v2 and self._new:
            self._partitions |= self._new
            self._new.clear()
            self._is_started = True

    def may_send(self, partition: TopicPartition) -> bool:
        return partition in self._partitions and self.state is not State.FATAL_ERROR

    def batch_failed(self, error: Exception, was_sent: bool) -> None:
        """A batch was given up."""
        code = error.code if isinstance(error, BrokerError) else None
        if code in _FATAL_OF_BATCHES or isinstance(error, RefusedError):
            self.fail(error)
        elif not self.is_v2 and was_sent and not self._can_bump:
            self.fail(
                TransactionFatalError(
                    f"a batch failed, and these brokers (older than Kafka 2.5) cannot begin a new epoch: {error}"
                )
            )
        else:
            self._must_bump = self._must_bump or was_sent
            self._to_abort(error)

    def next_request(self, now_ms: int, has_incomplete: bool) -> TransactionRequest | None:
        """What to send now, if anything. `has_incomplete` says whether a record is open or on its way."""
        if self._in_flight is not None:
            return None
        if self._new:
            new = frozenset(self._new)
            self._new.clear()
            self._asked |= new
            result = TransactionResult("send()")
            self._enqueue(add_partitions_request(result, self.transactional_id, self._producer, new))
        while self._queue:
            request = min(self._queue, key=lambda each: each.kind)
            if request.kind is Kind.END:
                if has_incomplete:
                    return None
                if not self._is_started:
                    self._queue.remove(request)
                    self._ended(request.result)
                    continue
            if request.not_before_ms > now_ms:
                return None
            if request.kind is not Kind.FIND_COORDINATOR:
                found = self._coordinators.get((request.coordinator, request.key))
                if found is None:
                    self._look_up(request)
                    continue
                request.node_id = found
            self._queue.remove(request)
            self._in_flight = request
            return request
        return None

    def wait_ms(self, now_ms: int) -> float:
        """How long until there may be something to send, if nothing else happens."""
        if self._in_flight is not None or not self._queue:
            return math.inf
        first = min(self._queue, key=lambda each: each.kind)
        return first.not_before_ms - now_ms if first.not_before_ms > now_ms else math.inf

    # What came of it

    def answered(self, request: TransactionRequest, response: Any, version: int, now_ms: int) -> None:
        """A coordinator answered; of FindCoordinator this is the number of the node."""
        self._in_flight = None
        if request.kind is Kind.FIND_COORDINATOR:
            self._coordinators[request.coordinator, request.key] = response
            request.result.finish()
            return
        found, code, text = worst(request.kind, errors_of(request, response))
        if found is Consequence.DONE:
            self._succeeded(request, response, version)
        else:
            self._judge(request, found, BrokerError(code, f"{request.kind.name}: {text}"), now_ms)

    def failed(self, request: TransactionRequest, error: Exception, now_ms: int) -> None:
        """No answer will come. Whether it was carried out is not known."""
        self._in_flight = None
        if isinstance(error, BrokerError):
            found = verdict(request.kind, error.code)
            self._judge(request, Consequence.TRY_AGAIN if found is Consequence.DONE else found, error, now_ms)
        elif isinstance(error, RefusedError):
            self._judge(request, Consequence.FATAL, error, now_ms)
        elif isinstance(error, (ChannelError, ClientTimeoutError)):
            again = Consequence.TRY_AGAIN if request.kind is Kind.FIND_COORDINATOR else Consequence.LOOK_UP
            self._judge(request, again, error, now_ms)
        else:
            self._judge(request, Consequence.FATAL, error, now_ms)

    def _judge(self, request: TransactionRequest, found: Consequence, error: Exception, now_ms: int) -> None:
        _log.debug("%r: %s, so %s", request, error, found.value)
        if found in (Consequence.TRY_AGAIN, Consequence.LOOK_UP):
            self._retry(request, found, error, now_ms)
        elif found is Consequence.FENCED:
            self.fail(self._fenced(error), request.result)
        elif found is Consequence.REFUSED:
            refusal = _told(TransactionError, f"{error}; nothing was begun, and it may be tried again", error)
            self._move(State.UNINITIALIZED)
            self._drop_queue(refusal)
            request.result.finish(refusal)
        elif found is Consequence.FATAL or self._is_last_resort(request, found):
            self.fail(error, request.result)
        else:
            self._asked = frozenset() if request.kind is Kind.ADD_PARTITIONS else self._asked
            self._must_bump = self._must_bump or found is Consequence.ABORT_AND_BUMP
            self._to_abort(error, request.result)

    def _is_last_resort(self, request: TransactionRequest, found: Consequence) -> bool:
        """Whether aborting cannot help: this is what an abort, or a beginning, needs, or no new epoch can be had."""
        if found is Consequence.ABORT_AND_BUMP and not (self._can_bump or self.is_v2):
            return True
        is_needed = request.kind in (Kind.END, Kind.FIND_COORDINATOR) and request.key == self.transactional_id
        return is_needed and self.state in (State.ABORTING, State.INITIALIZING)

    def _retry(self, request: TransactionRequest, found: Consequence, error: Exception, now_ms: int) -> None:
        is_concurrent = isinstance(error, BrokerError) and error.code is ErrorCode.CONCURRENT_TRANSACTIONS
        wait_ms = min(self._backoff_ms, _CONCURRENT_BACKOFF_MS) if is_concurrent else self._backoff_ms
        request.attempts += 1
        request.not_before_ms = now_ms + wait_ms
        if found is Consequence.LOOK_UP:
            self._coordinators.pop((request.coordinator, request.key), None)
            self._look_up(request)
        self._enqueue(request)

    def _succeeded(self, request: TransactionRequest, response: Any, version: int) -> None:
        kind = request.kind
        if kind in (Kind.INIT_PRODUCER_ID, Kind.BUMP_EPOCH):
            self._can_bump = version >= _BUMPING_INIT
            self._take_id(response.producer_id, response.producer_epoch)
            if kind is Kind.INIT_PRODUCER_ID:
                self._look_at_features()
                self._must_bump = False
            if self.state is State.INITIALIZING:
                self._move(State.READY)
            request.result.finish()
        elif kind is Kind.ADD_PARTITIONS:
            self._partitions |= request.subject
            self._asked -= request.subject
            self._is_started = True
            request.result.finish()
        elif kind is Kind.ADD_OFFSETS:
            self._is_started = True
            self._enqueue(self._offset_commit(request.result, *request.subject))
        elif kind is Kind.TXN_OFFSET_COMMIT:
            request.result.finish()
        else:
            if response.producer_id >= 0:
                self._take_id(response.producer_id, response.producer_epoch)
                self._must_bump = False
            self._ended(request.result)

    def _ended(self, result: TransactionResult) -> None:
        """The transaction is over. The call is, too, unless the epoch has to change first."""
        self._is_started = False
        self._partitions.clear()
        self._new.clear()
        self._asked = frozenset()
        self.error = None
        self._look_at_features()
        must_bump, self._must_bump = self._must_bump, False
        if must_bump and self._can_bump:
            self._move(State.INITIALIZING)
            self._enqueue(init_request(result, self.transactional_id, self._timeout_ms, bumped=self._producer))
            return
        self._move(State.READY)
        result.finish()

    def _take_id(self, producer_id: int, epoch: int) -> None:
        if producer_id < 0 or epoch < 0:
            raise RemoteProtocolError(f"producer id {producer_id} with epoch {epoch} is none")
        self.producer_id, self.epoch = producer_id, epoch
        self.assign(producer_id, epoch)

    # Errors

    def fail(self, cause: Exception, *results: TransactionResult) -> None:
        """The producer cannot go on; everybody who waits is told."""
        if self.state is State.FATAL_ERROR:
            for each in results:
                each.finish(self.error)
            return
        error = cause if isinstance(cause, TransactionFatalError) else self._fatal(cause)
        _log.error("Transactional id %s: %s", self.transactional_id, error)
        self.error = error
        self._move(State.FATAL_ERROR)
        for each in results:
            each.finish(error)
        self._drop_queue(error)
        if self._in_flight is not None:
            self._in_flight.result.finish(error)
        if self._pending is not None:
            self._pending.finish(error)

    def _fatal(self, cause: Exception) -> TransactionFatalError:
        code = cause.code if isinstance(cause, BrokerError) else None
        if code is ErrorCode.PRODUCER_FENCED:
            return self._fenced(cause)
        text = f"transactional id {self.transactional_id!r}: the producer cannot go on; close it: {cause}"
        return _told(TransactionFatalError, text, cause)

    def _fenced(self, cause: Exception) -> ProducerFencedError:
        text = (
            f"another producer with the transactional id {self.transactional_id!r} has begun, or the transaction took "
            f"longer than transaction.timeout.ms = {self._timeout_ms}: this one (producer id {self.producer_id}, epoch "
            f"{self.epoch}) is locked out, and its open transaction is aborted; close it ({cause})"
        )
        return _told(ProducerFencedError, text, cause)

    def _to_abort(self, cause: Exception, *results: TransactionResult) -> None:
        error = self.error
        if not isinstance(error, TransactionAbortableError):
            text = f"transactional id {self.transactional_id!r}: the transaction must be aborted: {cause}"
            error = _told(TransactionAbortableError, text, cause)
        for each in results:
            each.finish(error)
        if self.state in (State.IN_TRANSACTION, State.COMMITTING):
            _log.info("Transactional id %s: %s", self.transactional_id, error)
            self.error = error
            self._move(State.ABORTABLE_ERROR)
            self._drop_queue(error)

    def _drop_queue(self, error: Exception) -> None:
        """What is not on its way is not sent. That coordinators are looked up does no harm."""
        dropped, self._queue = self._queue, [each for each in self._queue if each.kind is Kind.FIND_COORDINATOR]
        self._asked = frozenset() if self._in_flight is None else self._asked
        for each in dropped:
            if each.kind is not Kind.FIND_COORDINATOR or self.is_fatal:
                self._drop(each, error)
        if self.is_fatal:
            self._queue.clear()

    def _drop_what_groups_are_asked(self) -> None:
        """An abort needs no coordinator of a group, and that may not be there for long."""
        of_groups = [
            each for each in self._queue if each.coordinator is CoordinatorKey.GROUP or each.kind is Kind.ADD_OFFSETS
        ]
        for each in of_groups:
            self._queue.remove(each)
            self._drop(each, TransactionAbortedError("the transaction was aborted before its offsets were committed"))

    def _drop(self, request: TransactionRequest, error: Exception) -> None:
        # It may have been carried out. Then a new epoch makes the coordinator abort what it opened.
        self._must_bump = self._must_bump or (request.attempts > 0 and request.kind in _OPENING)
        request.result.finish(error)

    def _check_error(self) -> None:
        error = self.error
        if error is not None:
            # It is raised again and again: each time it should tell of this time only.
            raise error.with_traceback(None)

    def _refuse(self, call: str, advice: str) -> NoReturn:
        raise TransactionStateError(
            f"transactional id {self.transactional_id!r}: {call} is not possible, as the producer is {self.state.value}"
            + (f"; {advice}" if advice else "")
        )

    # Parts

    @property
    def _producer(self) -> tuple[int, int]:
        return self.producer_id, self.epoch

    def _complete(self, operation: str, state: State) -> TransactionResult:
        result = self._began(operation)
        self._move(state)
        self.error = None
        is_commit = state is State.COMMITTING
        self._enqueue(end_request(result, self.transactional_id, self._producer, is_commit, self.is_v2))
        return result

    def _offset_commit(self, result: TransactionResult, offsets: Offsets, group: OffsetsOwner) -> TransactionRequest:
        return txn_offset_commit_request(result, self.transactional_id, self._producer, offsets, group, self.is_v2)

    def _look_at_features(self) -> None:
        """Choose the kind of the next transaction. The first one of the new kind begins with an epoch of its own."""
        features_epoch, level = self._finalized()
        if features_epoch <= self._features_epoch:
            return
        self._features_epoch = features_epoch
        was_v2, self.is_v2 = self.is_v2, level >= _V2
        self._must_bump = self._must_bump or (self.is_v2 and not was_v2)

    def _look_up(self, request: TransactionRequest) -> None:
        result = TransactionResult(request.result.operation)
        self._queue.append(
            TransactionRequest(Kind.FIND_COORDINATOR, result, None, key=request.key, coordinator=request.coordinator)
        )

    def _enqueue(self, request: TransactionRequest) -> None:
        if self.error is not None and (self.is_fatal or request.kind is not Kind.FIND_COORDINATOR):
            self._drop(request, self.error)
            return
        self._queue.append(request)

    def _move(self, target: State) -> None:
        check(self.state in SOURCES[target], f"a transaction cannot go from {self.state.name} to {target.name}")
        _log.debug("Transactional id %s: %s, was %s", self.transactional_id, target.name, self.state.name)
        self.state = target
        self.on_change()

    def _began(self, operation: str) -> TransactionResult:
        self._pending = TransactionResult(operation)
        return self._pending

    def _same_call(self, operation: str) -> TransactionResult | None:
        """A call that timed out before, and of whose outcome nobody has heard."""
        pending = self._pending
        if pending is None or pending.is_told:
            return None
        if pending.operation == operation:
            return pending
        self._check_no_other(operation)
        return None

    def _check_no_other(self, operation: str) -> None:
        pending = self._pending
        if pending is None or pending.is_told or (pending.is_done and pending.error is not None):
            return
        raise TransactionStateError(
            f"transactional id {self.transactional_id!r}: {operation} is not possible, as {pending.operation} has not "
            "returned; if it timed out, call it again"
        )


def _told(kind: type[E], text: str, cause: Exception) -> E:
    error = kind(text)
    error.code = cause.code if isinstance(cause, BrokerError) else None
    error.__cause__ = cause
    return error
