"""The examples of docs/testing.md run."""

from __future__ import annotations

import doctest
from pathlib import Path

DOCUMENT = Path(__file__).parent.parent.parent / "docs" / "testing.md"


def test_examples_run() -> None:
    failed, tried = doctest.testfile(str(DOCUMENT), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 20
    assert failed == 0
