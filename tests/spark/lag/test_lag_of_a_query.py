"""Lag from what a query tells of itself, and from what the brokers tell."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas import Producer
from barnabas.spark.lag import LagError, LagListener, LagMeter, LagOf, PartitionLag, QueryLag, lag, summary
from barnabas.testing import EmbeddedBroker
from tests.spark.reading.logs import Log, write
from tests.spark.rig import contents

_NOW_MS = 1_700_000_000_000


def _progress(*sources: dict[str, Any]) -> dict[str, Any]:
    return {"id": "q", "batchId": 7, "sources": list(sources)}


def _source(end: Any, latest: Any = None) -> dict[str, Any]:
    return {"description": "x", "startOffset": None, "endOffset": end, "latestOffset": latest}


def test_a_progress_holds_positions_and_ends() -> None:
    progress = _progress(_source({"t": {"0": 5, "1": 7}}, {"t": {"0": 15, "1": 7}}))
    assert lag(progress) == (PartitionLag("t", 0, 5, 15, 10, None), PartitionLag("t", 1, 7, 7, 0, 0.0))


def test_offsets_of_python_sources_are_text_and_may_tell_where_the_query_began() -> None:
    end = json.dumps({"t": {"0": 5}, "@start t 0 3": {}})
    expected = (PartitionLag("t", 0, 5, 6, 1, None),)
    for form in (end, json.dumps(end)):
        progress = _progress(_source(form, '{"t": {"0": 6}}'))
        assert lag(progress) == expected
        assert lag(json.dumps(progress)) == expected


def test_sources_that_read_no_topics_or_have_not_begun_are_passed_over() -> None:
    progress = _progress(
        _source(42, 43),
        _source({"logOffset": 3}),
        _source({"0": {"value": 3, "runTimeMs": 5}}),
        _source(None),
        _source("None"),
        _source({"t": {"2": 1}}, {"t": {"2": 4}}),
    )
    assert lag(progress) == (PartitionLag("t", 2, 1, 4, 3, None, source=5),)


def test_the_summary_is_that_of_the_jvm_connector() -> None:
    # A partition that the query has not begun to read counts from 0.
    partitions = lag(_progress(_source({"t": {"0": 5, "1": 7}}, {"t": {"0": 15, "1": 7, "2": 1}})))
    total = summary(partitions)
    assert total is not None
    assert total.metrics() == {
        "minOffsetsBehindLatest": "0",
        "maxOffsetsBehindLatest": "10",
        "avgOffsetsBehindLatest": "3.6666666666666665",
    }
    assert (total.records, total.seconds) == (11, 0.0)
    assert summary(()) is None


@pytest.mark.parametrize(("behind", "written"), [(0, "0.0"), (9_999_999, "9999999.0"), (12_345_678, "1.2345678E7")])
def test_large_averages_are_written_as_java_writes_them(behind: int, written: str) -> None:
    total = summary(lag(_progress(_source({"t": {"0": 0}}, {"t": {"0": behind}}))))
    assert total is not None
    assert total.metrics()["avgOffsetsBehindLatest"] == written


@pytest.mark.parametrize(
    ("of", "said"),
    [
        (_progress(_source({"t": {"0": 5}})), "give bootstrap_servers"),
        ({"batchId": 1}, "this is no progress of a query"),
        (SimpleNamespace(lastProgress=None), "no progress yet"),
    ],
)
def test_what_cannot_be_told_is_said(of: LagOf, said: str) -> None:
    with pytest.raises(LagError, match=said):
        lag(of)


def test_the_brokers_tell_the_ends_of_now_and_the_age_of_the_first_unread_record(
    broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    topic = new_topic(3, retention_ms=-1)
    contents.fill(broker.bootstrap_servers, topic, [100, 50, 10])
    query = SimpleNamespace(lastProgress=_progress(_source({topic: {"0": 40, "1": 50, "2": 0}})))
    now_s = contents.FIRST_MS / 1000 + 100
    with LagMeter(broker.bootstrap_servers, clock=lambda: now_s) as meter:
        expected = (
            PartitionLag(topic, 0, 40, 100, 60, 60.0),
            PartitionLag(topic, 1, 50, 50, 0, 0.0),
            PartitionLag(topic, 2, 0, 10, 10, 100.0),
        )
        assert meter.measure(query) == expected
        # `assign` of some partitions: those that it left out are none of its business.
        some = _progress(_source({topic: {"1": 49}}))
        assert meter.measure(some) == (PartitionLag(topic, 1, 49, 50, 1, 51.0),)
    contents.grow(broker.bootstrap_servers, topic, 4)
    assert lag(query, bootstrap_servers=broker.bootstrap_servers)[3] == PartitionLag(topic, 3, 0, 0, 0, 0.0)


def test_a_progress_names_the_partitions_that_count(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(3, retention_ms=-1)
    contents.fill(broker.bootstrap_servers, topic, [10, 10, 10])
    with LagMeter(broker.bootstrap_servers) as meter:
        # `assign` of the first partition looks like a topic that had no other one when the query began.
        for latest in ({"0": 10}, {"0": 10, "1": 4}):
            places = meter.measure(_progress(_source({topic: {"0": 10}}, {topic: latest})))
            assert [(each.partition, each.records) for each in places] == [(0, 0), (1, 10)][: len(latest)]


def test_a_partition_that_has_just_come_is_known(broker: EmbeddedBroker, new_topic: Callable[..., str]) -> None:
    topic = new_topic(1, retention_ms=-1)
    with LagMeter(broker.bootstrap_servers) as meter:
        assert len(meter.measure(_progress(_source({topic: {"0": 0}})))) == 1
        contents.grow(broker.bootstrap_servers, topic, 2)
        contents.fill(broker.bootstrap_servers, topic, [0, 7])
        places = meter.measure(_progress(_source({topic: {"0": 0, "1": 3}})))
        assert [(each.partition, each.records) for each in places] == [(0, 0), (1, 4)]
        with pytest.raises(LagError, match=f"{topic}-2: the query reads it, and the cluster does not have it"):
            meter.measure(_progress(_source({topic: {"0": 0, "1": 3, "2": 0}})))


def test_expired_records_count_and_the_oldest_that_is_left_gives_the_age(
    broker: EmbeddedBroker, new_topic: Callable[..., str]
) -> None:
    from barnabas import Admin, TopicPartition

    topic = new_topic(1, retention_ms=-1)
    contents.fill(broker.bootstrap_servers, topic, [100])
    with Admin(bootstrap_servers=broker.bootstrap_servers) as admin:
        admin.delete_records({TopicPartition(topic, 0): 30})
    with LagMeter(broker.bootstrap_servers, clock=lambda: contents.FIRST_MS / 1000 + 100) as meter:
        assert meter.measure(_progress(_source({topic: {"0": 10}}))) == (PartitionLag(topic, 0, 10, 100, 90, 70.0),)


def test_marks_of_transactions_are_no_records_to_wait_for(tmp_path: Path) -> None:
    write(tmp_path, {"t": Log().batch([b"x"], producer_id=7).marker(7, is_commit=True)})
    with EmbeddedBroker(tmp_path) as broker, LagMeter(broker.bootstrap_servers, timeout=5) as meter:
        assert meter.measure(_progress(_source({"t": {"0": 1}}))) == (PartitionLag("t", 0, 1, 2, 1, 0.0),)


def test_a_topic_that_is_gone_and_brokers_that_do_not_answer(broker: EmbeddedBroker) -> None:
    with pytest.raises(LagError, match="gone"):
        lag(_progress(_source({"gone": {"0": 1}})), bootstrap_servers=broker.bootstrap_servers, timeout=0.5)
    with pytest.raises(LagError, match=r"127\.0\.0\.1:1 "):
        lag(_progress(_source({"t": {"0": 1}})), bootstrap_servers="127.0.0.1:1", timeout=0.5)


def _checkpoint(folder: Path, **files: str) -> Path:
    for name, text in files.items():
        path = folder / name.replace("__", "/")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


class TestCheckpoints:
    """The folder of a query that does not run."""

    @pytest.fixture
    def topic(self, broker: EmbeddedBroker, new_topic: Callable[..., str]) -> str:
        topic = new_topic(1)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            for _ in range(100):
                producer.send(topic, b"x", timestamp_ms=int(time.time() * 1000) - 5000)
        return topic

    @staticmethod
    def _position(broker: EmbeddedBroker, folder: str | Path) -> int:
        [only] = lag(folder, bootstrap_servers=broker.bootstrap_servers)
        assert (only.end, only.records) == (100, 100 - only.position)
        assert only.seconds is not None
        assert 5 <= only.seconds < 60
        return only.position

    def test_what_was_planned_and_not_done_is_still_unread(
        self, broker: EmbeddedBroker, topic: str, tmp_path: Path
    ) -> None:
        end = '{{"{}":{{"0":{}}}}}'
        folder = _checkpoint(
            tmp_path,
            offsets__9=f"v1\n{{}}\n{end.format(topic, 20)}",
            offsets__10=f"v1\n{{}}\n{end.format(topic, 30)}",
            commits__9="v1\n{}",
            offsets__10_crc="junk",
        )
        assert self._position(broker, folder) == 20
        assert self._position(broker, f"file:{folder}") == 20
        assert self._position(broker, f"file://{folder}") == 20

    def test_version_two_names_its_sources(self, broker: EmbeddedBroker, topic: str, tmp_path: Path) -> None:
        lines = ["v2", "{}", 'files:{"logOffset":0}', f'clicks:{{"{topic}":{{"0":42}}}}', "idle:-"]
        folder = _checkpoint(tmp_path, offsets__0="\n".join(lines), commits__0="v1\n{}")
        assert self._position(broker, folder) == 42

    def test_before_the_first_batch_is_done_it_stands_where_that_begins(
        self, broker: EmbeddedBroker, topic: str, tmp_path: Path
    ) -> None:
        ours = json.dumps({topic: {"0": 30}, f"@start {topic} 0 11": {}})
        assert self._position(broker, _checkpoint(tmp_path / "ours", offsets__0=f"v1\n{{}}\n{ours}")) == 11
        jvm = json.dumps({topic: {"0": 30}})
        start = json.dumps({topic: {"0": 12}})
        folder = _checkpoint(tmp_path / "jvm", offsets__0=f"v1\n{{}}\n{jvm}", sources__0__0=f"\0v1\n{start}")
        assert self._position(broker, folder) == 12
        neither = _checkpoint(tmp_path / "neither", offsets__0=f"v1\n{{}}\n{jvm}")
        with pytest.raises(LagError, match="does not say where the first one begins"):
            lag(neither, bootstrap_servers=broker.bootstrap_servers)

    def test_a_folder_that_is_no_checkpoint(self, tmp_path: Path) -> None:
        with pytest.raises(LagError, match="not the checkpoint of a query that has begun"):
            lag(tmp_path, bootstrap_servers="127.0.0.1:1")

    def test_without_brokers_a_checkpoint_does_not_tell_the_ends(self, tmp_path: Path) -> None:
        folder = _checkpoint(tmp_path, offsets__0='v1\n{}\n{"t":{"0":1}}', commits__0="v1\n{}")
        with pytest.raises(LagError, match="give bootstrap_servers"):
            lag(folder)


class _Progress(dict[str, Any]):
    """As Spark hands it to listeners: a dict with attributes."""

    id, runId, name, batchId = "q", "r", None, 7  # noqa: N815


def test_a_listener_tells_a_function_or_the_log_and_never_raises(caplog: pytest.LogCaptureFixture) -> None:
    told: list[QueryLag] = []
    good = SimpleNamespace(progress=_Progress(_progress(_source({"t": {"0": 5}}, {"t": {"0": 1015}}))))
    bad = SimpleNamespace(progress=_Progress(_progress(_source({"t": {"0": 5}}))))
    other = SimpleNamespace(progress=_Progress(_progress(_source(42))))
    for listener in (LagListener(told.append), LagListener()):
        for event in (good, bad, other):
            with caplog.at_level("INFO", "barnabas.spark.lag"):
                listener.onQueryProgress(cast("Any", event))
        listener.close()
    assert [(each.query_id, each.batch_id, each.partitions) for each in told] == [
        ("q", 7, (PartitionLag("t", 0, 5, 1015, 1010, None),))
    ]
    lines = [record.getMessage() for record in caplog.records]
    assert len(lines) == 3
    assert lines[1] == "query q, batch 7: 1,010 records behind (most in t-0: 1,010)"
    assert lines[0] == lines[2]
    assert lines[0].startswith("the lag of query q cannot be told: ")
