"""Tools whose actions are words say where options of the tool stand, when they are written behind an action."""

from __future__ import annotations

import pytest

from tests.cli.tools import Tools


@pytest.mark.parametrize(
    "call",
    ["transactions list", "metadata-quorum describe", "metadata-quorum add-controller", "features describe"],
)
def test_an_option_of_the_tool_behind_its_action(barnabas: Tools, call: str) -> None:
    told = barnabas(*call.split(), "--bootstrap-server", "127.0.0.1:1")
    assert (told.code, told.out) == (1, "")
    assert f"put --bootstrap-server before {call.split()[1]} (see " in told.err
    assert "before" not in barnabas(*call.split(), "--nonsense").err
