"""Avro values as a column of structs: fastavro reads the objects, Arrow makes the columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import types as spark

from barnabas.spark.decoding.arrow_types import arrow_type
from barnabas.spark.decoding.avro_bounds import check_bounds, needs_check
from barnabas.spark.decoding.avro_schemas import (
    AvroNode,
    ParsedSchema,
    Planner,
    SchemaMismatchError,
    incompatible,
    parse_schema,
    require_fastavro,
)
from barnabas.spark.decoding.bad_records import BadKind, BadValue, BadValueError
from barnabas.spark.decoding.framing import FRAME_SIZE, check_frame
from barnabas.spark.decoding.options import DecodingOptions, ValueFraming
from barnabas.spark.decoding.registry import RegisteredSchema, shared_registry

#: Gives the schema of an id. Raises BadValueError if there is none.
LookUp: TypeAlias = Callable[[int], RegisteredSchema]

_NO_ID: Final = -1


@dataclass(frozen=True, slots=True)
class _Plan:
    """How values that were written by one schema are read."""

    writer: Any
    reader: Any
    node: AvroNode
    #: The schema that they were written by, if they must be looked through first.
    checked: ParsedSchema | None

    @classmethod
    def of(cls, node: AvroNode, writer: ParsedSchema, reader: ParsedSchema | None = None) -> _Plan:
        """`reader` is what they are brought into the form of; None if they have it."""
        return cls(writer.bare, None if reader is None else reader.bare, node, writer if needs_check(writer) else None)


class AvroDecoder:
    """Decodes blocks of values. `look_up` is given if values are framed; else `schema` is what they were written by."""

    def __init__(self, value_type: spark.StructType, schema: str | None, look_up: LookUp | None = None) -> None:
        self._avro = require_fastavro()
        self._value_type = value_type
        self._type = arrow_type(value_type)
        self._reader = None if schema is None else parse_schema(schema)
        #: What most values are written by: then nothing has to be brought into another form.
        self._same = None if schema is None else parse_schema(schema, has_defaults=False).bare
        self._look_up = look_up
        self._plans: dict[int, _Plan | BadValueError] = {}

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        """The structs of the values, and the rows whose value is bad; those, and null values, are null structs."""
        bad: list[BadValue] = []
        # Rows and their objects by the schema that they were written by: of which there is one, nearly always.
        groups: dict[int, tuple[list[int], list[Any]]] = {}
        self._read(values.to_pylist(), groups, bad)
        if len(groups) == 1 and not bad:
            ((schema_id, (rows, objects)),) = groups.items()
            if len(rows) == len(values):
                structs = self._columns(schema_id, rows, objects, bad)
                return structs, sorted(bad, key=lambda item: item.row)
        positions: list[int | None] = [None] * len(values)
        pieces = [pa.array([], self._type)]
        count = 0
        for schema_id, (rows, objects) in groups.items():
            pieces.append(self._columns(schema_id, rows, objects, bad))
            for position, row in enumerate(rows, count):
                positions[row] = position
            count += len(rows)
        structs = pa.concat_arrays(pieces)
        return structs.take(pa.array(positions, pa.int64())), sorted(bad, key=lambda item: item.row)

    def _read(
        self, values: list[bytes | None], groups: dict[int, tuple[list[int], list[Any]]], bad: list[BadValue]
    ) -> None:
        read_object = self._avro.schemaless_reader
        is_framed = self._look_up is not None
        start = FRAME_SIZE if is_framed else 0
        last_id: int | None = None
        for row, value in enumerate(values):
            if value is None:
                continue
            schema_id = _NO_ID
            try:
                if is_framed:
                    schema_id = check_frame(value)
                if schema_id != last_id:
                    plan = self._plan(schema_id)
                    rows, objects = groups.setdefault(schema_id, ([], []))
                    last_id = schema_id
                if plan.checked is not None:
                    check_bounds(plan.checked, value, start)
                source = BytesIO(value)
                if is_framed:
                    source.seek(start)
                try:
                    found = read_object(source, plan.writer, plan.reader)
                except self._avro.read.SchemaResolutionError as error:
                    raise incompatible(_id_or_none(schema_id), error) from None
                except Exception as error:  # whatever fastavro meets in bytes that are no Avro
                    raise BadValueError(BadKind.AVRO, _told(error)) from None
                if source.tell() != len(value):
                    raise _left_over(len(value) - source.tell())
            except BadValueError as error:
                bad.append(error.of_row(row, _id_or_none(schema_id)))
            else:
                rows.append(row)
                objects.append(found)

    def _columns(self, schema_id: int, rows: list[int], objects: list[Any], bad: list[BadValue]) -> pa.Array:
        """The structs of the objects; halves a block with something in it that does not fit, until that is alone."""
        plan = self._plan(schema_id)
        try:
            return plan.node.finish(pa.array(objects, plan.node.raw))
        except (pa.ArrowInvalid, pa.ArrowTypeError, OverflowError, ValueError) as error:
            if len(rows) == 1:
                bad.append(BadValueError(BadKind.AVRO, str(error)).of_row(rows[0], _id_or_none(schema_id)))
                return pa.nulls(1, self._type)
        half = len(rows) // 2
        return pa.concat_arrays(
            [
                self._columns(schema_id, rows[:half], objects[:half], bad),
                self._columns(schema_id, rows[half:], objects[half:], bad),
            ]
        )

    def _plan(self, schema_id: int) -> _Plan:
        found = self._plans.get(schema_id)
        if found is None:
            try:
                found = self._new_plan(schema_id)
            except BadValueError as error:
                found = error
            self._plans[schema_id] = found
        if isinstance(found, BadValueError):
            raise BadValueError(found.kind, found.explanation)
        return found

    def _new_plan(self, schema_id: int) -> _Plan:
        if self._look_up is None:
            if self._reader is None:
                raise ValueError("values without a frame need an Avro schema")
            node = Planner(self._reader.named).node(self._reader.schema, self._value_type, "")
            return _Plan.of(node, self._reader)
        writer = _registered(self._look_up(schema_id), schema_id)
        try:
            if self._reader is None:
                return _Plan.of(Planner(writer.named).node(writer.schema, self._value_type, ""), writer)
            planner = Planner(self._reader.named, writer.named)
            node = planner.node(self._reader.schema, self._value_type, "", writer.schema)
        except SchemaMismatchError as error:
            raise incompatible(schema_id, error) from None
        return _Plan.of(node, writer, None if writer.bare == self._same else self._reader)


def _registered(schema: RegisteredSchema, schema_id: int) -> ParsedSchema:
    if schema.kind != "AVRO":
        raise BadValueError(BadKind.INCOMPATIBLE_SCHEMA, f"schema {schema_id} is one of {schema.kind}, not of Avro")
    try:
        return parse_schema(schema.text, schema.references, has_defaults=False)
    except ValueError as error:
        raise BadValueError(BadKind.INCOMPATIBLE_SCHEMA, f"schema {schema_id}: {error}") from None


def avro_decoder(options: DecodingOptions) -> AvroDecoder:
    """The decoder that the options ask for."""
    look_up = _look_up(options) if options.framing is ValueFraming.REGISTRY else None
    return AvroDecoder(options.value_type, options.avro_schema, look_up)


def _look_up(options: DecodingOptions) -> LookUp:
    """Schemas given with the query first, so that a registry need not be asked for them."""
    given: Mapping[int, str] = options.schemas
    registry = shared_registry(options.registry_url, options.registry_auth) if options.registry_url else None

    def look_up(schema_id: int) -> RegisteredSchema:
        if schema_id in given:
            return RegisteredSchema(given[schema_id])
        if registry is None:
            raise BadValueError(BadKind.UNKNOWN_SCHEMA, f"the option schemas has no schema with the id {schema_id}")
        return registry.schema(schema_id)

    return look_up


def _id_or_none(schema_id: int) -> int | None:
    return None if schema_id == _NO_ID else schema_id


def _left_over(count: int) -> BadValueError:
    explanation = f"{count} bytes follow the object: it was written by another schema, or has framing"
    return BadValueError(BadKind.AVRO, explanation)


def _told(error: Exception) -> str:
    if isinstance(error, (EOFError, IndexError)):
        return "the bytes end in the middle of the object"
    text = str(error)
    return f"{type(error).__name__} {text}" if text else type(error).__name__
