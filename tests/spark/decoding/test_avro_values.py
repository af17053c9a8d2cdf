"""Avro to columns: every type, schemas that grew, ids and their schemas, and bytes that are no Avro."""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping
from datetime import UTC, date, datetime
from decimal import Decimal
from io import BytesIO
from typing import Any
from uuid import UUID

import fastavro
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import types as t

from barnabas.spark.core.errors import OptionError
from barnabas.spark.decoding.arrow_types import arrow_type
from barnabas.spark.decoding.avro_bounds import Walk, needs_check
from barnabas.spark.decoding.avro_schemas import avro_columns, parse_schema
from barnabas.spark.decoding.avro_values import AvroDecoder
from barnabas.spark.decoding.bad_records import BadKind, BadValueError
from barnabas.spark.decoding.ddl import parse_ddl
from barnabas.spark.decoding.registry import RegisteredSchema


def record(*fields: dict[str, Any], name: str = "R") -> dict[str, Any]:
    return {"type": "record", "name": name, "fields": list(fields)}


def field(name: str, kind: Any, **more: Any) -> dict[str, Any]:
    return {"name": name, "type": kind, **more}


def logical(kind: str, logical_type: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "logicalType": logical_type, **more}


def written(schema: Any, value: Any, schema_id: int | None = None) -> bytes:
    out = BytesIO()
    if schema_id is not None:
        out.write(struct.pack(">bI", 0, schema_id))
    fastavro.schemaless_writer(out, fastavro.parse_schema(schema), value)
    return out.getvalue()


def bare(schema: Any) -> AvroDecoder:
    text = json.dumps(schema)
    return AvroDecoder(avro_columns(text), text)


def framed(schemas: Mapping[int, Any], reader: Any) -> AvroDecoder:
    """`reader` is an Avro schema, or columns."""

    def look_up(schema_id: int) -> RegisteredSchema:
        if schema_id not in schemas:
            raise BadValueError(BadKind.UNKNOWN_SCHEMA, f"no {schema_id}")
        return RegisteredSchema(json.dumps(schemas[schema_id]))

    if isinstance(reader, str):
        return AvroDecoder(parse_ddl(reader), None, look_up)
    return AvroDecoder(avro_columns(json.dumps(reader)), json.dumps(reader), look_up)


EVERYTHING = record(
    field("flag", "boolean"),
    field("i", "int"),
    field("l", ["null", "long"]),
    field("f", "float"),
    field("d", ["double", "null"]),
    field("data", "bytes"),
    field("name", ["null", "string"], default=None),
    field("kind", {"type": "enum", "name": "Kind", "symbols": ["A", "B"]}),
    field("four", {"type": "fixed", "name": "Four", "size": 4}),
    field("day", logical("int", "date")),
    field("ms", logical("long", "timestamp-millis")),
    field("us", ["null", logical("long", "timestamp-micros")]),
    field("local", logical("long", "local-timestamp-micros")),
    field("cost", logical("bytes", "decimal", precision=10, scale=2)),
    field("fee", ["null", logical("fixed", "decimal", name="Fee", size=5, precision=9, scale=3)]),
    field("id", logical("string", "uuid")),
    field("tags", {"type": "array", "items": ["null", "string"]}),
    field("counts", {"type": "map", "values": "long"}),
    field("who", ["null", record(field("name", "string"), field("since", logical("int", "date")), name="Who")]),
    field("others", {"type": "array", "items": "Who"}),
    field("wide", ["null", "int", "long"]),
    field("times", {"type": "map", "values": ["null", logical("long", "timestamp-millis")]}),
)  # fmt: skip

COLUMNS = (
    "flag boolean NOT NULL, i int NOT NULL, l long, f float NOT NULL, d double, data binary NOT NULL, name string, "
    "kind string NOT NULL, four binary NOT NULL, day date NOT NULL, ms timestamp NOT NULL, us timestamp, "
    "local timestamp_ntz NOT NULL, cost decimal(10,2) NOT NULL, fee decimal(9,3), id string NOT NULL"
)

AT = datetime(2026, 1, 31, 12, 0, 0, 123000, tzinfo=UTC)


