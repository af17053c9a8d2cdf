"""Batches as they are read, to batches with decoded values: one decoder for one task."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, Protocol

import pyarrow as pa

from barnabas.spark.decoding.arrow_types import arrow_field, arrow_type
from barnabas.spark.decoding.bad_records import BadRecordError, BadValue, BadValueError, excerpt
from barnabas.spark.decoding.dead_letters import SourceRecord, write_letters
from barnabas.spark.decoding.framing import FRAME_SIZE, all_framed, check_frame, without_frames
from barnabas.spark.decoding.options import BadRecords, DecodingOptions, ValueFormat, ValueFraming, bad_record_field

_VALUE: Final = "value"
_HEADERS: Final = "headers"


class ValueDecoder(Protocol):
    """Turns a column of values into structs; null stays null, and so does what is bad."""

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]: ...


class Decoder:
    """Decodes the values of one task's batches.

    `client` are the settings of the producer of dead letters, as `letter_settings` makes them.
    """

    def __init__(
        self, options: DecodingOptions, client: Mapping[str, str] | None = None, *, keep_headers: bool = True
    ) -> None:
        self._options = options
        self._keep_headers = keep_headers
        self._values = _value_decoder(options)
        self._value_field = pa.field(_VALUE, arrow_type(options.value_type))
        self._bad_field = arrow_field(bad_record_field(options.bad_record_column))
        self._bad_count = 0
        self._client = client or {}

    def apply(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """The batch with its values decoded. With badRecords=topic the bad ones are not in it any more: they are in
        the dead-letter topic, acknowledged. Nothing is left for later, as Spark may have enough after this batch, and
        count its offsets as read.
        """
        index = batch.schema.get_field_index(_VALUE)
        values = batch.column(index)
        structs, bad = self._values.decode(values)
        if bad:
            self._count(batch, bad)
        decoded = batch.set_column(index, self._value_field, structs)
        if not self._keep_headers and _HEADERS in decoded.schema.names:
            decoded = decoded.drop_columns([_HEADERS])
        if self._options.bad_records is BadRecords.COLUMN:
            return decoded.append_column(self._bad_field, self._bad_column(values, bad))
        if bad and self._options.dead_letter_topic is not None:
            letters = ((_record(batch, item.row), item) for item in bad)
            write_letters(self._options.dead_letter_topic, self._client, letters)
            is_good = [True] * batch.num_rows
            for item in bad:
                is_good[item.row] = False
            return decoded.filter(pa.array(is_good))
        return decoded

    def _count(self, batch: pa.RecordBatch, bad: list[BadValue]) -> None:
        options = self._options
        if options.bad_records is BadRecords.FAIL:
            raise BadRecordError(
                f"{_place(batch, bad[0], options.format)} Correct valueSchema if the value is right; to go on "
                "without such records, set badRecords to column or topic."
            )
        most = options.max_bad_records
        before = self._bad_count
        self._bad_count += len(bad)
        if most is not None and self._bad_count > most:
            raise BadRecordError(
                f"One task met more bad records than the {most} that maxBadRecords allows. "
                f"{_place(batch, bad[most - before], options.format)} Correct valueSchema or what writes the topic, "
                "or raise maxBadRecords."
            )

    def _bad_column(self, values: pa.Array, bad: list[BadValue]) -> pa.Array:
        kind = self._bad_field.type
        if not bad:
            return pa.nulls(len(values), kind)
        positions: list[int | None] = [None] * len(values)
        for position, item in enumerate(bad):
            positions[item.row] = position
        told = [{"error": item.error, "value": values[item.row].as_py()} for item in bad]
        return pa.array(told, kind).take(pa.array(positions, pa.int32()))


class FramedJson:
    """JSON behind the frame of a schema registry, whose schema is not needed: the columns say what is wanted."""

    def __init__(self, inner: ValueDecoder) -> None:
        self._inner = inner

    def decode(self, values: pa.Array) -> tuple[pa.Array, list[BadValue]]:
        if all_framed(values):
            structs, bad = self._inner.decode(without_frames(values))
            return structs, [_with_id(item, values) for item in bad]
        bodies: list[bytes | None] = [None] * len(values)
        unframed: list[BadValue] = []
        for row, value in enumerate(values.to_pylist()):
            if value is None:
                continue
            try:
                check_frame(value)
                bodies[row] = value[FRAME_SIZE:]
            except BadValueError as error:
                unframed.append(error.of_row(row))
        structs, bad = self._inner.decode(pa.array(bodies, pa.binary()))
        bad = [_with_id(item, values) for item in bad]
        return structs, sorted(unframed + bad, key=lambda item: item.row)


def _with_id(bad: BadValue, values: pa.Array) -> BadValue:
    return BadValue(bad.row, bad.kind, bad.explanation, check_frame(values[bad.row].as_py()))


def _value_decoder(options: DecodingOptions) -> ValueDecoder:
    if options.format is ValueFormat.JSON:
        from barnabas.spark.decoding.json_values import JsonDecoder

        decoder = JsonDecoder(options.value_type)
        return FramedJson(decoder) if options.framing is ValueFraming.REGISTRY else decoder
    from barnabas.spark.decoding.avro_values import avro_decoder

    return avro_decoder(options)


def _place(batch: pa.RecordBatch, bad: BadValue, value_format: ValueFormat) -> str:
    record = _record(batch, bad.row)
    schema = f", written with schema {bad.schema_id}" if bad.schema_id is not None else ""
    value = record.value or b""
    return (
        f"The value of the record at offset {record.offset} of {record.topic}-{record.partition} cannot be decoded as "
        f"{value_format}{schema}: {bad.error}. Its {len(value)} bytes begin: {excerpt(value)} ."
    )


def _record(batch: pa.RecordBatch, row: int) -> SourceRecord:
    headers = batch.column(_HEADERS)[row].as_py() if _HEADERS in batch.schema.names else None
    return SourceRecord(
        topic=batch.column("topic")[row].as_py(),
        partition=batch.column("partition")[row].as_py(),
        offset=batch.column("offset")[row].as_py(),
        timestamp_ms=batch.column("timestamp")[row].value // 1000,
        key=batch.column("key")[row].as_py(),
        value=batch.column(_VALUE)[row].as_py(),
        headers=[(header["key"], header["value"]) for header in headers or ()],
    )
