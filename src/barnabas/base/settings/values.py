"""The types that a setting can have, and how text or a Python value becomes one of them.

The rules are those of Kafka's `ConfigDef`: text is trimmed, `true` and `false` are the only booleans, whole numbers fit
their width, lists are split at commas. Two things are easier in Python: a number may be given for a text (`acks=1`),
and a class may be given itself instead of its name.
"""

from __future__ import annotations

import importlib
import math
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import Enum
from types import NoneType, UnionType
from typing import Annotated, Any, Union, get_args, get_origin

from barnabas.base.errors import SettingsError
from barnabas.base.settings.units import INT_MAX, LONG_MAX, SHORT_MAX


class Type(Enum):
    """The type of a setting, named as Kafka names it, with what a person may write."""

    BOOLEAN = "boolean", "true or false"
    STRING = "string", "text"
    SHORT = "short", "a whole number"
    INT = "int", "a whole number"
    LONG = "long", "a whole number"
    DOUBLE = "double", "a number"
    LIST = "list", "a list, separated by commas"
    CLASS = "class", "a class"
    PASSWORD = "password", "a password"

    label: str
    meaning: str

    def __init__(self, label: str, meaning: str) -> None:
        self.label = label
        self.meaning = meaning


# Annotations for declarations. A type checker sees int and float; the declaration learns the width.
Short = Annotated[int, Type.SHORT]
Int = Annotated[int, Type.INT]
Long = Annotated[int, Type.LONG]
Double = Annotated[float, Type.DOUBLE]
Names = tuple[str, ...]

_WIDTHS = {Type.SHORT: SHORT_MAX, Type.INT: INT_MAX, Type.LONG: LONG_MAX}

# Java trims what is not above a space; Python's strip() would also take blanks that Java keeps.
_JAVA_BLANK = "".join(map(chr, range(0x21)))
_WHOLE_NUMBER = re.compile(r"[+-]?[0-9]+")
_NUMBER = re.compile(r"([+-]?(?:NaN|Infinity|(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?))[dDfF]?")
_COMMA = re.compile(r"[ \t\n\x0b\f\r]*,[ \t\n\x0b\f\r]*")


class Password:
    """A text that never shows: only `reveal()` gives it away.

    >>> Password("swordfish"), Password("swordfish").reveal()
    (Password([hidden]), 'swordfish')
    """

    __slots__ = ("_secret",)

    HIDDEN = "[hidden]"

    def __init__(self, secret: str) -> None:
        self._secret = secret

    def reveal(self) -> str:
        return self._secret

    def __repr__(self) -> str:
        return f"Password({self.HIDDEN})"

    def __str__(self) -> str:
        return self.HIDDEN

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Password) and self._secret == other._secret

    def __hash__(self) -> int:
        return hash(self._secret)


@dataclass(frozen=True, slots=True)
class Plugin:
    """A class that a setting names, imported only when somebody asks for it.

    The name is that of a built-in (`range`), or a dotted path to a Python class or function (`my_package.MyAssignor`),
    which may have a colon before its last part (`my_package:MyAssignor`).
    """

    name: str
    target: Any = field(default=None, repr=False)

    def __str__(self) -> str:
        return self.name

    def resolve(self, builtin: Mapping[str, Any]) -> Any:
        """What the name stands for, looked up among the built-ins of the owner and then imported."""
        if self.target is not None:
            return self.target
        if self.name in builtin:
            return builtin[self.name]
        module_name, _, attribute = self.name.rpartition(":" if ":" in self.name else ".")
        try:
            return getattr(importlib.import_module(module_name), attribute)
        except (ImportError, AttributeError, ValueError) as error:
            known = ", ".join(builtin) or "none"
            raise SettingsError(
                f"cannot load {self.name!r}: {error}. A plug-in is a Python class given by its dotted path, "
                f"or one of the built-in ones: {known}"
            ) from error


