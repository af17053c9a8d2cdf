"""Every option of the source: its default, its forms, what beats what, and what is refused in which words."""

from __future__ import annotations

import contextlib
import pickle
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from barnabas.base.ids import TopicPartition
from barnabas.spark.core.admission_limits import Earliest, LatestOffsets, Offsets, Timestamp, Timestamps
from barnabas.spark.core.errors import OptionError
from barnabas.spark.core.options import SourceOptions
from barnabas.spark.core.selection import Partitions, Pattern, Topics

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
BASE = {"kafka.bootstrap.servers": "h:9092", "subscribe": "t"}


def stream(options: dict[str, Any] | None = None, **more: Any) -> SourceOptions:
    return SourceOptions.parse({**BASE, **(options or {}), **more}, is_streaming=True)


def batch(options: dict[str, Any] | None = None, **more: Any) -> SourceOptions:
    return SourceOptions.parse({**BASE, **(options or {}), **more}, is_streaming=False)


def test_defaults() -> None:
    options = stream()
    assert options == SourceOptions(
        client={"bootstrap.servers": "h:9092"},
        selection=Topics(("t",)),
        starting=LatestOffsets(),
        ending=LatestOffsets(),
        fail_on_data_loss=True,
        poll_timeout_ms=120_000,
        fetch_retries=3,
        fetch_retry_interval_ms=1000,
        partition_cache_ttl_ms=None,
        max_offsets_per_trigger=None,
        min_offsets_per_trigger=None,
        max_trigger_delay_ms=900_000,
        max_bytes_per_trigger=None,
        max_bytes_per_partition=None,
        min_partitions=None,
        max_records_per_partition=None,
        group_id=None,
        include_headers=False,
        mirror_group=None,
        warnings=(),
    )
    assert (batch().starting, batch().ending) == (Earliest(), LatestOffsets())


def test_every_option_has_a_field() -> None:
    options = stream(
        {
            "failOnDataLoss": "FALSE",
            "kafkaConsumer.pollTimeoutMs": "512",
            "fetchOffset.numRetries": "7",
            "fetchOffset.retryIntervalMs": "0",
            "partition.metadata.cache.ttl.ms": "60000",
            "maxOffsetsPerTrigger": "1000",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2h",
            "maxBytesPerTrigger": "64m",
            "maxBytesPerPartition": "1gb",
            "minPartitions": "8",
            "maxRecordsPerPartition": "5000",
            "groupIdPrefix": "reports",
            "includeHeaders": "true",
            "mirrorToGroup": " reports ",
        }
    )
    assert (options.fail_on_data_loss, options.poll_timeout_ms, options.fetch_retries) == (False, 512, 7)
    assert (options.fetch_retry_interval_ms, options.partition_cache_ttl_ms) == (0, 60_000)
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (1000, 10)
    assert (options.max_trigger_delay_ms, options.max_bytes_per_trigger) == (7_200_000, 64 << 20)
    assert (options.max_bytes_per_partition, options.min_partitions) == (1 << 30, 8)
    assert (options.max_records_per_partition, options.include_headers) == (5000, True)
    assert (options.mirror_group, options.warnings) == ("reports", ())


@settings(deadline=None, max_examples=25)
@given(st.data())
def test_names_are_read_in_any_case(data: st.DataObject) -> None:
    given_options = {**BASE, "failOnDataLoss": "false", "startingOffsets": "earliest", "kafka.client.id": "Me"}
    flips = {name: data.draw(st.lists(st.booleans(), min_size=len(name), max_size=len(name))) for name in given_options}
    odd = {
        "".join(sign.upper() if flip else sign.lower() for sign, flip in zip(name, flips[name], strict=True)): value
        for name, value in given_options.items()
    }
    assert SourceOptions.parse(odd, is_streaming=True) == SourceOptions.parse(given_options, is_streaming=True)


def test_values_may_be_numbers_and_truths_and_none_is_not_given() -> None:
    options = stream(includeHeaders=True, minPartitions=4, maxOffsetsPerTrigger=None)
    assert (options.include_headers, options.min_partitions, options.max_offsets_per_trigger) == (True, 4, None)


def test_options_travel_to_workers_and_do_not_show_secrets() -> None:
    options = stream({"kafka.sasl.jaas.config": "swordfish"}, startingOffsets='{"t": {"0": 5}}')
    assert pickle.loads(pickle.dumps(options)) == options
    assert "swordfish" not in repr(options)


# What is read


@pytest.mark.parametrize(
    ("option", "text", "selection"),
    [
        ("subscribe", " a , b,,c,a,", Topics(("a", "b", "c"))),
        ("subscribePattern", " clicks-.* ", Pattern("clicks-.*")),
        ("assign", ' {"t": [0, 1, 0]} ', Partitions(frozenset({T0, T1}))),
    ],
)
def test_what_is_read_is_said_in_one_of_three_ways(option: str, text: str, selection: object) -> None:
    options = {"kafka.bootstrap.servers": "h:1", option: text}
    assert SourceOptions.parse(options, is_streaming=True).selection == selection


