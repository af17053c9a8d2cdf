"""What holds for every test."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final

import pytest

#: Long queues of tests: those that share a Spark session, and those that start and kill Spark in other processes.
LONG_QUEUES: Final = ("spark session", "spark processes")
#: Folders whose tests share processes that take seconds to start.
SHARING_FOLDERS: Final = ("tests/cli", "tests/compat")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Say which tests stay together when several workers share them out. What is long comes first."""
    for item in items:
        if "spark" in getattr(item, "fixturenames", ()):
            item.add_marker(pytest.mark.xdist_group(LONG_QUEUES[0]))
        elif item.get_closest_marker("xdist_group") is None:
            file = item.nodeid.partition("::")[0]
            folder = file.rpartition("/")[0]
            item.add_marker(pytest.mark.xdist_group(folder if folder in SHARING_FOLDERS else file))
    items.sort(key=lambda item: _queue(item) not in LONG_QUEUES)


def _queue(item: pytest.Item) -> str:
    marker = item.get_closest_marker("xdist_group")
    return "" if marker is None else str(marker.args[0])


@pytest.fixture(autouse=True)
def _logging_is_left_as_it_was() -> Iterator[None]:
    """Commands that run inside the tests' process set the level of the root logger, as a process of their own may."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)
