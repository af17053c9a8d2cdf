"""The types that a message's fields may have, written as annotations.

A field says `partition: Int32` and a type checker sees `int`; the compiler of codecs sees the wire type behind it.
`bool`, `str`, `bytes` and `Uuid` stand for themselves; `list[X]` is an array; `X | None` may be null on the wire.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Any

from barnabas.base.ids import Uuid


@dataclass(frozen=True, slots=True)
class Primitive:
    """A scalar wire type. `code` is its letter in `struct` formats, empty where the size varies."""

    name: str
    code: str
    size_bytes: int
    default: Any


INT8 = Primitive("int8", "b", 1, 0)
INT16 = Primitive("int16", "h", 2, 0)
INT32 = Primitive("int32", "i", 4, 0)
INT64 = Primitive("int64", "q", 8, 0)
UINT16 = Primitive("uint16", "H", 2, 0)
UINT32 = Primitive("uint32", "I", 4, 0)
FLOAT64 = Primitive("float64", "d", 8, 0.0)
BOOL = Primitive("bool", "?", 1, False)
UUID = Primitive("uuid", "16s", 16, Uuid.ZERO)
STRING = Primitive("string", "", 0, "")
BYTES = Primitive("bytes", "", 0, b"")
RECORDS = Primitive("records", "", 0, b"")

Int8 = Annotated[int, INT8]
Int16 = Annotated[int, INT16]
Int32 = Annotated[int, INT32]
Int64 = Annotated[int, INT64]
UInt16 = Annotated[int, UINT16]
UInt32 = Annotated[int, UINT32]
Float64 = Annotated[float, FLOAT64]

#: Record batches: decoded as a view into the frame that they came in, encoded as a part of their own, never copied.
Records = Annotated[bytes | bytearray | memoryview, RECORDS]

PYTHON_TYPES: dict[object, Primitive] = {bool: BOOL, str: STRING, bytes: BYTES, Uuid: UUID}
