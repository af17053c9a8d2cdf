"""The sink exactly once against a real node, with drivers that die after every single step."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from dataclasses import replace

import pyarrow as pa
import pytest
from pyspark.sql.datasource import WriterCommitMessage

from barnabas import Admin, NewTopic, TopicPartition, UnsupportedRequestError
from barnabas.spark.core.exactly_once import Attempt, Control, finish, steps
from barnabas.spark.core.exactly_once.control import decision_of
from barnabas.spark.core.exactly_once.protocol import settle_before
from barnabas.spark.core.exactly_once.refusals import (
    NotAliveError,
    OtherPastError,
    SupersededError,
    TornBatchError,
)
from barnabas.spark.sink.columns import SinkColumns
from barnabas.spark.sink.deciding import DecidingCluster
from barnabas.spark.sink.messages import TransactionWritten
from barnabas.spark.sink.transactional import write_in_transaction
from barnabas.spark.sink.writers import TopicStreamWriter
from barnabas.spark.sink.writing import WriteError
from barnabas.testing import EmbeddedBroker
from tests.spark.exactly_once.real_batches import RealBatches

Make = Callable[..., RealBatches]


@pytest.fixture
def make(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> Iterator[Make]:
    made: list[RealBatches] = []

    def make(**options: object) -> RealBatches:
        made.append(RealBatches(broker.bootstrap_servers, new_topic(), **options))
        return made[-1]

    yield make
    for each in made:
        each.left.close()


def open_ids(batches: RealBatches) -> list[str]:
    with Admin(bootstrap_servers=batches.servers) as admin:
        listed = admin.list_transactions(states=["Ongoing"])
        return [
            each.transactional_id for each in listed if each.transactional_id.startswith(batches.stream.task_prefix)
        ]


def test_batches_one_after_another(make: Make) -> None:
    batches = make()
    for batch in range(3):
        written = batches.write(batch, [[f"{batch}a", f"{batch}b"], [], [f"{batch}c"]])
        assert batches.rows() == [f"{each}{row}" for each in range(batch) for row in "abc"]
        batches.commit(batch, written)
    assert batches.rows() == [f"{each}{row}" for each in range(3) for row in "abc"]


def test_a_driver_that_dies_after_any_step_of_a_commit(make: Make) -> None:
    seen = []
    for step_count in range(99):
        batches = make()
        batches.commit(0, batches.write(0, [["0"]]))
        last = batches.dies_after(step_count, 1, batches.write(1, [["a"], ["b", "c"], []]))
        seen.append(last)
        batches.restart()
        # Another number of tasks, in another order.
        batches.commit(1, batches.write(1, [[], ["c"], ["b"], ["a"]]))
        batches.commit(2, batches.write(2, [["2"]]))
        assert sorted(batches.rows()) == ["0", "2", "a", "b", "c"], f"after {last}"
        assert open_ids(batches) == [], f"after {last}"
        if not last:
            break
    assert seen == [
        *("nothing", "PeekControl", "FenceDriver", "ReadControl", "ListOpen", "WriteControl", "Probe"),
        *("CommitControl", "CommitTask", ""),
    ]


def test_commit_fails_half_way_and_abort_follows(make: Make) -> None:
    batches = make()
    written = batches.write(0, [["a"], ["b"]])
    assert batches.dies_after(10, 0, written) == "CommitTask"
    batches.abort(written)
    assert sorted(batches.rows()) == ["a", "b"]
    batches.restart()
    batches.commit(0, batches.write(0, [["a", "b"]]))
    assert sorted(batches.rows()) == ["a", "b"]


def test_an_abort_without_a_decision_leaves_nothing(make: Make) -> None:
    batches = make()
    written = batches.write(0, [["a"], ["b"]])
    assert len(open_ids(batches)) == 2
    batches.abort(written[:1])
    assert open_ids(batches) == []
    with pytest.raises(NotAliveError, match=r"task 0 \(1 row\), task 1 \(1 row\)"):
        batches.commit(0, written)
    assert batches.rows() == []


def test_losers_and_vanished_tasks_are_aborted(make: Make) -> None:
    batches = make()
    batches.write_task(0, 0, ["lost"], attempt=0)
    winner = batches.write_task(0, 0, ["a"], attempt=1)
    batches.commit(0, [winner])
    assert open_ids(batches) == []
    assert batches.rows() == ["a"]


def test_an_old_driver_that_comes_back_is_told_that_it_is_superseded(make: Make) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    old_run, old = batches.run, batches.write(1, [["1"]])
    batches.restart()
    batches.commit(1, batches.write(1, [["1"]]))
    new_run, batches.run = batches.run, old_run
    with pytest.raises(SupersededError, match=f"superseded by run {new_run}"):
        batches.commit(1, old)
    assert batches.rows() == ["0", "1"]


def test_a_past_that_does_not_fit_is_refused(make: Make) -> None:
    batches = make()
    with pytest.raises(OtherPastError, match="exactlyOnceFrom to 7"):
        batches.commit(7, batches.write(7, [["a"]]))
    batches.plan = batches.plan_with(first_batch=7)
    batches.commit(7, batches.write(7, [["a"]]))
    batches.commit(8, batches.write(8, [["b"]]))
    with pytest.raises(OtherPastError, match="the newest decision is that of batch 8"):
        batches.commit(7, batches.write(7, [["a"]]))
    with pytest.raises(OtherPastError, match="ends with batch 8"):
        batches.commit(10, batches.write(10, [["c"]]))
    batches.restart()
    with pytest.raises(OtherPastError, match="now has 2 rows with 2 bytes in 1 tasks"):
        batches.commit(8, batches.write(8, [["b", "c"]]))
    # As many of the same size, as of a copied checkpoint that takes others from the partitions.
    with pytest.raises(OtherPastError, match="now has 1 other row with 1 bytes in 1 tasks"):
        batches.commit(8, batches.write(8, [["c"]]))
    batches.plan = batches.plan_with(keeps_other_rows=True)
    batches.commit(8, batches.write(8, [["b", "c"]]))
    assert batches.rows() == ["a", "b"]


def test_a_driver_that_stays_away_for_too_long_leaves_a_torn_batch_which_is_told(make: Make) -> None:
    batches = make()
    written = batches.write(0, [["a"], ["b", "c"]])
    assert batches.dies_after(10, 0, written) == "CommitTask"
    # As if its time were over.
    assert written[1].handle is not None
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.force_terminate_transaction(written[1].handle.transactional_id)
    for _ in range(2):
        batches.restart()
        with pytest.raises(TornBatchError, match=r"no proof of 2 rows in the topics: those of task 1 \(2 rows\)"):
            batches.commit(0, batches.write(0, [["a", "b", "c"]]))
    assert batches.rows() == ["a"]
    assert open_ids(batches) == []


def test_what_was_committed_is_known_by_its_receipt(make: Make) -> None:
    batches = make()
    written = batches.write(0, [["a"], ["b"]])
    assert batches.dies_after(10, 0, written) == "CommitTask"
    assert written[0].handle is not None
    with Admin(bootstrap_servers=batches.servers) as admin:
        # Committed before; EndTxn cannot tell from here on.
        admin.fence_producers([written[0].handle.transactional_id])
    batches.restart()
    batches.commit(0, batches.write(0, [["a", "b"]]))
    assert sorted(batches.rows()) == ["a", "b"]


def test_what_a_dead_driver_left_can_be_finished_without_a_query(make: Make) -> None:
    batches = make()
    batches.write_task(0, 1, ["lost"])
    assert batches.dies_after(9, 0, [batches.write_task(0, 0, ["a"], 1)]) == "CommitControl"
    with DecidingCluster(batches.plan.client, "barnabas-spark-control") as cluster:
        decided = cluster.perform(finish(batches.stream, "finishing"))
    assert decided is not None
    assert (decided.batch, decided.rows) == (0, 1)
    assert batches.rows() == ["a"]
    assert open_ids(batches) == []


def test_a_control_topic_without_the_newest_decision_is_noticed(make: Make) -> None:
    batches = make(control_topic="control-that-is-deleted")
    batches.commit(0, batches.write(0, [["a"]]))
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.delete_topics(["control-that-is-deleted"])
        admin.create_topics(["control-that-is-deleted"])
    batches.restart()
    with pytest.raises(OtherPastError, match="whose tasks have committed before"):
        batches.commit(0, batches.write(0, [["a"]]))
    assert batches.rows() == ["a"]


def test_somebody_goes_on_after_a_commit_that_failed(make: Make) -> None:
    """In `foreachBatch` an exception may be swallowed; then Spark counts the batch as done."""
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    assert batches.dies_after(8, 1, batches.write(1, [["a"], ["b"]])) == "CommitTask"
    batches.commit(2, batches.write(2, [["2"]]))
    assert sorted(batches.rows()) == ["0", "2", "a", "b"]
    assert open_ids(batches) == []


def test_somebody_goes_on_when_it_is_too_late(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    written = batches.write(1, [["a"], ["b"]])
    assert batches.dies_after(8, 1, written) == "CommitTask"
    assert written[1].handle is not None
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.fence_producers([written[1].handle.transactional_id])
    with pytest.raises(TornBatchError, match=r"Batch 1 .* task 1 \(1 row\)"):
        batches.commit(2, batches.write(2, [["2"]]))
    # So long ago that coordinators have forgotten the id, Spark's word counts.
    forgotten = replace(written[1].handle, transactional_id=f"{written[1].handle.transactional_id}0")
    decided = decision_of(1, batches.run, [written[0], replace(written[1], handle=forgotten)])
    with DecidingCluster(batches.plan.client, "barnabas-spark-control") as cluster:
        cluster.perform(settle_before(batches.stream, decided, 2))
    assert f"the first being {forgotten.transactional_id}" in caplog.text


def test_two_writers_that_share_a_name_are_told(make: Make) -> None:
    """The second seems to repeat what the first has done, with other topics; the process has not seen that done."""
    batches = make()
    assert batches.dies_after(99, 0, batches.write(0, [["a"]])) == ""
    batches.plan = replace(batches.plan, topic="another")
    again = batches.write(0, [["a"]])
    with pytest.raises(OtherPastError, match=r"to topic 'another'.* leave the first its sinkName, sink, and"):
        batches.commit(0, again)
    by_rows = replace(batches.plan, columns=SinkColumns(value=0, topic=1), topic=None)
    written = []
    for attempt_id, topic in enumerate(("one", "other"), start=100):
        attempt = Attempt(batches.stream, batches.run, 1, 0, 0, attempt_id)
        rows = pa.record_batch({"value": [b"b"], "topic": [topic]})
        written.append(write_in_transaction(by_rows, [rows], attempt).written)
    assert batches.dies_after(99, 1, written[:1]) == ""
    with pytest.raises(
        OtherPastError, match=r"has 1 other row .* This run has written it, .* and give each other one of its own"
    ):
        batches.commit(1, written[1:])


def test_two_writers_that_share_a_name_and_rows_are_told(make: Make) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["a"]]))
    with pytest.raises(OtherPastError, match=r"to its end by this run before.* give each other one of its own"):
        batches.commit(0, batches.write(0, [["a"]]))
    batches.commit(1, batches.write(1, [["b"]]))
    assert batches.rows() == ["a", "b"]


def test_a_function_that_tries_again_after_a_failure_writes_once(make: Make) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    assert batches.dies_after(7, 1, batches.write(1, [["a"], ["b"]])) == "CommitControl"
    batches.commit(1, batches.write(1, [["a", "b"]]))
    batches.commit(2, batches.write(2, [["2"]]))
    assert sorted(batches.rows()) == ["0", "2", "a", "b"]
    assert open_ids(batches) == []


def test_two_writers_that_share_a_name_are_told_also_where_repeated_batches_may_differ(make: Make) -> None:
    """What another run has decided may have other rows; in one run only another writer has."""
    batches = make(keeps_other_rows=True)
    batches.commit(0, batches.write(0, [["a"]]))
    with pytest.raises(OtherPastError, match="give each other one of its own"):
        batches.commit(0, batches.write(0, [["other"]]))
    batches.restart()
    batches.commit(0, batches.write(0, [["random"]]))
    with pytest.raises(OtherPastError, match="give each other one of its own"):
        batches.commit(0, batches.write(0, [["other"]]))
    assert batches.rows() == ["a"]


def test_another_writer_is_known_by_its_rows_though_another_run_has_decided_them(make: Make) -> None:
    """Which the run that repeats the batch has ended, with its first writer; another process commits the second."""
    batches = make(keeps_other_rows=True)
    batches.commit(0, batches.write(0, [["a"]]))
    batches.restart()
    assert batches.dies_after(99, 0, batches.write(0, [["a"]])) == ""
    with pytest.raises(OtherPastError, match="give each other one of its own"):
        batches.commit(0, batches.write(0, [["other"]]))
    assert batches.rows() == ["a"]


def test_a_writer_that_gets_another_name_does_not_write_again(make: Make) -> None:
    batches = make()
    former = batches.stream
    renamed = replace(former, sink="renamed")
    batches.commit(0, batches.write(0, [["a"], ["b"]]))
    refusal = r"with sinkName=renamed, and with sinkName=sink run run1 has written batch 0 there before"
    # Spark does not know that it is done. Then with a checkpoint that was rewound besides.
    for rewound in (False, True):
        batches.restart()
        batches.stream = renamed
        with pytest.raises(OtherPastError, match=refusal if not rewound else "run run2 has written batch 1 there"):
            batches.commit(0, batches.write(0, [["b", "a"]]))
        batches.plan = batches.plan_with(first_batch=0)
        batches.stream = former
        if not rewound:
            batches.commit(0, batches.write(0, [["a", "b"]]))
            batches.commit(1, batches.write(1, [["1"]]))
    batches.commit(2, batches.write(2, [["2"]]))
    # From a batch on that nobody has begun, it is what exactlyOnceFrom is for.
    batches.restart()
    batches.stream, batches.plan = renamed, batches.plan_with(first_batch=3)
    batches.commit(3, batches.write(3, [["3"]]))
    assert batches.rows() == ["a", "b", "1", "2", "3"]


def test_writers_with_names_of_their_own_may_write_the_same(make: Make) -> None:
    batches = make()
    first = batches.stream
    second, third = replace(first, sink="second"), replace(first, sink="third")
    for stream in (first, second):
        batches.stream = stream
        batches.commit(0, batches.write(0, [["a"]]))
    # A third one is added, when the first has done its part of the batch.
    batches.restart()
    for stream in (first, second, third):
        batches.stream = stream
        batches.commit(0, batches.write(0, [["a"]]))
    assert batches.rows() == ["a", "a", "a"]


def test_a_writer_that_is_given_another_number_is_told(make: Make) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["a"]]))
    with pytest.raises(OtherPastError, match="called with batch 0 in batch 1: give it the number that foreachBatch"):
        batches.commit(0, batches.write(1, [["b"]]))


def test_a_control_topic_that_has_lost_its_end_is_told(make: Make) -> None:
    """What is before the end must not be taken for the newest decision."""
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    batches.commit(1, batches.write(1, [["1"]]))
    key, place = batches.stream.name, TopicPartition("barnabas-spark-control", 0)
    with Admin(bootstrap_servers=batches.servers) as admin:
        there = admin.list_group_offsets({key: [place]})[key][place].offset
        for offset in (there + 10_000, there + 1):  # beyond the end, and what is no record of this query
            admin.alter_group_offsets(key, {place: offset})
            batches.restart()
            with pytest.raises(OtherPastError, match=f"stood at offset {offset} .* is not there any more"):
                batches.commit(1, batches.write(1, [["1"]]))
    assert batches.rows() == ["0", "1"]


def test_brokers_that_have_lost_where_the_newest_decision_is(make: Make) -> None:
    """The end of their offsets is gone, and not that of the control topic: an older decision must not pass for it."""
    batches = make()
    key, place = batches.stream.name, TopicPartition("barnabas-spark-control", 0)
    batches.commit(0, batches.write(0, [["0"]]))
    with Admin(bootstrap_servers=batches.servers) as admin:
        before = admin.list_group_offsets({key: [place]})[key][place].offset
        batches.commit(1, batches.write(1, [["1"]]))
        admin.alter_group_offsets(key, {place: before})
    batches.restart()
    batches.commit(1, batches.write(1, [["1"]]))
    batches.commit(2, batches.write(2, [["2"]]))
    assert batches.rows() == ["0", "1", "2"]


def test_what_was_never_decided_does_not_pass_for_newer(make: Make) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    written = batches.write(1, [["1"]])
    batches.abort(written)
    with pytest.raises(NotAliveError):
        batches.commit(1, written)  # leaves a record that is aborted
    batches.commit(1, batches.write(1, [["1"]]))
    assert batches.rows() == ["0", "1"]


def test_batches_that_were_left_out_are_told_and_what_helps_does(make: Make) -> None:
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    with pytest.raises(OtherPastError, match=r"left batches out.* set the option exactlyOnceFrom to 2"):
        batches.commit(2, batches.write(2, [["2"]]))
    batches.restart()
    batches.plan = batches.plan_with(first_batch=2)
    batches.commit(2, batches.write(2, [["2"]]))
    batches.commit(3, batches.write(3, [["3"]]))
    assert batches.rows() == ["0", "2", "3"]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_control_topic_that_forgets_is_refused(make: Make, policy: str, caplog: pytest.LogCaptureFixture) -> None:
    topic = f"control-with-{policy}"
    batches = make(control_topic=topic)
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.create_topics([NewTopic(topic, 1, configs={"cleanup.policy": policy})])
    written = batches.write(0, [["a"]])
    if policy == "delete":
        with pytest.raises(WriteError, match=r"has cleanup\.policy=delete: it would forget decisions"):
            batches.commit(0, written)
        return
    batches.commit(0, written)
    assert "message.timestamp.type=CreateTime" in caplog.text
    assert batches.rows() == ["a"]


def test_a_decision_of_very_many_tasks(make: Make) -> None:
    batches = make()
    (written,) = batches.write(0, [["a"]])
    assert written.handle is not None
    parts = []
    for task in range(10_000):
        attempt = replace(written.attempt, task=task)
        handle = replace(written.handle, transactional_id=attempt.transactional_id, producer_id=task)
        parts.append(replace(written, attempt=attempt, handle=handle))
    control = Control(batches.run, decision=decision_of(0, batches.run, parts))
    assert len(control.encode()) > 1 << 20, "more than a broker takes as it is"
    with DecidingCluster(batches.plan.client, "barnabas-spark-control") as cluster:
        for step in (steps.FenceDriver, steps.WriteControl, steps.CommitControl):
            more = {"control": control} if step is steps.WriteControl else {}
            cluster.take(step(batches.stream, **more))
        assert cluster.take(steps.ReadControl(batches.stream)) == control


def test_where_the_cluster_tells_of_no_transactions_their_producers_are_asked(
    make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As Kafka before 3.0: there are no lists, and no descriptions."""

    def unsupported(*arguments: object, **options: object) -> None:
        raise UnsupportedRequestError("127.0.0.1:1", "it knows no such request")

    batches = make()
    with monkeypatch.context() as old:
        old.setattr(Admin, "list_transactions", unsupported)
        old.setattr(Admin, "describe_transactions", unsupported)
        for batch in range(2):
            batches.commit(batch, batches.write(batch, [[f"{batch}a"], [f"{batch}b"]]))
        assert sorted(batches.rows()) == ["0a", "0b", "1a", "1b"]
        written = batches.write(2, [["2a"], ["2b"]])
        assert written[1].handle is not None
        with Admin(bootstrap_servers=batches.servers) as admin:
            group = batches.stream.group_of(1)
            assert admin.is_transaction_open(written[1].handle, group)
            admin.fence_producers([written[1].handle.transactional_id])
            assert not admin.is_transaction_open(written[1].handle, group)
        with pytest.raises(NotAliveError, match=r"task 1 \(1 row\)"):
            batches.commit(2, written)
        # Too late, by the clocks of task and driver.
        late = [replace(each, begun_ms=each.begun_ms - 40_000) for each in batches.write(2, [["2"]])]
        with pytest.raises(NotAliveError, match="are needed to end all of them safely"):
            batches.commit(2, late)
    batches.restart()
    batches.commit(2, batches.write(2, [["2"]]))
    assert sorted(batches.rows()) == ["0a", "0b", "1a", "1b", "2"]


