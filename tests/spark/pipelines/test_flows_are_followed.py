"""From the sentences of a pipeline and the numbers of its queries to the state of its flows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from barnabas.spark.pipelines.graph import Flow, Graph
from barnabas.spark.pipelines.reporting import (
    Delivered,
    FlowLag,
    FlowState,
    FlowStatus,
    Summary,
    Table,
    UpdateResult,
    together,
)
from barnabas.spark.pipelines.tracking import METRICS_PREFIX, Tracker


def progress(name: str, rows: int, **more: Any) -> dict[str, Any]:
    return {
        "name": name,
        "numInputRows": rows,
        "processedRowsPerSecond": 50.0,
        "batchDuration": 1500,
        "sources": [],
        "sink": {"numOutputRows": -1},
        **more,
    }


def tracker() -> tuple[Tracker, list[FlowState]]:
    seen: list[FlowState] = []
    return Tracker(seen.append, lambda name: name.removeprefix("spark_catalog.default.")), seen


def test_every_sentence_of_spark_is_understood() -> None:
    followed, seen = tracker()
    for sentence in (
        "Flow spark_catalog.default.a is QUEUED.",
        "Flow spark_catalog.default.a is PLANNING.",
        "Flow spark_catalog.default.a is STARTING.",
        "Flow spark_catalog.default.a is RUNNING.",
        "Flow spark_catalog.default.a has COMPLETED.",
        "Flow 'spark_catalog.default.b' SKIPPED due to upstream failure(s).",
        "Flow 'spark_catalog.default.c' is EXCLUDED.",
        "Flow 'spark_catalog.default.d' has STOPPED.",
        "Flow 'spark_catalog.default.e' is IDLE, waiting for new data.",
        "Flow 'spark_catalog.default.f' has been processed by a previous iteration and will not be rerun.",
        "Flow 'spark_catalog.default.g' has FAILED more than 2 times and will not be restarted.\nError: why",
        "Failed to resolve flow: 'spark_catalog.default.h'.\nError: no column",
        "Run is COMPLETED.",
    ):
        followed.told(sentence)
    followed.settled()
    assert [flow.state.name for flow in seen[:5]] == ["QUEUED", "PLANNING", "STARTING", "RUNNING", "COMPLETED"]
    assert {flow.name: flow.state.name for flow in followed.flows} == {
        "a": "COMPLETED",
        "b": "SKIPPED",
        "c": "EXCLUDED",
        "d": "STOPPED",
        "e": "IDLE",
        "f": "SKIPPED",
        "g": "FAILED",
        "h": "FAILED",
    }


def test_the_flow_that_is_to_blame_comes_before_those_that_it_drew_along() -> None:
    followed, _ = tracker()
    followed.told("Failed to resolve flow due to upstream failure: 'after'.\nError: upstream")
    followed.told("Failed to resolve flow: 'first'.\nError: no column\nof that name")
    followed.told("Flow 'first' has FAILED.\nError: again")
    assert followed.failed == [("first", "no column\nof that name"), ("after", "upstream")]


def test_numbers_add_up_over_batches() -> None:
    followed, seen = tracker()
    followed.told("Flow spark_catalog.default.a is RUNNING.")
    followed.progressed(progress("spark_catalog.default.a", 100))
    followed.progressed(progress("spark_catalog.default.a", 20, sink={"numOutputRows": 7}, batchDuration=500))
    flow = seen[-1]
    assert (flow.rows, flow.rows_written, flow.batches, flow.batch_s) == (120, 7, 2, 0.5)
    assert (flow.state, flow.rows_per_s, flow.lag_records) == (FlowStatus.RUNNING, 50.0, None)


def test_a_batch_without_rows_says_nothing_of_speed() -> None:
    followed, seen = tracker()
    followed.progressed(progress("a", 100))
    followed.progressed(progress("a", 0, processedRowsPerSecond=0.0))
    assert (seen[-1].rows, seen[-1].rows_per_s) == (100, 50.0)


def test_queries_without_a_name_are_not_ours() -> None:
    followed, seen = tracker()
    followed.progressed(progress("", 100))
    assert not seen


def test_what_is_left_is_told_by_the_progress_and_the_lag_by_the_brokers() -> None:
    source = {
        "description": "barnabas",
        "endOffset": '{"t": {"0": 50, "1": 30}}',
        "latestOffset": '{"t": {"0": 70, "1": 40}}',
    }
    followed, seen = tracker()
    followed.progressed(progress("a", 90, sources=[source]))
    assert (seen[-1].left_records, seen[-1].lag_records, seen[-1].share_done) == (30, None, 0.75)
    followed.progressed(
        progress("a", 30, sources=[{**source, "endOffset": source["latestOffset"]}]), lag=FlowLag(12, 1.5)
    )
    assert (seen[-1].left_records, seen[-1].lag_records, seen[-1].share_done) == (0, 12, 1.0)
    assert seen[-1].lag_s == 1.5
    followed.lagged("a", FlowLag(15, 2.5))
    assert (seen[-1].lag_records, seen[-1].lag_s, seen[-1].rows) == (15, 2.5, 120)


def test_a_query_that_fails_has_not_completed_whatever_spark_says() -> None:
    followed, seen = tracker()
    for attempt in range(3):
        followed.told("Flow spark_catalog.default.a is RUNNING.")
        # The two streams of events overtake each other.
        steps: list[Callable[[], object]] = [
            lambda: followed.told("Flow spark_catalog.default.a has COMPLETED."),
            lambda: followed.query_ended("spark_catalog.default.a", has_failed=True),
        ]
        for step in steps if attempt else reversed(steps):
            step()
        more = " more than 2 times and will not be restarted" if attempt == 2 else ""
        followed.told(f"Flow 'spark_catalog.default.a' has FAILED{more}.\nError: why")
    texts = [flow.state_text for flow in seen]
    assert list(dict.fromkeys(texts)) == [
        "running",
        "failed, trying again (2 of 3)",
        "failed, trying again (3 of 3)",
        "failed",
    ]
    assert followed.failed == [("a", "why")]


def test_a_query_has_completed_when_both_say_so() -> None:
    followed, seen = tracker()
    for name, is_told_first in (("a", True), ("b", False)):
        followed.told(f"Flow {name} is RUNNING.")
        if is_told_first:
            followed.told(f"Flow {name} has COMPLETED.")
            assert seen[-1].state is FlowStatus.RUNNING
        followed.query_ended(name, has_failed=False)
        if not is_told_first:
            followed.told(f"Flow {name} has COMPLETED.")
        assert (seen[-1].name, seen[-1].state, seen[-1].rows) == (name, FlowStatus.COMPLETED, 0)


def test_an_end_that_no_query_told_is_believed_at_the_end_of_the_update() -> None:
    followed, seen = tracker()
    followed.told("Flow a is RUNNING.")
    followed.told("Flow a has COMPLETED.")
    assert (seen[-1].state, followed.ends) == (FlowStatus.RUNNING, 1)
    followed.settled()
    assert seen[-1].state is FlowStatus.COMPLETED


def test_views_have_no_query_that_could_tell_its_end() -> None:
    followed, seen = tracker()
    for state in ("is PLANNING", "is RUNNING", "has COMPLETED"):
        followed.told(f"Flow a {state}.")
    assert (seen[-1].state, seen[-1].rows, followed.ends) == (FlowStatus.COMPLETED, None, 0)


def test_a_flow_that_waits_for_another_try_has_failed_when_the_update_ends() -> None:
    followed, _ = tracker()
    followed.told("Flow 'a' has FAILED.\nError: why")
    followed.stopped()
    assert [flow.state for flow in followed.flows] == [FlowStatus.FAILED]


def test_flows_are_in_the_order_of_their_definitions() -> None:
    followed, _ = tracker()
    followed.defined(Graph(flows={name: Flow(name, name, "") for name in "abc"}))
    for name in "xcba":
        followed.told(f"Flow {name} is RUNNING.")
    assert "".join(flow.name for flow in followed.flows) == "abcx"


def test_what_was_last_known_stays_where_nothing_is_new() -> None:
    before = FlowState("a", FlowStatus.COMPLETED, 70, None, 50.0, 3, 1.5, 1, 2, {"r": 2}, failures=1)
    seen: list[FlowState] = []
    followed = Tracker(seen.append, earlier=[before])
    followed.told("Flow a is RUNNING.")
    assert seen[-1] == FlowState("a", FlowStatus.RUNNING, 0, None, 50.0, 3, 1.5, 0, 0, {"r": 0})


def test_what_is_decided_counts_by_update_and_bytes_add_up() -> None:
    seen: list[FlowState] = []
    ever: dict[str, Delivered] = {}
    for number, (first, last) in enumerate(((2, 5), (7, 9)), start=1):
        followed = Tracker(seen.append, delivered=ever)
        followed.progressed(progress("a", 3), delivered=Delivered(first, 1, 30, 300 * first), bytes_read=10)
        followed.progressed(progress("a", 3), delivered=Delivered(last, 0, 60, 300 * last), bytes_read=20)
        (flow,) = followed.flows
        before = 5 if number == 2 else 0
        assert (flow.transactions_decided, flow.transactions_open) == (last - before, 0)
        assert (flow.bytes_written, flow.bytes_read) == (300 * (last - before), 30)
    both = together(*(Summary(UpdateResult.COMPLETED, 1.0, flows=(each,)) for each in (seen[1], seen[3]))).flows[0]
    assert (both.transactions_decided, both.bytes_written, both.bytes_read) == (9, 2700, 60)


def test_sources_that_are_no_topics_have_no_lag() -> None:
    followed, seen = tracker()
    for latest in ("null", None, '{"logOffset": 9}'):
        followed.progressed(progress("a", 1, sources=[{"endOffset": '{"logOffset": 3}', "latestOffset": latest}]))
    assert seen[-1].lag_records is None
    assert seen[-1].share_done is None


def test_broken_rules_are_counted_by_rule_and_bad_rows_once() -> None:
    counts = {METRICS_PREFIX + "1": {"(bad)": 3, "has user": 2, "is short": 3}, "somebody's": {"x": 5}}
    followed, _ = tracker()
    # Two flows read what one use of rules passes, one of them in two batches.
    followed.progressed(progress("a", 10, observedMetrics=counts))
    followed.progressed(progress("a", 10, observedMetrics=counts))
    followed.progressed(progress("b", 10, observedMetrics=counts))
    a, b = followed.flows
    assert (a.bad, a.broken) == (6, {"has user": 4, "is short": 6})
    assert (b.bad, followed.bad_records) == (3, 6)


def test_flows_that_were_stopped_are_shown_so() -> None:
    followed, _ = tracker()
    followed.told("Flow a is RUNNING.")
    followed.told("Flow b is PLANNING.")
    followed.told("Flow b has COMPLETED.")
    followed.stopped()
    assert [flow.state for flow in followed.flows] == [FlowStatus.STOPPED, FlowStatus.COMPLETED]


def test_updates_add_up() -> None:
    one = Summary(
        UpdateResult.COMPLETED,
        2.0,
        (FlowState("a", FlowStatus.COMPLETED, rows=5, lag_records=7, batches=1, bad=1, broken={"r": 1}),),
        (Table("a"), Table("v", 3)),
        bad_records=1,
    )
    two = Summary(
        UpdateResult.FAILED,
        1.0,
        (FlowState("a", FlowStatus.FAILED, rows=6, batches=2, broken={"s": 2}), FlowState("b", FlowStatus.SKIPPED)),
        (Table("v", 4),),
        failure="why",
    )
    whole = together(one, two)
    assert (whole.outcome, whole.seconds, whole.updates, whole.bad_records, whole.failure) == (
        UpdateResult.FAILED,
        3.0,
        2,
        1,
        "why",
    )
    a, b = whole.flows
    assert (a.state, a.rows, a.lag_records, a.batches, a.broken) == (FlowStatus.FAILED, 11, 7, 3, {"r": 1, "s": 2})
    assert b.state is FlowStatus.SKIPPED
    assert whole.tables == (Table("a"), Table("v", 4))
