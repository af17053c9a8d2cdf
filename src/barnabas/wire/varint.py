"""Unsigned variable-length integers: seven bits a byte, the lowest first, the top bit says that more follow."""

from __future__ import annotations

from typing import Final

MAX_UVARINT_BYTES = 5


class Malformed(Exception):  # noqa: N818 - never leaves the package: codecs turn it into RemoteProtocolError
    """Bytes that the protocol does not allow; codecs add which field of which message, and where."""


def decode_uvarint(data: bytes | bytearray | memoryview, position: int) -> tuple[int, int]:
    """The number at `position`, of at most 32 bits, and the position after it."""
    value = data[position]
    if value < 0x80:
        return value, position + 1
    value &= 0x7F
    for index in range(1, MAX_UVARINT_BYTES):
        byte = data[position + index]
        value |= (byte & 0x7F) << (7 * index)
        if byte < 0x80:
            if value > 0xFFFFFFFF:
                break
            return value, position + index + 1
    raise Malformed("a variable-length integer has more than 32 bits")


def encode_uvarint(value: int) -> bytes:
    """The bytes of a number of at most 32 bits."""
    if not 0 <= value <= 0xFFFFFFFF:
        raise ValueError(f"{value} does not fit into an unsigned variable-length integer")
    encoded = bytearray()
    while value >= 0x80:
        encoded.append(value & 0x7F | 0x80)
        value >>= 7
    encoded.append(value)
    return bytes(encoded)


#: The small ones, encoded beforehand: nearly every length is among them.
ENCODED_UVARINTS: Final = tuple(encode_uvarint(value) for value in range(512))
