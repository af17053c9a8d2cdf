"""The package as a whole: its example, and `Record` as a value."""

from __future__ import annotations

import doctest
import pickle

import pytest

import barnabas.records
from barnabas.records import Record


def test_the_example_runs() -> None:
    result = doctest.testmod(barnabas.records)
    assert result.attempted
    assert not result.failed


def test_a_record_is_a_value() -> None:
    record = Record(1, 2, b"k", None, [("h", None), ("i", b"c")], 1)
    same = Record(1, 2, b"k", None, (("h", None), ("i", b"c")), 1)
    assert record == same
    assert hash(record) == hash(same)
    assert pickle.loads(pickle.dumps(record)) == record
    assert record != Record(1, 2, b"k", b"", [("h", None), ("i", b"c")], 1)
    assert record != (1, 2, b"k", None)
    assert repr(record) == (
        "Record(offset=1, timestamp_ms=2, key=b'k', value=None, headers=(('h', None), ('i', b'c')), timestamp_type=1)"
    )
    with pytest.raises(AttributeError):
        record.key = b"other"  # type: ignore[misc]
    with pytest.raises(TypeError):
        Record(1, 2, "text", None)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        Record(1, 2, None, None, [("h", "text")])  # type: ignore[list-item]
