"""Builds messages with arbitrary values that a version can carry."""

from __future__ import annotations

from random import Random
from typing import Any, TypeVar

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.wire import Struct
from barnabas.wire.schema import Array, Field, WireType
from barnabas.wire.types import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID, Primitive

S = TypeVar("S", bound=Struct)

LETTERS = "abcXYZ019-._ äß€漢字🎉\n\0"
BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


def build(cls: type[S], version: int, flexible: bool, random: Random, *, tame: bool = False) -> S:
    """A message of `cls`. With `tame`, only values that implementations with narrower types can represent."""
    values: dict[str, Any] = {}
    for each in cls.FIELDS:
        tagged = each.tag is not None and flexible
        if version not in each.versions or (tagged and random.random() < 0.4):
            values[each.name] = each.make_default()
        else:
            values[each.name] = _field_value(each, version, flexible, random, tame)
    return cls(**values)


def _field_value(each: Field, version: int, flexible: bool, random: Random, tame: bool) -> Any:
    if version in each.nullable and random.random() < 0.2:
        return None
    if tame and each.name.endswith("error_code"):
        return int(random.choice(list(ErrorCode)))
    if tame and isinstance(each.type, Primitive) and each.name.endswith(("_ms", "timestamp", "_time")):
        return random.randrange(0, 2**31)
    return _value(each.type, version, flexible, random, tame)


def _value(wire_type: WireType, version: int, flexible: bool, random: Random, tame: bool) -> Any:
    if isinstance(wire_type, Array):
        count = random.choice([0, 1, 1, 2, 3, 17 if isinstance(wire_type.element, Primitive) else 2])
        return [_value(wire_type.element, version, flexible, random, tame) for _ in range(count)]
    if not isinstance(wire_type, Primitive):
        return build(wire_type, version, flexible, random, tame=tame)
    if wire_type is BOOL:
        return random.random() < 0.5
    if wire_type is STRING:
        if random.random() < 0.002:
            return "x" * random.choice([511, 512, 32767])
        return "".join(random.choice(LETTERS) for _ in range(random.choice([0, 1, 5, 20, 130])))
    if wire_type in (BYTES, RECORDS):
        return random.randbytes(random.choice([0, 1, 7, 200]))
    if wire_type is UUID:
        return Uuid.ZERO if random.random() < 0.1 else Uuid(random.randbytes(16))
    if wire_type is FLOAT64:
        return random.choice([0.0, -1.5, 1e300, random.random()])
    if wire_type.name.startswith("uint"):
        top = 2 ** int(wire_type.name[4:]) - 1
        return random.choice([0, 1, top, random.randint(0, top)])
    edge = 2 ** (BITS[wire_type.name] - 1)
    return random.choice([0, 1, -1, edge - 1, -edge, random.randint(-edge, edge - 1)])
