"""Requests with very many elements: for every API, every version, and every array in it, however deep.

What the elements say: nothing at all (`minimal`), each something else (`different`), or all the same that exists
(`equal`).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

from barnabas.base.ids import Uuid
from barnabas.wire import Request, Struct
from barnabas.wire.schema import Array, Field, WireType
from barnabas.wire.types import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID, Primitive

SAYINGS = ("minimal", "different", "equal")


class Known(NamedTuple):
    """What exists on the node."""

    name: str
    topic_id: Uuid


class WideRequest(NamedTuple):
    request: Request
    path: str
    saying: str


def wide_requests(cls: type[Request], version: int, count: int, known: Known) -> Iterator[WideRequest]:
    """One for each array of the request, and each way to fill it."""
    for path in array_paths(cls, version):
        for saying in SAYINGS:
            yield WideRequest(wide_request(cls, version, path, count, saying, known), ".".join(path), saying)


def wide_request(
    cls: type[Request], version: int, path: tuple[str, ...], count: int, saying: str, known: Known
) -> Request:
    """The one with so many elements in the array at this path."""
    request: Request = _Builder(version, path, count, saying, known).struct(cls, 0)
    return request


def array_paths(cls: type[Struct], version: int, before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    for each in cls.FIELDS:
        if version not in each.versions:
            continue
        path = (*before, each.name)
        if isinstance(each.type, Array):
            yield path
            if not isinstance(each.type.element, Primitive):
                yield from array_paths(each.type.element, version, path)
        elif not isinstance(each.type, Primitive):
            yield from array_paths(each.type, version, path)


class _Builder:
    def __init__(self, version: int, path: tuple[str, ...], count: int, saying: str, known: Known) -> None:
        self.version = version
        self.path = path
        self.count = count
        self.saying = saying
        self.known = known
        self.number = 0

    def struct(self, cls: type[Any], depth: int) -> Any:
        values = {}
        for each in cls.FIELDS:
            if self.version not in each.versions:
                values[each.name] = each.make_default()
            elif depth < len(self.path) and each.name == self.path[depth]:
                values[each.name] = self._on_the_path(each, depth)
            else:
                values[each.name] = self._value(each)
        return cls(**values)

    def _on_the_path(self, each: Field, depth: int) -> Any:
        wire_type: Any = each.type
        if not isinstance(wire_type, Array):
            return self.struct(wire_type, depth + 1)
        element: Any = wire_type.element
        if depth + 1 < len(self.path):
            return [self.struct(element, depth + 1)]
        made = []
        for number in range(self.count):
            self.number = number
            made.append(
                self._primitive(element) if isinstance(element, Primitive) else self.struct(element, len(self.path))
            )
        return made

    def _value(self, each: Field) -> Any:
        wire_type: WireType = each.type
        if each.name in ("replica_id", "acks"):
            return -1
        if each.name == "timeout_ms":
            return 60_000
        if isinstance(wire_type, Array):
            if self.saying == "minimal" or not isinstance(wire_type.element, Primitive):
                return []
            return [self._primitive(wire_type.element)]
        if isinstance(wire_type, Primitive):
            if self.version in each.nullable and each.name in ("group_instance_id", "transactional_id", "reason"):
                return None
            return self._primitive(wire_type)
        return None if self.version in each.nullable or each.tag is not None else self.struct(wire_type, len(self.path))

    def _primitive(self, kind: Primitive) -> Any:
        is_minimal, is_different = self.saying == "minimal", self.saying == "different"
        if kind is STRING:
            return "" if is_minimal else f"n{self.number}" if is_different else self.known.name
        if kind is UUID:
            if is_minimal:
                return Uuid.ZERO
            return Uuid(self.number.to_bytes(16, "big")) if is_different else self.known.topic_id
        if kind is BOOL:
            return False
        if kind in (BYTES, RECORDS):
            return b""
        if kind is FLOAT64:
            return 0.0
        return self.number % 100 if is_different else 0
