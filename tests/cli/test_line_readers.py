"""From lines to records, as `console-producer` reads them."""

from __future__ import annotations

import io

import pytest

from barnabas.base.errors import BarnabasError, SettingsError
from barnabas.cli.line_readers import LineReader, ReadRecord, record_reader


def read(text: bytes, **settings: str) -> list[ReadRecord]:
    reader = LineReader()
    reader.configure({"topic": "t"} | {name.replace("_", "."): value for name, value in settings.items()})
    return list(reader.read_records(io.BytesIO(text)))


def test_each_line_is_a_value_whatever_ends_it() -> None:
    assert [record.value for record in read(b"a\n\nb\r\nc\rd")] == [b"a", b"", b"b", b"c", b"d"]
    assert read(b"") == []


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert read(b"\xff\xfe\n") == [ReadRecord("t", b"\xff\xfe")]


def test_keys_and_headers() -> None:
    assert read(b"k\tv\tw\n", parse_key="true") == [ReadRecord("t", b"v\tw", b"k")]
    assert read(b"k=v\n", parse_key=" TRUE ", key_separator="=") == [ReadRecord("t", b"v", b"k")]
    (record,) = read(b"a:1,b:2:3,c:\tk\tv\n", parse_key="true", parse_headers="true")
    assert record == ReadRecord("t", b"v", b"k", (("a", b"1"), ("b", b"2:3"), ("c", b"")))
    (record,) = read(b"a=1;b=2|v\n", parse_headers="true", headers_delimiter="|", headers_separator=";",
                     headers_key_separator="=")  # fmt: skip
    assert record == ReadRecord("t", b"v", None, (("a", b"1"), ("b", b"2")))


def test_the_separator_of_headers_is_an_expression_unless_it_would_match_nothing() -> None:
    settings = {"parse_headers": "true"}
    expected = (("a", b"1"), ("b", b"2"))
    for separator, text in (
        ("[;,]", b"a:1;b:2\tv"),
        (r"\|", b"a:1|b:2\tv"),
        ("|", b"a:1|b:2\tv"),
        (",", b"a:1,b:2,\tv"),
    ):
        assert read(text, headers_separator=separator, **settings)[0].headers == expected
    with pytest.raises(SettingsError, match="not a regular expression"):
        read(b"", headers_separator="(", **settings)


def test_what_equals_the_null_marker_is_null() -> None:
    marked = {"parse_key": "true", "parse_headers": "true", "null_marker": "NULL"}
    records = read(b"NULL\tNULL\tNULL\na:NULL\tk\tv\n", **marked)
    assert records == [ReadRecord("t", None), ReadRecord("t", b"v", b"k", (("a", None),))]
    with pytest.raises(BarnabasError, match="line 1: the name of a header cannot be null"):
        read(b"NULL:v\tk\tv\n", **marked)


@pytest.mark.parametrize(
    ("text", "settings", "said"),
    [
        (b"k\tv\nw\n", {"parse_key": "true"}, "line 2: there is no key.separator '\\t' in 'w'"),
        (b"w\n", {"parse_headers": "true"}, "line 1: there is no headers.delimiter"),
        (b"a\tv\n", {"parse_headers": "true"}, "line 1: there is no headers.key.separator ':' in 'a'"),
        (b"\tv\n", {"parse_headers": "true"}, "line 1: there is no headers.key.separator ':' in ''"),
    ],
)
def test_a_line_without_its_separators_is_refused(text: bytes, settings: dict[str, str], said: str) -> None:
    with pytest.raises(BarnabasError) as refused:
        read(text, **settings)
    assert said in str(refused.value)


def test_or_taken_as_it_is_if_errors_are_ignored() -> None:
    ignoring = {"parse_key": "true", "parse_headers": "true", "ignore_error": "true"}
    assert read(b"v\n", **ignoring) == [ReadRecord("t", b"v")]
    assert read(b"a\tk\tv\n", **ignoring) == [ReadRecord("t", b"v", b"k", (("a", None),))]
    assert read(b"a:1\tv\n", **ignoring) == [ReadRecord("t", b"v", None, (("a", b"1"),))]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("headers.delimiter", ","),
        ("headers.delimiter", ":"),
        ("headers.separator", ":"),
        ("null.marker", "\t"),
        ("null.marker", ","),
        ("null.marker", ":"),
        ("key.separator", ""),
    ],
)
def test_separators_must_differ(name: str, value: str) -> None:
    with pytest.raises(SettingsError, match=name):
        record_reader("org.apache.kafka.tools.LineMessageReader", {"topic": "t", name: value})


class TwiceReader:
    """What somebody may give as `--line-reader`."""

    def configure(self, settings: dict[str, str]) -> None:
        self.topic = settings["topic"]

    def read_records(self, stream: io.BytesIO) -> list[ReadRecord]:
        return [ReadRecord(self.topic, stream.read() * 2)]


def test_readers_of_others() -> None:
    reader = record_reader(f"{__name__}.TwiceReader", {"topic": "t"})
    assert list(reader.read_records(io.BytesIO(b"ab"))) == [ReadRecord("t", b"abab")]
    for name in ("no.such.reader", "builtins.dict"):
        with pytest.raises(SettingsError, match=name):
            record_reader(name, {"topic": "t"})
