"""Avro schemas as columns: which Spark type each becomes, and how what fastavro reads is brought into it.

fastavro is given schemas without logical types, so that dates, times and decimals stay the numbers and bytes that they
are on the wire; Arrow converts them a column at a time.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any, Final, TypeAlias
from uuid import UUID

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql import types as spark

from barnabas.base.extras import how_to_install
from barnabas.spark.core.errors import OptionError
from barnabas.spark.decoding.arrow_types import arrow_type, floored_to_micros
from barnabas.spark.decoding.bad_records import BadKind, BadValueError

#: A parsed schema in Avro's JSON form: a name, a union, or an object.
Schema: TypeAlias = Any

Finish: TypeAlias = Callable[[pa.Array], pa.Array]

_PLAIN: Final[dict[str, type[spark.DataType]]] = {
    "boolean": spark.BooleanType,
    "int": spark.IntegerType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "double": spark.DoubleType,
    "bytes": spark.BinaryType,
    "fixed": spark.BinaryType,
    "string": spark.StringType,
    "enum": spark.StringType,
}
_TIMES: Final[dict[str, tuple[str, type[spark.DataType]]]] = {
    "timestamp-millis": ("ms", spark.TimestampType),
    "timestamp-micros": ("us", spark.TimestampType),
    "timestamp-nanos": ("ns", spark.TimestampType),
    "local-timestamp-millis": ("ms", spark.TimestampNTZType),
    "local-timestamp-micros": ("us", spark.TimestampNTZType),
    "local-timestamp-nanos": ("ns", spark.TimestampNTZType),
}
#: What a column may be beside the type that belongs to the schema: Avro's promotions.
_PROMOTIONS: Final[dict[type[spark.DataType], tuple[type[spark.DataType], ...]]] = {
    spark.IntegerType: (spark.LongType, spark.FloatType, spark.DoubleType),
    spark.LongType: (spark.FloatType, spark.DoubleType),
    spark.FloatType: (spark.DoubleType,),
    spark.StringType: (spark.BinaryType,),
    spark.DecimalType: (spark.DecimalType,),
}
_LOGICAL_KEYS: Final = frozenset({"logicalType", "precision", "scale"})


class SchemaMismatchError(ValueError):
    """A schema does not fit the columns, or says something that no column can hold."""


def require_fastavro() -> Any:
    """fastavro, which is installed on request only."""
    try:
        import fastavro
    except ImportError:
        raise OptionError(
            f"valueFormat = avro needs fastavro, on the driver and on the workers: {how_to_install('avro')}."
        ) from None
    return fastavro


@dataclass(frozen=True, slots=True)
class ParsedSchema:
    """A schema with the types that it names."""

    schema: Schema
    named: dict[str, Schema]
    #: The same without logical types, as fastavro reads by it.
    bare: Schema


def parse_schema(text: str, references: Iterable[str] = (), *, has_defaults: bool = True) -> ParsedSchema:
    """Raises ValueError if the text is not an Avro schema.

    Defaults serve the schema that values are brought into the form of. In others nobody needs them, and they may be
    wrong.
    """
    fastavro = require_fastavro()
    named: dict[str, Schema] = {}
    bare_named: dict[str, Schema] = {}
    dropped = frozenset[str]() if has_defaults else frozenset({"default"})
    try:
        for source in map(json.loads, (*references, text)):
            schema = fastavro.parse_schema(_without(dropped, source), named)
            bare = fastavro.parse_schema(_without(dropped | _LOGICAL_KEYS, source), bare_named)
        for each in bare_named.values():
            _put_defaults_in_bytes(each, bare_named)
        return ParsedSchema(schema, named, bare)
    except (fastavro.schema.SchemaParseException, ValueError, TypeError, KeyError, RecursionError) as error:
        raise ValueError(f"this is not an Avro schema: {type(error).__name__} {error}") from None


def _without(dropped: frozenset[str], schema: Schema) -> Schema:
    if isinstance(schema, list):
        return [_without(dropped, each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    left = {key: value for key, value in schema.items() if key not in dropped}
    for key in ("type", "items", "values", "fields"):
        if key in left:
            left[key] = _without(dropped, left[key])
    return left


def _put_defaults_in_bytes(schema: Schema, named: dict[str, Schema]) -> None:
    """Schemas have the defaults of bytes as text, a character for each, and fastavro gives them out as they are."""
    for each in schema.get("fields", ()):
        if "default" in each:
            each["default"] = _default(each["default"], each["type"], named)


def _default(value: Any, schema: Schema, named: dict[str, Schema]) -> Any:
    schema = resolved(schema, named)
    if isinstance(schema, list):
        branches = _beside_null(schema, named)
        if len(branches) != 1:
            return value  # no column can hold it
        schema = branches[0]
    kind = kind_of(schema)
    if kind in ("bytes", "fixed") and isinstance(value, str):
        return value.encode("latin-1", "replace")
    if kind == "array" and isinstance(value, list):
        return [_default(item, schema["items"], named) for item in value]
    if kind == "map" and isinstance(value, dict):
        return {key: _default(item, schema["values"], named) for key, item in value.items()}
    if kind == "record" and isinstance(value, dict):
        own = {each["name"]: each["default"] for each in schema["fields"] if "default" in each}
        whole = own | value
        return {
            each["name"]: _default(whole[each["name"]], each["type"], named)
            for each in schema["fields"]
            if each["name"] in whole
        }
    return value


def avro_columns(text: str) -> spark.StructType:
    """The columns of an Avro record, as Spark's own reader of Avro names and types them. Raises OptionError."""
    try:
        parsed = parse_schema(text)
        found = _Columns(parsed.named).of(parsed.schema, "", ())
    except ValueError as error:
        raise OptionError(f"valueSchema: {error}.") from None
    if not isinstance(found, spark.StructType):
        raise OptionError("valueSchema: the schema must be of a record, so that its fields can be columns.")
    if not found.fields:
        raise OptionError("valueSchema: the record has no fields.")
    return found


