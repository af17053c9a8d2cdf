"""JSON record by record. What is right and what is a bad record is said here; `json_values` is this, faster.

The rules are those of Spark's `from_json` where a value is taken: names are compared as they are, a field that is
missing or null is null, others are passed over, of two with the same name the last counts, a column of type string
takes any JSON as its text, timestamps may be seconds since 1970. A value is bad, and bad as a whole, where `from_json`
would guess or leave out: what follows the document, a document that is no object, an empty value, dates that are not
ISO 8601, null in a column that is NOT NULL.
"""

from __future__ import annotations

import re
from base64 import b64decode
from binascii import Error as Base64Error
from collections.abc import Callable
from decimal import ROUND_HALF_UP, Context, Decimal, InvalidOperation
from json import JSONDecodeError, JSONDecoder
from json import decoder as json_decoder
from typing import Any, Final, TypeAlias

import pyarrow as pa
from pyspark.sql import types as spark

from barnabas.spark.decoding.bad_records import BadKind, BadValueError

#: How deep arrays and objects may lie in each other; Python's own parser and Spark's go to about a thousand.
MAX_DEPTH: Final = 512

#: Reads a value that begins at an index of a text, and tells where it ends.
Reader: TypeAlias = Callable[[str, int], tuple[Any, int]]

_BLANKS: Final = frozenset(" \t\n\r")
_PLAIN_NAME: Final = re.compile(r'[ \t\n\r]*"([^"\\\x00-\x1f]*)"[ \t\n\r]*:[ \t\n\r]*').match
_COMMA_OR_BRACE: Final = re.compile(r"[ \t\n\r]*([,}])").match
_NUMBER: Final = re.compile(r"-?(?:0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?").match
_DECIMAL_TEXT: Final = re.compile(r"[-+]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][-+]?[0-9]+)?").fullmatch
_STRING_BYTES: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_TIME: Final = re.compile(
    r"([0-9]{4}-[0-9]{2}-[0-9]{2}(?:[T ][0-9]{2}(?::[0-9]{2}(?::[0-9]{2}(?:\.[0-9]{1,6})?)?)?)?)"
    r"(?<=[0-9])(?:(?<=\.[0-9]{6})[0-9]{1,3})?(Z|[-+][0-9]{2}(?::?[0-9]{2})?)?"
).fullmatch
_DATE: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}").fullmatch

# Numbers stay text: an integer of ten thousand digits in a field that nobody asked for is no reason to fail.
_scan: Final[Reader] = vars(JSONDecoder(parse_int=str, parse_float=str))["scan_once"]
_scan_string: Final[Callable[[str, int, bool], tuple[str, int]]] = vars(json_decoder)["scanstring"]

_INTEGERS: Final[dict[type[spark.DataType], int]] = {
    spark.ByteType: 8,
    spark.ShortType: 16,
    spark.IntegerType: 32,
    spark.LongType: 64,
}
_CONSTANTS: Final = {"NaN": float("nan"), "Infinity": float("inf"), "-Infinity": float("-inf")}
_WORDS: Final = _CONSTANTS | {"+INF": float("inf"), "+Infinity": float("inf"), "-INF": float("-inf")}
_LARGEST_FLOAT: Final = 3.4028235677973366e38  # what rounds to infinity in four bytes


def compile_reader(schema: spark.StructType) -> Callable[[bytes], dict[str, Any]]:
    """A function that makes a dict of a value, as `pyarrow.array` takes it for the schema's Arrow type.

    It raises BadValueError.
    """
    read = _struct(schema, "")

    def read_value(value: bytes) -> dict[str, Any]:
        try:
            text = value.decode()
        except UnicodeDecodeError as error:
            raise BadValueError(BadKind.NOT_UTF8, f"byte {error.start} is not UTF-8") from None
        begin = _after_blanks(text, 0)
        if begin == len(text):
            raise BadValueError(BadKind.EMPTY, "the value is empty; JSON was expected")
        if is_too_deep(value):
            raise BadValueError(BadKind.JSON_SYNTAX, f"arrays and objects lie more than {MAX_DEPTH} deep in each other")
        if text[begin] != "{":
            _skip(text, begin)
            raise BadValueError(BadKind.JSON_TYPE, f"a JSON object was expected, not {_kind_of(text, begin)}")
        row: dict[str, Any]
        row, end = read(text, begin)
        end = _after_blanks(text, end)
        if end != len(text):
            raise BadValueError(BadKind.JSON_SYNTAX, f"something follows the JSON object, at character {end + 1}")
        return row

    return read_value


