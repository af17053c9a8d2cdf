"""Some of the steps of `killed` and `killed_in_spark`, on our node; all, and other clusters, by their commands."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from barnabas.testing import EmbeddedBroker
from tests.oracles import other_process
from tests.spark.exactly_once import killed_in_spark
from tests.spark.exactly_once.killed import STORIES, cluster, play
from tests.spark.exactly_once.real_batches import RealBatches
from tests.spark.rig import sessions

_STEPS = ("driver after WriteControl", "driver after CommitControl", "executor after transaction_handle")
_SOME = [(killed, step) for killed, step, text in STORIES if text in _STEPS]


@pytest.mark.slow
@pytest.mark.parametrize(("killed", "step"), _SOME, ids=_STEPS)
def test_every_row_is_there_once(
    broker: EmbeddedBroker, new_topic: Callable[..., str], killed: object, step: int | str
) -> None:
    play(RealBatches(broker.bootstrap_servers, new_topic()), killed, step)


@pytest.mark.slow
@other_process(sessions.missing())
def test_every_row_is_there_once_in_spark(broker: EmbeddedBroker, tmp_path: Path) -> None:
    names = ("driver after WriteControl (5)", "abort after ReadControl (3)", "executor after flush")
    for number, some in enumerate((names[:2], names[2:])):
        folder = tmp_path / str(number)
        folder.mkdir()
        assert killed_in_spark.play(broker.bootstrap_servers, folder, some) == dict.fromkeys(some, 1)


@pytest.fixture(scope="module")
def three_nodes() -> Iterator[str]:
    with cluster("three") as address:
        yield address


@pytest.mark.slow
def test_every_row_is_there_once_on_three_nodes(three_nodes: str) -> None:
    from barnabas import Admin, NewTopic

    with Admin(bootstrap_servers=three_nodes) as admin:
        admin.create_topics([NewTopic("out", 1)])
    play(RealBatches(three_nodes, "out"), *_SOME[1])
