"""Topics as Spark sees them: a source and a sink called `barnabas`, batch and streaming, Arrow all the way.

    import barnabas.spark

    barnabas.spark.register(spark)
    spark.readStream.format("barnabas").option("kafka.bootstrap.servers", …).option("subscribe", "clicks").load()

Workers import this package at every cold start, so nothing is loaded before it is asked for.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from barnabas.spark.lag import LagListener as LagListener
    from barnabas.spark.lag import watch_lag as watch_lag
    from barnabas.spark.sink import topic_writer as topic_writer

_PLACES = {"LagListener": "lag", "topic_writer": "sink", "watch_lag": "lag"}

__all__ = ["LagListener", "register", "topic_writer", "watch_lag"]


def register(spark: SparkSession) -> None:
    """Make `format("barnabas")` known to a session, classic or Spark Connect. Doing it again does no harm.

    Workers of a classic session use the running interpreter from here on, where Spark runs on this machine and neither
    PYSPARK_PYTHON nor spark.pyspark.python say otherwise. SPARK_LOCAL_IP must be set before the session is made.
    A Spark Connect server chose its Python when it started: Barnabas must be installed there.
    """
    from barnabas.spark.registering import register

    register(spark)


def __getattr__(name: str) -> Any:
    if name not in _PLACES:
        raise AttributeError(f"module 'barnabas.spark' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"barnabas.spark.{_PLACES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted([*globals(), *_PLACES])
