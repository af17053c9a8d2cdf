"""Keys and values to bytes and back: as Java does it, by functions and classes of the program, and what goes wrong."""

from __future__ import annotations

import doctest
import io
import json
import math
import struct
import uuid
from collections.abc import Mapping
from typing import Any

import fastavro
import pytest
from confluent_kafka.serialization import StringSerializer as ConfluentString
from hypothesis import given
from hypothesis import strategies as st

from barnabas.base.errors import SettingsError
from barnabas.client import serialization
from barnabas.client.errors import SerializationError
from barnabas.client.serialization import (
    BUILTIN,
    AnyDeserializer,
    AnySerializer,
    AvroDeserializer,
    AvroSerializer,
    Headers,
    StringSerde,
    as_deserializer,
    as_serializer,
    load,
    not_bytes,
    with_context,
)
from barnabas.client.settings import ConsumerSettings, ProducerSettings
from barnabas.client.settings.plugins import DESERIALIZERS, SERIALIZERS
from tests.oracles import needs_kafka, run_java

LOCAL = "127.0.0.1:9092"
UUID = uuid.UUID("123e4567-e89b-12d3-a456-426614174000")

#: Values and what Java's serializers make of them, in hexadecimal.
VECTORS: list[tuple[str, Any, str]] = [
    ("short", -2, "fffe"),
    ("short", 32767, "7fff"),
    ("integer", 7, "00000007"),
    ("integer", -(2**31), "80000000"),
    ("long", 2**63 - 1, "7fffffffffffffff"),
    ("float", 1.5, "3fc00000"),
    ("float", -math.inf, "ff800000"),
    ("double", 0.1, "3fb999999999999a"),
    ("double", -0.0, "8000000000000000"),
    ("boolean", True, "01"),
    ("boolean", False, "00"),
    ("uuid", UUID, str(UUID).encode().hex()),
    ("string", "", ""),
    ("string", "grüße 😀", "6772c3bcc39f6520f09f9880"),
]


def encode(serializer: AnySerializer, data: object, settings: Mapping[str, object] | None = None) -> bytes | None:
    function = as_serializer(serializer, is_key=False, settings=settings)
    assert function is not None
    return function("t", [], data)


def decode(deserializer: AnyDeserializer, data: bytes | None, settings: Mapping[str, object] | None = None) -> Any:
    function = as_deserializer(deserializer, is_key=False, settings=settings)
    assert function is not None
    return function("t", (), data)


@pytest.mark.parametrize(("name", "value", "expected"), VECTORS)
def test_built_in_serializers_write_what_java_writes(name: str, value: object, expected: str) -> None:
    encoded = encode(name, value)
    assert encoded is not None
    assert encoded.hex() == expected
    assert decode(name, encoded) == value


@needs_kafka()
def test_java_writes_and_reads_the_same() -> None:
    def text(name: str, value: Any) -> str:
        if name == "string":
            return str(value.encode("utf-16-be").hex())
        return str(value).lower().replace("inf", "Infinity")

    lines = [f"{name} {expected} {text(name, value)}" for name, value, expected in VECTORS]
    printed = run_java("Serializers.java", "\n".join(lines)).splitlines()
    for (name, value, expected), line in zip(VECTORS, printed, strict=True):
        written, read = line.split(" ")
        assert (name, written) == (name, expected)
        if name in ("float", "double") and math.isfinite(value):
            assert float.fromhex(read) == value
        else:
            assert read == text(name, value)


@given(st.integers(-(2**63), 2**63 - 1), st.floats(allow_nan=False), st.text(st.characters(codec="utf-8")))
def test_what_is_written_is_read_again(number: int, fraction: float, text: str) -> None:
    assert decode("long", encode("long", number)) == number
    assert decode("double", encode("double", fraction)) == fraction
    assert decode("string", encode("string", text)) == text
    assert decode("json", encode("json", {text: [number, None]})) == {text: [number, None]}


def test_json_is_compact_utf_8() -> None:
    assert encode("json", {"größe": [1, None, True]}) == '{"größe":[1,null,true]}'.encode()


@pytest.mark.parametrize("name", sorted(set(BUILTIN) - {"bytes"}))
def test_none_stays_none_without_a_call(name: str) -> None:
    assert encode(name, None) is None
    assert decode(name, None) is None


def test_none_is_not_handed_to_functions_and_objects() -> None:
    class Never:
        def serialize(self, topic: str, headers: Headers, data: object) -> bytes:
            raise AssertionError

        def deserialize(self, topic: str, headers: object, data: bytes) -> object:
            raise AssertionError

    for given_ in (Never(), Never):
        assert encode(given_, None) is None
    assert encode(lambda data: data + 1, None) is None
    assert decode(Never(), None) is None


