"""How a message is declared: once, for all its versions, as a typed class with slots.

    class OffsetFetchPartition(Struct):
        partition_index: Int32
        committed_leader_epoch: Int32 = field("5+", default=-1, ignorable=True)
        metadata: str | None = field(nullable="3+")

    class OffsetFetchResponse(Response, api_key=9, versions="0-10", flexible="6+"):
        partitions: list[OffsetFetchPartition]

- A plain annotation is a field of every version. `field("5+")` is one of some versions only; it needs a default, which
  it has where a version does not carry it.
- Sending a value other than the default in a version that does not carry the field is an error, since silence would
  lie to the peer, unless the field is `ignorable`.
- `X | None` may be null in every version that has the field; `nullable="3+"` narrows that. With `nullable="none"` the
  field is never null on the wire, and None stands for a tagged struct that was left out.
- `tag=0` puts the field into the tagged section, which flexible versions have at the end of each struct.

To add a version: raise `versions` on request and response, and add fields with `field("7+", default=…)`. A node serves
all declared versions unless the request says `served="0-6"`, which must be what Kafka's release that we follow serves.
The tests then compare the declaration with Kafka's schemas, Kafka's own classes and other implementations, as far as
those know the version.
"""

from __future__ import annotations

import sys
import types
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar, Union, dataclass_transform, get_args, get_origin

from barnabas.base.errors import check
from barnabas.wire.types import PYTHON_TYPES, Primitive

MAX_VERSION = 32767
MISSING: Any = object()


@dataclass(frozen=True, slots=True)
class Versions:
    """A range of versions, both ends included; empty when `high < low`."""

    low: int
    high: int

    @classmethod
    def parse(cls, text: str) -> Versions:
        """`"3+"`, `"3-7"`, `"3"` or `"none"`."""
        if text == "none":
            return cls(0, -1)
        if text.endswith("+"):
            return cls(int(text[:-1]), MAX_VERSION)
        low, _, high = text.partition("-")
        return cls(int(low), int(high or low))

    def __contains__(self, version: int) -> bool:
        return self.low <= version <= self.high

    def __iter__(self) -> Iterator[int]:
        return iter(range(self.low, self.high + 1))

    def __str__(self) -> str:
        if self.high < self.low:
            return "none"
        return f"{self.low}-{self.high}" if self.high != self.low else str(self.low)


ALL_VERSIONS = Versions(0, MAX_VERSION)
NO_VERSIONS = Versions(0, -1)


@dataclass(frozen=True, slots=True)
class Array:
    element: Primitive | type[Struct]


WireType = Primitive | Array | type["Struct"]


@dataclass(slots=True)
class FieldSpec:
    """What `field(...)` was given."""

    versions: str
    default: Any
    factory: Callable[[], Any] | None
    nullable: str | None
    tag: int | None
    ignorable: bool
    compact: bool


def field(
    versions: str = "0+",
    *,
    default: Any = MISSING,
    factory: Callable[[], Any] | None = None,
    nullable: str | None = None,
    tag: int | None = None,
    ignorable: bool = False,
    compact: bool = True,
    init: bool = True,
) -> Any:
    """Declare what a plain annotation cannot say. `compact=False` keeps the old string form in flexible versions.

    `init` is for type checkers alone: it keeps a name out of the constructor.
    """
    return FieldSpec(versions, default, factory, nullable, tag, ignorable, compact)


@dataclass(frozen=True, slots=True)
class Field:
    """One field of a struct, as the compiler of codecs sees it."""

    name: str
    type: WireType
    versions: Versions
    nullable: Versions
    tag: int | None
    default: Any
    factory: Callable[[], Any] | None
    ignorable: bool
    compact: bool

    @property
    def is_required(self) -> bool:
        """Whether the constructor demands it."""
        return self.default is MISSING and self.factory is None

    def make_default(self) -> Any:
        """The value that the field has in versions that do not carry it."""
        if self.factory is not None:
            return self.factory()
        if self.default is not MISSING:
            return self.default
        if isinstance(self.type, Primitive):
            return self.type.default
        return [] if isinstance(self.type, Array) else default_of(self.type)


def default_of(cls: type[Struct]) -> Any:
    """A struct with every field at its default, also those that its constructor demands."""
    return cls(**{each.name: each.make_default() for each in cls.FIELDS})


def _resolve(annotation: Any) -> tuple[WireType, bool]:
    """The wire type behind an annotation, and whether it may be null."""
    if get_origin(annotation) in (Union, types.UnionType):
        inner = [argument for argument in get_args(annotation) if argument is not types.NoneType]
        check(len(inner) == 1, f"{annotation}: a field is of one type, or of one type and None")
        return _resolve(inner[0])[0], True
    if get_origin(annotation) is list:
        element, nullable = _resolve(get_args(annotation)[0])
        if isinstance(element, Array) or nullable:
            raise TypeError(f"{annotation}: arrays hold scalars or structs")
        return Array(element), False
    for metadata in getattr(annotation, "__metadata__", ()):
        if isinstance(metadata, Primitive):
            return metadata, False
    if isinstance(annotation, type) and issubclass(annotation, Struct):
        return annotation, False
    if annotation in PYTHON_TYPES:
        return PYTHON_TYPES[annotation], False
    if isinstance(annotation, str):
        raise TypeError(f"{annotation!r}: a module of messages cannot use 'from __future__ import annotations'")
    raise TypeError(f"{annotation!r} is not a type of the protocol; use Int32 and its kin, str, bytes, bool or Uuid")


