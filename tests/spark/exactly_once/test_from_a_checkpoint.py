"""`barnabas transactions --from-checkpoint`: what a dead driver left, in a table, and its end."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from barnabas import Admin, TopicPartition
from barnabas.base.error_codes import ErrorCode
from barnabas.base.errors import BrokerError
from barnabas.cli.transactions import transactions
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.exactly_once import steps
from barnabas.spark.core.exactly_once.refusals import DeliveryError
from barnabas.spark.sink import deciding
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.testing import EmbeddedBroker
from tests.spark.exactly_once.real_batches import RealBatches


@pytest.fixture
def batches(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> Iterator[RealBatches]:
    made = RealBatches(broker.bootstrap_servers, new_topic())
    yield made
    made.left.close()


def _asked(batches: RealBatches, folder: Path, *options: str, query: str | None = None) -> Result:
    (folder / "metadata").write_text(json.dumps({"id": query or batches.stream.query}))
    arguments = ["--bootstrap-server", batches.servers, "--from-checkpoint", str(folder), *options]
    return CliRunner().invoke(transactions, arguments, catch_exceptions=False, standalone_mode=False)


def test_what_is_left_is_shown_and_finished(batches: RealBatches, tmp_path: Path) -> None:
    batches.commit(0, batches.write(0, [["0"]]))
    batches.write_task(1, 2, ["lost"], attempt=3)
    assert batches.dies_after(8, 1, batches.write(1, [["a"], ["b", "c"]])) == "CommitTask"
    told = _asked(batches, tmp_path)
    lines = told.output.splitlines()
    assert lines[0].split() == ["SINK", "BATCH", "RUN", "TASK", "ROWS", "STATE", "TRANSACTIONAL-ID"]
    assert [line.split()[:6] for line in lines[1:4]] == [
        ["sink", "1", "run1", "0", "1", "committed"],
        ["sink", "1", "run1", "1", "2", "decided"],
        ["sink", "-", "run1", "2", "-", "undecided"],
    ]
    assert "decided: is decided and not committed yet: --finish commits it" in told.output
    assert told.return_value == 0
    assert batches.rows() == ["0"], "the transaction that is undecided hides what is behind it"

    told = _asked(batches, tmp_path, "--finish")
    assert [line.split()[5] for line in told.output.splitlines()[1:3]] == ["committed", "committed"]
    assert "undecided" not in told.output
    assert sorted(batches.rows()) == ["0", "a", "b", "c"]
    # The query goes on as if nothing had been.
    batches.restart()
    batches.commit(1, batches.write(1, [["a", "b", "c"]]))
    batches.commit(2, batches.write(2, [["2"]]))
    assert sorted(batches.rows()) == ["0", "2", "a", "b", "c"]


def test_rows_that_are_lost_are_told(batches: RealBatches, tmp_path: Path) -> None:
    written = batches.write(0, [["a"], ["b", "c"]])
    assert batches.dies_after(10, 0, written) == "CommitTask"
    assert written[1].handle is not None
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.force_terminate_transaction(written[1].handle.transactional_id)
    for options in ((), ("--finish",)):
        told = _asked(batches, tmp_path, *options)
        assert told.return_value == 1
        assert "lost: was decided, and there is no proof" in told.output
        assert ("those of task 1 (2 rows)" in told.output) == bool(options)


def test_what_nobody_tells_any_more_is_not_called_lost(
    batches: RealBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Receipts and transactions are forgotten in time; of what is not open, coordinators tell how it ended."""
    batches.commit(0, batches.write(0, [["a"]]))
    monkeypatch.setattr(DecidingCluster, "_receipt", lambda *arguments, **more: None)
    with monkeypatch.context() as patched:
        assert "committed" in _asked(batches, tmp_path).output
        patched.setattr(DecidingCluster, "described", lambda *arguments: None)
        told = _asked(batches, tmp_path)
        assert told.return_value == 0
        assert "unknown: was decided so long ago" in told.output
        patched.setattr(DecidingCluster, "described", lambda *arguments: {})
        assert _asked(batches, tmp_path).output == told.output