@dataclass(frozen=True, slots=True)
class _Columns:
    named: dict[str, Schema]

    def of(self, schema: Schema, path: str, within: tuple[str, ...]) -> spark.DataType:
        schema, _ = unwrapped(schema, self.named, path)
        kind = kind_of(schema)
        if kind == "record":
            name = schema["name"]
            if name in within:
                raise SchemaMismatchError(f"{path or name}: type {name} contains itself, and columns cannot")
            return spark.StructType([self._field(each, path, (*within, name)) for each in schema["fields"]])
        if kind == "array":
            element = self.of(schema["items"], f"{path}[]", within)
            return spark.ArrayType(element, is_nullable(schema["items"], self.named, path))
        if kind == "map":
            value = self.of(schema["values"], f"{path}{{}}", within)
            return spark.MapType(spark.StringType(), value, is_nullable(schema["values"], self.named, path))
        return leaf_type(schema, path)

    def _field(self, each: Schema, path: str, within: tuple[str, ...]) -> spark.StructField:
        whole = f"{path}.{each['name']}" if path else each["name"]
        nullable = is_nullable(each["type"], self.named, whole)
        return spark.StructField(each["name"], self.of(each["type"], whole, within), nullable)


def kind_of(schema: Schema) -> str:
    kind = schema["type"] if isinstance(schema, dict) else schema
    return "record" if kind == "error" else str(kind)


def resolved(schema: Schema, named: dict[str, Schema]) -> Schema:
    while True:
        if isinstance(schema, str) and schema in named:
            schema = named[schema]
        elif isinstance(schema, dict) and not isinstance(schema["type"], str):
            schema = schema["type"]
        else:
            return schema


def is_nullable(schema: Schema, named: dict[str, Schema], path: str) -> bool:
    return unwrapped(schema, named, path)[1]


def unwrapped(schema: Schema, named: dict[str, Schema], path: str) -> tuple[Schema, bool]:
    """What a union with null holds beside it, or the schema itself, and whether null may stand there."""
    schema = resolved(schema, named)
    if not isinstance(schema, list):
        return schema, False
    branches = _beside_null(schema, named)
    has_null = len(branches) < len(schema)
    if len(branches) == 1:
        return branches[0], has_null
    # Only unions of numbers have one type that holds all of them.
    kinds = {
        kind_of(branch) for branch in branches if "logicalType" not in (branch if isinstance(branch, dict) else ())
    }
    if len(kinds) == len(branches) > 0:
        for numbers, widest in (({"int", "long"}, "long"), ({"float", "double"}, "double")):
            if kinds == numbers:
                return widest, has_null
    names = ", ".join(kind_of(branch) for branch in branches) or "null alone"
    raise SchemaMismatchError(f"{path or 'the value'}: no column can hold a union of {names}")


def _beside_null(union: list[Schema], named: dict[str, Schema]) -> list[Schema]:
    return [branch for branch in (resolved(each, named) for each in union) if kind_of(branch) != "null"]


