"""What the demo keeps of what a pipeline tells: totals, the last known numbers, and how far it came."""

from __future__ import annotations

from barnabas.spark.demo.picture import FlowTotals
from barnabas.spark.demo.progress import PipelineWatch
from barnabas.spark.pipelines.graph import SINK, TABLE, TEMPORARY, VIEW, Dataset, Graph
from barnabas.spark.pipelines.graph import Flow as Defined
from barnabas.spark.pipelines.reporting import FlowState, FlowStatus, Summary, UpdateResult

KINDS = {"clicks_topic": TEMPORARY, "clicks": TABLE, "page_views": VIEW, "sessions_topic": SINK}
GRAPH = Graph(
    datasets={name: Dataset(name, kind, "file.py:1") for name, kind in KINDS.items()},
    flows={
        name: Defined(name, target, "file.py:1")
        for name, target in [
            ("clicks_topic", "clicks_topic"),
            ("clicks", "clicks"),
            ("page_views", "page_views"),
            ("sessions", "sessions_topic"),
        ]
    },
)


def update(
    watch: PipelineWatch, number: int, *flows: FlowState, outcome: UpdateResult = UpdateResult.COMPLETED
) -> None:
    watch.update_started(number)
    watch.defined(GRAPH)
    for flow in flows:
        watch.flow_changed(flow)
    watch.update_ended(number, Summary(outcome, 1.0))


def test_flows_are_there_before_they_run_and_views_in_between_are_not() -> None:
    watch = PipelineWatch()
    watch.update_started(1)
    watch.defined(GRAPH)
    assert watch.flows == (
        FlowTotals("clicks", "queued"),
        FlowTotals("page_views", "queued"),
        FlowTotals("sessions", "queued"),
    )


def test_rows_of_streams_add_up_and_those_of_views_do_not() -> None:
    watch = PipelineWatch()
    for number, rows in (1, 100), (2, 20):
        update(
            watch,
            number,
            # Told twice, as after a batch and at the end.
            FlowState("clicks", FlowStatus.RUNNING, rows=rows, lag_records=7),
            FlowState("clicks", FlowStatus.COMPLETED, rows=rows, lag_records=number),
            FlowState("page_views", FlowStatus.COMPLETED, rows_written=40 + number),
            FlowState("sessions", FlowStatus.COMPLETED, rows=rows, rows_written=2),
        )
    assert watch.flows == (
        FlowTotals("clicks", "completed", rows_in=120, lag=2),
        FlowTotals("page_views", "completed", rows_out=42),
        FlowTotals("sessions", "completed", rows_in=120, rows_out=4),
    )


def test_an_update_that_finds_nothing_new_leaves_the_numbers_as_they_are() -> None:
    watch = PipelineWatch()
    update(watch, 1, FlowState("clicks", FlowStatus.COMPLETED, rows=100, lag_records=3))
    update(watch, 2, FlowState("clicks", FlowStatus.STARTING), FlowState("clicks", FlowStatus.COMPLETED))
    assert watch.flows[0] == FlowTotals("clicks", "completed", rows_in=100, lag=3)


def test_whoever_reads_a_table_hears_when_its_flow_has_ended_well() -> None:
    heard: list[str] = []
    watch = PipelineWatch(heard.append)
    watch.update_started(1)
    for flow in (
        FlowState("clicks", FlowStatus.RUNNING),
        FlowState("clicks", FlowStatus.COMPLETED),
        FlowState("sessions", FlowStatus.FAILED),
    ):
        watch.flow_changed(flow)
    assert heard == ["clicks"]


def test_an_update_that_was_broken_off_is_told_by_its_number() -> None:
    assert PipelineWatch().broken_off is None
    watch = PipelineWatch()
    watch.update_started(1)
    begun = watch.broken_off
    update(watch, 1)
    assert begun == 1
    assert (watch.updates, watch.broken_off) == (1, None)
    update(watch, 2, outcome=UpdateResult.STOPPED)
    assert (watch.updates, watch.broken_off) == (1, 2)


def test_all_is_taken_in_by_the_update_after_the_one_that_runs() -> None:
    watch = PipelineWatch()
    watch.update_started(1)
    watch.expect_one_more()
    found = []
    for number in (1, 2):
        update(watch, number)
        found.append(watch.has_taken_in_everything)
    assert found == [False, True]


def test_updates_are_counted_on_when_spark_starts_again() -> None:
    watch = PipelineWatch()
    update(watch, 1)
    watch.update_started(2)
    watch.update_ended(2, Summary(UpdateResult.FAILED, 1.0, failure="Spark ended by itself", is_spark_gone=True))
    assert (watch.updates, watch.broken_off) == (1, 2)
    watch.expect_one_more()
    watch.starts_again()
    assert (watch.phase, watch.failure) == ("Spark was killed, and starts again", None)
    update(watch, 1)
    assert (watch.phase, watch.updates, watch.broken_off, watch.has_taken_in_everything) == ("update 3", 2, None, True)
