from __future__ import annotations

import socket

import pytest

from tests.cli.tools import Tools


@pytest.fixture
def barnabas(capsys: pytest.CaptureFixture[str]) -> Tools:
    """The `barnabas` command, as a function."""
    return Tools(capsys)


@pytest.fixture
def unused_port() -> int:
    """A port on which nobody listened a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port
