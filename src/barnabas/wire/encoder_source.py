"""Writes the function that encodes one version of one message."""

from __future__ import annotations

import struct
from collections.abc import Mapping
from typing import Any

from barnabas.base.errors import check
from barnabas.base.ids import Uuid
from barnabas.wire.schema import Array, Field, Struct, default_of
from barnabas.wire.source import MAX_STRING_BYTES, READY_LENGTHS, FunctionSource
from barnabas.wire.types import RECORDS, STRING, UUID, Primitive
from barnabas.wire.varint import encode_uvarint


class EncoderSource(FunctionSource):
    """`encode(message, parts)` appends buffers to `parts`."""

    def __init__(
        self, cls: type[Struct], version: int, flexible: bool, first_line: int, *, sliced: bool = False
    ) -> None:
        super().__init__(version, flexible, first_line, sliced=sliced)
        self.scope |= {"check_uuid": _check_uuid, "refuse": _refuse, "tagged_section": _tagged_section}
        self.scope["string_length"] = _string_length
        # The buffer that is being written: `w`, or within a tagged field one of its own.
        self._out = "w"
        with self.block("def encode(m, parts):"):
            self.emit("w = bytearray()")
            self.begin_slices()
            self._struct(cls, "m")
            self._flush_run()
            self.emit("parts.append(w)")

    def _struct(self, cls: type[Struct], source: str) -> None:
        self._refuse_what_is_not_carried(cls, source)
        for each in self.carried(cls):
            with self.about(each.name):
                self._field(f"{source}.{each.name}", each)
        if self.flexible:
            self._flush_run()
            with self.about("(tagged fields)"):
                self._tagged_fields(source, self.tagged(cls))

    def _refuse_what_is_not_carried(self, cls: type[Struct], source: str) -> None:
        fields = [each for each in self.absent(cls) if not each.ignorable]
        if fields:
            condition = " or ".join(self._differs(f"{source}.{each.name}", each) for each in fields)
            names = {each.name: each.make_default() for each in fields}
            self.emit(f"if {condition}: refuse({source}, {self.constant('names', names)}, {self.version})")

    def _differs(self, place: str, each: Field) -> str:
        """The expression that says whether the field has another value than its default."""
        default = each.make_default()
        if default is None and isinstance(each.type, type) and not self.is_nullable(each):
            return f"({place} is not None and {place} != {self.constant('default', default_of(each.type))})"
        if default is None:
            return f"{place} is not None"
        if default == [] or default == "" or default == b"" or default is False:
            nothing_is_null = not each.nullable.high >= each.nullable.low
            return place if nothing_is_null else f"{place} != {default!r}"
        if isinstance(default, (int, float, str)):
            return f"{place} != {default!r}"
        return f"{place} != {self.constant('default', default)}"

    def _field(self, place: str, each: Field) -> None:
        nullable = self.is_nullable(each)
        if isinstance(each.type, Array):
            self._array(place, each.type.element, nullable)
        elif isinstance(each.type, Primitive):
            if each.type.code:
                self._write_fixed(place, each.type)
            else:
                self._sized(place, each.type, nullable, compact=self.flexible and each.compact)
        elif nullable:
            self._nullable_struct(place, each.type, null_byte=0 if self.is_tagged(each) else 255)
        else:
            self._struct(each.type, self._local(place))

    def _local(self, place: str) -> str:
        local = self.name("x")
        self.emit(f"{local} = {place}")
        return local

    def _write_fixed(self, place: str, primitive: Primitive) -> None:
        self.add_to_run(primitive.code, f"check_uuid({place})" if primitive is UUID else place)

    def _flush_run(self) -> None:
        run, codes = self.take_run()
        if run:
            name = "pack_" + codes.replace("?", "t")
            self.scope[name] = struct.Struct(f">{codes}").pack
            self.emit(f"{self._out} += {name}({', '.join(place.variable for place in run)})", run)

    def _length(self, length: str, code: str, compact: bool) -> None:
        """Write a length (an expression; -1 for null) after whatever waits in the run."""
        if not compact:
            self.add_to_run(code, length)
            self._flush_run()
            return
        self._flush_run()
        count = self.name("n")
        self.emit(f"{count} = {length} + 1")
        encode_long = "string_length" if code == "h" else "encode_uvarint"
        self.emit(f"{self._out} += UVARINTS[{count}] if {count} < 512 else {encode_long}({count})")

    def _sized(self, place: str, primitive: Primitive, nullable: bool, compact: bool) -> None:
        data = self._local(place)
        encode = f"{data} = {data}.encode()" if primitive is STRING else ""
        if nullable:
            if encode:
                self.emit(f"if {data} is not None: {encode}")
            self._length(f"(-1 if {data} is None else len({data}))", "h" if primitive is STRING else "i", compact)
            with self.block(f"if {data} is not None:"):
                self._payload(data, primitive)
        else:
            if encode:
                self.emit(encode)
            self._length(f"len({data})", "h" if primitive is STRING else "i", compact)
            self._payload(data, primitive)

    def _payload(self, data: str, primitive: Primitive) -> None:
        if primitive is not RECORDS:
            self.emit(f"{self._out} += {data}")
            return
        check(self._out == "w", "records in a tagged field would have to be copied to know their length")
        self.emit(f"parts.append(w); parts.append({data}); w = bytearray()")

    def _array(self, place: str, element: Primitive | type[Struct], nullable: bool) -> None:
        items = self._local(place)
        if nullable:
            self._length(f"(-1 if {items} is None else len({items}))", "i", self.flexible)
            with self.block(f"if {items} is not None:"):
                self._elements(items, element)
        else:
            self._length(f"len({items})", "i", self.flexible)
            self._elements(items, element)

    def _elements(self, items: str, element: Primitive | type[Struct]) -> None:
        if isinstance(element, Primitive) and element.code and element is not UUID:
            ready = f"packers_{element.name}"
            self.scope[ready] = tuple(struct.Struct(f">{count}{element.code}").pack for count in range(READY_LENGTHS))
            pack = (
                f"({ready}[len({items})] if len({items}) < {READY_LENGTHS} else "
                f"Struct(f'>{{len({items})}}{element.code}').pack)"
            )
            self.emit(f"{self._out} += {pack}(*{items})")
            return
        item = self.name("x")
        with self.block(f"for {item} in {items}:"):
            if element is UUID:
                self.emit(f"{self._out} += check_uuid({item})")
            elif isinstance(element, Primitive):
                self._sized(item, element, nullable=False, compact=self.flexible)
            elif self.sliced:
                # A piece that was encoded before (`Message.piece`).
                with self.block(f"if {item}.__class__ is bytes:"):
                    self.emit(f"{self._out} += {item}")
                with self.block("else:"):
                    self._struct(element, item)
                    self._flush_run()
            else:
                self._struct(element, item)
                self._flush_run()
            self.step()

    def _nullable_struct(self, place: str, cls: type[Struct], null_byte: int) -> None:
        self._flush_run()
        local = self._local(place)
        with self.block(f"if {local} is None:"):
            self.emit(f"{self._out}.append({null_byte})")
        with self.block("else:"):
            self.emit(f"{self._out}.append(1)")
            self._struct(cls, local)
            self._flush_run()

    def _tagged_fields(self, source: str, fields: list[Field]) -> None:
        differences = [self._differs(f"{source}.{each.name}", each) for each in fields]
        plain = " or ".join([*differences, f"{source}.unknown_tags"])
        with self.block(f"if {plain}:"):
            tags, outer = self.name("tags"), self._out
            self.emit(f"{tags} = dict({source}.unknown_tags or ())")
            for each, differs in zip(fields, differences, strict=True):
                with self.block(f"if {differs}:"), self.about(each.name):
                    self._out = self.name("w")
                    self.emit(f"{self._out} = {tags}[{each.tag}] = bytearray()")
                    self._field(f"{source}.{each.name}", each)
                    self._flush_run()
                    self._out = outer
            self.emit(f"tagged_section({outer}, {tags})")
        with self.block("else:"):
            self.emit(f"{self._out}.append(0)")


def _tagged_section(out: bytearray, tags: Mapping[int, bytes | bytearray]) -> None:
    out += encode_uvarint(len(tags))
    for tag in sorted(tags):
        out += encode_uvarint(tag)
        out += encode_uvarint(len(tags[tag]))
        out += tags[tag]


def _check_uuid(value: Uuid) -> bytes:
    if len(value) != 16:
        raise ValueError(f"an id has 16 bytes, this one {len(value)}")
    return value


def _string_length(count: int) -> bytes:
    if count > MAX_STRING_BYTES + 1:
        raise ValueError(f"a string has at most {MAX_STRING_BYTES} bytes, this one {count - 1}")
    return encode_uvarint(count)


def _refuse(source: Struct, defaults: dict[str, Any], version: int) -> None:
    for name, default in defaults.items():
        value = getattr(source, name)
        if value != default:
            raise ValueError(f"version {version} cannot carry {name}={value!r}")
