"""What the JVM connector refuses, ours refuses, and says which option is to blame.

Where the JVM connector's error has a condition (a name that monitoring looks for), ours has the same one. Spark gives
the error of a Python source as text, with a traceback: what counts is the error's own line, not the code above it.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from barnabas.testing import EmbeddedBroker
from tests.spark.jvm.cases import Topics
from tests.spark.jvm.wrong_options import WRONG, Wrong
from tests.spark.rig import queries
from tests.spark.rig.queries import JVM, OURS

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="module")
def topics(broker: EmbeddedBroker) -> Topics:
    return Topics(broker.bootstrap_servers, "same-errors")


@pytest.mark.slow  # tests/spark/core compares the options themselves, without Spark
@pytest.mark.parametrize("case", WRONG)
def test_wrong_options(case: str, spark: SparkSession, topics: Topics, tmp_path: Path) -> None:
    wrong = WRONG[case]
    options = topics.options(wrong.complete())
    if wrong.left_out is not None:
        del options[wrong.left_out]
    theirs = _refusal(spark, JVM, wrong, options, tmp_path / "theirs")
    assert theirs is not None, "the JVM connector accepts this: it does not belong into the table"
    ours = _refusal(spark, OURS, wrong, options, tmp_path / "ours")
    assert ours is not None
    told = _own_words(ours)
    condition = _condition(theirs)
    if condition is not None:
        assert f"[{condition}]" in told
    else:
        assert wrong.blamed.lower() in told.lower()
    assert wrong.is_streaming or "a stream has no end" not in told, "the answer to a batch is about streams"


def _refusal(
    spark: SparkSession, source: str, wrong: Wrong, options: dict[str, str], checkpoint: Path
) -> Exception | None:
    try:
        if wrong.is_streaming:
            queries.drain(queries.stream(spark, source, options), checkpoint)
        else:
            queries.read(spark, source, options)
    except Exception as error:
        return error
    return None


def _own_words(error: Exception) -> str:
    """What our error says, without Spark's wrapping."""
    found = re.findall(
        r"(?:^|\s)(?:\w+\.)*(?:OptionError|SparkConnectorError|InvalidSettingsError): (.*)$", str(error), re.MULTILINE
    )
    assert found, f"not an error of ours: {error}"
    return "\n".join(found)


def _condition(error: Exception) -> str | None:
    """The error condition of the JVM connector, if it has one for this; Spark's own wrap it."""
    from py4j.protocol import Py4JError

    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    while java is not None:
        if ".kafka010." in java.getClass().getName():
            try:
                return str(java.getCondition())
            except Py4JError:
                return None
        java = java.getCause()
    return None
