"""What holds for every test."""

from __future__ import annotations

import gc
import logging
import signal
import threading
from collections.abc import Iterator
from typing import Any, Final

import pytest
from hypothesis import HealthCheck, settings

from barnabas.base.log_lines import LimitedHandler

pytest_plugins = ("tests.secret_scan",)

# A busy machine is no failure: hypothesis fails no test for the time that an example or its making takes.
settings.register_profile("tests", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("tests")

#: Tests that stay together when workers share them out, in this order, since they share processes that take seconds to
#: start: one Spark session, a node, an Apache Kafka. All others stay together by file.
_QUEUES: Final = {
    "spark session": (
        "tests/spark/decoding/test_decoding_in_a_query.py",
        "tests/spark/decoding/test_json_against_from_json.py",
        "tests/spark/decoding/test_schema_language.py",
        "tests/spark/demo/test_example_project.py",
        "tests/spark/jvm/",
        "tests/spark/lag/test_lag_of_running_queries.py",
        "tests/spark/pipelines/test_quality_rules.py",
        "tests/spark/sink/test_exactly_once_in_spark.py",
        "tests/spark/sink/test_sink_in_spark.py",
        "tests/spark/source/test_in_spark.py",
        "tests/spark/source/test_over_tls.py",
        "tests/spark/source/test_registering.py",
        "tests/spark/test_example.py",
        "tests/spark/test_guide.py",
    ),
    "spark in other processes": ("tests/spark/crashes/", "tests/spark/demo/test_demo_is_exact.py"),
    "compat": ("tests/compat/",),
    "cli": ("tests/cli/",),
}

#: Files whose tests share nothing and take long: each test is shared out by itself, and they begin early.
_APART: Final = (
    "tests/cluster/test_cluster_simulation.py",
    "tests/cluster/test_transaction_simulation.py",
    "tests/bounds/test_bounded_work.py",
)

#: Fixtures that start a program which is not ours, by the folder that has them; whoever uses one is marked by that. All
#: others say so themselves, with `needs_kafka` or `other_process` of `tests.oracles`.
_OTHER_PROCESSES: Final = {
    "tests/spark/": {"spark", "apache_kafka"},
    "tests/compat/": {"kafka", "apache_kafka", "java_peer", "peers", "kafka_peers", "both_peers"},
    "tests/cli/": {"apache_kafka"},
}


#: What is slow may take more than `timeout` in pyproject.toml.
_LONGEST_SLOW_S: Final = 3600


def pytest_configure() -> None:
    """Tests of Ctrl-C need one that is heard. A shell without job control lets what it starts in the background ignore
    it, and every process that a test starts would inherit that."""
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGINT, signal.default_int_handler)
    # Clients that are kept between tests may lose their broker then; nobody wants to read that among the dots.
    logging.getLogger("barnabas").addHandler(logging.NullHandler())


def _queue_of(test: str) -> str:
    if test.startswith(_APART):
        return test
    return next((name for name, places in _QUEUES.items() if test.startswith(places)), test.partition("::")[0])


def _mark_other_processes(item: pytest.Item) -> None:
    """The mark `other_process`, and what it brings: a test is skipped where the other program is missing."""
    for mark in list(item.iter_markers("other_process")):
        if mark.kwargs["missing"] is not None:
            item.add_marker(pytest.mark.skip(reason=mark.kwargs["missing"]))
    used = set(getattr(item, "fixturenames", ()))
    if any(item.nodeid.startswith(folder) and used & fixtures for folder, fixtures in _OTHER_PROCESSES.items()):
        item.add_marker(pytest.mark.other_process(missing=None))


def _would_start_another_spark(item: pytest.Item) -> bool:
    """A worker that has no session yet would start one, which takes longer than most tests that use it."""
    uses_spark = item.nodeid.startswith("tests/spark/") and "spark" in getattr(item, "fixturenames", ())
    return uses_spark and _queue_of(item.nodeid) != "spark session"


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """What takes longest must not begin last, and what waits for other programs begins first."""
    for item in items:
        _mark_other_processes(item)
        if item.get_closest_marker("slow") is not None:
            item.add_marker(pytest.mark.timeout(_LONGEST_SLOW_S))
        elif _would_start_another_spark(item):
            raise pytest.UsageError(f"{item.nodeid} uses the session of Spark: name its file in _QUEUES")
    order = [*_QUEUES]

    def place(item: pytest.Item) -> int:
        queue = _queue_of(item.nodeid)
        return order.index(queue) if queue in order else len(order) + (not queue.startswith(_APART))

    items.sort(key=place)


def pytest_collection_finish() -> None:
    """What thousands of tests and their imports are made of stays: no collection of garbage need look at it again."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    from xdist.scheduler import LoadScopeScheduling

    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = _queue_of
    return scheduling


@pytest.fixture(autouse=True)
def _logging_is_left_as_it_was() -> Iterator[None]:
    """Commands that run inside the tests' process set the level of the root logger, as a process of their own may, and
    have it write to a stream that is closed when their test is over."""
    level = logging.root.level
    yield
    logging.root.setLevel(level)
    for handler in [each for each in logging.root.handlers if isinstance(each, LimitedHandler)]:
        logging.root.removeHandler(handler)
