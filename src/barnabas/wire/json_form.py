"""Messages as JSON, in the form of Kafka's own tools and of its `quorum-state` file.

Names are in camel case, bytes in base64, ids in their text form. A tagged field at its default is left out. Of records
only the size is told, so that a dump stays readable. This walks the declaration; it is for people and small files.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from typing import Any, TypeVar

from barnabas.base.errors import RemoteProtocolError
from barnabas.base.ids import Uuid
from barnabas.wire.message import Message
from barnabas.wire.schema import Array, Field, Struct, WireType
from barnabas.wire.types import BOOL, BYTES, FLOAT64, RECORDS, STRING, UUID, Primitive

M = TypeVar("M", bound=Message)


def camel_case(name: str) -> str:
    """`throttle_time_ms` → `throttleTimeMs`."""
    first, *rest = name.split("_")
    return first + "".join(word[:1].upper() + word[1:] for word in rest)


def to_json(message: Message, version: int) -> dict[str, Any]:
    """The fields of `message` that `version` carries, as values for `json.dumps`."""
    return _struct_to_json(message, version, version in message.FLEXIBLE)


def from_json(cls: type[M], values: Mapping[str, Any], version: int) -> M:
    """Read what `to_json` wrote. Unknown names are passed over, missing ones are errors unless they are tagged."""
    result: M = _struct_from_json(cls, values, version, version in cls.FLEXIBLE)
    return result


def _struct_to_json(struct: Struct, version: int, flexible: bool) -> dict[str, Any]:
    shown: dict[str, Any] = {}
    for each in struct.FIELDS:
        value = getattr(struct, each.name)
        if version not in each.versions or (each.tag is not None and flexible and value == each.make_default()):
            continue
        if each.type is RECORDS:
            shown[camel_case(each.name) + "SizeInBytes"] = len(value or b"")
        else:
            shown[camel_case(each.name)] = _value_to_json(value, each.type, version, flexible)
    return shown


def _value_to_json(value: Any, wire_type: WireType, version: int, flexible: bool) -> Any:
    if value is None:
        return None
    if isinstance(wire_type, Array):
        return [_value_to_json(item, wire_type.element, version, flexible) for item in value]
    if not isinstance(wire_type, Primitive):
        return _struct_to_json(value, version, flexible)
    if wire_type is BYTES:
        return base64.b64encode(value).decode()
    return str(value) if wire_type is UUID else value


def _struct_from_json(cls: type[Any], values: Any, version: int, flexible: bool) -> Any:
    if not isinstance(values, Mapping):
        raise RemoteProtocolError(f"{cls.__name__} v{version}: an object is expected, not {values!r}")
    fields = {}
    for each in cls.FIELDS:
        name = camel_case(each.name)
        if version not in each.versions:
            fields[each.name] = each.make_default()
        elif name in values:
            fields[each.name] = _field_from_json(cls, each, values[name], version, flexible)
        elif each.tag is not None and flexible:
            fields[each.name] = each.make_default()
        else:
            raise RemoteProtocolError(f"{cls.__name__} v{version}: {name} is missing")
    return cls(**fields)


def _field_from_json(cls: type[Any], each: Field, value: Any, version: int, flexible: bool) -> Any:
    if value is None and version in each.nullable:
        return None
    try:
        return _value_from_json(value, each.type, version, flexible)
    except (TypeError, ValueError, binascii.Error):
        raise RemoteProtocolError(f"{cls.__name__} v{version}: {camel_case(each.name)} cannot be {value!r}") from None


def _value_from_json(value: Any, wire_type: WireType, version: int, flexible: bool) -> Any:
    if isinstance(wire_type, Array):
        if not isinstance(value, list):
            raise TypeError
        return [_value_from_json(item, wire_type.element, version, flexible) for item in value]
    if not isinstance(wire_type, Primitive):
        return _struct_from_json(wire_type, value, version, flexible)
    if wire_type is BYTES:
        return base64.b64decode(value, validate=True)
    if wire_type is UUID:
        return Uuid.parse(value)
    expected: tuple[type, ...] = {STRING: (str,), BOOL: (bool,), FLOAT64: (float, int)}.get(wire_type, (int,))
    if not isinstance(value, expected) or (wire_type is not BOOL and isinstance(value, bool)):
        raise TypeError
    return value
