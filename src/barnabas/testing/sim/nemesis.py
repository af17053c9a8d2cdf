"""Misfortune by plan: faults that overlap and are drawn anew every few virtual seconds.

    plan = draw_plan(Random(seed), ["10.0.0.1", "10.0.0.2", "10.0.0.3"], duration_s=30)
    nemesis = Nemesis(loop, target, plan)
    nemesis.begin()
    ...
    nemesis.heal()

A `Nemesis` plays its plan upon a `FaultTarget`: the same one upon a world of sockets and files or upon a model.
"""

from __future__ import annotations

from asyncio import TimerHandle
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from typing import Protocol

from barnabas.testing.sim.fault_plans import LEADER, Fault, FaultKind
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.network import Link

__all__ = ["FaultTarget", "Nemesis"]


class FaultTarget(Protocol):
    """What a plan is played upon: hosts by name, each with at most one process, and ways between them."""

    def leader(self) -> str | None:
        """The host that leads now, if one does."""
        ...

    def hosts(self) -> Sequence[str]: ...

    def cut(self, source: str, target: str) -> None: ...

    def mend(self, source: str, target: str) -> None: ...

    def set_link(self, source: str, target: str, link: Link | None) -> None: ...

    def reset(self, one: str, other: str) -> None: ...

    def pause(self, host: str) -> None: ...

    def resume(self, host: str) -> None: ...

    def kill(self, host: str) -> None: ...

    def power_off(self, host: str) -> None: ...

    def start(self, host: str) -> None:
        """Bring a host back; nothing if it runs."""
        ...

    def die_at(self, host: str, operations: int, *, power: bool) -> None: ...

    def slow_disk(self, host: str, max_delay_s: float | None) -> None: ...

    def set_disk_full(self, host: str, is_full: bool) -> None: ...

    def set_clock_rate(self, host: str, rate: float) -> None: ...

    def jump_clock(self, host: str, by_ms: int) -> None: ...

    def keep_image(self, host: str) -> None: ...

    def restore_image(self, host: str) -> None: ...

    def stop(self, host: str) -> None:
        """Stop the process as an operator does, who then waits."""
        ...

    def stop_and_restore(self, host: str) -> None:
        """Stop the process, and start it again with the disk of `keep_image`."""
        ...


