"""Keys and values to bytes and back.

A serializer is one of these:

- a short name: `bytes`, `string`, `json`, `short`, `integer`, `long`, `float`, `double`, `boolean`, `uuid`, `void`; all
  but `json` write what Java's serializers of these names write;
- a function of the object alone, such as `str.encode` or `lambda order: order.to_bytes()`;
- an object, or a class of such, with `serialize(topic, headers, data)`, and for consumers `deserialize(topic, headers,
  data)`. With `configure(settings, is_key)` it is handed the settings of the client before its first use, and with
  `close()` it is told about the end. A serializer may add to `headers`, which is a list.

None is never handed over: it stays None, which for a value means that the key is deleted (a tombstone).

>>> encode = as_serializer("integer", is_key=False)
>>> encode("numbers", [], 7)
b'\\x00\\x00\\x00\\x07'

What is not here: a client for a schema registry. `AvroSerializer` and `AvroDeserializer` write and read its framing if
they are given ids and schemas; JSON Schema and Protobuf in that framing are not covered. Serializers made for
confluent-kafka, its registry client among them, work through `with_context`.
"""

from __future__ import annotations

import codecs
import importlib
import json
import struct
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any, Final, Generic, Protocol, TypeVar, cast

from barnabas.base.errors import SettingsError
from barnabas.base.extras import how_to_install
from barnabas.base.settings import Plugin
from barnabas.client.errors import SerializationError
from barnabas.client.settings.plugins import DESERIALIZERS, SERIALIZERS
from barnabas.wire.compiler import Buffer

Headers = list[tuple[str, bytes | None]]
#: The headers of a record that was read do not change.
ReadHeaders = tuple[tuple[str, bytes | None], ...]

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)
T_contra = TypeVar("T_contra", contravariant=True)


class Serializer(Protocol[T_contra]):
    """Turns objects into bytes."""

    def serialize(self, topic: str, headers: Headers, data: T_contra) -> bytes | None: ...


class Deserializer(Protocol[T_co]):
    """Turns bytes into objects."""

    def deserialize(self, topic: str, headers: ReadHeaders, data: bytes) -> T_co: ...


#: What people may give: a short name, a function, an object, or a class.
AnySerializer = str | Plugin | Callable[[Any], Buffer | None] | Serializer[Any] | type[Serializer[Any]]
AnyDeserializer = str | Plugin | Callable[[bytes], Any] | Deserializer[Any] | type[Deserializer[Any]]

Serialize = Callable[[str, Headers, Any], bytes | None]
Deserialize = Callable[[str, ReadHeaders, bytes | None], Any]


class PlainSerializer(Generic[T]):
    """A serializer that needs the object alone, and the deserializer that needs the bytes alone."""

    def encode(self, data: T) -> bytes:
        raise NotImplementedError

    def decode(self, data: bytes) -> T:
        raise NotImplementedError

    def serialize(self, topic: str, headers: Headers, data: T) -> bytes:
        return self.encode(data)

    def deserialize(self, topic: str, headers: ReadHeaders, data: bytes) -> T:
        return self.decode(data)


class BytesSerde(PlainSerializer[bytes]):
    """Bytes as they are."""

    def encode(self, data: bytes) -> bytes:
        return bytes(memoryview(data))

    def decode(self, data: bytes) -> bytes:
        return data


class StringSerde(PlainSerializer[str]):
    """Text. The encoding is given, or set with `key.serializer.encoding`, `value.serializer.encoding` or
    `serializer.encoding` (`…deserializer…` for consumers).

    Text that cannot be encoded and bytes that cannot be decoded are errors; Java puts a question mark there instead.
    """

    def __init__(self, encoding: str = "utf-8") -> None:
        self._encoding = encoding

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        part = _part(is_key)
        for kind in ("serializer", "deserializer"):
            for name in (f"{part}.{kind}.encoding", f"{kind}.encoding"):
                if name in settings:
                    self._encoding = _known_encoding(name, str(settings[name]))
                    return

    @property
    def is_utf8(self) -> bool:
        return codecs.lookup(self._encoding).name == "utf-8"

    def encode(self, data: str) -> bytes:
        return data.encode(self._encoding)

    def decode(self, data: bytes) -> str:
        return str(data, self._encoding)


class JsonSerde(PlainSerializer[Any]):
    """JSON in UTF-8, without needless blanks."""

    def encode(self, data: Any) -> bytes:
        return json.dumps(data, ensure_ascii=False, separators=(",", ":")).encode()

    def decode(self, data: bytes) -> Any:
        return json.loads(data)


