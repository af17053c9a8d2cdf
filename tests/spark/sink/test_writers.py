"""What the driver does for a write: checks options and columns, and tells what tasks wrote."""

from __future__ import annotations

import pickle
from typing import Any, cast

import pytest
from pyspark.errors import AnalysisException

import barnabas.spark
from barnabas.spark.core.errors import OptionError
from barnabas.spark.sink import batch_writer, stream_writer, topic_writer
from barnabas.spark.sink.messages import PartitionRows, RowsWritten
from tests.spark.sink.shapes import schema

_SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}
_OPTIONS = {**_SERVERS, "topic": " t "}
_VALUE = schema(("value", "string"))


def test_a_writer_is_pickled_with_all_that_a_task_needs() -> None:
    options = {**_OPTIONS, "Kafka.Compression.Type": "zstd", "kafka.batch.size": "1000", "includeHeaders": "true"}
    writer = batch_writer(options, _VALUE, overwrite=False)
    plan = pickle.loads(pickle.dumps(writer)).plan
    assert plan == writer.plan
    assert (plan.topic, plan.columns.value) == ("t", 0)
    assert plan.client == {"bootstrap.servers": "127.0.0.1:9092", "compression.type": "zstd", "batch.size": "1000"}


def test_a_plan_shows_no_passwords() -> None:
    options = {**_OPTIONS, "kafka.client.id": "secret"}
    assert "secret" not in repr(batch_writer(options, _VALUE, overwrite=False).plan)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"kafka.key.serializer": "x"}, "kafka.key.serializer"),
        ({"kafka.value.serializer": "x"}, "kafka.value.serializer"),
        ({"kafka.transactional.id": "x"}, "kafka.transactional.id"),
        ({"kafka.partitioner.class": "com.example.Mine"}, "add a column 'partition' of type int"),
        ({"kafka.interceptor.classes": "com.example.Mine"}, "kafka.interceptor.classes is 'com.example.Mine'"),
        ({"kafka.linger.ms": "soon"}, "linger.ms = 'soon'"),
        ({"kafka.acks": "1", "kafka.enable.idempotence": "true"}, "idempotence needs acks = all"),
        ({"delivery": "exactly-once", "kafka.acks": "1"}, "Leave kafka.acks out"),
        ({"delivery": "exactly-once", "kafka.enable.idempotence": "false"}, "Leave kafka.enable.idempotence out"),
        ({"delivery": "exactly-once", "kafka.transactional.id": "x"}, "names its transactions itself"),
        ({"includeTimestamp": "perhaps"}, "includeTimestamp"),
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers"),
    ],
)
def test_wrong_options_are_refused_on_the_driver(options: dict[str, str], said: str) -> None:
    for make in (batch_writer, stream_writer):
        with pytest.raises(OptionError) as refused:
            make({**_OPTIONS, **options}, _VALUE, False)
        assert said in str(refused.value)
    with pytest.raises(OptionError):
        batch_writer({}, _VALUE, overwrite=False)


def test_settings_that_no_producer_knows_are_warned_about(caplog: pytest.LogCaptureFixture) -> None:
    writer = batch_writer(
        {**_OPTIONS, "kafka.lingre.ms": "5", "topc": "x", "strictOptions": "false"}, _VALUE, overwrite=False
    )
    assert "lingre.ms" not in writer.plan.client
    assert "did you mean kafka.linger.ms?" in caplog.text
    assert "did you mean topic?" in caplog.text


def test_overwriting_is_refused_for_a_batch_and_means_complete_for_a_stream() -> None:
    with pytest.raises(OptionError, match="A topic cannot be overwritten"):
        batch_writer(_OPTIONS, _VALUE, overwrite=True)
    assert stream_writer(_OPTIONS, _VALUE, overwrite=True).plan.topic == "t"


