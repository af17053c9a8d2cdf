"""The examples in the documents run."""

from __future__ import annotations

import doctest
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent


@pytest.mark.parametrize(
    "document",
    [
        *("README.md", "docs/clients.md", "docs/library.md", "docs/moving-over.md"),
        *("docs/pipelines.md", "docs/testing.md"),
    ],
)
def test_examples_run(document: str) -> None:
    failed, tried = doctest.testfile(str(ROOT / document), module_relative=False, optionflags=doctest.ELLIPSIS)
    assert tried > 0
    assert failed == 0