class _NumberSerde(PlainSerializer[T]):
    """A number of fixed width, most significant byte first."""

    _form: struct.Struct

    def encode(self, data: T) -> bytes:
        return self._form.pack(data)

    def decode(self, data: bytes) -> T:
        if len(data) != self._form.size:
            raise ValueError(f"{self._form.size} bytes are expected, and there are {len(data)}")
        return cast(T, self._form.unpack(data)[0])


class ShortSerde(_NumberSerde[int]):
    """Two bytes."""

    _form = struct.Struct(">h")


class IntegerSerde(_NumberSerde[int]):
    """Four bytes."""

    _form = struct.Struct(">i")


class LongSerde(_NumberSerde[int]):
    """Eight bytes."""

    _form = struct.Struct(">q")


class FloatSerde(_NumberSerde[float]):
    """Four bytes: Java's float, with about seven digits."""

    _form = struct.Struct(">f")


class DoubleSerde(_NumberSerde[float]):
    """Eight bytes: Java's double, Python's float."""

    _form = struct.Struct(">d")


class BooleanSerde(PlainSerializer[bool]):
    """One byte, 1 or 0."""

    def encode(self, data: bool) -> bytes:
        if data is True:
            return b"\x01"
        if data is False:
            return b"\x00"
        raise TypeError(f"True or False is expected, not {type(data).__name__}")

    def decode(self, data: bytes) -> bool:
        if data not in (b"\x00", b"\x01"):
            raise ValueError("one byte that is 0 or 1 is expected")
        return data == b"\x01"


class UuidSerde(PlainSerializer[uuid.UUID]):
    """The 36 characters of a UUID, as Java writes it; not its 16 bytes. The encoding is that of `StringSerde`."""

    def __init__(self) -> None:
        self._text = StringSerde()

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        self._text.configure(settings, is_key)

    def encode(self, data: uuid.UUID) -> bytes:
        if not isinstance(data, uuid.UUID):
            raise TypeError(f"a uuid.UUID is expected, not {type(data).__name__}")
        return self._text.encode(str(data))

    def decode(self, data: bytes) -> uuid.UUID:
        text = self._text.decode(data)
        read = uuid.UUID(text)
        if str(read) != text.lower():
            raise ValueError("the 36 characters of a UUID are expected")
        return read


class VoidSerde(PlainSerializer[None]):
    """Nothing: for keys or values that are always None."""

    def encode(self, data: None) -> bytes:
        raise TypeError(f"only None is expected, not {type(data).__name__}")

    def decode(self, data: bytes) -> None:
        raise ValueError(f"nothing is expected, and there are {len(data)} bytes")


BUILTIN: Final[dict[str, type[PlainSerializer[Any]]]] = {
    "bytes": BytesSerde,
    "string": StringSerde,
    "json": JsonSerde,
    "short": ShortSerde,
    "integer": IntegerSerde,
    "long": LongSerde,
    "float": FloatSerde,
    "double": DoubleSerde,
    "boolean": BooleanSerde,
    "uuid": UuidSerde,
    "void": VoidSerde,
}


def as_serializer(
    given: AnySerializer | None, *, is_key: bool, settings: Mapping[str, object] | None = None
) -> Serialize | None:
    """What a producer calls for each key or value, with topic, headers and object; None if bytes stay as they are.

    What goes wrong is raised as `SerializationError`, which names the topic and says what to do.
    """
    return serialize_with(load(given, is_key=is_key, settings=settings), is_key=is_key)


def as_deserializer(
    given: AnyDeserializer | None, *, is_key: bool, settings: Mapping[str, object] | None = None
) -> Deserialize | None:
    """What a consumer calls for each key or value, with topic, headers and bytes; None if bytes stay as they are.

    What it raises is left as it is: the consumer knows the offset, and makes a `SerializationError` that names it.
    """
    return deserialize_with(load(given, is_key=is_key, settings=settings, for_reading=True))


def serialize_with(serializer: Any, *, is_key: bool) -> Serialize | None:
    """`as_serializer` for what `load` gave."""
    if serializer is None:
        return None
    if isinstance(serializer, PlainSerializer):
        return _of_object_alone(serializer.encode, _part(is_key))
    if hasattr(serializer, "serialize"):
        return _with_headers(serializer.serialize, _part(is_key))
    return _of_object_alone(serializer, _part(is_key))


