"""Hints for what is missing name what pyproject.toml asks for."""

from __future__ import annotations

import doctest
import re
import tomllib
from pathlib import Path

import pytest

from barnabas.base import extras

ROOT = Path(__file__).parent.parent.parent
DECLARED = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]


def resolved(extra: str) -> tuple[str, ...]:
    """What an extra asks for, with the extras that it contains in their places."""
    found: list[str] = []
    for each in DECLARED[extra]:
        inner = re.fullmatch(r"barnabas\[(.*)\]", each)
        found += resolved(inner[1]) if inner else [each]
    return tuple(found)


@pytest.mark.parametrize("extra", sorted(DECLARED.keys() - {"test"}))
def test_hints_name_what_the_extra_asks_for(extra: str) -> None:
    assert extras.EXTRAS[extra] == resolved(extra)


def test_the_example_runs() -> None:
    assert doctest.testmod(extras) == (0, 1)


def test_nobody_is_sent_to_an_index_that_does_not_have_it() -> None:
    pages = [ROOT / "README.md", *(ROOT / "docs").rglob("*.md"), *(ROOT / "src").rglob("*.py")]
    told = {
        str(page.relative_to(ROOT))
        for page in pages
        if re.search(r"pip install '?barnabas", page.read_text(encoding="utf-8"))
    }
    assert told <= {"src/barnabas/base/extras.py"}, "see docs/installing.md"
