"""How definition files are run, with a client in place of Spark that only listens."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from barnabas.spark.pipelines.definitions import register
from barnabas.spark.pipelines.failures import PipelineError
from barnabas.spark.pipelines.project import Project

pytest.importorskip("pyspark.pipelines")

#: A flow whose plan holds a function of a module of the project.
FLOW = """
from types import SimpleNamespace
from pyspark import cloudpickle, pipelines as dp
from pyspark.sql.connect import proto
import toy_words

@dp.table
def lines():
    def plan(client):
        client.sent.append(cloudpickle.dumps(toy_words.said))
        return proto.Relation()
    return SimpleNamespace(_plan=SimpleNamespace(plan=plan))
"""
ENDING_FLOW = """
import sys
from pyspark import pipelines as dp

@dp.table
def lines():
    sys.exit()
"""


class Client:
    def __init__(self) -> None:
        self.sent: list[bytes] = []

    def execute_command(self, command: object) -> None:
        pass

    def add_threadlocal_user_context_extension(self, extension: object) -> str:
        return "x"

    def remove_user_context_extension(self, extension: str) -> None:
        pass


def defined(folder: Path, text: str) -> list[bytes]:
    """Functions that went to Spark."""
    file = folder / "a.py"
    file.write_text(text)
    spark: Any = SimpleNamespace(client=Client())
    register(Project("toy", folder, folder / "spark-pipeline.yml", "file:///s", (file,), {}), spark, "graph")
    sent: list[bytes] = spark.client.sent
    return sent


def test_workers_run_what_the_files_say_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cloudpickle = importlib.import_module("pyspark.cloudpickle")
    (tmp_path / "toy_words.py").write_text("WORD = 'new'\n\ndef said(): return WORD")
    sent = defined(tmp_path, FLOW)
    # A worker that has run a function of the module before keeps what it has imported then.
    kept = ModuleType("toy_words")
    kept.__dict__["said"] = lambda: "old"
    monkeypatch.setitem(sys.modules, "toy_words", kept)
    assert cloudpickle.loads(sent[-1])() == "new"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("import sys\nsys.exit()", "a.py:2: it ends Python (SystemExit)"),
        ("raise SystemExit('not today')", "a.py:1: it ends Python (SystemExit: not today)"),
        (ENDING_FLOW, "flow lines: a.py:7: it ends Python (SystemExit)"),
    ],
)
def test_a_file_that_ends_python_is_told(tmp_path: Path, text: str, told: str) -> None:
    with pytest.raises(PipelineError) as caught:
        defined(tmp_path, text)
    assert str(caught.value) == f"{told}, and is only to say what there is"
