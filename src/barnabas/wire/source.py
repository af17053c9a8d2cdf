"""What the writers of decoders and encoders share: lines, names, and the memory of which line is about which field."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple

from barnabas.wire.schema import Array, Field, Struct, WireType
from barnabas.wire.types import Primitive

#: The old form of strings has a length of two bytes; the compact one could be longer, but Kafka refuses it.
MAX_STRING_BYTES = 0x7FFF

#: Arrays of numbers up to this length use ready-made `struct` calls.
READY_LENGTHS = 16

#: How many elements, or how many plain numbers, functions that work in slices take between two `yield`s.
ELEMENTS_PER_STEP = 16
NUMBERS_PER_STEP = 256


class Place(NamedTuple):
    """What a line is about: a field, and for one of several in a `struct` call its format and variable."""

    field: str
    code: str = ""
    variable: str = ""


class FunctionSource:
    """Collects the text of one function. `sliced`: of a generator, which yields after every few elements."""

    def __init__(self, version: int, flexible: bool, first_line: int, *, sliced: bool) -> None:
        self.version = version
        self.flexible = flexible
        self.sliced = sliced
        self.scope: dict[str, Any] = {"Struct": struct.Struct}
        self.places: dict[int, list[Place]] = {}
        self._lines: list[str] = []
        self._first_line = first_line
        self._indent = 0
        self._names = 0
        self._path: list[str] = []
        # Neighbouring fields of fixed size, which one `struct` call will read or write. They wait here until something
        # of varying size, a loop or the end comes.
        self._run: list[Place] = []

    @property
    def text(self) -> str:
        return "".join(f"{line}\n" for line in self._lines)

    @property
    def next_line(self) -> int:
        return self._first_line + len(self._lines)

    @property
    def field(self) -> str:
        """The field that is being written, as a path."""
        return ".".join(self._path) or "(whole message)"

    def emit(self, line: str, places: list[Place] | None = None) -> None:
        self.places[self.next_line] = places or [Place(self.field)]
        self._lines.append("    " * self._indent + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        self.emit(head)
        self._indent += 1
        yield
        self._indent -= 1

    def begin_slices(self) -> None:
        """What a function starts with to be a generator, also if it has no array."""
        if self.sliced:
            self.emit(f"left = {ELEMENTS_PER_STEP}")
            self.emit("if not left: yield")

    def step(self) -> None:
        """One element is done."""
        if self.sliced:
            self.emit("left -= 1")
            with self.block("if not left:"):
                self.emit("yield")
                self.emit(f"left = {ELEMENTS_PER_STEP}")

    @contextmanager
    def about(self, name: str) -> Iterator[None]:
        """Lines emitted within are about the field `name` of the struct at hand."""
        self._path.append(name)
        yield
        self._path.pop()

    def name(self, prefix: str) -> str:
        """A variable that no other line uses. Only `p`, the position, is shared."""
        self._names += 1
        return f"{prefix}{self._names}"

    def constant(self, prefix: str, value: Any) -> str:
        """A name by which the function finds `value`; equal classes and callables share one."""
        for name, known in self.scope.items():
            if known is value:
                return name
        name = f"{prefix}_{len(self.scope)}"
        self.scope[name] = value
        return name

    def add_to_run(self, code: str, variable: str) -> None:
        self._run.append(Place(self.field, code, variable))

    def take_run(self) -> tuple[list[Place], str]:
        """What waits, and its format."""
        run, self._run = self._run, []
        return run, "".join(place.code for place in run)

    def carried(self, cls: type[Struct]) -> list[Field]:
        """The fields of the main section, in order."""
        return [each for each in cls.FIELDS if self.version in each.versions and not self.is_tagged(each)]

    def tagged(self, cls: type[Struct]) -> list[Field]:
        fields = [each for each in cls.FIELDS if self.version in each.versions and self.is_tagged(each)]
        return sorted(fields, key=lambda each: each.tag or 0)

    def absent(self, cls: type[Struct]) -> list[Field]:
        return [each for each in cls.FIELDS if self.version not in each.versions]

    def is_tagged(self, each: Field) -> bool:
        return each.tag is not None and self.flexible

    def is_nullable(self, each: Field) -> bool:
        return self.version in each.nullable

    def smallest_size(self, wire_type: WireType) -> int:
        """The fewest bytes that a value takes; what an array claims to hold is checked against it."""
        length_size = 1 if self.flexible else 4
        if isinstance(wire_type, Array):
            return length_size
        if isinstance(wire_type, Primitive):
            return wire_type.size_bytes or (1 if self.flexible else 2)
        sizes = (1 if self.is_nullable(each) else self.smallest_size(each.type) for each in self.carried(wire_type))
        return sum(sizes) + self.flexible
