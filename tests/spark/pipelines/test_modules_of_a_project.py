"""Modules that definition files import from the project's folder: read anew in each update, and no others."""

from __future__ import annotations

import importlib
import subprocess
import sys
from pathlib import Path

import pytest

from barnabas.spark.pipelines.definitions import _at_home, _pickled_by_value


def value_of(module: str, folder: Path) -> object:
    with _at_home(folder):
        return importlib.import_module(module).VALUE


def test_what_was_changed_between_two_updates_is_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    found = []
    for value in (1, 2):
        (tmp_path / "toy_helper.py").write_text(f"VALUE = {value}")
        importlib.invalidate_caches()
        found.append(value_of("toy_helper", tmp_path))
    assert found == [1, 2]
    assert "toy_helper" not in sys.modules


def test_changes_are_seen_in_a_package_without_a_file_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    (tmp_path / "toy_package").mkdir()
    found = []
    for value in (1, 2):
        (tmp_path / "toy_package" / "inner.py").write_text(f"VALUE = {value}")
        importlib.invalidate_caches()
        with _at_home(tmp_path):
            scope: dict[str, int] = {}
            exec("from toy_package import inner\nvalue = inner.VALUE", scope)
            found.append(scope["value"])
    assert found == [1, 2]
    assert "toy_package" not in sys.modules


def test_a_package_that_is_also_elsewhere_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for place in ("project", "elsewhere"):
        (tmp_path / place / "toy_shared").mkdir(parents=True)
        (tmp_path / place / "toy_shared" / f"of_{place}.py").write_text("VALUE = 1")
    for name in ("toy_shared", "toy_shared.of_elsewhere"):
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]
    monkeypatch.syspath_prepend(tmp_path / "elsewhere")
    for _ in range(2):
        with _at_home(tmp_path / "project") as own_modules:
            scope: dict[str, int] = {}
            exec("import toy_shared.of_elsewhere, toy_shared.of_project\ntoy_shared.of_elsewhere.VALUE", scope)
            assert own_modules() == ["toy_shared.of_project"]


def test_a_python_that_is_installed_in_the_folder_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    installed = tmp_path / "env" / "lib"
    installed.mkdir(parents=True)
    for name in ("toy_stdlib", "toy_stdlib_later"):
        (installed / f"{name}.py").write_text("VALUE = 1")
        monkeypatch.setitem(sys.modules, name, sys)
        del sys.modules[name]
    monkeypatch.syspath_prepend(installed)
    monkeypatch.setattr(sys, "prefix", str(tmp_path / "env"))
    before = importlib.import_module("toy_stdlib")
    value_of("toy_stdlib_later", tmp_path)
    assert sys.modules["toy_stdlib"] is before
    assert "toy_stdlib_later" in sys.modules


def test_functions_reach_machines_that_do_not_have_the_folder(tmp_path: Path) -> None:
    pytest.importorskip("pyspark")
    cloudpickle = importlib.import_module("pyspark.cloudpickle")
    (tmp_path / "toy_words.py").write_text("MARK = '!'\n\ndef marked(text): return text + MARK")
    (tmp_path / "toy_shouts.py").write_text("import toy_words\n\ndef loud(text): return toy_words.marked(text.upper())")
    with _at_home(tmp_path) as own_modules, _pickled_by_value() as pickle_by_value:
        loud = importlib.import_module("toy_shouts").loud
        assert own_modules() == ["toy_shouts", "toy_words"]
        pickle_by_value(own_modules())
        pickle_by_value(own_modules())
        whole = cloudpickle.dumps(loud)
    code = f"from pyspark import cloudpickle; print(cloudpickle.loads({whole!r})('hello'))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd="/")
    assert done.stdout == "HELLO!\n", done.stderr
    assert not {"toy_shouts", "toy_words"} & cloudpickle.list_registry_pickle_by_value()
