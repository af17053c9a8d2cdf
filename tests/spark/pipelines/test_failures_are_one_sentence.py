"""What Spark says of a failure, and what people read. The texts are Spark's own, of 4.3.0."""

from __future__ import annotations

from pathlib import Path

import pytest

from barnabas.spark.pipelines.failures import PipelineError, cause, is_data_loss, of_definition, of_run
from barnabas.spark.pipelines.graph import TABLE, Dataset, Flow, Graph

CAST = """[STREAM_FAILED] Query [id = 2bfdafe1, runId = 1540a52a] terminated with exception: [CAST_INVALID_INPUT] \
The value 'x7' of the type "STRING" cannot be cast to "BIGINT". SQLSTATE: 22018
== SQL (line 1, position 1) ==
CAST(value AS LONG) as offset
^^^^^^^^^^^^^^^^^^^
 SQLSTATE: XXKST
=== Streaming Query ===
Identifier: spark_catalog.default.lines [id = 2bfdafe1, runId = 1540a52a]
Current State: ACTIVE"""

WORKER = """[STREAM_FAILED] Query [id = 02f5, runId = 987c] terminated with exception: Job aborted due to \
stage failure: Task 0 in stage 2.0 failed 1 times, most recent failure: org.apache.spark.api.python.PythonException: \
Traceback (most recent call last):
  File "/x/worker.py", line 9, in main
    process()
  File "/x/a.py", line 5, in boom
    raise DataLossError(f"cannot")
barnabas.spark.core.errors.DataLossError: [KAFKA_DATA_LOSS.OFFSETS_EXPIRED] clicks-0: offsets 5 to 9 are gone
 SQLSTATE: 38000
	at org.apache.spark.api.python.BasePythonRunner.handlePythonException(PythonRunner.scala:581)
	at java.base/java.lang.Thread.run(Thread.java:840)"""

COLUMN = """[UNRESOLVED_COLUMN.WITH_SUGGESTION] A column, variable, or function parameter with name `vlue` cannot be \
resolved. Did you mean one of the following? [`value`]. SQLSTATE: 42703; line 1 pos 0;
'Filter ('vlue > 1)
+- StreamingRelation DataSource(org.apache.spark.sql.SparkSession,text), text, [value#1]
"""

DELTA = """(org.apache.spark.sql.pipelines.graph.DatasetManager$TableMaterializationException) \
org.apache.spark.SparkClassNotFoundException: [DATA_SOURCE_NOT_FOUND] Failed to find the data source: delta. Make sure \
the provider name is correct. SQLSTATE: 42K02"""

#: A missing method, as Delta for Spark 4.2 tells it.
MISSING = """[STREAM_FAILED] Query [id = 223f, runId = 3471] terminated with exception: 'void org.apache.spark.sql.\
execution.LogicalRDD.<init>(scala.collection.immutable.Seq, boolean, scala.Option)' SQLSTATE: XXKST
=== Streaming Query ===
Identifier: [id = 223f, runId = 3471]"""

#: A class that became an interface, as Iceberg for Spark 4.1 tells it, through gRPC.
CHANGED = """<_MultiThreadedRendezvous of RPC that terminated with:
	status = StatusCode.UNKNOWN
	details = "class org.apache.iceberg.spark.source.SparkView can not implement org.apache.spark.sql.connector.\
catalog.View, because it is not an interface (View is in unnamed module of loader 'app')"
	debug_error_string = "UNKNOWN:class org.apache.iceberg.spark.source.SparkView can not implement"
>"""


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (CAST, "The value 'x7' of the type \"STRING\" cannot be cast to \"BIGINT\"."),
        (WORKER, "[KAFKA_DATA_LOSS.OFFSETS_EXPIRED] clicks-0: offsets 5 to 9 are gone"),
        (COLUMN, "A column, variable, or function parameter with name `vlue` cannot be resolved. Did you mean one of "
         "the following? [`value`]."),
        ("", ""),
        ("java.lang.NullPointerException", "java.lang.NullPointerException"),
        ("org.x.FirstException: org.y.Second$Exception: the cause", "the cause"),
    ],
)  # fmt: skip
def test_the_innermost_cause_is_told(said: str, told: str) -> None:
    found = cause(said)
    assert found == told
    assert "\n" not in found
    assert "SQLSTATE" not in found
    assert "runId" not in found


@pytest.mark.parametrize(
    ("said", "told"),
    [
        (MISSING, "'void org.apache.spark.sql.execution.LogicalRDD.<init>(scala.collection.immutable.Seq, boolean, "
         "scala.Option)'"),
        (CHANGED, "class org.apache.iceberg.spark.source.SparkView can not implement org.apache.spark.sql.connector."
         "catalog.View, because it is not an interface (View is in unnamed module of loader 'app')"),
        ("java.lang.NoClassDefFoundError: org/apache/spark/sql/Gone$", "org/apache/spark/sql/Gone$"),
        ("java.lang.IncompatibleClassChangeError: Found interface a.b.C, but class was expected",
         "Found interface a.b.C, but class was expected"),
    ],
)  # fmt: skip
def test_jars_for_another_spark_are_called_that(said: str, told: str) -> None:
    expected = f"a jar that Spark was given (spark.jars, spark.jars.packages) is for another release of Spark: {told}"
    assert cause(said) == expected


