"""aiokafka's classes are written by hand, down to the oldest versions that kio lacks: the bytes agree."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from random import Random
from typing import Any

import aiokafka.protocol
import pytest

from barnabas.wire import Message, Struct, api
from tests.wire.values import build

#: Here the leader epoch has eight bytes; Kafka's own classes give it four.
MISTAKES = {"OffsetRequest_v4", "OffsetRequest_v5"}


def aiokafka_structs() -> Iterator[tuple[type[Message], int, Any]]:
    """Our class, the version, and aiokafka's class for it."""
    for module in pkgutil.iter_modules(aiokafka.protocol.__path__):
        contents = vars(importlib.import_module(f"aiokafka.protocol.{module.name}"))
        for name, theirs in contents.items():
            # A class per version, named after it. Its flexible ones are few and kio has them all.
            kind, _, version = name.rpartition("_v")
            if not version.isdigit() or getattr(theirs, "API_KEY", None) is None or theirs.API_KEY < 0:
                continue
            ours = api(theirs.API_KEY).request if kind.endswith("Request") else api(theirs.API_KEY).response
            if int(version) in ours.VERSIONS and int(version) not in ours.FLEXIBLE and name not in MISTAKES:
                yield ours, int(version), theirs


def leaves(value: Any, version: int) -> Iterator[Any]:
    """All scalars in the order of the wire; aiokafka's names differ from Kafka's."""
    if isinstance(value, Struct):
        for each in value.FIELDS:
            if version in each.versions:
                yield from leaves(getattr(value, each.name), version)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from leaves(item, version)
    else:
        yield value


CASES = list(aiokafka_structs())


def test_the_oldest_versions_are_among_them() -> None:
    known = {(ours.__name__, version) for ours, version, _ in CASES}
    assert {
        ("ProduceRequest", 0),
        ("FetchResponse", 0),
        ("OffsetCommitRequest", 0),
        ("CreateTopicsRequest", 0),
    } <= known
    assert len(known) > 100


@pytest.mark.parametrize(
    ("ours", "version", "theirs"), CASES, ids=[f"{ours.__name__}-{version}" for ours, version, _ in CASES]
)
def test_the_bytes_agree_with_aiokafka(ours: type[Message], version: int, theirs: Any) -> None:
    random = Random(version)
    for _ in range(10):
        message = build(ours, version, version in ours.FLEXIBLE, random)
        data = message.encode(version)
        decoded = theirs.decode(data)
        assert decoded.encode() == data
        values = [getattr(decoded, name) for name in theirs.SCHEMA.names]
        assert list(leaves(values, version)) == list(leaves(message, version))
