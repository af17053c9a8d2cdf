"""JSON values as a column of structs, a block at a time.

Arrow's own parser reads the whole block where it can. It parses documents one after another from one piece of memory
and does not know where a value ends, so a value that holds two documents, or half of one, could shift the rows that
follow. Therefore a mark is put behind each value's opening brace, a field with a name that nobody can guess: if there
are as many documents as values and every one has the mark, then each value was exactly one of them. The braces are
checked first, also because Arrow's parser crashes the process over a block that begins with `null`.

Whatever Arrow does not take, or takes in another way than `json_records` does, makes the block fail as a whole; the
rows that are at fault are looked for then, and read one by one.
"""

from __future__ import annotations

import re
import secrets
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj
from pyspark.sql import types as spark

from barnabas.spark.decoding.arrow_types import arrow_type, floored_to_micros
from barnabas.spark.decoding.bad_records import BadValue, BadValueError
from barnabas.spark.decoding.json_records import MAX_DEPTH, base64_bytes, compile_reader, is_too_deep

#: A block that failed is cut in so many pieces, until they are so small that single records are cheaper.
_PIECES: Final = 8
_FEW_ROWS: Final = 24

#: In pieces of this size it pays to go from bad row to bad row, if there are not too many.
_WINDOW_ROWS: Final = 4096
_MOST_STUMBLES: Final = 64

#: Arrow's parser counts bytes of a block in 32 bits.
_MOST_BYTES: Final = 1 << 30

#: Constants that Arrow takes and JSON does not have; where there are any, `json_records` decides.
_CONSTANTS: Final = r"[:,\[\s]-?(?:Inf|NaN)"
_ROW: Final = re.compile(r"in row ([0-9]+)$").search