def deserialize_with(deserializer: Any) -> Deserialize | None:
    """`as_deserializer` for what `load` gave."""
    if deserializer is None:
        return None
    if hasattr(deserializer, "deserialize") and not isinstance(deserializer, PlainSerializer):
        read = deserializer.deserialize
        return lambda topic, headers, data: None if data is None else read(topic, headers, data)
    decode = deserializer.decode if isinstance(deserializer, PlainSerializer) else deserializer
    return lambda topic, headers, data: None if data is None else decode(data)


def load(
    given: object, *, is_key: bool, settings: Mapping[str, object] | None = None, for_reading: bool = False
) -> Any:
    """The object or function behind what a setting says, made and configured; None for bytes as they are.

    A client keeps it to close it and to tell it the cluster's id, if it wants that.
    """
    kind = "deserializer" if for_reading else "serializer"
    method = "deserialize" if for_reading else "serialize"
    plugin = _plugin(given, DESERIALIZERS if for_reading else SERIALIZERS)
    target = plugin.resolve(BUILTIN) if isinstance(plugin, Plugin) else plugin
    if isinstance(target, type) and hasattr(target, method):
        target = target()
    if target is None or type(target) is BytesSerde:
        return None
    if not callable(target) and not hasattr(target, method):
        sample = "a function of the bytes, such as json.loads" if for_reading else "a function that makes bytes"
        raise SettingsError(
            f"{_part(is_key)}.{kind} = {target!r}: that is no {kind}; one is a name ({', '.join(BUILTIN)}), {sample}, "
            f"or an object or class with {method}(topic, headers, data)"
        )
    if hasattr(target, "configure"):
        target.configure(settings or {}, is_key)
    return target


def not_bytes(topic: str, is_key: bool, data: object) -> SerializationError:
    """What to raise where there is no serializer and an object is not bytes."""
    part = _part(is_key)
    return SerializationError(
        f"the {part} of a record for topic {topic} is {_article(data)} and there is no {part}.serializer: send bytes, "
        f"or make the producer with {part}_serializer=, such as {_suggestion(data)}"
    )


@dataclass(frozen=True, slots=True)
class SerializationContext:
    """What serializers made for confluent-kafka are told beside the object; `field` is `key` or `value`."""

    topic: str
    field: str
    headers: Any


class _WithContext(Generic[T]):
    def __init__(self, function: Callable[[Any, Any], T]) -> None:
        self._function = function
        self._field = "value"

    def configure(self, settings: Mapping[str, object], is_key: bool) -> None:
        self._field = _part(is_key)

    def serialize(self, topic: str, headers: Headers, data: Any) -> T:
        return self._function(data, SerializationContext(topic, self._field, headers))

    def deserialize(self, topic: str, headers: ReadHeaders, data: bytes) -> T:
        return self._function(data, SerializationContext(topic, self._field, headers))


def with_context(function: Callable[[Any, Any], T]) -> _WithContext[T]:
    """A serializer or deserializer from a function of the object and a context, as those of confluent-kafka are.

    >>> encode = as_serializer(with_context(lambda text, context: f"{context.topic} {text}".encode()), is_key=False)
    >>> encode("greetings", [], "hello")
    b'greetings hello'
    """
    return _WithContext(function)


Schema = Mapping[str, Any] | str | list[Any]
_FRAME: Final = struct.Struct(">bI")
_MAGIC: Final = 0


class AvroSerializer:
    """Avro by a schema, bare or, with `schema_id`, in the framing of a schema registry. Needs fastavro."""

    def __init__(self, schema: Schema, *, schema_id: int | None = None) -> None:
        self._avro = _fastavro()
        self._schema = _parsed(self._avro, schema)
        self._prefix = b"" if schema_id is None else _FRAME.pack(_MAGIC, schema_id)

    def serialize(self, topic: str, headers: Headers, data: Any) -> bytes:
        out = BytesIO()
        out.write(self._prefix)
        self._avro.schemaless_writer(out, self._schema, data)
        return out.getvalue()


