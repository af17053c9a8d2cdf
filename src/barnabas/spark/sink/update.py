"""`outputMode("update")` into topics. Spark refuses that mode for sinks in Python, but not in `foreachBatch`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from barnabas.spark.core.options import BATCH_OPTION, SinkOptions
from barnabas.spark.sink.settings import producer_settings

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_FORMAT = "barnabas"


class TopicWriter:
    """A function for `foreachBatch` that appends each micro-batch to topics. Options only: it can be pickled.

    Every row is acknowledged before the batch counts as done. A batch that Spark runs again is written again, unless
    `delivery` is exactly-once.
    """

    def __init__(self, options: Mapping[str, str]) -> None:
        self.options = dict(options)

    def __call__(self, frame: DataFrame, batch_id: int) -> None:
        try:
            self._append(frame, batch_id)
        except Exception as error:
            # By its text: classic sessions and those of Spark Connect raise different classes for it.
            if "[DATA_SOURCE_NOT_FOUND]" not in str(error):
                raise
            # With Spark Connect the function runs in a session of its own, which may not know the format yet.
            from barnabas.spark import register

            register(frame.sparkSession)
            self._append(frame, batch_id)

    def _append(self, frame: DataFrame, batch_id: int) -> None:
        options = self.options
        if SinkOptions.parse(options).exactly_once is not None:
            options = {**options, BATCH_OPTION: str(batch_id)}
        frame.write.format(_FORMAT).options(**options).mode("append").save()


def topic_writer(options: Mapping[str, object] | None = None, /, **more: object) -> TopicWriter:
    """What to give to `foreachBatch` to write updates to topics.

        (counts.writeStream.outputMode("update")
            .foreachBatch(topic_writer({"kafka.bootstrap.servers": servers, "topic": "counts"}))
            .option("checkpointLocation", folder).start())

    Options are those of the sink, columns too. Names without dots may be keywords: `topic="counts"`. With
    `delivery="exactly-once"` each writer that a function calls needs a `sinkName` of its own.
    """
    given = {name: _text(value) for name, value in {**(options or {}), **more}.items() if value is not None}
    # Raises here, where the program stands, rather than in the first batch.
    parsed = SinkOptions.parse(given)
    producer_settings(parsed.client, is_exactly_once=parsed.exactly_once is not None)
    return TopicWriter(given)


def _text(value: object) -> str:
    """Options are text; a truth value is written as Spark writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)