class JsonDecoder:
    """Decodes blocks of values; holds what it learnt of one block for the next."""

    def __init__(self, schema: spark.StructType) -> None:
        self._type = arrow_type(schema)
        self._read_value = compile_reader(schema)
        self._mark = secrets.token_hex(8)
        self._brace = f'{{"{self._mark}":true,'
        self._alone = f'{{"{self._mark}":true}}'
        # Times with more digits than Spark keeps need another first form; a topic has one kind of times, mostly.
        units = ("us", "ns") if _has_times(self._type) else ("us",)
        self._carriers = [_carrier_schema(self._type, self._mark, unit) for unit in units] if _is_fast(schema) else []

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        """The structs of the values, and the rows whose value is bad; those, and null values, are null structs."""
        if values.null_count:
            present = values.drop_null()
            structs, bad = self._decode(present)
            rows = pc.indices_nonzero(values.is_valid())
            bad = [replace(item, row=rows[item.row].as_py()) for item in bad]
            return structs.take(_positions(values.is_valid())), bad
        return self._decode(values)

    def _decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        if self._carriers and 0 < len(values) <= _FEW_ROWS:
            # Cheap record by record, but not the first time: then Arrow imports pandas to look at what Python made.
            with suppress(CannotError):
                return self.decode_fast(values), []
        bad: list[BadValue] = []
        pieces: list[pa.Array] = []
        self._decode_piece(values, 0, pieces, bad)
        return pa.concat_arrays(pieces) if len(pieces) != 1 else pieces[0], bad

    def _decode_piece(self, values: pa.Array, first_row: int, pieces: list[pa.Array], bad: list[BadValue]) -> None:
        count = len(values)
        if count <= _FEW_ROWS or not self._carriers:
            pieces.append(self.decode_slowly(values, first_row, bad))
            return
        try:
            pieces.append(self.decode_fast(values))
        except CannotError as failure:
            if count <= _WINDOW_ROWS and failure.row is not None:
                self._decode_around(values, first_row, failure.row, pieces, bad)
            else:
                self._decode_pieces(values, first_row, pieces, bad)

    def _decode_around(
        self, values: pa.Array, first_row: int, failed: int, pieces: list[pa.Array], bad: list[BadValue]
    ) -> None:
        """Leave out the rows that Arrow stumbles over, one after the other, and read the rest at once.

        What it says of a row is a hint only: what is read in the end is checked like any block.
        """
        left_out = [failed]
        while (begin := left_out[-1] + 1) < len(values) and len(left_out) <= _MOST_STUMBLES:
            try:
                self.decode_fast(values.slice(begin))
                break
            except CannotError as failure:
                if failure.row is None or begin + failure.row >= len(values):
                    break
                left_out.append(begin + failure.row)
        is_left_out = [False] * len(values)
        for row in left_out:
            is_left_out[row] = True
        if len(left_out) > _MOST_STUMBLES:
            # There will be many more: after this row nothing is tried any more.
            is_left_out[begin:] = [True] * (len(values) - begin)
        mask = pa.array(is_left_out)
        others = pc.invert(mask)
        try:
            structs = self.decode_fast(values.filter(others)) if pc.any(others).as_py() else pa.array([], self._type)
        except CannotError:
            self._decode_pieces(values, first_row, pieces, bad)
            return
        found: list[BadValue] = []
        slow = self.decode_slowly(values.filter(mask), 0, found)
        rows = pc.indices_nonzero(mask)
        bad.extend(replace(item, row=first_row + rows[item.row].as_py()) for item in found)
        positions = pc.if_else(mask, pc.add(_positions(mask), len(structs)), _positions(others))
        pieces.append(pa.concat_arrays([structs, slow]).take(positions))

    def _decode_pieces(self, values: pa.Array, first_row: int, pieces: list[pa.Array], bad: list[BadValue]) -> None:
        size = -(-len(values) // _PIECES)
        for begin in range(0, len(values), size):
            self._decode_piece(values.slice(begin, size), first_row + begin, pieces, bad)

    def decode_slowly(self, values: pa.Array, first_row: int, bad: list[BadValue]) -> pa.Array:
        """Record by record. None of the values may be null."""
        rows: list[dict[str, Any] | None] = []
        for row, value in enumerate(values.to_pylist(), first_row):
            try:
                rows.append(self._read_value(value))
            except BadValueError as error:
                bad.append(error.of_row(row))
                rows.append(None)
        return pa.array(rows, self._type)

    def decode_fast(self, values: pa.Array) -> pa.Array:
        """The whole block at once. None of the values may be null. Raises CannotError if that would not be right."""
        return self._parse_any(self._marked(_documents(values)))

    def _marked(self, documents: pa.Array) -> pa.Array:
        marked = pc.binary_replace_slice(documents, 0, 1, self._brace)
        if pc.min(pc.binary_length(documents)).as_py() > len("{}"):
            return marked
        return pc.if_else(pc.equal(documents, "{}"), self._alone, marked)

    def _parse_any(self, documents: pa.Array) -> pa.Array:
        try:
            return self._parse(documents, self._carriers[0])
        except CannotError:
            if len(self._carriers) == 1:
                raise
            structs = self._parse(documents, self._carriers[1])
            self._carriers.reverse()
            return structs

    def _parse(self, documents: pa.Array, carrier: pa.Schema) -> pa.Array:
        data = documents.buffers()[2]
        if data.size > _MOST_BYTES:
            raise CannotError
        try:
            table = pj.read_json(
                pa.BufferReader(data),
                read_options=pj.ReadOptions(use_threads=False, block_size=data.size + 1),
                parse_options=pj.ParseOptions(explicit_schema=carrier, unexpected_field_behavior="ignore"),
            )
            if table.num_rows != len(documents) or table.column(0).null_count:
                raise CannotError
            fields = list(self._type)
            columns = [_finished(_only(table.column(index)), field.type) for index, field in enumerate(fields, start=1)]
        except (pa.ArrowInvalid, pa.ArrowNotImplementedError) as error:
            hint = _ROW(str(error))
            raise CannotError(int(hint[1]) if hint else None) from None
        if any(column.null_count and not field.nullable for column, field in zip(columns, fields, strict=True)):
            raise CannotError
        return pa.StructArray.from_arrays(columns, fields=fields)


class CannotError(Exception):
    """A block cannot be read at once, or not as it would be record by record; `row` is where, if that is known."""

    def __init__(self, row: int | None = None) -> None:
        super().__init__(row)
        self.row = row


def _documents(values: pa.Array) -> pa.Array:
    """The values from their opening braces on: each must have one, and nothing that Arrow has its own way with."""
    try:
        texts = values.cast(pa.string())
    except pa.ArrowInvalid:
        raise CannotError from None
    if not pc.all(pc.starts_with(texts, "{")).as_py():
        texts = pc.utf8_ltrim(texts, " \t\r\n")
        row = pc.index(pc.starts_with(texts, "{"), False).as_py()
        if row >= 0:
            raise CannotError(row)
    for constant in ("Inf", "NaN"):
        if pc.any(pc.match_substring(texts, constant)).as_py():
            row = pc.index(pc.match_substring_regex(texts, _CONSTANTS), True).as_py()
            if row >= 0:
                raise CannotError(row)
    if pc.max(pc.binary_length(texts)).as_py() > MAX_DEPTH:
        openings = pc.add(pc.count_substring(texts, "{"), pc.count_substring(texts, "["))
        suspects = texts.filter(pc.greater(openings, MAX_DEPTH))
        if any(is_too_deep(text.encode()) for text in suspects.to_pylist()):
            raise CannotError
    return texts


def _only(column: pa.ChunkedArray) -> pa.Array:
    return column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()


def _positions(is_there: pa.Array) -> pa.Array:
    """For each row that is there the count of those before it; null for the others.

    Made without a number of Python's, for which Arrow would import pandas.
    """
    steps = is_there.cast(pa.int64())
    counts = pc.subtract(pc.cumulative_sum(steps), steps)
    return pc.if_else(is_there, counts, pa.nulls(len(steps), pa.int64()))


def _is_fast(data_type: spark.DataType) -> bool:
    """Whether Arrow's parser knows the type: it has no maps."""
    if isinstance(data_type, spark.StructType):
        return bool(data_type.fields) and all(_is_fast(field.dataType) for field in data_type.fields)
    if isinstance(data_type, spark.ArrayType):
        return _is_fast(data_type.elementType)
    return not isinstance(data_type, spark.MapType)


def _has_times(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return any(_has_times(field.type) for field in kind)
    if pa.types.is_list(kind):
        return _has_times(kind.value_type)
    return bool(pa.types.is_timestamp(kind))


def _carrier_schema(kind: pa.DataType, mark: str, unit: str) -> pa.Schema:
    return pa.schema([pa.field(mark, pa.bool_()), *(pa.field(f.name, _carrier(f.type, unit)) for f in kind)])


def _carrier(kind: pa.DataType, unit: str) -> pa.DataType:
    """The type that Arrow's parser is asked for: one that it reads as `json_records` does, and nothing NOT NULL."""
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _carrier(field.type, unit)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _carrier(kind.value_type, unit)))
    if pa.types.is_timestamp(kind):
        # A local time with a zone would be taken and the zone dropped; a cast refuses it.
        return pa.timestamp(unit, tz="UTC") if kind.tz else pa.string()
    if pa.types.is_float32(kind):
        return pa.float64()
    if pa.types.is_date(kind) or pa.types.is_binary(kind):
        return pa.string()
    return kind


