"""Batches that are written exactly once to real brokers, with Spark's part played: tasks, batches, drivers that die."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pyarrow as pa

from barnabas import Consumer, TopicPartition
from barnabas.spark.core.exactly_once import Attempt, Stream, Written, steps
from barnabas.spark.core.options import ExactlyOnceOptions
from barnabas.spark.sink import batches, deciding
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.settings import producer_settings
from barnabas.spark.sink.transactional import write_in_transaction
from barnabas.spark.sink.writing import WritePlan


class DriverDies(Exception):  # noqa: N818
    """It does nothing more, not even close its clients."""


class RealBatches:
    """A stream into one topic. `run` is the driver that is there now."""

    _numbers = itertools.count(1)

    def __init__(self, servers: str, topic: str, **options: Any) -> None:
        self.servers, self.topic = servers, topic
        self.stream = Stream(f"query{next(self._numbers)}", "sink")
        self.plan = self.plan_with(**options)
        self.runs = 0
        self.attempt_ids = itertools.count()
        #: What dead drivers have left open. Closed at the end, or a producer would abort what it has begun.
        self.left = ExitStack()
        self.restart()

    def plan_with(self, timeout_ms: int = 60_000, **options: Any) -> WritePlan:
        client = {"bootstrap.servers": self.servers, "transaction.timeout.ms": str(timeout_ms)}
        settings = producer_settings(client, is_exactly_once=True)
        return WritePlan(SinkColumns(value=0), settings, self.topic, ExactlyOnceOptions(**options))

    def restart(self) -> None:
        self.runs += 1
        self.run = f"run{self.runs}"

    def write(self, batch: int, tasks: Sequence[Sequence[str]], attempt: int = 0) -> list[Written]:
        """Each task writes its rows."""
        return [self.write_task(batch, task, rows, attempt) for task, rows in enumerate(tasks)]

    def write_task(self, batch: int, task: int, rows: Sequence[str], attempt: int = 0) -> Written:
        who = Attempt(self.stream, self.run, batch, task, attempt, next(self.attempt_ids))
        data = [pa.record_batch({"value": [row.encode() for row in rows]})] if rows else []
        message = write_in_transaction(self.plan, data, who)
        return message.written

    def commit(self, batch: int, written: Sequence[Written]) -> None:
        batches.commit_batch(self.plan, batch, written)

    def abort(self, written: Sequence[Written]) -> None:
        batches.abort_batch(self.plan, written)

    def dies_after(self, step_count: int, batch: int, written: Sequence[Written]) -> str:
        """Commit with a driver that dies after so many steps; the name of the last, "" if it did not."""
        taken: list[str] = []

        class Mortal(deciding.DecidingCluster):
            def take(self, step: steps.DriverStep[Any]) -> Any:
                if len(taken) == step_count:
                    raise DriverDies
                answer = super().take(step)
                taken.append(type(step).__name__)
                return answer

        options = self.plan.exactly_once
        assert options is not None
        dying = Mortal(self.plan.client, options.control_topic)
        dying.__enter__()
        self.left.push(lambda *error: dying.__exit__(None, None, None))
        from barnabas.spark.core.exactly_once import commit
        from barnabas.spark.sink.settings import needed_ms

        asked = commit(batch, written, needed_ms=needed_ms(self.plan.client), newest_done=batch - 1)
        try:
            dying.perform(asked)
        except DriverDies:
            return taken[-1] if taken else "nothing"
        return ""

    def rows(self) -> list[str]:
        """What a reader of committed records sees, up to the first transaction that is open."""
        place = TopicPartition(self.topic, 0)
        with Consumer(
            bootstrap_servers=self.servers, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as consumer:
            consumer.assign([place])
            end = consumer.end_offsets([place])[place]
            found: list[str] = []
            while consumer.position(place) < end:
                found += [(record.value or b"").decode() for record in consumer.poll(1.0)]
            return found
