"""The examples in the documents run."""

from __future__ import annotations

import doctest
import subprocess
import sys
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


def test_the_first_example_needs_nothing_that_is_not_installed_by_default() -> None:
    first = (ROOT / "README.md").read_text(encoding="utf-8").partition("```python\n")[2].partition("```")[0]
    code = f"import sys, doctest; sys.modules['pyarrow'] = None\nexample = {first!r}\n" + (
        "test = doctest.DocTestParser().get_doctest(example, {}, 'README', 'README.md', 0)\n"
        "sys.exit(doctest.DocTestRunner().run(test).failed + (not test.examples))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr
