"""kio is another implementation of the protocol, generated from Kafka's schemas: what both know agrees."""

from __future__ import annotations

import dataclasses
import datetime
import functools
import importlib
import io
import pkgutil
import uuid
from enum import Enum
from random import Random
from typing import Any

import kio.schema
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kio.serial import entity_reader, entity_writer

from barnabas.base.ids import Uuid
from barnabas.wire import Struct
from barnabas.wire.schema import default_of
from tests.wire.catalogue import MESSAGES
from tests.wire.values import build

EPOCH = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)


@functools.cache
def kio_entities() -> dict[tuple[str, int], Any]:
    """kio's classes by the name and version of the message."""
    found: dict[tuple[str, int], Any] = {}
    for package in pkgutil.iter_modules(kio.schema.__path__):
        if not package.ispkg:
            continue
        versions = importlib.import_module(f"kio.schema.{package.name}")
        for version in pkgutil.iter_modules(versions.__path__):
            inner = importlib.import_module(f"kio.schema.{package.name}.{version.name}")
            for module in pkgutil.iter_modules(inner.__path__):
                contents = importlib.import_module(f"kio.schema.{package.name}.{version.name}.{module.name}")
                for name, value in vars(contents).items():
                    if getattr(value, "__module__", "") == contents.__name__ and name in MESSAGES:
                        found[name, int(version.name[1:])] = value
    return found


def shared() -> list[tuple[str, int]]:
    return [key for key in sorted(kio_entities()) if key[1] in MESSAGES[key[0]].VERSIONS]


def plain(value: Any, ours: Any) -> Any:
    """kio's value in our terms; `ours` says what an absent struct or list looks like here."""
    if dataclasses.is_dataclass(value):
        fields = {each.name.rstrip("_"): getattr(value, each.name) for each in dataclasses.fields(value)}
        result = {}
        for each in type(ours).FIELDS:
            theirs = next((name for name in (each.name, each.name.removesuffix("_ms")) if name in fields), None)
            if theirs is not None:
                result[each.name] = plain(fields.pop(theirs), template(ours, each.name, each.type))
        assert not fields, f"kio has fields that {type(ours).__name__} lacks: {list(fields)}"
        return result
    if isinstance(value, tuple):
        return [plain(item, our_item) for item, our_item in zip(value, ours, strict=True)]
    if isinstance(value, uuid.UUID):
        return value.bytes
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, datetime.timedelta):
        return value // datetime.timedelta(milliseconds=1)
    if isinstance(value, datetime.datetime):
        return (value - EPOCH) // datetime.timedelta(milliseconds=1)
    if value is None and isinstance(ours, Uuid):
        return bytes(16)
    return value


def template(ours: Struct, name: str, wire_type: Any) -> Any:
    value = getattr(ours, name)
    return default_of(wire_type) if value is None and isinstance(wire_type, type) else value


def as_plain(value: Any, kio_value: Any) -> Any:
    """Our value, reduced to what kio's has, in the same terms."""
    if isinstance(value, Struct):
        return {
            name: as_plain(template(value, name, next(f.type for f in value.FIELDS if f.name == name)), inner)
            if not (getattr(value, name) is None and inner is None)
            else None
            for name, inner in kio_value.items()
        }
    if isinstance(value, list):
        return [as_plain(item, inner) for item, inner in zip(value, kio_value, strict=True)]
    return bytes(value) if isinstance(value, (memoryview, Uuid)) else value


def test_kio_covers_most_messages() -> None:
    assert len(shared()) > 600


@pytest.mark.parametrize(("name", "version"), shared(), ids=lambda value: str(value))
@settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
@given(random=st.randoms(use_true_random=False))
def test_both_directions_agree_with_kio(name: str, version: int, random: Random) -> None:
    cls = MESSAGES[name]
    message = build(cls, version, version in cls.FLEXIBLE, random, tame=True)
    data = message.encode(version)

    kio_class = kio_entities()[name, version]
    theirs, size = entity_reader(kio_class)(data, 0)
    assert size == len(data)
    expected = plain(theirs, message)
    assert as_plain(message, expected) == expected

    buffer = io.BytesIO()
    entity_writer(kio_class)(buffer, theirs)
    assert buffer.getvalue() == data
    assert cls.decode(buffer.getvalue(), version) == cls.decode(data, version)
    assert cls.decode(data, version).encode(version) == data
