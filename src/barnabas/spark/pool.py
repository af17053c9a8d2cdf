"""Clients that outlive a task: the next one in the same worker process finds their connections open.

    consumer = pool.take(key, make)         # nobody else has it meanwhile
    …
    pool.give_back(key, consumer)           # or close it, if something went wrong with it

A client that nobody took for a while is closed. After a fork the child's pool is empty: what its parent had is still
the parent's, connections and all.
"""

from __future__ import annotations

import atexit
import os
import threading
import time
import weakref
from collections.abc import Callable, Hashable
from typing import Any, Final, Generic, Protocol, TypeVar

IDLE_S: Final = 300.0


class Closeable(Protocol):
    """What can be kept: any of our clients."""

    def close(self) -> None: ...


C = TypeVar("C", bound=Closeable)


class ClientPool(Generic[C]):
    """Idle clients by key, the most recently used first. For any thread."""

    def __init__(self, idle_s: float = IDLE_S, now_s: Callable[[], float] = time.monotonic) -> None:
        self._idle_s = idle_s
        self._now_s = now_s
        self._lock = threading.Lock()
        self._idle: dict[Hashable, list[tuple[float, C]]] = {}
        self._timer: threading.Timer | None = None
        _pools.add(self)

    def take(self, key: Hashable, make: Callable[[], C]) -> C:
        """An idle client of this key, or a new one."""
        with self._lock:
            kept = self._idle.get(key)
            client = kept.pop()[1] if kept else None
            if kept == []:
                del self._idle[key]
        self.close_idle()
        return make() if client is None else client

    def give_back(self, key: Hashable, client: C) -> None:
        """Whoever took it is done with it, and it is as good as new."""
        with self._lock:
            self._idle.setdefault(key, []).append((self._now_s(), client))
            if self._timer is None:
                self._watch()

    def close_idle(self) -> None:
        """Close those that nobody took for too long."""
        self._close_older_than(self._now_s() - self._idle_s)

    def close_all(self) -> None:
        """Close all that nobody has at present."""
        self._close_older_than(float("inf"))

    @property
    def idle_count(self) -> int:
        with self._lock:
            return sum(map(len, self._idle.values()))

    def _close_older_than(self, since_s: float) -> None:
        old: list[C] = []
        with self._lock:
            for key, kept in list(self._idle.items()):
                old += [client for at_s, client in kept if at_s <= since_s]
                fresh = [each for each in kept if each[0] > since_s]
                if fresh:
                    self._idle[key] = fresh
                else:
                    del self._idle[key]
        for client in old:
            client.close()

    def _watch(self) -> None:
        self._timer = threading.Timer(self._idle_s, self._on_timer)
        self._timer.daemon = True
        self._timer.start()

    def _on_timer(self) -> None:
        with self._lock:
            self._timer = None
        self.close_idle()
        with self._lock:
            if self._idle and self._timer is None:
                self._watch()

    def _after_fork(self) -> None:
        self._lock = threading.Lock()
        self._idle = {}
        self._timer = None


_pools: weakref.WeakSet[ClientPool[Any]] = weakref.WeakSet()


def _forget_after_fork() -> None:
    for pool in list(_pools):
        pool._after_fork()


def _close_all() -> None:
    for pool in list(_pools):
        pool.close_all()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_after_fork)
atexit.register(_close_all)
