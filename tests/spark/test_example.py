"""examples/spark_stream.py runs in the session that is there; as a program of its own, in the slow tests."""

from __future__ import annotations

import runpy
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import EmbeddedBroker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PROGRAM = Path(__file__).parents[2] / "examples" / "spark_stream.py"


def test_it_copies_what_it_chooses(
    spark: SparkSession, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    stopped = []
    monkeypatch.setattr(type(spark), "stop", lambda session: stopped.append(session))  # others need the session still
    with EmbeddedBroker() as broker:
        monkeypatch.setattr(sys, "argv", [str(PROGRAM), broker.bootstrap_servers])
        runpy.run_path(str(PROGRAM), run_name="__main__")
    assert sorted(capsys.readouterr().out.splitlines()) == ["u1 has a cart", "u3 has a cart"]
    assert len(stopped) == 1
