"""The part of the authorization matrix for which somebody must have logged in: delegation tokens."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.token_matrix import Tokens, both, differences_for, states
from tests.oracles import needs_kafka

_STATES = states()


@pytest.fixture(scope="module")
def places(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Tokens, Tokens]]:
    with both(tmp_path_factory.mktemp("tokens")) as places:
        yield places


@needs_kafka()
@pytest.mark.slow
@pytest.mark.parametrize("name", _STATES)
def test_who_may_do_what_with_tokens_is_as_in_kafka(places: tuple[Tokens, Tokens], name: str) -> None:
    found, compared = differences_for(*places, _STATES[name])
    assert found == []
    assert compared >= 20