def _finished(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_struct(kind):
        children = [_finished(column.field(index), child.type) for index, child in enumerate(kind)]
        for child, array in zip(kind, children, strict=True):
            if not child.nullable and array.null_count and _has_null_where(array, column):
                raise CannotError
        return pa.StructArray.from_arrays(children, fields=list(kind), mask=column.is_null())
    if pa.types.is_list(kind):
        elements = _finished(column.values, kind.value_type)
        return pa.ListArray.from_arrays(column.offsets, elements, type=kind, mask=column.is_null())
    return _finished_leaf(column, kind)


def _has_null_where(child: pa.Array, parent: pa.Array) -> bool:
    return bool(pc.any(pc.and_(parent.is_valid(), child.is_null())).as_py())


def _finished_leaf(column: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_decimal(kind):
        column.validate(full=True)  # the parser does not count digits
        return column
    if column.type == kind:
        return column
    if pa.types.is_binary(kind):
        return pa.array([_base64(text) for text in column.to_pylist()], kind)
    if pa.types.is_timestamp(kind):
        return _floored(column, kind) if pa.types.is_timestamp(column.type) else _local_times(column, kind)
    if pa.types.is_float32(kind):
        return column.cast(kind, safe=False)
    return column.cast(kind)


def _local_times(texts: pa.Array, kind: pa.DataType) -> pa.Array:
    try:
        return texts.cast(kind)
    except pa.ArrowInvalid:
        return _floored(texts.cast(pa.timestamp("ns")), kind)


def _floored(times: pa.Array, kind: pa.DataType) -> pa.Array:
    return floored_to_micros(times.cast(pa.int64())).cast(kind)


def _base64(text: str | None) -> bytes | None:
    if text is None:
        return None
    found = base64_bytes(text)
    if found is None:
        raise CannotError
    return found