def test_an_abort_that_fails_leaves_the_word_to_the_commit(make: Make, caplog: pytest.LogCaptureFixture) -> None:
    """Spark calls both, and of an abort that raises tells nothing but that the job failed."""
    batches = make()
    batches.commit(0, batches.write(0, [["0"]]))
    messages: list[WriterCommitMessage | None] = [
        TransactionWritten((), written=each) for each in batches.write(1, [["a"]])
    ]
    with DecidingCluster(batches.plan.client, "barnabas-spark-control") as cluster:
        cluster.perform(finish(batches.stream, "another"))
    writer = TopicStreamWriter(batches.plan)
    with pytest.raises(SupersededError, match="was superseded by run another"):
        writer.commit(messages, 1)
    writer.abort(messages, 1)
    assert "batch 1 failed, and what it left open could not be ended: Run run1 of query" in caplog.text


def test_a_control_topic_that_is_deleted_under_a_task(make: Make) -> None:
    batches = make(control_topic="control-to-be-deleted")
    batches.plan = replace(batches.plan, client={**batches.plan.client, "max.block.ms": "2000"})
    batches.commit(0, batches.write(0, [["0"]]))
    with Admin(bootstrap_servers=batches.servers) as admin:
        admin.delete_topics(["control-to-be-deleted"])
    with pytest.raises(WriteError, match="'control-to-be-deleted', where decisions are kept, was deleted while"):
        batches.write(1, [["1"]])
    with Admin(bootstrap_servers=batches.servers) as admin:
        assert "control-to-be-deleted" in admin.list_topics()
    # Spark runs the task again, and the driver says what that means.
    with pytest.raises(OtherPastError, match="nobody knows what of the newest batch is in the topics"):
        batches.commit(1, batches.write(1, [["1"]]))
    assert batches.rows() == ["0"]


