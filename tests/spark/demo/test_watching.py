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

from barnabas import Producer
from barnabas.spark.demo.story import Story
from barnabas.spark.demo.watching import CAUSE_HEADER, TableWatch, TopicWatch, newest_window
from barnabas.spark.demo.writing import DEAD_LETTERS, SESSIONS, ClickWriter, create_topics
from barnabas.testing import EmbeddedBroker

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
    watch = TopicWatch(address)
    read = 0
    while read < 6:
        read += watch.look(timeout_s=5)
    watch.close()
    assert (watch.sessions, watch.dead_letters) == (2, 2)
    assert watch.causes == {"JSON_SYNTAX": 1, "unknown": 1}
    assert {(session.user, session.name) for session in watch.last_sessions} == {("u1", None), ("u2", "Olga")}
    assert watch.sessions_trend == (2,)


def test_a_writer_writes_what_the_story_tells(address: str) -> None:
    writer = ClickWriter(Story(seed=3, rate=2000, start_ms=0), address, rate=2000)
    writer.start()
    while writer.written.clicks < 500 and writer.failure is None:
        threading.Event().wait(0.01)
    writer.stop()
    writer.stop()
    told = Story(seed=3, rate=2000, start_ms=0).clicks(writer.written.clicks)
    assert writer.written.valid == len(told.clicks)
    assert writer.written.flaws == told.flaws
    assert writer.written.broken == sum(told.flaws.values())


def test_topics_that_are_there_already_stay(address: str) -> None:
    create_topics(address)


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
