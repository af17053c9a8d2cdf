"""Writes the function that decodes one version of one message."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import contextmanager

from barnabas.base.errors import check
from barnabas.base.ids import Uuid
from barnabas.wire.schema import Array, Field, Struct
from barnabas.wire.source import MAX_STRING_BYTES, NUMBERS_PER_STEP, READY_LENGTHS, FunctionSource
from barnabas.wire.types import BYTES, RECORDS, STRING, UUID, Primitive

#: What a message that is decoded in slices may hold, as Kafka 4.4 has it: elements of arrays, and tags.
MAX_ELEMENTS = 1_000_000
MAX_TAGS = 10_000


class DecoderSource(FunctionSource):
    """`decode(buf, p) -> (message, position after it)`; in slices `decode(buf, p, most)`, with a bound on elements."""

    def __init__(
        self, cls: type[Struct], version: int, flexible: bool, first_line: int, *, sliced: bool = False
    ) -> None:
        super().__init__(version, flexible, first_line, sliced=sliced)
        self.scope |= {"new": object.__new__, "Uuid": Uuid}
        # Ids within the run: where each belongs, and the variable that will hold its bytes.
        self._run_uuids: list[tuple[str, str]] = []
        with self.block("def decode(buf, p, most):" if sliced else "def decode(buf, p):"):
            self.emit("size = len(buf)")
            self.begin_slices()
            if sliced:
                self.emit("elements = tags = 0")
            message = self._struct(cls)
            self._flush_run()
            self.emit(f"return {message}, p")

    def _struct(self, cls: type[Struct]) -> str:
        """Decode a struct into a fresh variable. Its last fixed-size values may still be waiting in the run."""
        target = self.name("o")
        self.emit(f"{target} = new({self.constant(cls.__name__, cls)})")
        tagged = self.tagged(cls)
        self._set_defaults(target, [*self.absent(cls), *tagged])
        for each in self.carried(cls):
            with self.about(each.name):
                self._field(target, each)
        if self.flexible:
            self._tagged_section(target, tagged)
        return target

    def _set_defaults(self, target: str, fields: list[Field]) -> None:
        by_value: dict[str, list[str]] = {"None": [f"{target}.unknown_tags"]}
        for each in fields:
            place, default = f"{target}.{each.name}", each.make_default()
            if isinstance(default, Uuid):
                by_value.setdefault(self.constant("uuid", default), []).append(place)
            elif default is None or isinstance(default, (int, float, str, bytes)):
                by_value.setdefault(repr(default), []).append(place)
            elif default == []:
                self.emit(f"{place} = []")
            else:
                self.emit(f"{place} = {self.constant('make', each.make_default)}()")
        for value, targets in by_value.items():
            self.emit(f"{' = '.join(targets)} = {value}")

    def _field(self, target: str, each: Field) -> None:
        place, nullable = f"{target}.{each.name}", self.is_nullable(each)
        if isinstance(each.type, Array):
            self._array(place, each.type.element, nullable)
        elif isinstance(each.type, Primitive):
            if each.type.code:
                self._read_fixed(place, each.type)
            else:
                self._sized(place, each.type, nullable, compact=self.flexible and each.compact)
        elif nullable:
            self._nullable_struct(place, each.type, null_byte="== 0" if self.is_tagged(each) else "> 127")
        else:
            self.emit(f"{place} = {self._struct(each.type)}")

    def _read_fixed(self, place: str, primitive: Primitive) -> None:
        if primitive is UUID:
            raw = self.name("u")
            self._run_uuids.append((place, raw))
            place = raw
        self.add_to_run(primitive.code, place)

    def _flush_run(self) -> None:
        run, codes = self.take_run()
        if not run:
            return
        if codes == "B":
            self.emit(f"{run[0].variable} = buf[p]", run)
        else:
            name = "unpack_" + codes.replace("?", "t")
            self.scope[name] = struct.Struct(f">{codes}").unpack_from
            self.emit(f"{', '.join(place.variable for place in run)}, = {name}(buf, p)", run)
        self.emit(f"p += {struct.calcsize(f'>{codes}')}")
        for place, raw in self._run_uuids:
            self.emit(f"{place} = Uuid({raw})")
        self._run_uuids = []

    def _length(self, code: str, compact: bool, *, limit: int | None = None) -> str:
        """Read a length into a variable: the number of items, -1 for null."""
        length = self.name("n")
        self.add_to_run("B" if compact else code, length)
        self._flush_run()
        if compact:
            with self.block(f"if {length} > 127:"):
                self.emit(f"{length}, p = uvarint(buf, p - 1)")
                if limit is not None:
                    with self.block(f"if {length} > {limit + 1}:"):
                        self.emit(f"raise Malformed(f'{{{length} - 1}} bytes are more than the {limit} of a string')")
            self.emit(f"{length} -= 1")
        return length

    @contextmanager
    def _unless_null(self, place: str, length: str, nullable: bool) -> Iterator[None]:
        """Deal with lengths below zero; what is emitted within is for the others."""
        if not nullable:
            with self.block(f"if {length} < 0:"):
                text = f"it is null, which it must not be' if {length} == -1 else f'the length {{{length}}} is negative"
                self.emit(f"raise Malformed('{text}')")
            yield
            return
        with self.block(f"if {length} < 0:"):
            with self.block(f"if {length} != -1:"):
                self.emit(f"raise Malformed(f'the length {{{length}}} is negative')")
            self.emit(f"{place} = None")
        with self.block("else:"):
            yield

    def _sized(self, place: str, primitive: Primitive, nullable: bool, compact: bool) -> None:
        is_text = primitive is STRING
        length = self._length("h" if is_text else "i", compact, limit=MAX_STRING_BYTES if is_text else None)
        with self._unless_null(place, length, nullable):
            end = self.name("e")
            self.emit(f"{end} = p + {length}")
            with self.block(f"if {end} > size:"):
                self.emit(f"raise Malformed(f'{{{length}}} bytes are announced, {{size - p}} are left')")
            value = {
                STRING: f"str(buf[p:{end}], 'utf-8')",
                BYTES: f"bytes(buf[p:{end}])",
                RECORDS: f"memoryview(buf)[p:{end}]",
            }[primitive]
            self.emit(f"{place} = {value}")
            self.emit(f"p = {end}")

    def _array(self, place: str, element: Primitive | type[Struct], nullable: bool) -> None:
        length = self._length("i", self.flexible)
        with self._unless_null(place, length, nullable):
            if self.sliced:
                self.emit(f"elements += {length}")
                with self.block("if elements > most:"):
                    self.emit("raise Malformed(f'the message has more than {most} elements')")
            if isinstance(element, Primitive) and element.code and element is not UUID:
                self._array_of_numbers(place, element, length)
            else:
                self._array_by_element(place, element, length)

    def _array_of_numbers(self, place: str, element: Primitive, length: str) -> None:
        ready = f"unpackers_{element.name}"
        self.scope[ready] = tuple(
            struct.Struct(f">{count}{element.code}").unpack_from for count in range(READY_LENGTHS)
        )
        unpack = (
            f"({ready}[{length}] if {length} < {READY_LENGTHS} else Struct(f'>{{{length}}}{element.code}').unpack_from)"
        )
        if not self.sliced:
            self.emit(f"{place} = list({unpack}(buf, p))")
            self.emit(f"p += {element.size_bytes} * {length}")
            return
        items, step = self.name("a"), f"unpack_many_{element.name}"
        self.scope[step] = struct.Struct(f">{NUMBERS_PER_STEP}{element.code}").unpack_from
        self.emit(f"{items} = {place} = []")
        with self.block(f"while {length} > {NUMBERS_PER_STEP}:"):
            self.emit(f"{items} += {step}(buf, p)")
            self.emit(f"p += {element.size_bytes * NUMBERS_PER_STEP}")
            self.emit(f"{length} -= {NUMBERS_PER_STEP}")
            self.emit("yield")
        self.emit(f"{items} += {unpack}(buf, p)")
        self.emit(f"p += {element.size_bytes} * {length}")

    def _array_by_element(self, place: str, element: Primitive | type[Struct], length: str) -> None:
        # An array may claim two billion elements in ten bytes: believe it only as far as the bytes go.
        smallest = self.smallest_size(element)
        check(smallest > 0, f"elements of {place} may be empty, so their number has no bound")
        with self.block(f"if {length} * {smallest} > size - p:"):
            self.emit(f"raise Malformed(f'{{{length}}} elements are announced, {{size - p}} bytes are left')")
        items = self.name("a")
        self.emit(f"{items} = {place} = []")
        with self.block(f"for _ in range({length}):"):
            if element is UUID:
                item = "Uuid(buf[p - 16:p])"
                self.emit("p += 16")
            elif isinstance(element, Primitive):
                item = self.name("x")
                self._sized(item, element, nullable=False, compact=self.flexible)
            else:
                item = self._struct(element)
                self._flush_run()
            self.emit(f"{items}.append({item})")
            self.step()

    def _nullable_struct(self, place: str, cls: type[Struct], null_byte: str) -> None:
        """A struct that may be null is preceded by a byte; for null it is negative, but 0 within a tagged field."""
        self._flush_run()
        self.emit("p += 1")
        with self.block(f"if buf[p - 1] {null_byte}:"):
            self.emit(f"{place} = None")
        with self.block("else:"):
            self.emit(f"{place} = {self._struct(cls)}")
            self._flush_run()

    def _tagged_section(self, target: str, fields: list[Field]) -> None:
        count, tag, length, end = self.name("c"), self.name("t"), self.name("n"), self.name("e")
        with self.about("(tagged fields)"):
            self.add_to_run("B", count)
        self._flush_run()
        with self.about("(tagged fields)"), self.block(f"if {count}:"):
            with self.block(f"if {count} > 127:"):
                self.emit(f"{count}, p = uvarint(buf, p - 1)")
            if self.sliced:
                self.emit(f"tags += {count}")
                with self.block(f"if tags > {MAX_TAGS}:"):
                    self.emit(f"raise Malformed('the message has more than {MAX_TAGS} tags')")
            with self.block(f"for _ in range({count}):"):
                self.step()
                self.emit(f"{tag}, p = uvarint(buf, p)")
                self.emit(f"{length}, p = uvarint(buf, p)")
                self.emit(f"{end} = p + {length}")
                with self.block(f"if {end} > size:"):
                    self.emit(f"raise Malformed(f'{{{length}}} bytes are announced, {{size - p}} are left')")
                for each in fields:
                    with self.block(f"if {tag} == {each.tag}:"), self.about(each.name):
                        self._field(target, each)
                        self._flush_run()
                        with self.block(f"if p != {end}:"):
                            text = f'it ends {{abs(p - {end})}} bytes {{"after" if p > {end} else "before"}} its tag'
                            self.emit(f"raise Malformed(f'{text}')")
                        self.emit("continue")
                with self.block(f"if {target}.unknown_tags is None:"):
                    self.emit(f"{target}.unknown_tags = {{}}")
                self.emit(f"{target}.unknown_tags[{tag}] = bytes(buf[p:{end}])")
                self.emit(f"p = {end}")
