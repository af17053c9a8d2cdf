"""What the user asks for: how values are decoded, and what becomes of those that cannot be."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, TypeVar

from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.given import SparkOptions
from barnabas.spark.core.options import DECODING_OPTIONS

if TYPE_CHECKING:
    from pyspark.sql.types import StructField, StructType


class ValueFormat(StrEnum):
    JSON = "json"
    AVRO = "avro"


class ValueFraming(StrEnum):
    NONE = "none"
    REGISTRY = "registry"


class BadRecords(StrEnum):
    """What becomes of a record whose value cannot be decoded."""

    FAIL = "fail"
    COLUMN = "column"
    TOPIC = "topic"


_Choice = TypeVar("_Choice", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class DecodingOptions:
    """How to decode values. Small and picklable: it goes along with every task."""

    format: ValueFormat
    #: The columns of a value, as Spark has them.
    value_type: StructType
    #: The Avro schema that values are brought into the form of; None if `value_type` was given as columns.
    avro_schema: str | None = None
    framing: ValueFraming = ValueFraming.NONE
    registry_url: str | None = field(default=None, repr=False)
    #: `user:password`
    registry_auth: str | None = field(default=None, repr=False)
    #: Schemas by their id, each as JSON text.
    schemas: Mapping[int, str] = field(default_factory=dict)
    bad_records: BadRecords = BadRecords.FAIL
    bad_record_column: str = "_bad_record"
    dead_letter_topic: str | None = None
    max_bad_records: int | None = None

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> DecodingOptions | None:
        """The options of a read, names in any case; None if values stay bytes. Raises OptionError."""
        given = SparkOptions(options, DECODING_OPTIONS)
        if "valueFormat" not in given:
            _check_unused(given)
            return None
        value_format = _choice(given, "valueFormat", ValueFormat, None)
        framing = _choice(given, "valueFraming", ValueFraming, ValueFraming.NONE)
        text = (given.text("valueSchema") or "").strip()
        if not text:
            raise OptionError(
                "Option valueSchema is missing: valueFormat needs it, as columns (id long, at timestamp) "
                "or, for avro, as an Avro schema in JSON."
            )
        schemas = _schemas(given)
        _check_registry(given, value_format, framing, schemas)
        value_type, avro_schema = _value_type(text, value_format, framing)
        if value_format is ValueFormat.AVRO:
            _check_avro(schemas)
        bad_records = _choice(given, "badRecords", BadRecords, BadRecords.FAIL)
        return cls(
            format=value_format,
            value_type=value_type,
            avro_schema=avro_schema,
            framing=framing,
            registry_url=(given.text("schemaRegistryUrl") or "").strip() or None,
            registry_auth=given.text("schemaRegistryAuth"),
            schemas=schemas,
            bad_records=bad_records,
            bad_record_column=_bad_record_column(given, bad_records),
            dead_letter_topic=_dead_letter_topic(given, bad_records),
            max_bad_records=_max_bad_records(given, bad_records),
        )

    @property
    def needs_headers(self) -> bool:
        """Whether records should be read with their headers even if the user did not ask for them."""
        return self.bad_records is BadRecords.TOPIC

    def spark_schema(self, base: StructType) -> StructType:
        """The source's columns with `value` decoded, and one more at the end for bad records if they go there."""
        from pyspark.sql.types import StructField, StructType

        fields: list[StructField] = [
            StructField("value", self.value_type) if column.name == "value" else column for column in base.fields
        ]
        if self.bad_records is BadRecords.COLUMN:
            if self.bad_record_column.lower() in (column.name.lower() for column in fields):
                raise OptionError(f"badRecordColumn = {self.bad_record_column!r}: there is such a column already.")
            fields.append(bad_record_field(self.bad_record_column))
        return StructType(fields)


def bad_record_field(name: str) -> StructField:
    from pyspark.sql.types import BinaryType, StringType, StructField, StructType

    return StructField(name, StructType([StructField("error", StringType()), StructField("value", BinaryType())]))


def _check_unused(given: SparkOptions) -> None:
    unused = [name for name in DECODING_OPTIONS if name in given]
    if unused:
        raise OptionError(f"Option {unused[0]} needs valueFormat: set it to json or avro, or leave {unused[0]} out.")


