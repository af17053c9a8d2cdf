"""The examples of docs/spark.md run, and its tables name the options that there are."""

from __future__ import annotations

import doctest
import re
from pathlib import Path

import pytest

from barnabas.spark.core import options

GUIDE = Path(__file__).parents[2] / "docs" / "spark.md"


@pytest.mark.usefixtures("spark")
def test_examples_run() -> None:
    """From nothing, as whoever tries the page has it; but for the session, which `getOrCreate` finds."""
    failed, tried = doctest.testfile(
        str(GUIDE), module_relative=False, optionflags=doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE
    )
    assert tried > 10
    assert failed == 0


def test_every_option_is_in_the_guide() -> None:
    told = set(re.findall(r"`([\w.]+)`", GUIDE.read_text()))
    assert {*options._SOURCE_OPTIONS, *options._SINK_OPTIONS} - told == set()
