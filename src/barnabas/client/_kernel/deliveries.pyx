# cython: boundscheck=False, wraparound=False
"""News of records that were sent: one `Delivery` for a batch, one light future for a record.

A future knows its delivery and its place in the batch, nothing else. There is no lock and no event until somebody waits,
and nothing is kept for a future that its owner threw away.
"""

cimport cython
from cpython.list cimport PyList_Append
from cpython.pythread cimport PyThread_get_thread_ident
from libc.stdint cimport int32_t, int64_t

import os
from _thread import TIMEOUT_MAX, allocate_lock
from asyncio import get_running_loop

from barnabas.base.errors import LocalProtocolError
from barnabas.base.log_context import logger
from barnabas.client.errors import ClientTimeoutError, WrongUseError

_log = logger("barnabas.client.producer")

# What a program raises to end itself, and event loops let through.
_INTERRUPTS = (KeyboardInterrupt, SystemExit)

# How often this process is a fork of one that had imported this module. Threads do not survive a fork, and so no
# producer does.
cdef int forks = 0


def _forked():
    global forks
    forks += 1


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)


@cython.final
@cython.freelist(64)
cdef class RecordMetadata:
    def __init__(
        self,
        str topic,
        int32_t partition,
        int64_t offset,
        int64_t timestamp_ms,
        int32_t serialized_key_size=-1,
        int32_t serialized_value_size=-1,
    ):
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.timestamp_ms = timestamp_ms
        self.serialized_key_size = serialized_key_size
        self.serialized_value_size = serialized_value_size

    cdef tuple parts(self):
        return (
            self.topic, self.partition, self.offset, self.timestamp_ms,
            self.serialized_key_size, self.serialized_value_size,
        )

    def __eq__(self, other):
        if type(other) is not RecordMetadata:
            return NotImplemented
        return self.parts() == (<RecordMetadata>other).parts()

    def __hash__(self):
        return hash(self.parts())

    def __reduce__(self):
        return RecordMetadata, self.parts()

    def __repr__(self):
        return (
            f"RecordMetadata(topic={self.topic!r}, partition={self.partition}, offset={self.offset}, "
            f"timestamp_ms={self.timestamp_ms})"
        )


@cython.final
cdef class Home:
    def __init__(self):
        self.born = forks

    def settle(self, on_interrupt=None):
        self.on_interrupt = on_interrupt
        self.thread_id = PyThread_get_thread_ident()

    def leave(self):
        self.thread_id = 0

    @property
    def is_here(self):
        return self.thread_id == <unsigned long>PyThread_get_thread_ident()

    @property
    def is_forked(self):
        return self.born != forks

    cdef bint is_usable(self) noexcept:
        return self.born == forks

    cdef int check_may_wait(self) except -1:
        self.check_process()
        if self.thread_id == <unsigned long>PyThread_get_thread_ident():
            raise WrongUseError(
                "result() and exception() would wait here for ever: this is the thread that sends the records and tells "
                "about them. In a callback use what it is given; in a coroutine await the future"
            )
        return 0

    cdef int check_process(self) except -1:
        if self.born != forks:
            raise WrongUseError(
                "this process is a fork of the one that sent the record, and will not learn what became of it: make a "
                "producer after the fork"
            )
        return 0


