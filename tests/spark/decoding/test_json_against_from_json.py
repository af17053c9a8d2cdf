"""Decoding in the reader and Spark's own `from_json`, on the same documents: where they differ, it is on purpose."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pyarrow as pa

from barnabas.spark.decoding.ddl import parse_ddl
from barnabas.spark.decoding.json_values import JsonDecoder

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DDL = (
    "i int, b byte, l long, d double, f float, ok boolean, s string, day date, at timestamp, local timestamp_ntz, "
    "cost decimal(7,2), raw binary, tags array<string>, "
    "ns array<int>, m map<string,int>, who struct<name: string, age: int>"
)

SAME = [
    '{}', ' { } ', '{"i":1}', '{"i":null}', '{"other":1}', '{"i":1,"i":2}', '{"i":1,"i":null}', '{"I":1}',
    '{"\\u0069":5}', '{"i":"1"}', '{"i":1.0}', '{"i":1e2}', '{"i":2147483647}', '{"i":2147483648}', '{"i":-0}',
    '{"i":true}', '{"i":[1]}', '{"b":127}', '{"b":-128}', '{"l":9223372036854775807}', '{"l":9223372036854775808}',
    '{"d":1}', '{"d":1.5}', '{"d":1e400}', '{"d":-1e-400}', '{"d":"NaN"}', '{"d":"-INF"}', '{"d":"1"}', '{"d":""}',
    '{"d":NaN}', '{"d":-Infinity}', '{"f":16777217}', '{"f":1e39}', '{"ok":true}', '{"ok":"true"}', '{"ok":1}',
    '{"s":"x"}', '{"s":true}', '{"s":""}', '{"s":null}', '{"s":"\\ud83d\\ude00"}', '{"s":"\\u0000"}', '{"s":"é"}',
    '{"day":"2026-01-31"}', '{"day":"2026-02-30"}', '{"day":""}', '{"day":5}', '{"at":"2026-01-31T12:00:00Z"}',
    '{"at":"2026-01-31T12:00:00.123456+02:00"}', '{"at":"2026-01-31 12:00:00"}', '{"at":"2026-01-31"}',
    '{"at":"2026-01-31T12:00:00.123456789Z"}', '{"at":"1969-12-31T23:59:59.9999999Z"}', '{"at":1700000000}',
    '{"at":-1}', '{"at":1.5}', '{"at":"soon"}', '{"at":"2026-01-31T25:00:00Z"}', '{"at":"1000-01-01T00:00:00Z"}',
    '{"local":"2026-01-31T12:00:00"}', '{"local":"2026-01-31 12:00:00.5"}', '{"local":"2026-01-31T12:00:00Z"}',
    '{"local":5}', '{"cost":1}', '{"cost":1.5}', '{"cost":1.005}', '{"cost":-1.005}', '{"cost":"1.5"}',
    '{"cost":99999.99}', '{"cost":99999.995}', '{"cost":100000}', '{"cost":1e2}', '{"cost":"x"}', '{"cost":true}',
    '{"raw":"AAE="}', '{"raw":""}', '{"raw":"!!"}', '{"raw":1}', '{"tags":["a",null,"b"]}', '{"tags":[]}',
    '{"tags":"a"}', '{"tags":[1]}', '{"ns":[1,"a"]}', '{"ns":[1,[2]]}', '{"m":{}}', '{"m":{"a":1,"b":null}}',
    '{"m":{"a":1,"a":2}}', '{"m":{"a":"x"}}', '{"m":[1]}', '{"who":{"name":"n","age":3}}', '{"who":{}}',
    '{"who":null}', '{"who":{"x":1}}', '{"who":"n"}', '{"who":{"age":"x"}}', '{"i":1', '{"i":1,}', '{"i":01}',
    '{"i":1]', '{i:1}', '{"i":1 /*c*/}', '1', '[{"i":1}]', '"x"', 'true', '{"s":"a\tb"}', '{', 'nul', 'null',
    '{"d":INF}',
]  # fmt: skip

#: Taken by from_json, bad here: it would be a guess, or part of the value would be lost.
STRICTER = {
    '{"b":128}': "a number out of range, which becomes -128 there",
    "{'i':1}": "names in single quotes",
    '{"i":1} x': "what follows the document",
    '{"i":1}{"i":2}': "a second document",
    "": "no document",
    "  ": "no document",
    '{"day":"2026-1-31"}': "a date that is not ISO 8601",
    '{"day":"2026-01"}': "a date without a day",
    '{"day":"2026-01-31T12:00:00"}': "a time for a date",
    '{"at":"2026"}': "a time that is a year",
    '{"at":"2026-01-31T12:00:00 Europe/Berlin"}': "a zone by name",
    '{"cost":"1,000.5"}': "digits in groups",
    '{"s":"\\ud800"}': "half a surrogate pair",
}

#: A column of type string keeps JSON as it was written here; from_json writes it anew.
AS_WRITTEN = {
    '{"s":1.10}': ("1.10", "1.1"),
    '{"s":{"a" : [1, 2]}}': ('{"a" : [1, 2]}', '{"a":[1,2]}'),
    '{"s":[ ]}': ("[ ]", "[]"),
}


def _ours(documents: list[str]) -> list[Any]:
    decoder = JsonDecoder(parse_ddl(DDL))
    structs, bad = decoder.decode(pa.array([document.encode() for document in documents], pa.binary()))
    bad_rows = {item.row for item in bad}
    return ["bad" if row in bad_rows else _flat(value) for row, value in enumerate(structs.to_pylist())]


def _flat(row: dict[str, Any]) -> str:
    """What is not null, in a form in which NaN, times and decimals can be compared."""
    row = {name: dict(value) if name == "m" and value is not None else value for name, value in row.items()}
    row["local"] = row["local"] and row["local"].isoformat()
    row["at"] = row["at"] and int(row["at"].timestamp() * 1_000_000)
    return json.dumps({name: value for name, value in row.items() if value is not None}, default=str, sort_keys=True)


def _theirs(spark: SparkSession, documents: list[str]) -> list[Any]:
    from pyspark.sql import functions as sf

    frame = spark.createDataFrame([(number, text) for number, text in enumerate(documents)], "number int, text string")
    parsed = frame.select(
        "number",
        sf.from_json("text", DDL + ", broken string", {"columnNameOfCorruptRecord": "broken", "timeZone": "UTC"}).alias(
            "v"
        ),
    ).select("number", "v.*", sf.col("v").isNull().alias("is_null"), sf.expr("unix_micros(v.at)").alias("micros"))
    found: list[Any] = []
    for row in sorted(parsed.collect(), key=lambda row: int(row["number"])):
        fields = row.asDict(recursive=True)
        if fields.pop("broken") is not None:
            found.append("bad")
            continue
        if fields.pop("is_null"):
            found.append("null")
            continue
        del fields["number"]
        micros = fields.pop("micros")
        fields["raw"] = None if fields["raw"] is None else bytes(fields["raw"])
        fields["local"] = fields["local"] and fields["local"].isoformat()
        fields["at"] = micros
        found.append(json.dumps({k: v for k, v in fields.items() if v is not None}, default=str, sort_keys=True))
    return found


def test_it_takes_what_from_json_takes_except_where_it_says_so(spark: SparkSession) -> None:
    documents = [*SAME, *STRICTER, *AS_WRITTEN]
    found = zip(documents, _ours(documents), _theirs(spark, documents), strict=True)
    results = {document: (mine, theirs) for document, mine, theirs in found}
    assert {document: results[document] for document in SAME if len(set(results[document])) > 1} == {}
    assert [document for document in STRICTER if results[document][0] != "bad"] == []
    assert [document for document in STRICTER if results[document][1] == "bad"] == []
    for document, texts in AS_WRITTEN.items():
        assert results[document] == tuple(json.dumps({"s": text}) for text in texts)
