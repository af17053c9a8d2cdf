"""Plans of faults, and how they are played: overlapping, to the end, upon anything."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from random import Random
from typing import Any

import pytest

from barnabas.testing.sim.fault_plans import LEADER, WEIGHTS, Fault, FaultKind, draw_plan
from barnabas.testing.sim.loop import VirtualTimeLoop
from barnabas.testing.sim.nemesis import FaultTarget, Nemesis

HOSTS = ["a", "b", "c"]


class Recorder:
    """A `FaultTarget` that writes down what is done to it."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.leading: str | None = "b"

    def leader(self) -> str | None:
        return self.leading

    def hosts(self) -> Sequence[str]:
        return HOSTS

    def __getattr__(self, name: str) -> Any:
        def record(*arguments: object, **options: object) -> None:
            shown = [str(each) for each in arguments if not hasattr(each, "loss")]
            self.calls.append(" ".join([name, *shown, *(f"{key}={value}" for key, value in options.items())]))

        return record


def play(*faults: Fault, seconds: float = 100.0, leading: str | None = "b") -> list[str]:
    loop = VirtualTimeLoop()
    recorder = Recorder()
    recorder.leading = leading
    target: FaultTarget = recorder
    nemesis = Nemesis(loop, target, faults)
    nemesis.begin()
    loop.run_for(seconds)
    nemesis.heal()
    loop.close()
    return recorder.calls


def test_a_way_stays_cut_as_long_as_one_fault_wants_it_so() -> None:
    one, other = Fault(1, 5, FaultKind.CUT, ("a", "b")), Fault(2, 9, FaultKind.CUT_ONE_WAY, ("a", "b"))
    assert play(one, other, seconds=6) == ["cut a b", "cut b a", "cut a b", "mend b a", "mend a b"]
    assert play(one, other, seconds=1.5) == ["cut a b", "cut b a", "mend a b", "mend b a"]


def test_a_host_stays_down_as_long_as_one_fault_wants_it_so() -> None:
    faults = Fault(1, 5, FaultKind.KILL, ("a",)), Fault(2, 3, FaultKind.POWER, ("a",))
    assert play(*faults) == ["kill a", "power_off a", "start a"]


def test_isolation_is_from_everybody_in_both_directions() -> None:
    ways = ["a b", "a c", "b a", "c a"]
    assert play(Fault(1, 2, FaultKind.ISOLATE, ("a",))) == [f"cut {each}" for each in ways] + [
        f"mend {each}" for each in ways
    ]


def test_who_leads_is_found_out_when_the_fault_begins() -> None:
    assert play(Fault(1, 2, FaultKind.PAUSE, (LEADER,))) == ["pause b", "resume b"]
    assert play(Fault(1, 2, FaultKind.PAUSE, (LEADER,)), leading=None) == []
    assert play(Fault(1, 2, FaultKind.CUT, (LEADER, "b"))) == []
    assert play(Fault(1, 2, FaultKind.CUT, (LEADER, "a")), leading=None) == []


def test_an_old_disk_is_kept_first_and_comes_back_at_the_end() -> None:
    calls = play(Fault(1, 2, FaultKind.OLD_DISK, ("c",)))
    assert calls == ["keep_image c", "power_off c", "restore_image c", "start c"]
    assert play(Fault(1, 2, FaultKind.RESTORE, ("c",))) == ["keep_image c", "stop_and_restore c"]


def test_of_two_conditions_of_a_link_the_last_that_goes_on_holds() -> None:
    faults = Fault(1, 9, FaultKind.SLOW, ("a", "b"), 1.0), Fault(2, 3, FaultKind.LOSS, ("a", "b"), 0.5)
    assert play(*faults) == ["set_link a b"] * 3 + ["set_link a b None"]


def test_healing_ends_everything_and_begins_nothing() -> None:
    faults = Fault(1, 50, FaultKind.FULL_DISK, ("a",)), Fault(9, 50, FaultKind.KILL, ("b",))
    assert play(*faults, seconds=5) == ["set_disk_full a True", "set_disk_full a False"]


@pytest.mark.parametrize("seed", range(50))
def test_a_plan_is_in_order_within_its_time_and_among_its_hosts(seed: int) -> None:
    plan = draw_plan(Random(seed), HOSTS, duration_s=20, old_disks=["c"])
    assert plan
    assert plan == draw_plan(Random(seed), HOSTS, duration_s=20, old_disks=["c"])
    assert [each.start_s for each in plan] == sorted(each.start_s for each in plan)
    for fault in plan:
        assert 0 <= fault.start_s <= fault.end_s <= 20
        assert set(fault.targets) <= {*HOSTS, LEADER}
        assert fault.kind is not FaultKind.OLD_DISK or fault.targets == ("c",)


def test_plans_know_all_kinds_overlap_and_read_well() -> None:
    plans = [draw_plan(Random(seed), HOSTS, duration_s=20, old_disks=["c"]) for seed in range(100)]
    assert {fault.kind for plan in plans for fault in plan} == set(WEIGHTS)
    assert any(one.end_s > two.start_s for plan in plans for one, two in pairwise(plan))
    lines = [str(fault) for plan in plans for fault in plan]
    assert not [line for line in lines if "\n" in line or len(line) > 120]
    cut = Fault(1.5, 2.25, FaultKind.CUT_ONE_WAY, ("a", "b"))
    assert str(cut) == "  1.500 s to   2.250 s: nothing passes from a to b"


def test_without_old_disks_nobody_comes_back_with_one() -> None:
    plans = [draw_plan(Random(seed), HOSTS, duration_s=20) for seed in range(100)]
    assert FaultKind.OLD_DISK not in {fault.kind for plan in plans for fault in plan}


def test_a_restart_is_a_stop_and_then_a_start() -> None:
    assert play(Fault(1, 2, FaultKind.RESTART, ("a",))) == ["stop a", "start a"]


def test_a_fault_that_may_not_strike_now_leaves_nothing_behind() -> None:
    loop, recorder, told = VirtualTimeLoop(), Recorder(), list[str]()
    faults = [Fault(1, 2, FaultKind.KILL, ("a",)), Fault(1.5, 2, FaultKind.POWER, (LEADER,))]

    def may_strike(fault: Fault, targets: Sequence[str]) -> str:
        return "for a reason" if targets == ("b",) else ""

    nemesis = Nemesis(loop, recorder, faults, told.append, may_strike)
    nemesis.begin()
    loop.run_for(1.7)
    assert not nemesis.is_held_down("b")
    loop.run_for(5)
    loop.close()
    assert recorder.calls == ["kill a", "start a"]
    assert told == ["a is killed", "the leader loses power (b): left out, for a reason"]


def test_ways_to_clients_suffer_and_hosts_are_restarted_in_turn() -> None:
    weights = {FaultKind.CUT: 1, FaultKind.KILL: 1, FaultKind.RESTART: 2}
    plans = [draw_plan(Random(seed), HOSTS, duration_s=20, weights=weights, clients=["x", "y"]) for seed in range(50)]
    struck = {(fault.kind, target) for plan in plans for fault in plan for target in fault.targets}
    assert {target for kind, target in struck if kind is FaultKind.CUT} == {*HOSTS, "x", "y", LEADER}
    assert {target for kind, target in struck if kind is not FaultKind.CUT} == {*HOSTS, LEADER}
    assert any(
        [fault.targets for fault in plan[at : at + 3]] in ([("a",), ("b",), ("c",)], [("b",), ("a",), ("c",)])
        for plan in plans
        for at in range(len(plan))
    )