def test_what_is_forgotten_is_done_if_spark_says_so(
    batches: RealBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that has been idle for so long that brokers have forgotten its last batch lacks nothing."""
    batches.commit(0, batches.write(0, [["a"]]))
    monkeypatch.setattr(DecidingCluster, "_receipt", lambda *arguments, **more: None)
    monkeypatch.setattr(DecidingCluster, "described", lambda *arguments: {})
    monkeypatch.setitem(deciding._TAKEN, steps.CommitTask, lambda *arguments: None)
    told = _asked(batches, tmp_path, "--finish")
    assert told.return_value == 1
    assert "its checkpoint does not say that it is done. Nobody can tell whether the topics have 1 row" in told.output
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("v1\n{}")
    told = _asked(batches, tmp_path, "--finish")
    assert told.return_value == 0
    assert "unknown: was decided so long ago" in told.output


def test_who_may_not_finish_it_is_told_by_the_exit_code_too(
    batches: RealBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert batches.dies_after(9, 0, batches.write(0, [["a"]])) == "CommitControl"

    def refused(*arguments: object) -> None:
        raise DeliveryError("the driver is refused what it needs")

    monkeypatch.setattr(DecidingCluster, "perform", refused)
    told = _asked(batches, tmp_path, "--finish")
    assert told.return_value == 1
    assert "the driver is refused what it needs" in told.output


def test_who_may_not_look_is_told_what_to_allow(
    batches: RealBatches, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    batches.commit(0, batches.write(0, [["a"]]))

    def refused(*arguments: object) -> None:
        raise BrokerError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)

    monkeypatch.setattr(Admin, "describe_transactions", refused)
    with pytest.raises(DeliveryError, match="Allow Write and Describe on transactional ids that begin with"):
        _asked(batches, tmp_path)


def test_one_sink_that_is_torn_does_not_keep_others_from_their_end(batches: RealBatches, tmp_path: Path) -> None:
    other = RealBatches(batches.servers, batches.topic)
    other.stream = replace(batches.stream, sink="zinc")
    written = batches.write(0, [["a"], ["b"]])
    assert batches.dies_after(10, 0, written) == "CommitTask"
    assert other.dies_after(9, 0, other.write(0, [["z"]])) == "CommitControl"
    assert written[1].handle is not None
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.force_terminate_transaction(written[1].handle.transactional_id)
    told = _asked(batches, tmp_path, "--finish")
    assert told.return_value == 1
    assert "There is no proof of 1 row" in told.output
    assert sorted(batches.rows()) == ["a", "z"]
    other.left.close()


def test_decisions_that_are_lost_are_told(batches: RealBatches, tmp_path: Path) -> None:
    """Nothing is said of what is open then: it may have been decided."""
    batches.commit(0, batches.write(0, [["a"]]))
    batches.write(1, [["b"]])
    key, place = batches.stream.name, TopicPartition("barnabas-spark-control", 0)
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.alter_group_offsets(key, {place: 10_000})
    for options in ((), ("--finish",)):
        told = _asked(batches, tmp_path, *options)
        assert told.return_value == 1
        assert told.output.count("stood at offset 10000 of the control topic") == 1
        assert [line.split()[5] for line in told.output.splitlines()[2:3]] == ["open"]
        assert "nobody knows whether it was decided" in told.output
        assert "undecided" not in told.output


def test_what_is_no_checkpoint_and_what_has_nothing_is_said(batches: RealBatches, tmp_path: Path) -> None:
    told = _asked(batches, tmp_path, "--control-topic", "nowhere", query="unknown")
    assert told.output == "query unknown has no transactions in the control topic, and none that are open\n"
    with Admin(bootstrap_servers=batches.servers) as admin:
        assert "nowhere" not in admin.list_topics()
    (tmp_path / "metadata").unlink()
    arguments = ["--bootstrap-server", batches.servers, "--from-checkpoint", str(tmp_path)]
    with pytest.raises(OptionError, match="is no checkpoint of a query"):
        CliRunner().invoke(transactions, arguments, catch_exceptions=False, standalone_mode=False)


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--bootstrap-server", "h:1", "--finish"], "go with --from-checkpoint"),
        (["--bootstrap-server", "h:1"], "Missing command."),
        (["--bootstrap-server", "h:1", "--from-checkpoint", "x", "list"], "goes without list"),
    ],
)
def test_options_that_do_not_go_together(arguments: list[str], said: str) -> None:
    told = CliRunner().invoke(transactions, arguments)
    assert told.exit_code != 0
    assert said in told.output
