"""Reading of DER, as far as certificates and key stores need it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

INTEGER: Final = 0x02
OCTET_STRING: Final = 0x04
OBJECT_IDENTIFIER: Final = 0x06
SEQUENCE: Final = 0x30
SET: Final = 0x31

_LONG_TAG: Final = 0x1F
_LONG_LENGTH: Final = 0x80
#: Nothing that is read here has more than four bytes of length.
_MAX_LENGTH_BYTES: Final = 4


class Element(NamedTuple):
    """One element: its tag, its content, and both together as they were encoded."""

    tag: int
    content: bytes
    raw: bytes


def elements(data: bytes) -> Iterator[Element]:
    """The elements that lie one behind the other. Raises `ValueError` where they do not."""
    place = 0
    while place < len(data):
        found = _element(data, place)
        yield found
        place += len(found.raw)


def only(data: bytes, tag: int) -> Element:
    """The element that is all there is. Raises `ValueError` if it is another, or not alone."""
    found = list(elements(data))
    if len(found) != 1 or found[0].tag != tag:
        raise ValueError(f"one element with the tag {tag:#x} was expected")
    return found[0]


def oid_text(content: bytes) -> str:
    """An object identifier with dots. Raises `ValueError` for one that is cut off or empty."""
    if not content or content[-1] & 0x80:
        raise ValueError("an object identifier is cut off")
    numbers: list[int] = []
    number = 0
    for byte in content:
        number = number << 7 | byte & 0x7F
        if not byte & 0x80:
            numbers.append(number)
            number = 0
    first = min(numbers[0] // 40, 2)
    return ".".join(map(str, (first, numbers[0] - 40 * first, *numbers[1:])))


def _element(data: bytes, start: int) -> Element:
    if start + 2 > len(data):
        raise ValueError("an element is cut off")
    tag, length, place = data[start], data[start + 1], start + 2
    if tag & _LONG_TAG == _LONG_TAG:
        raise ValueError("a tag of several bytes")
    if length >= _LONG_LENGTH:
        size = length - _LONG_LENGTH
        if not 0 < size <= _MAX_LENGTH_BYTES or place + size > len(data):
            raise ValueError("a length that cannot be")
        length = int.from_bytes(data[place : place + size], "big")
        place += size
    end = place + length
    if end > len(data):
        raise ValueError("an element is cut off")
    return Element(tag, data[place:end], data[start:end])
