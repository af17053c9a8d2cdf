"""Options of decoding: what is allowed, and words for what is not."""

from __future__ import annotations

import pickle

import pytest

from barnabas.spark.core.errors import OptionError
from barnabas.spark.decoding.options import BadRecords, DecodingOptions, ValueFormat, ValueFraming

JSON = {"valueFormat": "json", "valueSchema": "id long"}
AVRO = {"valueFormat": "avro", "valueSchema": '{"type":"record","name":"R","fields":[{"name":"id","type":"long"}]}'}


def test_values_stay_bytes_unless_a_format_is_given() -> None:
    assert DecodingOptions.parse({"subscribe": "t"}) is None


def test_names_and_choices_are_taken_in_any_case() -> None:
    parsed = DecodingOptions.parse({"VALUEFORMAT": "JSON", "valueschema": "id long", "BadRecords": "Column"})
    assert parsed is not None
    assert (parsed.format, parsed.framing, parsed.bad_records) == (
        ValueFormat.JSON,
        ValueFraming.NONE,
        BadRecords.COLUMN,
    )
    assert not parsed.needs_headers
    assert pickle.loads(pickle.dumps(parsed)) == parsed


def test_a_password_is_not_shown() -> None:
    parsed = DecodingOptions.parse(
        {
            **AVRO,
            "valueFraming": "registry",
            "schemaRegistryUrl": "http://u:secret@h:1",
            "schemaRegistryAuth": "u:secret",
        }
    )
    assert "secret" not in repr(parsed)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"valueSchema": "id long"}, "valueSchema needs valueFormat"),
        ({"valueFormat": "xml", "valueSchema": "id long"}, "valueFormat = 'xml': it must be one of json, avro"),
        ({"valueFormat": "json"}, "valueSchema is missing"),
        ({**JSON, "valueSchema": "id lng"}, "valueSchema at character 4"),
        ({**JSON, "valueFraming": "confluent"}, "valueFraming = 'confluent': it must be one of none, registry"),
        ({**JSON, "schemaRegistryUrl": "http://h"}, "schemaRegistryUrl needs valueFraming = registry"),
        ({**JSON, "badRecords": "skip"}, "badRecords = 'skip': it must be one of fail, column, topic"),
        ({**JSON, "badRecords": "topic"}, "needs deadLetterTopic"),
        ({**JSON, "deadLetterTopic": "d"}, "deadLetterTopic needs badRecords = topic; it is fail"),
        ({**JSON, "badRecordColumn": "d"}, "badRecordColumn needs badRecords = column"),
        ({**JSON, "badRecords": "column", "badRecordColumn": " "}, "badRecordColumn is empty"),
        ({**JSON, "maxBadRecords": "5"}, "maxBadRecords needs badRecords = column or topic"),
        ({**JSON, "badRecords": "column", "maxBadRecords": "-1"}, "maxBadRecords = '-1'"),
        ({**AVRO, "valueFraming": "registry"}, "where are the schemas?"),
        ({**AVRO, "valueFraming": "registry", "schemaRegistryUrl": "h:80"}, "must be http://host:port"),
        ({**AVRO, "valueFraming": "registry", "schemas": "[1]"}, "schemas: it is not an object"),
        ({**AVRO, "valueFraming": "registry", "schemas": '{"x": "int"}'}, "'x' is not an id"),
        (
            {**AVRO, "valueFraming": "registry", "schemas": '{"7": {"type": "recrd"}}'},
            "schemas: 7: this is not an Avro",
        ),
        (
            {**AVRO, "valueFraming": "registry", "schemaRegistryUrl": "http://h", "schemaRegistryAuth": "secret"},
            "schemaRegistryAuth must be user:password",
        ),
        ({**AVRO, "valueSchema": "id long"}, "only by the schema that it was written with"),
        ({**AVRO, "valueSchema": '{"type":"record"}'}, "this is not an Avro schema"),
        ({**AVRO, "valueSchema": '{"type":"array","items":"int"}'}, "must be of a record"),
        ({**AVRO, "valueSchema": '{"type":"record","name":"R","fields":[]}'}, "has no fields"),
    ],
)
def test_what_is_wrong_is_said(options: dict[str, str], words: str) -> None:
    with pytest.raises(OptionError) as caught:
        DecodingOptions.parse(options)
    assert words in str(caught.value)
    assert "secret" not in str(caught.value)


def test_without_fastavro_it_is_said_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "fastavro", None)
    with pytest.raises(OptionError, match=r"pip install 'fastavro>=1\.9'"):
        DecodingOptions.parse(AVRO)
