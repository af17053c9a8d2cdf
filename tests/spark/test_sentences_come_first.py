"""What Spark shows of an error of ours in one of its workers: the sentence, and behind it where it comes from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from io import BytesIO

import pytest
from pyspark.util import handle_worker_exception

from barnabas.base.errors import BarnabasError
from barnabas.client.errors import NoBrokersError
from barnabas.spark.core.errors import OptionError
from barnabas.spark.pipelines.failures import cause
from barnabas.spark.source import BarnabasDataSource
from barnabas.spark.telling import tells_first, told_first

TRACE = "Traceback (most recent call last):"


@pytest.fixture
def in_a_worker(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHON_WORKER_FACTORY_PORT", "1")
    # Set and taken away again, so that what is set meanwhile goes with the test.
    monkeypatch.setenv("SPARK_HIDE_TRACEBACK", "")
    monkeypatch.delenv("SPARK_HIDE_TRACEBACK")


def shown(error: BaseException) -> str:
    """What the JVM is sent of it, behind a number and a length."""
    out = BytesIO()
    try:
        raise error
    except BaseException as raised:
        handle_worker_exception(raised, out)
    return out.getvalue()[8:].decode()


def raised_by(function: object) -> BaseException:
    assert callable(function)
    with pytest.raises(BarnabasError) as caught:
        function()
    return caught.value


@pytest.mark.usefixtures("in_a_worker")
def test_the_sentence_comes_before_the_traceback() -> None:
    source = BarnabasDataSource({"kafka.bootstrap.servers": "b:1", "subscribe": "t", "startingOfsets": "earliest"})
    text = shown(raised_by(source.schema))
    sentence = "There is no option startingofsets; did you mean startingOffsets?"
    assert text.startswith(f"barnabas.spark.core.errors.OptionError: {sentence}")
    assert TRACE in text.partition(sentence)[2]
    assert "in check_slips" in text
    # Pipelines tell the sentence alone, wherever the trace is.
    told = cause(f"[PYTHON_DATA_SOURCE_ERROR] Failed to create Python data source instance: {text} SQLSTATE: 38000")
    assert told == f"{sentence} To have it passed over, set the option strictOptions to false."


@pytest.mark.usefixtures("in_a_worker")
def test_what_it_comes_from_is_behind_it_as_well() -> None:
    @tells_first
    def ask() -> None:
        try:
            raise OSError("refused")
        except OSError as error:
            raise NoBrokersError("nobody answers\nat b:1") from error

    text = shown(raised_by(ask))
    assert text.startswith("barnabas.client.errors.NoBrokersError: nobody answers\nat b:1\n\nTraceback")
    assert text.rstrip().endswith("OSError: refused")
    assert cause(f"An exception was thrown from the Python worker:\n{text}") == "nobody answers at b:1"


@pytest.mark.usefixtures("in_a_worker")
def test_rows_that_are_read_bit_by_bit_end_so_too() -> None:
    def rows() -> Iterator[int]:
        with told_first():
            yield 1
            raise OptionError("no more")

    assert shown(raised_by(lambda: list(rows()))).startswith("barnabas.spark.core.errors.OptionError: no more\n")


@pytest.mark.usefixtures("in_a_worker")
def test_errors_of_others_are_shown_as_ever() -> None:
    def fails() -> None:
        with told_first():
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError) as caught:
        fails()
    assert shown(caught.value).startswith(TRACE)


def test_outside_of_workers_nothing_is_changed() -> None:
    error = raised_by(BarnabasDataSource({"subscribe": "t"}).schema)
    assert not hasattr(error, "__notes__")
    assert "SPARK_HIDE_TRACEBACK" not in os.environ
