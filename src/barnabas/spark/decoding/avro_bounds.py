"""What a few bytes of Avro can do to a worker: fill its memory, or its stack, of which it would die.

An item of an array takes a byte at least, and so the size of a value bounds what it can hold; except for nulls and
records without fields, of which ten bytes can announce billions. And where a type contains itself, a value can be as
deep as it is long, which fastavro does not bear. Values of such schemas are looked through before they are decoded.
"""

from __future__ import annotations

from typing import Final

from barnabas.spark.decoding.avro_schemas import ParsedSchema, Schema, kind_of, resolved
from barnabas.spark.decoding.bad_records import BadKind, BadValueError

#: What nobody will miss, and any worker can hold.
MOST_EMPTY_ITEMS: Final = 100_000

_SIZES: Final = {"null": 0, "boolean": 1, "float": 4, "double": 8}


def needs_check(parsed: ParsedSchema) -> bool:
    """Whether values of this schema must be looked through. Few schemas are like that."""
    return any(_is_unbounded(schema, parsed.named, ()) for schema in (parsed.schema, *parsed.named.values()))


def _is_unbounded(schema: Schema, named: dict[str, Schema], within: tuple[str, ...]) -> bool:
    if isinstance(schema, str):
        # A type is written out where it comes first, so within itself there is only its name.
        return schema in within
    if isinstance(schema, list):
        return any(_is_unbounded(branch, named, within) for branch in schema)
    if schema["type"] == "array" and _is_empty(schema["items"], named, ()):
        return True
    if "name" in schema:
        within = (*within, schema["name"])
    parts = [each["type"] for each in schema.get("fields", ())]
    parts += [schema[key] for key in ("type", "items", "values") if key in schema]
    return any(_is_unbounded(part, named, within) for part in parts)


def _is_empty(schema: Schema, named: dict[str, Schema], within: tuple[str, ...]) -> bool:
    schema = resolved(schema, named)
    if isinstance(schema, list):
        return False
    kind = kind_of(schema)
    if kind == "record":
        inner = (*within, schema["name"])
        return schema["name"] not in within and all(_is_empty(each["type"], named, inner) for each in schema["fields"])
    return kind == "null" or (kind == "fixed" and schema["size"] == 0)


def check_bounds(parsed: ParsedSchema, value: bytes, start: int) -> None:
    """Raise BadValueError if a value is too deep, or has more items than bytes and more than `MOST_EMPTY_ITEMS`.

    Of bytes that are no Avro it tells only what whoever decodes them does not.
    """
    try:
        Walk(parsed.named, value, start).past(parsed.schema)
    except RecursionError:
        raise _bad("its types lie too deep in each other") from None
    except IndexError:
        pass


def _bad(explanation: str) -> BadValueError:
    return BadValueError(BadKind.AVRO, explanation)


class Walk:
    """Goes through a value as its schema says, and makes nothing of it."""

    def __init__(self, named: dict[str, Schema], value: bytes, start: int) -> None:
        self._named = named
        self._value = value
        self.place = start
        self._items_left = max(len(value), MOST_EMPTY_ITEMS)

    def past(self, schema: Schema) -> None:
        schema = resolved(schema, self._named)
        if isinstance(schema, list):
            self.past(schema[self._index()])
            return
        kind = kind_of(schema)
        if kind == "record":
            for each in schema["fields"]:
                self.past(each["type"])
        elif kind in ("array", "map"):
            self._past_items(schema, kind)
        elif kind in ("int", "long"):
            self._number()
        elif kind == "enum":
            self._index()
        elif kind in ("bytes", "string"):
            self._step(self._number())
        else:
            self._step(schema["size"] if kind == "fixed" else _SIZES[kind])

    def _past_items(self, schema: Schema, kind: str) -> None:
        while count := self._number():
            if count < 0:
                self._number()  # how many bytes the block has
            self._items_left -= abs(count)
            if self._items_left < 0:
                raise _bad(f"it says that an array has {abs(count)} items, which a value of this size cannot hold")
            for _ in range(abs(count)):
                if kind == "map":
                    self._step(self._number())
                self.past(schema["items" if kind == "array" else "values"])

    def _step(self, size: int) -> None:
        if not 0 <= size <= len(self._value) - self.place:
            raise IndexError
        self.place += size

    def _index(self) -> int:
        """Of a branch or a symbol. Python, and so fastavro, would count a negative one from the end."""
        index = self._number()
        if index < 0:
            raise _bad(f"it names a branch of a union, or a symbol of an enum, by the negative number {index}")
        return index

    def _number(self) -> int:
        """Seven bits a byte, the lowest first; the sign is the last of them."""
        number = shift = 0
        while True:
            byte = self._value[self.place]
            self.place += 1
            number |= (byte & 0x7F) << shift
            if number >> 64:
                raise _bad("a number in it has more than 64 bits")
            if byte < 0x80:
                return (number >> 1) ^ -(number & 1)
            shift += 7
