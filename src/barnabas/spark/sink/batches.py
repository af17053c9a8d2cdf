"""A batch that is written exactly once, on the driver: what Spark's `commit` and `abort` come to."""

from __future__ import annotations

from collections.abc import Sequence

from barnabas.spark.core.exactly_once import BatchDecision, Written, abort, commit
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.settings import needed_ms
from barnabas.spark.sink.writing import WritePlan


def commit_batch(plan: WritePlan, batch: int, written: Sequence[Written | None]) -> BatchDecision:
    """Decide, and end what is decided. Spark has a message of every task."""
    options = plan.exactly_once
    assert options is not None
    asked = commit(
        batch,
        [each for each in written if each is not None],
        needed_ms=needed_ms(plan.client),
        first_batch=options.first_batch,
        keeps_other_rows=options.keeps_other_rows,
    )
    with DecidingCluster(plan.client, options.control_topic) as cluster:
        return cluster.perform(asked)


def abort_batch(plan: WritePlan, batch: int, written: Sequence[Written | None]) -> None:
    options = plan.exactly_once
    assert options is not None
    known = [each for each in written if each is not None]
    if known:
        with DecidingCluster(plan.client, options.control_topic) as cluster:
            cluster.perform(abort(batch, known))