def test_a_pattern_finds_its_topics_by_a_part_of_their_names() -> None:
    pattern = Pattern("(?i)Click|^orders$")
    assert [name for name in ("clicks", "my-CLICK", "orders", "orders2", "x") if pattern.matches(name)] == [
        "clicks",
        "my-CLICK",
        "orders",
    ]


def refused(options: dict[str, Any], *words: str, is_streaming: bool = True) -> None:
    with pytest.raises(OptionError) as caught:
        SourceOptions.parse(options, is_streaming=is_streaming)
    assert isinstance(caught.value, ValueError)
    for word in words:
        assert word in str(caught.value)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({}, ["subscribe, subscribePattern, assign", "none"]),
        ({"subscribe": "t", "assign": "{}"}, ["exactly one", "subscribe and assign are given"]),
        ({"subscribe": " , "}, ["subscribe", "' , '", "no topic"]),
        ({"subscribePattern": " "}, ["subscribePattern", "empty"]),
        ({"subscribePattern": "a("}, ["subscribePattern", "'a('", "not closed"]),
        ({"subscribePattern": "(?<=a+)b"}, ["subscribePattern", "look-behind"]),
        ({"assign": "t"}, ["assign", "'t'", "not JSON", '{"topicA": [0, 1]']),
        ({"assign": "{}"}, ["assign", "no partition"]),
        ({"assign": '{"t": 0}'}, ["assign", "'t' has 0 instead of a list"]),
        ({"assign": '{"t": ["0"]}'}, ["assign", 't has "0" instead of a whole number']),
        ({"assign": '{"t": [-1]}'}, ["assign", "t has -1", "0 to 2147483647"]),
    ],
)
def test_what_is_read_must_be_clear(options: dict[str, str], words: list[str]) -> None:
    refused({"kafka.bootstrap.servers": "h:1", **options}, *words)


def test_brokers_are_needed_under_the_right_name() -> None:
    refused({"subscribe": "t"}, "kafka.bootstrap.servers", "missing")
    refused({"subscribe": "t", "kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers")
    refused({"subscribe": "t", "bootstrap.servers": "h:1"}, "without the prefix")


# Where a read begins and ends

ONE = '{"t": {"0": 1000, "1": 2000}}'


def test_a_timestamp_beats_timestamps_beat_offsets() -> None:
    everything = {"startingTimestamp": " 5 ", "startingOffsetsByTimestamp": ONE, "startingOffsets": "earliest"}
    ends = {name.replace("starting", "ending"): text for name, text in everything.items()}
    assert stream(everything).starting == Timestamp(5, "error")
    assert batch(ends).ending == Timestamp(5, "latest")
    del everything["startingTimestamp"], ends["endingTimestamp"]
    assert stream(everything).starting == Timestamps({T0: 1000, T1: 2000}, "error")
    assert batch(ends).ending == Timestamps({T0: 1000, T1: 2000}, "latest")
    del everything["startingOffsetsByTimestamp"]
    assert stream(everything).starting == Earliest()


def test_what_is_beaten_is_not_even_read() -> None:
    assert stream(startingTimestamp="5", startingOffsets="nonsense").starting == Timestamp(5, "error")


def test_offsets_may_stand_for_the_ends() -> None:
    text = '{"t": {"0": -2, "1": -1}, "u": {"7": 23}}'
    assert stream(startingOffsets=text).starting == Offsets({T0: -2, T1: -1, TopicPartition("u", 7): 23})
    assert batch(endingOffsets='{"t": {"0": -1}}').ending == Offsets({T0: -1})


@pytest.mark.parametrize("text", ["error", "ERROR", "latest", "Latest"])
def test_what_to_do_without_a_match_is_said_for_starts_only(text: str) -> None:
    options = {"startingOffsetsByTimestampStrategy": text, "startingTimestamp": "5", "endingTimestamp": "6"}
    assert batch(options).starting == Timestamp(5, "latest" if text.lower() == "latest" else "error")
    assert batch(options).ending == Timestamp(6, "latest")


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("startingOffsets", "newest", ["'newest'", "earliest, latest, and JSON"]),
        ("startingOffsets", "", ["''", "earliest, latest, and JSON"]),
        ("startingOffsets", '{"t": {"0": -3}}', ["t-0 has -3", "-2 to"]),
        ("startingOffsets", '{"t": {"0": 1.5}}', ["t-0 has 1.5 instead of a whole number"]),
        ("startingOffsets", '{"t": {"0": null}}', ["t-0 has null instead of a whole number"]),
        ("startingOffsets", '{"t": {"0": 1, "0": 2}}', ["'0' stands there twice"]),
        ("startingOffsets", '{"t": {"0": 1}} x', ["not JSON"]),
        ("startingOffsets", '{"t": {"0": 99999999999999999999}}', ["99999999999999999999"]),
        ("startingOffsets", '{"t": {"a": 1}}', ["'a' is not a partition of 't'"]),
        ("startingOffsets", '{"t": 5}', ["'t' has 5 instead of its partitions"]),
        ("startingOffsetsByTimestamp", "earliest", ["not JSON", "1700000000000"]),
        ("startingOffsetsByTimestamp", '{"t": {"0": -1}}', ["t-0 has -1", "0 to"]),
        ("startingTimestamp", "today", ["'today'", "whole number"]),
        ("startingTimestamp", "-1", ["'-1'", "at least 0"]),
        ("startingOffsetsByTimestampStrategy", "earliest", ["'earliest'", "error and latest"]),
    ],
)
def test_starts_that_mean_nothing_are_refused(option: str, text: str, words: list[str]) -> None:
    for is_streaming in True, False:
        refused({**BASE, option: text}, f"Option {option}", *words, is_streaming=is_streaming)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"startingOffsets": "latest"}, ["startingOffsets", "'latest'", "batch"]),
        ({"startingOffsets": '{"t": {"0": 1, "1": -1}}'}, ["startingOffsets", "-1", "t-1", "batch"]),
        ({"endingOffsets": "earliest"}, ["endingOffsets", "'earliest'", "batch"]),
        ({"endingOffsets": '{"t": {"0": -2}}'}, ["endingOffsets", "-2", "t-0", "batch"]),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 4}}'},
            ["[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET]", "t-0", "offset 5", "offset 4"],
        ),
        (
            {"startingOffsetsByTimestamp": ONE, "endingOffsetsByTimestamp": '{"t": {"0": 1000, "1": 1999}}'},
            ["[UNRESOLVED_START_OFFSET_GREATER_THAN_END_OFFSET]", "t-1", "timestamp 2000", "timestamp 1999"],
        ),
        (
            {"startingOffsets": '{"t": {"0": 5}}', "endingOffsets": '{"t": {"0": 5, "1": 4}}'},
            ["[MISMATCHED_TOPIC_PARTITIONS_BETWEEN_START_OFFSET_AND_END_OFFSET]", "Start: t-0.", "End: t-0, t-1."],
        ),
    ],
)
def test_a_batch_begins_before_it_ends(options: dict[str, str], words: list[str]) -> None:
    refused({**BASE, **options}, *words, is_streaming=False)


