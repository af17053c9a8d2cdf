"""Ids, errors, clocks: small things that everything else trusts."""

from __future__ import annotations

import copy
import doctest
import pickle
import subprocess
import sys
import uuid
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kio.schema.errors import ErrorCode as KioErrorCode

from barnabas.base import error_codes, ids
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError, InvariantError, check
from barnabas.base.ids import TopicPartition, Uuid
from barnabas.base.runtime import Clock, ManualClock, SystemClock


@pytest.mark.parametrize("module", [ids, error_codes])
def test_examples_in_the_documentation_run(module: object) -> None:
    assert doctest.testmod(module).failed == 0  # type: ignore[arg-type]


@given(st.binary(min_size=16, max_size=16))
def test_text_of_an_id_round_trips(raw: bytes) -> None:
    assert Uuid.parse(str(Uuid(raw))) == Uuid(raw)


@pytest.mark.parametrize("text", ["", "x", "A" * 21, "A" * 23, "A" * 21 + "=", "A" * 21 + "+", "ä" * 22])
def test_a_wrong_text_of_an_id_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="is not an id: 22 letters"):
        Uuid.parse(text)


def test_random_ids_are_usable() -> None:
    random = Random(1)
    made = [Uuid.random(random) for _ in range(2000)]
    assert len(set(made)) == len(made)
    assert not any(str(each).startswith("-") or each.is_reserved for each in made)
    assert all(uuid.UUID(bytes=bytes(each)).version == 4 for each in made)
    assert Uuid.random(Random(7)) == Uuid.random(Random(7))


def test_reserved_ids() -> None:
    assert str(Uuid.METADATA_TOPIC) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert Uuid.ZERO.is_reserved
    assert not Uuid(bytes(15) + b"\x64").is_reserved


def test_ids_survive_copying() -> None:
    one = Uuid(bytes(range(16)))
    assert pickle.loads(pickle.dumps(one)) == one
    assert type(copy.deepcopy(one)) is Uuid
    assert repr(one) == "Uuid('AAECAwQFBgcICQoLDA0ODw')"


def test_partitions_sort_and_print() -> None:
    assert sorted([TopicPartition("b", 0), TopicPartition("a", 10), TopicPartition("a", 9)])[0] == ("a", 9)
    assert str(TopicPartition("clicks", 3)) == "clicks-3"


def test_error_codes_are_kafkas() -> None:
    assert {(code.name.lower(), code.value, code.retriable) for code in ErrorCode} == {
        (code.name, code.value, code.retriable) for code in KioErrorCode
    }
    assert all(code.text for code in ErrorCode)


def test_an_error_of_the_future_is_an_unknown_one() -> None:
    assert ErrorCode.of(9999) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert ErrorCode.of(41) is ErrorCode.NOT_CONTROLLER


def test_a_brokers_error_explains_itself() -> None:
    assert str(BrokerError(ErrorCode.NOT_CONTROLLER)) == "NOT_CONTROLLER (41): this node is not the active controller"
    assert str(BrokerError(ErrorCode.INVALID_CONFIG, "no such thing")) == "INVALID_CONFIG (40): no such thing"


def test_check_holds_also_when_assertions_are_off() -> None:
    check(True, "fine")
    with pytest.raises(InvariantError, match="broken"):
        check(False, "broken")
    script = "from barnabas.base.errors import check; check(False, 'still on')"
    done = subprocess.run([sys.executable, "-O", "-c", script], capture_output=True, text=True, check=False)
    assert "InvariantError: still on" in done.stderr


def test_clocks() -> None:
    clock = ManualClock(1000)
    clock.advance(5)
    assert (clock.now_ms(), clock.monotonic_ms()) == (1005, 5)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(-1)
    real: Clock = SystemClock()
    assert real.now_ms() > 1_600_000_000_000
    assert real.monotonic_ms() <= real.monotonic_ms()
