"""Producers that outlive a task: the next one of the same worker process finds its connections open."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, TypeAlias

if TYPE_CHECKING:
    from barnabas import Producer

_log: Final = logging.getLogger(__name__)

#: As long as Spark's own sink keeps one.
_IDLE_S: Final = 600.0

_Key: TypeAlias = tuple[tuple[str, str], ...]


def _new_producer(settings: Mapping[str, str]) -> Producer:
    from barnabas import Producer

    return Producer(settings)


class ProducerPool:
    """Lends producers by their settings, each to one task at a time.

    One that failed is never lent again: it may hold rows of a task that is over, and those of the next must not wait
    behind them. A pool that comes into a process by a fork is empty there, since the threads of its producers are not.
    """

    def __init__(
        self,
        make: Callable[[Mapping[str, str]], Producer] = _new_producer,
        *,
        idle_s: float = _IDLE_S,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._idle_s = idle_s
        self._clock = clock
        self._begin()

    @contextmanager
    def lend(self, settings: Mapping[str, str]) -> Iterator[Producer]:
        """A producer for the time of a `with`. If that ends with an error, rows that have not left are dropped."""
        key: _Key = tuple(sorted(settings.items()))
        producer = self._taken(key) or self._make(settings)
        try:
            yield producer
        except BaseException:
            # Spark runs the task again from its first row: what is still here would only be one more copy.
            _end(producer)
            raise
        self._give_back(key, producer)

    @property
    def idle_count(self) -> int:
        self._leave_fork()
        with self._lock:
            return sum(map(len, self._idle.values()))

    def close_idle(self) -> None:
        """Close those that nobody has asked for in a while."""
        self._leave_fork()
        self._close_until(self._clock() - self._idle_s)

    def close(self) -> None:
        """Close all that are not lent."""
        self._leave_fork()
        self._close_until(float("inf"))

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: The producer last given back comes last, with the time of that.
        self._idle: dict[_Key, list[tuple[float, Producer]]] = {}
        self._timer: threading.Timer | None = None

    def _leave_fork(self) -> None:
        # Looked at before the lock is: another thread may have held it while this process was made.
        if self._pid != os.getpid():
            self._begin()

    def _taken(self, key: _Key) -> Producer | None:
        self._leave_fork()
        with self._lock:
            waiting = self._idle.get(key)
            if not waiting:
                return None
            _, producer = waiting.pop()
            if not waiting:
                del self._idle[key]
            return producer

    def _give_back(self, key: _Key, producer: Producer) -> None:
        with self._lock:
            self._idle.setdefault(key, []).append((self._clock(), producer))
            self._watch()

    def _watch(self) -> None:
        """A worker that has no task does not run Python code of ours, so a thread must look after the idle ones."""
        if self._timer is None:
            self._timer = threading.Timer(self._idle_s, self._look)
            self._timer.daemon = True
            self._timer.name = "barnabas-spark-producers"
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            self._timer = None
        self._close_until(self._clock() - self._idle_s)
        with self._lock:
            if self._idle:
                self._watch()

    def _close_until(self, time_s: float) -> None:
        ended = []
        with self._lock:
            for key, waiting in list(self._idle.items()):
                ended += [producer for since_s, producer in waiting if since_s <= time_s]
                left = [entry for entry in waiting if entry[0] > time_s]
                if left:
                    self._idle[key] = left
                else:
                    del self._idle[key]
        for producer in ended:
            _end(producer)


def _end(producer: Producer) -> None:
    try:
        producer.close(timeout=0)
    except Exception:
        _log.exception("a producer of the sink could not be closed")


#: The producers of this worker process.
producers: Final = ProducerPool()