def everything(**changes: Any) -> dict[str, Any]:
    value = {
        "flag": True,
        "i": -1,
        "l": 2**62,
        "f": 0.5,
        "d": None,
        "data": b"\0\xff",
        "name": "é",
        "kind": "B",
        "four": b"abcd",
        "day": date(1969, 12, 31),
        "ms": AT,
        "us": AT,
        "local": AT.replace(year=1960, microsecond=1, tzinfo=None),
        "cost": Decimal("-12345678.90"),
        "fee": Decimal("0.001"),
        "id": UUID(int=7),
        "tags": ["a", None],
        "counts": {"x": 1},
        "who": {"name": "n", "since": date(2026, 1, 1)},
        "others": [{"name": "o", "since": date(1, 1, 1)}],
        "wide": 2**40,
        "times": {"a": None, "b": AT},
    }
    return value | changes


def as_row(value: dict[str, Any]) -> dict[str, Any]:
    """As Arrow gives it back."""
    return value | {
        "id": str(value["id"]),
        "counts": list(value["counts"].items()),
        "times": list(value["times"].items()),
    }


def test_every_type_has_its_column() -> None:
    columns = avro_columns(json.dumps(EVERYTHING))
    assert columns.fields[:16] == parse_ddl(COLUMNS).fields
    who = t.StructType([t.StructField("name", t.StringType(), False), t.StructField("since", t.DateType(), False)])
    assert columns["tags"].dataType == t.ArrayType(t.StringType(), True)
    assert columns["counts"].dataType == t.MapType(t.StringType(), t.LongType(), False)
    assert (columns["who"].dataType, columns["who"].nullable) == (who, True)
    assert columns["others"].dataType == t.ArrayType(who, False)
    assert columns["wide"].dataType == t.LongType()


def test_every_type_is_decoded() -> None:
    values = [
        everything(),
        everything(l=None, name=None, us=None, fee=None, who=None, tags=[], counts={}, others=[], times={}),
    ]
    structs, bad = bare(EVERYTHING).decode(pa.array([written(EVERYTHING, value) for value in values], pa.binary()))
    assert bad == []
    structs.validate(full=True)
    assert structs.type == arrow_type(avro_columns(json.dumps(EVERYTHING)))
    assert structs.to_pylist() == [as_row(value) for value in values]


_wide = record(
    field("l", ["null", "long"]),
    field("d", "double"),
    field("s", "string"),
    field("cost", logical("bytes", "decimal", precision=38, scale=4)),
    field("day", logical("int", "date")),
    field("us", logical("long", "timestamp-micros")),
    field("list", {"type": "array", "items": {"type": "map", "values": ["null", "int"]}}),
)


_values = st.fixed_dictionaries(
    {
        "l": st.none() | st.integers(-(2**63), 2**63 - 1),
        "d": st.floats(allow_nan=False),
        "s": st.text(),
        # fastavro writes decimals of 28 digits only.
        "cost": st.integers(1 - 10**28, 10**28 - 1).map(lambda number: Decimal(number).scaleb(-4)),
        "day": st.dates(),
        "us": st.datetimes(timezones=st.just(UTC)),
        "list": st.lists(st.dictionaries(st.text(max_size=3), st.none() | st.integers(-9, 9), max_size=3), max_size=3),
    }
)


@settings(max_examples=50, deadline=None)
@given(st.lists(_values, max_size=20))
def test_what_fastavro_writes_is_read(values: list[dict[str, Any]]) -> None:
    structs, bad = bare(_wide).decode(pa.array([written(_wide, value) for value in values], pa.binary()))
    assert bad == []
    expected = [value | {"list": [list(each.items()) for each in value["list"]]} for value in values]
    assert structs.to_pylist() == expected


def test_null_is_a_tombstone_and_bad_bytes_are_bad() -> None:
    schema = record(field("i", "int"), field("s", "string"))
    good = written(schema, {"i": 1, "s": "x"})
    values = [
        good,
        None,
        b"",
        good[:-1],
        good + b"!",
        b"\0\0\0\0\1" + good,
        good,
        b"\x02\x04\xff\xfe",
        b"\x02\xff" + b"\xff" * 9,
    ]
    structs, bad = bare(schema).decode(pa.array(values, pa.binary()))
    assert structs.to_pylist() == [{"i": 1, "s": "x"}] + [None] * 5 + [{"i": 1, "s": "x"}] + [None] * 2
    assert [item.row for item in bad] == [2, 3, 4, 5, 7, 8]
    assert {item.kind for item in bad} == {BadKind.AVRO}
    assert "1 bytes follow the object" in bad[2].explanation


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=40))
def test_no_bytes_do_more_harm_than_being_bad(value: bytes) -> None:
    structs, bad = bare(EVERYTHING).decode(pa.array([value], pa.binary()))
    assert (structs.null_count, len(bad)) in ((1, 1), (0, 0))