def _make_field(name: str, annotation: Any, spec: Any) -> Field:
    if not isinstance(spec, FieldSpec):
        raise TypeError(f"field {name}: write field(default={spec!r})")
    wire_type, may_be_null = _resolve(annotation)
    has_default = spec.default is not MISSING or spec.factory is not None
    check(may_be_null or spec.nullable is None, f"field {name}: nullable needs '| None' in the annotation")
    check(has_default or spec.versions == "0+", f"field {name}: versions that do not carry it need a default")
    check(may_be_null or spec.default is not None, f"field {name}: a default of None needs '| None' in the annotation")
    if isinstance(wire_type, Primitive) and spec.default is not MISSING and spec.default is not None:
        expected = type(wire_type.default)
        check(isinstance(spec.default, expected), f"field {name}: {spec.default!r} is no {expected.__name__}")
    return Field(
        name=name,
        type=wire_type,
        versions=Versions.parse(spec.versions),
        nullable=Versions.parse(spec.nullable or "0+") if may_be_null else NO_VERSIONS,
        tag=spec.tag,
        default=spec.default,
        factory=spec.factory,
        ignorable=spec.ignorable,
        compact=spec.compact,
    )


def _annotations_of(namespace: dict[str, Any]) -> dict[str, Any]:
    if sys.version_info >= (3, 14):
        import annotationlib

        annotate = annotationlib.get_annotate_from_class_namespace(namespace)
        return annotate(annotationlib.Format.VALUE) if annotate else {}
    return dict(namespace.get("__annotations__", {}))


@dataclass_transform(kw_only_default=True, field_specifiers=(field,))
class _StructMeta(type):
    """Turns annotations into slots before the class is made; the rest is compiled when it is first used."""

    def __new__(
        metacls, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **declaration: Any
    ) -> _StructMeta:
        declared = {
            field_name: annotation
            for field_name, annotation in _annotations_of(namespace).items()
            if bases and get_origin(annotation) is not ClassVar and not str(annotation).startswith("ClassVar")
        }
        fields = tuple(
            _make_field(field_name, annotation, namespace.pop(field_name, field()))
            for field_name, annotation in declared.items()
        )
        tags = [each.tag for each in fields if each.tag is not None]
        check(len(tags) == len(set(tags)), f"{name}: two fields have the same tag")
        if bases:
            # A message may carry more than its fields, which then does not travel.
            namespace["__slots__"] = (*declared, *namespace.get("__slots__", ()))
        namespace["FIELDS"] = fields
        return super().__new__(metacls, name, bases, namespace, **declaration)


class Struct(metaclass=_StructMeta):
    """A group of fields. Instances are plain mutable values that compare by content."""

    __slots__ = ("unknown_tags",)

    FIELDS: ClassVar[tuple[Field, ...]]
    if TYPE_CHECKING:
        #: Tagged fields of newer versions than we know, kept as they came and sent on as they are.
        unknown_tags: dict[int, bytes] | None = field(init=False)

    def __init__(self, **values: Any) -> None:
        # Reached by the first instance of each class only; from then on the class has a constructor of its own.
        type(self).__init__ = _compile_init(type(self))  # type: ignore[method-assign]
        self.__init__(**values)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if type(other) is not type(self):
            return NotImplemented
        return self.unknown_tags == other.unknown_tags and all(
            getattr(self, each.name) == getattr(other, each.name) for each in self.FIELDS
        )

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in self.FIELDS)
        return f"{type(self).__name__}({', '.join(shown)})"


def _compile_init(cls: type[Struct]) -> Callable[..., None]:
    scope: dict[str, Any] = {"MISSING": MISSING}
    parameters, body = [], []
    for each in cls.FIELDS:
        value = each.name
        if each.is_required:
            parameters.append(each.name)
        elif each.factory is not None:
            scope[f"make_{each.name}"] = each.factory
            parameters.append(f"{each.name}=MISSING")
            value = f"make_{each.name}() if {each.name} is MISSING else {each.name}"
        else:
            scope[f"default_{each.name}"] = each.default
            parameters.append(f"{each.name}=default_{each.name}")
        body.append(f"    self.{each.name} = {value}\n")
    signature = ", ".join(["self", "*", *parameters] if parameters else ["self"])
    source = f"def __init__({signature}):\n{''.join(body)}    self.unknown_tags = None\n"
    exec(compile(source, f"<{cls.__name__}.__init__>", "exec"), scope)
    init: Callable[..., None] = scope["__init__"]
    init.__qualname__ = f"{cls.__name__}.__init__"
    return init
