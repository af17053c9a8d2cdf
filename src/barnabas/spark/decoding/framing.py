"""The five bytes that a schema registry's serializers put before a value: a zero, and the schema's id."""

from __future__ import annotations

import struct
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from barnabas.spark.decoding.bad_records import BadKind, BadValueError

FRAME_SIZE: Final = 5
_MAGIC: Final = b"\0"
_ID: Final = struct.Struct(">I")


def check_frame(value: bytes) -> int:
    """The schema's id. Raises BadValueError if the value has no frame."""
    if len(value) < FRAME_SIZE or value[:1] != _MAGIC:
        raise BadValueError(
            BadKind.FRAMING,
            "it does not begin with a zero byte and a schema id of four bytes, as valueFraming=registry expects",
        )
    schema_id: int = _ID.unpack_from(value, 1)[0]
    return schema_id


def all_framed(values: pa.Array) -> bool:
    """Whether every value that is not null has a frame."""
    shortest = pc.min(pc.binary_length(values)).as_py()
    return shortest is None or bool(shortest >= FRAME_SIZE and pc.all(pc.starts_with(values, _MAGIC)).as_py())


def without_frames(values: pa.Array) -> pa.Array:
    """The values alone, of values that all have a frame."""
    return pc.binary_replace_slice(values, 0, FRAME_SIZE, b"")
