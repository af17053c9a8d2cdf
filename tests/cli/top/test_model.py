"""From samples to what is shown: rates, lag in seconds, where the time of requests goes, and why it is slow."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.cli.top import history as history_module
from barnabas.cli.top.figures import ApiFigures, LoopTime, NodeFigures, figures_of, points, together
from barnabas.cli.top.history import Age, EndHistory
from barnabas.cli.top.model import (
    FENCED,
    SILENT,
    ApiRow,
    BrokerRow,
    BrokerSeen,
    GroupFacts,
    Model,
    PartitionRow,
    PartitionSeen,
    Sample,
    model_of,
)
from barnabas.cli.top.reasons import reasons
from barnabas.cli.top.view import screen
from tests.cli.top.example import model

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
FACTS = PartitionSeen(1, (1,), (1,))


def at(seconds: int, ends: dict[TopicPartition, int], committed: dict[TopicPartition, int] | None = None) -> Sample:
    groups = (GroupFacts("g", "Stable", 1),) if committed is not None else ()
    return Sample(
        seconds * 1000,
        partitions=dict.fromkeys(ends, FACTS),
        end_offsets=ends,
        groups=groups,
        committed={"g": committed or {}},
    )


def test_throughput_is_what_ends_grow_by() -> None:
    before, now = at(10, {T0: 100, T1: 50}), at(14, {T0: 140, T1: 50})
    shown = model_of(now, before, EndHistory())
    assert [each.records_s for each in shown.topics] == [10.0]
    assert shown.records_s == 10.0
    assert model_of(now, None, EndHistory()).records_s is None


def test_a_new_topic_began_empty_and_one_made_anew_does_not_go_back() -> None:
    before = at(10, {T0: 100})
    assert model_of(at(12, {T0: 100, T1: 6}), before, EndHistory()).records_s == 3.0
    assert model_of(at(12, {T0: 4}), before, EndHistory()).records_s == 0.0


def test_lag_in_seconds_is_how_old_the_first_unread_record_is() -> None:
    history = EndHistory()
    for seconds in range(0, 101, 10):
        history.note(T0, seconds * 5, seconds * 1000)  # five records a second
    sample = at(100, {T0: 500}, {T0: 350})
    (group,) = model_of(sample, None, history).groups
    assert (group.lag, group.lag_s, group.is_at_least) == (150, 30.0, False)
    (group,) = model_of(at(100, {T0: 500}, {T0: 500}), None, history).groups
    assert (group.lag, group.lag_s) == (0, 0.0)


@pytest.mark.parametrize(("told_s", "shown_s"), [({1: 0.0}, 30.0), ({1: 0.0, 2: 42.5}, 42.5), ({}, 30.0)])
def test_a_node_that_knows_less_of_a_group_does_not_make_its_lag_smaller(
    told_s: dict[int, float], shown_s: float
) -> None:
    history = EndHistory()
    for seconds in (70, 100):
        history.note(T0, seconds * 5, seconds * 1000)
    nodes = {number: NodeFigures(group_lag_s={"g": seconds}) for number, seconds in told_s.items()}
    (group,) = model_of(replace(at(100, {T0: 500}, {T0: 350}), nodes=nodes), None, history).groups
    assert (group.lag_s, group.is_at_least) == (shown_s, False)
    # Records that were there before the first look may be older than what is told, whatever that is.
    (group,) = model_of(replace(at(100, {T0: 500}, {T0: 300}), nodes=nodes), None, history).groups
    assert (group.lag_s, group.is_at_least) == (shown_s, True)


def test_what_was_there_before_the_first_look_is_at_least_as_old() -> None:
    history = EndHistory()
    history.note(T0, 1000, 10_000)
    history.note(T0, 1000, 12_000)
    assert history.age(T0, 900, 12_000) == Age(2.0, is_at_least=True)
    history.note_written(T0, 900, 2_000)
    assert history.age(T0, 900, 12_000) == Age(10.0)
    assert history.age(T0, 950, 12_000) == Age(6.0)


def test_of_very_many_partitions_fewer_looks_are_kept_and_as_old_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(history_module, "_MOST_OF_ALL", 2_000)
    history, rate = EndHistory(), 5
    partitions = [TopicPartition("t", number) for number in range(100)]
    for second in range(600):
        for each in partitions:
            history.note(each, second * rate, second * 1000)
        assert sum(map(len, history._looks.values())) <= 2_000
    for each in partitions:
        for age_s in (0, 1, 30, 300, 599):
            assert history.age(each, (599 - age_s) * rate, 599_000).seconds == pytest.approx(age_s, abs=1)
        assert not history.age(each, 0, 599_000).is_at_least


def test_of_few_partitions_all_looks_of_half_an_hour_are_kept() -> None:
    history = EndHistory()
    for number in range(1_000):
        for each in (T0, T1):
            history.note(each, number, number * 2_000)
    assert [len(each) for each in history._looks.values()] == [900, 900]


def test_a_partition_that_was_cut_begins_anew() -> None:
    history = EndHistory()
    history.note(T0, 1000, 10_000)
    history.note(T0, 10, 20_000)
    assert history.age(T0, 5, 21_000) == Age(1.0, is_at_least=True)


@given(st.lists(st.integers(0, 40), min_size=2, max_size=30), st.data())
def test_ages_lie_between_the_looks(steps: list[int], data: st.DataObject) -> None:
    history, end, looks = EndHistory(), 0, []
    for number, step in enumerate(steps):
        end += step
        history.note(T0, end, number * 1000)
        looks.append((end, number))
    if end <= looks[0][0]:
        return
    offset = data.draw(st.integers(looks[0][0], end - 1))
    now = len(steps) - 1
    seen = min(second for known, second in looks if known > offset)
    unseen = max(second for known, second in looks if known <= offset)
    age = history.age(T0, offset, now * 1000)
    assert not age.is_at_least
    assert now - seen <= age.seconds + 1e-9
    assert age.seconds <= now - unseen + 1e-9


def test_apis_are_told_by_what_was_counted_between_the_looks() -> None:
    shown = model()
    assert shown.apis is not None
    produce = next(each for each in shown.apis if each.name == "Produce")
    assert produce.requests_s == pytest.approx(636)
    assert (produce.queue_ms, produce.local_ms, produce.remote_ms) == pytest.approx((3.1, 1.2, 182.0))
    assert produce.mean_ms == pytest.approx(186.7)
    assert produce.p99_ms is not None
    assert 134 < produce.p99_ms < 269  # within its bucket


@given(st.lists(st.floats(0.05, 60_000), min_size=1, max_size=200), st.sampled_from([0.5, 0.9, 0.99]))
def test_quantiles_are_right_but_for_their_buckets(times_ms: list[float], share: float) -> None:
    bounds = [0.016 * 2**power for power in range(23)]
    buckets = tuple((bound, float(sum(each <= bound for each in times_ms))) for bound in bounds)
    found = ApiFigures(float(len(times_ms)), buckets=(*buckets, (float("inf"), float(len(times_ms))))).quantile_ms(
        share
    )
    ordered = sorted(times_ms)
    exact = ordered[max(0, -(-int(share * 1000) * len(ordered) // 1000) - 1)]
    assert found is not None
    assert exact / 2 - 0.02 <= found <= exact * 2 + 0.02


def test_a_node_that_began_anew_is_counted_from_there() -> None:
    before, now = ApiFigures(100.0, (1.0,) * 7), ApiFigures(7.0, (0.5,) * 7)
    assert now.since(before) is now
    assert together([now, now]).count == 14


TEXT = """
# HELP kafka_network_requestmetrics_totaltimems From a request's last byte until its answer had left.
# TYPE kafka_network_requestmetrics_totaltimems histogram
kafka_network_requestmetrics_totaltimems_bucket{request="Produce",le="1.0"} 3
kafka_network_requestmetrics_totaltimems_bucket{request="Produce",le="+Inf"} 4
kafka_network_requestmetrics_totaltimems_sum{request="Produce"} 12.5
kafka_network_requestmetrics_totaltimems_count{request="Produce"} 4
kafka_network_requestmetrics_localtimems_sum{request="Produce"} 4.5
kafka_network_requestmetrics_totaltimems_count{request="Fetch"} 9
kafka_network_requestmetrics_totaltimems_count{request="FetchConsumer"} 5
kafka_server_brokertopicmetrics_bytesin_total 99
kafka_server_brokertopicmetrics_bytesin_total{topic="a \\"quoted\\\\ \\n}{ name"} 42
barnabas_group_lag_seconds_max{group="g"} 3.25
kafka_server_app_info_version{version="1",node_id="3"} 1
barnabas_loop_idle_ratio 0.25
barnabas_loop_longest_stall_seconds 0.5
barnabas_loop_cpu_seconds_total 4.5
barnabas_loop_seconds_total 60
barnabas_throttled_ms_total{principal="User:a",client_id="c"} 120
barnabas_throttled_ms_total{principal="User:b",client_id=""} 7
barnabas_throttle_left_ms{principal="User:a",client_id="c"} 90
kafka_server_kafkaserver_clusterid{cluster_id="here"} 1
what is this? {
name_without_value
"""


def test_what_a_node_tells_is_read() -> None:
    told = figures_of(TEXT)
    produce = told.apis["Produce"]
    assert (produce.count, produce.sums_ms[1], produce.sums_ms[6]) == (4, 4.5, 12.5)
    assert produce.buckets == ((1.0, 3.0), (float("inf"), 4.0))
    assert set(told.apis) == {"Produce", "FetchConsumer"}
    assert told.bytes_in == {'a "quoted\\ \n}{ name': 42.0}
    assert told.group_lag_s == {"g": 3.25}
    assert (told.node_id, told.idle, told.longest_stall_ms) == (3, 0.25, 500)
    assert told.loop == LoopTime(60.0, 4.5)
    assert told.throttled_ms == {"c as User:a": 120.0, "(no client.id) as User:b": 7.0}
    assert (told.throttle_left_ms, told.cluster_id) == ({"c as User:a": 90.0}, "here")


NODE = NodeFigures(idle=0.8, loop=LoopTime(100.0, 20.0))


@pytest.mark.parametrize(
    ("now", "shown"),
    [
        (replace(NODE, loop=LoopTime(102.0, 21.96)), 0.02),
        (replace(NODE, loop=LoopTime(102.0, 22.01)), 0.0),  # its two clocks are not read in one instant
        (NODE, 0.8),  # the same answer
        (replace(NODE, loop=LoopTime(1.0, 0.5)), 0.8),  # it began anew
        (NodeFigures(idle=0.8), 0.8),
    ],
)
def test_a_loop_is_as_busy_as_it_was_since_the_last_look(now: NodeFigures, shown: float) -> None:
    """However idle it was in the minute before: clients that wait now want to know now."""
    assert now.idle_since(NODE) == pytest.approx(shown)
    assert now.idle_since(NodeFigures(idle=0.9)) == now.idle_since(None) == 0.8
    broker = BrokerSeen(1, "kafka:9092")
    before, after = (
        replace(at(second, {T0: 0}), brokers=(broker,), nodes={1: node}) for second, node in ((10, NODE), (12, now))
    )
    told = model_of(after, before, EndHistory())
    assert told.brokers[0].idle == pytest.approx(shown)
    assert any(each.startswith("Node 1 is busy") for each in reasons(told)) == (shown < 0.1)


@pytest.mark.parametrize("other_break", ["\r", "\x0b", "\x0c", "\x1c", "\x85", "\u2028"])
def test_names_of_others_become_no_lines(other_break: str) -> None:
    name = f"x{other_break}barnabas_loop_idle_ratio 0.01{other_break}"
    told = figures_of(f'barnabas_loop_idle_ratio 0.5\nbarnabas_group_lag_seconds_max{{group="{name}"}} 3\n')
    assert (told.idle, told.group_lag_s) == (0.5, {name: 3.0})


@given(st.text(max_size=300))
def test_any_text_is_read_or_passed_over(text: str) -> None:
    list(points(text))
    figures_of(text)


def test_who_waits_for_a_quota_is_told_of_until_it_does_not() -> None:
    """A wait of some seconds is told once by what it adds up to, and lasts for several looks."""
    client = "hog as User:a"
    waited = [0.0, 7755.0, 7755.0, 7755.0, 7755.0]
    left = [0.0, 6900.0, 4900.0, 600.0, 0.0]
    nodes = [
        NodeFigures(throttled_ms={client: all_ms}, throttle_left_ms={client: left_ms})
        for all_ms, left_ms in zip(waited, left, strict=True)
    ]
    told = [
        model_of(Sample(2000, nodes={1: now}), Sample(0, nodes={1: before}), EndHistory()).throttled
        for before, now in pairwise(nodes)
    ]
    assert told == [
        (f"{client} (waits 6.9 s more)",),
        (f"{client} (waits 4.9 s more)",),
        (f"{client} (waits 0.6 s more)",),
        (),
    ]


def test_why_it_is_slow() -> None:
    told = reasons(model())
    assert model().throttled == ("report-7 as User:reports (850 ms in 2 s)",)
    assert told[0].startswith("Nobody leads payments-2")
    assert any("wait for broker 3" in each for each in told)
    assert any(each.startswith("Node 2 is busy") for each in told)
    assert any(each.startswith("Produce takes 187 ms, of which 182 waiting for others: followers") for each in told)
    quiet = reasons(model(with_nodes=False, is_troubled=False))
    assert quiet == [
        "fraud has lag and no members: nobody reads",
        "recommendations is rebalancing: nothing is read meanwhile",
    ]


def test_a_cluster_without_a_controller_says_so_first() -> None:
    silent = tuple(BrokerRow(number, "", state, 0, 0, 0) for number, state in ((1, ""), (2, SILENT), (3, FENCED)))
    apis = (ApiRow("DescribeQuorum", 1.0, 9000.0, None, 0.0, 0.0, 9000.0, 0.0, 0.0, 0.0),)
    problems = tuple(f"problem {number}" for number in range(4))
    shown = Model(0, has_controller=False, brokers=silent, apis=apis, problems=problems)
    told = reasons(shown)
    assert told == [
        "No controller leads: nothing is created, changed or elected; the rest goes on",
        "Broker 2 does not answer, and nobody has fenced it: clients wait",
    ]
    lines = screen(shown, 80, None).lines
    assert [line for line in lines if line.startswith("!")] == [f"! {each}" for each in told], "they fit"
    assert [line for line in lines if line.startswith("?")] == [f"? {each}" for each in problems]
    assert "1 broker, no controller" in lines[0]
    assert lines[1].endswith("0 under-replicated, 0 offline, as last known")
    assert sum(line.startswith("?") for line in screen(shown, 80, 24).lines) == 2


@pytest.mark.parametrize(
    ("count", "words"), [(1, "1 partition waits for broker 3"), (2, "2 partitions wait for broker 3")]
)
def test_one_partition_waits_and_several_wait(count: int, words: str) -> None:
    lacking = tuple(PartitionRow(f"t-{number}", 1, (1, 2), (3,)) for number in range(count))
    (told,) = reasons(Model(0, partitions=lacking))
    assert told.startswith(f"{words} to catch up: ")
