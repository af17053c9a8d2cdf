"""When a topic that cannot be read counts as gone, told with a reader and a clock that follow a script."""

from __future__ import annotations

from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from barnabas.base.error_codes import ErrorCode
from barnabas.base.ids import Uuid
from barnabas.client.consumer.range_reading import Run
from barnabas.client.consumer.sync_consumer import Consumer
from barnabas.client.core.cluster_view import ClusterView, PartitionInfo, TopicView
from barnabas.client.errors import ClientTimeoutError
from barnabas.spark.core.errors import DataLossError, SparkConnectorError
from barnabas.spark.reading import RangePartition, RangeReading, ReadPlan

TOPIC = "clicks"
PLANNED, OTHER = Uuid(bytes(15) + b"p"), Uuid(bytes(15) + b"o")


def view_of(topic_id: Uuid, partitions: int = 2) -> ClusterView:
    infos = tuple(PartitionInfo(TOPIC, number, 1) for number in range(partitions))
    return ClusterView(topics=[TopicView(TOPIC, topic_id, partitions=infos)])


VIEWS = {
    "as planned": view_of(PLANNED),
    "another": view_of(OTHER),
    "fewer": view_of(PLANNED, partitions=1),
    "unknown": ClusterView(topics=[TopicView(TOPIC, error_code=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]),
}


class Script:
    """Each second has a word: `rows` come, or brokers that are asked tell one of the views, or nobody says anything.

    Before the first second the consumer knows what `known` says.
    """

    def __init__(self, known: str, words: Iterable[str]) -> None:
        self.now_s = 0.0
        self.view = VIEWS[known]
        self.position = 0
        self.rows = SimpleNamespace(row_count=0, take=self._drop)
        self._words = list(words)
        self._word = ""

    def fill(self, *_: object, **__: object) -> list[Run]:
        self.now_s += 1.0
        self._word = self._words.pop(0) if len(self._words) > 1 else self._words[0]
        if self._word != "rows":
            return []
        self.position += 1
        self.rows.row_count = 1
        return [Run(0, 1)]

    def renew_view(self, timeout_s: float) -> None:
        if self._word == "silence":
            raise ClientTimeoutError("nobody answers")
        self.view = VIEWS.get(self._word, self.view)

    def seek(self, offset: int) -> None:
        self.position = offset

    def limits(self, timeout_s: float) -> tuple[int, int]:
        raise ClientTimeoutError("nobody answers")

    def why_nothing_comes(self, timeout_s: float) -> Exception:
        return ClientTimeoutError("nothing came")

    def _drop(self) -> None:
        self.rows.row_count = 0


def read(known: str, *words: str, spark_takes_s: float = 0.0) -> tuple[int, Script]:
    """How many fills brought rows before the words were over; the last word goes on for as long as it takes."""
    script = Script(known, words)
    with Consumer({"bootstrap.servers": "127.0.0.1:1"}) as consumer:
        part = RangePartition(TOPIC, 1, 0, words.count("rows"), str(PLANNED))
        reading = RangeReading(ReadPlan({}), part, consumer, lambda: script.now_s)
        reading._reader, reading._columns, reading._has_begun = cast(Any, script), cast(Any, script.rows), True
        count = 0
        while script.position < part.until_offset:
            count += len(reading._fill())
            script.rows.take()
            script.now_s += spark_takes_s
            reading._idle_since_s = script.now_s
    return count, script


@pytest.mark.parametrize("old", ["another", "fewer", "unknown"])
def test_what_was_known_before_is_no_proof(old: str) -> None:
    assert read(old, *["silence"] * 60, "as planned", "rows")[0] == 1


@pytest.mark.parametrize("lagging", ["another", "fewer", "unknown"])
def test_nor_is_what_one_broker_says_that_lags_behind(lagging: str) -> None:
    assert read("as planned", *[lagging] * 4, "as planned", "rows")[0] == 1


@pytest.mark.parametrize("lagging", ["another", "fewer", "unknown"])
def test_nor_what_is_said_before_and_after_a_silence(lagging: str) -> None:
    assert read("as planned", lagging, *["silence"] * 20, lagging, "as planned", "rows")[0] == 1


def test_a_topic_that_seems_to_be_gone_twice_has_its_time_twice() -> None:
    words = ("unknown", "as planned", "rows", "unknown", "unknown", "as planned", "rows")
    assert read("as planned", *words, spark_takes_s=20.0)[0] == 2
    # What is known of the cluster need not come before the rows.
    assert read("as planned", "unknown", "rows", "unknown", "rows", spark_takes_s=20.0)[0] == 2


@pytest.mark.parametrize(
    ("word", "story"),
    [
        ("another", r"offsets 0 to 0 of clicks-1 .*deleted and created again"),
        ("fewer", r"These partitions were deleted: clicks-1\."),
        ("unknown", r"These partitions were deleted: clicks-1\."),
    ],
)
def test_what_brokers_say_again_and_again_is_so(word: str, story: str) -> None:
    with pytest.raises(DataLossError, match=story):
        read("as planned", *[word] * 10, "rows")


def test_rows_that_came_while_the_topic_was_another_one_are_fetched_again() -> None:
    count, script = read("another", "rows", "as planned", "rows", "rows")
    assert (count, script.position) == (3, 3)
    assert script.now_s == 5.0, "the first rows were not taken"


def test_nobody_who_answers_is_no_loss() -> None:
    with pytest.raises(SparkConnectorError, match="Nothing more of clicks-1 came") as caught:
        read("unknown", *["silence"] * 200, "rows")
    assert not isinstance(caught.value, DataLossError)