def _choice(given: SparkOptions, name: str, choices: type[_Choice], default: _Choice | None) -> _Choice:
    text = given.text(name)
    if text is None and default is not None:
        return default
    try:
        return choices((text or "").strip().lower())
    except ValueError:
        allowed = ", ".join(choices)
        raise OptionError(f"{name} = {text!r}: it must be one of {allowed}.") from None


def _schemas(given: SparkOptions) -> dict[int, str]:
    text = given.text("schemas")
    if text is None:
        return {}
    try:
        found: Any = json.loads(text)
        if not isinstance(found, dict):
            raise ValueError("it is not an object")
        return {
            _schema_id(key): schema if isinstance(schema, str) else json.dumps(schema) for key, schema in found.items()
        }
    except ValueError as error:
        raise OptionError(
            f'schemas: {error}. It must be JSON with the Avro schema of each id: {{"7": {{"type": "record", …}}}}.'
        ) from None


def _check_avro(schemas: Mapping[int, str]) -> None:
    from barnabas.spark.decoding.avro_schemas import parse_schema

    for schema_id, text in schemas.items():
        try:
            parse_schema(text, has_defaults=False)
        except ValueError as error:
            raise OptionError(f"schemas: {schema_id}: {error}.") from None


def _schema_id(key: str) -> int:
    if not (key.isascii() and key.isdigit() and int(key) < 1 << 32):
        raise ValueError(f"{key!r} is not an id")
    return int(key)


def _check_registry(
    given: SparkOptions, value_format: ValueFormat, framing: ValueFraming, schemas: dict[int, str]
) -> None:
    if framing is ValueFraming.NONE:
        for name in ("schemaRegistryUrl", "schemaRegistryAuth", "schemas"):
            if name in given:
                raise OptionError(f"Option {name} needs valueFraming = registry: values name no schema without it.")
        return
    if value_format is ValueFormat.AVRO and not schemas and not (given.text("schemaRegistryUrl") or "").strip():
        raise OptionError(
            "valueFraming = registry: where are the schemas? Give schemaRegistryUrl, or schemas with each id's schema."
        )
    from barnabas.spark.decoding.registry import check_urls

    check_urls(given.text("schemaRegistryUrl"))
    auth = given.text("schemaRegistryAuth")
    if auth is not None and ":" not in auth:
        raise OptionError("schemaRegistryAuth must be user:password.")


def _value_type(text: str, value_format: ValueFormat, framing: ValueFraming) -> tuple[StructType, str | None]:
    from barnabas.spark.decoding.ddl import parse_ddl

    if value_format is ValueFormat.JSON:
        return parse_ddl(text), None
    from barnabas.spark.decoding.avro_schemas import avro_columns, require_fastavro

    require_fastavro()
    if text[0] in '{["':
        return avro_columns(text), text
    if framing is ValueFraming.NONE:
        raise OptionError(
            "valueSchema: Avro without framing can be read only by the schema that it was written with; "
            "give that as JSON instead of columns."
        )
    return parse_ddl(text), None


def _bad_record_column(given: SparkOptions, bad_records: BadRecords) -> str:
    name = given.text("badRecordColumn")
    if name is None:
        return "_bad_record"
    if bad_records is not BadRecords.COLUMN:
        raise OptionError("Option badRecordColumn needs badRecords = column.")
    if not name.strip():
        raise OptionError("badRecordColumn is empty: give the column's name.")
    return name


def _dead_letter_topic(given: SparkOptions, bad_records: BadRecords) -> str | None:
    topic = (given.text("deadLetterTopic") or "").strip()
    if bad_records is BadRecords.TOPIC:
        if not topic:
            raise OptionError("badRecords = topic needs deadLetterTopic: the topic that bad records go to.")
        return topic
    if topic:
        raise OptionError(f"Option deadLetterTopic needs badRecords = topic; it is {bad_records}.")
    return None


def _max_bad_records(given: SparkOptions, bad_records: BadRecords) -> int | None:
    text = given.text("maxBadRecords")
    if text is None:
        return None
    if bad_records is BadRecords.FAIL:
        raise OptionError(
            "Option maxBadRecords needs badRecords = column or topic: with fail the first one is too many."
        )
    digits = text.strip()
    if not (digits.isascii() and digits.isdigit()):
        raise OptionError(f"maxBadRecords = {text!r}: it must be a whole number, 0 or more.")
    return int(digits)