def is_too_deep(value: bytes) -> bool:
    if value.count(b"[") + value.count(b"{") <= MAX_DEPTH:
        return False
    brackets = _STRING_BYTES.sub(b"", value).translate(None, _NO_BRACKETS)
    for _ in range(MAX_DEPTH):
        shorter = brackets.replace(b"[]", b"").replace(b"{}", b"")
        if len(shorter) == len(brackets):
            # Nothing left, or brackets that do not match: then no deeper than there are of those that open.
            return shorter.count(b"[") + shorter.count(b"{") > MAX_DEPTH
        brackets = shorter
    return bool(brackets)


def base64_bytes(text: str) -> bytes | None:
    try:
        return b64decode(text, validate=True)
    except (Base64Error, ValueError):
        return None


def _syntax(explanation: str, at: int) -> BadValueError:
    return BadValueError(BadKind.JSON_SYNTAX, f"{explanation}, at character {at + 1}")


def _skip(text: str, at: int) -> int:
    """Where the value ends that begins here."""
    try:
        return _scan(text, at)[1]
    except StopIteration as stop:
        raise _syntax("a JSON value was expected", stop.value) from None
    except JSONDecodeError as error:
        raise _syntax(error.msg, error.pos) from None
    except RecursionError:
        raise _syntax("arrays and objects lie too deep in each other", at) from None


def _string(text: str, at: int) -> tuple[str, int]:
    """The string whose opening quote is here."""
    try:
        return _scan_string(text, at + 1, True)
    except JSONDecodeError as error:
        raise _syntax(error.msg, error.pos) from None


def _kind_of(text: str, at: int) -> str:
    return {'"': "a string", "{": "an object", "[": "an array", "t": "true", "f": "false", "n": "null"}.get(
        text[at : at + 1], "a number"
    )


def _wrong(path: str, expected: str, text: str, at: int) -> BadValueError:
    end = _skip(text, at)
    shown = text[at:end] if end - at <= 40 else text[at : at + 40] + "…"
    shown = shown.encode("unicode_escape").decode() if not shown.isprintable() else shown
    return BadValueError(BadKind.JSON_TYPE, f"{path}: {expected} was expected, not {_kind_of(text, at)}: {shown}")


def _reader(data_type: spark.DataType, path: str) -> Reader:
    """A reader of the type that takes null too."""
    read = _strict_reader(data_type, path)

    def read_or_null(text: str, at: int) -> tuple[Any, int]:
        if text.startswith("null", at):
            return None, at + 4
        return read(text, at)

    return read_or_null


def _strict_reader(data_type: spark.DataType, path: str) -> Reader:
    if type(data_type) in _INTEGERS:
        return _integer(data_type, path)
    if isinstance(data_type, spark.StringType):
        return _any_as_text(path)
    if isinstance(data_type, spark.BooleanType):
        return _boolean(path)
    if isinstance(data_type, (spark.FloatType, spark.DoubleType)):
        return _floating(isinstance(data_type, spark.FloatType), path)
    if isinstance(data_type, spark.DecimalType):
        return _decimal(data_type, path)
    if isinstance(data_type, spark.BinaryType):
        return _text(path, "binary data in base64", base64_bytes)
    if isinstance(data_type, spark.DateType):
        return _text(path, "a date like 2026-01-31", _days)
    if isinstance(data_type, spark.TimestampType):
        return _timestamp(path)
    if isinstance(data_type, spark.TimestampNTZType):
        return _text(path, "a time like 2026-01-31T12:00:00, without a zone", _local_micros)
    if isinstance(data_type, spark.ArrayType):
        return _array(data_type, path)
    if isinstance(data_type, spark.MapType):
        return _map(data_type, path)
    if isinstance(data_type, spark.StructType):
        return _struct(data_type, path)
    raise TypeError(f"there is no JSON form of {data_type.simpleString()}")


