"""Which columns of a DataFrame become which parts of a record: the rules of Spark's own Kafka sink."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    StringType,
    StructType,
    TimestampType,
)

from barnabas.spark.core.errors import SparkConnectorError

if TYPE_CHECKING:
    import pyarrow as pa

_BYTES: Final = (StringType(), BinaryType())
_HEADERS: Final = "array<struct<key:string,value:binary>>"


class ColumnError(SparkConnectorError, ValueError):
    """The columns of a DataFrame cannot become records."""


@dataclass(frozen=True, slots=True)
class SinkColumns:
    """Where in a row the parts of a record lie; None for those that are not there."""

    value: int
    key: int | None = None
    headers: int | None = None
    partition: int | None = None
    timestamp: int | None = None
    #: None where the option `topic` names one topic for all rows.
    topic: int | None = None

    def pick(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The parts of the records, under the names that the producer knows; nothing is copied."""
        return self._picked(batch, ("value", "key", "headers", "partition", "timestamp"))

    def keys_and_values(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        return self._picked(batch, ("value", "key"))

    def _picked(self, batch: pa.RecordBatch, parts: tuple[str, ...]) -> pa.RecordBatch:
        import pyarrow as pa

        names, arrays = [], []
        for name in parts:
            index: int | None = getattr(self, name)
            if index is not None:
                names.append(name)
                arrays.append(_plainly_named(batch.column(index)) if name == "headers" else batch.column(index))
        return pa.RecordBatch.from_arrays(arrays, names=names)


def sink_columns(schema: StructType, *, topic: str | None, include_timestamp: bool = False) -> SinkColumns:
    """Check the columns of a DataFrame, and find the parts of records among them. Others are passed over.

    Names are compared as they are, and of several columns with one name the first counts.
    """
    places: dict[str, int] = {}
    for index, field in enumerate(schema.fields):
        places.setdefault(field.name, index)

    def find(name: str, is_allowed: bool, allowed: str, hint: str) -> int | None:
        index = places.get(name)
        if index is not None and not is_allowed:
            kind = schema.fields[index].dataType.simpleString()
            raise ColumnError(f"column '{name}' is {kind}, and the sink takes {allowed}: {hint}")
        return index

    def kind_of(name: str) -> DataType | None:
        return schema.fields[places[name]].dataType if name in places else None

    topic_place = None
    if topic is None:
        if "topic" not in places:
            raise ColumnError(
                f"no topic to write to: set the option 'topic', or add a column 'topic' of type string to "
                f"{_names(schema)}"
            )
        topic_place = find("topic", kind_of("topic") == StringType(), "string", "cast it, or set the option 'topic'")
    key = find("key", kind_of("key") in _BYTES, "string or binary", "cast it, or drop it to write without keys")
    if "value" not in places:
        raise ColumnError(
            f"column 'value' is missing among {_names(schema)}: the sink writes it as the value of each record; make "
            "one, for instance with to_json(struct(*)) AS value"
        )
    value = find("value", kind_of("value") in _BYTES, "string or binary", "cast it, or use to_json(struct(...))")
    headers = find("headers", _is_headers(kind_of("headers")), _HEADERS, "cast it, or drop it")
    partition = find(
        "partition", kind_of("partition") == IntegerType(), "int", "cast it, or drop it to let the key decide"
    )
    timestamp = None
    if include_timestamp:
        if "timestamp" not in places:
            raise ColumnError(
                f"includeTimestamp is true, and column 'timestamp' is missing among {_names(schema)}: add it, or leave "
                "the option out to stamp records with the time of writing"
            )
        is_time = kind_of("timestamp") in (TimestampType(), LongType())
        timestamp = find("timestamp", is_time, "timestamp or bigint (milliseconds since 1970)", "cast it")
    assert value is not None
    return SinkColumns(value, key, headers, partition, timestamp, topic_place)


def _is_headers(kind: DataType | None) -> bool:
    if not isinstance(kind, ArrayType) or not isinstance(kind.elementType, StructType):
        return False
    fields = kind.elementType.fields
    return [(field.name.lower(), field.dataType) for field in fields] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]


def _plainly_named(headers: Any) -> Any:
    """Headers whose fields are called `key` and `value`: Spark lets them be called `KEY`, too."""
    import pyarrow as pa

    item = headers.type.value_type
    if [field.name for field in item] == ["key", "value"]:
        return headers
    make_list = pa.large_list if pa.types.is_large_list(headers.type) else pa.list_
    return headers.view(make_list(pa.struct([("key", item.field(0).type), ("value", item.field(1).type)])))


def _names(schema: StructType) -> str:
    return ", ".join(f"'{name}'" for name in schema.fieldNames()) or "no columns at all"
