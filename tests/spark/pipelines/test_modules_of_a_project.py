"""Modules that definition files import from the project's folder: read anew in each update, and no others."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path

import pytest

from barnabas.spark.pipelines.definitions import _at_home


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
