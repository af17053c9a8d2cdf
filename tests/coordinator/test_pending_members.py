"""Members that were given an id and do not come back are bounded: in the length of ids, in time and in number."""

from __future__ import annotations

from barnabas.base.error_codes import ErrorCode
from barnabas.coordinator.classic.pending import MAX_NAME_CHARS, MAX_PENDING, MAX_PENDING_MS
from barnabas.coordinator.classic.states import ClassicGroupState
from barnabas.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from tests.coordinator.driver import Bench

HALF_AN_HOUR_MS = 1_800_000


def join(
    bench: Bench, token: str, group_id: str = "g", member_id: str = "", client: str = "app", version: int = 9
) -> JoinGroupResponse | None:
    """What the join is told at once, if anything."""
    bench.asked[token] = None
    request = JoinGroupRequest(
        group_id=group_id,
        session_timeout_ms=HALF_AN_HOUR_MS,
        rebalance_timeout_ms=HALF_AN_HOUR_MS,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    bench.join(request, version, bench.client(client), token)
    bench.settle()
    answer = bench.answers.get(token)
    assert answer is None or isinstance(answer, JoinGroupResponse)
    return answer


def given_id(bench: Bench, token: str, group_id: str = "g", client: str = "app") -> str:
    answer = join(bench, token, group_id, client=client)
    assert answer is not None
    assert answer.error_code == ErrorCode.MEMBER_ID_REQUIRED
    return answer.member_id


def test_thousands_with_long_names_keep_little_and_the_oldest_make_way() -> None:
    bench = Bench()
    ids = [given_id(bench, f"first {number}", client="x" * 32_000) for number in range(2 * MAX_PENDING)]
    pending = bench.groups["g"].pending_join
    assert list(pending) == ids[-MAX_PENDING:] == [member_id for _, member_id in bench.shard.groups.pending]
    assert sum(map(len, pending)) <= MAX_PENDING * (MAX_NAME_CHARS + 40)
    assert len(bench.shard.timer) <= MAX_PENDING + 2, "no timer is left of those that are gone"
    forgotten = join(bench, "second 0", member_id=ids[0])
    assert forgotten is not None
    assert forgotten.error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert join(bench, "second -1", member_id=ids[-1]) is None, "it waits at the barrier"
    assert list(bench.groups["g"].members) == [ids[-1]]


def test_an_id_is_kept_for_a_minute_at_most() -> None:
    bench = Bench()
    given_id(bench, "first")
    bench.advance(MAX_PENDING_MS - 1)
    assert len(bench.groups["g"].pending_join) == 1
    bench.advance(MAX_PENDING_MS)
    assert len(bench.groups["g"].pending_join) == 0


def test_who_came_back_or_whose_group_is_gone_takes_no_place() -> None:
    bench = Bench()
    kept = given_id(bench, "kept", "quiet")
    for number in range(MAX_PENDING):
        member_id = given_id(bench, f"first {number}", "busy")
        join(bench, f"second {number}", "busy", member_id=member_id)
    assert kept in bench.groups["quiet"].pending_join
    bench.shard.groups.stored.delete("busy")
    bench.shard.groups.drop("busy")
    for number in range(MAX_PENDING - 1):
        given_id(bench, f"third {number}", "next")
    assert kept in bench.groups["quiet"].pending_join
    given_id(bench, "one more", "next")
    assert kept not in bench.groups["quiet"].pending_join


def test_a_barrier_that_waited_for_somebody_forgotten_opens() -> None:
    bench = Bench(initial_rebalance_delay_ms=0)
    join(bench, "member", member_id=given_id(bench, "first"))
    bench.advance(1)
    group = bench.groups["g"]
    states = [group.state]
    given_id(bench, "never comes back")
    join(bench, "second member", member_id=given_id(bench, "second"))
    join(bench, "member rejoins", member_id=next(iter(group.members)))
    states.append(group.state)
    for number in range(MAX_PENDING):
        given_id(bench, f"other {number}", "another group")
    states.append(group.state)
    completing = ClassicGroupState.COMPLETING_REBALANCE
    assert states == [completing, ClassicGroupState.PREPARING_REBALANCE, completing]
    assert len(group.members) == 2