def leaf_type(schema: Schema, path: str) -> spark.DataType:
    """The Spark type of a schema that has no others in it."""
    kind = kind_of(schema)
    logical = _logical_type(schema)
    if logical == "decimal" and kind in ("bytes", "fixed"):
        precision, scale = int(schema["precision"]), int(schema.get("scale") or 0)
        if not (1 <= precision <= 38 and 0 <= scale <= precision):
            raise SchemaMismatchError(f"{path}: Spark has no decimal({precision},{scale})")
        return spark.DecimalType(precision, scale)
    if logical == "date" and kind == "int":
        return spark.DateType()
    if logical in _TIMES and kind == "long":
        return _TIMES[logical][1]()
    if logical == "uuid" and kind == "fixed":
        return spark.StringType()
    if kind not in _PLAIN:
        raise SchemaMismatchError(f"{path}: no column can hold values of type {kind}")
    return _PLAIN[kind]()


def _logical_type(schema: Schema) -> str | None:
    """Avro wants one that is not complete to be passed over."""
    if not isinstance(schema, dict) or (schema.get("logicalType") == "decimal" and "precision" not in schema):
        return None
    found = schema.get("logicalType")
    return found if isinstance(found, str) else None


@dataclass(frozen=True, slots=True)
class AvroNode:
    """How a column comes about: the Arrow type that the objects fastavro makes are put in, and the way from there."""

    raw: pa.DataType
    finish: Finish


@dataclass(frozen=True, slots=True)
class Planner:
    """Makes nodes from the schema that objects have after reading and the columns they shall become.

    Where the schema that they were written by is another one, it says what the numbers mean: a time that was written in
    milliseconds has not become one in microseconds by being read with another schema.
    """

    named: dict[str, Schema]
    writer_named: dict[str, Schema] = field(default_factory=dict)

    def node(self, schema: Schema, target: spark.DataType, path: str, writer: Schema | None = None) -> AvroNode:
        """Raises SchemaMismatchError."""
        schema, _ = unwrapped(schema, self.named, path)
        writer = self._unwrapped_writer(writer, schema)
        kind = kind_of(schema)
        if isinstance(target, spark.StructType) and kind == "record":
            return self._struct(schema, target, path, writer)
        if isinstance(target, spark.ArrayType) and kind == "array":
            return self._array(schema, target, path, writer)
        if isinstance(target, spark.MapType) and kind == "map":
            return self._map(schema, target, path, writer)
        if isinstance(target, (spark.StructType, spark.ArrayType, spark.MapType)) or kind in ("record", "array", "map"):
            raise SchemaMismatchError(f"{path or 'the value'}: {kind} cannot become {target.simpleString()}")
        return _leaf(_as_written(schema, writer), target, path)

    def _unwrapped_writer(self, writer: Schema | None, reader: Schema) -> Schema | None:
        """Of a union, the branch that becomes what the reader has; None if that may be one or the other."""
        if writer is None:
            return None
        writer = resolved(writer, self.writer_named)
        if not isinstance(writer, list):
            return writer
        branches = _beside_null(writer, self.writer_named)
        if len(branches) > 1:
            branches = [each for each in branches if _is_alike(each, reader)]
        return branches[0] if len(branches) == 1 else None

    def _struct(self, schema: Schema, target: spark.StructType, path: str, writer: Schema | None) -> AvroNode:
        fields = {each["name"]: each for each in schema["fields"]}
        written = _fields_as_written(writer)
        nodes: dict[str, AvroNode] = {}
        for column in target.fields:
            whole = f"{path}.{column.name}" if path else column.name
            if column.name in fields:
                each = fields[column.name]
                names = (column.name, *each.get("aliases", ()))
                source = next((written[name] for name in names if name in written), None)
                nodes[column.name] = self.node(each["type"], column.dataType, whole, source)
            elif not column.nullable:
                raise SchemaMismatchError(f"{whole} is not in the schema, and NOT NULL in valueSchema")
        raw = pa.struct([pa.field(name, node.raw) for name, node in nodes.items()])
        kind = arrow_type(target)

        def finish(array: pa.Array) -> pa.Array:
            is_null = array.is_null()
            children = []
            for child in kind:
                if child.name not in nodes:
                    children.append(pa.nulls(len(array), child.type))
                    continue
                column = nodes[child.name].finish(array.field(child.name))
                if not child.nullable and pc.any(pc.and_not(column.is_null(), is_null)).as_py():
                    raise pa.ArrowInvalid(f"{path}.{child.name}".lstrip(".") + " is null, and NOT NULL in valueSchema")
                children.append(column)
            return pa.StructArray.from_arrays(children, fields=list(kind), mask=is_null)

        return AvroNode(raw, finish)

    def _array(self, schema: Schema, target: spark.ArrayType, path: str, writer: Schema | None) -> AvroNode:
        inner = writer["items"] if writer is not None and kind_of(writer) == "array" else None
        element = self.node(schema["items"], target.elementType, f"{path}[]", inner)
        kind = arrow_type(target)

        def finish(array: pa.Array) -> pa.Array:
            elements = element.finish(array.values)
            return pa.ListArray.from_arrays(array.offsets, elements, type=kind, mask=array.is_null())

        return AvroNode(pa.list_(element.raw), finish)

    def _map(self, schema: Schema, target: spark.MapType, path: str, writer: Schema | None) -> AvroNode:
        inner = writer["values"] if writer is not None and kind_of(writer) == "map" else None
        value = self.node(schema["values"], target.valueType, f"{path}{{}}", inner)
        kind = arrow_type(target)

        def finish(array: pa.Array) -> pa.Array:
            items = value.finish(array.items)
            return pa.MapArray.from_arrays(array.offsets, array.keys, items, type=kind, mask=array.is_null())

        return AvroNode(pa.map_(pa.string(), value.raw), finish)


