"""Spark looks for modules named `pyspark_…` and registers their `DefaultSource`: that makes `format("barnabas")` known
without a word of code, wherever Spark's Python is the one in which Barnabas is installed.
"""

from __future__ import annotations

from barnabas.spark.source import BarnabasDataSource as DefaultSource

__all__ = ["DefaultSource"]