@pytest.mark.parametrize("given_", [None, "bytes", SERIALIZERS["bytes"]])
def test_bytes_pass_as_they_are(given_: AnySerializer | None) -> None:
    assert as_serializer(given_, is_key=True) is None
    assert as_deserializer(DESERIALIZERS["bytes"] if given_ else None, is_key=True) is None


def test_every_name_of_a_setting_has_a_serializer() -> None:
    assert set(SERIALIZERS) == set(DESERIALIZERS) == set(BUILTIN)
    for name, java in SERIALIZERS.items():
        assert type(load(java, is_key=True)) is type(load(name, is_key=True))


def test_a_function_gets_the_object_alone() -> None:
    assert encode(str.encode, "text") == b"text"
    assert encode(lambda number: b"%d" % number, 5) == b"5"
    assert encode(lambda text: memoryview(text.encode()), "ab") == b"ab"
    assert decode(int, b"5") == 5
    assert decode(json.loads, b"[1]") == [1]


def test_an_object_gets_everything() -> None:
    class Tagging:
        def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
            self.tag = (settings["tag"], is_key)

        def serialize(self, topic: str, headers: Headers, data: str) -> bytes:
            headers.append(("tag", repr(self.tag).encode()))
            return f"{topic}:{data}".encode()

        def deserialize(self, topic: str, headers: tuple[tuple[str, bytes | None], ...], data: bytes) -> str:
            return f"{topic} {dict(headers)['tag']!r} {data!r}"

    for given_ in (Tagging, Tagging()):
        function = as_serializer(given_, is_key=True, settings={"tag": 9})
        assert function is not None
        headers: Headers = []
        assert function("t", headers, "x") == b"t:x"
        assert headers == [("tag", b"(9, True)")]
    back = as_deserializer(Tagging, is_key=False, settings={"tag": 9})
    assert back is not None
    assert back("t", (("tag", b"1"),), b"x") == "t b'1' b'x'"


def test_settings_take_names_functions_classes_and_javas_names() -> None:
    given_: tuple[object, ...] = ("string", str.encode, StringSerde, StringSerde(), SERIALIZERS["string"])
    for serializer in given_:
        settings = ProducerSettings(bootstrap_servers=LOCAL, value_serializer=serializer)  # type: ignore[arg-type]
        assert encode(settings.value_serializer, "ü") == b"\xc3\xbc"
    reading = ConsumerSettings(bootstrap_servers=LOCAL, key_deserializer=bytes.decode)  # type: ignore[arg-type]
    assert decode(reading.key_deserializer, b"\xc3\xbc") == "ü"
    path = ProducerSettings.load({"bootstrap.servers": LOCAL, "key.serializer": "json.dumps"})
    with pytest.raises(SerializationError, match="made a str for topic t; it must make bytes"):
        encode(path.key_serializer, [1])


def test_the_encoding_of_text_is_a_setting() -> None:
    assert encode("string", "ü", {"serializer.encoding": "ISO-8859-1"}) == b"\xfc"
    both = {
        "value.serializer.encoding": "utf-16-be",
        "serializer.encoding": "ascii",
        "key.serializer.encoding": "ascii",
    }
    assert encode("string", "ü", both) == b"\x00\xfc"
    assert decode("string", b"\xfc", {"deserializer.encoding": "latin-1"}) == "ü"
    assert encode("uuid", UUID, {"serializer.encoding": "utf-16-le"}) == str(UUID).encode("utf-16-le")
    with pytest.raises(SettingsError, match=r"serializer\.encoding = klingon: there is no such encoding"):
        load("string", is_key=False, settings={"serializer.encoding": "klingon"})
    with pytest.raises(SettingsError, match="say the order of bytes too, as in utf-16-be"):
        load("string", is_key=False, settings={"serializer.encoding": "UTF-16"})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("short", 2**15),
        ("integer", "7"),
        ("long", 1.5),
        ("float", 1e39),
        ("boolean", 1),
        ("uuid", str(UUID)),
        ("void", b""),
        ("string", b"bytes"),
        ("string", "\ud800"),
        ("json", {1, 2}),
    ],
)
def test_a_serializer_that_cannot_says_what_where_and_what_to_do(name: str, value: object) -> None:
    with pytest.raises(SerializationError) as caught:
        encode(name, value)
    text = str(caught.value)
    assert text.startswith("the value of a record for topic t, a")
    assert type(value).__name__ in text
    assert text.endswith("give what value.serializer can take, or another serializer")
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("short", b"\x00"),
        ("integer", b"\x00" * 8),
        ("boolean", b"\x02"),
        ("boolean", b""),
        ("uuid", UUID.bytes),
        ("uuid", UUID.hex.encode()),
        ("void", b""),
        ("string", b"\xff"),
        ("json", b"{"),
    ],
)
def test_bytes_that_cannot_be_read_raise_for_the_consumer_to_name(name: str, data: bytes) -> None:
    with pytest.raises(ValueError, match=r".+") as caught:
        decode(name, data)
    assert not isinstance(caught.value, SerializationError)