def _number(value: int) -> bytes:
    return written("long", value)


EMPTY = record(name="Empty")


@pytest.mark.parametrize("items", ["null", EMPTY, {"type": "fixed", "name": "None", "size": 0}])
def test_items_that_take_no_bytes_are_counted_before_they_fill_the_memory(items: Any) -> None:
    inner = {"type": "map", "values": {"type": "array", "items": items}}
    schema = record(
        field("id", "int"), field("nothing", ["null", inner]), field("again", {"type": "array", "items": "R"})
    )
    decoder = framed({1: schema}, "id int")
    head = b"\0\0\0\0\1" + b"\x0e" + b"\2" + b"\2" + b"\2k"
    values = [
        head + _number(3) + b"\0" + b"\0" + b"\0",
        head + _number(2**61) + b"\0" + b"\0" + b"\0",
        head + _number(-(2**61)) + b"\0" + b"\0" + b"\0" + b"\0",
        head + _number(60_000) * 2 + b"\0" + b"\0" + b"\0",
        head + b"\x86" + b"\x80" * 10 + b"\2" + b"\0" + b"\0" + b"\0",
        head + _number(60_000) + b"\0",
    ]
    structs, bad = decoder.decode(pa.array(values, pa.binary()))
    assert [row and row["id"] for row in structs.to_pylist()] == [7, None, None, None, None, None]
    assert [item.row for item in bad] == [1, 2, 3, 4, 5]
    assert f"an array has {2**61} items" in bad[0].explanation
    assert f"an array has {2**61} items" in bad[1].explanation
    assert "64 bits" in bad[3].explanation
    assert "end in the middle" in bad[4].explanation


def test_a_value_that_is_too_deep_is_bad_and_does_not_end_the_worker() -> None:
    schema = record(field("id", "int"), field("next", ["null", "R"]))
    values = [b"\0\0\0\0\1" + b"\2\2" * (depth - 1) + b"\2\0" for depth in (1, 100, 100_000)]
    structs, bad = framed({1: schema}, "id int").decode(pa.array(values, pa.binary()))
    assert structs.to_pylist() == [{"id": 1}, {"id": 1}, None]
    assert [(item.row, item.explanation) for item in bad] == [(2, "its types lie too deep in each other")]


@pytest.mark.parametrize("value", [b"\x0e\1\2\0\0\0", b"\x0e\3\0", b"\x0e\0\1"])
def test_no_branch_and_no_symbol_is_counted_from_the_end(value: bytes) -> None:
    kind = {"type": "enum", "name": "E", "symbols": ["A", "B"]}
    schema = record(field("id", "int"), field("next", ["null", "R"]), field("kind", kind))
    structs, bad = framed({1: schema}, "id int").decode(pa.array([b"\0\0\0\0\1" + value], pa.binary()))
    assert structs.to_pylist() == [None]
    assert "negative" in bad[0].explanation


@settings(max_examples=50, deadline=None)
@given(_values)
def test_looking_through_a_value_comes_to_its_end(value: dict[str, Any]) -> None:
    parsed = parse_schema(
        json.dumps(record(field("first", "R2"), field("second", ["null", "R2"]))), [json.dumps({**_wide, "name": "R2"})]
    )
    assert not needs_check(parsed)
    data = written(_wide, value)
    walk = Walk(parsed.named, b"?" + data + b"\2" + data, 1)
    walk.past(parsed.schema)
    assert walk.place == 2 + 2 * len(data)


def test_a_number_that_no_column_holds_makes_its_own_record_bad_only() -> None:
    plain = record(field("at", "long"), field("cost", "bytes"))
    schema = record(
        field("at", logical("long", "timestamp-millis")),
        field("cost", logical("bytes", "decimal", precision=4, scale=0)),
    )
    rows = [(0, b"\1"), (2**62, b"\1"), (0, b"\x7f\xff"), (0, b"\xff" + b"\0" * 20), (1, b"\xff")]
    values = [written(plain, {"at": at, "cost": cost}) for at, cost in rows]
    structs, bad = bare(schema).decode(pa.array(values, pa.binary()))
    assert [item.row for item in bad] == [1, 2, 3]
    assert [row and row["cost"] for row in structs.to_pylist()] == [Decimal(1), None, None, None, Decimal(-1)]