@cython.final
cdef class Delivery:
    def __init__(self, str topic, int32_t partition, Home home=None):
        self.topic = topic
        self.partition = partition
        self.home = home
        self.base_offset = -1
        self.append_time_ms = -1

    def succeed(self, int64_t base_offset, int64_t log_append_time_ms=-1):
        if self.is_settled or self.parts is not None:
            return False
        self.base_offset = base_offset
        self.append_time_ms = log_append_time_ms
        self.tell()
        return True

    def fail(self, error, per_record=None):
        if self.is_settled or self.parts is not None:
            return False
        if not isinstance(error, BaseException):
            raise TypeError(f"an exception is expected, not {error!r}")
        self.errors = dict(per_record) if per_record else None
        self.error = error
        self.tell()
        return True

    def split_into(self, parts):
        cdef Delivery part
        cdef SendFuture future
        cdef list found = []
        cdef int32_t first = 0
        if self.is_settled or self.parts is not None:
            raise LocalProtocolError("a batch that is done, or split already, cannot be split")
        for part, count in parts:
            found.append((part, first))
            first += count
        self.unfinished_parts = len(found)
        self.parts = found
        watchers, self.watchers = self.watchers, None
        for watcher in watchers or ():
            future = watcher if type(watcher) is SendFuture else watcher[0]
            part = self.part_of(future.index)
            part.watchers = part.watchers or []
            part.watchers.append(watcher)
        for part, _ in found:
            part.when_done(self._part_done)

    def _part_done(self):
        self.unfinished_parts -= 1
        if self.unfinished_parts == 0:
            self.tell()

    def when_done(self, callback):
        cdef list fresh = []
        if self.enders is None:
            self.enders = fresh
        # From here to the append nothing runs but this.
        if self.is_done:
            callback()
        else:
            PyList_Append(self.enders, callback)

    cdef int forget(self, object callback) except -1:
        if self.enders is not None and callback in self.enders:
            self.enders.remove(callback)
        return 0

    cdef int watch(self, SendFuture future, object callback) except -1:
        cdef list fresh = []
        cdef tuple pair = (future, callback)
        if self.watchers is None:
            self.watchers = fresh
        if self.is_done:
            run_callback(callback, (future,))
        else:
            PyList_Append(self.watchers, pair)
        return 0

    cdef int unwatch(self, SendFuture future, object callback) except -1:
        """Drop what `watch` noted; how many there were."""
        cdef list found = [
            each for each in list(self.watchers or ())
            if type(each) is tuple and each[0] is future and each[1] == callback
        ]
        cdef Py_ssize_t i
        cdef int count = 0
        for pair in found:
            # Comparing ran code of the program's: the list may be another, or shorter.
            for i in range(len(self.watchers or ())):
                if self.watchers[i] is pair:
                    del self.watchers[i]
                    count += 1
                    break
        return count

    cdef Delivery part_of(self, int32_t index):
        """Whom the record follows: this delivery, or a part of it, or a part of that."""
        cdef Py_ssize_t i
        if self.parts is None:
            return self
        for i in range(len(self.parts) - 1, -1, -1):
            part, first = self.parts[i]
            if index >= first:
                return (<Delivery>part).part_of(index - <int32_t>first)
        return self

    cdef int32_t index_in_part(self, int32_t index) except? -1:
        if self.parts is None:
            return index
        for part, first in reversed(self.parts):
            if index >= first:
                return (<Delivery>part).index_in_part(index - <int32_t>first)
        return index

    cdef object error_at(self, int32_t index):
        if self.error is None or self.errors is None:
            return self.error
        return self.errors.get(index, self.error)

    cdef int tell(self) except -1:
        """Call whoever wants to know: first on_delivery of the records; when they are done, everybody else."""
        cdef SendFuture future
        cdef list pairs = None
        self.is_settled = True
        watchers, self.watchers = self.watchers, None
        for watcher in watchers or ():
            if type(watcher) is SendFuture:
                future = watcher
                callback, future.on_delivery = future.on_delivery, None
                self.call(callback, (future.metadata(), future.error()))
            else:
                pairs = pairs or []
                pairs.append(watcher)
        self.is_done = True
        # Also those who came while callbacks ran.
        late, self.watchers = self.watchers, None
        for watchers in (pairs, late):
            for future, callback in watchers or ():
                self.call(callback, (future,))
        enders, self.enders = self.enders, None
        for callback in enders or ():
            self.call(callback, ())
        return 0

    cdef int call(self, object callback, tuple arguments) except -1:
        """Call what is the program's. Nothing that it raises gets out of here: others have a right to their news, and the
        sender must go on. What is meant to end the program is handed on, where there is somebody to hand it to."""
        try:
            run_callback(callback, arguments)
        except BaseException as error:
            try:
                if self.home is not None and self.home.on_interrupt is not None and isinstance(error, _INTERRUPTS):
                    self.home.on_interrupt(error)
                else:
                    log_raised()
            except BaseException:
                pass  # there is nobody left to tell
        return 0


cdef int run_callback(object callback, tuple arguments) except -1:
    try:
        callback(*arguments)
    except Exception:
        log_raised()
    return 0


cdef int log_raised() except -1:
    _log.exception("a delivery callback raised; the record's fate is not changed by it")
    return 0