def _boolean(path: str) -> Reader:
    def read(text: str, at: int) -> tuple[bool, int]:
        if text.startswith("true", at):
            return True, at + 4
        if text.startswith("false", at):
            return False, at + 5
        raise _wrong(path, "true or false", text, at)

    return read


def _integer(data_type: spark.DataType, path: str) -> Reader:
    bits = _INTEGERS[type(data_type)]
    lowest, highest = -(1 << bits - 1), (1 << bits - 1) - 1
    name = data_type.simpleString()

    def read(text: str, at: int) -> tuple[int, int]:
        match = _NUMBER(text, at)
        if match is None or match[1] or match[2]:
            raise _wrong(path, f"a whole number ({name})", text, at)
        digits = match[0]
        if len(digits) <= 20 and lowest <= (number := int(digits)) <= highest:
            return number, match.end()
        raise BadValueError(BadKind.JSON_RANGE, f"{path}: {digits[:40]} is out of the range of {name}")

    return read


def _floating(is_short: bool, path: str) -> Reader:
    def read(text: str, at: int) -> tuple[float, int]:
        match = _NUMBER(text, at)
        if match is not None:
            number = float(match[0])
            if is_short and abs(number) >= _LARGEST_FLOAT:
                number = _CONSTANTS["Infinity"] if number > 0 else _CONSTANTS["-Infinity"]
            return number, match.end()
        if text.startswith('"', at):
            word, end = _string(text, at)
            if word in _WORDS:
                return _WORDS[word], end
        for word, constant in _CONSTANTS.items():
            if text.startswith(word, at):
                return constant, at + len(word)
        raise _wrong(path, "a number", text, at)

    return read


def _decimal(data_type: spark.DecimalType, path: str) -> Reader:
    digits = data_type.precision
    unit = Decimal(1).scaleb(-data_type.scale)
    # What is only too precise is rounded, once; what is too long even then is bad.
    context = Context(prec=digits, rounding=ROUND_HALF_UP, Emax=999_999, Emin=-999_999)

    def read(text: str, at: int) -> tuple[Decimal, int]:
        match = _NUMBER(text, at)
        if match is not None:
            number, end = match[0], match.end()
        elif text.startswith('"', at):
            number, end = _string(text, at)
            if _DECIMAL_TEXT(number) is None:
                raise _wrong(path, "a number", text, at)
        else:
            raise _wrong(path, "a number", text, at)
        try:
            return Decimal(number).quantize(unit, context=context), end
        except InvalidOperation:
            explanation = f"{path}: {number[:40]} does not fit into {data_type.simpleString()}"
            raise BadValueError(BadKind.JSON_RANGE, explanation) from None

    return read


def _any_as_text(path: str) -> Reader:
    def read(text: str, at: int) -> tuple[str, int]:
        if text.startswith('"', at):
            found, end = _string(text, at)
            if not found.isascii():
                _check_surrogates(found, path)
            return found, end
        end = _skip(text, at)
        return text[at:end], end

    return read


def _check_surrogates(found: str, path: str) -> None:
    try:
        found.encode()
    except UnicodeEncodeError:
        raise BadValueError(BadKind.NOT_UTF8, f"{path}: half of a surrogate pair, which is no character") from None


def _text(path: str, expected: str, convert: Callable[[str], Any]) -> Reader:
    def read(text: str, at: int) -> tuple[Any, int]:
        if text.startswith('"', at):
            found, end = _string(text, at)
            converted = convert(found)
            if converted is not None:
                return converted, end
        raise _wrong(path, expected, text, at)

    return read


def _timestamp(path: str) -> Reader:
    read_text = _text(path, "a time like 2026-01-31T12:00:00Z, or seconds since 1970", _micros)
    lowest, highest = -(1 << 63) // 1_000_000, (1 << 63) // 1_000_000

    def read(text: str, at: int) -> tuple[int, int]:
        match = _NUMBER(text, at)
        if match is None or match[1] or match[2]:
            return read_text(text, at)
        if len(match[0]) <= 20 and lowest < (seconds := int(match[0])) < highest:
            return seconds * 1_000_000, match.end()
        raise BadValueError(BadKind.JSON_RANGE, f"{path}: {match[0][:40]} seconds are out of the range of timestamp")

    return read


# Arrow reads dates and times here as it does in whole columns: two readings of a calendar would part sooner or later.


