"""Options that cannot work are told when a query is made, not in the middle of it."""

from __future__ import annotations

import logging
import pickle
from typing import Any

import pytest

from barnabas.spark.core.errors import OptionError
from barnabas.spark.reading import ReadPlan
from barnabas.spark.source import BarnabasDataSource
from barnabas.spark.tasks import Tasks

GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "clicks"}
JSON = {"valueFormat": "json", "valueSchema": "id long", "badRecords": "topic", "deadLetterTopic": "letters"}


def source(**options: str) -> BarnabasDataSource:
    """Two underscores stand for a dot."""
    return BarnabasDataSource({**GIVEN, **{name.replace("__", "."): value for name, value in options.items()}})


@pytest.mark.parametrize("ending", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_who_gives_an_end_is_told_what_is_wrong_with_a_batch(ending: str) -> None:
    end = {"endingOffsets": "latest", "endingTimestamp": "1", "endingOffsetsByTimestamp": '{"clicks": {"0": 1}}'}
    with pytest.raises(OptionError, match="Option minPartitions is"):
        source(**{ending: end[ending], "minPartitions": "0"}).schema()


def test_without_an_end_it_may_be_either() -> None:
    source(startingOffsets="latest").schema()
    with pytest.raises(OptionError, match="Option minPartitions is"):
        source(minPartitions="0").schema()


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fetch.max.bytes", "abc"),
        ("isolation.level", "read_all"),
        ("max.poll.records", "-4"),
        ("request.timeout.ms", "soon"),
        ("bootstrap.servers", "no port"),
    ],
)
@pytest.mark.parametrize("is_streaming", [False, True])
def test_settings_that_make_no_client_are_refused_on_the_driver(name: str, value: str, is_streaming: bool) -> None:
    wrong = source(**{f"kafka.{name}": value})
    with pytest.raises(OptionError, match=rf"kafka\.{name}.*{value}"):
        # Spark loses what is raised while the reader of a stream is made.
        wrong.streamReader(wrong.schema()).initialOffset() if is_streaming else wrong.reader(wrong.schema())


def test_settings_of_a_producer_are_for_dead_letters(caplog: pytest.LogCaptureFixture) -> None:
    large = {"kafka__max__request__size": "5000000", "kafka__linger__ms": "x"}
    with caplog.at_level(logging.WARNING):
        plain = source(**large)
        plain.reader(plain.schema())
    assert "kafka.max.request.size is passed over" in caplog.text
    caplog.clear()
    lettered = source(**JSON, **large)
    with pytest.raises(OptionError, match=r"kafka\.linger\.ms"):
        lettered.reader(lettered.schema())
    lettered = source(**JSON, kafka__max__request__size="5000000")
    assert lettered.reader(lettered.schema())._tasks.letters["max.request.size"] == "5000000"
    assert not caplog.text


def test_only_a_group_that_there_is_can_be_named_in_errors() -> None:
    plain, grouped = source(groupIdPrefix="p"), source(kafka__group__id="mine")
    assert plain.reader(plain.schema())._tasks.plan.group_id is None
    assert grouped.reader(grouped.schema())._tasks.plan.group_id == "mine"


def test_passwords_are_not_shown() -> None:
    secret = {"sasl.password": "s3cret"}
    assert "s3cret" not in repr(Tasks(ReadPlan(secret), None, secret))


@pytest.mark.parametrize(
    "selection",
    [
        {"subscribe": "clicks, letters"},
        {"subscribePattern": "let.*"},
        {"assign": '{"letters": [0], "clicks": [0]}'},
    ],
)
def test_letters_do_not_go_where_they_would_be_read(selection: dict[str, str]) -> None:
    wrong = BarnabasDataSource({"kafka.bootstrap.servers": "127.0.0.1:1", **JSON, **selection})
    with pytest.raises(OptionError, match="deadLetterTopic is 'letters', a topic that the query itself reads"):
        wrong.streamReader(wrong.schema()).initialOffset()


def test_a_stream_that_is_refused_says_so_whatever_is_asked_of_it_and_can_be_stopped() -> None:
    wrong = source(kafka__isolation__level="read_all")
    stream: Any = wrong.streamReader(wrong.schema())
    for use in (
        stream.initialOffset,
        lambda: stream.latestOffset({}, None),
        lambda: stream.partitions({}, {}),
        lambda: stream.read(None),
        lambda: pickle.dumps(stream),
    ):
        with pytest.raises(OptionError, match="read_all"):
            use()
    stream.stop()
