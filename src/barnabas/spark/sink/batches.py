"""A batch that is written exactly once, on the driver: what Spark's `commit` and `abort` come to."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from barnabas.spark.core.exactly_once import BatchDecision, Written, abort, commit
from barnabas.spark.core.exactly_once.refusals import other_batch, written_before
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.settings import needed_ms
from barnabas.spark.sink.writing import WritePlan

#: What the end of one task's transaction may take. They are ended one after the other.
_MS_PER_TASK: Final = 10


def commit_batch(plan: WritePlan, batch: int, written: Sequence[Written]) -> BatchDecision:
    """Decide, and end what is decided. Spark has a message of every task."""
    options, attempt = plan.exactly_once, written[0].attempt
    assert options is not None
    stream, run = attempt.stream, attempt.run
    if attempt.batch != batch:
        raise other_batch(stream, batch, attempt.batch)
    with DecidingCluster(plan.client, options.control_topic) as cluster:
        done = cluster.newest_done(stream)
        if done == (run, batch):
            raise written_before(stream, batch)
        decided = cluster.perform(
            commit(
                batch,
                written,
                needed_ms=needed_ms(plan.client) + _MS_PER_TASK * len(written),
                first_batch=options.first_batch,
                keeps_other_rows=options.keeps_other_rows,
                newest_done=done[1],
            )
        )
        cluster.done(stream, run, batch)
        return decided


def abort_batch(plan: WritePlan, written: Sequence[Written]) -> None:
    """Of the tasks that ended well: without any nobody knows what to abort."""
    options = plan.exactly_once
    assert options is not None
    if written:
        with DecidingCluster(plan.client, options.control_topic) as cluster:
            cluster.perform(abort(written))
