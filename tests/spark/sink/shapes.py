"""Columns that a DataFrame may bring to the sink, by names of types that Spark's SQL understands as well."""

from __future__ import annotations

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    DateType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)


def _struct(**fields: DataType) -> StructType:
    return StructType([StructField(name, kind) for name, kind in fields.items()])


KINDS: dict[str, DataType] = {
    "string": StringType(),
    "binary": BinaryType(),
    "int": IntegerType(),
    "bigint": LongType(),
    "date": DateType(),
    "timestamp": TimestampType(),
    "void": NullType(),
    "string collate UTF8_LCASE": StringType("UTF8_LCASE"),
    "struct<a:int>": _struct(a=IntegerType()),
    "map<string,binary>": MapType(StringType(), BinaryType()),
    "array<struct<key:string,value:binary>>": ArrayType(_struct(key=StringType(), value=BinaryType())),
    "array<struct<KEY:string,Value:binary>>": ArrayType(_struct(KEY=StringType(), Value=BinaryType())),
    "array<struct<key:string,value:string>>": ArrayType(_struct(key=StringType(), value=StringType())),
    "array<struct<value:binary,key:string>>": ArrayType(_struct(value=BinaryType(), key=StringType())),
    "array<struct<key:string,value:binary,more:int>>": ArrayType(
        _struct(key=StringType(), value=BinaryType(), more=IntegerType())
    ),
}

#: Name and type of each column.
Columns = tuple[tuple[str, str], ...]


def schema(*columns: tuple[str, str]) -> StructType:
    return StructType([StructField(name, KINDS[kind]) for name, kind in columns])


_VALUE = ("value", "string")

#: Columns, whether the option `topic` is set, and what the refusal says.
WRONG: list[tuple[Columns, bool, str]] = [
    ((("key", "string"),), True, "column 'value' is missing among 'key'"),
    ((("VALUE", "string"),), True, "column 'value' is missing among 'VALUE'"),
    ((("value", "int"),), True, "column 'value' is int, and the sink takes string or binary"),
    ((("value", "struct<a:int>"),), True, "column 'value' is struct<a:int>"),
    ((("value", "string collate UTF8_LCASE"),), True, "column 'value' is string collate UTF8_LCASE"),
    ((_VALUE, ("key", "bigint")), True, "column 'key' is bigint, and the sink takes string or binary"),
    ((_VALUE, ("key", "void")), True, "column 'key' is void"),
    ((_VALUE,), False, "no topic to write to: set the option 'topic'"),
    ((_VALUE, ("topic", "binary")), False, "column 'topic' is binary, and the sink takes string"),
    ((_VALUE, ("partition", "bigint")), True, "column 'partition' is bigint, and the sink takes int"),
    ((_VALUE, ("headers", "string")), True, "column 'headers' is string, and the sink takes array<struct<key:"),
    ((_VALUE, ("headers", "map<string,binary>")), True, "column 'headers' is map<string,binary>"),
    *(
        ((_VALUE, ("headers", kind)), True, f"column 'headers' is {kind}")
        for kind in (
            "array<struct<key:string,value:string>>",
            "array<struct<value:binary,key:string>>",
            "array<struct<key:string,value:binary,more:int>>",
        )
    ),
]

#: Columns that look odd and are fine, and whether the option `topic` is set.
RIGHT: list[tuple[Columns, bool]] = [
    ((_VALUE, ("topic", "int")), True),
    ((_VALUE, ("Key", "int"), ("PARTITION", "string"), ("timestamp", "date")), True),
    ((("extra", "map<string,binary>"), ("topic", "string"), _VALUE), False),
    ((_VALUE, ("headers", "array<struct<KEY:string,Value:binary>>")), True),
]
