"""What a task is told by Spark, and what of it is no name of a run."""

from __future__ import annotations

import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import pytest
from pyspark import TaskContext

from barnabas.spark.core.exactly_once import Stream
from barnabas.spark.core.exactly_once.refusals import DeliveryError
from barnabas.spark.core.options import ExactlyOnceOptions
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.transactional import attempt_of_this_task
from barnabas.spark.sink.writing import WritePlan

_RUN = str(uuid.UUID(int=7))


@dataclass
class _Context:
    properties: Mapping[str, str | None]

    def getLocalProperty(self, name: str) -> str | None:  # noqa: N802
        return self.properties.get(name)

    def partitionId(self) -> int:  # noqa: N802
        return 2

    def attemptNumber(self) -> int:  # noqa: N802
        return 1

    def taskAttemptId(self) -> int:  # noqa: N802
        return 99

    def stageId(self) -> int:  # noqa: N802
        return 4


def _asked(monkeypatch: pytest.MonkeyPatch, run: str | None) -> Any:
    told = {"sql.streaming.queryId": "q", "spark.jobGroup.id": run, "streaming.sql.batchId": "5"}
    monkeypatch.setattr(TaskContext, "get", lambda: _Context(told))
    return attempt_of_this_task(WritePlan(SinkColumns(value=0), {}, "t", ExactlyOnceOptions()))


def test_a_task_is_named_by_query_run_batch_and_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    attempt = _asked(monkeypatch, _RUN)
    assert (attempt.stream, attempt.run, attempt.batch) == (Stream("q", "sink"), _RUN, 5)
    assert (attempt.task, attempt.attempt, attempt.attempt_id, attempt.stage) == (2, 1, 99, 4)


@pytest.mark.parametrize("group", ["nightly", "etl.orders", "7"])
def test_a_job_group_of_somebody_else_names_no_run(monkeypatch: pytest.MonkeyPatch, group: str) -> None:
    with pytest.raises(DeliveryError, match="Leave setJobGroup out of foreachBatch"):
        _asked(monkeypatch, group)


def test_a_task_of_no_stream_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DeliveryError, match="belongs to no streaming query"):
        _asked(monkeypatch, None)
