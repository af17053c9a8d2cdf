"""The declarations agree with Kafka's own schemas, field by field and version by version.

Kafka's jars carry its JSON schemas, so this runs where they were fetched, and where `BARNABAS_KAFKA_SCHEMAS` names
folders of schemas, separated by colons.
"""

from __future__ import annotations

import json
import os
import re
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from barnabas.base.ids import Uuid
from barnabas.wire import Message, Request, Struct, Versions
from barnabas.wire.schema import Array, Field, default_of
from barnabas.wire.stored.forms import KeyMessage
from barnabas.wire.types import Primitive
from tests.oracles import kafka_jars
from tests.wire.catalogue import MESSAGES

#: Share groups were an experiment until 4.1: their messages had other shapes in older releases.
SHARE_GROUPS_ARE_STABLE_FROM = "StreamsGroupHeartbeatRequest.json"

#: The record of a type that was retired, and the name that ListConfigResources went by before.
NOT_DECLARED = {
    "ControlRecordTypeSchema",
    "ListClientMetricsResourcesRequest",
    "ListClientMetricsResourcesResponse",
    "ShareGroupPartitionMetadataKey",
    "ShareGroupPartitionMetadataValue",
}

#: Fields of VoteRequest that a later release renamed without changing a byte.
RENAMED = [
    ("CandidateEpoch", "ReplicaEpoch"),
    ("CandidateId", "ReplicaId"),
    ("CandidateDirectoryId", "ReplicaDirectoryId"),
]


def schemas() -> Iterator[dict[str, Any]]:
    folders = [Path(folder) for folder in os.environ.get("BARNABAS_KAFKA_SCHEMAS", "").split(":") if folder]
    for folder in folders:
        yield from load({path.name: path.read_text(encoding="utf-8") for path in folder.rglob("*.json")})
    texts: dict[str, str] = {}
    for jar in (kafka_jars() or Path("nowhere")).glob("kafka-*.jar"):
        with zipfile.ZipFile(jar) as archive:
            names = [name for name in archive.namelist() if name.endswith(".json")]
            texts |= {name.rpartition("/")[2]: archive.read(name).decode() for name in names}
    yield from load(texts)


def load(texts: dict[str, str]) -> Iterator[dict[str, Any]]:
    """The schemas of one release that can be compared."""
    for name, text in sorted(texts.items()):
        if name == "VoteRequest.json":
            for old, new in RENAMED:
                text = text.replace(f'"{old}"', f'"{new}"')
        schema: dict[str, Any] = json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE))
        schema["is recent"] = SHARE_GROUPS_ARE_STABLE_FROM in texts
        is_experiment = "Share" in name and not schema["is recent"]
        if "fields" in schema and schema["name"] not in NOT_DECLARED and not is_experiment:
            yield schema


def snake_case(name: str) -> str:
    name = re.sub(r"([a-z0-9])([A-Z])", r"\1_\2", name)
    return re.sub(r"([A-Z])([A-Z][a-z])", r"\1_\2", name).lower().removeprefix("_")


def expected_layout(fields: list[dict[str, Any]], common: dict[str, Any], version: int) -> Iterator[dict[str, Any]]:
    for each in fields:
        if version not in Versions.parse(each.get("versions") or each["taggedVersions"]):
            continue
        element = each["type"].removeprefix("[]")
        yield {
            "name": snake_case(each["name"]),
            "type": each["type"] if element[0].islower() else "[]struct" if each["type"].startswith("[]") else "struct",
            "nullable": version in Versions.parse(each.get("nullableVersions", "none")),
            "tag": int(each["tag"]) if version in Versions.parse(each.get("taggedVersions", "none")) else None,
            "default": each.get("default"),
            "ignorable": str(each.get("ignorable", False)).lower() == "true",
            "inner": list(expected_layout(each.get("fields") or common[element], common, version))
            if element[0].isupper()
            else [],
        }


def declared_layout(cls: type[Struct], version: int, flexible: bool) -> Iterator[dict[str, Any]]:
    for each in cls.FIELDS:
        if version not in each.versions:
            continue
        element = each.type.element if isinstance(each.type, Array) else each.type
        prefix = "[]" if isinstance(each.type, Array) else ""
        yield {
            "name": each.name,
            "type": prefix + (element.name if isinstance(element, Primitive) else "struct"),
            "nullable": version in each.nullable,
            "tag": each.tag if flexible else None,
            "default": each,
            "inner": [] if isinstance(element, Primitive) else list(declared_layout(element, version, flexible)),
        }