def test_stand_ins_for_offsets_are_not_compared() -> None:
    options = batch(startingOffsets='{"t": {"0": 9}}', endingOffsets='{"t": {"0": -1}}')
    assert (options.starting, options.ending) == (Offsets({T0: 9}), Offsets({T0: -1}))


@pytest.mark.parametrize("option", ["endingOffsets", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(option: str) -> None:
    refused({**BASE, option: "latest"}, option, "a stream has no end")


# Numbers, times, sizes


@pytest.mark.parametrize(
    ("option", "text", "words"),
    [
        ("minPartitions", "0", ["at least 1"]),
        ("minPartitions", "1.5", ["at least 1"]),
        ("minPartitions", " 1", ["at least 1"]),
        ("minPartitions", "2147483648", ["at most 2147483647"]),
        ("maxRecordsPerPartition", "-5", ["at least 1"]),
        ("maxOffsetsPerTrigger", "0", ["at least 1"]),
        ("minOffsetsPerTrigger", "x", ["whole number"]),
        ("kafkaConsumer.pollTimeoutMs", "0", ["at least 1"]),
        ("fetchOffset.numRetries", "0", ["at least 1"]),
        ("fetchOffset.retryIntervalMs", "-1", ["at least 0"]),
        ("partition.metadata.cache.ttl.ms", "0", ["positive", "-1"]),
        ("partition.metadata.cache.ttl.ms", "x", ["positive", "-1"]),
        ("maxTriggerDelay", "1.5h", ["15m"]),
        ("maxTriggerDelay", "5 weeks", ["15m"]),
        ("maxTriggerDelay", "-5s", ["negative"]),
        ("maxTriggerDelay", "9" * 5000, ["15m"]),
        ("maxBytesPerTrigger", "1.5g", ["64m"]),
        ("maxBytesPerTrigger", "0", ["positive", "64m"]),
        ("maxBytesPerPartition", "9000p", ["64m"]),
        ("failOnDataLoss", "yes", ["true and false"]),
        ("includeHeaders", "", ["true and false"]),
        ("mirrorToGroup", " ", ["empty"]),
    ],
)
def test_values_out_of_bounds_are_refused(option: str, text: str, words: list[str]) -> None:
    refused({**BASE, option: text}, f"Option {option}", *words)


def test_a_cache_can_be_turned_off() -> None:
    assert stream({"partition.metadata.cache.ttl.ms": "-1"}).partition_cache_ttl_ms is None


def test_the_minimum_must_not_exceed_the_maximum() -> None:
    options = {**BASE, "minOffsetsPerTrigger": "11", "maxOffsetsPerTrigger": "10"}
    refused(options, "minOffsetsPerTrigger is 11", "maxOffsetsPerTrigger, 10")
    refused(options, "minOffsetsPerTrigger is 11", is_streaming=False)


# What the client gets, and what is odd


@pytest.mark.parametrize(
    "name", ["auto.offset.reset", "key.deserializer", "value.deserializer", "enable.auto.commit", "interceptor.classes"]
)
def test_settings_that_work_against_the_source_are_refused_with_the_reason(name: str) -> None:
    refused({**BASE, f"Kafka.{name.upper()}": "x"}, f"kafka.{name} is not supported: ")


def test_other_settings_go_to_the_client_known_or_not() -> None:
    options = stream({"kafka.isolation.level": "read_committed", "kafka.what.is.this": "1"})
    assert options.client == {
        "bootstrap.servers": "h:9092",
        "isolation.level": "read_committed",
        "what.is.this": "1",
    }


def test_a_group_id_is_passed_over_with_a_warning() -> None:
    options = stream({"kafka.group.id": "mine"}, groupIdPrefix="p")
    assert options.group_id == "mine"
    (warning,) = options.warnings
    assert "kafka.group.id is passed over" in warning
    assert "mirrorToGroup" in warning


def test_options_of_streams_are_passed_over_in_a_batch_with_a_warning() -> None:
    odd = {
        "maxOffsetsPerTrigger": "nonsense",
        "maxTriggerDelay": "nonsense",
        "maxBytesPerTrigger": "nonsense",
        "mirrorToGroup": "g",
    }
    options = batch(odd)
    assert [text.split()[1] for text in options.warnings] == list(odd)
    assert (options.max_offsets_per_trigger, options.max_bytes_per_trigger, options.mirror_group) == (None, None, None)
    assert [text.split()[1] for text in stream(endingTimestamp="5").warnings] == ["endingTimestamp"]


@pytest.mark.parametrize(
    ("option", "meant"),
    [
        ("startingOffset", "startingOffsets"),
        ("maxOffsetPerTrigger", "maxOffsetsPerTrigger"),
        ("failOnDataLos", "failOnDataLoss"),
        ("subscibe", "subscribe"),
        ("maxBytePerTrigger", "maxBytesPerTrigger"),
        ("include_headers", "includeHeaders"),
    ],
)
def test_a_slip_of_the_pen_is_refused_with_the_option_that_was_meant(option: str, meant: str) -> None:
    told = f"There is no option {option.lower()}; did you mean {meant}?"
    with pytest.raises(OptionError) as refused:
        stream({option: "1"})
    assert str(refused.value) == f"{told} To have it passed over, set the option strictOptions to false."
    assert stream({option: "1", "strictOptions": "false"}).warnings == (f"{told} It is passed over.",)


def test_a_slip_goes_before_what_it_leads_to() -> None:
    """Who writes subscibe has selected nothing, and had better hear of the slip."""
    with pytest.raises(OptionError, match=r"did you mean subscribe\?"):
        SourceOptions.parse({"kafka.bootstrap.servers": "b:9092", "subscibe": "clicks"}, is_streaming=False)


@pytest.mark.parametrize(
    "option",
    [
        *("path", "checkpointLocation", "header", "queryName", "valueFormat", "topic", "__x"),
        # what people hand to several sources at once
        *("schema", "maxRatePerPartition", "maxFilesPerTrigger", "numPartitions", "inferSchema", "includeTimestamp"),
        *("startingVersion", "ignoreChanges", "mergeSchema", "user", "password", "url", "batchsize", "mode", "format"),
    ],
)
def test_other_options_pass_in_silence(option: str) -> None:
    assert stream({option: "1"}).warnings == ()


nonsense = st.text() | st.text('{}[]":,0123456789-t ') | st.text(r"()[]{}?*+|^$.\\abpPQEkx<>&-:=!1i")


@settings(deadline=None)
@given(st.sampled_from(["subscribe", "subscribePattern", "assign"]), nonsense, nonsense, st.booleans())
def test_of_nonsense_comes_an_option_error_or_nothing(
    selection: str, text: str, start: str, is_streaming: bool
) -> None:
    options = {"kafka.bootstrap.servers": "h:1", selection: text, "startingOffsets": start}
    with contextlib.suppress(OptionError):
        assert SourceOptions.parse(options, is_streaming=is_streaming).client