def test_what_cannot_serialize_is_refused_at_the_start() -> None:
    with pytest.raises(SettingsError, match=r"key\.serializer = 5: that is no serializer; one is a name \(bytes, "):
        as_serializer(5, is_key=True)  # type: ignore[arg-type]
    with pytest.raises(SettingsError, match=r"cannot load 'no\.such\.Class'"):
        as_serializer("no.such.Class", is_key=True)


@pytest.mark.parametrize(
    ("value", "name"), [("x", "string"), (True, "boolean"), (1, "long"), (1.5, "double"), ([], "json")]
)
def test_without_a_serializer_a_fitting_one_is_suggested(value: object, name: str) -> None:
    text = str(not_bytes("t", False, value))
    assert "the value of a record for topic t is a" in text
    assert text.endswith(f'value_serializer=, such as "{name}"')


def test_serializers_of_confluent_work_with_their_context() -> None:
    assert encode(with_context(ConfluentString()), "ü") == b"\xc3\xbc"

    def told(data: Any, context: Any) -> bytes:
        return f"{context.topic} {context.field} {context.headers}".encode()

    function = as_serializer(with_context(told), is_key=True)
    assert function is not None
    assert function("t", [("h", b"1")], 0) == b"t key [('h', b'1')]"
    assert decode(with_context(told), b"x") == b"t value ()"


POINT = {"type": "record", "name": "Point", "fields": [{"name": "x", "type": "int"}, {"name": "y", "type": "int"}]}
NEWER = {**POINT, "fields": [*POINT["fields"], {"name": "z", "type": "int", "default": 9}]}


def test_avro_is_what_fastavro_writes() -> None:
    out = io.BytesIO()
    fastavro.schemaless_writer(out, POINT, {"x": 1, "y": -2})
    assert encode(AvroSerializer(POINT), {"x": 1, "y": -2}) == out.getvalue()
    assert decode(AvroDeserializer(json.dumps(POINT)), out.getvalue()) == {"x": 1, "y": -2}


def test_avro_in_the_framing_of_a_registry() -> None:
    framed = encode(AvroSerializer(POINT, schema_id=70_000), {"x": 1, "y": -2})
    assert framed == struct.pack(">bI", 0, 70_000) + b"\x02\x03"
    assert decode(AvroDeserializer(schemas={70_000: json.dumps(POINT)}), framed) == {"x": 1, "y": -2}
    assert decode(AvroDeserializer(NEWER, schemas={70_000: POINT}), framed) == {"x": 1, "y": -2, "z": 9}


def test_each_schema_is_looked_up_once() -> None:
    asked: list[int] = []

    def look_up(schema_id: int) -> dict[str, Any]:
        asked.append(schema_id)
        return POINT

    deserializer = AvroDeserializer(schemas=look_up)
    for _ in range(3):
        assert decode(deserializer, b"\x00\x00\x00\x00\x05\x02\x03") == {"x": 1, "y": -2}
    assert asked == [5]


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"\x02\x03", "does not begin with a zero byte and a schema id"),
        (b"\x01\x00\x00\x00\x05\x02\x03", "does not begin with a zero byte"),
        (b"\x00\x00\x00\x00\x06\x02\x03", "there is no schema with the id 6"),
        (b"\x00\x00\x00\x00\x05\x02\x03\x04", "1 bytes follow the object"),
    ],
)
def test_avro_that_cannot_be_read_says_why(data: bytes, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        decode(AvroDeserializer(schemas={5: POINT}), data)


def test_avro_of_a_wrong_object_is_an_error_of_the_record() -> None:
    with pytest.raises(SerializationError, match="the value of a record for topic t, a dict, could not be serialized"):
        encode(AvroSerializer(POINT), {"x": "one", "y": 2})
    with pytest.raises(SettingsError, match="needs a schema, or schemas by their id"):
        AvroDeserializer()


def test_the_examples_of_the_module_work() -> None:
    assert doctest.testmod(serialization).failed == 0