def _days(text: str) -> int | None:
    if _DATE(text) is None:
        return None
    try:
        days: int = pa.scalar(text).cast(pa.date32()).value
    except pa.ArrowInvalid:
        return None
    return days


def _micros(text: str) -> int | None:
    match = _TIME(text)
    if match is None:
        return None
    try:
        # Without a zone it is UTC: a worker does not know the session's.
        kind = pa.timestamp("us", tz="UTC") if match[2] else pa.timestamp("us")
        micros: int = pa.scalar(match[1] + (match[2] or "")).cast(kind).value
    except pa.ArrowInvalid:
        return None
    return micros


def _local_micros(text: str) -> int | None:
    match = _TIME(text)
    return None if match is None or match[2] else _micros(text)


def _array(data_type: spark.ArrayType, path: str) -> Reader:
    read_element = _reader(data_type.elementType, f"{path}[]")

    def read(text: str, at: int) -> tuple[list[Any], int]:
        if not text.startswith("[", at):
            raise _wrong(path, "an array", text, at)
        elements: list[Any] = []
        at = _after_blanks(text, at + 1)
        if text.startswith("]", at):
            return elements, at + 1
        while True:
            element, at = read_element(text, at)
            elements.append(element)
            at = _after_blanks(text, at)
            if text.startswith("]", at):
                return elements, at + 1
            if not text.startswith(",", at):
                raise _syntax("a comma or ']' was expected", at)
            at = _after_blanks(text, at + 1)

    return read


def _map(data_type: spark.MapType, path: str) -> Reader:
    read_entry = _reader(data_type.valueType, f"{path}{{}}")

    def read(text: str, at: int) -> tuple[list[tuple[str, Any]], int]:
        if not text.startswith("{", at):
            raise _wrong(path, "an object", text, at)
        entries: dict[str, Any] = {}

        def take(name: str, at: int) -> int:
            if not name.isascii():
                _check_surrogates(name, path)
            entries[name], at = read_entry(text, at)
            return at

        at = _object(text, at, take)
        return list(entries.items()), at

    return read


def _struct(data_type: spark.StructType, path: str) -> Reader:
    readers = {
        field.name: _reader(field.dataType, f"{path}.{field.name}" if path else field.name)
        for field in data_type.fields
    }
    needed = [field.name for field in data_type.fields if not field.nullable]

    def read(text: str, at: int) -> tuple[dict[str, Any], int]:
        if not text.startswith("{", at):
            raise _wrong(path, "an object", text, at)
        row: dict[str, Any] = {}

        def take(name: str, at: int) -> int:
            reader = readers.get(name)
            if reader is None:
                return _skip(text, at)
            row[name], at = reader(text, at)
            return at

        at = _object(text, at, take)
        for name in needed:
            if row.get(name) is None:
                whole = f"{path}.{name}" if path else name
                raise BadValueError(BadKind.JSON_MISSING, f"{whole} is missing or null, and NOT NULL in the schema")
        return row, at

    return read


def _object(text: str, at: int, take: Callable[[str, int], int]) -> int:
    """Hands every name and the place of its value to `take`, which tells where that ends. Returns the object's end."""
    at = _after_blanks(text, at + 1)
    if text.startswith("}", at):
        return at + 1
    while True:
        match = _PLAIN_NAME(text, at)
        if match is not None:
            at = take(match[1], match.end())
        else:
            name, at = _odd_name(text, _after_blanks(text, at))
            at = take(name, at)
        match = _COMMA_OR_BRACE(text, at)
        if match is None:
            raise _syntax("a comma or '}' was expected", _after_blanks(text, at))
        at = match.end()
        if match[1] == "}":
            return at


def _odd_name(text: str, at: int) -> tuple[str, int]:
    """A name with escapes, or what is none, and where its value begins."""
    if not text.startswith('"', at):
        raise _syntax("a name in double quotes was expected", at)
    name, at = _string(text, at)
    at = _after_blanks(text, at)
    if not text.startswith(":", at):
        raise _syntax("a colon was expected", at)
    return name, _after_blanks(text, at + 1)


def _after_blanks(text: str, at: int) -> int:
    while text[at : at + 1] in _BLANKS:
        at += 1
    return at
