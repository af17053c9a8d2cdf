from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.net.worlds import Story, run_asyncio, run_simulated, run_uvloop


@pytest.fixture(params=[run_asyncio, run_uvloop, run_simulated], ids=["asyncio", "uvloop", "simulated"])
def run(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story on each kind of event loop, the first two with real sockets."""
    runner: Callable[[Story], None] = request.param
    if runner is run_uvloop:
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    return runner


@pytest.fixture(params=[run_asyncio, run_uvloop], ids=["asyncio", "uvloop"])
def run_real(request: pytest.FixtureRequest) -> Callable[[Story], None]:
    """Runs a story with real sockets."""
    runner: Callable[[Story], None] = request.param
    if runner is run_uvloop:
        pytest.importorskip("uvloop", reason="uvloop is not installed")
    return runner