def _is_alike(writer: Schema, reader: Schema) -> bool:
    """Whether one branch of a union becomes a schema without being promoted."""
    if kind_of(writer) != kind_of(reader):
        return False
    names = [reader["name"], *reader.get("aliases", ())] if kind_of(reader) == "record" else []
    return not names or _own_name(writer["name"]) in map(_own_name, names)


def _own_name(name: str) -> str:
    return name.rpartition(".")[2]


def _fields_as_written(writer: Schema | None) -> dict[str, Schema]:
    if writer is None or kind_of(writer) != "record":
        return {}
    return {each["name"]: each["type"] for each in writer["fields"]}


def _as_written(schema: Schema, writer: Schema | None) -> Schema:
    logical, written = _logical_type(schema), _logical_type(writer)
    if logical == written == "decimal" or (logical in _TIMES and written in _TIMES):
        return writer
    return schema


def _leaf(schema: Schema, target: spark.DataType, path: str) -> AvroNode:
    natural = leaf_type(schema, path)
    if natural != target and type(target) not in _PROMOTIONS.get(type(natural), ()):
        raise SchemaMismatchError(f"{path}: {natural.simpleString()} cannot become {target.simpleString()}")
    kind = arrow_type(target)
    logical = _logical_type(schema)
    if isinstance(natural, spark.DecimalType):
        own = arrow_type(natural)
        return AvroNode(pa.binary(), lambda array: _decimals(array, own).cast(kind))
    if isinstance(natural, spark.DateType):
        return AvroNode(pa.int32(), lambda array: array.cast(kind))
    if isinstance(natural, (spark.TimestampType, spark.TimestampNTZType)):
        unit = _TIMES[str(logical)][0]
        if unit == "ns":
            return AvroNode(pa.int64(), lambda array: floored_to_micros(array).cast(kind))
        return AvroNode(pa.int64(), lambda array: array.cast(pa.timestamp(unit, tz=kind.tz)).cast(kind))
    if logical == "uuid" and kind_of(schema) == "fixed":
        return AvroNode(pa.binary(), _uuids)
    raw = arrow_type(natural)
    # A long may have more digits than a double; Avro promotes it all the same.
    return AvroNode(raw, (lambda array: array) if raw == kind else (lambda array: array.cast(kind, safe=False)))


def _decimals(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Numbers of any length, the highest byte first, as Arrow has them: sixteen bytes, the lowest first."""
    try:
        numbers = b"".join(
            bytes(16)
            if value is None
            else int.from_bytes(value, "big", signed=True).to_bytes(16, "little", signed=True)
            for value in array.to_pylist()
        )
    except OverflowError:
        raise pa.ArrowInvalid(f"a decimal has more digits than {kind}") from None
    validity = None if not array.null_count else pa.array(array.is_valid().to_pylist(), pa.bool_()).buffers()[1]
    found = pa.Array.from_buffers(kind, len(array), [validity, pa.py_buffer(numbers)])
    found.validate(full=True)
    return found


def _uuids(array: pa.Array) -> pa.Array:
    return pa.array([None if value is None else str(UUID(bytes=value)) for value in array.to_pylist()], pa.string())


def incompatible(schema_id: int | None, error: Exception) -> BadValueError:
    which = f"schema {schema_id}" if schema_id is not None else "the schema"
    return BadValueError(BadKind.INCOMPATIBLE_SCHEMA, f"{which} does not fit valueSchema: {error}")
