"""The Java that Spark would start is looked at before, and told of in a sentence where it will not do."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.spark import environment
from barnabas.spark.environment import Java, JavaError, check_java


def fake_java(folder: Path, script: str) -> Path:
    """A program called java that does as told."""
    java = folder / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)
    return java


def test_no_java_is_one_sentence_that_says_how_to_get_it(tmp_path: Path) -> None:
    with pytest.raises(JavaError) as raised:
        check_java({"PATH": str(tmp_path)})
    text = str(raised.value)
    assert "there is none on the PATH" in text
    assert "apt install openjdk-17-jre-headless" in text
    assert "\n" not in text


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""echo 'openjdk version "1.8.0_392"' >&2""", "Java 17 or newer, and .* is Java 8:"),
        ("""echo 'openjdk version "11.0.21" 2023-10-17' >&2""", "is Java 11:"),
        ("echo Unable to locate a Java Runtime >&2; exit 1", "does not start"),
        (
            """case "$1" in --add-modules=*) exit 1;; *) echo 'openjdk version "21" 2023' >&2;; esac""",
            "jdk.incubator.vector, which .* was built without",
        ),
    ],
)
def test_a_java_that_will_not_do_is_named_with_the_reason(script: str, reason: str, tmp_path: Path) -> None:
    java = fake_java(tmp_path, script)
    with pytest.raises(JavaError, match=reason) as raised:
        check_java({"PATH": str(java.parent)})
    assert str(java) in str(raised.value)


def test_java_home_counts_before_the_path(tmp_path: Path) -> None:
    new = fake_java(tmp_path / "new", """echo 'openjdk version "21.0.2" 2024-01-16' >&2""")
    old = fake_java(tmp_path / "old", """echo 'java version "11.0.2"' >&2""")
    assert check_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)}) == Java(str(new), 21)
    with pytest.raises(JavaError, match="from JAVA_HOME="):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": str(new.parent)})


def test_what_the_user_has_set_stays() -> None:
    variables = {"PYSPARK_PYTHON": "python3.12"}
    environment.prepare(variables)
    assert variables == {"PYSPARK_PYTHON": "python3.12", "SPARK_LOCAL_IP": "127.0.0.1"}
    variables = {}
    environment.prepare(variables)
    assert variables["PYSPARK_PYTHON"] == sys.executable


@pytest.mark.parametrize(
    ("chosen_by", "expected"),
    [(None, sys.executable), ("variable", "python3"), ("setting", "python3"), ("path", "python3")],
)
def test_workers_use_the_running_interpreter_unless_somebody_chose_another(
    chosen_by: str | None, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))  # as with a virtual environment that was not activated
    (tmp_path / "python3").symlink_to(sys.executable)
    if chosen_by == "variable":
        monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    elif chosen_by == "path":
        monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    settings = {"spark.pyspark.python"} if chosen_by == "setting" else set()
    context = SimpleNamespace(
        pythonExec="python3", getConf=lambda: SimpleNamespace(contains=lambda name: name in settings)
    )
    environment.use_running_interpreter(cast(Any, context))
    assert context.pythonExec == expected
