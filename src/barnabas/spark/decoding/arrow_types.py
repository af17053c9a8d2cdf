"""Spark's types in Arrow: exactly what Spark compares a Python source's batches with."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

if TYPE_CHECKING:
    from collections.abc import Mapping

_PLAIN: Final[Mapping[type[spark.DataType], pa.DataType]] = {
    spark.BooleanType: pa.bool_(),
    spark.ByteType: pa.int8(),
    spark.ShortType: pa.int16(),
    spark.IntegerType: pa.int32(),
    spark.LongType: pa.int64(),
    spark.FloatType: pa.float32(),
    spark.DoubleType: pa.float64(),
    spark.StringType: pa.string(),
    spark.BinaryType: pa.binary(),
    spark.DateType: pa.date32(),
    spark.TimestampType: pa.timestamp("us", tz="UTC"),
    spark.TimestampNTZType: pa.timestamp("us"),
}


def arrow_type(data_type: spark.DataType) -> pa.DataType:
    """The Arrow type of a Spark type that values can be decoded to; names and nullability of inner fields included."""
    if isinstance(data_type, spark.DecimalType):
        return pa.decimal128(data_type.precision, data_type.scale)
    if isinstance(data_type, spark.ArrayType):
        return pa.list_(pa.field("element", arrow_type(data_type.elementType), nullable=data_type.containsNull))
    if isinstance(data_type, spark.MapType):
        key = pa.field("key", arrow_type(data_type.keyType), nullable=False)
        return pa.map_(key, pa.field("value", arrow_type(data_type.valueType), nullable=data_type.valueContainsNull))
    if isinstance(data_type, spark.StructType):
        return pa.struct([arrow_field(field) for field in data_type.fields])
    return _PLAIN[type(data_type)]


def arrow_field(field: spark.StructField) -> pa.Field:
    return pa.field(field.name, arrow_type(field.dataType), nullable=field.nullable)


def floored_to_micros(nanos: pa.Array) -> pa.Array:
    """Times without the digits that Spark does not keep; the result lies before the time, also before 1970."""
    micros = pc.divide(nanos, 1000)
    is_above = pc.less(nanos, pc.multiply(micros, 1000))
    return pc.subtract(micros, is_above.cast(pa.int64()))
