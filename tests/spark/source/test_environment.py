"""The Java that Spark would start is looked at before, and told of in a sentence where it will not do."""

from __future__ import annotations

import logging
import sys
from collections.abc import Collection
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from barnabas.spark import environment
from barnabas.spark.environment import JavaError, check_java


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
    check_java({"JAVA_HOME": str(tmp_path / "new"), "PATH": str(old.parent)})
    with pytest.raises(JavaError, match="from JAVA_HOME="):
        check_java({"JAVA_HOME": str(tmp_path), "PATH": str(new.parent)})


def test_a_java_that_will_do_is_asked_once_and_one_that_will_not_each_time(tmp_path: Path) -> None:
    calls = tmp_path / "calls"
    java = fake_java(tmp_path, f"echo call >>{calls}; echo 'openjdk version \"11.0.2\"' >&2")
    for _ in range(2):
        with pytest.raises(JavaError):
            check_java({"PATH": str(java.parent)})
    assert len(calls.read_text().splitlines()) == 2
    java.write_text(java.read_text().replace("11.0.2", "17.0.2"))
    for _ in range(2):
        check_java({"PATH": str(java.parent)})
    assert len(calls.read_text().splitlines()) == 3


def test_what_the_user_has_set_stays() -> None:
    variables = {"PYSPARK_PYTHON": "python3.12"}
    environment.prepare(variables)
    assert variables == {"PYSPARK_PYTHON": "python3.12", "SPARK_LOCAL_IP": "127.0.0.1"}
    variables = {}
    environment.prepare(variables)
    assert variables["PYSPARK_PYTHON"] == sys.executable


def context_of(master: str, settings: Collection[str] = ()) -> Any:
    """As much of a context as is looked at."""
    conf = SimpleNamespace(contains=lambda name: name in settings)
    return SimpleNamespace(master=master, pythonExec="python3", getConf=lambda: conf)


@pytest.fixture
def not_activated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A shell whose `python3` is not the one of the virtual environment."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    (tmp_path / "python3").symlink_to(sys.executable)
    return tmp_path


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local-cluster[2,1,1024]"])
@pytest.mark.parametrize(
    ("chosen_by", "expected"),
    [(None, sys.executable), ("variable", "python3"), ("setting", "python3"), ("path", "python3")],
)
def test_workers_use_the_running_interpreter_unless_somebody_chose_another(
    chosen_by: str | None, expected: str, master: str, not_activated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if chosen_by == "variable":
        monkeypatch.setenv("PYSPARK_PYTHON", "python3")
    elif chosen_by == "path":
        monkeypatch.setattr(sys, "executable", str(not_activated / "python"))
        (not_activated / "python").symlink_to("python3")
    context = context_of(master, ["spark.pyspark.python"] if chosen_by == "setting" else ())
    environment.use_running_interpreter(context)
    assert context.pythonExec == expected


def test_workers_use_the_running_interpreter_also_where_python3_beside_it_is_another(
    not_activated: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    running = not_activated / "python3.99"
    running.touch()
    monkeypatch.setattr(sys, "executable", str(running))
    context = context_of("local[2]")
    environment.use_running_interpreter(context)
    assert context.pythonExec == str(running)


@pytest.mark.parametrize("master", ["spark://host:7077", "yarn", "k8s://https://host"])
def test_other_machines_keep_their_interpreter_and_are_warned_of_once(
    master: str, not_activated: Path, caplog: pytest.LogCaptureFixture
) -> None:
    context = context_of(master)
    with caplog.at_level(logging.WARNING):
        for _ in range(2):
            environment.use_running_interpreter(context)
    assert context.pythonExec == "python3"
    assert caplog.text.count(f"run on python3, not on {sys.executable}") == 1
    assert "spark.pyspark.python" in caplog.text
