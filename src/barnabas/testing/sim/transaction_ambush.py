"""The process of a transaction coordinator is killed or stopped between its decision and the end of the markers.

That takes some milliseconds as a rule, so faults that come by chance hardly ever meet it. Here the disks are looked at:
once a follower has a decision that is not carried out, its leader is killed, or stands still for long enough that
another is elected. That one writes the markers. Who stood still goes on and sends its own, as nobody has told it yet.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextvars import Context
from random import Random
from typing import Final

from barnabas.testing.sim.fault_plans import Fault, FaultKind
from barnabas.testing.sim.replica_log import ReplicaLog
from barnabas.testing.sim.transaction_stragglers import StaleMarkers
from barnabas.testing.sim.world import World

__all__ = ["Ambush"]

_LOOK_S: Final = 0.004
#: In relation to the pace of a run: broker.session.timeout.ms is 3.6.
_SHORTEST_S: Final = 4.0
_LONGEST_S: Final = 5.0
_PAUSES: Final = 0.25


class Ambush:
    """See the module. `coordinators` tells the host of each leader of `__transaction_state`, with the log of one that
    follows it; `may_strike` why a fault shall not happen now."""

    def __init__(
        self,
        world: World,
        pace: float,
        coordinators: Callable[[], Iterable[tuple[str, ReplicaLog]]],
        tell: Callable[[str], None],
        may_strike: Callable[[Fault, Sequence[str]], str],
    ) -> None:
        self._world = world
        self._pace = pace
        self._coordinators = coordinators
        self._tell = tell
        self._may_strike = may_strike
        self._chance: Random = world.random("ambush")
        self._views: dict[ReplicaLog, StaleMarkers] = {}
        self._next_s = self._end_s = 0.0
        self.count = 0

    def begin(self, duration_s: float) -> None:
        now_s = self._world.loop.world_time()
        self._end_s = now_s + duration_s
        self._wait(now_s)
        self._look_later()

    def _wait(self, from_s: float) -> None:
        self._next_s = from_s + self._chance.uniform(0.3, 1.5) * self._pace

    def _look_later(self) -> None:
        self._world.loop.call_later(_LOOK_S, self._look, context=Context())

    def _look(self) -> None:
        now_s = self._world.loop.world_time()
        if now_s >= self._end_s:
            return
        if now_s >= self._next_s:
            self._strike(now_s)
        self._look_later()

    def _strike(self, now_s: float) -> None:
        for host, log in self._coordinators():
            view = self._views.get(log)
            if view is None:
                view = self._views[log] = StaleMarkers(log)
            view.refresh()
            if view.undone_count:
                self.count += 1
                self._wait(now_s + (self._pause(host) if self._chance.random() < _PAUSES else self._kill(host)))
                return

    def _pause(self, host: str) -> float:
        length_s = self._chance.uniform(_SHORTEST_S, _LONGEST_S) * self._pace
        self._tell(f"{host} has decided, and stands still for {length_s:.2f} s")
        coordinator = self._world.host(host)
        coordinator.pause()
        self._world.loop.call_later(length_s, coordinator.resume, context=Context())
        return length_s

    def _kill(self, host: str) -> float:
        """It is started again as any that has died."""
        objection = self._may_strike(Fault(0.0, 0.0, FaultKind.KILL, (host,)), (host,))
        self._tell(f"{host} has decided, and is killed" + (f": left out, {objection}" if objection else ""))
        if not objection:
            self._world.host(host).kill()
        return 0.0