cdef int wait_for(Delivery delivery, object timeout) except -1:
    """Block this thread until the delivery is done."""
    if delivery.is_done:
        return 0
    if delivery.home is not None:
        delivery.home.check_may_wait()
    # A bare lock: cheaper than an Event, and somebody waits for few records only.
    lock = allocate_lock()
    lock.acquire()
    wake = lock.release
    delivery.when_done(wake)
    if timeout is None:
        lock.acquire()
    elif not lock.acquire(True, min(max(timeout, 0), TIMEOUT_MAX)):
        delivery.forget(wake)
        if not delivery.is_done:
            place = delivery.topic if delivery.partition < 0 else f"{delivery.topic}-{delivery.partition}"
            raise ClientTimeoutError(
                f"no acknowledgement from {place} within {timeout} s; it may still come, "
                "and delivery.timeout.ms says until when"
            )
    return 0


@cython.final
cdef class Waker:
    """Wakes a coroutine, from whichever thread."""

    cdef object loop
    cdef object future
    cdef unsigned long thread_id

    def __call__(self):
        if self.thread_id == <unsigned long>PyThread_get_thread_ident():
            self.wake()
        else:
            try:
                self.loop.call_soon_threadsafe(self.wake)
            except RuntimeError:
                _log.debug("the event loop that waited for a delivery is closed")

    def wake(self):
        if not self.future.done():
            self.future.set_result(None)


cdef object wake_up_of(Delivery delivery):
    """A future of the running loop that is done when the delivery is."""
    cdef Waker waker = Waker.__new__(Waker)
    if delivery.home is not None:
        delivery.home.check_process()
    waker.loop = get_running_loop()
    waker.future = waker.loop.create_future()
    waker.thread_id = PyThread_get_thread_ident()
    delivery.when_done(waker)
    return waker.future


# The garbage collector need not know: a future refers to its delivery alone, and to a callback until that has run.
@cython.final
@cython.no_gc
@cython.freelist(512)
cdef class SendFuture:
    def __init__(self):
        raise TypeError("futures are made by send()")

    @property
    def topic(self):
        return self.delivery.topic

    @property
    def partition(self):
        return self.delivery.partition

    cdef RecordMetadata metadata(self):
        cdef RecordMetadata made = RecordMetadata.__new__(RecordMetadata)
        cdef Delivery delivery = self.delivery.part_of(self.index)
        made.topic = delivery.topic
        made.partition = delivery.partition
        made.offset = -1
        if delivery.error is None and delivery.base_offset >= 0:
            made.offset = delivery.base_offset + self.delivery.index_in_part(self.index)
        made.timestamp_ms = self.timestamp_ms if delivery.append_time_ms < 0 else delivery.append_time_ms
        made.serialized_key_size = self.key_size
        made.serialized_value_size = self.value_size
        return made

    cdef object error(self):
        return self.delivery.part_of(self.index).error_at(self.delivery.index_in_part(self.index))

    cdef RecordMetadata outcome(self):
        error = self.error()
        if error is not None:
            # Many futures share one error: without this each raise would lengthen its traceback.
            raise error.with_traceback(None)
        return self.metadata()

    def done(self):
        return self.delivery.part_of(self.index).is_done

    def result(self, timeout=None):
        wait_for(self.delivery.part_of(self.index), timeout)
        return self.outcome()

    def exception(self, timeout=None):
        wait_for(self.delivery.part_of(self.index), timeout)
        return self.error()

    def cancelled(self):
        return False

    def add_done_callback(self, callback):
        self.delivery.part_of(self.index).watch(self, callback)

    def remove_done_callback(self, callback):
        return self.delivery.part_of(self.index).unwatch(self, callback)

    def __await__(self):
        if not self.delivery.part_of(self.index).is_done:
            yield from wake_up_of(self.delivery.part_of(self.index))
        return self.outcome()

    def __repr__(self):
        cdef Delivery delivery = self.delivery.part_of(self.index)
        place = f"{delivery.topic}-{delivery.partition}"
        if not delivery.is_done:
            return f"<SendFuture for {place}, pending>"
        error = self.error()
        return f"<SendFuture for {place}, {'offset ' + str(self.metadata().offset) if error is None else repr(error)}>"
