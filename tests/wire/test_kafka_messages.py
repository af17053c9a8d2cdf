"""Kafka's own generated classes read what we write and write it again byte for byte, and show the same as JSON."""

from __future__ import annotations

import json
from random import Random

import pytest

from barnabas.wire.json_form import from_json, to_json
from barnabas.wire.schema import Array, Struct
from barnabas.wire.types import RECORDS
from tests.oracles import CURRENT, OLDEST_VERSIONS, needs_kafka, run_java
from tests.wire.catalogue import MESSAGE_VERSIONS, MESSAGES
from tests.wire.values import build

SAMPLES_PER_VERSION = 8


def samples(pairs: list[tuple[str, int]]) -> list[tuple[str, int, bytes]]:
    random = Random(1)
    return [
        (name, version, build(MESSAGES[name], version, version in MESSAGES[name].FLEXIBLE, random).encode(version))
        for name, version in pairs
        for _ in range(SAMPLES_PER_VERSION)
    ]


def has_records(cls: type[Struct]) -> bool:
    inner = [each.type.element if isinstance(each.type, Array) else each.type for each in cls.FIELDS]
    return any(each is RECORDS or (isinstance(each, type) and has_records(each)) for each in inner)


def compare(release: str, pairs: list[tuple[str, int]]) -> tuple[set[tuple[str, int]], list[str]]:
    """The (message, version) pairs that the release knows, and where it disagrees."""
    asked = samples(pairs)
    text = "".join(f"{name} {version} {data.hex()}\n" for name, version, data in asked)
    answers = run_java("Messages.java", text, release).split("\n")[:-1]
    known, wrong = set(), []
    for (name, version, data), answer in zip(asked, answers, strict=True):
        if answer == "unknown":
            continue
        known.add((name, version))
        encoded, _, shown = answer.partition(" ")
        if encoded != data.hex():
            wrong.append(f"{name} v{version}: {data.hex()} became {answer[:200]}")
        elif shown != "-" and not has_records(MESSAGES[name]):
            message = MESSAGES[name].decode(data, version)
            ours, theirs = to_json(message, version), json.loads(shown)
            if ours != theirs:
                wrong.append(f"{name} v{version}: {ours} is {theirs} to Kafka")
            elif from_json(MESSAGES[name], theirs, version).encode(version) != data:
                wrong.append(f"{name} v{version}: {theirs} is read as something else")
    return known, wrong


@needs_kafka(CURRENT)
@needs_kafka(OLDEST_VERSIONS)
def test_every_message_and_version_passes_through_kafkas_classes() -> None:
    known, wrong = compare(CURRENT, MESSAGE_VERSIONS)
    assert wrong == []
    # What the current release has dropped, the last one of the older line still has; together they know everything.
    dropped = [pair for pair in MESSAGE_VERSIONS if pair not in known]
    known_before, wrong = compare(OLDEST_VERSIONS, dropped)
    assert wrong == []
    assert known_before == set(dropped)


def test_json_says_what_is_wrong() -> None:
    from barnabas.base.errors import RemoteProtocolError
    from barnabas.wire.stored.quorum_state import QuorumStateData

    state = {"leaderId": 1, "leaderEpoch": 2, "votedId": -1, "votedDirectoryId": "AAAAAAAAAAAAAAAAAAAAAA"}
    assert to_json(from_json(QuorumStateData, state, 1), 1) == state
    with pytest.raises(RemoteProtocolError, match="QuorumStateData v1: votedId is missing"):
        from_json(QuorumStateData, {"leaderId": 1, "leaderEpoch": 2}, 1)
    with pytest.raises(RemoteProtocolError, match="QuorumStateData v1: leaderId cannot be 'x'"):
        from_json(QuorumStateData, {**state, "leaderId": "x"}, 1)
    with pytest.raises(RemoteProtocolError, match="an object is expected"):
        from_json(QuorumStateData, [], 1)  # type: ignore[arg-type]
