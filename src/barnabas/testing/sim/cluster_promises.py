"""What is promised of acknowledged records, as a limit to the faults that are injected: all of that, and no more.

Like Kafka, a node does not sync before it acknowledges. A process that is killed loses nothing; a machine that loses
power may lose the tail of its logs. With eligible leader replicas, records survive

- any number of processes that are killed, and
- power losses of fewer than min.insync.replicas replicas at a time, which is one where two must be in sync.

A controller cannot tell the two apart: who comes back without a clean-shutdown file has perhaps lost something, and is
out of the ISR and not eligible. If all are, the last leader is taken, and that may be the one that lost its log: it can
have been elected while nobody knew that it was gone. So a power loss counts together with the kills around it: while a
machine that lost power is not back in sync, nobody else is killed; and no machine loses power while another one is not
back in sync after a kill.

Without eligible leader replicas the last that is in sync stays so, whatever it has lost. Then a power loss costs
nothing only while another stays in sync. So it must find all replicas in sync and nothing else amiss, and until the
metadata says that it is out of sync nothing else happens.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from barnabas.metadata.image import ClusterImage
from barnabas.testing.sim.fault_plans import Fault, FaultKind

__all__ = ["FaultBudget"]

_OF_OLD_DISKS: Final = (FaultKind.OLD_DISK, FaultKind.RESTORE)
#: Takes nobody out of sync.
_HARMLESS: Final = (FaultKind.JUMP,)


@dataclass(slots=True)
class _Unclean:
    """A host that stopped uncleanly, or may do so at any moment, and in which broker epoch it was then."""

    broker_epoch: int
    is_lost: bool
    until_s: float


class FaultBudget:
    """Decides whether a fault may strike now.

    - `broker_ids`: the brokers by their hosts.
    - `newest`: the newest metadata.
    - `now_s`: the time on the plan's clock.
    - `is_doomed`: whether a host will die in an operation of its disk that has not come yet.
    - `active`: the faults that last, where there are no eligible leader replicas.
    """

    def __init__(
        self,
        broker_ids: Mapping[str, int],
        newest: Callable[[], ClusterImage],
        now_s: Callable[[], float],
        is_doomed: Callable[[str], bool],
        active: Callable[[], Sequence[Fault]] | None = None,
    ) -> None:
        self._broker_ids = broker_ids
        self._newest = newest
        self._now_s = now_s
        self._is_doomed = is_doomed
        self._active = active
        self._unclean: dict[str, _Unclean] = {}
        self.power_loss_count = 0

    def may_strike(self, fault: Fault, targets: Sequence[str]) -> str:
        """Why not, or nothing; then it is taken to happen."""
        host = targets[0]
        if self._active is not None and (objection := self._without_elr(fault, self._active())):
            return objection
        if host not in self._broker_ids or not (_kills(fault) or _loses_power(fault)):
            return ""
        if fault.kind is FaultKind.RESTORE and host in self.lost():
            return "having lost its disk already"
        others = {each: state for each, state in self._unclean.items() if each != host and not self._is_back(each)}
        if _loses_power(fault):
            if others:
                return f"{', '.join(others)} not being back in sync"
            self.power_loss_count += 1
        else:
            lost = [each for each, state in others.items() if state.is_lost]
            if lost:
                return f"{', '.join(lost)} having lost power and not being back in sync"
        self._note(host, self._end_s(fault), is_lost=_loses_power(fault))
        return ""

    def _without_elr(self, fault: Fault, active: Sequence[Fault]) -> str:
        """Why a fault may not strike if the last in sync stays so, whatever it has lost."""
        if fault.kind in _HARMLESS:
            return ""
        partitions = [each for topic in self._newest().topics.values() for each in topic.partitions]
        for host in sorted(self.lost()):
            if any(self._broker_ids[host] in each.isr for each in partitions):
                return f"{host} having lost power and being counted as in sync"
        if _loses_power(fault):
            if any(each.kind not in _HARMLESS for each in active):
                return "something else being amiss"
            if any(len(each.isr) < len(each.replicas) for each in partitions):
                return "not all being in sync"
        return ""

    def died(self, host: str, power: bool) -> None:
        """A process has died, also long after the fault that wanted it, or by itself."""
        if host in self._broker_ids:
            self._note(host, 0.0, is_lost=power)

    def _note(self, host: str, until_s: float, *, is_lost: bool) -> None:
        before = self._unclean.get(host)
        if before is not None and not self._is_back(host):
            is_lost, until_s = is_lost or before.is_lost, max(until_s, before.until_s)
        self._unclean[host] = _Unclean(self._broker_epoch(host), is_lost, until_s)

    def lost(self) -> set[str]:
        """The hosts that have lost power and are not back in sync."""
        return {host for host, state in self._unclean.items() if state.is_lost and not self._is_back(host)}

    def absent(self) -> set[str]:
        """Those of them that have not registered again: until then nobody knows that they have lost anything."""
        return {host for host in self.lost() if not self._is_registered_anew(host)}

    def _end_s(self, fault: Fault) -> float:
        """Some faults kill at a moment of their own."""
        lasts = fault.kind in (FaultKind.FULL_DISK, *_OF_OLD_DISKS)
        return self._now_s() + (fault.end_s - fault.start_s if lasts else 0.0)

    def _broker_epoch(self, host: str) -> int:
        broker = self._newest().brokers.get(self._broker_ids[host])
        return -1 if broker is None else broker.epoch

    def _is_registered_anew(self, host: str) -> bool:
        state = self._unclean[host]
        if self._is_doomed(host):
            return False
        return self._now_s() >= state.until_s and self._broker_epoch(host) > state.broker_epoch

    def _is_back(self, host: str) -> bool:
        """Whether it has come back, and is in sync wherever it is a replica."""
        if not self._is_registered_anew(host):
            return False
        broker_id = self._broker_ids[host]
        topics = self._newest().topics.values()
        partitions = [each for topic in topics for each in topic.partitions if broker_id in each.replicas]
        return all(broker_id in each.isr for each in partitions)


def _loses_power(fault: Fault) -> bool:
    """Or whatever else the disk had."""
    is_in_write = fault.kind is FaultKind.DIE_IN_WRITE and fault.amount < 0
    return is_in_write or fault.kind in (FaultKind.POWER, *_OF_OLD_DISKS)


def _kills(fault: Fault) -> bool:
    """Also what may end a process."""
    return fault.kind in (FaultKind.KILL, FaultKind.DIE_IN_WRITE, FaultKind.FULL_DISK)
