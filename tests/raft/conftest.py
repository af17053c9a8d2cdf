from __future__ import annotations

import pytest

from tests.raft.stores import MakeStore, OnSimulatedDisk


@pytest.fixture(params=[OnSimulatedDisk])
def make_store(request: pytest.FixtureRequest) -> MakeStore:
    """Every implementation of `LogStore` in turn."""
    store: MakeStore = request.param()
    return store