class AvroDeserializer:
    """Avro by a schema, bare or, with `schemas`, in the framing of a schema registry. Needs fastavro.

    `schemas` gives the schema of an id: a dict, or a function that looks it up; each id is asked for once. If `schema`
    is given beside it, objects come in that form, as far as Avro's rules allow.
    """

    def __init__(
        self, schema: Schema | None = None, *, schemas: Mapping[int, Schema] | Callable[[int], Schema] | None = None
    ) -> None:
        if schema is None and schemas is None:
            raise SettingsError("an Avro deserializer needs a schema, or schemas by their id")
        self._avro = _fastavro()
        self._schema = None if schema is None else _parsed(self._avro, schema)
        self._look_up = schemas.__getitem__ if isinstance(schemas, Mapping) else schemas
        self._known: dict[int, Any] = {}

    def deserialize(self, topic: str, headers: ReadHeaders, data: bytes) -> Any:
        source = BytesIO(data)
        if self._look_up is None:
            read = self._avro.schemaless_reader(source, self._schema, None)
        else:
            read = self._avro.schemaless_reader(source, self._writer_schema(source.read(_FRAME.size)), self._schema)
        rest = len(data) - source.tell()
        if rest:
            raise ValueError(f"{rest} bytes follow the object: it was written with another schema, or with framing")
        return read

    def _writer_schema(self, frame: bytes) -> Any:
        if len(frame) < _FRAME.size or frame[0] != _MAGIC:
            raise ValueError("it does not begin with a zero byte and a schema id, as a schema registry's framing does")
        schema_id: int = _FRAME.unpack(frame)[1]
        if schema_id not in self._known:
            try:
                schema = cast(Callable[[int], Schema], self._look_up)(schema_id)
            except LookupError as error:
                raise ValueError(f"there is no schema with the id {schema_id}") from error
            self._known[schema_id] = _parsed(self._avro, schema)
        return self._known[schema_id]


def _of_object_alone(encode: Callable[[Any], object], part: str) -> Serialize:
    def serialize(topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None:
            return None
        try:
            encoded = encode(data)
        except Exception as error:
            raise _failed(topic, part, data, error) from error
        return encoded if type(encoded) is bytes else _checked(topic, part, encoded)

    return serialize


def _with_headers(encode: Callable[[str, Headers, Any], object], part: str) -> Serialize:
    def serialize(topic: str, headers: Headers, data: Any) -> bytes | None:
        if data is None:
            return None
        try:
            encoded = encode(topic, headers, data)
        except Exception as error:
            raise _failed(topic, part, data, error) from error
        return encoded if type(encoded) is bytes else _checked(topic, part, encoded)

    return serialize


def _failed(topic: str, part: str, data: object, error: Exception) -> SerializationError:
    return SerializationError(
        f"the {part} of a record for topic {topic}, {_article(data)}, could not be serialized: {type(error).__name__}: "
        f"{error}; give what {part}.serializer can take, or another serializer"
    )


def _checked(topic: str, part: str, encoded: object) -> bytes | None:
    if encoded is None or isinstance(encoded, bytes):
        return encoded
    if isinstance(encoded, bytearray | memoryview):
        return bytes(encoded)
    raise SerializationError(
        f"the serializer of {part}s made {_article(encoded)} for topic {topic}; it must make bytes, or None for none"
    )


def _plugin(given: object, java_names: Mapping[str, str]) -> object:
    """Names as settings know them; Java's names of classes count as ours."""
    if not isinstance(given, str):
        return given
    for short, java in java_names.items():
        if given in (short, java):
            return Plugin(short)
    return Plugin(given)


def _part(is_key: bool) -> str:
    return "key" if is_key else "value"


def _article(data: object) -> str:
    name = type(data).__name__
    return f"{'an' if name[0] in 'aeiouAEIO' else 'a'} {name}"


def _suggestion(data: object) -> str:
    for kind, name in ((str, "string"), (bool, "boolean"), (int, "long"), (float, "double"), (uuid.UUID, "uuid")):
        if isinstance(data, kind):
            return f'"{name}"'
    return '"json"'


def _known_encoding(name: str, encoding: str) -> str:
    try:
        known = codecs.lookup(encoding).name
    except LookupError:
        raise SettingsError(f"{name} = {encoding}: there is no such encoding; utf-8 is the usual one") from None
    if known in ("utf-16", "utf-32"):
        # Java takes the order of bytes that is not this machine's.
        raise SettingsError(f"{name} = {encoding}: say the order of bytes too, as in {known}-be")
    return known


def _fastavro() -> Any:
    try:
        return importlib.import_module("fastavro")
    except ImportError:
        raise SettingsError(f"Avro needs fastavro: {how_to_install('avro')}") from None


def _parsed(avro: Any, schema: Schema) -> Any:
    """A schema may be text, as a registry gives it, or what json makes of it."""
    if isinstance(schema, str) and schema.lstrip().startswith(("{", "[", '"')):
        schema = json.loads(schema)
    return avro.parse_schema(schema)
