"""Which partitions are asked for, of whom, and when not."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition, Uuid
from barnabas.client.core.cluster_view import ClusterView, Node, PartitionInfo, TopicView
from barnabas.client.core.consuming.fetch_plan import FetchLimits, FetchPlan, FetchPlanner
from barnabas.client.core.consuming.offsets import EARLIEST
from barnabas.client.core.consuming.subscription import Subscription

LIMITS = FetchLimits(
    fetch_min_bytes=1,
    fetch_max_bytes=1000,
    fetch_max_wait_ms=500,
    max_partition_fetch_bytes=100,
    client_rack="",
    is_read_committed=False,
)
TOPIC_ID = Uuid(bytes(15) + b"t")
NODES = {number: Node(number, "host", 9000 + number, None) for number in (1, 2, 3)}


def view_of(leaders: list[int], epoch: int = 4, offline: tuple[int, ...] = ()) -> ClusterView:
    partitions = tuple(
        PartitionInfo("t", number, leader, epoch, offline_replicas=offline) for number, leader in enumerate(leaders)
    )
    return ClusterView(1, nodes=NODES, topics=[TopicView("t", TOPIC_ID, partitions=partitions)])


def reading(count: int) -> tuple[Subscription, list[TopicPartition]]:
    names = [TopicPartition("t", number) for number in range(count)]
    subscription = Subscription(EARLIEST)
    subscription.assign(names)
    for name in names:
        subscription.seek(name, 10)
    return subscription, names


def plan(
    subscription: Subscription, view: ClusterView, *, busy: tuple[int, ...] = (), now_ms: int = 0, **limits: object
) -> FetchPlan:
    planner = FetchPlanner(replace(LIMITS, **limits))  # type: ignore[arg-type]
    return planner.plan(view, subscription.states(), busy, now_ms)


def asked(planned: FetchPlan) -> dict[int, list[int]]:
    return {node_id: [name.partition for name in node.wanted] for node_id, node in planned.by_node.items()}


def test_each_partition_is_asked_of_its_leader_with_its_position() -> None:
    subscription, names = reading(3)
    planned = plan(subscription, view_of([1, 2, 1]))
    assert asked(planned) == {1: [0, 2], 2: [1]}
    wanted = planned.by_node[2].wanted[names[1]]
    assert (wanted.offset, wanted.topic_id, wanted.max_bytes) == (10, TOPIC_ID, 100)
    assert planned.max_bytes == 1000
    assert not planned.wants_metadata


def test_busy_nodes_are_left_alone() -> None:
    subscription, _ = reading(3)
    assert asked(plan(subscription, view_of([1, 2, 1]), busy=(1,))) == {2: [1]}


def test_partitions_without_a_position_or_paused_or_failed_are_not_asked_for() -> None:
    subscription, names = reading(4)
    subscription.request_reset(names[0])
    subscription.pause([names[1]])
    subscription.state(names[2]).failure = ValueError("x")
    assert asked(plan(subscription, view_of([1, 1, 1, 1]))) == {1: [3]}


def test_a_partition_without_a_leader_wants_metadata() -> None:
    subscription, _ = reading(3)
    planned = plan(subscription, view_of([1, -1, 9]))
    assert asked(planned) == {1: [0]}
    assert planned.wants_metadata


def test_a_topic_that_has_another_id_than_is_wanted_is_left_out_and_wants_metadata() -> None:
    subscription, names = reading(2)
    state = subscription.state(names[0])
    state.topic_id = Uuid(bytes(15) + b"u")
    planned = plan(subscription, view_of([1, 1]))
    assert asked(planned) == {1: [1]}
    assert planned.wants_metadata
    state.topic_id = TOPIC_ID
    planned = plan(subscription, view_of([1, 1]))
    assert asked(planned) == {1: [0, 1]}
    assert not planned.wants_metadata


def test_a_partition_that_backs_off_is_left_out_until_then() -> None:
    subscription, names = reading(2)
    subscription.state(names[0]).retry_at_ms = 50
    planned = plan(subscription, view_of([1, 1]), now_ms=20)
    assert asked(planned) == {1: [1]}
    assert planned.next_at_ms == 50
    assert asked(plan(subscription, view_of([1, 1]), now_ms=50)) == {1: [0, 1]}


def test_the_replica_nearby_is_asked_as_long_as_it_is_there() -> None:
    subscription, names = reading(1)
    state = subscription.state(names[0])
    state.preferred_replica, state.preferred_until_ms = 3, 100
    assert asked(plan(subscription, view_of([1]), now_ms=99)) == {3: [0]}
    assert asked(plan(subscription, view_of([1]), now_ms=100)) == {1: [0]}
    assert state.preferred_replica == -1
    for broken in (view_of([1], offline=(3,)), ClusterView(1, nodes={1: NODES[1]}, topics=view_of([1]).entries())):
        state.preferred_replica, state.preferred_until_ms = 3, 1000
        assert asked(plan(subscription, broken)) == {1: [0]}


def test_what_waits_to_be_taken_bounds_what_is_asked_for() -> None:
    subscription, names = reading(2)
    first = subscription.state(names[0])
    first.queued_bytes = 99
    assert asked(plan(subscription, view_of([1, 2]))) == {1: [0], 2: [1]}
    first.queued_bytes = 100
    assert asked(plan(subscription, view_of([1, 2]))) == {2: [1]}
    assert plan(subscription, view_of([1, 2])).max_bytes == 900
    first.queued_bytes = 1000
    assert asked(plan(subscription, view_of([1, 2]))) == {}
    # A paused partition may keep what it has for ever; the others go on.
    subscription.pause([names[0]])
    assert asked(plan(subscription, view_of([1, 2]))) == {2: [1]}


def test_a_partial_fetch_does_not_wait_and_goes_only_where_something_is_new() -> None:
    subscription, names = reading(2)
    busy, idle = subscription.state(names[0]), subscription.state(names[1])
    busy.queued_bytes = 100
    planned = plan(subscription, view_of([1, 1]))  # nothing is known of the second yet
    assert asked(planned) == {1: [1]}
    assert planned.by_node[1].max_wait_ms(LIMITS) == 0
    idle.high_watermark = idle.last_stable_offset = 10
    assert asked(plan(subscription, view_of([1, 1]))) == {}
    idle.high_watermark = 11
    assert asked(plan(subscription, view_of([1, 1]))) == {1: [1]}
    assert asked(plan(subscription, view_of([1, 1]), is_read_committed=True)) == {}
    busy.queued_bytes = 0
    planned = plan(subscription, view_of([1, 1]))
    assert asked(planned) == {1: [0, 1]}
    assert planned.by_node[1].max_wait_ms(LIMITS) == 500


def test_fetching_works_with_limits_of_nothing() -> None:
    """A broker sends one batch at least, so zero means one at a time."""
    subscription, names = reading(1)
    planned = plan(subscription, view_of([1]), max_partition_fetch_bytes=0, fetch_max_bytes=0)
    assert asked(planned) == {1: [0]}
    subscription.state(names[0]).queued_bytes = 1
    assert asked(plan(subscription, view_of([1]), max_partition_fetch_bytes=0, fetch_max_bytes=0)) == {}


@given(
    st.lists(
        st.tuples(st.integers(-1, 3), st.booleans(), st.sampled_from([0, 50, 100]), st.integers(0, 2)),
        min_size=1,
        max_size=8,
    ),
    st.sets(st.integers(1, 3)),
)
def test_plans_keep_the_rules(partitions: list[tuple[int, bool, int, int]], busy: set[int]) -> None:
    subscription, names = reading(len(partitions))
    for name, (_, paused, queued, lag) in zip(names, partitions, strict=True):
        state = subscription.state(name)
        state.is_paused, state.queued_bytes, state.high_watermark = paused, queued, 10 + lag
    planned = FetchPlanner(LIMITS).plan(view_of([leader for leader, *_ in partitions]), subscription.states(), busy, 0)
    assert not busy & planned.by_node.keys()
    for node_id, node in planned.by_node.items():
        for name in node.wanted:
            leader, paused, queued, _ = partitions[name.partition]
            assert leader == node_id
            assert not paused
            assert queued < 100
    for name, (leader, paused, queued, lag) in zip(names, partitions, strict=True):
        may = leader > 0 and leader not in busy and not paused and queued < 100
        if may and lag:
            assert name in planned.by_node[leader].wanted  # what has news is never left out
