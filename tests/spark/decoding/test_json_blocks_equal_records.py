"""A block that Arrow reads at once holds what record by record would have given, whatever the values are."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from barnabas.spark.decoding.arrow_types import arrow_type
from barnabas.spark.decoding.bad_records import BadValue
from barnabas.spark.decoding.ddl import parse_ddl
from barnabas.spark.decoding.json_values import CannotError, JsonDecoder

DDL = (
    "id long, small byte, price double, short float, ok boolean, name string, day date, at timestamp, "
    "local timestamp_ntz, cost decimal(7,2), raw binary, tags array<string>, days array<date>, "
    "costs array<decimal(7,2)>, who struct<name: string, age: int NOT NULL, since: timestamp>, "
    "points array<struct<x: int, y: float>>"
)
SCHEMA = parse_ddl(DDL)

_NUMBERS = [
    "0", "-0", "1", "-1", "127", "128", "-129", "2147483648", "9223372036854775807", "9223372036854775808", "1.0",
    "1e2", "-1.5E-3", "0.1", "1e400", "-1e400", "1e-400", "16777217", "1.00000017881393432617187499", "7.038531e-26",
    "3.4028235677973366e38", "99999.99", "99999.995", "1.005", "123456.7", "01", "1.", ".5", "+1", "-", "0x1", "NaN",
    "Infinity", "-Infinity", "Inf", "-NaN", "-Inf", "12345678901234567890123456789012345678901",
]  # fmt: skip
_STRINGS = [
    "2026-01-31", "2026-02-30", "2026-1-31", "2026-01-31T12:00:00Z", "2026-01-31T12:00:00.123456789Z",
    "2026-01-31T12", "1969-12-31T23:59:59.9999999", "1969-12-31T23:59:59.9999999Z", "2026-01-31T12:00:00+02:00",
    "2026-01-31T12:00", "0000-01-01", "2500-01-01T00:00:00.1234567", "9999-12-31T23:59:59.999999Z", "2026-01-31Z",
    "2026-01-31T12:00:00+0130", "1.5", "NaN", "-INF", "Infinity", "AAE=", "AAE", "AA==", "!!", "12.345", "+.5", "1e3",
    "123456.78", "99999.995", "2026-01-31T24:00:00Z",
]  # fmt: skip
_ODD = [
    '"\\ud800"', '"\\udc00x"', '"\\ud83d\\ude00"', '"\\u0000"', '"a\tb"', '"\\x"', '"', "nul", "'a'", "", "/*c*/1",
    "tru", "1 2", '1,"id":2', '1,"id":null', "1}{", '1,"other":{"id":2}',
]  # fmt: skip
_numbers = st.sampled_from(_NUMBERS)
_strings = st.one_of(st.text(max_size=6), st.sampled_from(_STRINGS)).map(json.dumps)
_odd = st.sampled_from(_ODD)
_blanks = st.sampled_from(["", "", "", " ", "\n", "\t\r\n"])


def _documents() -> st.SearchStrategy[str]:
    scalars = st.one_of(st.just("null"), st.sampled_from(["true", "false"]), _numbers, _strings, _odd)

    def containers(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
        names = st.sampled_from([*SCHEMA.names, "name", "age", "since", "x", "y", "other", "\\u0069d"])
        arrays = st.lists(inner, max_size=3).map(lambda items: "[" + ",".join(items) + "]")
        fields = st.tuples(names, _blanks, inner).map(lambda field: f'"{field[0]}":{field[1]}{field[2]}')
        return st.one_of(arrays, st.lists(fields, max_size=4).map(lambda items: "{" + ",".join(items) + "}"))

    return st.recursive(scalars, containers, max_leaves=8)


_typed: dict[str, st.SearchStrategy[str]] = {
    "id": st.integers(-(2**63), 2**63 - 1).map(str),
    "small": st.integers(-128, 127).map(str),
    "price": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    "short": st.floats(allow_nan=False, allow_infinity=False).map(json.dumps),
    "ok": st.sampled_from(["true", "false"]),
    "name": st.text(max_size=8).map(json.dumps),
    "day": st.dates().map(lambda day: f'"{day}"'),
    "at": st.datetimes().map(lambda at: f'"{at.isoformat()}Z"'),
    "local": st.datetimes().map(lambda at: f'"{at.isoformat(" ")}"'),
    "cost": st.decimals(-99999, 99999, places=2).map(str),
    "tags": st.lists(st.text(max_size=3)).map(json.dumps),
    "who": st.tuples(st.text(max_size=3), st.integers(0, 99)).map(
        lambda who: json.dumps({"name": who[0], "age": who[1]})
    ),
    "points": st.lists(st.integers(0, 9)).map(lambda xs: json.dumps([{"x": x, "y": x / 4} for x in xs])),
}


@st.composite
def _values(draw: st.DrawFn) -> bytes:
    kind = draw(st.integers(0, 9))
    if kind <= 5:
        names = draw(st.lists(st.sampled_from(sorted(_typed)), max_size=5))
        fields = [f'"{name}":{draw(_blanks)}{draw(st.one_of(_typed[name], st.just("null")))}' for name in names]
        if kind == 5:
            fields.append(f'"{draw(st.sampled_from(SCHEMA.names))}":{draw(_documents())}')
        text = draw(_blanks) + "{" + ("," + draw(_blanks)).join(fields) + "}" + draw(_blanks)
        return text.encode("utf-8", "surrogatepass")
    if kind <= 7:
        return draw(_documents()).encode("utf-8", "surrogatepass")
    return draw(
        st.sampled_from(
            [
                b"",
                b" ",
                b"null",
                b"{}{}",
                b'{"id":1}{"id":2}',
                b'{"id":1',
                b"}",
                b'{"id":1} null',
                b'{"id":1}]',
                b"[{}]",
                b'{"id":1},{"id":2}',
                b'{"id":1,"who":{',
                b'"}',
                b'{"name":"\xff"}',
                b'{"id":1}\x00',
                b"\xef\xbb\xbf{}",
                b'{"x":' + b"[" * 600 + b"]" * 600 + b"}",
                b'{"x":[' + b"[]," * 600 + b"[]]}",
                b"[" * 5000,
            ]
        )
    )


def _one_by_one(decoder: JsonDecoder, values: Sequence[bytes | None]) -> tuple[str, list[BadValue]]:
    bad: list[BadValue] = []
    nothing = pa.nulls(1, arrow_type(SCHEMA))
    rows = [
        nothing if value is None else decoder.decode_slowly(pa.array([value]), row, bad)
        for row, value in enumerate(values)
    ]
    return _text(pa.concat_arrays([nothing.slice(1), *rows])), bad


def _text(structs: pa.Array) -> str:
    """For comparison: NaN is equal to nothing, -0.0 to 0.0, and Python has no times of the year 0."""
    return repr(structs.cast(_numbers_for_times(structs.type)).to_pylist())


def _numbers_for_times(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_numbers_for_times(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(kind.value_field.with_type(_numbers_for_times(kind.value_type)))
    if pa.types.is_timestamp(kind):
        return pa.int64()
    return pa.int32() if pa.types.is_date(kind) else kind


@settings(max_examples=60, deadline=None)
@given(st.lists(st.one_of(_values(), st.none()), max_size=70))
@example([b'{"id":1}{"id":2}', b"", *([b'{"id":3}'] * 40)])
@example([b'{"id":1,"x":[', b'{"id":2}]}', b'{"id":3}{"id":4}', *([b'{"id":3}'] * 40)])
@example([None] * 30)
def test_a_block_gives_what_its_records_give(values: list[bytes | None]) -> None:
    decoder = JsonDecoder(SCHEMA)
    structs, bad = decoder.decode(pa.array(values, pa.binary()))
    structs.validate(full=True)
    rows, expected_bad = _one_by_one(decoder, values)
    assert bad == expected_bad
    assert _text(structs) == rows
    assert structs.type == arrow_type(SCHEMA)


@settings(max_examples=100, deadline=None)
@given(st.lists(_values(), min_size=1, max_size=4))
def test_what_is_read_at_once_is_what_is_right(values: list[bytes]) -> None:
    decoder = JsonDecoder(SCHEMA)
    try:
        structs = decoder.decode_fast(pa.array(values, pa.binary()))
    except CannotError:
        return
    rows, bad = _one_by_one(decoder, values)
    assert not bad
    assert _text(structs) == rows


_PLAIN = ["null", "true", "false", "[]", "{}", "[null]", "[[]]", "[{}]", '{"age":1}', '{"age":null}', '{"name":"n"}']
TRICKY = [
    *_PLAIN,
    *_NUMBERS,
    *(json.dumps(text) for text in ["", " ", "é", "\0", "a\nb", *_STRINGS]),
    *_ODD,
    '"\\u0032026-01-31"',
    '{"age":1,"since":1}',
    '["2026-01-31", null]',
    '[{"x":1,"y":0.1},null,{"y":16777217}]',
    '[{"x":1,"y":"NaN"}]',
    '["a",1]',
    "[1,99999.99]",
    "[1,123456]",
    "[" * 600 + "]" * 600,
    "[" + "[]," * 600 + "[]]",
]


@pytest.mark.parametrize("name", [*SCHEMA.names, "other"])
def test_one_odd_field_is_read_at_once_as_it_is_alone(name: str) -> None:
    decoder = JsonDecoder(SCHEMA)
    at_once = 0
    for text in TRICKY:
        value = f'{{"{name}":{text}}}'.encode()
        rows, bad = _one_by_one(decoder, [value])
        try:
            structs = decoder.decode_fast(pa.array([value], pa.binary()))
        except CannotError:
            continue
        at_once += 1
        assert not bad, value
        assert _text(structs) == rows, value
    assert at_once


@pytest.mark.parametrize("value", ["id", "price", "name", "day", "at", "local", "cost", "tags", "who", "points"])
def test_good_values_are_read_at_once(value: str) -> None:
    texts = {
        "id": "7",
        "price": "1.5",
        "name": '"a\\"b"',
        "day": '"2026-01-31"',
        "at": '"2026-01-31T12:00:00.123456789Z"',
        "local": '"2026-01-31 12:00:00"',
        "cost": "12.5",
        "tags": '["a", null]',
        "who": '{"age": 3}',
        "points": '[{"x": 1}]',
    }
    decoder = JsonDecoder(SCHEMA)
    for text in (texts[value], "null"):
        structs = decoder.decode_fast(pa.array([f'\n{{"other": [1], "{value}": {text}}}\n'.encode(), b"{}"]))
        assert len(structs) == 2


def test_a_worker_does_not_import_pandas_for_a_few_good_values() -> None:
    """It takes as long as all other imports of a worker together."""
    script = (
        "import sys\n"
        "from tests.spark.decoding.test_json_blocks_equal_records import *\n"
        "assert 'pandas' not in sys.modules, 'the test itself imports it'\n"
        "buffers = [b'\\5', (0).to_bytes(4, sys.byteorder) + 2 * (8).to_bytes(4, sys.byteorder), b'{\"id\":1}']\n"
        "values = pa.Array.from_buffers(pa.binary(), 2, [pa.py_buffer(each) for each in buffers])\n"
        "structs, bad = JsonDecoder(parse_ddl('id long, tags array<string>')).decode(values)\n"
        "assert structs.null_count == 1 and not bad and 'pandas' not in sys.modules\n"
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_rows_stay_where_they_are_among_bad_ones() -> None:
    values: list[bytes | None] = [b'{"id": %d}' % row for row in range(20_000)]
    bad_rows = [0, 17, 4095, 4096, 4097, 9999, *range(12_000, 12_100), 19_999]
    for row in bad_rows:
        values[row] = b'{"id": "x"}' if row % 2 else b'{"id": 300000000000000000000}'
    for row in range(5000, 5100):
        values[row] = None
    structs, bad = JsonDecoder(parse_ddl("id long")).decode(pa.array(values, pa.binary()))
    assert [item.row for item in bad] == bad_rows
    nothing = {*bad_rows, *range(5000, 5100)}
    assert structs.to_pylist() == [None if row in nothing else {"id": row} for row in range(20_000)]
