"""Rules of quality, on rows that come as topics give them. One session, no pipeline."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from pyspark.sql import functions as F  # noqa: N812

from barnabas.spark.pipelines import quality

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

RULES = {"has a user": "value.user IS NOT NULL", "stay is not negative": "value.stay_ms >= 0"}
AT = datetime.fromtimestamp(1_700_000_000.125, UTC)
SCHEMA = (
    "key binary, value struct<user:string,stay_ms:long>, topic string, partition int, offset long, "
    "timestamp timestamp, headers array<struct<key:string,value:binary>>, _bad_record struct<error:string,value:binary>"
)


@pytest.fixture
def clicks(spark: SparkSession) -> DataFrame:
    rows: list[tuple[Any, ...]] = [
        (b"k", ("ann", 5), "clicks", 0, 10, AT, None, None),
        (b"k", (None, -1), "clicks", 0, 11, AT, [("trace", b"7")], None),
        (b"\xff", ("bob", None), "clicks", 1, 12, AT, None, None),
        (None, None, "clicks", 1, 13, None, None, ("not JSON", b"{\xff")),
    ]
    return spark.createDataFrame(rows, SCHEMA)


def offsets(rows: DataFrame) -> list[int]:
    return sorted(row["offset"] for row in rows.collect())


def test_rows_are_good_broken_or_reason_to_fail(spark: SparkSession, clicks: DataFrame) -> None:
    rules = quality.rules(RULES)
    assert offsets(rules.good(clicks)) == [10]
    assert offsets(rules.apply(clicks, "drop")) == [10]
    # What cannot be told is broken: nobody knows whether an unknown stay is negative.
    broken = {row["offset"]: row["broken_rules"] for row in rules.broken(clicks).collect()}
    assert broken == {11: [*RULES], 12: ["stay is not negative"], 13: [*RULES]}
    assert offsets(rules.strict(clicks.where("offset = 10"))) == [10]
    with pytest.raises(Exception, match=r"a row breaks the rule: stay is not negative; the row is .*bob"):
        rules.apply(clicks.where("offset in (10, 12)"), "fail").collect()


def test_what_cannot_be_decoded_breaks_a_rule_of_its_own(spark: SparkSession, clicks: DataFrame) -> None:
    rules = quality.rules({"is at home": "topic = 'clicks'"}, bad_records="_bad_record")
    assert offsets(rules.good(clicks)) == [10, 11, 12]
    assert [row["broken_rules"] for row in rules.broken(clicks).collect()] == [[quality.CAN_BE_READ]]
    # Its value is null, which says nothing of rules about the value.
    strict = quality.rules(RULES, bad_records="_bad_record")
    broken = {row["offset"]: row["broken_rules"] for row in strict.broken(clicks).collect()}
    assert broken == {11: [*RULES], 12: ["stay is not negative"], 13: [quality.CAN_BE_READ]}
    columns = [F.count_if(each).alias(name) for name, each in strict._each_broken().items()]
    counts = clicks.agg(*columns).collect()[0].asDict()
    assert counts == {quality.CAN_BE_READ: 1, "has a user": 1, "stay is not negative": 2}


def test_dead_letters_are_records_with_cause_and_place(spark: SparkSession, clicks: DataFrame) -> None:
    letters = quality.rules(RULES).dead_letters(clicks)
    assert letters.columns == ["key", "value", "headers"]
    found = {row["key"]: row for row in letters.collect()}
    assert sorted(found) == ["clicks-0-11", "clicks-1-12", "clicks-1-13"]

    assert json.loads(found["clicks-1-12"]["value"]) == {"user": "bob"}
    headers = {header["key"]: bytes(header["value"]) for header in found["clicks-1-12"]["headers"]}
    assert headers == {
        "barnabas.error.class": b"BROKEN_RULE",
        "barnabas.error.message": b"stay is not negative",
        "barnabas.error.topic": b"clicks",
        "barnabas.error.partition": b"1",
        "barnabas.error.offset": b"12",
        "barnabas.error.timestamp": b"1700000000125",
        "barnabas.error.key": b"\xff",
    }
    # What could not be decoded comes as it was, byte for byte.
    unread = found["clicks-1-13"]
    assert bytes(unread["value"]) == b"{\xff"
    assert (unread["headers"][0]["value"], unread["headers"][1]["value"]) == (b"UNREADABLE", b"not JSON")


def test_headers_that_a_record_brought_go_with_it(spark: SparkSession, clicks: DataFrame) -> None:
    letters = quality.rules(RULES).dead_letters(clicks, headers="headers").collect()
    names = {row["key"]: [header["key"] for header in row["headers"]] for row in letters}
    assert names["clicks-0-11"][:2] == ["trace", "barnabas.error.class"]
    assert names["clicks-1-12"][0] == "barnabas.error.class"


def test_dead_letters_of_plain_bytes_and_of_rows_of_no_topic(spark: SparkSession) -> None:
    rules = quality.rules({"is long": "length(value) > 3"})
    for kind, value in (("binary", b"\x00\xff"), ("string", 'a"b')):
        frame = spark.createDataFrame([(value,)], f"value {kind}")
        (letter,) = rules.dead_letters(frame, topic="dead", key=None).collect()
        assert bytes(letter["value"]) == (value if isinstance(value, bytes) else value.encode())
        assert (letter["key"], letter["topic"]) == (None, "dead")
    # What is called so in a topic may be called so elsewhere, and be something else.
    rows = spark.createDataFrame([(1, None, "yesterday")], "id int, user string, timestamp string")
    (letter,) = quality.rules({"has a user": "user IS NOT NULL"}).dead_letters(rows, value=None).collect()
    assert json.loads(letter["value"]) == {"id": 1, "timestamp": "yesterday"}
    assert "barnabas.error.timestamp" not in {header["key"] for header in letter["headers"]}
    named = rows.select(rows["timestamp"].alias("the value"))
    (letter,) = quality.rules({"is short": "false"}).dead_letters(named, value="the value", key=None).collect()
    assert letter["value"] == b"yesterday"


@pytest.mark.parametrize(
    ("conditions", "told"),
    [
        ({}, "needs at least one rule"),
        ({"": "a"}, "cannot be called ''"),
        ({quality.CAN_BE_READ: "a"}, "cannot be called 'can be read'"),
        ({"a": " "}, "the rule 'a' must be a condition in SQL"),
        ({"a": 1}, "the rule 'a' must be a condition in SQL"),
    ],
)
def test_rules_that_cannot_be_meant_are_refused(conditions: Any, told: str) -> None:
    with pytest.raises(quality.RuleError, match=told):
        quality.rules(conditions)


def test_actions_are_three(spark: SparkSession, clicks: DataFrame) -> None:
    action: Any = "ignore"
    with pytest.raises(quality.RuleError, match="drop, fail or dead_letter, not 'ignore'"):
        quality.rules(RULES).apply(clicks, action)
