"""Plans of misfortune: faults as values, drawn from a seed.

A plan can be printed, and cut to its first few faults to find those that matter. `nemesis.Nemesis` plays it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import Enum
from random import Random
from typing import Final

__all__ = ["LEADER", "WEIGHTS", "Fault", "FaultKind", "draw_plan"]

LEADER: Final = "the leader"
"""In place of a host: whoever leads when the fault begins."""


class FaultKind(Enum):
    """What can go wrong. The values are words for the person who reads a plan."""

    CUT = "cut"
    CUT_ONE_WAY = "one-way cut"
    ISOLATE = "cut off from all"
    SLOW = "slow link"
    LOSS = "lossy link"
    RESET = "connections reset"
    PAUSE = "pause"
    KILL = "kill"
    POWER = "power loss"
    BLACKOUT = "power loss of all"
    DIE_IN_WRITE = "dies in a write"
    SLOW_DISK = "slow disk"
    SLOW_SYNCS = "slow syncs"
    FULL_DISK = "full disk"
    DRIFT = "clock drifts"
    JUMP = "clock jumps"
    OLD_DISK = "comes back with an old disk"
    RESTART = "clean restart"
    RESTORE = "stops, and comes back with an old disk"


@dataclass(frozen=True, slots=True)
class Fault:
    """One misfortune. Times are seconds since the plan began; `amount` is what the kind makes of it."""

    start_s: float
    end_s: float
    kind: FaultKind
    targets: tuple[str, ...]
    amount: float = 0.0

    def __str__(self) -> str:
        return f"{self.start_s:7.3f} s to {self.end_s:7.3f} s: {self.words()}"

    def words(self) -> str:
        """What happens, without the times."""
        match self.kind:
            case FaultKind.CUT:
                what = f"nothing passes between {' and '.join(self.targets)}"
            case FaultKind.CUT_ONE_WAY:
                what = f"nothing passes from {' to '.join(self.targets)}"
            case FaultKind.ISOLATE:
                what = f"{self.targets[0]} is cut off from all others"
            case FaultKind.SLOW:
                what = f"up to {self.amount:.2f} s from {' to '.join(self.targets)}"
            case FaultKind.LOSS:
                what = f"{self.amount:.0%} is lost from {' to '.join(self.targets)}"
            case FaultKind.RESET:
                what = f"connections between {' and '.join(self.targets)} are reset"
            case FaultKind.PAUSE:
                what = f"{self.targets[0]} is paused"
            case FaultKind.KILL:
                what = f"{self.targets[0]} is killed"
            case FaultKind.POWER:
                what = f"{self.targets[0]} loses power"
            case FaultKind.BLACKOUT:
                what = f"all lose power: {', '.join(self.targets)}"
            case FaultKind.DIE_IN_WRITE:
                how = "power" if self.amount < 0 else "its process"
                what = f"{self.targets[0]} loses {how} in the {abs(self.amount):.0f}. operation of its disk from then"
            case FaultKind.SLOW_DISK:
                what = f"the disk of {self.targets[0]} takes up to {self.amount:.2f} s"
            case FaultKind.SLOW_SYNCS:
                what = f"syncs of {', '.join(self.targets)} take up to {2 * self.amount:.2f} s"
            case FaultKind.FULL_DISK:
                what = f"the disk of {self.targets[0]} is full"
            case FaultKind.DRIFT:
                what = f"the clock of {self.targets[0]} runs at {self.amount:.2f} times the rate"
            case FaultKind.JUMP:
                what = f"the wall clock of {self.targets[0]} jumps by {self.amount:+.0f} ms"
            case FaultKind.OLD_DISK:
                what = f"{self.targets[0]} loses power and comes back with its disk as it was when this began"
            case FaultKind.RESTART:
                what = f"{self.targets[0]} is stopped, and started again"
            case FaultKind.RESTORE:
                what = f"{self.targets[0]} stops, and comes back at once with its disk as it was when this began"
        return what


_WITH_TWO: Final = (FaultKind.CUT, FaultKind.CUT_ONE_WAY, FaultKind.SLOW, FaultKind.LOSS, FaultKind.RESET)
_OF_OLD_DISKS: Final = (FaultKind.OLD_DISK, FaultKind.RESTORE)
_BRIEF: Final = (FaultKind.KILL, FaultKind.POWER, FaultKind.BLACKOUT, FaultKind.RESTART, FaultKind.RESTORE)
#: How likely each is, before a plan chooses which kinds it knows at all.
WEIGHTS: Final[Mapping[FaultKind, int]] = {
    FaultKind.CUT: 4,
    FaultKind.CUT_ONE_WAY: 4,
    FaultKind.ISOLATE: 6,
    FaultKind.SLOW: 3,
    FaultKind.LOSS: 3,
    FaultKind.RESET: 2,
    FaultKind.PAUSE: 4,
    FaultKind.KILL: 5,
    FaultKind.POWER: 5,
    FaultKind.BLACKOUT: 1,
    FaultKind.DIE_IN_WRITE: 4,
    FaultKind.SLOW_DISK: 3,
    FaultKind.FULL_DISK: 1,
    FaultKind.DRIFT: 2,
    FaultKind.JUMP: 1,
    FaultKind.OLD_DISK: 2,
}


def draw_plan(
    random: Random,
    hosts: Sequence[str],
    *,
    duration_s: float,
    old_disks: Sequence[str] = (),
    pace: float = 1.0,
    weights: Mapping[FaultKind, int] = WEIGHTS,
    clients: Sequence[str] = (),
) -> list[Fault]:
    """Faults for a while, of the kinds that have a weight.

    - `old_disks` are the hosts that may come back with one.
    - `pace` is that of the hosts' own timeouts, below 1 if they are shorter than usual, so that faults last as long in
      relation to them.
    - `clients` are hosts to which ways may be cut, slow or lossy, and nothing else happens.

    A plan first chooses which kinds it knows: with all of them all the time, the rarer ones would never meet the quiet
    in which they matter.
    """
    kinds = [kind for kind in weights if random.random() < 0.6 and (old_disks or kind not in _OF_OLD_DISKS)]
    kinds = kinds or [kind for kind in (FaultKind.ISOLATE, FaultKind.KILL) if kind in weights] or [*weights]
    chosen = [weights[kind] for kind in kinds]
    pause_s = random.choice((0.5, 1.0, 2.0, 4.0)) * pace
    plan: list[Fault] = []
    now_s = random.uniform(0.0, 2.0) * pace
    while now_s < duration_s:
        for _ in range(random.choice((1, 1, 1, 2, 3))):
            kind = random.choices(kinds, chosen)[0]
            start_s = min(now_s + random.uniform(0.0, 0.5) * pace, duration_s)
            end_s = min(start_s + _draw_length_s(random, kind) * pace, duration_s)
            fault = _draw_fault(random, kind, start_s, end_s, hosts, old_disks)
            plan.append(_with_client(random, fault, clients) if clients else fault)
            if kind is FaultKind.RESTART and random.random() < 0.5:
                plan += _roll(random, fault, hosts, duration_s, pace)
        now_s += random.uniform(0.2, 2.0) * pause_s
    return sorted(plan, key=lambda fault: (fault.start_s, fault.end_s))


def _with_client(random: Random, fault: Fault, clients: Sequence[str]) -> Fault:
    """Now and then it is the way to a client that suffers."""
    if fault.kind not in _WITH_TWO or random.random() < 0.7:
        return fault
    one, other = fault.targets
    client = random.choice(clients)
    return replace(fault, targets=(client, other) if random.random() < 0.5 else (one, client))


def _roll(random: Random, first: Fault, hosts: Sequence[str], duration_s: float, pace: float) -> list[Fault]:
    """The restarts that follow if all hosts are restarted one after the other, with some time in between."""
    plan: list[Fault] = []
    now_s = first.end_s
    for host in hosts:
        if host not in first.targets:
            start_s = min(now_s + random.uniform(0.2, 1.5) * pace, duration_s)
            now_s = min(start_s + _draw_length_s(random, FaultKind.RESTART) * pace, duration_s)
            plan.append(Fault(start_s, now_s, FaultKind.RESTART, (host,)))
    return plan


def _draw_fault(
    random: Random, kind: FaultKind, start_s: float, end_s: float, hosts: Sequence[str], old_disks: Sequence[str]
) -> Fault:
    targets: tuple[str, ...] = (random.choice(hosts),)
    if kind in _WITH_TWO:
        targets = tuple(random.sample(list(hosts), 2))
    if random.random() < 0.4:
        targets = (LEADER, *targets[1:]) if random.random() < 0.5 else (*targets[:-1], LEADER)
    if kind is FaultKind.BLACKOUT or (kind is FaultKind.SLOW_SYNCS and random.random() < 0.5):
        targets = tuple(hosts)
    elif kind in _OF_OLD_DISKS:
        targets = (random.choice(old_disks),)
    return Fault(start_s, end_s, kind, targets, _draw_amount(random, kind))


def _draw_length_s(random: Random, kind: FaultKind) -> float:
    lengths_s = (0.02, 0.1, 0.5, 2.0) if kind in _BRIEF else (0.05, 0.3, 1.0, 3.0, 6.0)
    return random.choice(lengths_s) * random.uniform(0.5, 1.5)


def _draw_amount(random: Random, kind: FaultKind) -> float:
    match kind:
        case FaultKind.SLOW:
            return random.choice((0.02, 0.2, 1.0, 3.0)) * random.uniform(0.5, 1.5)
        case FaultKind.LOSS:
            return random.uniform(0.05, 0.6)
        case FaultKind.DIE_IN_WRITE:
            return random.randint(1, 12) * random.choice((-1, 1))
        case FaultKind.SLOW_DISK:
            return random.choice((0.05, 0.3, 1.0)) * random.uniform(0.5, 1.5)
        case FaultKind.SLOW_SYNCS:
            return random.choice((0.5, 1.0, 2.0)) * random.uniform(0.5, 1.5)
        case FaultKind.DRIFT:
            return random.choice((0.5, 0.8, 0.95, 1.05, 1.25, 2.0))
        case FaultKind.JUMP:
            return random.choice((-1, 1)) * random.choice((100, 5_000, 3_600_000))
    return 0.0