@pytest.mark.parametrize(
    "said",
    [
        "[STREAM_FAILED] Query [id = 223f, runId = 3471] terminated with exception: Python worker failed to connect "
        "back. SQLSTATE: XXKST\n=== Streaming Query ===",
        "org.apache.spark.SparkException: Python worker failed to connect back.\n\tat org.apache.spark.api.python."
        "PythonWorkerFactory.createSimpleWorker(PythonWorkerFactory.scala:310)\nCaused by: java.net."
        "SocketTimeoutException: Timed out while waiting for the Python worker to connect back",
        "java.net.SocketTimeoutException: Timed out while waiting for the Python worker to connect back after 60000 ms",
    ],
)
def test_a_python_that_does_not_start_in_time_is_told_with_what_to_do(said: str) -> None:
    told = cause(said)
    assert told.startswith("a Python worker did not start within the ten seconds that Spark gives it")
    assert "--conf spark.sql.pipelines.execution.maxConcurrentFlows=1" in told


def test_what_only_went_through_grpc_is_told_without_it() -> None:
    assert cause(CHANGED.replace("can not implement", "has nothing to do with")).startswith("class org.apache.iceberg")


def test_long_causes_are_cut() -> None:
    assert len(cause("word " * 1000)) < 610


def graph() -> Graph:
    return Graph(
        {"lines": Dataset("lines", TABLE, "t/a.py:2", "delta")},
        {"lines": Flow("lines", "lines", "t/a.py:2"), "more": Flow("more", "lines", "t/b.py:7")},
    )


def test_a_failed_flow_is_named_with_its_place() -> None:
    error = of_run(RuntimeError("long"), [("lines", CAST), ("more", "upstream"), ("lines", CAST)], graph())
    assert str(error).startswith("flow lines (t/a.py:2) failed: The value 'x7'")
    assert str(error).endswith("(1 more failed after it)")
    assert "=== Streaming Query ===" in error.details
    assert "RuntimeError: long" in error.details


def test_lost_records_come_with_a_way_to_start_anew() -> None:
    lost = "[KAFKA_DATA_LOSS.PARTITIONS_DELETED] t-0 is gone. Set failOnDataLoss to false to go on."
    error = str(of_run(RuntimeError("long"), [("lines", lost)], graph()))
    assert error.startswith("flow lines (t/a.py:2) failed: [KAFKA_DATA_LOSS.PARTITIONS_DELETED] t-0 is gone.")
    assert "--full-refresh-all" in error
    # Which is not for everybody: what retention has deleted from a topic may be in the tables alone.
    assert error.endswith("It empties all tables first: rows whose records no topic has any more are gone then.")
    assert is_data_loss(error)


def test_a_format_that_is_not_installed_says_what_it_needs() -> None:
    error = of_run(RuntimeError(DELTA), [], graph())
    assert str(error).startswith("table lines (t/a.py:2): Spark knows no format called delta here; it needs --conf ")
    assert "spark.jars.packages=io.delta" in str(error)


def test_a_pipeline_may_fail_without_a_flow() -> None:
    assert str(of_run(RuntimeError("org.x.YException: disk full"), [], Graph())) == "the pipeline failed: disk full"


def test_a_definition_is_told_with_the_deepest_line_of_the_project(tmp_path: Path) -> None:
    helper = tmp_path / "helper.py"
    helper.write_text("\n\ndef f():\n    return 1 / 0\n")
    scope: dict[str, object] = {}
    exec(compile(helper.read_text(), str(helper), "exec"), scope)
    with pytest.raises(ZeroDivisionError) as caught:
        scope["f"]()  # type: ignore[operator]
    error = of_definition(caught.value, tmp_path / "t" / "a.py", tmp_path)
    assert str(error) == "helper.py:4: ZeroDivisionError: division by zero"


def test_a_syntax_error_is_told_where_it_is(tmp_path: Path) -> None:
    file = tmp_path / "a.py"
    with pytest.raises(SyntaxError) as caught:
        compile("x = 1\ny = = 2\n", str(file), "exec")
    assert str(of_definition(caught.value, file, tmp_path)).startswith("a.py:2: SyntaxError: invalid syntax")


def test_our_own_errors_need_no_class(tmp_path: Path) -> None:
    told = of_definition(PipelineError("no such rule"), tmp_path / "t" / "a.py", tmp_path)
    assert str(told) == "t/a.py: no such rule"