def test_the_driver_tells_what_was_written_and_what_a_failed_write_leaves(caplog: pytest.LogCaptureFixture) -> None:
    done = [
        RowsWritten((PartitionRows("t", 0, 5, 9, 5), PartitionRows("u", 1, -1, -1, 3))),
        RowsWritten((PartitionRows("t", 0, 10, 29, 1000),)),
    ]
    batch, stream = batch_writer(_OPTIONS, _VALUE, overwrite=False), stream_writer(_OPTIONS, _VALUE, overwrite=False)
    with caplog.at_level("INFO", "barnabas.spark.sink"):
        batch.commit([*pickle.loads(pickle.dumps(done))])
        stream.commit([RowsWritten()], 4)
        batch.abort([None, done[0]])
        stream.abort([None, None], 5)
    assert [(record.levelname, record.getMessage().partition(" These")[0]) for record in caplog.records] == [
        ("INFO", "wrote 1,008 rows (t-0: 1,005 rows at offsets 5 to 29, u-1: 3 rows)"),
        ("INFO", "batch 4: wrote no rows"),
        (
            "WARNING",
            "the write failed; 1 of 2 tasks did not end well, the others wrote 8 rows (t-0: 5 rows at offsets 5 to 9, "
            "u-1: 3 rows).",
        ),
        ("WARNING", "batch 5 failed; 2 of 2 tasks did not end well, the others wrote no rows."),
    ]


class _Frame:
    """A DataFrame that notes how it is written, in a session that may not know the format yet."""

    def __init__(self, is_known: bool = True) -> None:
        self.calls: list[object] = []
        self.is_known = is_known
        self.sparkSession = self
        self.write = self

    def format(self, name: str) -> _Frame:
        self.calls.append(name)
        return self

    def options(self, **options: str) -> _Frame:
        self.calls.append(options)
        return self

    def mode(self, name: str) -> _Frame:
        self.calls.append(name)
        return self

    def save(self) -> None:
        if not self.is_known:
            raise AnalysisException("[DATA_SOURCE_NOT_FOUND] Failed to find the data source: barnabas.")
        self.calls.append("saved")


def test_updates_are_appended_batch_by_batch() -> None:
    write = pickle.loads(pickle.dumps(topic_writer(_SERVERS, topic="t", includeTimestamp=True)))
    frame = _Frame()
    write(frame, 0)
    assert frame.calls == ["barnabas", {**_SERVERS, "topic": "t", "includeTimestamp": "true"}, "append", "saved"]


def test_an_option_that_is_none_is_one_that_is_not_given() -> None:
    assert topic_writer(_OPTIONS, topic=None).options == _SERVERS


def test_a_session_that_does_not_know_the_format_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    frame = _Frame(is_known=False)

    def register(session: object) -> None:
        assert session is frame
        frame.is_known = True

    monkeypatch.setattr(barnabas.spark, "register", register)
    topic_writer(_OPTIONS)(cast("Any", frame), 0)
    assert frame.calls[-1] == "saved"


def test_a_plain_batch_is_not_written_exactly_once() -> None:
    once = {**_OPTIONS, "delivery": "exactly-once"}
    with pytest.raises(OptionError, match="which is for streams"):
        batch_writer(once, _VALUE, overwrite=False)
    with pytest.raises(OptionError, match="exactlyOnceBatch is for foreachBatch"):
        stream_writer({**once, "exactlyOnceBatch": "1"}, _VALUE, overwrite=False)
    plan = stream_writer(once, _VALUE, overwrite=False).plan
    assert plan.client["transaction.timeout.ms"] == "600000"
    assert pickle.loads(pickle.dumps(plan)) == plan


@pytest.mark.parametrize(
    ("timeout_ms", "said"),
    [("0", "a batch must fit in"), ("30000", "a driver that pauses while it decides"), ("60000", "")],
)
def test_a_transaction_that_ends_too_soon(timeout_ms: str, said: str, caplog: pytest.LogCaptureFixture) -> None:
    options = {**_OPTIONS, "delivery": "exactly-once", "kafka.transaction.timeout.ms": timeout_ms}
    if timeout_ms == "0":
        with pytest.raises(OptionError, match=said):
            topic_writer(options)
        return
    topic_writer(options)
    assert said in caplog.text
    assert bool(caplog.text) == bool(said)


def test_wrong_options_of_a_topic_writer_are_refused_where_it_is_made() -> None:
    with pytest.raises(OptionError, match=r"Leave kafka\.acks out"):
        topic_writer(_OPTIONS, delivery="exactly-once", **{"kafka.acks": "0"})
    with pytest.raises(OptionError, match=r"kafka\.linger\.ms = 'soon'"):
        topic_writer(_OPTIONS, **{"kafka.linger.ms": "soon"})
