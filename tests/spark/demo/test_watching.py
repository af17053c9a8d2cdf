"""What the demo reads of the pipeline's outputs: each record once, files once they are whole."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from barnabas import Admin, BarnabasError, Consumer, Producer
from barnabas.base.error_codes import ErrorCode
from barnabas.spark.demo.story import Story
from barnabas.spark.demo.watching import (
    BROKEN_RULE,
    CAUSE_HEADER,
    CLASS_HEADER,
    TableWatch,
    TopicWatch,
    newest_window,
)
from barnabas.spark.demo.writing import DEAD_LETTERS, SESSIONS, USERS, ClickWriter, create_topics, write_clicks
from barnabas.testing import EmbeddedBroker
from barnabas.wire.apis import ApiKey

NOON = datetime(2026, 11, 16, 12, 0, tzinfo=UTC)


@pytest.fixture(scope="module")
def address() -> Iterator[str]:
    with EmbeddedBroker() as broker:
        create_topics(broker.bootstrap_servers)
        yield broker.bootstrap_servers


def test_records_that_were_written_twice_count_once(address: str) -> None:
    session = {"user": "u1", "began_at": "2026-11-16T12:34:56.789Z", "clicks": 3, "has_bought": True}
    with Producer(bootstrap_servers=address) as producer:
        for _ in range(2):
            producer.send(SESSIONS, json.dumps(session).encode(), key=b"u1")
            producer.send(DEAD_LETTERS, b"{", key=b"clicks-0-17", headers=[(CAUSE_HEADER, b"JSON_SYNTAX: no brace")])
        producer.send(SESSIONS, json.dumps({**session, "user": "u2", "name": "Olga"}).encode(), key=b"u2")
        producer.send(DEAD_LETTERS, b"{}", key=b"clicks-0-18")
        broken = [(CLASS_HEADER, BROKEN_RULE.encode()), (CAUSE_HEADER, b"has a user")]
        producer.send(DEAD_LETTERS, b"{}", key=b"clicks-0-19", headers=broken)
    watch = TopicWatch(address)
    read = 0
    while read < 7:
        read += watch.look(timeout_s=5)
    watch.close()
    assert (watch.sessions, watch.dead_letters, watch.twice) == (2, 3, 2)
    assert watch.causes == {"JSON_SYNTAX": 1, "unknown": 1, "breaks: has a user": 1}
    assert {(session.user, session.name) for session in watch.last_sessions} == {("u1", None), ("u2", "Olga")}
    assert watch.sessions_trend == (2,)


def test_records_that_are_none_of_the_pipelines_are_passed_over() -> None:
    session = {"user": "u1", "began_at": "2026-11-16T12:34:56.789Z", "clicks": 3, "has_bought": True}
    wrong: list[dict[str, object]] = [
        {"user": 1}, {"began_at": "today"}, {"began_at": "2026-11-16T12:34"}, {"clicks": None}, {"name": {}},
        {"plan": []},
    ]  # fmt: skip
    strange = [None, b"hello", b"null", b"5", b"[]", b"{}", b"\xff", b"[" * 100_000]
    strange += [json.dumps({**session, **each}).encode() for each in (*wrong, {})]
    with EmbeddedBroker() as broker:
        create_topics(broker.bootstrap_servers)
        with Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
            sent = [producer.send(SESSIONS, value, key=b"k") for value in strange]
            sent.append(producer.send(DEAD_LETTERS, b"x"))
            for key, headers in (
                (b"1", [(CAUSE_HEADER, b"\xff"), (CLASS_HEADER, None)]),
                (b"2", [(CAUSE_HEADER, None)]),
            ):
                sent.append(producer.send(DEAD_LETTERS, b"x", key=key, headers=headers))
            for each in sent:
                each.result()
        watch = TopicWatch(broker.bootstrap_servers)
        read = 0
        while read < len(sent):
            read += watch.look(timeout_s=5)
        watch.close()
    assert (watch.sessions, watch.dead_letters) == (1, 3)
    assert watch.sessions_trend == (1,)
    assert watch.causes == {"unknown": 2, "\ufffd": 1}


def test_a_writer_writes_what_the_story_tells(address: str) -> None:
    writer = ClickWriter(Story(seed=3, rate=2000, start_ms=0), address, rate=2000)
    writer.start()
    while writer.written.clicks < 500 and writer.failure is None:
        threading.Event().wait(0.01)
    writer.stop()
    writer.stop()
    told = Story(seed=3, rate=2000, start_ms=0).clicks(writer.written.clicks)
    assert writer.written.valid == len(told.clicks)
    assert writer.written.broken == sum(told.flaws.values())


def test_users_are_people_not_records() -> None:
    with EmbeddedBroker() as broker:
        create_topics(broker.bootstrap_servers)
        story = Story(seed=3, rate=5000, start_ms=0)
        writer = ClickWriter(story, broker.bootstrap_servers, rate=5000)
        writer.start()
        while writer.written.users_gone == 0 and writer.failure is None:
            threading.Event().wait(0.01)
        writer.stop()
        is_here: dict[str, bool] = {}
        with Consumer(USERS, bootstrap_servers=broker.bootstrap_servers, auto_offset_reset="earliest") as consumer:
            read = 0
            while read < writer.written.user_records:
                batch = consumer.poll_arrow(timeout=5)
                read += batch.num_rows
                for row in batch.select(["key", "value"]).to_pylist():
                    is_here[row["key"].decode()] = row["value"] is not None
    assert writer.written.user_records > len(story.users) == len(is_here)
    assert writer.written.users == sum(is_here.values())
    assert writer.written.users_gone == len(is_here) - sum(is_here.values())


def test_clicks_that_cannot_be_written_end_it() -> None:
    with EmbeddedBroker() as broker:
        create_topics(broker.bootstrap_servers)
        broker.faults.fail_next(ApiKey.PRODUCE, error=ErrorCode.TOPIC_AUTHORIZATION_FAILED, times=3)
        with pytest.raises(BarnabasError, match="TOPIC_AUTHORIZATION_FAILED"):
            write_clicks(broker.bootstrap_servers, rate=100, seed=1, seconds=None, told_to_stop=threading.Event())


def test_topics_that_are_there_already_stay(address: str) -> None:
    with Admin(bootstrap_servers=address) as admin:
        before = admin.describe_topics(admin.list_topics())
        assert {USERS, SESSIONS, DEAD_LETTERS} <= {*before}
        create_topics(address)
        assert admin.describe_topics(admin.list_topics()) == before


def test_a_table_grows_and_is_computed_anew(tmp_path: Path) -> None:
    watch = TableWatch(tmp_path / "clicks")
    assert watch.count_rows() == 0
    assert watch.read() is None
    (tmp_path / "clicks").mkdir()
    for number in (1, 2):
        pq.write_table(pa.table({"id": list(range(number))}), tmp_path / "clicks" / f"part-{number}.parquet")
    (tmp_path / "clicks" / ".part-3.parquet").write_bytes(b"half")
    assert watch.count_rows() == 3
    (tmp_path / "clicks" / "part-1.parquet").unlink()
    assert watch.count_rows() == 2
    assert watch.count_distinct("id") == 2


def test_files_of_a_batch_that_was_broken_off_do_not_count(tmp_path: Path) -> None:
    for number in range(1, 5):
        pq.write_table(pa.table({"id": list(range(number))}), tmp_path / f"part-{number}.parquet")
    log = tmp_path / "_spark_metadata"
    log.mkdir()
    watch = TableWatch(tmp_path)
    assert watch.count_rows() == 0
    _commit(log, "0", tmp_path / "part-1.parquet")
    assert watch.count_rows() == 1
    _commit(log, "1.compact", tmp_path / "part-1.parquet", tmp_path / "part-2.parquet")
    _commit(log, "2", tmp_path / "part-4.parquet")
    (log / ".3.crc").write_bytes(b"crc")
    assert watch.count_rows() == 7
    assert watch.count_distinct("id") == 4


def _commit(log: Path, name: str, *files: Path) -> None:
    entries = [json.dumps({"path": file.as_uri(), "size": 1, "isDir": False, "action": "add"}) for file in files]
    (log / name).write_text("\n".join(["v1", *entries]))


def test_the_newest_window_that_is_full_is_shown() -> None:
    rows = [
        {"began_at": NOON, "page": "/", "views": 3},
        {"began_at": NOON, "page": "/cart", "views": 9},
        {"began_at": NOON + timedelta(minutes=10), "page": "/", "views": 1},
    ]
    window = newest_window(pa.Table.from_pylist(rows))
    assert window is not None
    assert (window.began_at, window.views) == (NOON, (("/cart", 9), ("/", 3)))
    assert newest_window(pa.Table.from_pylist(rows).slice(3)) is None
