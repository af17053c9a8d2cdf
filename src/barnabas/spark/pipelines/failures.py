"""What went wrong in a pipeline, in one sentence: which flow, why, and where it is defined.

Spark's errors are long: the same message once per layer, hints to Spark's own settings, stack traces of Java and of
Python workers. People get the innermost cause; `--verbose` and the log have everything.
"""

from __future__ import annotations

import re
import traceback
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from barnabas.base.errors import BarnabasError
from barnabas.spark.pipelines.graph import Graph

_MAX_CHARS: Final = 600

#: The last line of a Python trace inside a message: `barnabas.spark.core.errors.DataLossError: [CLASS] what happened`.
_PYTHON_CAUSE: Final = re.compile(r"^(?P<kind>[A-Za-z_][\w.]*(?:Error|Exception|Interrupt)): (?P<text>.+)", re.M | re.S)
#: An error of ours, whose trace comes after it.
_OURS: Final = re.compile(
    r"(?:^|\s)barnabas\.[\w.]+: (?P<text>(?:(?!\nTraceback ).)+)\n+Traceback \(most recent call last\):", re.S
)
_PYTHON_TRACE: Final = "Traceback (most recent call last):"
#: `(org.apache.spark.SomeException) text`, `org.apache.spark.SomeException: text`, at the start of a message.
_JAVA_CLASS: Final = re.compile(r"^\(?(?:[a-z_][\w$]*\.)+[A-Z][\w$.]*\)?:? *")
_QUERY: Final = re.compile(r"^(?:\[STREAM_FAILED\] )?Query \[id = [^\]]+\] terminated with exception: *")
#: What gRPC makes of an error that Spark did not foresee.
_GRPC: Final = re.compile(r'^<_\w+ of RPC that terminated with:\s+status = [\w.]+\s+details = "(?P<text>.*?)"\n', re.S)
#: The words of Java's machine for classes that do not fit together. The first is all that it says of a missing method.
_MISFIT: Final = re.compile(
    r"^'[\w.$\[\]]+ [\w.$]+\.(?:\w+|<init>)\([^']*\)'$"
    r"|^class \S+ can ?not (?:implement|inherit from) "
    r"|^Found (?:interface|class) \S+, but (?:interface|class) was expected"
    r"|^(?:Receiver class|Method) \S+ (?:does not define or inherit|is abstract)"
    r"|^org/apache/spark/[\w/$]+$"
)
#: Both of Spark's texts: one that the wait was too long, and one that wraps it.
_LATE_WORKER: Final = re.compile(r"Python worker (?:failed )?to connect back")
_TOO_BUSY: Final = (
    "a Python worker did not start within the ten seconds that Spark gives it: the machine is too busy, or "
    "PYSPARK_PYTHON leads to a Python that cannot start. Fewer flows at once: "
    "--conf spark.sql.pipelines.execution.maxConcurrentFlows=1"
)
#: Spark's names of its errors. Those of topics stay: people look them up.
_CONDITION: Final = re.compile(r"^\[(?!KAFKA_)[A-Z][A-Z0-9_.]+\] ")
_NOISE: Final = (
    re.compile(r" *SQLSTATE: \w{5}"),
    re.compile(r"\n+JVM stacktrace:.*", re.S),
    re.compile(r"\n+=== Streaming Query ===.*", re.S),
    re.compile(r"; line \d+ pos \d+;?"),
    re.compile(r"\n+== (?:SQL|DataFrame|Physical plan|Progress).*", re.S),
    re.compile(r"\n\s*at [\w$.]+\(.*", re.S),
    re.compile(r"\n'?[A-Z]\w+ .*", re.S),
    re.compile(r" If necessary set \"[^\"]+\" to \"?\w+\"? to bypass this error\."),
)
_SAME_RELEASE: Final = ", where SPARK is the release that runs here, as in 4.3: jars for an older one do not work"
#: What a format needs that is not part of Spark.
_FORMATS: Final = {
    "delta": (
        "--conf spark.jars.packages=io.delta:delta-spark_SPARK_2.13:VERSION "
        "--conf spark.sql.extensions=io.delta.sql.DeltaSparkSessionExtension "
        "--conf spark.sql.catalog.spark_catalog=org.apache.spark.sql.delta.catalog.DeltaCatalog" + _SAME_RELEASE
    ),
    "iceberg": (
        "--conf spark.jars.packages=org.apache.iceberg:iceberg-spark-runtime-SPARK_2.13:VERSION "
        "--conf spark.sql.extensions=org.apache.iceberg.spark.extensions.IcebergSparkSessionExtensions "
        "--conf spark.sql.catalog.spark_catalog=org.apache.iceberg.spark.SparkSessionCatalog "
        "--conf spark.sql.catalog.spark_catalog.type=hive" + _SAME_RELEASE
    ),
    "kafka": "nothing: write format `barnabas`, which takes the same options",
    "barnabas": "PYSPARK_PYTHON to lead to a Python in which Barnabas is installed",
}