V1 = record(field("id", "int"), field("name", "string"), field("at", logical("long", "timestamp-millis")))
V2 = record(
    field("at", logical("long", "timestamp-micros")),
    field("id", "long"),
    field("title", ["null", "string"], default="none", aliases=["name"]),
    field("country", "string", default="??"),
)


def test_old_and_new_records_come_in_the_readers_form() -> None:
    decoder = framed({1: V1, 2: V2}, V2)
    first = written(V1, {"id": 1, "name": "a", "at": AT}, 1)
    second = written(V2, {"id": 2, "title": None, "at": AT, "country": "NO"}, 2)
    structs, bad = decoder.decode(pa.array([first, None, second, first], pa.binary()))
    assert bad == []
    old = {"at": AT, "id": 1, "title": "a", "country": "??"}
    assert structs.to_pylist() == [old, None, {"at": AT, "id": 2, "title": None, "country": "NO"}, old]


def test_a_default_of_bytes_is_written_as_text_a_character_for_each() -> None:
    old = record(field("id", "int"))
    new = record(
        field("id", "int"),
        field("data", "bytes", default="\u00ff"),
        field("two", {"type": "fixed", "name": "Two", "size": 2}, default="\u00ff\u0000"),
        field("cost", logical("bytes", "decimal", precision=4, scale=2), default="\u00ff"),
        field("perhaps", ["bytes", "null"], default="\u00ff"),
        field("several", {"type": "array", "items": "bytes"}, default=["\u00ff"]),
        field("named", {"type": "map", "values": "Two"}, default={"é": "\u00ff\u00fe"}),
        field("inner", record(field("data", ["null", "bytes"]), name="Inner"), default={"data": None}),
        field("other", "Inner", default={"data": "\u00ff"}),
    )
    structs, bad = framed({1: old}, new).decode(pa.array([written(old, {"id": 1}, 1)], pa.binary()))
    assert bad == []
    assert structs.to_pylist() == [
        {
            "id": 1,
            "data": b"\xff",
            "two": b"\xff\0",
            "cost": Decimal("-0.01"),
            "perhaps": b"\xff",
            "several": [b"\xff"],
            "named": [("é", b"\xff\xfe")],
            "inner": {"data": None},
            "other": {"data": b"\xff"},
        }
    ]


def test_what_a_default_leaves_out_has_a_default_of_its_own() -> None:
    old = record(field("id", "int"))
    city = record(
        field("name", ["string", "null"], default="Bern"), field("zip", "bytes", default="\u00ff"), name="City"
    )
    new = record(field("city", city, default={}), field("other", "City", default={"name": "Basel"}))
    structs, bad = framed({1: old}, new).decode(pa.array([written(old, {"id": 1}, 1)], pa.binary()))
    assert bad == []
    assert structs.to_pylist() == [
        {"city": {"name": "Bern", "zip": b"\xff"}, "other": {"name": "Basel", "zip": b"\xff"}}
    ]


def test_a_union_that_no_column_can_hold_says_all_the_same_what_its_numbers_mean() -> None:
    """Its branch that becomes the column was written in milliseconds, or with another scale."""
    union = ["null", logical("long", "timestamp-millis"), logical("bytes", "decimal", precision=9, scale=3), "string"]
    inner = record(field("at", union), field("cost", union), name="Inner")
    new_inner = record(
        field("at", ["null", logical("long", "timestamp-micros")]),
        field("cost", ["null", logical("bytes", "decimal", precision=9, scale=4)]),
        name="Inner",
    )
    old = record(field("inner", [inner, record(field("x", "int"), name="Other"), "null"]))
    value = written(old, {"inner": {"at": AT, "cost": Decimal("1.234")}}, 1)
    decoder = framed({1: old}, record(field("inner", ["null", new_inner])))
    structs, bad = decoder.decode(pa.array([value], pa.binary()))
    assert bad == []
    assert structs.to_pylist() == [{"inner": {"at": AT, "cost": Decimal("1.2340")}}]