class Nemesis:
    """Plays a plan. Faults overlap: a way stays cut, and a host down, as long as one of them wants it so."""

    def __init__(
        self,
        loop: VirtualTimeLoop,
        target: FaultTarget,
        plan: Sequence[Fault],
        tell: Callable[[str], None] = lambda _: None,
        may_strike: Callable[[Fault, Sequence[str]], str] = lambda fault, targets: "",
    ) -> None:
        """`may_strike` says why a fault shall not happen now, if that is so: by then it is known whom it strikes, and
        what else is amiss."""
        self._may_strike = may_strike
        self._loop = loop
        self._target = target
        self._plan = plan
        self._tell = tell
        self._timers: list[TimerHandle] = []
        self._active: dict[int, tuple[Fault, tuple[str, ...]]] = {}
        self._cuts: Counter[tuple[str, str]] = Counter()
        self._down: Counter[str] = Counter()

    def begin(self) -> None:
        for number, fault in enumerate(self._plan):
            self._timers.append(self._loop.call_later(fault.start_s, self._start, number, fault))

    def active(self) -> list[Fault]:
        """The faults that last."""
        return [fault for fault, _ in self._active.values()]

    def is_held_down(self, host: str) -> bool:
        """Whether a fault wants this host to be down."""
        return self._down[host] > 0

    def heal(self) -> None:
        """End everything, also what has not begun."""
        for timer in self._timers:
            timer.cancel()
        for number in sorted(self._active):
            self._end(number)

    def _start(self, number: int, fault: Fault) -> None:
        targets = tuple(self._resolve(fault))
        if len(set(targets)) < len(fault.targets):
            return  # nobody leads, or the leader is the other side itself
        words = fault.words() if LEADER not in fault.targets else f"{fault.words()} ({', '.join(targets)})"
        if objection := self._may_strike(fault, targets):
            self._tell(f"{words}: left out, {objection}")
            return
        self._tell(words)
        self._active[number] = (fault, targets)
        self._strike(fault, targets)
        self._timers.append(self._loop.call_later(fault.end_s - fault.start_s, self._end, number))

    def _resolve(self, fault: Fault) -> Iterator[str]:
        for name in fault.targets:
            host = self._target.leader() if name == LEADER else name
            if host is not None:
                yield host

    def _strike(self, fault: Fault, targets: tuple[str, ...]) -> None:
        target = self._target
        first, last = targets[0], targets[-1]
        for source, other in self._ways(fault, targets):
            self._cuts[source, other] += 1
            target.cut(source, other)
        if self._holds_down(fault):
            for host in targets:
                self._down[host] += 1
        match fault.kind:
            case FaultKind.SLOW | FaultKind.LOSS:
                target.set_link(first, last, _link(fault))
            case FaultKind.RESET:
                target.reset(first, last)
            case FaultKind.PAUSE:
                target.pause(first)
            case FaultKind.KILL:
                target.kill(first)
            case FaultKind.POWER | FaultKind.BLACKOUT:
                for host in targets:
                    target.power_off(host)
            case FaultKind.DIE_IN_WRITE:
                target.die_at(first, int(abs(fault.amount)), power=fault.amount < 0)
            case FaultKind.SLOW_DISK:
                target.slow_disk(first, fault.amount)
            case FaultKind.SLOW_SYNCS:
                for host in targets:
                    target.slow_disk(host, fault.amount)
            case FaultKind.FULL_DISK:
                target.set_disk_full(first, True)
            case FaultKind.DRIFT:
                target.set_clock_rate(first, fault.amount)
            case FaultKind.JUMP:
                target.jump_clock(first, int(fault.amount))
            case FaultKind.OLD_DISK | FaultKind.RESTORE:
                target.keep_image(first)
            case FaultKind.RESTART:
                target.stop(first)

    def _end(self, number: int) -> None:
        if number not in self._active:
            return
        fault, targets = self._active.pop(number)
        target = self._target
        first, last = targets[0], targets[-1]
        for way in self._ways(fault, targets):
            self._cuts[way] -= 1
            if not self._cuts[way]:
                target.mend(*way)
        others = [each for each, struck in self._active.values() if each.kind is fault.kind and struck == targets]
        if self._holds_down(fault):
            for host in targets:
                self._down[host] -= 1
                if not self._down[host]:
                    target.start(host)
        match fault.kind:
            case FaultKind.SLOW | FaultKind.LOSS:
                target.set_link(first, last, self._other_link(targets))
            case FaultKind.PAUSE if not others:
                target.resume(first)
            case FaultKind.SLOW_DISK if not others:
                target.slow_disk(first, None)
            case FaultKind.SLOW_SYNCS if not others:
                for host in targets:
                    target.slow_disk(host, None)
            case FaultKind.FULL_DISK if not others:
                target.set_disk_full(first, False)
            case FaultKind.DRIFT if not others:
                target.set_clock_rate(first, 1.0)
            case FaultKind.OLD_DISK:
                target.power_off(first)
                target.restore_image(first)
                if not self._down[first]:
                    target.start(first)
            case FaultKind.RESTORE:
                target.stop_and_restore(first)
            case _:
                pass

    def _other_link(self, targets: tuple[str, ...]) -> Link | None:
        links = [
            _link(fault)
            for fault, struck in self._active.values()
            if fault.kind in (FaultKind.SLOW, FaultKind.LOSS) and struck == targets
        ]
        return links[-1] if links else None

    def _ways(self, fault: Fault, targets: tuple[str, ...]) -> list[tuple[str, str]]:
        match fault.kind:
            case FaultKind.CUT:
                return [targets, targets[::-1]]  # type: ignore[list-item]
            case FaultKind.CUT_ONE_WAY:
                return [targets]  # type: ignore[list-item]
            case FaultKind.ISOLATE:
                others = [host for host in self._target.hosts() if host != targets[0]]
                return [(targets[0], host) for host in others] + [(host, targets[0]) for host in others]
        return []

    @staticmethod
    def _holds_down(fault: Fault) -> bool:
        return fault.kind in (FaultKind.KILL, FaultKind.POWER, FaultKind.BLACKOUT, FaultKind.RESTART)


def _link(fault: Fault) -> Link:
    if fault.kind is FaultKind.SLOW:
        return Link(max_delay_s=fault.amount)
    return Link(loss=fault.amount, reset_chance=fault.amount / 10)
