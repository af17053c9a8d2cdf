"""The number by which rows are known again, against a slow one in Python."""

from __future__ import annotations

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import LocalProtocolError
from barnabas.records._kernel.columns import BytesColumn, RowColumns
from barnabas.records.arrow import fingerprint

_WORD = 1 << 64
_parts = st.none() | st.binary(max_size=200)


def _mixed(state: int, word: int) -> int:
    state = (state ^ word) * 0x9E3779B97F4A7C15 % _WORD
    return state ^ (state >> 32)


def _with_bytes(state: int, part: bytes | None) -> int:
    content = part or b""
    state = _mixed(state, (-1 if part is None else len(content)) % _WORD)
    lanes = [(state + lane) % _WORD for lane in range(4)]
    at = 0
    if len(content) >= 64:
        at = len(content) // 32 * 32
        for start in range(0, at, 8):
            lane = start // 8 % 4
            lanes[lane] = _mixed(lanes[lane], int.from_bytes(content[start : start + 8], "little"))
        for each in lanes:
            state = _mixed(state, each)
    for start in range(at, len(content), 8):
        state = _mixed(state, int.from_bytes(content[start : start + 8], "little"))
    return state


def _slowly(rows: list[tuple[bytes | None, bytes | None]]) -> int:
    return sum(_mixed(_with_bytes(_with_bytes(0, key), value), 0) for key, value in rows) % _WORD


def _table(rows: list[tuple[bytes | None, bytes | None]]) -> pa.Table:
    keys, values = [key for key, _ in rows], [value for _, value in rows]
    return pa.table({"key": pa.array(keys, pa.binary()), "value": pa.array(values, pa.large_binary())})


@given(st.lists(st.tuples(_parts, _parts), max_size=20), st.integers(0, 20))
def test_it_follows_from_the_rows_in_whatever_pieces_and_order(
    rows: list[tuple[bytes | None, bytes | None]], cut: int
) -> None:
    table = _table(rows)
    assert fingerprint(table) == _slowly(rows)
    assert fingerprint(_table(rows[::-1])) == fingerprint(table)
    pieces = table.slice(0, cut), table.slice(cut)
    assert sum(map(fingerprint, pieces)) % _WORD == fingerprint(table)


def test_it_stays_what_it_is() -> None:
    """Decisions that were written before are compared with it."""
    table = _table([(b"a", b"12345678"), (None, b"123456789"), (b"", None)])
    assert fingerprint(table) == 6850505087133635490
    assert fingerprint(pa.table({"value": ["x" * 100]})) == _slowly([(None, b"x" * 100)])


def test_keys_and_values_are_told_apart() -> None:
    rows = [(None, b"ab"), (b"", b"ab"), (b"a", b"b"), (b"ab", None), (b"ab", b""), (b"b", b"a")]
    assert len({fingerprint(_table([row])) for row in rows}) == len(rows)


def test_offsets_of_others_are_not_believed() -> None:
    offsets = (0).to_bytes(4, "little") + (9).to_bytes(4, "little")
    with pytest.raises(LocalProtocolError, match="wrong at row 0"):
        RowColumns(BytesColumn(None, offsets, b"abc", 0, 1, False)).fingerprint()
