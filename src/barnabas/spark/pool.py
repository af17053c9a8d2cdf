"""Clients that outlive a task: the next one in the same worker process finds their connections open.

with pool.lend(settings) as consumer:       # nobody else has it meanwhile
    …
"""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final, Generic, Protocol, TypeAlias, TypeVar

_log: Final = logging.getLogger(__name__)

#: As long as Spark's own connector keeps a consumer.
IDLE_S: Final = 300.0

_Key: TypeAlias = tuple[tuple[str, str], ...]


class PooledClient(Protocol):
    """What can be lent: any of our clients."""

    def close(self, timeout: float | None = None) -> None: ...


C = TypeVar("C", bound=PooledClient)


class ClientPool(Generic[C]):
    """Lends clients by their settings, each to one task at a time; those that nobody wants for a while are closed.

    One that failed is never lent again: it may hold rows of a task that is over, and those of the next must not wait
    behind them. A pool that comes into a process by a fork is empty there, since the threads of its clients are not.
    """

    def __init__(
        self,
        make: Callable[[Mapping[str, str]], C],
        *,
        idle_s: float = IDLE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._make = make
        self._idle_s = idle_s
        self._now_s = now_s
        self._begin()

    @contextmanager
    def lend(self, settings: Mapping[str, str]) -> Iterator[C]:
        """A client for the time of a `with`. If that ends with an error the client is closed, and what a producer has
        not sent is dropped. A generator that is closed in there is no error: somebody had enough.
        """
        key: _Key = tuple(sorted(settings.items()))
        client = self._taken(key) or self._make(settings)
        try:
            yield client
        except GeneratorExit:
            self._give_back(key, client)
            raise
        except BaseException:
            # Spark runs the task again from its first row: what is still here would only be one more copy.
            _end(client)
            raise
        self._give_back(key, client)

    @property
    def idle_count(self) -> int:
        self._leave_fork()
        with self._lock:
            return sum(map(len, self._idle.values()))

    def close_idle(self) -> None:
        """Close those that nobody has asked for in a while."""
        self._leave_fork()
        self._close_until(self._now_s() - self._idle_s)

    def close(self) -> None:
        """Close all that are not lent."""
        self._leave_fork()
        self._close_until(float("inf"))

    def _begin(self) -> None:
        self._pid = os.getpid()
        self._lock = threading.Lock()
        #: The client last given back comes last, with the time of that.
        self._idle: dict[_Key, list[tuple[float, C]]] = {}
        self._timer: threading.Timer | None = None

    def _leave_fork(self) -> None:
        # Looked at before the lock is: another thread may have held it while this process was made.
        if self._pid != os.getpid():
            self._begin()

    def _taken(self, key: _Key) -> C | None:
        self._leave_fork()
        with self._lock:
            waiting = self._idle.get(key)
            if not waiting:
                return None
            _, client = waiting.pop()
            if not waiting:
                del self._idle[key]
            return client

    def _give_back(self, key: _Key, client: C) -> None:
        with self._lock:
            self._idle.setdefault(key, []).append((self._now_s(), client))
            self._watch()

    def _watch(self) -> None:
        """A worker that has no task does not run Python code of ours, so a thread must look after the idle ones."""
        if self._timer is None:
            self._timer = threading.Timer(self._idle_s, self._look)
            self._timer.daemon = True
            self._timer.name = "barnabas-spark-clients"
            self._timer.start()

    def _look(self) -> None:
        with self._lock:
            self._timer = None
        self.close_idle()
        with self._lock:
            if self._idle:
                self._watch()

    def _close_until(self, time_s: float) -> None:
        ended = []
        with self._lock:
            for key, waiting in list(self._idle.items()):
                ended += [client for since_s, client in waiting if since_s <= time_s]
                left = [entry for entry in waiting if entry[0] > time_s]
                if left:
                    self._idle[key] = left
                else:
                    del self._idle[key]
        for client in ended:
            _end(client)


def _end(client: PooledClient) -> None:
    try:
        client.close(timeout=0)
    except Exception:
        _log.exception("a client of Spark's could not be closed")
