from __future__ import annotations

import pytest

from tests.cli.tools import Tools


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Tools:
    """The `barnabas` command, as a function."""
    return Tools(capsys)