def test_a_task_that_comes_near_the_time_out(make: Make) -> None:
    batches = make(timeout_ms=60_000)
    seconds = itertools.count(0, 20)
    data = [pa.record_batch({"value": [b"x"]}) for _ in range(3)]
    attempt = Attempt(batches.stream, batches.run, 0, 0, 0, 0)
    with pytest.raises(
        NotAliveError,
        match=r"written for 40 s.* after 60 s.*at least 40 s longer than a batch.*is 60000, .* allow 900000\.",
    ):
        write_in_transaction(batches.plan, data, attempt, lambda: float(next(seconds)))
    longest = make(timeout_ms=900_000)
    seconds = itertools.count(0, 500)
    with pytest.raises(
        NotAliveError,
        match=r"as long as the brokers allow.*max\.timeout\.ms, which is 900000, longer, .*at least 40 s",
    ):
        write_in_transaction(longest.plan, data, attempt, lambda: float(next(seconds)))
    assert open_ids(batches) == []


def test_a_batch_is_as_old_as_its_first_task(make: Make) -> None:
    """Many tasks on few cores: the transactions of the first wave run out of time, not that of the last."""
    batches = make(timeout_ms=60_000)
    data = [pa.record_batch({"value": [b"x"]})]
    first, second = (Attempt(batches.stream, batches.run, 0, task, 0, task) for task in range(2))
    write_in_transaction(batches.plan, data, first, lambda: 0.0)
    with pytest.raises(NotAliveError, match=r"Batch 0 .*written for 35 s at task 1"):
        write_in_transaction(batches.plan, data, second, lambda: 35.0)
    # The next one is not as old, nor one that is tried again.
    write_in_transaction(batches.plan, data, replace(second, stage=1), lambda: 35.0)
    write_in_transaction(batches.plan, data, replace(second, batch=1), lambda: 35.0)