_DATA_LOSS: Final = "[KAFKA_DATA_LOSS"
#: Whoever has made the topics anew wants this, and not to be lenient from now on. Whoever was too late does not.
_START_ANEW: Final = (
    " To forget what was read and take in what the topics have now: --full-refresh-all. It empties all tables first: "
    "rows whose records no topic has any more are gone then."
)


def is_data_loss(text: str) -> bool:
    """Whether records are gone that a flow wants to read: no further try brings them back."""
    return _DATA_LOSS in text


class PipelineError(BarnabasError):
    """A pipeline could not be run, or failed. The message is one sentence; `details` is all that Spark said."""

    def __init__(self, message: str, details: str = "") -> None:
        super().__init__(message)
        self.details = details


def cause(text: str) -> str:
    """The innermost cause that a message of Spark tells, without what only its authors understand."""
    found = text.strip()
    if _LATE_WORKER.search(found):
        return _TOO_BUSY
    ours = _OURS.search(found)
    if ours is not None and _PYTHON_TRACE not in found[: ours.start()]:
        found = ours["text"]
    elif _PYTHON_TRACE in found:
        inner = found.rpartition(_PYTHON_TRACE)[2]
        matches = list(_PYTHON_CAUSE.finditer(inner))
        if matches:
            found = matches[-1]["text"] if "." in matches[-1]["kind"] else matches[-1][0]
    in_grpc = _GRPC.match(found)
    if in_grpc is not None:
        found = in_grpc["text"]
    for noise in _NOISE:
        found = noise.sub("", found)
    found = _peeled(found)
    missing = _missing_format(found)
    if missing is not None:
        return missing
    found = " ".join(_CONDITION.sub("", found).split())
    if _MISFIT.match(found):
        found = f"a jar that Spark was given (spark.jars, spark.jars.packages) is for another release of Spark: {found}"
    return found if len(found) <= _MAX_CHARS else found[:_MAX_CHARS].rstrip() + " …"


def _peeled(text: str) -> str:
    """Without the names of Java's classes and of the query: one layer wraps another."""
    while (layer := _JAVA_CLASS.match(text) or _QUERY.match(text)) is not None and layer.end() < len(text):
        text = text[layer.end() :]
    return text


def _missing_format(text: str) -> str | None:
    name = _unknown_format(text)
    if name is None:
        return None
    needed = _FORMATS.get(name.lower())
    return f"Spark knows no format called {name} here" + (f"; it needs {needed}" if needed else "")


def _unknown_format(text: str) -> str | None:
    found = re.search(r"\[DATA_SOURCE_NOT_FOUND\].*?data source: (?P<name>[\w.]*\w)", text, re.S)
    return None if found is None else found["name"]


def of_definition(error: BaseException, file: Path, folder: Path) -> PipelineError:
    """Something is wrong in a definition file: the deepest line of the project that was being run."""
    where = _place(error, file, folder)
    if isinstance(error, SystemExit):
        code = "" if error.code is None else f": {error.code}"
        return PipelineError(f"{where}: it ends Python (SystemExit{code}), and is only to say what there is")
    text = str(error) if isinstance(error, BarnabasError) else cause(str(error))
    if not _is_of_spark(error) and not isinstance(error, BarnabasError):
        text = f"{type(error).__name__}: {text}" if text else type(error).__name__
    return PipelineError(f"{where}: {text}", _details(error))


def of_run(error: BaseException, failed: Sequence[tuple[str, str]], graph: Graph) -> PipelineError:
    """An update failed. `failed` are the flows that Spark told of, with what it said, the first cause first."""
    if failed:
        name, text = failed[0]
        others = len({flow for flow, _ in failed} - {name})
        more = f" ({others} more failed after it)" if others else ""
        where = f" ({graph.flows[name].place})" if name in graph.flows else ""
        hint = _START_ANEW if is_data_loss(text) else ""
        told = f"flow {name}{where} failed: {cause(text)}{more}{hint}"
        return PipelineError(told, f"{text}\n\n{_details(error)}")
    text = str(error)
    format_name = _unknown_format(text)
    for dataset in graph.datasets.values():
        if format_name is not None and dataset.format == format_name:
            return PipelineError(f"{dataset.kind} {dataset.name} ({dataset.place}): {cause(text)}", _details(error))
    return PipelineError(f"the pipeline failed: {cause(text)}", _details(error))


def _is_of_spark(error: BaseException) -> bool:
    return type(error).__module__.startswith("pyspark.")


def _place(error: BaseException, file: Path, folder: Path) -> str:
    line = None
    if isinstance(error, SyntaxError) and error.filename:
        file, line = Path(error.filename), error.lineno
    for frame in traceback.extract_tb(error.__traceback__):
        path = Path(frame.filename)
        if path.is_relative_to(folder) and frame.lineno is not None:
            file, line = path, frame.lineno
    shown = file.relative_to(folder) if file.is_relative_to(folder) else file
    return f"{shown}:{line}" if line is not None else str(shown)


def _details(error: BaseException) -> str:
    return "".join(traceback.format_exception(error))
