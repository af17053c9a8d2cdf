"""Spark's schema language, read without a session: a worker has none, and a bad schema should be told of at once.

id long NOT NULL, at timestamp COMMENT 'when', tags array<string>, who struct<name: string, age: int>
"""

from __future__ import annotations

import re
from typing import Final, NoReturn

from pyspark.sql import types as spark

from barnabas.spark.core.errors import OptionError

_TOKEN: Final = re.compile(
    r"""\s*(?:
        (?P<word>\w+)
      | `(?P<quoted>(?:[^`]|``)+)`
      | (?P<text>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")
      | (?P<sign>[<>(),:])
    )""",
    re.VERBOSE | re.DOTALL,
)

_PLAIN: Final[dict[str, type[spark.DataType]]] = {
    "boolean": spark.BooleanType,
    "tinyint": spark.ByteType,
    "byte": spark.ByteType,
    "smallint": spark.ShortType,
    "short": spark.ShortType,
    "int": spark.IntegerType,
    "integer": spark.IntegerType,
    "bigint": spark.LongType,
    "long": spark.LongType,
    "float": spark.FloatType,
    "real": spark.FloatType,
    "double": spark.DoubleType,
    "string": spark.StringType,
    "binary": spark.BinaryType,
    "date": spark.DateType,
    "timestamp": spark.TimestampType,
    "timestamp_ltz": spark.TimestampType,
    "timestamp_ntz": spark.TimestampNTZType,
}

_DECIMALS: Final = ("decimal", "dec", "numeric")

_KNOWN: Final = (
    "boolean, byte, short, int, long, float, double, decimal(p,s), string, binary, date, timestamp, timestamp_ntz, "
    "array<…>, map<string,…>, struct<…>"
)

_ESCAPES: Final = {"n": "\n", "t": "\t", "r": "\r", "0": "\0", "b": "\b", "Z": "\x1a"}


def parse_ddl(text: str) -> spark.StructType:
    """The columns that a text like `id long, tags array<string>` describes. Raises OptionError, with the place."""
    return _Parser(text).whole()


class _Parser:
    """One pass over the tokens; `_kind` and `_text` are those of the next one, `_at` is where it begins."""

    def __init__(self, source: str) -> None:
        self._source = source
        self._end = 0
        self._advance()

    def whole(self) -> spark.StructType:
        if self._kind == "end":
            self._fail("there are no columns")
        # Spark takes a struct's own name for its columns, and so do texts that `simpleString()` has made.
        if self._is_word("struct") and self._source[self._end :].lstrip().startswith("<"):
            self._advance()
            found = self._struct()
        else:
            found = self._fields("end")
        if self._kind != "end":
            self._fail("the schema should end here")
        return found

    def _fields(self, last: str) -> spark.StructType:
        fields: list[spark.StructField] = []
        names: set[str] = set()
        while True:
            if self._kind not in ("word", "quoted"):
                self._fail("a column's name should be here")
            if self._text in names:
                self._fail(f"there are two columns called {self._text!r}")
            names.add(self._text)
            fields.append(self._field())
            if self._kind == last or (self._kind == "sign" and self._text == last):
                return spark.StructType(fields)
            self._expect(",", f"a comma or {'the end' if last == 'end' else repr(last)} should be here")

    def _field(self) -> spark.StructField:
        name = self._text
        self._advance()
        if self._kind == "sign" and self._text == ":":
            self._advance()
        data_type = self._type(name)
        is_nullable = True
        metadata: dict[str, str] = {}
        if self._is_word("not"):
            self._advance()
            if not self._is_word("null"):
                self._fail("NULL should follow NOT")
            self._advance()
            is_nullable = False
        if self._is_word("comment"):
            self._advance()
            if self._kind != "text":
                self._fail("a comment in quotes should be here")
            metadata["comment"] = _unquoted(self._text)
            self._advance()
        return spark.StructField(name, data_type, is_nullable, metadata)

    def _type(self, of: str) -> spark.DataType:
        if self._kind != "word":
            self._fail(f"the type of {of!r} should be here: {_KNOWN}")
        name = self._text.lower()
        if name in _PLAIN:
            self._advance()
            return _PLAIN[name]()
        if name in _DECIMALS:
            return self._decimal()
        if name not in ("array", "map", "struct"):
            self._fail(f"there is no type {self._text!r} that values can be decoded to; there are {_KNOWN}")
        self._advance()
        if name == "struct":
            return self._struct()
        self._expect("<", f"'<' should follow {name}")
        inner: spark.DataType
        if name == "array":
            inner = spark.ArrayType(self._type(f"{of}'s elements"))
        else:
            if not self._is_word("string"):
                self._fail("the keys of a map must be of type string, as they are in JSON and Avro")
            self._advance()
            self._expect(",", "a comma and the type of the values should follow the type of the keys")
            inner = spark.MapType(spark.StringType(), self._type(f"{of}'s values"))
        self._expect(">", f"'>' should end the {name}")
        return inner

    def _struct(self) -> spark.StructType:
        self._expect("<", "'<' should follow struct")
        found = self._fields(">")
        self._advance()
        return found

    def _decimal(self) -> spark.DecimalType:
        at = self._at
        self._advance()
        if not (self._kind == "sign" and self._text == "("):
            return spark.DecimalType(10, 0)
        self._advance()
        precision, scale = self._number(), 0
        if self._kind == "sign" and self._text == ",":
            self._advance()
            scale = self._number()
        self._expect(")", "')' should end the decimal")
        if not 1 <= precision <= 38 or scale > precision:
            self._fail(
                f"decimal({precision},{scale}) must have 1 to 38 digits, and no more of them after the point", at
            )
        return spark.DecimalType(precision, scale)

    def _number(self) -> int:
        if self._kind != "word" or not (self._text.isascii() and self._text.isdigit()) or len(self._text) > 4:
            self._fail("a number of digits should be here")
        number = int(self._text)
        self._advance()
        return number

    def _is_word(self, word: str) -> bool:
        return self._kind == "word" and self._text.lower() == word

    def _expect(self, sign: str, otherwise: str) -> None:
        if self._kind != "sign" or self._text != sign:
            self._fail(otherwise)
        self._advance()

    def _advance(self) -> None:
        match = _TOKEN.match(self._source, self._end)
        if match is None:
            rest = self._source[self._end :]
            self._at = self._end + len(rest) - len(rest.lstrip())
            self._kind, self._text = "end", ""
            if self._at < len(self._source):
                self._fail(f"{self._source[self._at]!r} has no meaning here")
            return
        self._kind = match.lastgroup or "end"
        self._at, self._end = match.start(self._kind), match.end()
        self._text = match[self._kind].replace("``", "`") if self._kind == "quoted" else match[self._kind]

    def _fail(self, explanation: str, at: int | None = None) -> NoReturn:
        at = self._at if at is None else at
        around = f"{self._source[max(0, at - 30) : at]} ⟶{self._source[at : at + 30]}"
        raise OptionError(f"valueSchema at character {at + 1}, {around.strip()!r}: {explanation}.")


def _unquoted(text: str) -> str:
    return re.sub(r"\\(.)", lambda match: _ESCAPES.get(match[1], match[1]), text[1:-1], flags=re.DOTALL)
