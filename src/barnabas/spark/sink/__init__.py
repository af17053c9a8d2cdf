"""The sink: rows of a DataFrame, batch or stream, become records of topics.

Written at least once, every row of a task is acknowledged before the task ends, by an idempotent producer with
`acks=all`; a task that Spark runs again writes its rows again. Exactly once, a task writes in a transaction that the
driver ends: `core/exactly_once` says how.
"""

from __future__ import annotations

from barnabas.spark.sink.update import TopicWriter, topic_writer
from barnabas.spark.sink.writers import TopicBatchWriter, TopicStreamWriter, batch_writer, stream_writer

__all__ = [
    "TopicBatchWriter",
    "TopicStreamWriter",
    "TopicWriter",
    "batch_writer",
    "stream_writer",
    "topic_writer",
]