@pytest.mark.parametrize("default", [field("x", "string", default=None), field("x", {"type": "double"}, default=0)])
def test_a_default_that_nobody_needs_does_no_harm(default: dict[str, Any]) -> None:
    """Registries keep schemas whose defaults are wrong, and fastavro calls some wrong that are not."""
    plain = record(field("id", "int"), field("x", default["type"]))
    value = written(plain, {"id": 1, "x": "" if default["type"] == "string" else 0.5}, 1)
    structs, bad = framed({1: record(field("id", "int"), default)}, "id long").decode(pa.array([value], pa.binary()))
    assert bad == []
    assert structs.to_pylist() == [{"id": 1}]


def test_a_decimal_without_precision_is_bytes() -> None:
    schema = record(field("cost", logical("bytes", "decimal")))
    assert avro_columns(json.dumps(schema)) == parse_ddl("cost binary NOT NULL")
    value = written(record(field("cost", "bytes")), {"cost": b"\1"}, 1)
    assert framed({1: schema}, "cost binary").decode(pa.array([value]))[0].to_pylist() == [{"cost": b"\1"}]


def test_columns_choose_from_what_was_written() -> None:
    decoder = framed({1: V1, 2: V2}, "id long, country string, at timestamp")
    values = [written(V1, {"id": 1, "name": "a", "at": AT}, 1), written(V2, {"id": 2, "at": AT, "country": "NO"}, 2)]
    structs, bad = decoder.decode(pa.array(values, pa.binary()))
    assert bad == []
    assert structs.to_pylist() == [{"id": 1, "country": None, "at": AT}, {"id": 2, "country": "NO", "at": AT}]


def test_a_schema_that_does_not_fit_makes_its_records_bad() -> None:
    decoder = framed({1: V1, 3: record(field("id", "string")), 4: "int"}, "id long")
    values = [
        written(V1, {"id": 1, "name": "a", "at": AT}, 1),
        written(record(field("id", "string")), {"id": "x"}, 3),
        written("int", 5, 4),
        written(V1, {"id": 1, "name": "a", "at": AT}, 9),
        b"\0\0",
        b"\1\0\0\0\1",
    ]
    _, bad = decoder.decode(pa.array(values, pa.binary()))
    assert [(item.row, item.kind, item.schema_id) for item in bad] == [
        (1, BadKind.INCOMPATIBLE_SCHEMA, 3),
        (2, BadKind.INCOMPATIBLE_SCHEMA, 4),
        (3, BadKind.UNKNOWN_SCHEMA, 9),
        (4, BadKind.FRAMING, None),
        (5, BadKind.FRAMING, None),
    ]
    assert bad[0].explanation == "schema 3 does not fit valueSchema: id: string cannot become bigint"
    required = framed({1: V1}, "id long, extra string NOT NULL").decode(pa.array(values[:1], pa.binary()))[1]
    assert "extra is not in the schema, and NOT NULL in valueSchema" in required[0].explanation
    resolved = framed({3: record(field("id", "string"))}, record(field("id", "long"))).decode(pa.array(values[1:2]))[1]
    assert [item.kind for item in resolved] == [BadKind.INCOMPATIBLE_SCHEMA]


def test_an_explanation_is_short_though_it_goes_along_with_every_record() -> None:
    columns = [field(f"column_{number}", "int") for number in range(1000)]
    old, new = record(*columns, name="Old"), record(*columns, name="New")
    value = written(old, {each["name"]: 0 for each in columns}, 1)
    (item,) = framed({1: old}, new).decode(pa.array([value], pa.binary()))[1]
    assert item.explanation.startswith("schema 1 does not fit valueSchema: ")
    assert len(item.explanation) < 500


@pytest.mark.parametrize(
    ("schema", "words"),
    [
        (record(field("u", ["int", "string"])), "u: no column can hold a union of int, string"),
        (record(field("n", "null")), "n: no column can hold values of type null"),
        (record(field("next", ["null", "R"])), "next: type R contains itself"),
        (record(field("d", logical("bytes", "decimal", precision=50, scale=2))), "d: Spark has no decimal(50,2)"),
    ],
)
def test_a_schema_that_no_columns_can_hold_is_refused_at_once(schema: Any, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        avro_columns(json.dumps(schema))
    assert words in str(caught.value)
