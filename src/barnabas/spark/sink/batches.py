"""A batch that is written exactly once, on the driver: what Spark's `commit` and `abort` come to."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.core.exactly_once import BatchDecision, Written, abort, commit
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.settings import needed_ms
from barnabas.spark.sink.writing import WritePlan


def commit_batch(plan: WritePlan, batch: int, written: Sequence[Written]) -> BatchDecision:
    """Decide, and end what is decided. Spark has a message of every task."""
    options = plan.exactly_once
    assert options is not None
    stream = written[0].attempt.stream.name
    with DecidingCluster(plan.client, options.control_topic) as cluster:
        decided = cluster.perform(
            commit(
                batch,
                written,
                needed_ms=needed_ms(plan.client),
                first_batch=options.first_batch,
                keeps_other_rows=options.keeps_other_rows,
                newest_done=cluster.newest_done.get(stream, -1),
            )
        )
        cluster.newest_done[stream] = batch
        return decided


def abort_batch(plan: WritePlan, written: Sequence[Written]) -> None:
    """Of the tasks that ended well: without any nobody knows what to abort."""
    options = plan.exactly_once
    assert options is not None
    if written:
        with DecidingCluster(plan.client, options.control_topic) as cluster:
            cluster.perform(abort(written))
