"""Declaring messages: what the classes do, and what a wrong declaration says."""

from __future__ import annotations

import doctest
import subprocess
import sys

import pytest

import barnabas.wire
from barnabas.base.errors import InvariantError
from barnabas.wire import Versions
from barnabas.wire.messages.metadata import MetadataResponseBroker, MetadataResponsePartition
from barnabas.wire.varint import Malformed, decode_uvarint, encode_uvarint


def test_examples_in_the_documentation_run() -> None:
    assert doctest.testmod(barnabas.wire).failed == 0


def test_messages_are_values() -> None:
    broker = MetadataResponseBroker(node_id=1, host="h", port=2)
    assert broker == MetadataResponseBroker(node_id=1, host="h", port=2, rack=None)
    assert broker != MetadataResponseBroker(node_id=1, host="h", port=3)
    assert broker != "something else"
    assert repr(broker) == "MetadataResponseBroker(node_id=1, host='h', port=2, rack=None)"
    with pytest.raises(AttributeError):
        broker.hostname = "typo"  # type: ignore[attr-defined]
    with pytest.raises(TypeError, match="missing 1 required keyword-only argument: 'port'"):
        MetadataResponseBroker(node_id=1, host="h")  # type: ignore[call-arg]


def test_defaults_are_not_shared() -> None:
    first, second = (
        MetadataResponsePartition(partition_index=0, leader_id=0, replica_nodes=[], isr_nodes=[]) for _ in range(2)
    )
    first.offline_replicas.append(1)
    assert second.offline_replicas == []


@pytest.mark.parametrize(
    ("text", "low", "high", "shown"),
    [("3+", 3, 32767, "3-32767"), ("3-7", 3, 7, "3-7"), ("5", 5, 5, "5"), ("none", 0, -1, "none")],
)
def test_version_ranges(text: str, low: int, high: int, shown: str) -> None:
    versions = Versions.parse(text)
    assert (versions.low, versions.high, str(versions)) == (low, high, shown)
    assert (low in versions) == (high >= low)
    assert high + 1 not in versions


@pytest.mark.parametrize(
    ("body", "complaint"),
    [
        ("x: int", "<class 'int'> is not a type of the protocol; use Int32 and its kin"),
        ("x: str = 5", r"field x: write field\(default=5\)"),
        ("x: str = field(nullable='1+')", r"field x: nullable needs '\| None' in the annotation"),
        ("x: list[list[str]]", "arrays hold scalars or structs"),
        ("x: str = field('5+')", "field x: versions that do not carry it need a default"),
        ("x: str = field(default=None)", "field x: a default of None needs"),
        ("x: str = field(default=5)", "field x: 5 is no str"),
        ("x: str = field(tag=0, default='')\n    y: str = field(tag=0, default='')", "two fields have the same tag"),
        ("x: 'str'", "cannot use 'from __future__ import annotations'"),
    ],
)
def test_a_wrong_declaration_says_so(body: str, complaint: str) -> None:
    source = f"from barnabas.wire.schema import Struct, field\nclass Wrong(Struct):\n    {body}\n"
    with pytest.raises((TypeError, InvariantError), match=complaint):
        exec(compile(source, "<module>", "exec", dont_inherit=True), {"__name__": "declarations"})


def test_a_field_that_no_version_carries_says_so() -> None:
    source = (
        "from barnabas.wire import Message\nfrom barnabas.wire.schema import field\n"
        "class Wrong(Message, versions='0-2'):\n    x: str = field('5+', default='')\n"
    )
    with pytest.raises(InvariantError, match="Wrong: no version carries the field x"):
        exec(compile(source, "<module>", "exec", dont_inherit=True), {"__name__": "declarations"})


@pytest.mark.parametrize("value", [0, 1, 127, 128, 300, 16383, 16384, 2**31 - 1, 2**32 - 1])
def test_varints_round_trip(value: int) -> None:
    encoded = encode_uvarint(value)
    assert decode_uvarint(b"x" + encoded + b"y", 1) == (value, 1 + len(encoded))


def test_varints_have_at_most_32_bits() -> None:
    for bad in (b"\xff" * 6, b"\xff\xff\xff\xff\x1f"):
        with pytest.raises(Malformed):
            decode_uvarint(bad, 0)
    for number in (-1, 2**32):
        with pytest.raises(ValueError, match="does not fit"):
            encode_uvarint(number)


def test_only_what_is_asked_for_is_imported() -> None:
    script = (
        "import sys, barnabas.wire as w; w.api(3);"
        "print(sorted(m for m in sys.modules if m.startswith('barnabas.wire.messages.')))"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "['barnabas.wire.messages.metadata']"
