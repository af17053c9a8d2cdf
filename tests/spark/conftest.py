"""One Spark session and one broker per pytest process: a session takes seconds to start and a gigabyte to keep.

Under pytest-xdist that is one of each per worker. Tests share them: each has topics and folders of its own, and sets
back what it changes in the session's configuration. What must kill or reconfigure Spark runs it in a child process.
"""

from __future__ import annotations

import itertools
import os
import re
import sys
from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING

import pytest

from barnabas.testing import EmbeddedBroker
from tests.spark.rig import sessions

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.fixture(scope="package")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """A session on local[2] that knows `format("barnabas")`, and `format("kafka")` where its jars could be fetched."""
    reason = sessions.missing()
    if reason is not None:
        pytest.skip(reason)
    folder = tmp_path_factory.mktemp("spark")
    with pytest.MonkeyPatch.context() as patch:
        for name, value in sessions.environment(folder).items():
            patch.setenv(name, os.environ.get(name, value))
        session = sessions.start_session(folder)
        yield session
        session.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Say so where Spark's JVM has died: all that Python is told is that some class 'does not exist in the JVM'."""
    report = yield
    gateway = getattr(sys.modules.get("pyspark"), "SparkContext", None)
    process = getattr(getattr(gateway, "_gateway", None), "proc", None)
    code = None if process is None else process.poll()
    if report.failed and code is not None:
        report.sections.append(("Spark", f"its JVM has ended, with code {code}; whatever asks it afterwards fails"))
    return report


@pytest.fixture(scope="package")
def broker() -> Iterator[EmbeddedBroker]:
    """A broker for all tests that do it no harm; those that do start their own."""
    with EmbeddedBroker() as running:
        yield running


_topic_numbers = itertools.count(1)


@pytest.fixture
def new_topic(request: pytest.FixtureRequest, broker: EmbeddedBroker) -> Callable[..., str]:
    """Creates a topic on the shared broker that no other test uses, named after the test: `new_topic(partitions=3)`."""

    def create(partitions: int = 1, **config: object) -> str:
        name = re.sub(r"[^a-zA-Z0-9._-]+", "-", request.node.name).strip("-")[:150]
        topic = f"{name}-{next(_topic_numbers)}"
        broker.create_topic(topic, partitions, None, **config)
        return topic

    return create
