"""Static members that ask for no time to rebalance: the barrier is tried again, but not for ever at one moment."""

from __future__ import annotations

from typing import Any

import pytest

from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.coordinator.timer import CoordinatorTimer
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from barnabas.wire.messages.leave_group import MemberIdentity
from barnabas.wire.messages.sync_group import SyncGroupRequest
from tests.coordinator.driver import Bench


def join(bench: Bench, token: str, rebalance_timeout_ms: int, instance: str | None = None) -> None:
    bench.asked[token] = None
    request = JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=rebalance_timeout_ms,
        member_id="",
        group_instance_id=instance,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    bench.join(request, 3, bench.client(), token)


def state_of(bench: Bench) -> ClassicGroupState:
    return bench.groups["g"].state


def test_the_barrier_is_not_tried_again_at_the_same_moment(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = Bench(initial_rebalance_delay_ms=100)
    join(bench, "static", 0, instance="one")
    join(bench, "other", 60_000)
    bench.advance(100)
    joined: dict[str, Any] = {token: bench.answers[token] for token in ("static", "other")}
    for token, each in joined.items():
        bench.asked[f"{token} syncs"] = None
        request = SyncGroupRequest(group_id="g", generation_id=1, member_id=each.member_id, assignments=[])
        bench.sync(request, f"{token} syncs")
        bench.settle()
    assert state_of(bench) is ClassicGroupState.STABLE

    tries = 0
    schedule = CoordinatorTimer.schedule

    def counting(self: CoordinatorTimer, *timer: Any) -> None:
        nonlocal tries
        tries += 1
        assert tries < 100, "the barrier is tried again and again"
        schedule(self, *timer)

    monkeypatch.setattr(CoordinatorTimer, "schedule", counting)
    bench.asked["left"] = None
    leaving = MemberIdentity(member_id=joined["other"].member_id, group_instance_id=None)
    bench.leave("g", [leaving], "left")
    bench.advance(8_000)
    assert state_of(bench) is ClassicGroupState.PREPARING_REBALANCE
    bench.advance(30_000)
    assert not bench.groups["g"].members
