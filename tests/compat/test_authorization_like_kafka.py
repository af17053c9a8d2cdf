"""The authorization matrix: with each single permission, without it, and with it denied, each API in each version
answers as Kafka's does, field by field."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from barnabas.broker.handlers import broker_handlers
from barnabas.wire.apis import ApiKey
from tests.compat.authorization_cases import CASES
from tests.compat.authorization_matrix import (
    Pair,
    answers_of_a_state,
    both,
    differences_for,
    differences_for_strangers,
    request_of,
    states,
)
from tests.oracles import needs_kafka

_STATES = states()
#: Of all that can be told apart, what most rests on.
_SAMPLE = ("nothing", "only READ TOPIC", "only DESCRIBE CLUSTER", "denied DESCRIBE TOPIC", "everything")


@pytest.fixture(scope="module")
def pairs(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Pair, Pair]]:
    with both(tmp_path_factory.mktemp("matrix")) as pairs:
        yield pairs


def test_every_api_is_in_the_matrix() -> None:
    """Several thousand answers are compared in all."""
    asked = {request_of(ask).API_KEY for ask in CASES.values()}
    assert {handler.API_KEY for handler in broker_handlers()} - asked == {ApiKey.API_VERSIONS}
    assert answers_of_a_state() * len(_STATES) > 25_000


@needs_kafka()
@pytest.mark.parametrize("name", _SAMPLE)
def test_who_may_do_what_is_as_in_kafka(pairs: tuple[Pair, Pair], name: str) -> None:
    assert differences_for(*pairs, _STATES[name]) == []


@needs_kafka()
@pytest.mark.slow
@pytest.mark.parametrize("name", [each for each in _STATES if each not in _SAMPLE])
def test_every_single_permission_is_as_in_kafka(pairs: tuple[Pair, Pair], name: str) -> None:
    assert differences_for(*pairs, _STATES[name]) == []


@needs_kafka()
def test_strangers_on_the_controllers_listener_are_told_as_in_kafka(pairs: tuple[Pair, Pair]) -> None:
    assert differences_for_strangers(*pairs) == []