@dataclass(frozen=True, slots=True)
class ValueType:
    """What a setting holds: its type, whether it may be absent, and which plug-ins have a short name.

    `builtin` maps the short names of our plug-ins to the Java classes that they stand in for.
    """

    type: Type
    nullable: bool = False
    plugins: bool = False
    builtin: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of_annotation(cls, annotation: object, builtin: Mapping[str, str]) -> ValueType:
        """Read the type of a declaration: `Long`, `str | None`, `tuple[Plugin, ...]`."""
        nullable = False
        if get_origin(annotation) in (Union, UnionType):
            alternatives = [each for each in get_args(annotation) if each is not NoneType]
            nullable = len(alternatives) < len(get_args(annotation))
            (annotation,) = alternatives
        if get_origin(annotation) is Annotated:
            return cls(get_args(annotation)[1], nullable)
        type_ = _TYPE_OF_ANNOTATION.get(annotation)
        if type_ is None:
            raise TypeError(f"a setting cannot have the type {annotation!r}")
        plugins = type_ is Type.CLASS or annotation == tuple[Plugin, ...]
        return cls(type_, nullable, plugins, builtin)

    def convert(self, value: object) -> Any:
        """The value in its own type. Raises `ValueError` that says what is wrong with it, without showing it."""
        if isinstance(value, str):
            value = value.strip(_JAVA_BLANK)
        match self.type:
            case Type.BOOLEAN:
                return _boolean(value)
            case Type.SHORT | Type.INT | Type.LONG:
                return _whole_number(value, _WIDTHS[self.type])
            case Type.DOUBLE:
                return _number(value)
            case Type.STRING:
                return _text(value)
            case Type.PASSWORD:
                return value if isinstance(value, Password) else Password(_text(value))
            case Type.LIST:
                items = _items(value)
                return tuple(map(self._plugin, items)) if self.plugins else tuple(_text(item) for item in items)
            case Type.CLASS:
                return self._plugin(value)

    def _plugin(self, value: object) -> Plugin:
        if isinstance(value, Plugin):
            return value
        if not isinstance(value, str):
            kind = value if callable(value) and hasattr(value, "__qualname__") else type(value)
            # A method of a built-in type, such as str.encode, has no module.
            module = getattr(kind, "__module__", None) or "builtins"
            return Plugin(f"{module}.{kind.__qualname__}", target=value)
        for short, java in self.builtin.items():
            if value in (short, java):
                return Plugin(short)
        if value.startswith("org.apache.kafka."):
            raise ValueError("names a Java class that has no counterpart here")
        if not re.fullmatch(r"\w+(\.\w+)+", value):
            raise ValueError("is neither a built-in name nor the dotted path of a Python class")
        return Plugin(value)


_TYPE_OF_ANNOTATION: dict[object, Type] = {
    bool: Type.BOOLEAN,
    str: Type.STRING,
    Names: Type.LIST,
    tuple[Plugin, ...]: Type.LIST,
    Plugin: Type.CLASS,
    Password: Type.PASSWORD,
}


def _boolean(value: object) -> bool:
    if isinstance(value, bool):
        return value
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    raise ValueError("is neither true nor false")


def _whole_number(value: object, largest: int) -> int:
    if isinstance(value, str) and _WHOLE_NUMBER.fullmatch(value):
        # No number of this many digits fits, and int() of a huge text is slow.
        value = int(value) if len(value) < 40 else largest + 1
    if isinstance(value, bool) or not isinstance(value, int):
        raise ValueError("is not a whole number")
    if not -largest - 1 <= value <= largest:
        raise ValueError(f"does not fit between {-largest - 1} and {largest}")
    return value


def _number(value: object) -> float:
    if isinstance(value, str) and (match := _NUMBER.fullmatch(value)):
        return float(match[1])
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError("is not a number")
    return float(value)


def _text(value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    raise ValueError("is not a text")


def _items(value: object) -> list[object]:
    if isinstance(value, str):
        return list(_COMMA.split(value)) if value else []
    if isinstance(value, list | tuple):
        return list(value)
    if isinstance(value, type | Plugin):
        return [value]
    raise ValueError("is not a list")


def format_value(value: object) -> str:
    """A value as a `.properties` file would write it; passwords stay hidden."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return _java_double(value)
    if isinstance(value, tuple):
        return ",".join(map(format_value, value))
    return str(value)


def _java_double(value: float) -> str:
    """A number as Java writes it, and so as Kafka's tools show it: 0.5, 1.0E7, 1.7976931348623157E308."""
    if not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    if not value or 1e-3 <= abs(value) < 1e7:
        return repr(value)
    # The shortest digits that stand for it, two at least.
    sign, digits, power = Decimal(repr(value)).normalize().as_tuple()
    if len(digits) == 1:
        mantissa, _, exponent = f"{value:.1e}".partition("e")
        return f"{mantissa}E{int(exponent)}"
    assert isinstance(power, int)
    first, *others = map(str, digits)
    return f"{'-' if sign else ''}{first}.{''.join(others)}E{power + len(digits) - 1}"
