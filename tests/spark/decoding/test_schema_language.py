"""Spark's schema language without Spark: the same types as Spark's own parser gives, and mistakes with their place."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from pyspark.sql import types as t
from pyspark.sql.pandas.types import to_arrow_schema

from barnabas.spark.core.errors import OptionError
from barnabas.spark.decoding.arrow_types import arrow_type
from barnabas.spark.decoding.ddl import parse_ddl

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SCHEMAS = [
    "id long",
    "a boolean, b byte, c tinyint, d short, e smallint, f int, g integer, h bigint, i float, j real, k double",
    "a string, b binary, c date, d timestamp, e timestamp_ntz, f timestamp_ltz",
    "a decimal, b decimal(5), c DECIMAL ( 12 , 3 ), d dec(3,3), e numeric(38,0)",
    "a array<string>, b array<array<int>>, c map<string, array<map<string,long>>>",
    "a struct<x: int, y: struct<z string not null>>, b array<struct<x int COMMENT 'x', y: string>>",
    "`a b` int, `c``d` string, `struct` long",
    "id LONG NOT NULL COMMENT 'it''s', b Int comment \"q \\\"x\\\" \\n\"".replace("''", "\\'"),
    "struct<a: int, b: array<string>>",
    "a: int, b: string",
    "_1 int, `2nd` string, `größe` int",
]


def test_the_types_are_those_of_sparks_own_parser(spark: SparkSession) -> None:
    for text in SCHEMAS:
        assert parse_ddl(text) == t.StructType.fromDDL(text), text


@pytest.mark.parametrize("text", SCHEMAS)
def test_arrow_has_the_schema_that_spark_compares_with(text: str) -> None:
    schema = parse_ddl(text)
    assert list(arrow_type(schema)) == list(to_arrow_schema(schema, timezone="UTC"))


def test_nullability_inside_arrays_and_maps_goes_to_arrow() -> None:
    schema = t.StructType(
        [
            t.StructField("a", t.ArrayType(t.IntegerType(), containsNull=False), nullable=False),
            t.StructField("m", t.MapType(t.StringType(), t.StringType(), valueContainsNull=False)),
        ]
    )
    assert list(arrow_type(schema)) == list(to_arrow_schema(schema, timezone="UTC"))


def test_comments_stay_with_the_columns() -> None:
    assert parse_ddl("id long COMMENT 'the \\'key\\'', x int").fields[0].metadata == {"comment": "the 'key'"}


@pytest.mark.parametrize(
    ("text", "place", "words"),
    [
        ("", 1, "there are no columns"),
        ("id lonng", 4, "there is no type 'lonng'"),
        ("id long,", 9, "a column's name should be here"),
        ("id long x string", 9, "a comma or the end should be here"),
        ("id", 3, "the type of 'id' should be here"),
        ("a int, b int, a string", 15, "two columns called 'a'"),
        ("a array<int", 12, "'>' should end the array"),
        ("a array int", 9, "'<' should follow array"),
        ("a map<int,string>", 7, "keys of a map must be of type string"),
        ("a map<string>", 13, "a comma"),
        ("a decimal(39,2)", 3, "must have 1 to 38 digits"),
        ("a decimal(5,6)", 3, "must have 1 to 38 digits"),
        ("a decimal(x)", 11, "a number of digits"),
        ("a struct<b int", 15, "a comma or '>' should be here"),
        ("a int NOT x", 11, "NULL should follow NOT"),
        ("a int COMMENT b", 15, "a comment in quotes"),
        ("a int; b int", 6, "';' has no meaning here"),
        ("a interval", 3, "there is no type 'interval' that values can be decoded to"),
        ("a variant", 3, "array<…>, map<string,…>, struct<…>"),
        ("struct<a int> b", 15, "the schema should end here"),
    ],
)
def test_a_mistake_is_told_with_its_place(text: str, place: int, words: str) -> None:
    with pytest.raises(OptionError) as caught:
        parse_ddl(text)
    assert str(caught.value).startswith(f"valueSchema at character {place},")
    assert words in str(caught.value)
