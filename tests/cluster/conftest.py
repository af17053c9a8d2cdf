from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.cluster.asking import active, all_unfenced
from tests.cluster.nodes import Cluster


@pytest.fixture(scope="package")
def shared_three(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    with Cluster(tmp_path_factory.mktemp("three")) as cluster:
        yield cluster


@pytest.fixture
def three(shared_three: Cluster) -> Cluster:
    """Three combined nodes, all of them at work, shared with other tests."""
    shared_three.start_missing()
    active(shared_three)
    all_unfenced(shared_three)
    return shared_three
