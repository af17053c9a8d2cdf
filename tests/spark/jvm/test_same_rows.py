"""Same topic, same options: the same rows, the same schema, the same tasks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from barnabas.testing import EmbeddedBroker
from tests.spark.jvm.cases import READS, Topics
from tests.spark.rig import queries
from tests.spark.rig.queries import JVM, OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker) -> Topics:
    return Topics(broker.bootstrap_servers, "same-rows")


@pytest.mark.parametrize(
    "case", [case if number % 2 else pytest.param(case, marks=pytest.mark.slow) for number, case in enumerate(READS)]
)
def test_a_batch_read(case: str, spark: SparkSession, topics: Topics) -> None:
    options = topics.options(READS[case])
    theirs, ours = queries.read(spark, JVM, options), queries.read(spark, OURS, options)
    assert ours.schema == theirs.schema
    assert ours.rows == theirs.rows
    assert ours.tasks == theirs.tasks