def is_same_default(declared: Field, expected: Any) -> bool:
    value: object = declared.make_default()
    if expected == "null":
        return value is None
    if expected is None:
        # A tagged struct that is left out reads as None here, and as a struct of defaults in Kafka.
        left_out = value is None and isinstance(declared.type, type)
        is_default_struct = isinstance(value, Struct) and value == default_of(type(value))
        return left_out or is_default_struct or value in (0, "", b"", False, [], 0.0, Uuid.ZERO)
    if isinstance(value, bool):
        return value is (str(expected).lower() == "true")
    if isinstance(value, str):
        return bool(value == expected)
    return bool(value == int(str(expected), 0))


def differences(
    declared: list[dict[str, Any]], expected: list[dict[str, Any]], path: str, *, is_recent: bool
) -> Iterator[str]:
    # A later release may add tagged fields to a version that is out already: older readers pass over them.
    known = {each["name"] for each in expected}
    declared = [each for each in declared if each["name"] in known or each["tag"] is None]
    names = [each["name"] for each in declared], [each["name"] for each in expected]
    if names[0] != names[1]:
        yield f"{path}: declared {names[0]}, expected {names[1]}"
        return
    for ours, theirs in zip(declared, expected, strict=True):
        where = f"{path}.{ours['name']}"
        for aspect in ("type", "nullable", "tag"):
            if ours[aspect] != theirs[aspect]:
                yield f"{where}: {aspect} is {ours[aspect]}, expected {theirs[aspect]}"
        field: Field = ours["default"]
        is_partial = field.versions.low > 0 or field.versions.high < 32767
        # The header of one old request has no client id, whatever the client is called.
        is_header = path.startswith("RequestHeader")
        if is_recent and is_partial and not is_header and field.ignorable != theirs["ignorable"]:
            yield f"{where}: ignorable is {field.ignorable}"
        if not is_same_default(ours["default"], theirs["default"]):
            yield f"{where}: default is {ours['default'].make_default()!r}, expected {theirs['default']!r}"
        yield from differences(ours["inner"], theirs["inner"], where, is_recent=is_recent)


def check_message(cls: type[Message], schema: dict[str, Any]) -> Iterator[str]:
    name = schema["name"]
    common = {each["name"]: each["fields"] for each in schema.get("commonStructs", [])}
    flexible = Versions.parse(schema["flexibleVersions"])
    key = schema.get("apiKey")
    declared_key = getattr(cls, "API_KEY", getattr(cls, "TYPE", None))
    if key is not None and key != declared_key:
        yield f"{name}: key is {declared_key}, expected {key}"
    if issubclass(cls, Request) and "listeners" in schema and "zkBroker" not in str(schema["listeners"]):
        declared_listeners = {each.name.lower() for each in cls.LISTENERS if each.name}
        if declared_listeners != set(schema["listeners"]):
            yield f"{name}: listeners are {declared_listeners}, expected {schema['listeners']}"
    for valid_version in Versions.parse(schema["validVersions"]):
        # Releases before 4.0 gave the type of a stored key as its version.
        version = 0 if issubclass(cls, KeyMessage) and valid_version == cls.TYPE else valid_version
        if version not in cls.VERSIONS:
            yield f"{name}: version {version} is not declared"
            continue
        if (version in cls.FLEXIBLE) != (version in flexible):
            yield f"{name} v{version}: flexible is {version in cls.FLEXIBLE}"
        declared = list(declared_layout(cls, version, version in cls.FLEXIBLE))
        expected = list(expected_layout(schema["fields"], common, valid_version))
        yield from differences(declared, expected, f"{name} v{version}", is_recent=schema["is recent"])


@pytest.mark.skipif(
    not any(schemas()), reason="Kafka's schemas are not at hand: run 'make oracles' or set BARNABAS_KAFKA_SCHEMAS"
)
def test_declarations_equal_kafkas_schemas() -> None:
    found: list[str] = []
    seen: dict[str, set[int]] = {}
    for schema in schemas():
        seen.setdefault(schema["name"], set()).update(Versions.parse(schema["validVersions"]))
        if schema["name"] not in MESSAGES:
            found.append(f"{schema['name']} is not declared")
        else:
            found += check_message(MESSAGES[schema["name"]], schema)
    assert len(seen) > 200
    assert found == []
    if kafka_jars() is not None:
        highest = {name: MESSAGES[name].VERSIONS.high for name in seen if not name.endswith("Key")}
        beyond = {name: high for name, high in highest.items() if high > max(seen[name])}
        assert beyond == {}, "these versions are in no schema of the release that we follow"
